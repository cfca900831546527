"""What the demo shows: its words, and commands with their output, as a terminal would have them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr

from rich.text import Text

from replica.cli.app import main
from replica.cli.terminal import console
from replica.demo.fleet import DemoError

__all__ = ["Narrator"]


class Narrator:
    """Tells a tour on standard output: styled on a terminal, else plain lines."""

    def __init__(self, addresses: dict[str, str]) -> None:
        """`addresses` are those of the clusters' replicas."""
        self._console = console()
        self._addresses = addresses

    def heading(self, text: str) -> None:
        """Begin a step."""
        self._console.print()
        if self._console.is_terminal:
            self._console.rule(Text(text, "bold"), align="left")
        else:
            self._console.print(f"=== {text}")

    def say(self, text: str) -> None:
        """Say something, in sentences."""
        self._console.print()
        self._console.print(Text(" ".join(text.split())))

    def held(self, text: str) -> None:
        """Something that was checked, and holds."""
        self._console.print(Text(f"✓ {text}", "green"))

    def prompt(self, cluster: str, arguments: Sequence[str]) -> None:
        """A command as it is typed beside a cluster's replica."""
        self._console.print()
        line = Text(f"{cluster}$ ", "bold cyan")
        line.append(f"ricordo {shlex.join(arguments)}", "bold")
        self._console.print(line, soft_wrap=True)

    def run(self, cluster: str, *arguments: str, exits: int = 0) -> None:
        """Run a command against a cluster's replica, and show it with what it says.

        Raises DemoError where it ends with another exit code than it should.
        """
        self.prompt(cluster, arguments)
        os.environ["RICORDO_ADDRESS"] = self._addresses[cluster]
        with redirect_stderr(sys.stdout):
            code = main(arguments)
        sys.stdout.flush()
        if code != exits:
            raise DemoError(f"ricordo {arguments[0]} at {cluster} ended with {code}, not with {exits}")

    def output(self, text: str) -> None:
        """What a command said that ran by itself."""
        self._console.print(Text(text.rstrip("\n")), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table whose cells are never cut."""
        lines = [columns, *rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        self._console.print()
        for number, line in enumerate(lines):
            cells = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            self._console.print(Text(cells.rstrip(), "" if number else "dim"), soft_wrap=True)
