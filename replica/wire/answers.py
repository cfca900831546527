"""From what the core answers to response messages."""

from __future__ import annotations

from collections.abc import Iterable

from crdt.dot import Millis
from crdt.key import EntryKey, InvalidKey
from replica.core.commands import Links
from replica.core.entry import Entry, FieldHistory, FieldValue, History
from replica.core.results import Forgotten, Remembered, Updated
from replica.core.watch import Event, Lapsed, Position, Put, position_token
from replica.wire import memory_pb2 as pb

__all__ = [
    "entry_message",
    "forgotten_message",
    "history_message",
    "key_text",
    "progress_message",
    "remembered_message",
    "updated_message",
    "watch_event_message",
]


def key_text(key: bytes) -> str:
    """A key in store form as the API writes keys; what is none, in hexadecimal."""
    try:
        return str(EntryKey.from_store(key))
    except InvalidKey:
        return key.hex()


def remembered_message(result: Remembered) -> pb.RememberResponse:
    """What a remember did."""
    return pb.RememberResponse(
        key=str(result.key),
        id=result.key.id,
        created=result.created,
        expires_at_ms=result.expires_at,
        version=result.version,
        kind=result.kind,
        kind_ignored=result.kind_ignored,
        durable_ignored=result.durable_ignored,
        created_at_ignored=result.created_at_ignored,
        fields_updated=result.fields_updated,
        tags_added=result.tags_added,
        links_added=result.links_added,
        links_removed=result.links_removed,
        undecodable=result.undecodable,
    )


def updated_message(result: Updated) -> pb.UpdateResponse:
    """What an update did."""
    return pb.UpdateResponse(
        key=str(result.key),
        version=result.version,
        fields_updated=result.fields_updated,
        tags_added=result.tags_added,
        tags_removed=result.tags_removed,
        links_added=result.links_added,
        links_removed=result.links_removed,
        expires_at_ms=result.expires_at,
        undecodable=result.undecodable,
    )


def forgotten_message(result: Forgotten) -> pb.ForgetResponse:
    """What a forget did."""
    return pb.ForgetResponse(
        key=str(result.key),
        mode=pb.FORGET_MODE_LAPSE if result.lapse else pb.FORGET_MODE_FORGET,
        existed=result.existed,
        expires_at_ms=result.expires_at,
        undecodable=result.undecodable,
    )


def _links(links: Iterable[Links]) -> list[pb.Link]:
    return [pb.Link(relation=each.relation, targets=each.targets) for each in links]


def _value(value: FieldValue) -> pb.FieldValue:
    message = pb.FieldValue(cluster=value.cluster, written_at_ms=value.written_at)
    if isinstance(value.value, str):
        message.text = value.value
    else:
        message.time_ms = value.value
    return message


def entry_message(entry: Entry) -> pb.Entry:
    """An entry, or its absence."""
    key = entry.key
    return pb.Entry(
        key=str(key),
        exists=entry.exists,
        repo_id=key.repo_id,
        topic=key.topic,
        id=key.id,
        kind=entry.kind,
        title=entry.title,
        body=entry.body,
        author=entry.author,
        provenance=entry.provenance,
        created_at_ms=entry.created_at,
        tags=entry.tags,
        links=_links(entry.links),
        expires_at_ms=entry.expires_at,
        remaining_seconds=entry.remaining_seconds,
        version=entry.version,
        sibling_count=entry.sibling_count,
        concurrent=[
            pb.ConcurrentField(field=each.field, values=map(_value, each.values)) for each in entry.concurrent
        ],
        undecodable=entry.undecodable,
    )


def _field(history: FieldHistory) -> pb.FieldHistory:
    return pb.FieldHistory(
        field=history.field,
        shown=None if history.shown is None else _value(history.shown),
        concurrent=map(_value, history.concurrent),
        revisions=map(_value, history.revisions),
    )


def history_message(history: History) -> pb.HistoryResponse:
    """What the fields of an entry hold and held, or its absence."""
    return pb.HistoryResponse(
        key=str(history.key),
        exists=history.exists,
        version=history.version,
        fields=map(_field, history.fields),
        undecodable=history.undecodable,
    )


def _removal(key: EntryKey, expires_at: Millis | None) -> pb.Removal:
    return pb.Removal(key=str(key), repo_id=key.repo_id, topic=key.topic, id=key.id, expires_at_ms=expires_at)


def watch_event_message(scope: bytes, event: Event) -> pb.WatchEvent:
    """What happened, with the token that goes on behind it."""
    message = pb.WatchEvent(resume_token=position_token(scope, event.position))
    match event.happened:
        case Put(entry):
            message.put.CopyFrom(entry_message(entry))
        case Lapsed(key, expires_at):
            message.lapsed.CopyFrom(_removal(key, expires_at))
        case forgotten:
            message.forgotten.CopyFrom(_removal(forgotten.key, None))
    return message


def progress_message(scope: bytes, position: Position, at: Millis, caught_up: bool) -> pb.WatchEvent:
    """How far a watch is, with the token that goes on from there."""
    return pb.WatchEvent(
        resume_token=position_token(scope, position),
        progress=pb.Progress(at_ms=at, caught_up=caught_up),
    )
