"""A few replicas that write at a few keys and exchange registers, and a plain account of what they should
hold.

The replicas use :mod:`crdt` alone. The account beside them shares no rule with it: it knows every write,
which writes of its key each had seen and which of them it had folded, all as plain sets of dots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from hypothesis import strategies as st

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.codec import encode_record
from crdt.dot import Actor, Dot, Millis
from crdt.expiry import with_ttl
from crdt.fold import Folded, fold, read_record
from crdt.record import EMPTY_RECORD, Edit, Link, Record, Scalar
from crdt.register import Joined, Register, Sibling, context_over, covers, join
from crdt.write import basis, bury, lapse, rewrite, saying_again
from tests.crdt.values import AP, EU, NOW, US

REPLICAS = (EU, US, AP)
KEYS = range(2)
KEY = KEYS[0]
"""The key that is asked about. The writes at the other leave holes in contexts and clocks."""


class Element(NamedTuple):
    """What one write put, and where: a field's value, a tag, a link, a revision."""

    place: tuple[object, ...]
    dot: Dot
    value: Scalar
    written_at: int


@dataclass(frozen=True)
class PlainRecord:
    """A record as the definition has it: a set of elements, and the writes it has seen."""

    seen: frozenset[Dot] = frozenset()
    elements: frozenset[Element] = frozenset()

    def joined(self, other: PlainRecord) -> PlainRecord:
        """What both have, and what either has that the other has not seen."""
        return PlainRecord(
            self.seen | other.seen,
            frozenset(
                element
                for element in self.elements | other.elements
                if (element in self.elements or element.dot not in self.seen)
                and (element in other.elements or element.dot not in other.seen)
            ),
        )

    def store(self, *place: object) -> list[Element]:
        """The elements at a place."""
        return [element for element in self.elements if element.place == place]

    def without(self, *place: object) -> PlainRecord:
        """The record with a place emptied."""
        return replace(self, elements=self.elements - frozenset(self.store(*place)))

    def put(self, element: Element) -> PlainRecord:
        """The record with an element more."""
        return replace(self, elements=self.elements | {element})


@dataclass(frozen=True)
class Written:
    """One write in the account."""

    dot: Dot
    past: frozenset[Dot]
    """Every write of this key that its writer had seen."""
    tombstone: bool
    expires_at: int | None
    written_at: int
    record: PlainRecord | None
    """None: not decodable."""
    payload: bytes = b""
    """Of an undecodable write."""


def joined(records: Iterable[PlainRecord | None]) -> PlainRecord:
    """The join of those records that decode."""
    out = PlainRecord()
    for record in records:
        out = out if record is None else out.joined(record)
    return out


@dataclass(frozen=True)
class View:
    """What one replica knows of one key, by the account."""

    seen: frozenset[Dot] = frozenset()
    purged: frozenset[Dot] = frozenset()

    def joined(self, other: View) -> View:
        """What both know."""
        return View(self.seen | other.seen, self.purged | other.purged)


@dataclass
class Account:
    """Every write ever made at one key."""

    writes: dict[Dot, Written] = field(default_factory=dict)

    def siblings(self, view: View) -> list[Written]:
        """Of the writes seen, those that no other one had seen, and that were not purged."""
        writes = [self.writes[dot] for dot in view.seen]
        gone = view.purged.union(*(write.past for write in writes))
        return [write for write in writes if write.dot not in gone]

    def living(self, view: View, now: int) -> tuple[list[Written], int | None] | None:
        """The values that contribute at ``now`` and the expiry in force, by the definition."""
        values = [write for write in self.siblings(view) if not write.tombstone]
        values = [
            write
            for write in values
            if write.expires_at is None
            or not any(other.written_at >= write.expires_at for other in values if other is not write)
        ]
        expiries = [write.expires_at for write in values if write.expires_at is not None]
        expires_at = max(expiries, default=None)
        if not values or (expires_at is not None and expires_at <= now):
            return None
        return values, expires_at

    def tombstones(self, view: View) -> list[Written]:
        """The siblings that are tombstones."""
        return [write for write in self.siblings(view) if write.tombstone]


class Act(IntEnum):
    """What can happen."""

    EDIT = 0
    FORGET = 1
    LAPSE = 2
    NEWER = 3
    """A replica of a newer version writes what none of these can decode."""
    DELIVER = 4
    """Everything that one replica holds reaches another, which then takes over its clock."""
    DELIVER_PART = 5
    """The register of one key reaches another replica, and no clock with it."""
    WAIT = 6
    MEET = 7
    """Everything reaches everyone."""
    PURGE = 8
    """A replica drops a register of tombstones that every replica has seen."""


