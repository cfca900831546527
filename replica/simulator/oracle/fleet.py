"""The fleet as the oracle knows it: which replica has seen which writes, and what each must answer.

The harness tells it every write when it is made and every message when it has been applied. From that alone
the oracle says what a call must have answered and what a read must show. It never forgets a write: a purge
must be invisible. Times are milliseconds since the epoch.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .edit import Edit
from .excuse import Evidence
from .graph import Dot, Graph, Standing
from .read import Expected, shown

__all__ = ["Answer", "Contradiction", "Oracle", "Seen"]

SKEW_MS = 60_000
"""How much longer an entry hidden here may live elsewhere before a write over it is refused (section 4)."""


class Contradiction(AssertionError):
    """A replica did what no replica may do, or the harness told its story out of order."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a local call must have answered."""

    written: bool
    """Whether it had to make a write; if not it was refused, or found nothing to do."""
    existed: bool
    """The entry was live before the call."""
    created: bool = False
    expires_at: int | None = None
    """The expiry in force after the call; None for a durable entry and where no value remains."""
    kind_ignored: bool = False
    """The call named a kind that is not the entry's."""
    durable_ignored: bool = False
    """The call asked for a durable entry and the entry is ephemeral."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replica had seen at one moment. Opaque: it serves `caught_up` and `rolled_back`."""

    writes: Mapping[Hashable, int]


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a local call finds: the key's graph, what the replica has seen of it, and its siblings."""

    graph: Graph
    seen: int
    standing: Standing


