"""The command that serves a replica. Its flags are the keys of the configuration, and come from its model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import PydanticUndefined

from crdt.dot import Millis
from replica.cli.exits import ExitCode
from replica.config import SETTINGS, ConfigError, Setting, load_config
from replica.config.sizes import format_size
from replica.durations import format_duration

__all__ = ["serve_app"]

_HELP = """Serve one replica until it is told to stop.

Every key of the configuration can be given as a flag, as an environment variable (such as
RICORDO_TTL_DEFAULT) or in a TOML file; a flag goes before a variable, and that before the file. It prints
where its data lives and where it listens, and stops in order at SIGTERM or Ctrl-C.

\b
Examples:
  ricordo serve
  ricordo serve --cluster eu --data-dir ./eu --listen 127.0.0.1:7600 \\
      --replication-listen 127.0.0.1:7700 --peer us=127.0.0.1:7710
  ricordo serve --config ricordo.toml --ttl-default 90d --ttl-repository scratch=12h
"""


def _command() -> Callable[..., None]:
    """A function with one option for each key of the configuration."""

    def command(config: Path | None, **flags: str | list[str] | None) -> None:
        given: Mapping[str, object] = {key: flags[_name(setting)] for key, setting in SETTINGS.items()}
        try:
            loaded = load_config(given, file=config)
        except ConfigError as error:
            for problem in error.problems:
                print(f"ricordo: {problem}", file=sys.stderr)
            raise typer.Exit(ExitCode.USAGE) from None
        # The help and a wrong configuration do without the store and the server.
        from replica.server.serve import serve

        raise typer.Exit(serve(loaded))

    parameters = [_parameter("config", Path | None, "--config", "FILE", "A configuration file in TOML.")]
    for setting in SETTINGS.values():
        kind = list[str] | None if setting.several else str | None
        text = (setting.field.description or "").replace("`", "")
        help = f"{text[:1].upper()}{text[1:]}." + (" Repeatable." if setting.several else _default(setting))
        parameters.append(_parameter(_name(setting), kind, setting.flag, setting.form, help))
    signature = inspect.Signature(parameters, return_annotation=None)
    setattr(command, "__signature__", signature)  # noqa: B010 - functions do not declare the attribute
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = _HELP
    return command


def _name(setting: Setting) -> str:
    return setting.key.replace(".", "_")


def _parameter(name: str, kind: object, flag: str, form: str, help: str) -> inspect.Parameter:
    option = typer.Option(flag, metavar=form, help=help, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _default(setting: Setting) -> str:
    """For the help: the default as it would be written, where there is one to show."""
    default = setting.field.default
    if default is PydanticUndefined or (default is None and setting.form == "NAME"):
        return ""
    if setting.form.startswith("DURATION"):
        default = format_duration(None if default is None else Millis(default))
    return f"  [default: {format_size(default) if setting.form == 'SIZE' else default}]"


serve_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)
"""The command `ricordo serve` alone."""

serve_app.command("serve")(_command())
