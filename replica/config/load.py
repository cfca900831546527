"""Reading the configuration: flags over environment variables over a TOML file over defaults.

A key is taken whole from the first of these that has it. What nobody knows (a key in the file, a variable
that begins with ``RICORDO_``) is an error, so that a misspelt one is not silently without effect.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_origin

import platformdirs
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import TomlConfigSettingsSource

from replica.config.model import Config, Form, Inconsistent

__all__ = ["OTHER_VARIABLES", "SETTINGS", "ConfigError", "Setting", "config_file", "load_config"]

_PREFIX = "RICORDO_"
FILE_VARIABLE = f"{_PREFIX}CONFIG"
OTHER_VARIABLES = frozenset({FILE_VARIABLE, f"{_PREFIX}ADDRESS"})
"""Variables that are no keys: where the file is, and the replica that client commands call."""


class ConfigError(Exception):
    """The configuration is wrong. A line of text for each problem: where it stands, the key, the reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of the configuration, and the ways to give it."""

    key: str
    """As in the file, with its table: ``ttl.default``."""
    flag: str
    """Of ``ricordo serve``: ``--ttl-default``."""
    variable: str
    """In the environment: ``RICORDO_TTL_DEFAULT``."""
    form: str
    """How a value is written, in a word."""
    several: bool
    """The key is a map: the flag may be repeated, the variable holds several with commas between them."""
    field: FieldInfo
    """Default and description."""


def _settings(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _settings(annotation, (*path, name))
            continue
        parts = (*path, name)
        several = get_origin(annotation) is dict
        words = "-".join(parts).replace("_", "-")
        if several:
            words = words.removesuffix("ies") + "y" if words.endswith("ies") else words.removesuffix("s")
        form = next((extra.name for extra in field.metadata if isinstance(extra, Form)), "VALUE")
        yield Setting(".".join(parts), f"--{words}", _PREFIX + "_".join(parts).upper(), form, several, field)


SETTINGS: Mapping[str, Setting] = {setting.key: setting for setting in _settings(Config)}
"""Every key, in the order of the reference."""


def config_file(explicit: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read: the one named, else the one in ``RICORDO_CONFIG``, else the platform's if there."""
    if explicit is not None:
        return explicit
    if named := environ.get(FILE_VARIABLE):
        return Path(named).expanduser()
    usual = platformdirs.user_config_path("ricordo", appauthor=False) / "ricordo.toml"
    return usual if usual.is_file() else None


def load_config(
    flags: Mapping[str, object], *, file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Config:
    """The configuration; raises :class:`ConfigError` with every problem found.

    ``flags`` holds by key what the command line gave, as text (a list of texts for a key that is a map); None
    stands for a flag that was not given.
    """
    problems: list[str] = []
    said: dict[str, str] = {}
    values: dict[str, object] = {}
    path = config_file(file, environ)
    if path is not None:
        found, wrong = _from_file(path)
        problems += wrong
        values |= found
        said |= dict.fromkeys(found, str(path))
    found, wrong = _from_environment(environ)
    problems += wrong
    values |= found
    said |= {key: SETTINGS[key].variable for key in found}
    given = {key: value for key, value in flags.items() if value is not None and value != []}
    values |= given
    said |= {key: SETTINGS[key].flag for key in given}
    try:
        config = Config.model_validate(_nested(values))
    except ValidationError as error:
        problems += [
            _problem(detail, said) for detail in error.errors(include_url=False, include_input=False)
        ]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return config


_NEAR = 0.85
"""What is less alike is no slip of the finger, and every variable begins alike."""


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=_NEAR)
    return f"is not known; did you mean {near[0]}?" if near else "is not known"


def _from_file(path: Path) -> tuple[dict[str, object], list[str]]:
    try:
        tables = TomlConfigSettingsSource(Config, toml_file=path)() if path.is_file() else None
    except tomllib.TOMLDecodeError as error:
        return {}, [f"{path}: is not TOML: {error}"]
    except UnicodeDecodeError:
        return {}, [f"{path}: is not TOML: it is not UTF-8"]
    except OSError as error:
        return {}, [f"{path}: cannot be read: {error.strerror}"]
    if tables is None:
        return {}, [f"{path}: no such configuration file"]
    found: dict[str, object] = {}
    problems: list[str] = []
    for key, value in _flat(tables):
        if key in SETTINGS:
            found[key] = value
        elif any(other.startswith(f"{key}.") for other in SETTINGS):
            problems.append(f"{path}: {key}: must be a table")
        else:
            problems.append(f"{path}: {key}: {_unknown(key, list(SETTINGS))}")
    return found, problems


def _flat(table: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        key = f"{path}{name}"
        section = any(other.startswith(f"{key}.") for other in SETTINGS)
        if section and isinstance(value, Mapping):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], list[str]]:
    by_variable = {setting.variable: setting.key for setting in SETTINGS.values()}
    found: dict[str, object] = {}
    problems: list[str] = []
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in by_variable:
            found[by_variable[variable]] = value
        else:
            problems.append(f"{variable}: {_unknown(variable, [*by_variable, *OTHER_VARIABLES])}")
    return found, problems


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in values.items():
        *tables, name = key.split(".")
        place = out
        for table in tables:
            inner = place.setdefault(table, {})
            assert isinstance(inner, dict)
            place = inner
        place[name] = value
    return out


def _problem(detail: ErrorDetails, said: Mapping[str, str]) -> str:
    """One line. It never repeats the value."""
    cause = detail.get("ctx", {}).get("error")
    reason = str(cause) if isinstance(cause, ValueError) else _plain(detail["msg"])
    path = ".".join(str(part) for part in detail["loc"] if part != "[key]")
    if isinstance(cause, Inconsistent):
        said_by = next(key for key in cause.keys if key in said)
        origin = said[said_by]
        if said_by == cause.keys[0] and origin in (SETTINGS[said_by].flag, SETTINGS[said_by].variable):
            return f"{origin}: {reason}"
        return f"{origin}: {cause.keys[0]}: {reason}"
    setting = next(key for key in SETTINGS if path == key or path.startswith(f"{key}."))
    origin, entry = said[setting], path[len(setting) + 1 :]
    if origin in (SETTINGS[setting].flag, SETTINGS[setting].variable):
        return f"{origin}: {entry}: {reason}" if entry else f"{origin}: {reason}"
    return f"{origin}: {path}: {reason}"


def _plain(message: str) -> str:
    return message.removeprefix("Input ").replace("should", "must", 1)