class Step(NamedTuple):
    """One thing that happens."""

    act: Act
    replica: int
    other: int
    key: int
    choice: int
    """Which of the edits, payloads or times to live."""


X_LINK = Link("touches", "x")
EDITS = (
    Edit(fields={"title": "one"}),
    Edit(fields={"title": "two"}),
    Edit(fields={"title": ""}),
    Edit(fields={"title": "one", "body": "one"}),
    Edit(fields={"colour": 7}),
    Edit(fields={"kind": "Memory"}),
    Edit(add_tags=frozenset({"x"})),
    Edit(remove_tags=frozenset({"x"})),
    Edit(add_tags=frozenset({"x", "y"}), add_links=frozenset({X_LINK})),
    Edit(remove_tags=frozenset({"y"}), remove_links=frozenset({X_LINK})),
    Edit(),
)
TTLS = (None, None, 5, 40)
SKEWS = (0, 7, -7)

steps = st.builds(
    Step,
    st.sampled_from(
        [Act.WAIT, *Act, *Act, *[Act.EDIT] * 3, Act.DELIVER, Act.DELIVER_PART],
    ),
    st.integers(0, len(REPLICAS) - 1),
    st.integers(0, len(REPLICAS) - 1),
    st.sampled_from([KEY, *KEYS]),
    st.integers(0, len(EDITS) * len(TTLS) - 1),
)
histories = st.lists(st.tuples(*[steps] * 4), min_size=1, max_size=12).map(
    lambda spans: [step for span in spans for step in span]
)
"""Histories of some twenty steps. In spans of four: plain lists stay too short for anything to happen."""


@dataclass
class Replica:
    """One replica: what it holds, and beside it what the account says it has seen and dropped."""

    actor: Actor
    skew: int
    counter: int = 0
    clock: Clock = EMPTY_CLOCK
    registers: dict[int, Register] = field(default_factory=lambda: dict.fromkeys(KEYS, ()))
    views: dict[int, View] = field(default_factory=lambda: dict.fromkeys(KEYS, View()))


class Snapshot(NamedTuple):
    """The state of a replica at one key."""

    register: Register
    clock: Clock


def joined_states(local: Snapshot, remote: Snapshot) -> Snapshot:
    """The join of two states, the supplier's clock taken over."""
    return Snapshot(
        join(local.register, remote.register, local.clock, remote.clock).register,
        local.clock.join(remote.clock),
    )


