"""What the pages say about files, targets, keys and commands is so, and what is generated is current."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import typer
import typer.main

from replica.cli.app import app
from replica.config import SETTINGS
from replica.config.sizes import format_size
from replica.durations import format_duration
from scripts import diagrams, manual
from tests.docs.pages import PAGES, README, ROOT, blocks, commands

_LINK = re.compile(r"\]\(([^)]+)\)")


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_shown_is_one(page: Path) -> None:
    """Its options and arguments are known; nothing is run."""
    top = typer.main.get_command(app)
    for block in blocks(page, "console", "sh"):
        for command in commands(block):
            words = shlex.split(command.line)
            if "ricordo" not in words[:1]:
                continue
            words, group = words[1:], top
            context = None
            while isinstance(group, typer.core.TyperGroup):
                context = typer.Context(group, info_name="ricordo", parent=context)
                assert words, f"{block}: {command.line}"
                name = words.pop(0)
                found = group.get_command(context, name)
                assert found is not None, f"{block}: {command.line}"
                group = found
            redirected = next(
                (at for at, word in enumerate(words) if word in (">", "|", "<", "&")), len(words)
            )
            group.make_context("ricordo", words[:redirected], parent=context)


def test_the_manual_is_current() -> None:
    assert manual.PAGE.read_text(encoding="utf-8") == manual.manual(), "run python scripts/manual.py"


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_current_and_stands_alone(name: str) -> None:
    text = (diagrams.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert text == diagrams.DIAGRAMS[name]().svg(), "run python scripts/diagrams.py"
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [each for each in root.iter() if any("href" in attribute for attribute in each.attrib)]


def test_a_text_that_does_not_fit_is_an_error() -> None:
    drawing = diagrams.Drawing(100, 100, "Too narrow")
    with pytest.raises(diagrams.TextTooWide, match="far too long"):
        drawing.box(0, 0, 60, 20, "a title that is far too long", fill=diagrams.PLAIN)


def test_the_targets_named_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        target
        for page in PAGES
        for target in re.findall(r"`?\bmake ([a-z]+)\b(?=`|  )", page.read_text(encoding="utf-8"))
    }
    assert {"demo", "run", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_keys_shown_are_those_of_the_configuration() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| `(--[\w-]+)[^|]*\| ([^|]*)\|", README.read_text(encoding="utf-8"), re.M
    )
    assert len(rows) >= 5
    for key, flag, default in rows:
        setting = SETTINGS[key]
        assert setting.flag == flag
        if default.startswith("`"):
            value = setting.field.default
            if setting.form.startswith("DURATION"):
                value = format_duration(value)
            elif setting.form == "SIZE":
                value = format_size(value)
            assert default.strip() == f"`{value}`"
