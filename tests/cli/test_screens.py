"""What people see, on a terminal a hundred columns wide and where there is none."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from replica.cli.sheet import Column, Fields, Prose, Sheet, print_listing, print_sheet, visible
from replica.cli.status_views import PEER_COLUMNS, compaction_sheet, peer_row, status_sheet
from replica.cli.times import format_span, format_time, parse_time
from replica.cli.views import SCAN_COLUMNS, entry_sheet, history_sheet, scan_row
from replica.client import (
    Compacted,
    Counts,
    Entry,
    FieldHistory,
    FieldValue,
    HeldBy,
    History,
    MemberState,
    MemberStatus,
    PeerOrigin,
    PeerStatus,
    Purging,
    Status,
    Storage,
)
from tests.cli.processes import COMMAND, Run, Served, environment, write_lines

NOW = 1772366400000
FIRST = FieldValue("Deploy on Fridays too", "us", NOW - 5_000)
SECOND = FieldValue("Deploy on Mondays", "eu", NOW - 65_432)

ENTRY = Entry(
    key="repo/api/mem/notes/deploy%2Fhow",
    exists=True,
    repo_id="api",
    topic="notes",
    id="deploy/how",
    kind="Note",
    title="Deploy on Fridays too",
    body="First the database,\nthen the rest. " + "Slowly. " * 16 + "\n\n\tשלום 🧠 \x1b[31mred",
    author="ada",
    provenance="",
    created_at_ms=NOW - 86_400_000,
    tags=("ops", "release"),
    links={"touches": ("repo/api/file/deploy.sh", "repo/api/file/very/long/" + "x" * 90), "see": ("a",)},
    expires_at_ms=NOW + 5_400_000,
    remaining_seconds=5400,
    version="1cf3347d9594f805",
    sibling_count=2,
    concurrent={"title": (FIRST, SECOND)},
    undecodable=1,
)

HISTORY = History(
    key=ENTRY.key,
    exists=True,
    version=ENTRY.version,
    fields={
        "title": FieldHistory(FIRST, (SECOND,), (FieldValue("", "ap", NOW - 99_000),)),
        "created_at": FieldHistory(FieldValue(NOW, "eu", NOW), (), ()),
    },
    undecodable=0,
)

HEALTHY = PeerStatus(
    cluster="us",
    address="127.0.0.1:7701",
    origin=PeerOrigin.CONFIGURED,
    connected=True,
    consuming=True,
    verdict="TAIL",
    reason="it continues where it was",
    cursor=12,
    lag=0,
    lag_ms=0,
    last_contact_ms=NOW - 1_200,
    skew_ms=-3,
    last_error=None,
    last_error_at_ms=None,
    received_bytes=4_096,
    sent_bytes=1,
    acknowledged=8340,
    received_changes=12,
    applied_changes=11,
    faults=2,
    last_fault="repo/r/mem/t/a: write 1 of ap, incarnation 00",
)
UNHEARD = PeerStatus(
    cluster="ap",
    address="10.0.0.9:7700",
    origin=PeerOrigin.ADDED,
    connected=False,
    consuming=False,
    verdict=None,
    reason=None,
    cursor=None,
    lag=None,
    lag_ms=None,
    last_contact_ms=None,
    skew_ms=None,
    last_error="connection refused",
    last_error_at_ms=NOW - 2_000,
    received_bytes=None,
    sent_bytes=None,
    acknowledged=None,
    received_changes=None,
    applied_changes=None,
    faults=None,
    last_fault=None,
)

STATUS = Status(
    cluster="eu",
    incarnation=bytes(16),
    store_id=b"\xff" * 16,
    version="0.1.0",
    data_dir="/var/lib/ricordo",
    started_at_ms=NOW - 93_784_000,
    now_ms=NOW,
    listen_address="127.0.0.1:7600",
    replication_address=None,
    sequence=8341,
    counts=Counts(
        live=8341,
        expired=0,
        tombstones=12,
        registers=8353,
        concurrent=500,
        damaged=None,
        siblings=8853,
        undecodable=None,
    ),
    damaged_keys=("repo/r/mem/t/broken",),
    purging=Purging(NOW - 180_000_000, None, 12, NOW - 40_000, (HeldBy("ap", "it was never heard", 12),)),
    storage=Storage("lmdb", 1, 15_938_560, 1 << 40, None, 24, None),
    peers=(UNHEARD, HEALTHY),
    members=(
        MemberStatus("ap", MemberState.ACTIVE, None, None, None, must_reconcile=False),
        MemberStatus("old", MemberState.RETIRED, NOW - 9_000_000_000, -20, b"i" * 16, must_reconcile=True),
        MemberStatus("us", MemberState.ACTIVE, NOW - 1_200, -3, b"j" * 16, must_reconcile=False),
    ),
)

COMPACTED = Compacted(
    12, 0, 3, (HeldBy("ap", "it was never heard", 3), HeldBy("eu", "a reconcile is under way here", None))
)


def terminal(width: int = 100) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system=None,
        markup=False,
        emoji=False,
        highlight=False,
    )
    return console, out


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, markup=False, emoji=False, highlight=False), out


def drawn(sheet: Sheet) -> str:
    console, out = terminal()
    print_sheet(console, sheet)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


SNAPSHOTS = Path(__file__).parent / "screens"
SHEETS = {
    "entry": entry_sheet(ENTRY),
    "history": history_sheet(HISTORY),
    "status": status_sheet(STATUS),
    "compaction": compaction_sheet(COMPACTED),
}


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_looks_as_it_did(name: str) -> None:
    """To accept a new look, remove the file and run the test: it writes what it sees, and fails once."""
    file = SNAPSHOTS / f"{name}.txt"
    seen = drawn(SHEETS[name])
    if not file.exists():
        file.write_text(seen, encoding="utf-8")
        pytest.fail(f"{file} is new: look at it, and run the test again")
    assert seen == file.read_text(encoding="utf-8")


def test_a_sheet_is_plain_text_where_there_is_no_terminal() -> None:
    console, out = plain()
    print_sheet(console, entry_sheet(ENTRY))
    lines = out.getvalue().splitlines()
    assert lines[:3] == [ENTRY.key, "kind: Note", "title: Deploy on Fridays too"]
    assert "see\ta" in lines
    assert "touches\trepo/api/file/very/long/" + "x" * 90 in lines
    assert "First the database," in lines
    assert f"title (shown)\tus\t{format_time(FIRST.written_at_ms)}\tDeploy on Fridays too" in lines
    assert f"title\teu\t{format_time(SECOND.written_at_ms)}\tDeploy on Mondays" in lines
    assert "\x1b" not in out.getvalue()


def test_what_was_not_measured_is_not_zero() -> None:
    console, out = plain()
    print_sheet(console, status_sheet(STATUS))
    shown = out.getvalue()
    assert "damaged rows: not measured" in shown
    assert "free on disk: not measured" in shown
    assert "expired, not yet purged: 0" in shown
    assert peer_row(UNHEARD)[3:] == ("not connected", "—", "—", "—")
    assert peer_row(HEALTHY)[3:] == ("connected, TAIL", "0", "0s", "-3 ms")
    assert "ap\tnever\t—\t—\t—\t—\t—" in shown
    assert "us\t1s ago\t4 KiB\t1 B\t12\t11\t1" in shown
    assert "ap: connection refused (2s ago)" in shown


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_list_keeps_its_columns_and_its_width(width: int) -> None:
    console, out = terminal(width)
    rows = [scan_row(ENTRY)] * 250
    assert print_listing(console, SCAN_COLUMNS, rows) == 250
    lines = out.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert sum("expires" in line for line in lines) == 1


def test_an_id_is_never_cut_nor_folded() -> None:
    id = "".join(chr(0x4E00 + number) for number in range(30))
    console, out = terminal(110)
    print_listing(console, SCAN_COLUMNS, [("t", id, "Note", "title " * 40, "", "durable")])
    assert id in out.getvalue()
    assert "…" in out.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80])
def test_what_a_narrow_terminal_cannot_show_beside_an_id_comes_in_plain_lines(width: int) -> None:
    row = ("decisions", "01936f3a-7c41-7d0e-a54b-0f6c1b5d7e21", "Decision", "Retry " * 20, "grpc", "durable")
    short = ("decisions", "retries", "Note", "Retry", "", "durable")
    console, out = terminal(width)
    assert print_listing(console, SCAN_COLUMNS, [short] * 100 + [row]) == 101
    assert out.getvalue().splitlines()[-1] == "\t".join(row)


def test_a_list_is_lines_with_tabs_where_there_is_no_terminal() -> None:
    console, out = plain()
    assert print_listing(console, (Column("a"), Column("b")), [("x\ty", "z\n"), ("1", "2" * 500)]) == 2
    assert out.getvalue() == "x␉y\tz␊\n1\t" + "2" * 500 + "\n"


@pytest.mark.parametrize("width", [80, 90, 100])
def test_peers_take_a_line_each(width: int) -> None:
    console, out = terminal(width)
    print_listing(console, PEER_COLUMNS, [peer_row(peer) for peer in STATUS.peers])
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + len(STATUS.peers)
    assert all(len(line.rstrip()) <= width for line in lines)
    assert "connected, TAIL" in out.getvalue()


def test_a_peer_that_only_pulls_is_shown_as_one() -> None:
    peer = replace(UNHEARD, origin=PeerOrigin.CONSUMER_ONLY, address="", consuming=True)
    assert peer_row(peer)[:4] == ("ap", "—", "—", "pulls from here")
    assert peer_row(replace(peer, consuming=False))[3] == "pulled from here"
    assert peer_row(replace(UNHEARD, verdict="REFUSED"))[3] == "REFUSED"


def test_a_generated_id_takes_one_line_and_what_it_needs_of_the_others() -> None:
    row = ("decisions", "01936f3a-7c41-7d0e-a54b-0f6c1b5d7e21", "Decision", "Retry " * 20, "grpc", "durable")
    for width in (90, 100, 200):
        console, out = terminal(width)
        print_listing(console, SCAN_COLUMNS, [row] * 3)
        lines = out.getvalue().splitlines()
        assert len(lines) == 4
        assert all(row[1] in line and "Retry" in line and len(line.rstrip()) <= width for line in lines[1:])


def test_control_characters_are_shown_and_not_sent() -> None:
    every = "".join(map(chr, range(0xA0)))
    shown = visible(every)
    assert [character for character in shown if not character.isprintable()] == ["\t", "\n"]
    assert len(shown) == len(every)
    assert visible("שלום 🧠 é") == "שלום 🧠 é"
    assert "\x1b" not in drawn(Sheet("\x1b[2J", (Fields((("a", "\x1b[2J"),)), Prose("\x1b[2J"))))


def test_markup_is_text() -> None:
    assert "[bold]x[/bold] :smile:" in drawn(Sheet("t", (Prose("[bold]x[/bold] :smile:"),)))


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("-1", -1),
        ("1772366400000", NOW),
        ("2026-03-01T12:00:00Z", NOW),
        ("2026-03-01 12:00", NOW),
        ("2026-03-01 12:00:00.000 UTC", NOW),
        ("2026-03-01T14:00:00.5+02:00", NOW + 500),
        ("2026-03-01", NOW - 43_200_000),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, millis: int) -> None:
    assert parse_time(text) == millis


@pytest.mark.parametrize("text", ["", "soon", "1e3", "9223372036854775808", "2026-13-01"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: write milliseconds"):
        parse_time(text)


def test_times_are_shown_exactly_even_wild_ones() -> None:
    assert format_time(NOW + 7) == "2026-03-01 12:00:00.007 UTC"
    assert format_time(-1) == "1969-12-31 23:59:59.999 UTC"
    assert format_time(2**62) == f"{2**62} ms"


@pytest.mark.parametrize(
    ("millis", "text"),
    [(0, "0s"), (7, "7ms"), (1_999, "1s"), (93_784_000, "1d2h"), (3_600_000, "1h"), (-61_000, "-1m1s")],
)
def test_a_span_is_shown_roughly(millis: int, text: str) -> None:
    assert format_span(millis) == text


def in_a_terminal(arguments: list[str], home: Path, address: str, **more: str) -> str:
    """What a command writes to a terminal of a hundred columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(home, RICORDO_ADDRESS=address, TERM="xterm-256color", **more),
    ) as running:
        os.close(theirs)
        seen = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # Linux says so when the last process has closed the other end.
                break
            if not read:
                break
            seen += read
    os.close(ours)
    assert running.returncode == 0, seen
    return seen.decode()


