"""What must hold once a fleet has healed (design section 11).

Each check is a function of its own and raises Contradiction with what it found. :func:`heal` comes first: the
network is whole, every replica runs, and messages flow until none is left to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from crdt.clock import Clock
from crdt.codec import encode_record
from crdt.dot import Dot, Millis
from crdt.expiry import life
from crdt.fold import fold
from crdt.register import Register
from replica.core.digest import get_digest
from replica.core.rows import changes_after, get_clock, read_register, registers
from replica.core.storage import DamagedRow
from replica.simulator.fleet import Fleet
from replica.simulator.oracle import Contradiction, excused
from replica.simulator.process import Process
from replica.simulator.view import shown, to_oracle

__all__ = ["check_clock", "check_fleet", "drain", "heal"]

_ROUNDS = 40
_DRAINS = 30
_PAUSE = 20_000
_FEW = 3
_PATIENCE = 2_000
"""How many messages one stream may need in one round; more would never end."""

_WAIT = 10_000
"""How long, of the fleet's time, a fleet that has fallen silent is given for its timers."""


def heal(fleet: Fleet) -> None:
    """Mend everything, and let messages flow until nobody has anything left to say.

    A large fleet heals over the streams that are open and no more links than it needs: to greet over all
    others costs more than it shows.
    """
    fleet.mend()
    links = fleet.setup.links if fleet.setup.replicas <= _FEW else fleet.backbone()
    for _ in range(_ROUNDS):
        quiet = True
        for at, source in dict.fromkeys((*_both_ways(links), *fleet.streams())):
            delivered = fleet.pull(at, source, _PATIENCE)
            if delivered == _PATIENCE:
                raise Contradiction(f"{at} and {source} never stop talking")
            quiet = quiet and not delivered
        if quiet:
            if _at_rest(fleet):
                return
            # Something waits for a timer.
            fleet.time += _WAIT
            for replica in fleet.replicas.values():
                fleet.tick(replica)
    raise Contradiction(f"the fleet did not come to rest in {_ROUNDS} rounds: {_clocks(fleet)}")


def _both_ways(links: Iterable[str]) -> list[tuple[str, str]]:
    return [pair for link in links for pair in ((link[0], link[1]), (link[1], link[0]))]


def _at_rest(fleet: Fleet) -> bool:
    first, *others = _clocks(fleet).values()
    return all(clock == first for clock in others) and not any(
        _damaged(one) for one in fleet.replicas.values()
    )


def _damaged(replica: Process) -> bool:
    with replica.storage.snapshot() as snapshot:
        return any(isinstance(found, DamagedRow) for _, found in registers(snapshot))


def _clocks(fleet: Fleet) -> dict[str, Clock]:
    found = {}
    for name, replica in fleet.replicas.items():
        with replica.storage.snapshot() as snapshot:
            found[name] = get_clock(snapshot)
    return found


def drain(fleet: Fleet) -> None:
    """Let time pass and replicas purge, until nothing is left of what is dead."""
    for _ in range(_DRAINS):
        fleet.time += _PAUSE
        for replica in fleet.replicas.values():
            fleet.tick(replica)
        heal(fleet)
        for replica in fleet.replicas.values():
            fleet.purge(replica)
        left = {name: dead for name, one in fleet.replicas.items() if (dead := _dead(one, fleet.latest))}
        if not left and not any(_extras(one) for one in fleet.replicas.values()):
            return
    extras = {name: _extras(one) for name, one in fleet.replicas.items()}
    raise Contradiction(f"what is dead was never purged: {left}; extras: {extras}")


def _dead(replica: Process, now: Millis) -> list[bytes]:
    with replica.storage.snapshot() as snapshot:
        return [
            key
            for key, found in registers(snapshot)
            if isinstance(found, DamagedRow) or life(found, now) is None
        ]


def check_fleet(fleet: Fleet) -> None:
    """Everything that holds for a fleet that has healed."""
    _check_folds(fleet, fleet.latest)
    _check_digests(fleet, fleet.latest)
    for replica in fleet.replicas.values():
        _check_log(replica)
        check_clock(fleet, replica)
        if not fleet.setup.forgiving:
            extras = _extras(replica)
            if extras:
                raise Contradiction(f"the clock of {replica.name} has {extras} extras left")


def _check_folds(fleet: Fleet, now: Millis) -> None:
    """All replicas hold byte-identical folds, and they are what the oracle expects, or excuses."""
    for key in fleet.keys:
        held = {name: _register(replica, key.to_store()) for name, replica in fleet.replicas.items()}
        folds = {name: _encoding(register, now) for name, register in held.items()}
        if len({*folds.values()}) > 1:
            shows = {name: shown(key, register, now) for name, register in held.items()}
            raise Contradiction(f"replicas differ at {key}: {shows}")
        given = shown(key, next(iter(held.values())), now)
        due = fleet.oracle.expected(str(key), now)
        if given == due:
            continue
        evidence = fleet.oracle.evidence(str(key), now, given)
        if not excused(
            due,
            given,
            evidence,
            lapsed=fleet.lapsed,
            latest=fleet.latest,
            grace_ms=fleet.setup.grace,
        ):
            raise Contradiction(f"all replicas show {given} at {key}, where {due} is due")


def _register(replica: Process, key: bytes) -> Register:
    with replica.storage.snapshot() as snapshot:
        return read_register(snapshot, key)


def _encoding(register: Register, now: Millis) -> tuple[Dot | bytes | int | None, ...]:
    """A live entry to the byte: its siblings, its expiry and its record."""
    folded = fold(register, now)
    if folded is None:
        return ()
    values = tuple(sibling.dot for sibling in register if not sibling.tombstone)
    return (*values, folded.life.expires_at, encode_record(folded.record))


def _check_digests(fleet: Fleet, now: Millis) -> None:
    """All replicas have the digest of the same live state."""
    digests = set()
    for replica in fleet.replicas.values():
        with replica.storage.snapshot() as snapshot:
            digests.add(get_digest(snapshot, now))
    if len(digests) > 1:
        raise Contradiction(f"digests differ: {digests}")


def _check_log(replica: Process) -> None:
    """The change log has one row for each register, and no other."""
    with replica.storage.snapshot() as snapshot:
        logged = sorted(change.key for change in changes_after(snapshot, 0))
        held = [key for key, _ in registers(snapshot)]
    if logged != held:
        raise Contradiction(f"{replica.name} holds {held}, and its change log names {logged}")


def check_clock(fleet: Fleet, replica: Process) -> None:
    """No clock claims a write whose effect the replica has not seen."""
    with replica.storage.snapshot() as snapshot:
        clock = get_clock(snapshot)
    seen = fleet.oracle.dots(replica.name)
    elsewhere = set().union(*(fleet.oracle.dots(name) for name in fleet.replicas))
    for actor, runs in clock.runs.items():
        for first, last in zip(runs[::2], runs[1::2], strict=True):
            for counter in range(first, last + 1):
                dot = to_oracle(Dot(actor, counter))
                # What was lost everywhere may be counted as seen (section 6).
                if dot not in seen and (dot in elsewhere or not fleet.setup.forgiving):
                    raise Contradiction(
                        f"the clock of {replica.name} claims write {counter} of {actor.cluster}, "
                        "which has not arrived there"
                    )


def _extras(replica: Process) -> int:
    with replica.storage.snapshot() as snapshot:
        return get_clock(snapshot).extras()
