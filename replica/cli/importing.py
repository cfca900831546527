"""Importing lines: batches of writes, several in flight, and an account of every line.

An import may be run again, whatever ended it. Each batch first asks for new entries only; for those that
exist the replica is asked what they hold, and only what differs is written. A line that was done before is
therefore found *unchanged* and is not written again, and its expiry is not put off. Lines are settled in
their order: when an import ends early, every line before :attr:`Account.next_line` is done.

Two lines of one key are never in flight together, so the later one wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, TypeVar

import grpc

from crdt.key import EntryKey
from replica.cli.notes import LINE_MAX_BYTES, InvalidLine, More, Note, parse_note
from replica.client import (
    AlreadyExistsError,
    Client,
    Entry,
    InvalidArgumentError,
    NotFoundError,
    Outcome,
    Remembered,
    ResourceExhaustedError,
    RicordoError,
)

__all__ = ["Account", "Done", "Import", "Line", "Policy", "Refusal", "read_lines"]

BATCH_LINES = 200
BATCH_BYTES = 1024 * 1024
IN_FLIGHT = 4

Each = TypeVar("Each")

_ENDS_ALL = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""What the next line would fail with, too."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the input: its number, from 1, where it ends, in bytes, and what it says."""

    number: int
    ends_at: int
    note: Note | InvalidLine


@dataclass(frozen=True, slots=True)
class Policy:
    """How an import treats what it meets."""

    skip_existing: bool = False
    """Leave a live entry as it is."""
    durable: bool = False
    """A line without `ttl_seconds` makes a durable entry, whatever the repository's default."""
    continue_on_error: bool = False
    """Go on after a line that is refused."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that was refused, and why."""

    line: int
    field: str | None
    message: str
    remedy: str | None


