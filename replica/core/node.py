"""What a node does on a local write (DESIGN section 4; docs/decisions/0002).

A node keeps no state of its own: what it decides follows from the transaction, the command and the time, so
an aborted transaction leaves nothing behind. Every check comes before the first put; a write that is refused
has changed nothing, and others may follow it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from crdt.clock import Clock
from crdt.dot import Dot, Millis
from crdt.expiry import life, with_ttl
from crdt.fold import read_record, version
from crdt.key import EntryKey
from crdt.record import Edit, Scalar, concurrent
from crdt.register import Register
from crdt.write import Basis, basis, bury, lapse, rewrite, saying_again
from replica.core.commands import (
    DEFAULT_LAPSE,
    END_OF_TIME,
    Command,
    Forget,
    Kind,
    Remember,
    Update,
    flat_links,
    text_fields,
)
from replica.core.entry import shown_text, shown_time
from replica.core.errors import Code, Refused
from replica.core.identity import Identity
from replica.core.limits import DEFAULT_LIMITS, Limits
from replica.core.policy import DURABLE, TtlPolicy
from replica.core.requests import find_result, keep_result, prune_results
from replica.core.results import Forgotten, Remembered, Updated
from replica.core.rows import get_register, get_runs, put_register, put_runs
from replica.core.storage import DamagedRow, Transaction

__all__ = ["SKEW_ALLOWED", "Node"]

_R = TypeVar("_R", Remembered, Updated, Forgotten)

SKEW_ALLOWED = Millis(60_000)
"""How far this replica's clock may be ahead of the slowest before a write over what only it sees as expired
is refused.
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A replica's local writes.

    Each takes the transaction it happens in, the command, ``now`` by this replica's clock, and ``slowest``:
    the slowest plausible clock of the fleet (section 6), which is ``now`` where no other is known. Each
    raises :class:`Refused` before it has put anything. Any other exception (a row of the clock that is
    damaged, a full store) must abort the transaction.
    """

    identity: Identity
    policy: TtlPolicy = DURABLE
    limits: Limits = DEFAULT_LIMITS

    def remember(
        self, transaction: Transaction, command: Remember, now: Millis, slowest: Millis
    ) -> Remembered:
        """Make an entry, or write over the live one.

        Refuses with ALREADY_EXISTS (``create_only``), ABORTED (``if_version``), FAILED_PRECONDITION (the
        clocks disagree whether the entry lives), INVALID_ARGUMENT and DATA_LOSS.
        """
        repeated = find_result(transaction, command, Remembered, now)
        if repeated is not None:
            return repeated
        found = _read(transaction, command.key, now)
        created = found.life is None
        if created:
            _check_skew(found.register, slowest)
        elif command.create_only:
            raise Refused(Code.ALREADY_EXISTS, "a live entry is there", field="key")
        _check_version(command.if_version, found)
        self.limits.check(command, found.record)

        kind, kind_ignored = _settle_kind(command, found)
        settled: dict[str, Scalar] = {} if kind is None else {"kind": kind}
        if created:
            settled["created_at"] = now if command.created_at is None else command.created_at
        edit = _edit(command, settled)
        in_force = None if found.life is None else found.life.expires_at
        ttl = command.ttl
        if ttl is None and created and not command.durable:
            ttl = self.policy.of(command.key.repo_id)
        expires_at = in_force if ttl is None else _expiry("ttl_seconds", in_force, now, ttl)
        register = rewrite(found, saying_again(found, edit), self._next_dot(transaction), now, expires_at)
        self.limits.check_entry(command, found.record, found.register, register)
        held = found.record
        result = Remembered(
            key=command.key,
            created=created,
            expires_at=expires_at,
            version=version(register),
            kind=shown_text(held, "kind") if kind is None else kind,
            kind_ignored=kind_ignored,
            durable_ignored=not created and command.durable and in_force is not None,
            created_at_ignored=not created and command.created_at not in (None, shown_time(held)),
            fields_updated=len(text_fields(command)),
            tags_added=len(edit.add_tags - held.tags.keys()),
            links_added=len(edit.add_links - held.links.keys()),
            links_removed=len(edit.remove_links & held.links.keys()),
            undecodable=len(register) - 1,
        )
        self._put(transaction, command.key, register)
        return _keep(transaction, command, result, now)

    def update(self, transaction: Transaction, command: Update, now: Millis, slowest: Millis) -> Updated:
        """Change a live entry, and leave its expiry.

        Refuses with NOT_FOUND, ABORTED (``if_version``), FAILED_PRECONDITION (the clocks disagree whether the
        entry lives), INVALID_ARGUMENT and DATA_LOSS.
        """
        repeated = find_result(transaction, command, Updated, now)
        if repeated is not None:
            return repeated
        found = _read(transaction, command.key, now)
        if found.life is None:
            _check_skew(found.register, slowest)
            raise Refused(Code.NOT_FOUND, "no live entry is there; remember it first", field="key")
        _check_version(command.if_version, found)
        self.limits.check(command, found.record)

        edit, held, expires_at = _edit(command), found.record, found.life.expires_at
        register = rewrite(found, saying_again(found, edit), self._next_dot(transaction), now, expires_at)
        self.limits.check_entry(command, found.record, found.register, register)
        result = Updated(
            key=command.key,
            version=version(register),
            expires_at=expires_at,
            fields_updated=len(text_fields(command)),
            tags_added=len(edit.add_tags - held.tags.keys()),
            tags_removed=len(edit.remove_tags & held.tags.keys()),
            links_added=len(edit.add_links - held.links.keys()),
            links_removed=len(edit.remove_links & held.links.keys()),
            undecodable=len(register) - 1,
        )
        self._put(transaction, command.key, register)
        return _keep(transaction, command, result, now)

    def forget(self, transaction: Transaction, command: Forget, now: Millis, slowest: Millis) -> Forgotten:
        """Remove an entry, hidden or not; or, with ``lapse``, give a live one an expiry.

        To remove what this replica's clock alone sees as expired is what was asked for; to let it lapse is
        refused, FAILED_PRECONDITION. Refuses also with INVALID_ARGUMENT and DATA_LOSS.
        """
        repeated = find_result(transaction, command, Forgotten, now)
        if repeated is not None:
            return repeated
        found = _read(transaction, command.key, now)
        if command.lapse:
            return self._lapse(transaction, command, found, now, slowest)

        values = [sibling for sibling in found.register if not sibling.tombstone]
        result = Forgotten(
            key=command.key,
            lapse=False,
            existed=found.life is not None,
            expires_at=None,
            undecodable=sum(read_record(sibling) is None for sibling in values),
        )
        if values:
            self._put(transaction, command.key, bury(found.register, self._next_dot(transaction), now))
        return _keep(transaction, command, result, now)

    def _lapse(
        self, transaction: Transaction, command: Forget, found: Basis, now: Millis, slowest: Millis
    ) -> Forgotten:
        if found.life is None:
            _check_skew(found.register, slowest)
            gone = Forgotten(key=command.key, lapse=True, existed=False, expires_at=None)
            return _keep(transaction, command, gone, now)
        window = DEFAULT_LAPSE if command.lapse_for is None else command.lapse_for
        # Where nothing can be read, the wish of the caller is all there is to go by: the window is exact.
        unread = len(found.undecodable) == len(found.life.values)
        in_force = None if unread else found.life.expires_at
        expires_at = _expiry("lapse_seconds", in_force, now, window)
        result = Forgotten(
            key=command.key,
            lapse=True,
            existed=True,
            expires_at=expires_at,
            undecodable=len(found.undecodable),
        )
        self._put(transaction, command.key, lapse(found, self._next_dot(transaction), now, expires_at))
        return _keep(transaction, command, result, now)

    def _next_dot(self, transaction: Transaction) -> Dot:
        runs = get_runs(transaction, self.identity.actor)
        return Dot(self.identity.actor, runs[-1] + 1 if runs else 1)

    def _put(self, transaction: Transaction, key: EntryKey, register: Register) -> None:
        """Store a register and the dots that were minted for it. The first put of a write."""
        actor = self.identity.actor
        runs = get_runs(transaction, actor)
        seen = Clock({actor: runs} if runs else {})
        minted = [sibling.dot for sibling in register if not seen.has(sibling.dot)]
        put_register(transaction, key.to_store(), register, origin=None)
        put_runs(transaction, actor, seen.with_dots(minted).runs[actor])


def _read(transaction: Transaction, key: EntryKey, now: Millis) -> Basis:
    try:
        return basis(get_register(transaction, key), now)
    except DamagedRow:
        raise Refused(
            Code.DATA_LOSS,
            "what is stored there is damaged; it is fetched again from peers, so write it again later",
            field="key",
        ) from None


def _check_skew(register: Register, slowest: Millis) -> None:
    """Refuse to write over an entry that is hidden here and, by the slowest clock, lives on elsewhere."""
    if life(register, Millis(slowest + SKEW_ALLOWED)) is not None:
        raise Refused(
            Code.FAILED_PRECONDITION,
            "the entry has expired by this replica's clock, and lives by the slowest clock of the fleet;"
            " set this replica's clock right",
            field="key",
        )


def _check_version(wanted: str | None, found: Basis) -> None:
    if wanted is not None and (found.life is None or version(found.register) != wanted):
        raise Refused(Code.ABORTED, "the entry has moved on; recall it and decide again", field="if_version")


def _expiry(field: str, in_force: Millis | None, now: Millis, ttl: Millis) -> Millis:
    expires_at = with_ttl(in_force, now, ttl)
    if expires_at > END_OF_TIME:
        raise Refused(Code.INVALID_ARGUMENT, "must end before the year 10000", field=field)
    return expires_at


def _settle_kind(command: Remember, found: Basis) -> tuple[str | None, bool]:
    """The kind to put (none: leave what is there), and whether the one asked for is ignored."""
    if found.life is None:
        return (command.kind or Kind.NOTE).value, False
    if command.kind is None:
        return None, False
    store = found.record.fields.get("kind")
    if not store:
        return command.kind.value, False
    if shown_text(found.record, "kind") != command.kind.value:
        return None, True
    return (command.kind.value if concurrent(store) else None), False


def _edit(command: Remember | Update, settled: Mapping[str, Scalar] | None = None) -> Edit:
    """What a command asks of the record, with the fields that are settled at creation."""
    adds, removes = (
        (command.tags, ()) if isinstance(command, Remember) else (command.add_tags, command.remove_tags)
    )
    return Edit(
        fields={**text_fields(command), **(settled or {})},
        add_tags=frozenset(adds),
        remove_tags=frozenset(removes),
        add_links=flat_links(command.add_links),
        remove_links=flat_links(command.remove_links),
    )


def _keep(transaction: Transaction, command: Command, result: _R, now: Millis) -> _R:
    """Keep a result for a repeat of its call, and clear away what is kept no longer."""
    prune_results(transaction, now)
    keep_result(transaction, command, result, now)
    return result
