"""The calls of a replica's clients, each judged by the oracle as soon as it is answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from crdt.dot import Millis
from crdt.key import EntryKey
from crdt.register import Register
from replica.core.commands import Command, Kind, Links
from replica.core.commands import Forget as ForgetCommand
from replica.core.commands import Remember as RememberCommand
from replica.core.commands import Update as UpdateCommand
from replica.core.errors import Code, Refused
from replica.core.node import Node
from replica.core.requests import KEPT
from replica.core.results import Forgotten, Remembered, Result, Updated
from replica.core.rows import get_register, get_runs
from replica.core.storage import DamagedRow, Snapshot, Storage, StorageFull, Transaction
from replica.simulator.oracle import Answer, Contradiction, Dot, Oracle
from replica.simulator.script import Forget, Lapse, Remember, Update, Write
from replica.simulator.view import to_oracle

__all__ = ["Call", "Caller", "Calls"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was answered with success."""

    command: Command
    at: Millis
    result: Result


@dataclass(frozen=True, slots=True)
class Caller:
    """The replica that is called, as it is now."""

    name: str
    storage: Storage
    node: Node
    now: Millis
    """By its own clock."""
    slowest: Millis
    """The slowest plausible clock, as it computes it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands at a key, and the last dot that the replica minted."""

    register: Register | None
    """None: the row is damaged."""
    top: int

    def minted(self, after: _Found) -> list[Dot]:
        """The dots that are new in what was found afterwards."""
        return [
            to_oracle(sibling.dot)
            for sibling in after.register or ()
            if sibling not in (self.register or ()) and sibling.dot.counter > self.top
        ]


class Calls:
    """Makes calls, and tells the oracle."""

    def __init__(self, oracle: Oracle, *, forgiving: bool, default_ttl: Millis | None) -> None:
        self._oracle = oracle
        self._forgiving = forgiving
        self._default_ttl = default_ttl

    def make(self, caller: Caller, key: EntryKey, step: Write, request_id: str) -> Call | None:
        """Make a call and judge the answer; none if it was no success. Raises Contradiction."""
        command = _command(key, step, request_id)
        with caller.storage.snapshot() as snapshot:
            before = _find(snapshot, caller, key)
        answer: Result | Code
        try:
            answer = caller.storage.run(
                lambda transaction: _call(caller.node, transaction, command, caller.now, caller.slowest)
            )
        except Refused as refused:
            answer = refused.code
        except StorageFull:
            answer = Code.RESOURCE_EXHAUSTED
        with caller.storage.snapshot() as snapshot:
            after = _find(snapshot, caller, key)
        if isinstance(answer, Code) and after != before:
            raise Contradiction(f"{caller.name} refused a call and changed what stands at {key}")
        if before.register is None:
            if answer is not Code.DATA_LOSS:
                raise Contradiction(f"{caller.name} answered a call over a damaged row with {answer}")
            return None
        if answer is Code.RESOURCE_EXHAUSTED:
            return None
        held = None
        if self._forgiving:
            held = [to_oracle(sibling.dot) for sibling in before.register]
        if self._skewed(caller, key, step, held) != (answer is Code.FAILED_PRECONDITION):
            raise Contradiction(f"{caller.name} answered {answer} at {key}, where the clocks say otherwise")
        if answer is Code.FAILED_PRECONDITION:
            return None
        dots = before.minted(after)
        if after.top != before.top + len(dots):
            raise Contradiction(f"{caller.name} counted {after.top - before.top} writes and made {len(dots)}")
        due = self._due(caller, key, step, dots, held, purged=not before.register)
        given = _answer(step, answer, bool(dots))
        if given != due:
            raise Contradiction(f"{caller.name} answered {given} at {key}, where {due} was due")
        return None if isinstance(answer, Code) else Call(command, caller.now, answer)

    def again(self, caller: Caller, last: Call, latest: Millis) -> None:
        """Repeat a call under its request id: it gets the same answer, and nothing happens.

        ``latest`` is the latest time that the replica's clock has shown: a result is not kept for ever.
        Raises Contradiction.
        """
        if not last.at <= latest < last.at + KEPT:
            return
        with caller.storage.snapshot() as snapshot:
            before = get_runs(snapshot, caller.node.identity.actor)
        try:
            result: Result | None = caller.storage.run(
                lambda transaction: _call(caller.node, transaction, last.command, caller.now, caller.slowest)
            )
        except Refused:
            result = None
        with caller.storage.snapshot() as snapshot:
            after = get_runs(snapshot, caller.node.identity.actor)
        if result != last.result or before != after:
            raise Contradiction(f"{caller.name} answered a repeated call differently, or wrote again")

    def _skewed(self, caller: Caller, key: EntryKey, step: Write, held: Collection[Dot] | None) -> bool:
        if isinstance(step, Forget):
            return False
        return self._oracle.clock_refusal(
            caller.name, str(key), now=caller.now, slowest=caller.slowest, held=held
        )

    def _due(
        self,
        caller: Caller,
        key: EntryKey,
        step: Write,
        dots: list[Dot],
        held: Collection[Dot] | None,
        *,
        purged: bool,
    ) -> Answer:
        name, at, oracle = caller.name, str(key), self._oracle
        match step:
            case Remember():
                return oracle.remembered(
                    name,
                    at,
                    dots,
                    now=caller.now,
                    ttl_ms=step.ttl or None,
                    default_ttl_ms=self._default_ttl,
                    durable=step.durable,
                    kind=step.kind,
                    fields=_fields(step),
                    add_tags=step.tags,
                    add_links=_targets(step.links),
                    remove_links=_targets(step.unlink),
                    created_at=step.created_at,
                    held=held,
                )
            case Update():
                return oracle.updated(
                    name,
                    at,
                    dots,
                    now=caller.now,
                    fields=_fields(step),
                    add_tags=step.tags,
                    remove_tags=step.untag,
                    add_links=_targets(step.links),
                    remove_links=_targets(step.unlink),
                    held=held,
                )
            case Forget():
                return oracle.forgot(name, at, dots, now=caller.now, purged=purged, held=held)
            case Lapse():
                return oracle.lapsed(name, at, dots, now=caller.now, lapse_ms=step.window, held=held)