class Done(StrEnum):
    """How a line was done."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    """The entry held it already."""
    SKIPPED = "skipped"
    """The entry was there, and the policy is to leave it."""


@dataclass(frozen=True, slots=True)
class _Settled:
    done: Done
    kind_ignored: bool = False


_Result = _Settled | Refusal


@dataclass(slots=True)
class Account:
    """What became of the lines so far."""

    next_line: int = 1
    """Every line before this one is done; this one is not, or was refused."""
    lines: int = 0
    """How many were settled, empty ones not counted."""
    counts: dict[Done, int] = field(default_factory=lambda: dict.fromkeys(Done, 0))
    refusals: list[Refusal] = field(default_factory=list)
    kind_ignored: int = 0
    """Entries that keep their own kind."""
    settled_bytes: int = 0


def read_lines(source: BinaryIO, first: int = 1) -> Iterator[Line]:
    """The lines of an input from number `first` on, without the empty ones. Longer ones than
    :data:`replica.cli.notes.LINE_MAX_BYTES` are refused without being held in memory.
    """
    number = ends_at = 0
    while line := source.readline(LINE_MAX_BYTES + 1):
        number += 1
        ends_at += len(line)
        whole = len(line) <= LINE_MAX_BYTES
        while not whole and not line.endswith(b"\n") and (rest := source.readline(LINE_MAX_BYTES)):
            ends_at += len(rest)
            line = rest
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if number < first or (whole and not line.strip()):
            continue
        yield Line(
            number,
            ends_at,
            _said(line) if whole else InvalidLine(None, f"is longer than {LINE_MAX_BYTES} bytes"),
        )


def _said(line: bytes) -> Note | InvalidLine:
    try:
        return parse_note(line)
    except InvalidLine as error:
        return error


@dataclass(frozen=True, slots=True)
class _Batch:
    lines: tuple[Line, ...]
    keys: frozenset[EntryKey]


class Import:
    """One import into one replica. Walk :meth:`run`; :attr:`account` is right at each step, and after an
    exception.
    """

    def __init__(self, client: Client, policy: Policy) -> None:
        self.account = Account()
        self._client = client
        self._policy = policy
        self._stopped = False

    def run(self, lines: Iterable[Line]) -> Iterator[Account]:
        """Write the lines; yields the account whenever more of them are settled.

        Ends early after a line that is refused, unless the policy is to go on. Raises
        :class:`replica.client.RicordoError` where the replica cannot take any line.
        """
        flying: deque[tuple[_Batch, Future[list[_Result]]]] = deque()
        pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="import")
        try:
            for batch in self._batches(lines):
                while flying and (
                    len(flying) >= IN_FLIGHT or any(batch.keys & other.keys for other, _ in flying)
                ):
                    yield self._settle(*flying.popleft())
                if self._stopped:
                    break
                flying.append((batch, pool.submit(self._write, batch)))
            while flying:
                yield self._settle(*flying.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _batches(self, lines: Iterable[Line]) -> Iterator[_Batch]:
        """Lines in order, no key twice in a batch; none after one that is no entry, unless the policy is to
        go on.
        """
        batch: list[Line] = []
        keys: set[EntryKey] = set()
        starts_at = 0
        for line in lines:
            key = line.note.key if isinstance(line.note, Note) else None
            if batch and (len(batch) >= BATCH_LINES or line.ends_at - starts_at > BATCH_BYTES or key in keys):
                yield _Batch(tuple(batch), frozenset(keys))
                batch, keys, starts_at = [], set(), batch[-1].ends_at
            batch.append(line)
            if key is not None:
                keys.add(key)
            elif not self._policy.continue_on_error:
                break
        if batch:
            yield _Batch(tuple(batch), frozenset(keys))

    def _write(self, batch: _Batch) -> list[_Result]:
        """What becomes of each line of a batch. In a thread of its own."""
        found: dict[int, _Result] = {}
        notes: dict[int, Note] = {}
        for line in batch.lines:
            if isinstance(line.note, Note):
                notes[line.number] = line.note
            else:
                found[line.number] = Refusal(line.number, line.note.field, line.note.reason, None)
        existing: dict[int, Note] = {}
        for number, outcome in self._remember(notes, create_only=True):
            if isinstance(outcome, AlreadyExistsError):
                existing[number] = notes[number]
            else:
                found[number] = _result(number, outcome, Done.CREATED)
        if self._policy.skip_existing:
            found |= dict.fromkeys(existing, _Settled(Done.SKIPPED))
        else:
            found |= self._overwrite(existing)
        return [found[line.number] for line in batch.lines]

    def _overwrite(self, notes: Mapping[int, Note]) -> dict[int, _Result]:
        found: dict[int, _Result] = {}
        differing: dict[int, Note] = {}
        for entry, (number, note) in zip(self._recall(list(notes.values())), notes.items(), strict=True):
            if entry.exists and note.is_in(entry):
                found[number] = _Settled(Done.UNCHANGED, note.kind not in (None, entry.kind))
            else:
                differing[number] = note
        for number, outcome in self._remember(differing, create_only=False):
            found[number] = _result(number, outcome, Done.UPDATED)
        return found

    def _remember(self, notes: Mapping[int, Note], *, create_only: bool) -> list[tuple[int, Outcome]]:
        if not notes:
            return []
        durable = self._policy.durable
        parts = [note.parts() for note in notes.values()]
        calls = [first.call(create_only=create_only, durable=durable) for first, _ in parts]
        try:
            outcomes = self._client.remember_many(calls)
            return [
                (number, self._add(outcome, more))
                for number, outcome, (_, more) in zip(notes, outcomes, parts, strict=True)
            ]
        except InvalidArgumentError as error:
            if len(notes) == 1:
                return [(number, error) for number in notes]
        # More than this replica takes in one call: it may be configured to less than others.
        return [
            outcome
            for half in _halves(list(notes.items()))
            for outcome in self._remember(dict(half), create_only=create_only)
        ]

    def _add(self, outcome: Outcome, more: Sequence[More]) -> Outcome:
        """Add to an entry what its first write had no room for. Its outcome stays, unless that is refused."""
        if isinstance(outcome, Remembered):
            try:
                for part in more:
                    self._client.update(outcome.key, add_tags=part.tags, add_links=part.links)
            except NotFoundError:
                # It lapsed, or was forgotten, since: there is nothing to add to.
                return outcome
            except RicordoError as error:
                return error
        return outcome

    def _recall(self, notes: Sequence[Note]) -> list[Entry]:
        """The entries as they are; in halves where all of them are more than one answer holds."""
        if not notes:
            return []
        try:
            return list(self._client.recall_many([str(note.key) for note in notes]))
        except (InvalidArgumentError, ResourceExhaustedError):
            if len(notes) == 1:
                # One alone may be larger than an answer about many.
                return [self._client.recall(str(notes[0].key))]
        return [entry for half in _halves(notes) for entry in self._recall(half)]

    def _settle(self, batch: _Batch, future: Future[list[_Result]]) -> Account:
        account = self.account
        for line, result in zip(batch.lines, future.result(), strict=True):
            account.lines += 1
            if isinstance(result, Refusal):
                account.refusals.append(result)
                self._stopped = self._stopped or not self._policy.continue_on_error
            else:
                account.counts[result.done] += 1
                account.kind_ignored += result.kind_ignored
            if not self._stopped:
                account.next_line = line.number + 1
            account.settled_bytes = line.ends_at
        return account


def _halves(row: Sequence[Each]) -> tuple[Sequence[Each], Sequence[Each]]:
    middle = len(row) // 2
    return row[:middle], row[middle:]


def _result(number: int, outcome: Outcome, did: Done) -> _Result:
    """What became of a line; raises an outcome that is not about this line alone."""
    if isinstance(outcome, Remembered):
        return _Settled(Done.CREATED if outcome.created else did, outcome.kind_ignored)
    if outcome.code in _ENDS_ALL:
        raise outcome
    return Refusal(number, outcome.field, outcome.message, outcome.remedy)