class Fleet:
    """The replicas, the account, and every state and record that came about."""

    def __init__(self) -> None:
        self.now = int(NOW)
        self.replicas = [Replica(actor, skew) for actor, skew in zip(REPLICAS, SKEWS, strict=True)]
        self.accounts = {key: Account() for key in KEYS}
        self.snapshots: list[Snapshot] = [Snapshot((), EMPTY_CLOCK)]
        """States at :data:`KEY`."""
        self.records: list[Record] = [EMPTY_RECORD]
        """Records written and folded at :data:`KEY`."""
        self._written: set[Dot] = set()

    @classmethod
    def after(cls, history: Iterable[Step]) -> Fleet:
        """The fleet after a history, checked at every step."""
        fleet = cls()
        for step in history:
            fleet.happen(step)
        return fleet

    def happen(self, step: Step) -> None:
        """One step, and the check of the replica it touched."""
        replica, supplier = self.replicas[step.replica], self.replicas[step.other]
        match step.act:
            case Act.EDIT:
                self.edit(replica, step.key, EDITS[step.choice % len(EDITS)], TTLS[step.choice // len(EDITS)])
            case Act.FORGET:
                self.forget(replica, step.key)
            case Act.LAPSE:
                self.lapse(replica, step.key, 5 + step.choice)
            case Act.NEWER:
                self.write_newer(replica, step.key, step.choice)
            case Act.DELIVER:
                self.deliver(supplier, replica)
            case Act.DELIVER_PART:
                self.deliver_part(supplier, replica, step.key)
            case Act.WAIT:
                self.now += 1 + step.choice % 20
            case Act.MEET:
                self.heal()
            case Act.PURGE:
                self.purge(replica, step.key)
        self.check(replica)

    # --- local writes: the replica by crdt.write, the account by the table of docs/decisions/0002

    def clock_of(self, replica: Replica) -> Millis:
        """What the replica takes for the time."""
        return Millis(self.now + replica.skew)

    def edit(self, replica: Replica, key: int, edit: Edit, ttl: int | None) -> None:
        """A remember of what is absent, else an update."""
        now = self.clock_of(replica)
        found = basis(replica.registers[key], now)
        after_ttl = None if ttl is None else Millis(ttl)
        if found.life is None:
            edit = replace(edit, fields={"kind": "Note", "created_at": now, **edit.fields})
            expires_at = None if ttl is None else Millis(now + ttl)
        else:
            in_force = found.life.expires_at
            expires_at = in_force if after_ttl is None else with_ttl(in_force, now, after_ttl)
        first = Dot(replica.actor, replica.counter + 1)
        register = rewrite(found, saying_again(found, edit), first, now, expires_at)

        living = self.accounts[key].living(replica.views[key], now)
        base = joined(self.folded(replica, key, now))
        fields = dict(edit.fields)
        kinds, times = base.store("field", "kind"), base.store("field", "created_at")
        if "kind" not in fields and len({element.value for element in kinds}) == 1:
            fields["kind"] = kinds[0].value
        if "created_at" not in fields and times:
            fields["created_at"] = max(times, key=lambda element: (element.written_at, element.dot)).value
        expected = None if living is None else living[1]
        if ttl is not None:
            expected = max(expected or 0, now + ttl)
        record = self.edited(base, replace(edit, fields=fields), first, now)
        self.wrote(replica, key, register, record, self.unreadable(replica, key, now), expected, now)

    def lapse(self, replica: Replica, key: int, ttl: int) -> None:
        """A lapse of what is live."""
        now = self.clock_of(replica)
        found = basis(replica.registers[key], now)
        living = self.accounts[key].living(replica.views[key], now)
        assert (found.life is None) == (living is None)
        if found.life is None or living is None:
            return
        first = Dot(replica.actor, replica.counter + 1)
        values, in_force = living
        base = joined(self.folded(replica, key, now))
        unreadable = self.unreadable(replica, key, now)
        if any(value.record is not None for value in values):
            expires_at = with_ttl(found.life.expires_at, now, Millis(ttl))
            register = lapse(found, first, now, expires_at)
            record = PlainRecord(base.seen | {first}, base.elements)
            self.wrote(replica, key, register, record, unreadable, max(in_force or 0, now + ttl), now)
            return
        register = lapse(found, first, now, Millis(now + ttl))
        tombstones = [
            write for write in self.accounts[key].tombstones(replica.views[key]) if write.record is not None
        ]
        record_of_tombstone = PlainRecord(base.seen | {first}) if tombstones else None
        self.wrote(
            replica,
            key,
            register,
            record_of_tombstone,
            unreadable,
            now + ttl,
            now,
            tombstone=bool(tombstones),
        )

    def forget(self, replica: Replica, key: int) -> None:
        """A forget, where any value is."""
        now = self.clock_of(replica)
        siblings = self.accounts[key].siblings(replica.views[key])
        if all(write.tombstone for write in siblings):
            return
        first = Dot(replica.actor, replica.counter + 1)
        register = bury(replica.registers[key], first, now)
        seen = joined(write.record for write in siblings).seen
        self.wrote(replica, key, register, PlainRecord(seen | {first}), [], None, now, tombstone=True)

    def write_newer(self, replica: Replica, key: int, choice: int) -> None:
        """A payload, or a tombstone, of a format that is not known here."""
        now = self.clock_of(replica)
        replica.counter += 1
        dot = Dot(replica.actor, replica.counter)
        ttl = TTLS[choice % len(TTLS)]
        tombstone = choice % 5 == 0
        expires_at = None if ttl is None or tombstone else Millis(now + ttl)
        payload = b"newer %d" % (choice % 3)
        old = replica.registers[key]
        replica.registers[key] = (Sibling(dot, context_over(old), payload, tombstone, expires_at, now),)
        view = replica.views[key]
        self.accounts[key].writes[dot] = Written(dot, view.seen, tombstone, expires_at, now, None, payload)
        replica.views[key] = replace(view, seen=view.seen | {dot})
        replica.clock = replica.clock.with_dots([dot])

    def folded(self, replica: Replica, key: int, now: int) -> list[PlainRecord | None]:
        """What a remember, an update or a lapse folds."""
        account, view = self.accounts[key], replica.views[key]
        living = account.living(view, now)
        values = [] if living is None else living[0]
        return [write.record for write in (*values, *account.tombstones(view))]

    def unreadable(self, replica: Replica, key: int, now: int) -> list[tuple[bool, bytes]]:
        """What a remember, an update or a lapse carries along: whether it is a tombstone, and its payload."""
        account, view = self.accounts[key], replica.views[key]
        living = account.living(view, now)
        values = [] if living is None else living[0]
        found = [write for write in (*values, *account.tombstones(view)) if write.record is None]
        return sorted({(write.tombstone, write.payload) for write in found})

    @staticmethod
    def edited(base: PlainRecord, edit: Edit, dot: Dot, now: int) -> PlainRecord:
        """The plain record after an edit."""
        record = PlainRecord(base.seen | {dot}, base.elements)
        for name, new in edit.fields.items():
            old = base.store("field", name)
            if len({element.value for element in old}) > 1:
                for element in old:
                    if element.value != new:
                        place = ("revision", name, element.dot)
                        record = record.put(Element(place, dot, element.value, element.written_at))
            record = record.without("field", name).put(Element(("field", name), dot, new, now))
        for tag in edit.add_tags | edit.remove_tags:
            record = record.without("tag", tag)
        for link in edit.add_links | edit.remove_links:
            record = record.without("link", *link)
        for tag in edit.add_tags:
            record = record.put(Element(("tag", tag), dot, None, now))
        for link in edit.add_links:
            record = record.put(Element(("link", *link), dot, None, now))
        return record

    def wrote(
        self,
        replica: Replica,
        key: int,
        register: Register,
        record: PlainRecord | None,
        carried: list[tuple[bool, bytes]],
        expires_at: int | None,
        now: int,
        *,
        tombstone: bool = False,
    ) -> None:
        """Take over what a local write made, and enter in the account what it should have made."""
        view = replica.views[key]
        account = self.accounts[key]
        own: list[tuple[bool, bytes | None]] = [] if record is None else [(tombstone, None)]
        made = []
        for at, (buried, payload) in enumerate((*own, *carried), 1):
            made.append(
                Written(
                    Dot(replica.actor, replica.counter + at),
                    view.seen,
                    buried,
                    None if buried else expires_at,
                    now,
                    record if payload is None else None,
                    payload or b"",
                )
            )
        account.writes.update((write.dot, write) for write in made)
        dots = [write.dot for write in made]
        assert [sibling.dot for sibling in register] == dots
        assert [sibling.payload for sibling in register][len(made) - len(carried) :] == [
            payload for _, payload in carried
        ]
        assert [sibling.tombstone for sibling in register] == [write.tombstone for write in made]
        assert len({tuple(sorted(sibling.context.items())) for sibling in register}) == 1
        replica.registers[key] = register
        replica.counter += len(dots)
        replica.views[key] = replace(view, seen=view.seen.union(dots))
        replica.clock = replica.clock.with_dots(dots)

    # --- deliveries and purges

    def join(self, supplier: Replica, replica: Replica, key: int) -> Joined:
        """The register of one key reaches a replica."""
        result = join(replica.registers[key], supplier.registers[key], replica.clock, supplier.clock)
        assert not result.faults
        purged = [
            sibling.dot
            for sibling in replica.registers[key]
            if sibling.dot in supplier.views[key].purged
            and not any(covers(other.context, sibling.dot) for other in result.register)
        ]
        assert result.purged_there == bool(purged)
        replica.registers[key] = result.register
        replica.views[key] = replica.views[key].joined(supplier.views[key])
        return result

    def deliver(self, supplier: Replica, replica: Replica) -> None:
        """Every register reaches a replica, and the clock with them."""
        for key in KEYS:
            self.join(supplier, replica, key)
        replica.clock = replica.clock.join(supplier.clock)

    def deliver_part(self, supplier: Replica, replica: Replica, key: int) -> None:
        """The register of one key reaches a replica, and no clock with it."""
        replica.clock = replica.clock.with_dots(self.join(supplier, replica, key).seen)

    def purge(self, replica: Replica, key: int) -> None:
        """Drop a register of tombstones that every replica has seen, where nothing below is missing."""
        register = replica.registers[key]
        dots = {sibling.dot for sibling in register}
        if (
            all(
                sibling.tombstone and replica.clock.covers_without_gap(sibling.context)
                for sibling in register
            )
            and all(other.clock.has(dot) for other in self.replicas for dot in dots)
            and all(replica.clock.base(dot.actor) >= dot.counter for dot in dots)
        ):
            replica.registers[key] = ()
            view = replica.views[key]
            replica.views[key] = replace(view, purged=view.purged | dots)

    def heal(self) -> None:
        """Deliver everything to one replica, and from it to everyone."""
        first, *others = self.replicas
        for other in others:
            self.deliver(other, first)
        for other in others:
            self.deliver(first, other)
            self.check(other)

    # --- what must hold at every moment

    def check(self, replica: Replica) -> None:
        """What a replica holds is what the account says."""
        seen = frozenset[Dot]().union(*(view.seen for view in replica.views.values()))
        for actor in replica.clock.actors():
            known = {dot.counter for dot in seen if dot.actor == actor}
            counters = range(1, replica.clock.top(actor) + 1)
            assert all(n in known for n in counters if replica.clock.has(Dot(actor, n))), "a claim too many"
        for key, register in replica.registers.items():
            account = self.accounts[key]
            gone = self.gone(key)
            siblings = account.siblings(replica.views[key])
            assert [sibling.dot for sibling in register] == sorted(write.dot for write in siblings)
            for sibling in register:
                self.check_sibling(replica, account, sibling, gone)
            now = self.clock_of(replica)
            folded = fold(register, now)
            self.check_fold(replica, key, folded, now)
            if key == KEY:
                self.snapshots.append(Snapshot(register, replica.clock))
                for sibling in register:
                    if sibling.dot not in self._written:
                        self._written.add(sibling.dot)
                        record = read_record(sibling)
                        self.records += [] if record is None else [record]
                if folded is not None:
                    self.records.append(folded.record)

    def gone(self, key: int) -> frozenset[Dot]:
        """What any replica has purged, with all that it had replaced."""
        purged = frozenset[Dot]().union(*(replica.views[key].purged for replica in self.replicas))
        return purged.union(*(self.accounts[key].writes[dot].past for dot in purged))

    def check_sibling(
        self, replica: Replica, account: Account, sibling: Sibling, gone: frozenset[Dot]
    ) -> None:
        """A sibling is as it was written and covers exactly what its writer had seen."""
        write = account.writes[sibling.dot]
        assert replica.clock.has(sibling.dot)
        assert (sibling.tombstone, sibling.expires_at) == (write.tombstone, write.expires_at)
        assert sibling.written_at == write.written_at
        others = account.writes.keys() - gone
        covered = {dot for dot in others if sibling.context.get(dot.actor, 0) >= dot.counter}
        assert covered == write.past - gone

    def check_fold(self, replica: Replica, key: int, folded: Folded | None, now: int) -> None:
        """A read gives what the account gives."""
        account = self.accounts[key]
        living = account.living(replica.views[key], now)
        if living is None or folded is None:
            assert living is None
            assert folded is None
            return
        values, expires_at = living
        assert folded.life.expires_at == expires_at
        assert {sibling.dot for sibling in folded.life.values} == {write.dot for write in values}
        assert {sibling.dot for sibling in folded.undecodable} == {
            write.dot for write in values if write.record is None
        }
        expected = joined(self.folded(replica, key, now))
        gone = self.gone(key)
        claimed = {dot for dot in account.writes if folded.record.context.has(dot)}
        assert claimed - gone == expected.seen - gone
        assert elements(folded.record) == expected.elements

    def folds(self, key: int) -> list[bytes | None]:
        """What each replica reads, as bytes, at one and the same time."""
        all_folded = (fold(replica.registers[key], Millis(self.now)) for replica in self.replicas)
        return [None if folded is None else encode_record(folded.record) for folded in all_folded]


def elements(record: Record) -> frozenset[Element]:
    """The elements of a record."""
    places: dict[tuple[object, ...], Mapping[Dot, tuple[Scalar, Millis]]] = {
        **{("field", name): store for name, store in record.fields.items()},
        **{("tag", tag): store for tag, store in record.tags.items()},
        **{("link", *link): store for link, store in record.links.items()},
        **{("revision", *key): store for key, store in record.revisions.items()},
    }
    return frozenset(
        Element(place, dot, value, written_at)
        for place, store in places.items()
        for dot, (value, written_at) in store.items()
    )
