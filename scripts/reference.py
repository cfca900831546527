"""Write `docs/configuration.md` from the keys of the configuration, or check that it is current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from replica.config import SETTINGS, Setting
from replica.config.sizes import format_size
from replica.durations import format_duration

__all__ = ["PAGE", "main", "reference"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

_HEAD = """\
# Configuration

`ricordo serve` takes each key from the first of these that has it: a flag, an environment variable, the
configuration file, the default. A key is taken whole: `--peer` replaces the peers of the file, it does not
add to them.

The file is TOML. It is the one that `--config` names, else the one that `RICORDO_CONFIG` names, else
`ricordo.toml` in the folder that the platform has for a user's configuration (on Linux `~/.config/ricordo`),
if it is there.

```toml
cluster = "eu"
peers = { us = "10.0.1.7:7700", ap = "10.0.2.7:7700" }

[ttl]
default = "none"
repositories = { scratch = "12h", notes = "30d" }
```

- A duration is a number and a unit (`ms`, `s`, `m`, `h`, `d`, `w`): `1500ms`, `90s`, `1h30m`, `30d`; where it
  says so, `none`.
- A size is a number of `B`, `KiB`, `MiB`, `GiB` or `TiB`: `64MiB`. A bare number is bytes.
- A limit (`limits.`) can be made smaller than its default, not larger.
- An address is `host:port`, with an IPv6 address in brackets: `[::1]:7600`.
- A key that is a map is a table in the file; its flag is given once for each name
  (`--peer us=10.0.1.7:7700`), its variable holds them all with commas between
  (`RICORDO_PEERS=us=10.0.1.7:7700,ap=10.0.2.7:7700`).
- What is not known is an error: a key in the file, and a variable that begins with `RICORDO_`.
  (`RICORDO_ADDRESS` is the replica that the client commands call.) An error stops the start and names the
  file, variable or flag, the key and the reason.

| key | flag | form | default | what it is |
|---|---|---|---|---|
"""

_TAIL = """
The variable of a key is `RICORDO_` and the key in capitals, with `_` for each `.`: `ttl.default` is
`RICORDO_TTL_DEFAULT`.
"""


def _default(setting: Setting) -> str:
    if setting.field.default_factory is not None or setting.field.default == {}:
        return ""
    value = setting.field.default
    if setting.form.startswith("DURATION"):
        return f"`{format_duration(value)}`"
    if setting.form == "SIZE":
        return f"`{format_size(value)}`"
    return "" if value is None else f"`{value}`"


def reference() -> str:
    """The page."""
    rows = []
    for setting in SETTINGS.values():
        form = setting.form.replace("|", "\\|")
        cells = (f"`{setting.key}`", f"`{setting.flag}`", form, _default(setting), setting.field.description)
        rows.append(f"| {' | '.join(map(str, cells))} |\n")
    return _HEAD + "".join(rows) + _TAIL


def main() -> int:
    """Write the page, or with `--check` compare; the result is the exit code: 0 when it is now current."""
    parser = argparse.ArgumentParser(description="Write docs/configuration.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is not current")
    arguments = parser.parse_args()
    if not arguments.check:
        PAGE.write_text(reference(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == reference():
        return 0
    print(f"reference: {PAGE.name} is not current: run `python scripts/reference.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
