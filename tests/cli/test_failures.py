"""What goes wrong is said in one line, with what, where and the remedy, and by the exit code."""

from __future__ import annotations

import json
import socket

import grpc
import pytest

from replica.cli.exits import ExitCode, failure_of
from replica.client import RicordoError
from tests.cli.processes import Run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("recall",), "missing --repo, --topic, --id"),
        (("recall", "--repo", "a", "--id", "b"), "missing --topic"),
        (("recall", "repo/a/mem/b/c", "--id", "d"), "KEY: name the entry by"),
        (("recall", "repo/a/mem/b"), "key: must have the form repo/{repoId}/mem/{topic}/{id}"),
        (("recall", "repo/a/mem/b/50%"), "holds a bare %: write %25"),
        (("recall", "repo//mem/b/c"), "repo_id: must not be empty"),
        (
            ("recall", "--repo", "a", "--topic", "b", "--id", "e\u0301"),
            "--id: must be in Unicode normalization",
        ),
        (("recall", "--repo", "a", "--topic", "b", "--id", "x" * 129), "--id: is 129 bytes of UTF-8"),
        (("recall", "--repo", "a\udcff", "--topic", "b", "--id", "c"), "--repo: is not valid UTF-8"),
        (("recall", "repo/a/mem/b/c", "--field", "colour"), "--field: must be one of"),
        (("remember", "--title", "x"), "--repo: missing"),
        (("remember", "--repo", "a", "--title", "x"), "--topic: missing"),
        (("remember", "repo/a/mem/b/c", "--ttl", "90"), "--ttl: lacks a unit"),
        (("remember", "repo/a/mem/b/c", "--ttl", "0s"), "--ttl: must be positive"),
        (("remember", "repo/a/mem/b/c", "--ttl", "-1h"), "--ttl: must be positive"),
        (("remember", "repo/a/mem/b/c", "--ttl", "99999999d"), "--ttl: is too long"),
        (("remember", "repo/a/mem/b/c", "--link", "x"), "--link: must be written RELATION=TARGET"),
        (("remember", "repo/a/mem/b/c", "--created-at", "yesterday"), "--created-at: is no time"),
        (
            ("remember", "repo/a/mem/b/c", "--body", "x", "--body-file", "y"),
            "give --body or --body-file, not both",
        ),
        (("remember", "repo/a/mem/b/c", "--body-file", "/nowhere/x"), "--body-file: cannot read /nowhere/x"),
        (("remember", "repo/a/mem/b/c", "--title", "x" * 1025), "title"),
        (("remember", "repo/a/mem/b/c", "--body", "x" * 65537), "body"),
        (("remember", "repo/a/mem/b/c", "--title", "x", "--kind", "Poem"), "kind"),
        (("remember", "repo/a/mem/b/c"), "nothing to remember; give at least one of --title"),
        (("remember", "repo/a/mem/b/c", "--ttl", "1h", "--kind", "Note"), "nothing to remember"),
        (("remember", "repo/a/mem/b/c", "--tag", ""), "tags[0]"),
        (("remember", "repo/a/mem/b/c", "--link", "r=x", "--unlink", "r=x"), "link"),
        (("update", "repo/a/mem/b/c"), "nothing to change"),
        (("scan",), "--repo: missing; 'ricordo repos' lists"),
        (("scan", "--repo", "a", "--limit", "0"), "limit"),
        (("digest", "--at", "soon"), "--at: is no time"),
        (("peers", "add", "us"), "PEER: must be written CLUSTER=HOST:PORT"),
        (("peers", "add", "us=nowhere"), "address"),
        (("peers", "add", "eu=127.0.0.1:1"), "own"),
        (("import", "/nowhere/x"), "FILE: cannot read /nowhere/x"),
        (("import",), "FILE"),
        (("recal", "x"), "Did you mean 'recall'"),
        (("recall", "--jsn"), "--jsn"),
        (("recall", "repo/a/mem/b/c", "--timeout", "5"), "--timeout: lacks a unit"),
        (("recall", "repo/a/mem/b/c", "--timeout", "1h"), "--timeout: must be at most 10m"),
        (("recall", "repo/a/mem/b/c", "--address", "localhost"), "--address: is no address"),
        (("recall", "repo/a/mem/b/c", "--address", "localhost:0"), "--address: is no address"),
    ],
)
def test_a_wrong_command_line_exits_with_2(ricordo: Run, arguments: tuple[str, ...], words: str) -> None:
    ended = ricordo(*arguments)
    assert words in ended.complaint(2)
    assert ended.out == b""


