"""The oracle's questions about a graph give what joining registers and records gives.

The fleet here is sections 3 and 4 of the design written down literally, as slowly as that is: contexts are
plain sets of dots, a record is a set of tagged values with a context, and a register is joined in the steps 1
to 4 of the design. It shares nothing with the oracle but the story that both are told.
"""

import random
from dataclasses import dataclass, field

import pytest

from replica.simulator.oracle import Answer, Dot, Expected, Oracle, Seen

Place = tuple[str, str, object]
Atom = tuple[Place, Dot]
FIELDS = ("title", "body")
TAGS = ("x", "y")


@dataclass(frozen=True)
class Record:
    context: frozenset[Dot] = frozenset()
    atoms: frozenset[Atom] = frozenset()

    def join(self, other: "Record") -> "Record":
        return Record(
            self.context | other.context,
            frozenset(atom for atom in self.atoms if atom in other.atoms or atom[1] not in other.context)
            | frozenset(atom for atom in other.atoms if atom in self.atoms or atom[1] not in self.context),
        )

    def at(self, *place: object) -> set[Dot]:
        return {dot for where, dot in self.atoms if where == place}


@dataclass(frozen=True)
class Sibling:
    context: frozenset[Dot]
    record: Record
    tombstone: bool
    expires_at: int | None
    written_at: int


@dataclass
class Literal:
    """One replica: a register and the set of dots it has seen."""

    texts: dict[tuple[str, Dot], str]
    times: dict[Dot, int]
    register: dict[Dot, Sibling] = field(default_factory=dict)
    clock: set[Dot] = field(default_factory=set)

    def values(self) -> dict[Dot, Sibling]:
        return {dot: sibling for dot, sibling in self.register.items() if not sibling.tombstone}

    def contributing(self) -> dict[Dot, Sibling]:
        values = self.values()
        return {
            dot: one
            for dot, one in values.items()
            if one.expires_at is None
            or all(other.written_at < one.expires_at for key, other in values.items() if key != dot)
        }

    def in_force(self) -> int | None:
        return max(
            (one.expires_at for one in self.contributing().values() if one.expires_at is not None),
            default=None,
        )

    def live(self, now: int) -> bool:
        expiry = self.in_force()
        return bool(self.contributing()) and (expiry is None or expiry > now)

    def fold(self, dots: set[Dot]) -> Record:
        folded = Record()
        for dot in dots:
            folded = folded.join(self.register[dot].record)
        return folded

    def readable(self) -> set[Dot]:
        return set(self.contributing()) | (self.register.keys() - self.values().keys())

    def distinct(self, record: Record, name: str) -> set[str]:
        return {self.texts[name, dot] for dot in record.at("field", name, None)}

    def write(self, dot: Dot, record: Record, now: int, expiry: int | None, tombstone: bool = False) -> None:
        context = frozenset(self.register).union(*(one.context for one in self.register.values()))
        # A purge is not part of this fleet, so what was seen of the key is what the contexts say.
        assert context == self.clock
        self.register = {dot: Sibling(context, record, tombstone, expiry, now)}
        self.clock.add(dot)
        self.times[dot] = now

    def edit(self, dot: Dot, base: Record, fields: dict[str, str], add: set[str], drop: set[str]) -> Record:
        atoms = set(base.atoms)
        for name, text in fields.items():
            self.texts[name, dot] = text
            if len(self.distinct(base, name)) > 1:
                for loser in base.at("field", name, None):
                    if self.texts[name, loser] != text:
                        atoms.add((("revision", name, loser), dot))
            atoms = {atom for atom in atoms if atom[0] != ("field", name, None)}
            atoms.add((("field", name, None), dot))
        atoms = {atom for atom in atoms if not (atom[0][0] == "tag" and atom[0][1] in add | drop)}
        atoms |= {(("tag", tag, None), dot) for tag in add}
        return Record(base.context | {dot}, frozenset(atoms))

    def remember(
        self,
        dot: Dot,
        now: int,
        ttl: int | None,
        kind: str | None,
        fields: dict[str, str],
        add: set[str],
        drop: set[str],
    ) -> Answer:
        if not self.live(now):
            base = self.fold(self.register.keys() - self.values().keys())
            expiry = None if ttl is None else now + ttl
            named = {"kind": kind or "Note", "created_at": str(now), **fields}
            self.write(dot, self.edit(dot, base, named, add, drop), now, expiry)
            return Answer(written=True, existed=False, created=True, expires_at=expiry)
        expiry = self.in_force()
        if ttl is not None:
            expiry = max(expiry or 0, now + ttl)
        ignored = self.over(dot, now, expiry, kind, fields, add, drop)
        return Answer(written=True, existed=True, expires_at=expiry, kind_ignored=ignored)

    def over(
        self,
        dot: Dot,
        now: int,
        expiry: int | None,
        kind: str | None,
        fields: dict[str, str],
        add: set[str],
        drop: set[str],
    ) -> bool:
        base = self.fold(self.readable())
        named = dict(fields)
        if len(kinds := self.distinct(base, "kind")) == 1:
            named["kind"] = kinds.pop()
        if (time := self.shown(base, "created_at")) is not None:
            named["created_at"] = time
        shown = self.shown(base, "kind")
        if kind is not None and kind == shown:
            named["kind"] = kind
        self.write(dot, self.edit(dot, base, named, add, drop), now, expiry)
        return kind is not None and kind != shown

    def forget(self, dot: Dot, now: int) -> None:
        folded = self.fold(set(self.register))
        self.write(dot, Record(folded.context | {dot}), now, None, tombstone=True)

    def lapse(self, dot: Dot, now: int, lapse: int) -> None:
        folded = self.fold(self.readable())
        expiry = max(self.in_force() or 0, now + lapse)
        self.write(dot, Record(folded.context | {dot}, folded.atoms), now, expiry)

    def join(self, remote: dict[Dot, Sibling], clock: set[Dot]) -> None:
        kept = {dot: one for dot, one in self.register.items() if dot in remote or dot not in clock}
        kept |= {dot: one for dot, one in remote.items() if dot in self.register or dot not in self.clock}
        covered = frozenset().union(*(one.context for one in kept.values()))
        self.register = {dot: one for dot, one in kept.items() if dot not in covered}
        self.clock.update(remote, *(one.context for one in remote.values()))

    def shown(self, record: Record, name: str) -> str | None:
        dots = record.at("field", name, None)
        return self.texts[name, max(dots, key=lambda dot: (self.times[dot], dot))] if dots else None

    def read(self, now: int) -> Expected | None:
        if not self.live(now):
            return None
        record = self.fold(self.readable())
        created = self.shown(record, "created_at")
        return Expected(
            kind=self.shown(record, "kind"),
            created_at=None if created is None else int(created),
            fields={name: text for name in FIELDS if (text := self.shown(record, name))},
            concurrent={
                name: tuple(sorted(texts))
                for name in (*FIELDS, "kind", "created_at")
                if len(texts := self.distinct(record, name)) > 1
            },
            tags=frozenset(tag for tag in TAGS if record.at("tag", tag, None)),
            links=frozenset(),
            revisions=tuple(
                sorted(
                    (place[1], self.texts[place[1], loser])
                    for place in {place for place, _ in record.atoms if place[0] == "revision"}
                    for loser in [place[2]]
                    if isinstance(loser, tuple)
                )
            ),
            expires_at=self.in_force(),
            siblings=frozenset(self.values()),
        )


