"""One replica against a dictionary: without concurrency it is nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crdt.clock import EMPTY_CLOCK, Clock
from crdt.dot import Millis
from crdt.key import EntryKey
from replica.core.commands import Forget, Kind, Remember, Update, flat_links
from replica.core.entry import Entry
from replica.core.errors import Code
from replica.core.policy import TtlPolicy
from replica.core.results import Forgotten, Remembered, Updated
from replica.core.rows import changes_after, last_change
from replica.core.storage import Table
from tests.core.one_replica import HOME, Replica, links

DEFAULT = 7
TEXTS = ("title", "body", "author", "provenance")


@dataclass
class Note:
    """An entry of the dictionary."""

    kind: str
    created_at: int
    expires: int | None
    texts: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TEXTS, ""))
    tags: set[str] = field(default_factory=set)
    links: set[tuple[str, str]] = field(default_factory=set)


keys = st.builds(
    EntryKey, st.sampled_from(["kept", "short"]), st.sampled_from(["t", "t-"]), st.sampled_from(["1", "2"])
)
texts = st.one_of(st.none(), st.sampled_from(["", "x", "é\n🧠"]))
some_tags = st.sets(st.sampled_from("abcd"), max_size=3).map(lambda tags: tuple(sorted(tags)))
some_links = st.dictionaries(
    st.sampled_from("rs"), st.sets(st.sampled_from("123"), min_size=1, max_size=2).map(tuple), max_size=2
).map(lambda targets: links(**targets))
ttls = st.one_of(st.none(), st.integers(1, 9).map(Millis))
request_ids = st.one_of(st.none(), st.sampled_from(["one", "two", "three"]))


class LocalModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.replica = Replica(policy=TtlPolicy(None, {"short": Millis(DEFAULT)}))
        self.notes: dict[EntryKey, Note] = {}
        self.registers: set[EntryKey] = set()
        self.writes = 0
        self.calls: dict[str, tuple[Remember | Update | Forget, Remembered | Updated | Forgotten]] = {}

    # --- the dictionary

    def live(self, key: EntryKey) -> Note | None:
        note = self.notes.get(key)
        return None if note is None or (note.expires or 10**18) <= self.replica.now else note

    def call(self, command: Remember | Update | Forget) -> Remembered | Updated | Forgotten | None:
        """Do it; none when it was a repeat, or refused for its request id."""
        id = command.request_id
        if id is not None and id in self.calls:
            first, result = self.calls[id]
            if first != command:
                self.replica.refuses(Code.INVALID_ARGUMENT, "request_id", lambda: self.replica.do(command))
                return None
            before = self.replica.dump()
            assert self.replica.do(command) == result
            assert self.replica.dump() == before
            return None
        result = self.replica.do(command)
        if id is not None:
            self.calls[id] = (command, result)
        return result

    def wrote(self, key: EntryKey) -> None:
        self.writes += 1
        self.registers.add(key)

    # --- rules

    @rule(
        key=keys,
        kind=st.one_of(st.none(), st.sampled_from(Kind)),
        title=texts,
        body=texts,
        tags=some_tags,
        add=some_links,
        ttl=ttls,
        durable=st.booleans(),
        create_only=st.booleans(),
        created_at=st.one_of(st.none(), st.just(Millis(5))),
        id=request_ids,
    )
    def remember(
        self,
        key: EntryKey,
        kind: Kind | None,
        title: str | None,
        body: str | None,
        tags: tuple[str, ...],
        add: tuple[object, ...],
        ttl: Millis | None,
        durable: bool,
        create_only: bool,
        created_at: Millis | None,
        id: str | None,
    ) -> None:
        command = Remember(
            key=key,
            kind=kind,
            title=title,
            body=body,
            tags=tags,
            add_links=add,  # type: ignore[arg-type]  # the strategy builds them
            ttl=ttl,
            durable=durable and ttl is None,
            create_only=create_only,
            created_at=created_at,
            request_id=id,
        )
        note = self.live(key)
        if note is not None and create_only and id not in self.calls:
            self.replica.refuses(Code.ALREADY_EXISTS, "key", lambda: self.replica.remember(command))
            return
        done = self.call(command)
        if done is None:
            return
        assert isinstance(done, Remembered)
        self.wrote(key)
        created = note is None
        if note is None:
            note = self.notes[key] = Note(
                kind="Note" if kind is None else kind.value,
                created_at=self.replica.now if created_at is None else created_at,
                expires=None if command.durable or key.repo_id == "kept" else self.replica.now + DEFAULT,
            )
            if ttl is not None:
                note.expires = self.replica.now + ttl
        elif ttl is not None:
            note.expires = max(note.expires or 0, self.replica.now + ttl)
        assert (done.created, done.kind, done.expires_at) == (created, note.kind, note.expires)
        assert done.kind_ignored == (kind is not None and kind.value != note.kind)
        assert done.created_at_ignored == (created_at is not None and created_at != note.created_at)
        assert done.durable_ignored == (not created and command.durable and note.expires is not None)
        assert done.tags_added == len(set(tags) - note.tags)
        assert done.links_added == len(flat_links(command.add_links) - note.links)
        note.tags |= set(tags)
        note.links |= flat_links(command.add_links)
        note.texts |= {name: text for name, text in (("title", title), ("body", body)) if text is not None}

    @rule(key=keys, author=texts, add=some_tags, remove=some_tags, unlink=some_links, id=request_ids)
    def update(
        self,
        key: EntryKey,
        author: str | None,
        add: tuple[str, ...],
        remove: tuple[str, ...],
        unlink: tuple[object, ...],
        id: str | None,
    ) -> None:
        remove = tuple(tag for tag in remove if tag not in add)
        command = Update(
            key=key,
            author=author,
            add_tags=add,
            remove_tags=remove,
            remove_links=unlink,  # type: ignore[arg-type]  # the strategy builds them
            request_id=id,
        )
        note = self.live(key)
        if note is None and id not in self.calls:
            self.replica.refuses(Code.NOT_FOUND, "key", lambda: self.replica.update(command))
            return
        done = self.call(command)
        if done is None:
            return
        assert isinstance(done, Updated)
        assert note is not None
        self.wrote(key)
        targets = flat_links(command.remove_links)
        assert (done.tags_added, done.tags_removed) == (
            len(set(add) - note.tags),
            len(set(remove) & note.tags),
        )
        assert (done.links_removed, done.expires_at) == (len(targets & note.links), note.expires)
        note.tags = (note.tags | set(add)) - set(remove)
        note.links -= targets
        if author is not None:
            note.texts["author"] = author

    @rule(key=keys, id=request_ids)
    def forget(self, key: EntryKey, id: str | None) -> None:
        existed = self.live(key) is not None
        done = self.call(Forget(key=key, request_id=id))
        if done is None:
            return
        assert isinstance(done, Forgotten)
        assert done.existed == existed
        if self.notes.pop(key, None) is not None:
            self.wrote(key)

    @rule(key=keys, window=ttls, id=request_ids)
    def lapse(self, key: EntryKey, window: Millis | None, id: str | None) -> None:
        note = self.live(key)
        done = self.call(Forget(key=key, lapse=True, lapse_for=window, request_id=id))
        if done is None:
            return
        assert isinstance(done, Forgotten)
        assert done.existed == (note is not None)
        if note is not None:
            note.expires = max(note.expires or 0, self.replica.now + (60_000 if window is None else window))
            assert done.expires_at == note.expires
            self.wrote(key)

    @rule(by=st.integers(1, 5))
    def tick(self, by: int) -> None:
        self.replica.now = Millis(self.replica.now + by)

    # --- invariants

    def shows(self, entry: Entry, note: Note) -> None:
        assert (entry.kind, entry.created_at, entry.expires_at) == (note.kind, note.created_at, note.expires)
        assert {name: getattr(entry, name) for name in TEXTS} == note.texts
        assert (set(entry.tags), set(flat_links(entry.links))) == (note.tags, note.links)
        assert (entry.concurrent, entry.sibling_count, entry.undecodable) == ((), 1, 0)

    @invariant()
    def reads_agree(self) -> None:
        live = {key: note for key in sorted(self.notes) if (note := self.live(key)) is not None}
        scanned = [entry for repo in ("kept", "short") for entry in self.replica.scan_all(repo, page_size=2)]
        assert [entry.key for entry in scanned] == list(live)
        for entry in scanned:
            self.shows(entry, live[entry.key])
            assert self.replica.recall(entry.key) == entry
        for key in self.registers - live.keys():
            assert not self.replica.recall(key).exists
        repos = [key.repo_id for key in live]
        assert self.replica.repos() == {repo: repos.count(repo) for repo in sorted(set(repos))}
        for repo in ("kept", "short"):
            topics = [key.topic for key in live if key.repo_id == repo]
            assert self.replica.topics(repo) == {topic: topics.count(topic) for topic in sorted(set(topics))}
        counts = self.replica.counts()
        assert (counts.live, counts.registers) == (len(live), len(self.registers))
        assert (counts.expired, counts.concurrent) == (len(self.notes) - len(live), 0)
        assert self.replica.digest().live == len(live)

    @invariant()
    def every_write_has_a_dot_and_every_key_one_place_in_the_log(self) -> None:
        expected = Clock.up_to({HOME.actor: self.writes}) if self.writes else EMPTY_CLOCK
        assert self.replica.clock() == expected
        with self.replica.storage.snapshot() as snapshot:
            assert last_change(snapshot) == self.writes
            logged = [change.key for change in changes_after(snapshot, 0)]
            assert sorted(logged) == sorted(key.to_store() for key in self.registers)
            ephemeral = [note for note in self.notes.values() if note.expires is not None]
            assert snapshot.count(Table.EXPIRIES) == len(ephemeral)


TestLocalModel = LocalModel.TestCase
TestLocalModel.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