class Oracle:
    """Judges a fleet by the graph of which write had seen which.

    A local write takes the dots that the replica minted: one, or none if it answered without writing. It
    raises `Contradiction` if that is not what it had to do, and returns the answer that was due.

    `held` is for runs where members lapse or lose data, in which a replica's register may rightly differ from
    what the graph says: the dots of the siblings that the register really held when the call came, tombstones
    included. The call is then judged by those. Elsewhere leave it out, so that registers are judged too.
    """

    def __init__(self) -> None:
        self._graphs: dict[Hashable, Graph] = {}
        self._dots: dict[Dot, Hashable] = {}
        """Every dot minted, and the key it was minted for."""
        self._seen: dict[str, dict[Hashable, int]] = {}
        self._lost: set[str] = set()

    # --- members and faults

    def join(self, replica: str) -> None:
        """A replica without data appears."""
        if replica in self._seen:
            raise Contradiction(f"{replica} is in the fleet already")
        self._seen[replica] = {}

    def wiped(self, replica: str) -> None:
        """A replica loses everything and goes on as an empty one."""
        self._seen[replica].clear()
        self._lost.add(replica)

    def snapshot(self, replica: str) -> Seen:
        """What `rolled_back` will bring back."""
        return self.seen(replica)

    def rolled_back(self, replica: str, snapshot: Seen) -> None:
        """A replica finds itself in an earlier state of its own."""
        self._seen[replica].clear()
        self._seen[replica].update(snapshot.writes)
        self._lost.add(replica)

    # --- local writes

    def remembered(
        self,
        replica: str,
        key: Hashable,
        dots: Sequence[Dot],
        *,
        now: int,
        ttl_ms: int | None = None,
        default_ttl_ms: int | None = None,
        durable: bool = False,
        kind: str | None = None,
        fields: Mapping[str, str] | None = None,
        add_tags: Collection[str] = (),
        remove_tags: Collection[str] = (),
        add_links: Mapping[str, Collection[str]] | None = None,
        remove_links: Mapping[str, Collection[str]] | None = None,
        created_at: int | None = None,
        held: Collection[Dot] | None = None,
    ) -> Answer:
        """A remember: it creates the entry where it is absent or hidden, else it edits the live one."""
        here = self._read(replica, key, held)
        standing = here.standing
        live = standing.live(now)
        edit = Edit(fields or {}, add_tags, remove_tags, add_links or {}, remove_links or {})
        must = not edit.contradictory
        in_force = standing.expires_at if live else None
        if not self._minted(replica, key, dots, must):
            return Answer(written=False, existed=live, expires_at=in_force)
        if ttl_ms is not None:
            expires_at: int | None = max(in_force or 0, now + ttl_ms)
        elif live:
            expires_at = in_force
        else:
            expires_at = None if durable or default_ttl_ms is None else now + default_ttl_ms
        folded = standing.folded if live else standing.tombstones
        base = here.graph.content(folded)
        write = self._add(replica, key, here, dots[0], folded, now, expires_at=expires_at)
        if live:
            differs = edit.carry_on(here.graph, write, base, kind)
        else:
            edit.begin(here.graph, write, kind or "Note", now if created_at is None else created_at)
            differs = False
        return Answer(
            written=True,
            existed=live,
            created=not live,
            expires_at=expires_at,
            kind_ignored=differs,
            durable_ignored=durable and live and in_force is not None,
        )

    def updated(
        self,
        replica: str,
        key: Hashable,
        dots: Sequence[Dot],
        *,
        now: int,
        fields: Mapping[str, str] | None = None,
        add_tags: Collection[str] = (),
        remove_tags: Collection[str] = (),
        add_links: Mapping[str, Collection[str]] | None = None,
        remove_links: Mapping[str, Collection[str]] | None = None,
        held: Collection[Dot] | None = None,
    ) -> Answer:
        """An update: refused where the entry is absent or hidden; it leaves the expiry in force."""
        here = self._read(replica, key, held)
        standing = here.standing
        live = standing.live(now)
        edit = Edit(fields or {}, add_tags, remove_tags, add_links or {}, remove_links or {})
        must = live and not edit.contradictory
        in_force = standing.expires_at if live else None
        if not self._minted(replica, key, dots, must):
            return Answer(written=False, existed=live, expires_at=in_force)
        base = here.graph.content(standing.folded)
        write = self._add(replica, key, here, dots[0], standing.folded, now, expires_at=in_force)
        edit.carry_on(here.graph, write, base, None)
        return Answer(written=True, existed=True, expires_at=in_force)

    def forgot(
        self,
        replica: str,
        key: Hashable,
        dots: Sequence[Dot],
        *,
        now: int,
        purged: bool = False,
        held: Collection[Dot] | None = None,
    ) -> Answer:
        """A forget: a tombstone wherever any value exists, hidden or not, and nothing elsewhere.

        `purged`: the replica holds no register at the key. That is no excuse where the entry is live.
        """
        here = self._read(replica, key, held)
        standing = here.standing
        live = standing.live(now)
        if purged and live:
            raise Contradiction(f"{replica} has purged {key!r}, which is live")
        if not self._minted(replica, key, dots, bool(standing.values) and not purged):
            return Answer(written=False, existed=False)
        folded = standing.values + standing.tombstones
        self._add(replica, key, here, dots[0], folded, now, tombstone=True)
        return Answer(written=True, existed=live)

    def lapsed(
        self,
        replica: str,
        key: Hashable,
        dots: Sequence[Dot],
        *,
        now: int,
        lapse_ms: int,
        held: Collection[Dot] | None = None,
    ) -> Answer:
        """A forget with a lapse: the live entry gets that time to live, never a shorter one."""
        here = self._read(replica, key, held)
        standing = here.standing
        live = standing.live(now)
        if not self._minted(replica, key, dots, live):
            return Answer(written=False, existed=False)
        expires_at = max(standing.expires_at or 0, now + lapse_ms)
        self._add(replica, key, here, dots[0], standing.folded, now, expires_at=expires_at)
        return Answer(written=True, existed=True, expires_at=expires_at)

    def removed_on_behalf(
        self,
        replica: str,
        key: Hashable,
        dots: Sequence[Dot],
        covered: Collection[Dot],
        now: int,
        *,
        latest: int | None = None,
    ) -> None:
        """A tombstone that a replica made of itself, in a reconcile or over an expired register.

        Its past is exactly the covered siblings and theirs, whatever else the replica has seen. Raises
        `Contradiction` if one of them was a value that nobody may have purged: no write ever superseded it,
        and by the clock that is `latest` in the fleet (default: `now`) neither it nor a concurrent value that
        it would share an entry with has expired.
        """
        graph = self._graph(key)
        numbers = self._numbers(key, covered)
        if not self._minted(replica, key, dots, bool(numbers)):
            return
        past = graph.closure(numbers)
        if past & ~self._seen[replica].get(key, 0):
            raise Contradiction(f"{replica} removed at {key!r} what it has not seen")
        for write in numbers:
            if not graph.tombstones >> write & 1 and not graph.purgeable(write, max(now, latest or now)):
                raise Contradiction(f"{replica} removed at {key!r} a value that nobody had removed")
        write = graph.add(dots[0], past=past, folded=numbers, written_at=now, tombstone=True)
        self._dots[dots[0]] = key
        self._seen[replica][key] |= 1 << write

    def clock_refusal(
        self,
        replica: str,
        key: Hashable,
        *,
        now: int,
        slowest: int,
        held: Collection[Dot] | None = None,
    ) -> bool:
        """Whether a write over an entry hidden here must be refused for clock skew.

        `slowest`: the slowest plausible clock, as this replica may compute it.
        """
        standing = self._read(replica, key, held).standing
        expires_at = standing.expires_at
        return (
            bool(standing.contributing)
            and not standing.live(now)
            and expires_at is not None
            and expires_at - slowest > SKEW_MS
        )

    # --- what arrived

    def delivered(self, receiver: str, key: Hashable, dots: Collection[Dot]) -> None:
        """A register with exactly these siblings was joined: they are seen, and their whole past."""
        seen = self._seen[receiver]
        seen[key] = seen.get(key, 0) | self._graph(key).closure(self._numbers(key, dots))

    def caught_up(self, receiver: str, seen: Seen) -> None:
        """A complete batch, or the end of a reconcile: all that the supplier had seen is seen."""
        mine = self._seen[receiver]
        for key, writes in seen.writes.items():
            mine[key] = mine.get(key, 0) | writes

    def seen(self, replica: str) -> Seen:
        """What a replica has seen by now: taken when a supplier reads its snapshot."""
        return Seen(dict(self._seen[replica]))

    # --- judgement

    def dots(self, replica: str) -> set[Dot]:
        """Every write that a replica has seen, whatever became of it: its clock may claim no other."""
        return {
            dot
            for key, writes in self._seen[replica].items()
            for number, dot in enumerate(self._graph(key).dots)
            if writes >> number & 1
        }

    def expected(self, key: Hashable, now: int) -> Expected | None:
        """What every replica must show at `now` once all is healed, or None if nothing.

        Counts every write that some replica has seen and not lost. `now` is not before any clock by which
        something was purged.
        """
        graph = self._graph(key)
        return shown(graph, graph.standing(graph.siblings(self._known(key))), now)

    def expected_at(self, replica: str, key: Hashable, now: int) -> Expected | None:
        """What this replica must show at `now`, given what it has seen, or None if nothing."""
        return shown(self._graph(key), self._read(replica, key, None).standing, now)

    def evidence(self, key: Hashable, now: int, got: Expected | None) -> Evidence:
        """What `excused` needs to know of a read that is not as expected.

        Raises `Contradiction` if the read names a sibling that is no write on this key, or a tombstone.
        """
        graph = self._graph(key)
        standing = graph.standing(graph.siblings(self._known(key)))
        superseded = 0
        for past in graph.pasts:
            superseded |= past
        floor = ceiling = None
        if got is not None:
            siblings = sorted(self._numbers(key, got.siblings), reverse=True)
            if any(graph.tombstones >> write & 1 for write in siblings):
                raise Contradiction(f"a read of {key!r} shows a tombstone as a value")
            ceiling = shown(graph, graph.standing(siblings), now)
            reached = graph.closure(siblings)
            beside = [
                write
                for write, past in enumerate(graph.pasts)
                if graph.tombstones >> write & 1
                and not reached >> write & 1
                and not any(past >> sibling & 1 for sibling in siblings)
            ]
            floor = shown(graph, graph.standing([*siblings, *beside]), now)
        return Evidence(
            standing={graph.dots[write]: graph.expires_at[write] for write in standing.values},
            outlived=bool(standing.values) and not standing.live(now),
            overtaken=frozenset(graph.dots[write] for write in standing.values if superseded >> write & 1),
            some_lost=bool(self._lost),
            all_lost=len(self._lost) == len(self._seen),
            floor=floor,
            ceiling=ceiling,
        )

    # --- the bookkeeping

    def _graph(self, key: Hashable) -> Graph:
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = Graph()
        return graph

    def _known(self, key: Hashable) -> int:
        """Every write that some replica has seen and not lost."""
        known = 0
        for seen in self._seen.values():
            known |= seen.get(key, 0)
        return known

    def _numbers(self, key: Hashable, dots: Iterable[Dot]) -> list[int]:
        number = self._graph(key).number
        try:
            return [number[dot] for dot in dots]
        except KeyError as missing:
            raise Contradiction(f"{missing} names no write on {key!r}") from None

    def _read(self, replica: str, key: Hashable, held: Collection[Dot] | None) -> _Reading:
        graph = self._graph(key)
        seen = self._seen[replica].get(key, 0)
        if held is None:
            siblings = graph.siblings(seen)
        else:
            siblings = sorted(self._numbers(key, held), reverse=True)
            if graph.closure(siblings) & ~seen:
                raise Contradiction(f"{replica} holds at {key!r} what it has not seen")
        return _Reading(graph, seen, graph.standing(siblings))

    def _minted(self, replica: str, key: Hashable, dots: Sequence[Dot], must: bool) -> bool:
        """Whether a write is to be recorded; raises if the replica did not do as it had to."""
        if len(dots) != must:
            due = "one write was" if must else "no write was"
            raise Contradiction(f"{replica} minted {len(dots)} dots at {key!r}, where {due} due")
        if dots and dots[0] in self._dots:
            self._forget(replica, dots[0])
        return must

    def _forget(self, replica: str, dot: Dot) -> None:
        """A dot is minted again: that is right only if its first write was lost before anyone had seen it."""
        key = self._dots[dot]
        graph = self._graph(key)
        write = graph.number[dot]
        if any(seen.get(key, 0) >> write & 1 for seen in self._seen.values()):
            raise Contradiction(f"{replica} minted {dot!r} a second time")
        del graph.number[dot]

    def _add(
        self,
        replica: str,
        key: Hashable,
        here: _Reading,
        dot: Dot,
        folded: Iterable[int],
        now: int,
        *,
        expires_at: int | None = None,
        tombstone: bool = False,
    ) -> int:
        """Record a write whose past is all that its replica has seen of the key."""
        write = here.graph.add(
            dot,
            past=here.seen,
            folded=folded,
            written_at=now,
            expires_at=expires_at,
            tombstone=tombstone,
        )
        self._dots[dot] = key
        self._seen[replica][key] = here.seen | 1 << write
        return write
