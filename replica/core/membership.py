"""The members of the fleet, and what each is known to have seen (DESIGN section 6).

Members are every cluster that was configured here or named by gossip. Replicas tell each other what each
member is known to have seen and when it was last heard; a statement carries the member's own clock, so that
an old one that goes round never passes for a sign of life. A clock becomes *stable knowledge* when this
replica's own clock dominates it: everything the member had written or seen by then has arrived here.

Times by this replica's clock survive its restarts and steps through :func:`wake` and :func:`clock_stepped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Incarnation, Millis
from replica.core.doubt import Doubt
from replica.core.errors import Code, Refused
from replica.core.identity import Identity, check_cluster
from replica.core.member_rows import (
    Acknowledged,
    Member,
    Stated,
    get_alive_at,
    get_marks,
    get_member,
    members,
    put_alive_at,
    put_member,
)
from replica.core.messages import Knowledge, ProtocolError, Statement
from replica.core.must_reconcile import put_on_list
from replica.core.protocol import MEMBERS_MAX, check_size
from replica.core.rows import get_clock
from replica.core.storage import Snapshot, Table, Transaction
from replica.core.underway import shift

__all__ = [
    "Learned",
    "Told",
    "acknowledge",
    "clock_stepped",
    "configure",
    "find_doubt",
    "get_acknowledged",
    "grain",
    "is_lapsed",
    "keep_alive",
    "knows",
    "learn",
    "promote",
    "retire",
    "slowest",
    "tell",
    "tell_own",
    "wake",
]

_SKEW_GRAIN = Millis(1000)
"""A change of a member's clock, as against this one's, that is worth a row."""


_NONE = Millis(0)


def grain(max_silence: Millis) -> Millis:
    """How finely silences are measured, so that not every heartbeat becomes a write: in thousandths."""
    return Millis(max(1, max_silence // 1000))


def is_lapsed(member: Member, now: Millis, max_silence: Millis) -> bool:
    """Whether a member holds purges back no more: silent for too long, or retired."""
    return member.retired or now - member.heard > max_silence


# --- learning


@dataclass(frozen=True, slots=True)
class Learned:
    """What statements of others told."""

    doubt: Doubt | None = None
    joined: tuple[str, ...] = ()
    """Members that were never heard of before."""
    replaced: tuple[str, ...] = ()
    """Members that have begun a new incarnation."""
    lost: tuple[str, ...] = ()
    """Those of them that have lost something that their last incarnation had seen."""


def learn(
    transaction: Transaction,
    identity: Identity,
    speaker: Statement,
    knowledge: Knowledge,
    now: Millis,
    max_silence: Millis,
) -> Learned:
    """Take in what a peer says.

    ``speaker`` is the peer's statement about itself, with the clock of the message; it may be empty in
    messages that do not begin a stream. What is not new changes no row. Raises ProtocolError, before the
    first change, for what grows beyond any fleet.
    """
    own = get_clock(transaction)
    merged, others = speaker, []
    for statement in knowledge:
        if statement.cluster == speaker.cluster:
            if statement.incarnation == speaker.incarnation:
                clock = merged.clock.join(statement.clock)
                merged = replace(merged, clock=clock, knows={**merged.knows, **statement.knows})
        else:
            others.append(statement)
    doubt: Doubt | None = None
    joined, replaced, lost = [], [], []
    moved: dict[str, Member] = {}
    for statement in (merged, *others):
        doubt = doubt or _doubt(identity, own, statement, speaker.cluster)
        if statement.cluster == identity.cluster:
            continue
        before = moved.get(statement.cluster) or get_member(transaction, statement.cluster)
        after = _learned(before, statement, now, direct=statement is merged)
        if before is None:
            joined.append(after.cluster)
        elif _incarnation(before.known) != _incarnation(after.known) and before.known and after.known:
            replaced.append(after.cluster)
            if not before.known.clock.leq(after.known.clock):
                lost.append(after.cluster)
        if before is None or _moved(before, after, grain(max_silence)):
            moved[after.cluster] = after
    if transaction.count(Table.MEMBERS) + len(joined) > MEMBERS_MAX:
        raise ProtocolError(f"it names more than {MEMBERS_MAX} members")
    for after in moved.values():
        put_member(transaction, after)
    misled = [*joined, *lost]
    if misled and get_marks(transaction):
        put_on_list(transaction, misled)
    return Learned(doubt, tuple(joined), tuple(replaced), tuple(lost))


def find_doubt(snapshot: Snapshot, identity: Identity, speaker: str, knowledge: Knowledge) -> Doubt | None:
    """What statements say against this replica's past; nothing else is made of them."""
    own = get_clock(snapshot)
    found = (_doubt(identity, own, statement, speaker) for statement in knowledge)
    return next((doubt for doubt in found if doubt is not None), None)


