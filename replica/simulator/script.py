"""A run as a script: how the fleet is set up, then every step, one a line.

A script is all there is to a run: replaying it does the same again, to the byte, and any part of it is a
script too (a step that finds nothing to do does nothing). So a failing run can be printed, mailed, replayed
and shrunk. The text form of a step is its name and its arguments, those at their default left out::

    fleet replicas=3 keys=1 links=["ab","bc"]
    remember at=a key=0 title=t1 ttl=10000
    pull at=b source=a

Times are milliseconds. A replica is named by a letter, a key by a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias

__all__ = [
    "NEVER",
    "Again",
    "Crash",
    "Cut",
    "Damage",
    "Drop",
    "Duplicate",
    "Forget",
    "Full",
    "Lapse",
    "Malformed",
    "Mend",
    "Pass",
    "Pull",
    "Purge",
    "Remember",
    "Rollback",
    "Save",
    "Script",
    "Setup",
    "Step",
    "Stray",
    "Swap",
    "Tick",
    "Turn",
    "Update",
    "Wipe",
    "Write",
    "names",
]

NEVER = 10**12
"""A silence that no run lasts."""


class Malformed(ValueError):
    """A line that is no step; says which and why."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The fleet as it begins: every replica empty, every link whole, no stream open."""

    replicas: int
    keys: int
    links: tuple[str, ...]
    """Pairs of replicas that are each other's peers."""
    skews: tuple[int, ...] = ()
    """How far each replica's clock is ahead, in the order of the replicas; 0 for those it does not reach."""
    batch_bytes: int = 1 << 20
    """At which a batch or a range ends. At 1 each holds one register."""
    default_ttl: int = 0
    """Of an entry created without one; 0: durable."""
    max_silence: int = NEVER
    """After which a member counts as lapsed."""
    grace: int = 5_000
    """How long past its expiry an entry is kept."""
    forgiving: bool = False
    """Members may lapse or lose data, and what the design allows then is allowed."""


# --- writes


@dataclass(frozen=True, slots=True)
class Remember:
    """Make an entry, or write over the live one."""

    at: str
    key: int
    title: str | None = None
    body: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Each `relation>target`."""
    unlink: tuple[str, ...] = ()
    ttl: int = 0
    """0: none given."""
    durable: bool = False
    created_at: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Change a live entry."""

    at: str
    key: int
    title: str | None = None
    body: str | None = None
    tags: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    unlink: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove an entry, hidden or not."""

    at: str
    key: int


@dataclass(frozen=True, slots=True)
class Lapse:
    """Forget with a lapse."""

    at: str
    key: int
    window: int


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat the last call of a replica under its request id, as a client does that got no answer."""

    at: str


# --- messages


@dataclass(frozen=True, slots=True)
class Pull:
    """Open the stream to a peer if it is not, and bring over up to so many messages, either way."""

    at: str
    source: str
    messages: int = 100


@dataclass(frozen=True, slots=True)
class Drop:
    """End a stream: what is on the way is lost."""

    at: str
    source: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The next message of a supplier will arrive twice."""

    at: str
    source: str


@dataclass(frozen=True, slots=True)
class Swap:
    """The next two batches of a supplier will arrive in the wrong order."""

    at: str
    source: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A message that a supplier sent earlier, on whatever stream, arrives once more."""

    at: str
    source: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A partition between two peers: streams end, and none can be opened."""

    at: str
    source: str


@dataclass(frozen=True, slots=True)
class Mend:
    """The end of a partition."""

    at: str
    source: str


# --- time


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes, everywhere."""

    ms: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A replica's clock steps: from now on it is so far ahead."""

    at: str
    skew: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A replica's timers run: heartbeats, and what has to be given up."""

    at: str


@dataclass(frozen=True, slots=True)
class Purge:
    """A replica drops what may be dropped."""

    at: str


# --- faults


@dataclass(frozen=True, slots=True)
class Crash:
    """A replica stops without a word and starts again with what is on its disk."""

    at: str


@dataclass(frozen=True, slots=True)
class Full:
    """The next commits of a replica find the disk full."""

    at: str
    commits: int = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """The row of a register is damaged on disk."""

    at: str
    key: int