def test_a_refusal_repeats_no_contents(ricordo: Run) -> None:
    secret = "sesame" * 20000
    assert "sesame" not in ricordo("remember", "repo/a/mem/b/c", "--body", secret).complaint(2)


@pytest.mark.parametrize("command", ["recall", "history"])
def test_what_is_absent_exits_with_3(ricordo: Run, repo: str, command: str) -> None:
    key = f"repo/{repo}/mem/t/none"
    line = ricordo(command, key).complaint(3)
    assert line == f"ricordo: no entry at {key}; it is absent, forgotten or past its expiry"
    ended = ricordo(command, key, "--json")
    assert (ended.code, ended.value["exists"]) == (3, False)


def test_an_update_of_nothing_exits_with_3(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/none"
    line = ricordo("update", key, "--title", "x").complaint(3)
    assert line == f"ricordo: no live entry at {key}; remember it first"


def test_removing_no_peer_exits_with_3(ricordo: Run) -> None:
    assert "no such peer" in ricordo("peers", "remove", "nobody").complaint(3)


def test_an_unreachable_replica_exits_with_4(ricordo: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = ricordo("recall", "repo/a/mem/b/c", "--address", address, "--timeout", "200ms").complaint(4)
    assert f"no replica answers at {address} (" in line
    assert "ricordo serve" in line


def test_a_replica_that_does_not_answer_exits_with_4(ricordo: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ricordo("recall", "repo/a/mem/b/c", "--address", address, "--timeout", "300ms").complaint(4)


def test_an_entry_that_is_there_exits_with_5(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x")
    ricordo("remember", key, "--title", "y", "--create-only").complaint(5)
    assert ricordo("recall", key, "--field", "title").out == b"x"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.OUT_OF_RANGE, 6),
        (grpc.StatusCode.NOT_FOUND, 3),
        (grpc.StatusCode.UNAVAILABLE, 4),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 4),
        (grpc.StatusCode.CANCELLED, 4),
        (grpc.StatusCode.ALREADY_EXISTS, 5),
        (grpc.StatusCode.ABORTED, 5),
        (grpc.StatusCode.FAILED_PRECONDITION, 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 7),
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.DATA_LOSS, 1),
        (grpc.StatusCode.UNIMPLEMENTED, 1),
        (grpc.StatusCode.UNKNOWN, 1),
    ],
)
def test_each_code_has_its_exit_code(code: grpc.StatusCode, exit_code: int) -> None:
    failure = failure_of(RicordoError(code, "what\nhappened", field="body", remedy="do this"), "h:1")
    assert failure.exit_code == exit_code
    assert "\n" not in failure.line()
    said = json.loads(failure.as_json())["error"]
    assert set(said) == {"code", "message", "field", "remedy", "exit_code"}
    assert (said["code"], said["exit_code"]) == (code.name, exit_code)


def test_each_exit_code_is_explained() -> None:
    assert all(code.meaning for code in ExitCode)


def test_a_failure_is_json_for_programs(ricordo: Run) -> None:
    for arguments in (("recall", "repo/a/mem/b", "--json"), ("recall", "--json", "--jsn")):
        ended = ricordo(*arguments)
        (line,) = ended.error.splitlines()
        assert ended.code == 2
        assert json.loads(line)["error"]["exit_code"] == 2


def test_an_option_after_two_dashes_is_an_argument(ricordo: Run) -> None:
    ricordo("recall", "--", "--json").complaint(2)