def _doubt(identity: Identity, own: Clock, statement: Statement, speaker: str) -> Doubt | None:
    """What a statement says against this replica's past."""
    if statement.clock.top(identity.actor) > own.top(identity.actor):
        return Doubt(f"{speaker} reports writes of this replica that this replica does not have")
    if statement.cluster != identity.cluster or statement.incarnation is None:
        return None
    if statement.incarnation > identity.incarnation:
        return Doubt(f"{speaker} has heard of a newer incarnation of this replica", statement.incarnation)
    if statement.incarnation == identity.incarnation and not statement.clock.leq(own):
        return Doubt(f"{speaker} knows that this replica had seen more than it has now")
    return None


def _learned(member: Member | None, statement: Statement, now: Millis, *, direct: bool) -> Member:
    """The row after a statement."""
    age = statement.age
    if member is None:
        member = Member(statement.cluster, Millis(now - age) if age is not None else now)
    if statement.retired and not member.retired:
        member = replace(member, retired=True)
    if statement.incarnation is None:
        return member
    known = member.known
    if known is None or statement.incarnation > known.incarnation:
        stated = Stated(statement.incarnation, statement.clock, dict(statement.knows))
        member = replace(member, known=stated, candidate=None, stable=None)
    elif statement.incarnation == known.incarnation:
        clock = known.clock.join(statement.clock)
        check_size(clock)
        newest = _newest(known.knows, statement.knows)
        if clock is not known.clock or newest is not known.knows:
            member = replace(member, known=Stated(known.incarnation, clock, newest))
    else:
        return member
    said_at = statement.said_at
    if said_at is None or age is None:
        return member
    if not (direct or member.said_at is None or said_at > member.said_at or member.known is not known):
        return member
    heard = now if direct else Millis(max(member.heard, now - age))
    return replace(member, heard=heard, said_at=said_at, skew=Millis(said_at + age - now), reported=True)


def _newest(known: Mapping[str, Incarnation], new: Mapping[str, Incarnation]) -> Mapping[str, Incarnation]:
    if all(known.get(cluster, b"") >= incarnation for cluster, incarnation in new.items()):
        return known
    return {
        cluster: max(known.get(cluster, Incarnation(b"")), new.get(cluster, Incarnation(b"")))
        for cluster in known.keys() | new.keys()
    }


def _moved(before: Member, after: Member, least: Millis) -> bool:
    """Whether a row is worth writing: silences and skews count only from some size on."""
    if before == after:
        return False
    if before.skew is None or after.skew is None or abs(after.skew - before.skew) > _SKEW_GRAIN:
        return True
    still = replace(after, heard=before.heard, said_at=before.said_at, skew=before.skew)
    return still != before or abs(after.heard - before.heard) >= least


def acknowledge(
    transaction: Transaction, identity: Identity, cluster: str, incarnation: Incarnation, sequence: int
) -> None:
    """Remember how far a consumer has acknowledged the log: it would betray a rollback of the consumer."""
    member = get_member(transaction, cluster)
    if member is None:
        return
    last = get_acknowledged(transaction, identity, cluster, incarnation)
    acknowledged = Acknowledged(incarnation, identity.store_id, max(sequence, last or 0))
    if acknowledged != member.acknowledged:
        put_member(transaction, replace(member, acknowledged=acknowledged))


def get_acknowledged(
    snapshot: Snapshot, identity: Identity, cluster: str, incarnation: Incarnation
) -> int | None:
    """The greatest sequence of this very store that a consumer has acknowledged in an incarnation."""
    member = get_member(snapshot, cluster)
    last = None if member is None else member.acknowledged
    if last is None or (last.incarnation, last.store_id) != (incarnation, identity.store_id):
        return None
    return last.sequence


# --- telling


@dataclass(frozen=True, slots=True)
class Told:
    """What was last said about a member on a stream."""

    stated: Stated | None
    heard: Millis
    retired: bool


def knows(snapshot: Snapshot, identity: Identity) -> dict[str, Incarnation]:
    """The newest incarnation of each member that this replica has heard of, its own included."""
    known = {member.cluster: member.known.incarnation for member in members(snapshot) if member.known}
    return {**known, identity.cluster: identity.incarnation}


def tell(
    snapshot: Snapshot,
    identity: Identity,
    told: Mapping[str, Told],
    now: Millis,
    max_silence: Millis,
    *,
    leave_out: str | None = None,
) -> tuple[Knowledge, Mapping[str, Told]]:
    """What moved since ``told``, and what has been told then. All of it is of one snapshot.

    ``leave_out`` names the peer itself, which knows best what it has seen: it is told only of another
    incarnation of its own.
    """
    rows = list(members(snapshot))
    newest = {row.cluster: row.known.incarnation for row in rows if row.known is not None}
    own = Stated(
        identity.incarnation, get_clock(snapshot), {**newest, identity.cluster: identity.incarnation}
    )
    after = dict(told)
    statements = []
    for row in (Member(identity.cluster, now, said_at=now, known=own), *rows):
        last = told.get(row.cluster)
        if last is not None:
            if row.cluster == leave_out and _incarnation(row.known) == _incarnation(last.stated):
                continue
            moved = row.known != last.stated or row.retired != last.retired
            if not moved and row.heard - last.heard < grain(max_silence):
                continue
        statements.append(_statement(row, last, now))
        after[row.cluster] = Told(row.known, row.heard, row.retired)
    return tuple(statements), after


