"""Deliberate mutations of the rules (design section 11), each with a short script that notices it.

The scripts were found by random runs of the broken replicas and shrunk, or come from the histories that broke
earlier rules.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One rule, broken."""

    name: str
    module: str
    old: str
    new: str
    script: str
    faults: str = "network"
    """The set of faults under which random runs find it, too."""


_SEEN_ALREADY = (
    "(is_damaged(snapshot, change.key) or not ((known := get_member(snapshot, asker.cluster)) and known.known"
    " and all(known.known.clock.has(one.dot) for one in read_register(snapshot, change.key))))"
)

_INLINE = {
    "is_damaged": "__import__('replica.core.damage').core.damage.is_damaged",
    "read_register": "__import__('replica.core.rows').core.rows.read_register",
    "delete_register": "__import__('replica.core.rows').core.rows.delete_register",
}


def _reaching(code: str) -> str:
    """The code with names that the broken module does not import spelt out."""
    for name, spelt in _INLINE.items():
        code = code.replace(f"{name}(", f"{spelt}(")
    return code


MUTATIONS = (
    Mutation(
        "the clock is advanced on a partial batch",
        "replica.core.consumer",
        "joining.store_clock(seen=batch.clock if batch.complete else None)",
        "joining.store_clock(seen=batch.clock)",
        """
        fleet replicas=3 keys=8 links=["ab","bc"] batch_bytes=1
        remember at=c key=1
        remember at=c key=7
        """,
    ),
    Mutation(
        "join step 1 is left out",
        "crdt.register",
        "if dot in theirs or not remote_clock.has(dot):",
        "if True:",
        """
        fleet replicas=2 keys=5 links=["ab"]
        remember at=a key=4
        forget at=a key=4
        pull at=b source=a
        purge at=a
        remember at=a key=4
        """,
        "purge",
    ),
    Mutation(
        "join step 2 is left out",
        "crdt.register",
        "if not local_clock.has(dot):",
        "if True:",
        """
        fleet replicas=3 keys=1 links=["ab","ac","bc"]
        pull at=b source=c
        pull at=b source=a
        pull at=c source=a
        remember at=a key=0
        pull at=c source=a
        pull at=b source=c messages=0
        forget at=a key=0
        pull at=c source=a
        pull at=b source=a
        pass ms=6000
        pull at=c source=a
        pull at=b source=a
        purge at=b
        pull at=b source=c
        """,
        "purge",
    ),
    Mutation(
        "join step 3 is left out",
        "crdt.register",
        "for dot in superseded:",
        "for dot in ():",
        """
        fleet replicas=3 keys=2 links=["ab","ac","bc"] batch_bytes=1
        remember at=a key=0
        pull at=c source=a
        remember at=a key=0
        remember at=a key=0
        remember at=a key=1
        pull at=b source=a messages=3
        pull at=c source=b
        """,
    ),
    Mutation(
        "extras are not recorded",
        "crdt.register",
        "seen = [*theirs]",
        "seen = []",
        """
        fleet replicas=2 keys=2 links=["ab"] batch_bytes=1
        remember at=a key=1
        remember at=a key=0
        pull at=b source=a messages=3
        """,
    ),
    Mutation(
        "context tops are not added to the clock",
        "crdt.register",
        "seen += (Dot(actor, counter) for actor, counter in sibling.context.items())",
        "pass",
        """
        fleet replicas=3 keys=2 links=["ab","bc"] batch_bytes=1
        remember at=a key=0
        remember at=a key=0
        remember at=a key=1
        pull at=b source=a messages=3
        pull at=c source=b
        """,
    ),
    Mutation(
        "a change does not move its key to the end of the log",
        "replica.core.rows",
        "sequence = get_sequence(transaction) + 1",
        "sequence = read_sequence(transaction, key) or get_sequence(transaction) + 1",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0 title=x
        pull at=b source=a
        remember at=a key=0 title=y
        """,
    ),
    Mutation(
        "what a supplier had purged leaves no trace on the list",
        "crdt.register",
        "    purged = any(",
        "    purged = False and any(",
        """
        fleet replicas=4 keys=1 links=["ab","bc","cd"] max_silence=60000 forgiving=true
        remember at=b key=0
        pull at=c source=b
        pull at=d source=c
        pull at=c source=d
        pull at=b source=c
        pull at=a source=b
        pass ms=5
        wipe at=c
        pass ms=70000
        pull at=a source=b
        pull at=b source=a
        forget at=b key=0
        pull at=a source=b
        pull at=b source=a
        purge at=a
        remember at=c key=0
        pull at=d source=c
        pull at=b source=c
        pull at=a source=b
        pull at=b source=a
        forget at=c key=0
        pull at=d source=c
        pull at=b source=c
        pull at=a source=b
        pull at=b source=a
        pull at=c source=b
        pass ms=6000
        pull at=c source=d
        pull at=d source=c
        pull at=b source=c
        pull at=a source=b
        pull at=b source=a
        pull at=c source=b
        purge at=c
        purge at=b
        purge at=a
        """,
        "loss",
    ),
    Mutation(
        "a change is left out because it was merely seen",
        "replica.core.supplier",
        "if change.origin != asker.store_id:",
        _reaching(f"if change.origin != asker.store_id and {_SEEN_ALREADY}:"),
        """
        fleet replicas=3 keys=2 links=["ab","bc"] max_silence=120000 forgiving=true
        pull at=b source=a
        pass ms=150000
        remember at=b key=1
        remember at=c key=1
        forget at=b key=1
        pull at=a source=b
        purge at=a
        """,
        "loss",
    ),
    Mutation(
        "a batch is applied though it does not continue the cursor",
        "replica.core.consumer",
        "return Dropped.DUPLICATE if cursor.sequence >= batch.upto else Dropped.GAP",
        "return None",
        """
        fleet replicas=3 keys=3 links=["ab","bc"] batch_bytes=300
        remember at=b key=0 kind="Memory"
        remember at=a key=0
        remember at=b key=2 title=""
        pull at=c source=b messages=2
        swap at=c source=b
        """,
    ),
    Mutation(
        "batches of others are applied while filling",
        "replica.core.consumer",
        "busy_with(transaction) not in (None, supplier):\n        return Dropped.BUSY",
        "False:\n        return Dropped.BUSY\n    own = Clock()",
        """
        fleet replicas=3 keys=2 links=["ac","bc"] batch_bytes=1 max_silence=60000 forgiving=true
        remember at=a key=0
        remember at=a key=1
        pull at=c source=a
        pull at=b source=c
        pass ms=5
        wipe at=c
        pass ms=70000
        forget at=b key=0
        purge at=b
        pull at=c source=b messages=2
        pull at=c source=a messages=3
        pull at=c source=b
        """,
        "loss",
    ),
    Mutation(
        "a tombstone is dropped at once",
        "replica.core.node",
        "self._put(transaction, command.key, bury(found.register, self._next_dot(transaction), now))",
        _reaching(
            "self._put(transaction, command.key, bury(found.register, self._next_dot(transaction), now));"
            "delete_register(transaction, command.key.to_store())"
        ),
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0
        pull at=b source=a
        forget at=b key=0
        """,
    ),
    Mutation(
        "what had expired when another was written contributes",
        "crdt.expiry",
        "if len(values) < 2:",
        "if True:",
        """
        fleet replicas=2 keys=1 links=["ab"] skews=[0,-90000]
        remember at=b key=0 ttl=10000
        remember at=a key=0
        """,
    ),
    Mutation(
        "the earlier expiry wins",
        "crdt.expiry",
        "return max((sibling.expires_at for",
        "return min((sibling.expires_at for",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0 ttl=30000
        remember at=b key=0 ttl=80000
        """,
    ),
    Mutation(
        "a TTL may shorten a life",
        "crdt.expiry",
        "return Millis(max(in_force or 0, now + ttl))",
        "return Millis(now + ttl)",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0 ttl=30000
        remember at=a key=0 ttl=10000
        """,
    ),
    Mutation(
        "the earlier write wins a tie",
        "crdt.record",
        "return max(store.items(), key=_rank)[1]",
        "return min(store.items(), key=_rank)[1]",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0 body=z
        remember at=b key=0 body=y
        """,
    ),
    Mutation(
        "what was removed from a record comes back with a concurrent edit",
        "crdt.record",
        "store = {dot: value for dot, value in mine.items() if dot in theirs or not seen_by_b.has(dot)}",
        "store = {dot: value for dot, value in mine.items()}",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=b key=0 title=z
        pull at=a source=b
        remember at=a key=0
        forget at=b key=0
        """,
    ),
    Mutation(
        "a value that lost is not kept as a revision",
        "crdt.record",
        "revisions=_newest({**record.revisions, **losing}),",
        "revisions=_newest({**record.revisions}),",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=a key=0 title=x
        remember at=b key=0 title=y
        pull at=a source=b
        remember at=a key=0 title=z
        """,
    ),
    Mutation(
        "a purge waits for nobody",
        "replica.core.purge",
        "holds = self._unstable(register)",
        "holds = ()",
        """
        fleet replicas=2 keys=1 links=["ab"]
        remember at=b key=0
        pull at=a source=b
        forget at=b key=0
        purge at=b
        """,
        "purge",
    ),
    Mutation(
        "a purge goes over a gap below a context",
        "replica.core.purge",
        "if not self._clock.covers_without_gap(contexts):",
        "if False:",
        """
        fleet replicas=4 keys=2 links=["ab","ac","cd","bd"] batch_bytes=1 max_silence=60000 forgiving=true
        remember at=c key=0
        pull at=d source=c
        remember at=c key=0
        pull at=a source=c
        forget at=a key=0
        remember at=a key=1
        pull at=b source=a messages=3
        cut at=a source=b
        pull at=b source=d messages=3
        pass ms=70000
        tick at=b
        purge at=b
        pull at=b source=d
        wipe at=a
        wipe at=c
        """,
        "loss",
    ),
    Mutation(
        "a clock is stable knowledge before it is dominated",
        "replica.core.membership",
        "if after.candidate is not None and after.candidate.clock.leq(own):",
        "if after.candidate is not None:",
        """
        fleet replicas=3 keys=8 links=["ab","ac","bc"]
        remember at=b key=7 tags=["green","blue"]
        pull at=c source=b
        forget at=c key=7
        pull at=a source=c
        remember at=b key=7
        pull at=b source=c
        purge at=c
        """,
        "purge",
    ),
    Mutation(
        "who was not waited for is not remembered",
        "replica.core.purge",
        "listed = self._fleet.lapsed",
        "listed = ()",
        """
        fleet replicas=2 keys=1 links=["ab"] max_silence=60000 forgiving=true
        remember at=a key=0
        pull at=b source=a
        cut at=a source=b
        pass ms=70000
        forget at=a key=0
        purge at=a
        """,
        "loss",
    ),
    Mutation(
        "the list is not taken over",
        "replica.core.must_reconcile",
        "    if taken:",
        "    if False:",
        """
        fleet replicas=3 keys=1 links=["ab","bc"] max_silence=60000 forgiving=true
        remember at=a key=0
        pull at=b source=a
        pull at=c source=b
        pull at=b source=c
        pull at=a source=b
        pass ms=70000
        forget at=a key=0
        purge at=a
        wipe at=b
        pull at=c source=b
        pull at=c source=b
        pull at=b source=a
        pull at=c source=b
        """,
        "loss",
    ),
    Mutation(
        "an expired register is dropped without a dot though a member is lapsed",
        "replica.core.purge",
        "if self._fleet.lapsed:",
        "if False:",
        """
        fleet replicas=3 keys=1 links=["ab","ac","bc"] max_silence=120000 forgiving=true
        remember at=b key=0
        remember at=a key=0 ttl=10000
        pull at=c source=a
        pull at=c source=b
        wipe at=b
        pull at=b source=a
        pass ms=150000
        purge at=c
        forget at=b key=0
        """,
        "loss",
    ),
    Mutation(
        "a reconcile takes over the clock of its end",
        "replica.core.reconcile",
        "done = not message.stop",
        "done, state = not message.stop, replace(state, start_clock=message.clock)",
        """
        fleet replicas=2 keys=3 links=["ab"] batch_bytes=1 forgiving=true
        remember at=b key=2
        remember at=a key=1
        remember at=b key=1
        pull at=a source=b messages=5
        pass ms=20000
        pull at=a source=b messages=5
        remember at=b key=1
        """,
        "loss",
    ),
    Mutation(
        "a past in doubt keeps its incarnation",
        "replica.core.identity",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), entropy(16))",
        "transaction, Identity(known.cluster, known.incarnation, entropy(16))",
        """
        fleet replicas=2 keys=1 links=["ab"] forgiving=true
        remember at=a key=0
        save at=a
        remember at=a key=0
        pull at=b source=a
        rollback at=a
        remember at=a key=0
        """,
        "loss",
    ),
    Mutation(
        "a past in doubt keeps its store id",
        "replica.core.identity",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), entropy(16))",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), known.store_id)",
        """
        fleet replicas=2 keys=1 links=["ab"] forgiving=true
        save at=a
        remember at=a key=0
        pull at=b source=a
        rollback at=a
        """,
        "loss",
    ),
    Mutation(
        "a newer incarnation's clock is merged into the older",
        "replica.core.membership",
        "stated = Stated(statement.incarnation, statement.clock, dict(statement.knows))",
        "stated = Stated(statement.incarnation, statement.clock.join(known.clock if known else EMPTY_CLOCK),"
        " dict(statement.knows))",
        """
        fleet replicas=2 keys=1 links=["ab"] forgiving=true
        remember at=b key=0
        pull at=b source=a
        wipe at=b
        """,
        "loss",
    ),
)
