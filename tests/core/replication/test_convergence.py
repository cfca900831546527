"""Whatever is exchanged, in whatever order and however often it breaks, the replicas end up the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crdt.codec import encode_register
from replica.storage.memory import MemoryStorage
from tests.core.replication.small_fleet import LAPSE, Site, Stream, World, sync

KEYS = st.sampled_from(["k0", "k1", "k2"])
PLACES = st.integers(0, 2)
TTLS = st.sampled_from([None, None, 10.0, 70.0])
SIZES = st.sampled_from([1, 300, 1 << 20])


class Fleet(RuleBasedStateMachine):
    """Three replicas, a stream between any two, and everything that can happen to them."""

    @initialize(skews=st.tuples(*[st.sampled_from([0, -2, 2])] * 3))
    def begin(self, skews: tuple[float, float, float]) -> None:
        self.world = World()
        names = ("A", "B", "C")
        self.sites = [
            Site(self.world, name, [peer for peer in names if peer != name], skew=skew)
            for name, skew in zip(names, skews, strict=True)
        ]
        self.streams: dict[tuple[int, int], Stream] = {}
        self.copies: dict[int, MemoryStorage] = {}
        self.written: set[str] = set()
        self.hurt = False

    # --- what users do

    @rule(at=PLACES, key=KEYS, ttl=TTLS)
    def remember(self, at: int, key: str, ttl: float | None) -> None:
        title = f"note {len(self.written)}"
        self.written.add(title)
        self.sites[at].remember(key, title, ttl)

    @rule(at=PLACES, key=KEYS)
    def forget(self, at: int, key: str) -> None:
        self.sites[at].forget(key)

    @rule(seconds=st.sampled_from([1, 6, 20, LAPSE // 1000 + 1]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    # --- what the network does

    @rule(at=PLACES, other=PLACES, size=SIZES, window=st.integers(1, 3), steps=st.integers(1, 25))
    def exchange(self, at: int, other: int, size: int, window: int, steps: int) -> None:
        if at == other:
            return
        stream = self.streams.get((at, other))
        if stream is None or stream.ended:
            stream = Stream(self.sites[at], self.sites[other], batch_bytes=size, window=window)
            self.streams[at, other] = stream
        for number in range(steps):
            if number % 3 == 0:
                stream.poll()
            if stream.down and number % 2:
                stream.deliver_down()
            elif stream.up:
                stream.deliver_up()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        self._cut(data.draw(st.sampled_from(sorted(self.streams))))

    def _cut(self, link: tuple[int, int]) -> None:
        stream = self.streams.pop(link, None)
        if stream is not None:
            stream.pulling.fail("cut")
            stream.serving.fail("cut")

    # --- what befalls a replica

    def _down(self, at: int) -> None:
        for link in [link for link in self.streams if at in link]:
            self._cut(link)

    @rule(at=PLACES)
    def restart(self, at: int) -> None:
        self._down(at)
        self.sites[at].roll_back(self.sites[at].copy(), noticed=False)

    @rule(at=PLACES)
    def wipe(self, at: int) -> None:
        self._down(at)
        self.sites[at].wipe()
        self.hurt = True

    @rule(at=PLACES)
    def roll_back(self, at: int) -> None:
        self._down(at)
        site = self.sites[at]
        copy = self.copies.pop(at, None)
        if copy is None:
            self.copies[at] = site.copy()
        else:
            site.roll_back(copy)
            self.hurt = True

    @rule(at=PLACES)
    def purge(self, at: int) -> None:
        self.sites[at].purge()

    # --- what must hold

    @invariant()
    def nothing_appears_that_nobody_wrote(self) -> None:
        for site in getattr(self, "sites", ()):
            for key in ("k0", "k1", "k2"):
                assert site.titles(key) <= self.written

    def teardown(self) -> None:
        if not hasattr(self, "sites"):
            return
        for link in list(self.streams):
            self._cut(link)
        self.world.wait(1)
        sync(*self.sites, rounds=8)
        self._agree()
        self.world.wait(1000)
        for _ in range(4):
            sync(*self.sites, rounds=2)
            for site in self.sites:
                site.purge()
        self._agree()
        states = [
            {key: encode_register(register) for key, register in site.everything().items()}
            for site in self.sites
        ]
        assert states[0] == states[1] == states[2]
        for site in self.sites:
            for register in site.everything().values():
                assert any(not sibling.tombstone for sibling in register), "a tombstone was left behind"
            assert self.hurt or site.clock().extras() == 0

    def _agree(self) -> None:
        now = min(site.now for site in self.sites)
        for key in ("k0", "k1", "k2"):
            titles = [site.titles(key, now) for site in self.sites]
            assert titles[0] == titles[1] == titles[2]


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
