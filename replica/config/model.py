"""The configuration of a replica: every key, its form, its default and what it means.

The descriptions here are the reference: `scripts/reference.py` writes `docs/configuration.md` from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from crdt.dot import Millis
from crdt.key import InvalidKey, check_component
from replica.config.addresses import check_address
from replica.config.sizes import parse_size
from replica.core.errors import Refused
from replica.core.identity import check_cluster
from replica.durations import parse_duration, parse_ttl

__all__ = [
    "Compaction",
    "Config",
    "Form",
    "Inconsistent",
    "Limits",
    "Log",
    "Reconcile",
    "Replication",
    "Storage",
    "Ttl",
    "default_data_dir",
]


class Inconsistent(ValueError):
    """Keys do not go together; the first is the one that the reason speaks of."""

    def __init__(self, reason: str, *keys: str) -> None:
        super().__init__(reason)
        self.keys = keys


@dataclass(frozen=True, slots=True)
class Form:
    """How the value of a key is written, in one word for a help text."""

    name: str


# --- reading values: text from a flag or a variable, a TOML value from a file


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text, in quotes")
    return value


def _duration(value: object) -> Millis:
    return parse_duration(_text(value))


def _ttl(value: object) -> Millis | None:
    return parse_ttl(_text(value))


def _size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else parse_size(_text(value))


def _pairs(value: object) -> object:
    """A map from a file as it is; from a flag or a variable, ``name=value`` pairs."""
    if isinstance(value, Mapping):
        return value
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("must be a table of names and values")
    found: dict[str, str] = {}
    for part in parts:
        if not (text := _text(part).strip()):
            continue
        name, equals, setting = (piece.strip() for piece in text.partition("="))
        if not equals:
            raise ValueError("must be written name=value, with a comma between two of them")
        if name in found:
            raise ValueError("names one thing twice")
        found[name] = setting
    return found


def _cluster(value: str) -> str:
    try:
        return check_cluster(value)
    except Refused as refused:
        raise ValueError(refused.reason) from None


def _repository(value: str) -> str:
    try:
        return check_component("repository", value)
    except InvalidKey as error:
        raise ValueError(error.reason) from None


def _listen(value: str) -> str:
    return check_address(value, bindable=True)


def _folder(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else _text(value)
    if not text or "\0" in text:
        raise ValueError("must be the path of a folder")
    return Path(text).expanduser()


Cluster = Annotated[str, AfterValidator(_cluster), Form("NAME")]
MaybeCluster = Annotated[Annotated[str, AfterValidator(_cluster)] | None, Form("NAME")]
Address = Annotated[str, AfterValidator(check_address), Form("HOST:PORT")]
Listen = Annotated[str, AfterValidator(_listen), Form("HOST:PORT")]
Folder = Annotated[Path, BeforeValidator(_folder), Form("FOLDER")]
Duration = Annotated[Millis, BeforeValidator(_duration), Form("DURATION")]
MaybeDuration = Annotated[Millis | None, BeforeValidator(_ttl), Form("DURATION|none")]
Size = Annotated[int, BeforeValidator(_size), Form("SIZE")]
Count = Annotated[int, Form("NUMBER")]
Peers = Annotated[dict[Cluster, Address], BeforeValidator(_pairs), Form("NAME=HOST:PORT")]
Overrides = Annotated[
    dict[Annotated[str, AfterValidator(_repository)], MaybeDuration],
    BeforeValidator(_pairs),
    Form("NAME=DURATION|none"),
]


def default_data_dir() -> Path:
    """Where data lives unless something else is said."""
    return platformdirs.user_data_path("ricordo", appauthor=False)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ttl(_Section):
    """How long entries live that are made without a TTL of their own."""

    default: MaybeDuration = Field(
        default=None, description="for every repository that has none of its own; `none`: durable"
    )
    repositories: Overrides = Field(default={}, description="for single repositories, by name")


class Limits(_Section):
    """What one request may add, and one answer hold. Each limit can be made smaller, not larger."""

    title_bytes: Size = Field(default=1024, ge=1, le=1024, description="the longest title")
    author_bytes: Size = Field(default=1024, ge=1, le=1024, description="the longest author")
    provenance_bytes: Size = Field(default=1024, ge=1, le=1024, description="the longest provenance")
    body_bytes: Size = Field(default=65536, ge=1, le=65536, description="the longest body")
    tags: Count = Field(default=64, ge=1, le=64, description="the most new tags in one request")
    tag_bytes: Size = Field(default=128, ge=1, le=128, description="the longest tag")
    link_targets: Count = Field(
        default=256, ge=1, le=256, description="the most new link targets in one request"
    )
    relation_bytes: Size = Field(default=64, ge=1, le=64, description="the longest relation of a link")
    target_bytes: Size = Field(default=512, ge=1, le=512, description="the longest link target")
    entry_bytes: Size = Field(
        default=8 << 20, ge=1, le=8 << 20, description="the largest entry that a write may still add to"
    )
    page_entries: Count = Field(
        default=500, ge=1, le=500, description="the most entries in a page of an answer, or in a call of many"
    )
    page_bytes: Size = Field(
        default=2 << 20, ge=1, le=2 << 20, description="at which a page ends, and the most in a call of many"
    )


class Compaction(_Section):
    """When what is dead is dropped from the disk."""

    grace: Duration = Field(
        default=Millis(3_600_000), description="how long an entry stays on disk past its expiry"
    )
    max_silence: Duration = Field(
        default=Millis(604_800_000),
        description="how long a member may be silent before it no longer holds up a purge",
    )
    interval: Duration = Field(
        default=Millis(60_000), description="how often the replica looks for something to purge"
    )


class Reconcile(_Section):
    """Comparing whole stores."""

    timeout: Duration = Field(
        default=Millis(300_000), description="how long a reconcile may stand still before it is abandoned"
    )


class Replication(_Section):
    """The streams between replicas."""

    heartbeat: Duration = Field(
        default=Millis(5_000), description="how often a replica says something on an idle stream"
    )
    silence: Duration = Field(
        default=Millis(20_000), description="how long a peer may say nothing before its stream is made anew"
    )
    backoff: Duration = Field(
        default=Millis(200), description="the longest wait before the first new attempt"
    )
    backoff_max: Duration = Field(
        default=Millis(30_000), description="the longest wait before any new attempt"
    )
    ask_timeout: Duration = Field(
        default=Millis(1_500),
        description="how long a start waits for the peers to say what they have seen of this replica",
    )
    batch: Size = Field(
        default=1 << 20,
        ge=1 << 10,
        le=32 << 20,
        description="bytes of one batch; it holds one register at least, however large",
    )


class Storage(_Section):
    """The store on disk."""

    map_size: Size = Field(
        default=1 << 40,
        ge=1 << 20,
        description="address space for the store; it takes no disk space before it is used",
    )


class Log(_Section):
    """What the replica writes to standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Form("LEVEL")] = Field(
        default="info", description="the least of `debug`, `info`, `warning`, `error` that is written"
    )
    format: Annotated[Literal["auto", "human", "json"], Form("FORMAT")] = Field(
        default="auto",
        description="`human`, `json` (one object a line), or `auto`: human on a terminal, else JSON",
    )


