"""The writes on one key as a graph, and what follows from it (design sections 3 and 4, decision 0002).

No register is joined here and no record is folded. Every answer is a question about which write had seen
which, in these words:

- the *past* of a write is every write on its key that its replica had seen;
- the *siblings* of a set of writes are those that lie in no other's past;
- the *record past* of a write is itself and the record past of every sibling folded into it; so it lies
  within its past, and leaves out what the write replaced unread (a hidden or refined-away value);
- a *place* is a field, a tag, a link target, or a revision (one value of a field); a write *puts* something
  into a place, and it *touches* the place if it puts something there or removes what is there; a tombstone
  touches every place;
- what a write put into a place is *held* by a set of siblings if it lies in their common record past, and
  nothing in there that touches the place had it in its own record past.

The last sentence is the whole of the causal record: a reader that has folded a put and a later touch sees the
touch, and one that has folded a put and a concurrent touch sees both.

Sets of writes are integers: bit `i` is the write recorded as number `i`. A write is recorded when it is made,
so everything in its past has a lower number, and the highest bit of a set is always one of its siblings.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["CREATED_AT", "KIND", "Content", "Dot", "Graph", "Place", "Standing"]

Dot = tuple[str, bytes, int]
"""Names one write: (cluster, incarnation, counter). Compared as a tuple."""

KIND = "kind"
CREATED_AT = "created_at"

REVISIONS = 32
REVISION_BYTES = 128 * 1024


@dataclass(slots=True)
class Place:
    """One place of a record: the writes that put something into it, and the writes that touched it."""

    put: int = 0
    touched: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """The siblings of a set of writes, by their number, greatest first, and the expiry in force."""

    values: tuple[int, ...]
    tombstones: tuple[int, ...]
    contributing: tuple[int, ...]
    """The values that the refinement of expiry leaves in."""
    expires_at: int | None
    """None if every contributing value is durable, else the latest expiry among the ephemeral ones."""

    def live(self, now: int) -> bool:
        """Whether a reader sees the entry at `now`: it is hidden from the very millisecond of its expiry."""
        return bool(self.contributing) and (self.expires_at is None or now < self.expires_at)

    @property
    def folded(self) -> tuple[int, ...]:
        """What a read folds, and a write over the live entry: contributing values and tombstones."""
        return self.contributing + self.tombstones


@dataclass(frozen=True, slots=True)
class Content:
    """What some siblings hold together."""

    fields: dict[str, tuple[int, ...]]
    """By field, the writes whose values are held, the shown one first; a field without any is absent."""
    tags: frozenset[str]
    links: frozenset[tuple[str, str]]
    revisions: tuple[tuple[str, int], ...]
    """(field, write that had put the value), newest value first."""


@dataclass(slots=True)
class Graph:
    """Every write ever made on one key."""

    dots: list[Dot] = field(default_factory=list)
    number: dict[Dot, int] = field(default_factory=dict)
    pasts: list[int] = field(default_factory=list)
    """Without the write itself."""
    record_pasts: list[int] = field(default_factory=list)
    """With the write itself."""
    written_at: list[int] = field(default_factory=list)
    expires_at: list[int | None] = field(default_factory=list)
    tombstones: int = 0
    values: dict[tuple[str, int], str] = field(default_factory=dict)
    """What a write put into a field."""
    _fields: dict[str, Place] = field(default_factory=dict)
    _tags: dict[str, Place] = field(default_factory=dict)
    _links: dict[tuple[str, str], Place] = field(default_factory=dict)
    _revisions: dict[tuple[str, int], Place] = field(default_factory=dict)
    _kept: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    """The revisions that each write holds by itself."""
    _contents: dict[int, Content] = field(default_factory=dict)

    # --- questions

    def closure(self, writes: Iterable[int]) -> int:
        """The writes and their pasts."""
        closed = 0
        for write in writes:
            closed |= self.pasts[write] | 1 << write
        return closed

    def record_past(self, writes: Iterable[int]) -> int:
        """The common record past of some siblings."""
        common = 0
        for write in writes:
            common |= self.record_pasts[write]
        return common

    def siblings(self, seen: int) -> list[int]:
        """The writes in `seen`, a set closed under pasts, that lie in no other's past; greatest first."""
        found = []
        while seen:
            top = seen.bit_length() - 1
            found.append(top)
            seen &= ~(self.pasts[top] | 1 << top)
        return found

    def standing(self, siblings: Iterable[int]) -> Standing:
        """Sort siblings into values and tombstones, and find the expiry in force."""
        values: list[int] = []
        tombstones: list[int] = []
        for write in siblings:
            (tombstones if self.tombstones >> write & 1 else values).append(write)
        contributing = [value for value in values if not self._refined_away(value, values)]
        expiries = [at for value in contributing if (at := self.expires_at[value]) is not None]
        return Standing(
            tuple(values), tuple(tombstones), tuple(contributing), max(expiries) if expiries else None
        )

    def _refined_away(self, value: int, values: list[int]) -> bool:
        """Whether a value had already expired when another one was written."""
        expiry = self.expires_at[value]
        return expiry is not None and any(
            expiry <= self.written_at[other] for other in values if other != value
        )

    def held(self, place: Place, record_past: int) -> list[int]:
        """The writes in `record_past` whose put into `place` nothing in there touched afterwards."""
        found = []
        rest = record_past & (place.touched | self.tombstones)
        while rest:
            top = rest.bit_length() - 1
            if place.put >> top & 1:
                found.append(top)
            # What an earlier touch had folded, a touch that folded *it* had folded too.
            rest &= ~self.record_pasts[top]
        return found

    def content(self, folded: Iterable[int]) -> Content:
        """Everything that some siblings hold together."""
        folded = tuple(folded)
        record_past = self.record_past(folded)
        known = self._contents.get(record_past)
        if known is not None:
            return known
        fields = {}
        for name, place in self._fields.items():
            if writes := self.held(place, record_past):
                fields[name] = tuple(sorted(writes, key=self._rank, reverse=True))
        content = Content(
            fields,
            frozenset(tag for tag, place in self._tags.items() if self.held(place, record_past)),
            frozenset(link for link, place in self._links.items() if self.held(place, record_past)),
            # What siblings hold together one of them holds by itself; the key may have had countless others.
            self._newest(
                revision
                for revision in {kept for write in folded for kept in self._kept[write]}
                if self.held(self._revisions[revision], record_past)
            ),
        )
        self._contents[record_past] = content
        return content

    def _rank(self, write: int) -> tuple[int, Dot]:
        """Of concurrent values the later `written_at` is shown, then the greater dot."""
        return self.written_at[write], self.dots[write]

    def _newest(self, revisions: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(revisions, key=lambda each: (*self._rank(each[1]), each[0]), reverse=True))

    def differing(self, content: Content, name: str) -> tuple[str, ...]:
        """The different values that a content holds for a field, sorted; () if it holds none."""
        return tuple(sorted({self.values[name, write] for write in content.fields.get(name, ())}))

    def purgeable(self, value: int, latest: int) -> bool:
        """Whether a replica may ever have purged a value: a write superseded it, or it expired by `latest`.

        A durable value, or one with longer to live, expires with a concurrent one in the same entry.
        """
        return any(past >> value & 1 for past in self.pasts) or any(
            at is not None and at <= latest and not self.pasts[value] >> write & 1
            for write, at in enumerate(self.expires_at)
        )

    # --- recording

    def add(
        self,
        dot: Dot,
        *,
        past: int,
        folded: Iterable[int],
        written_at: int,
        expires_at: int | None = None,
        tombstone: bool = False,
    ) -> int:
        """Record a write and return its number. What it puts and touches follows, before anyone asks."""
        folded = tuple(folded)
        write = len(self.dots)
        self.dots.append(dot)
        self.number[dot] = write
        self.pasts.append(past)
        self.record_pasts.append(self.record_past(folded) | 1 << write)
        self.written_at.append(written_at)
        self.expires_at.append(expires_at)
        self._kept.append(() if tombstone else self.content(folded).revisions)
        if tombstone:
            self.tombstones |= 1 << write
        return write

    def put_field(self, write: int, name: str, value: str) -> None:
        """The field's value is now this write's, and no other that it had folded."""
        self.values[name, write] = value
        _put(self._fields.setdefault(name, Place()), write)

    def put_tag(self, write: int, tag: str) -> None:
        _put(self._tags.setdefault(tag, Place()), write)

    def remove_tag(self, write: int, tag: str) -> None:
        self._tags.setdefault(tag, Place()).touched |= 1 << write

    def put_link(self, write: int, relation: str, target: str) -> None:
        _put(self._links.setdefault((relation, target), Place()), write)

    def remove_link(self, write: int, relation: str, target: str) -> None:
        self._links.setdefault((relation, target), Place()).touched |= 1 << write

    def keep_revisions(
        self, write: int, carried: Iterable[tuple[str, int]], collapsed: Iterable[tuple[str, int]]
    ) -> None:
        """Keep the values that a write collapsed beside the revisions it folded, and cut to the newest.

        At most 32 stay, and of those as many, from the newest on, as fit into 128 KiB of values.
        """
        fresh = set(collapsed)
        room = REVISION_BYTES
        kept = []
        for rank, revision in enumerate(self._newest({*carried, *fresh})):
            room -= len(self.values[revision].encode())
            if rank < REVISIONS and room >= 0:
                kept.append(revision)
                if revision in fresh:
                    _put(self._revisions.setdefault(revision, Place()), write)
            elif revision not in fresh:
                self._revisions[revision].touched |= 1 << write
        self._kept[write] = tuple(kept)


def _put(place: Place, write: int) -> None:
    place.put |= 1 << write
    place.touched |= 1 << write