def tell_own(
    snapshot: Snapshot, identity: Identity, told: Mapping[str, Told], now: Millis
) -> tuple[Knowledge, Mapping[str, Told]]:
    """The same of this replica's clock alone, which is cheap."""
    last = told.get(identity.cluster)
    clock = get_clock(snapshot)
    if last is None or last.stated is None or last.stated.clock == clock:
        return (), told
    row = Member(identity.cluster, now, said_at=now, known=replace(last.stated, clock=clock))
    return (_statement(row, last, now),), {**told, identity.cluster: Told(row.known, now, False)}


def _incarnation(stated: Stated | None) -> Incarnation | None:
    return None if stated is None else stated.incarnation


def _statement(member: Member, last: Told | None, now: Millis) -> Statement:
    stated = member.known
    if stated is None:
        return Statement(member.cluster, None, retired=member.retired)
    clock, newest = stated.clock, stated.knows
    if last is not None and last.stated is not None and last.stated.incarnation == stated.incarnation:
        before = last.stated
        runs = {actor: runs for actor, runs in clock.runs.items() if before.clock.runs.get(actor) != runs}
        clock = Clock(runs) if runs else EMPTY_CLOCK
        newest = {one: known for one, known in newest.items() if before.knows.get(one) != known}
    age = None if member.said_at is None else Millis(max(0, now - member.heard))
    return Statement(member.cluster, stated.incarnation, clock, newest, member.said_at, age, member.retired)


# --- stability and time


def promote(transaction: Transaction, own: Clock) -> None:
    """Turn candidates that the own clock dominates into stable knowledge, and take new candidates.

    One candidate is held until it is dominated: under unceasing load the newest never is.
    """
    for member in members(transaction):
        after = member
        for _ in range(2):
            if after.candidate is None and after.known is not None and after.known != after.stable:
                after = replace(after, candidate=after.known)
            if after.candidate is not None and after.candidate.clock.leq(own):
                after = replace(after, stable=after.candidate, candidate=None)
        if after != member:
            put_member(transaction, after)


def slowest(snapshot: Snapshot, now: Millis, max_silence: Millis, step: Millis = _NONE) -> Millis:
    """The slowest plausible clock for a local write, over the active members that told theirs.

    ``step``: by how much this replica's clock was set since the rows were last brought into line with it.
    """
    before = Millis(now - step)
    times = [
        Millis(before + member.skew)
        for member in members(snapshot)
        if member.skew is not None and not is_lapsed(member, before, max_silence)
    ]
    return min([now, *times])


def wake(transaction: Transaction, now: Millis) -> None:
    """Start: this replica's own downtime is nobody's silence, and no clock was told since."""
    alive_at = get_alive_at(transaction)
    downtime = 0 if alive_at is None else now - alive_at
    for member in list(members(transaction)):
        put_member(transaction, replace(member, heard=Millis(member.heard + downtime), reported=False))
    put_alive_at(transaction, now)


def keep_alive(transaction: Transaction, now: Millis, max_silence: Millis) -> None:
    """Say from time to time that this replica runs; writes a row only once in a grain of silence."""
    alive_at = get_alive_at(transaction)
    if alive_at is None or abs(now - alive_at) >= grain(max_silence):
        put_alive_at(transaction, now)


def clock_stepped(transaction: Transaction, step: Millis) -> None:
    """This replica's clock was found to have stepped by so much: silences, the others' clocks and what is
    under way did not.
    """
    for member in list(members(transaction)):
        skew = None if member.skew is None else Millis(member.skew - step)
        put_member(transaction, replace(member, heard=Millis(member.heard + step), skew=skew))
    alive_at = get_alive_at(transaction)
    if alive_at is not None:
        put_alive_at(transaction, Millis(alive_at + step))
    shift(transaction, step)


# --- members by hand


def configure(transaction: Transaction, identity: Identity, clusters: Iterable[str], now: Millis) -> None:
    """Count the configured peers as members, heard or not."""
    new = sorted({*clusters} - {identity.cluster} - {member.cluster for member in members(transaction)})
    for cluster in new:
        put_member(transaction, Member(cluster, now))
    if new and get_marks(transaction):
        put_on_list(transaction, new)


def retire(transaction: Transaction, identity: Identity, cluster: str) -> bool:
    """Never wait for a member again; false: it is retired already. The fleet learns of it by gossip.

    Raises Refused: INVALID_ARGUMENT for a name that is none and for this replica's own cluster, NOT_FOUND for
    one that is no member.
    """
    check_cluster(cluster)
    if cluster == identity.cluster:
        raise Refused(
            Code.INVALID_ARGUMENT, "is this replica's own; retire it on another one", field="cluster"
        )
    member = get_member(transaction, cluster)
    if member is None:
        raise Refused(Code.NOT_FOUND, "no such member is known here", field="cluster")
    if member.retired:
        return False
    put_member(transaction, replace(member, retired=True))
    return True