def test_a_terminal_gets_panels_and_colour_unless_it_wants_none(
    served: Served, ricordo: Run, repo: str, tmp_path: Path
) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x", "--body", "y")
    coloured = in_a_terminal(["recall", key], tmp_path, served.address)
    assert "╭" in coloured
    assert "\x1b[" in coloured
    without = in_a_terminal(["scan", "--repo", repo], tmp_path, served.address, NO_COLOR="1")
    assert "\x1b[3" not in without
    assert in_a_terminal(["recall", key, "--field", "body"], tmp_path, served.address) == "y\r\n"
    assert "\x1b" not in in_a_terminal(["recall", key, "--json"], tmp_path, served.address)


def test_a_terminal_gets_a_progress_bar(served: Served, repo: str, tmp_path: Path) -> None:
    lines = ({"repo": repo, "topic": "t", "id": str(number)} for number in range(500))
    file = write_lines(tmp_path / "notes.jsonl", *lines)
    seen = in_a_terminal(["import", str(file)], tmp_path, served.address)
    assert "importing" in seen
    assert "500 lines: 500 created" in seen
    seen = in_a_terminal(["export", "--repo", repo, "-o", str(tmp_path / "out")], tmp_path, served.address)
    assert "exporting" in seen
    assert "500 entries exported" in seen