class Config(BaseSettings):
    """The configuration of one replica. Made by :func:`replica.config.load_config`."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=False)

    cluster: MaybeCluster = Field(
        default=None,
        description="the cluster it serves; unless given, a store keeps its name and a new one makes one up",
    )
    data_dir: Folder = Field(
        default_factory=default_data_dir,
        description="where the data lives; unless given, in the folder that the platform has for it",
    )
    listen: Listen = Field(
        default="127.0.0.1:7600", description="where agents and operators reach it; port 0: any free one"
    )
    replication_listen: Listen = Field(
        default="127.0.0.1:7700", description="where its peers reach it; port 0: any free one"
    )
    peers: Peers = Field(
        default={}, description="the replicas it pulls from: their clusters and replication listeners"
    )
    stop_timeout: Duration = Field(
        default=Millis(10_000), description="how long a stop waits for calls that are being answered"
    )
    ttl: Ttl = Field(default_factory=Ttl)
    limits: Limits = Field(default_factory=Limits)
    compaction: Compaction = Field(default_factory=Compaction)
    reconcile: Reconcile = Field(default_factory=Reconcile)
    replication: Replication = Field(default_factory=Replication)
    storage: Storage = Field(default_factory=Storage)
    log: Log = Field(default_factory=Log)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Nothing but its arguments: the loader reads the sources, and knows which of them said what."""
        return (init_settings,)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.cluster in self.peers:
            raise Inconsistent("names this replica's own cluster as a peer", "peers", "cluster")
        if self.listen == self.replication_listen and not self.listen.endswith(":0"):
            raise Inconsistent("must be another address than listen", "replication_listen", "listen")
        if self.replication.backoff > self.replication.backoff_max:
            raise Inconsistent(
                "must not be longer than replication.backoff_max",
                "replication.backoff",
                "replication.backoff_max",
            )
        if self.replication.heartbeat * 2 > self.replication.silence:
            raise Inconsistent(
                "must be at least twice replication.heartbeat", "replication.silence", "replication.heartbeat"
            )
        return self
