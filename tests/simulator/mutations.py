"""Deliberate mutations of the rules, each with the place of its rule in the design."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One rule, broken."""

    name: str
    module: str
    old: str
    new: str
    profile: str = "process"
    """The faults under which a random run finds it."""


MUTATIONS = (
    Mutation(
        "the clock is advanced on a partial batch",
        "replica.core.consumer",
        "joining.store_clock(seen=batch.clock if batch.complete else None)",
        "joining.store_clock(seen=batch.clock)",
    ),
    Mutation(
        "join step 1 is left out",
        "crdt.register",
        "if dot in theirs or not remote_clock.has(dot):",
        "if True:",
        "purge",
    ),
    Mutation(
        "join step 2 is left out",
        "crdt.register",
        "if not local_clock.has(dot):",
        "if True:",
        "purge",
    ),
    Mutation(
        "join step 3 is left out",
        "crdt.register",
        "for dot in superseded:",
        "for dot in ():",
    ),
    Mutation(
        "extras are not recorded",
        "crdt.register",
        "seen = [*theirs]",
        "seen = []",
    ),
    Mutation(
        "context tops are not added to the clock",
        "crdt.register",
        "seen += (Dot(actor, counter) for actor, counter in sibling.context.items())",
        "pass",
    ),
    Mutation(
        "a change is left out because it was merely seen",
        "replica.core.supplier",
        "if change.origin != asker.store_id:",
        "if change.origin != asker.store_id and not ("
        "(known := get_member(snapshot, asker.cluster)) and known.known and all(known.known.clock.has(one.dot)"
        " for one in __import__('replica.core.rows').core.rows.read_register(snapshot, change.key))):",
    ),
    Mutation(
        "a batch is applied though it does not continue the cursor",
        "replica.core.consumer",
        "            return Dropped.DUPLICATE\n        return Dropped.GAP",
        "            return Dropped.DUPLICATE\n        return None",
    ),
    Mutation(
        "batches of others are applied while filling",
        "replica.core.consumer",
        "busy_with(transaction) not in (None, supplier)",
        "False",
        "loss",
    ),
    Mutation(
        "a tombstone is dropped at once",
        "replica.core.node",
        "self._put(transaction, command.key, bury(found.register, self._next_dot(transaction), now))",
        "self._put(transaction, command.key, bury(found.register, self._next_dot(transaction), now));"
        "__import__('replica.core.rows').core.rows.delete_register(transaction, command.key.to_store())",
    ),
    Mutation(
        "what had expired when another was written contributes",
        "crdt.expiry",
        "if len(values) < 2:",
        "if True:",
    ),
    Mutation(
        "the earlier expiry wins",
        "crdt.expiry",
        "return max((sibling.expires_at for",
        "return min((sibling.expires_at for",
    ),
    Mutation(
        "a TTL may shorten a life",
        "crdt.expiry",
        "return Millis(max(in_force or 0, now + ttl))",
        "return Millis(now + ttl)",
    ),
    Mutation(
        "the earlier write wins a tie",
        "crdt.record",
        "return max(store.items(), key=_rank)[1]",
        "return min(store.items(), key=_rank)[1]",
    ),
    Mutation(
        "a change does not move its key to the end of the log",
        "replica.core.rows",
        "sequence = get_sequence(transaction) + 1",
        "sequence = read_sequence(transaction, key) or get_sequence(transaction) + 1",
    ),
    Mutation(
        "what a supplier had purged leaves no trace on the list",
        "crdt.register",
        "    purged = any(",
        "    purged = False and any(",
        "loss",
    ),
    Mutation(
        "a purge waits for nobody",
        "replica.core.purge",
        "holds = self._unstable(register)",
        "holds = ()",
        "purge",
    ),
    Mutation(
        "a purge goes over a gap below a context",
        "replica.core.purge",
        "if not self._clock.covers_without_gap(contexts):",
        "if False:",
        "loss",
    ),
    Mutation(
        "a clock is stable knowledge before it is dominated",
        "replica.core.membership",
        "if after.candidate is not None and after.candidate.clock.leq(own):",
        "if after.candidate is not None:",
        "purge",
    ),
    Mutation(
        "who was not waited for is not remembered",
        "replica.core.purge",
        "listed = self._fleet.lapsed",
        "listed = ()",
        "loss",
    ),
    Mutation(
        "the list is not taken over", "replica.core.must_reconcile", "    if taken:", "    if False:", "loss"
    ),
    Mutation(
        "an expired register is dropped without a dot though a member is lapsed",
        "replica.core.purge",
        "if self._fleet.lapsed:",
        "if False:",
        "loss",
    ),
    Mutation(
        "a durable value is superseded with an expired one though a member is lapsed",
        "replica.core.purge",
        "if any(sibling.expires_at is None or sibling.expires_at > by for sibling in values):",
        "if False:",
        "loss",
    ),
    Mutation(
        "a gap is closed on stale statements",
        "replica.core.purge",
        "if stable.knows.get(actor.cluster, actor.incarnation) <= actor.incarnation:",
        "if False:",
        "loss",
    ),
    Mutation(
        "batches are applied during a reconcile",
        "replica.core.consumer",
        "if get_reconcile(transaction) is not None or busy_with(transaction) not in (None, supplier):",
        "if False:",
        "loss",
    ),
    Mutation(
        "a reconcile drops without a tombstone",
        "replica.core.joining",
        "if alive is not None and any(",
        "if False and any(",
        "loss",
    ),
    Mutation(
        "a reconcile takes over the clock of its end",
        "replica.core.reconcile",
        "done = not message.stop",
        "done, state = not message.stop, replace(state, start_clock=message.clock)",
        "loss",
    ),
    Mutation(
        "a past in doubt keeps its incarnation",
        "replica.core.identity",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), entropy(16))",
        "transaction, Identity(known.cluster, known.incarnation, entropy(16))",
        "loss",
    ),
    Mutation(
        "a past in doubt keeps its store id",
        "replica.core.identity",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), entropy(16))",
        "transaction, Identity(known.cluster, new_incarnation(now, entropy, above=highest), known.store_id)",
        "loss",
    ),
    Mutation(
        "a past in doubt keeps its cursors",
        "replica.core.identity",
        "    clear_cursors(transaction)",
        "    pass",
        "loss",
    ),
    Mutation(
        "a newer incarnation's clock is merged into the older",
        "replica.core.membership",
        "stated = Stated(statement.incarnation, statement.clock, dict(statement.knows))",
        "stated = Stated(statement.incarnation, statement.clock.join(known.clock if known else EMPTY_CLOCK),"
        " dict(statement.knows))",
        "loss",
    ),
    Mutation(
        "a tag that was removed comes back with a concurrent edit",
        "crdt.record",
        "store = {dot: value for dot, value in mine.items() if dot in theirs or not seen_by_b.has(dot)}",
        "store = {dot: value for dot, value in mine.items()}",
    ),
    Mutation(
        "a collapsed value is not kept",
        "crdt.record",
        "revisions=_newest({**record.revisions, **losing}),",
        "revisions=_newest({**record.revisions}),",
    ),
)
