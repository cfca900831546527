"""The pages of the documentation, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "README", "ROOT", "Block", "Command", "blocks", "commands"]

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted({README, *(ROOT / "docs").glob("*.md")})

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line as it is shown, and the output below it."""

    line: str
    output: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _FENCE.finditer(text)
        if found[1] in languages
    ]


def commands(block: Block) -> list[Command]:
    """What stands behind the prompts of a `console` block, or each line of a `sh` block."""
    text = block.text.replace("\\\n", " ")
    if block.language != "console":
        return [Command(line.partition(" # ")[0].strip(), "") for line in text.splitlines() if line.strip()]
    return [
        Command(line.strip(), output)
        for line, _, output in (
            part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        )
    ]