def run(seed: int, steps: int) -> int:
    """Tell one random story to both, comparing after each step; returns how often siblings were seen."""
    chance = random.Random(seed)
    names = "abc"
    oracle = Oracle()
    texts: dict[tuple[str, Dot], str] = {}
    times: dict[Dot, int] = {}
    fleet = {name: Literal(texts, times) for name in names}
    skew = {name: chance.choice([0, 0, -7, 7]) for name in names}
    batches: list[tuple[dict[Dot, Sibling], set[Dot], Seen]] = []
    counter = 0
    time = 100
    crowded = 0
    for name in names:
        oracle.join(name)
    for _ in range(steps):
        name = chance.choice(names)
        here = fleet[name]
        now = time + skew[name]
        dot = (name, b"1", counter := counter + 1)
        fields = {each: chance.choice("pqr ").strip() for each in FIELDS if chance.random() < 0.4}
        add = {tag for tag in TAGS if chance.random() < 0.25}
        drop = {tag for tag in TAGS if chance.random() < 0.25} - add
        kind = chance.choice([None, None, "Note", "Decision"])
        ttl = chance.choice([None, None, 5, 20])
        step = chance.random()
        if step < 0.25:
            due = here.remember(dot, now, ttl, kind, fields, add, drop)
            answer = oracle.remembered(
                name,
                "k",
                [dot],
                now=now,
                ttl_ms=ttl,
                kind=kind,
                fields=fields,
                add_tags=add,
                remove_tags=drop,
            )
            assert answer == due
        elif step < 0.40:
            if here.live(now):
                here.over(dot, now, here.in_force(), None, fields, add, drop)
                oracle.updated(name, "k", [dot], now=now, fields=fields, add_tags=add, remove_tags=drop)
            else:
                assert not oracle.updated(name, "k", [], now=now, fields=fields).written
        elif step < 0.47:
            existed, dots = here.live(now), [dot] if here.values() else []
            if dots:
                here.forget(dot, now)
            assert oracle.forgot(name, "k", dots, now=now).existed == existed
        elif step < 0.52:
            dots = [dot] if here.live(now) else []
            if dots:
                here.lapse(dot, now, 10)
            answer = oracle.lapsed(name, "k", dots, now=now, lapse_ms=10)
            assert answer.expires_at == here.in_force() if dots else not answer.existed
        elif step < 0.70:
            batches.append((dict(here.register), set(here.clock), oracle.seen(name)))
        elif step < 0.92:
            if batches:
                register, clock, seen = chance.choice(batches[-6:])
                here.join(register, clock)
                if chance.random() < 0.5:
                    oracle.delivered(name, "k", register)
                else:
                    here.clock |= clock
                    oracle.caught_up(name, seen)
        else:
            time += chance.choice([1, 5, 11])
        crowded += len(here.register) > 1
        assert oracle.expected_at(name, "k", now) == here.read(now)
    for name in names:
        for supplier in names:
            fleet[name].join(fleet[supplier].register, fleet[supplier].clock)
    for name in names:
        fleet["a"].join(fleet[name].register, fleet[name].clock)
    assert oracle.expected("k", time) == fleet["a"].read(time)
    return crowded


@pytest.mark.parametrize("block", range(4))
def test_the_graph_and_the_joins_agree_on_random_fleets(block: int) -> None:
    crowded = sum(run(seed, 120) for seed in range(100 * block, 100 * block + 100))
    assert crowded > 1_000, "stories without concurrency would show nothing"