def _find(snapshot: Snapshot, caller: Caller, key: EntryKey) -> _Found:
    runs = get_runs(snapshot, caller.node.identity.actor)
    top = runs[-1] if runs else 0
    try:
        return _Found(get_register(snapshot, key), top)
    except DamagedRow:
        return _Found(None, top)


def _call(
    node: Node, transaction: Transaction, command: Command, now: Millis, slowest: Millis
) -> Remembered | Updated | Forgotten:
    match command:
        case RememberCommand():
            return node.remember(transaction, command, now, slowest)
        case UpdateCommand():
            return node.update(transaction, command, now, slowest)
        case ForgetCommand():
            return node.forget(transaction, command, now, slowest)


def _answer(step: Write, answer: Result | Code, written: bool) -> Answer | Code:
    """The answer in the oracle's words."""
    match answer:
        case Remembered():
            return Answer(
                written=written,
                existed=not answer.created,
                created=answer.created,
                expires_at=answer.expires_at,
                kind_ignored=answer.kind_ignored,
                durable_ignored=answer.durable_ignored,
            )
        case Updated():
            return Answer(written=written, existed=True, expires_at=answer.expires_at)
        case Forgotten():
            return Answer(written=written, existed=answer.existed, expires_at=answer.expires_at)
        case Code.NOT_FOUND if isinstance(step, Update):
            return Answer(written=False, existed=False)
        case Code():
            return answer


def _command(key: EntryKey, step: Write, request_id: str) -> Command:
    match step:
        case Remember():
            return RememberCommand(
                key=key,
                kind=None if step.kind is None else Kind(step.kind),
                title=step.title,
                body=step.body,
                tags=step.tags,
                add_links=_links(step.links),
                remove_links=_links(step.unlink),
                ttl=Millis(step.ttl) if step.ttl else None,
                durable=step.durable,
                created_at=None if step.created_at is None else Millis(step.created_at),
                request_id=request_id,
            )
        case Update():
            return UpdateCommand(
                key=key,
                title=step.title,
                body=step.body,
                add_tags=step.tags,
                remove_tags=step.untag,
                add_links=_links(step.links),
                remove_links=_links(step.unlink),
                request_id=request_id,
            )
        case Forget():
            return ForgetCommand(key=key, request_id=request_id)
        case Lapse():
            return ForgetCommand(key=key, lapse=True, lapse_for=Millis(step.window), request_id=request_id)


def _fields(step: Remember | Update) -> dict[str, str]:
    named = {"title": step.title, "body": step.body}
    return {name: text for name, text in named.items() if text is not None}


def _targets(links: Iterable[str]) -> dict[str, list[str]]:
    """The targets by relation of links in a script's form."""
    found: dict[str, list[str]] = {}
    for link in links:
        relation, _, target = link.partition(">")
        found.setdefault(relation, []).append(target)
    return found


def _links(links: Iterable[str]) -> tuple[Links, ...]:
    return tuple(Links(relation, tuple(targets)) for relation, targets in _targets(links).items())