@dataclass(frozen=True, slots=True)
class Wipe:
    """A replica loses its disk and starts as an empty one."""

    at: str


@dataclass(frozen=True, slots=True)
class Save:
    """Someone copies a replica's disk."""

    at: str


@dataclass(frozen=True, slots=True)
class Rollback:
    """A replica's disk is replaced by the copy, if there is one, and it starts."""

    at: str


Write: TypeAlias = Remember | Update | Forget | Lapse
Step: TypeAlias = (
    Write
    | Again
    | Pull
    | Drop
    | Duplicate
    | Swap
    | Stray
    | Cut
    | Mend
    | Pass
    | Turn
    | Tick
    | Purge
    | Crash
    | Full
    | Damage
    | Wipe
    | Save
    | Rollback
)

_STEPS: Mapping[str, type[Step]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(Remember, Update, Forget, Lapse, Again),
        *(Pull, Drop, Duplicate, Swap, Stray, Cut, Mend),
        *(Pass, Turn, Tick, Purge),
        *(Crash, Full, Damage, Wipe, Save, Rollback),
    )
}


def names(setup: Setup) -> tuple[str, ...]:
    """The replicas of a fleet."""
    return tuple(chr(ord("a") + number) for number in range(setup.replicas))


@dataclass(frozen=True, slots=True)
class Script:
    """A whole run. Its text form is its identity."""

    setup: Setup
    steps: tuple[Step, ...] = field(default=())

    def __str__(self) -> str:
        return "\n".join(
            [_line("fleet", self.setup), *(_line(type(step).__name__.lower(), step) for step in self.steps)]
        )

    @classmethod
    def parse(cls, text: str) -> Script:
        """The script of a text. Empty lines and what follows `#` do not count. Raises Malformed."""
        lines = [line.split("#")[0].strip() for line in text.splitlines()]
        lines = [line for line in lines if line]
        if not lines or not lines[0].startswith("fleet "):
            raise Malformed("a script begins with the line of its fleet")
        setup = Setup(**_arguments(lines[0], Setup))
        return cls(setup, tuple(_step(line) for line in lines[1:]))


_KINDS: Mapping[object, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "bool": (bool,),
    "tuple[str, ...]": (tuple,),
    "tuple[int, ...]": (tuple,),
}
_BARE = re.compile(r"[a-z][a-z0-9_-]*")
_WORDS = {"true", "false", "null"}


def _line(verb: str, item: Setup | Step) -> str:
    words = [verb]
    for one in fields(item):
        value = getattr(item, one.name)
        if value != one.default:
            words.append(f"{one.name}={_plain(value)}")
    return " ".join(words)


def _plain(value: object) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and value not in _WORDS:
        return value
    # Compact JSON has blanks, and what begins a comment, inside texts only.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace(" ", "\\u0020").replace("#", "\\u0023")


def _step(line: str) -> Step:
    verb = line.split()[0]
    kind = _STEPS.get(verb)
    if kind is None:
        raise Malformed(f"{line!r}: no step is called {verb}")
    return kind(**_arguments(line, kind))


def _arguments(line: str, kind: type[Setup] | type[Step]) -> dict[str, Any]:
    known = {one.name: one for one in fields(kind)}
    given: dict[str, Any] = {}
    for word in line.split()[1:]:
        name, sign, text = word.partition("=")
        if not sign or name not in known:
            raise Malformed(f"{line!r}: {word!r} is no argument of it")
        given[name] = _value(line, text)
        if not any(isinstance(given[name], kind) for kind in _KINDS[known[name].type]):
            raise Malformed(f"{line!r}: {text!r} is no {name}")
    missing = _required(known.values()) - given.keys()
    if missing:
        raise Malformed(f"{line!r}: {', '.join(sorted(missing))} is missing")
    return given


def _required(all_fields: Iterable[Any]) -> set[str]:
    return {one.name for one in all_fields if one.default is MISSING}


def _value(line: str, text: str) -> object:
    if _BARE.fullmatch(text) and text not in _WORDS:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        raise Malformed(f"{line!r}: {text!r} is no value") from None
    return tuple(value) if isinstance(value, list) else value
