"""`ricordo serve` takes every key of the configuration as a flag, and stops in order."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from replica.config import SETTINGS
from tests.cli.processes import COMMAND, Run, Serve, environment, process


def test_every_key_has_its_flag_with_its_default(ricordo: Run) -> None:
    shown = ricordo("serve", "--help").text
    for setting in SETTINGS.values():
        assert f"  {setting.flag} {setting.form}" in shown, setting.key
    assert "[default: 127.0.0.1:7600]" in shown
    assert "[default: 64KiB]" in shown
    assert "[default: 7d]" in " ".join(shown.split())


def test_a_flag_goes_before_a_variable_and_that_before_the_file(
    ricordo: Run, serve: Serve, tmp_path: Path
) -> None:
    config = tmp_path / "ricordo.toml"
    config.write_text('cluster = "from-file"\n[ttl]\ndefault = "1h"\n[ttl.repositories]\nkept = "none"\n')
    served = serve("--config", str(config), "--ttl-default", "2h", RICORDO_CLUSTER="from-variable")
    assert served.facts["cluster"] == "from-variable"
    for repo, seconds in (("other", 7200), ("kept", None)):
        key = f"repo/{repo}/mem/t/one"
        assert ricordo("remember", key, "--title", "x", "--address", served.address).code == 0
        entry = ricordo("recall", key, "--json", "--address", served.address).value
        remaining = entry["remaining_seconds"]
        assert remaining is None if seconds is None else seconds - 60 < remaining <= seconds


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--cluster", "a b"), "--cluster: must not contain whitespace"),
        (("--listen", "7600"), "--listen: is no address"),
        (("--ttl-default", "90"), "--ttl-default: lacks a unit"),
        (("--ttl-repository", "x"), "--ttl-repository: must be written name=value"),
        (("--peer", "us=nowhere"), "--peer: us: is no address"),
        (("--config", "/nowhere/ricordo.toml"), "/nowhere/ricordo.toml: no such configuration file"),
        (("--log-level", "loud"), "--log-level: "),
        (("--colour", "red"), "No such option: --colour"),
    ],
)
def test_a_wrong_configuration_stops_the_start(ricordo: Run, flags: tuple[str, ...], words: str) -> None:
    assert words in ricordo("serve", *flags).complaint(2)


def test_every_problem_of_a_configuration_has_its_line(ricordo: Run) -> None:
    ended = ricordo("serve", "--listen", "7600", "--ttl-default", "90")
    assert ended.code == 2
    assert [line.split(": ")[1] for line in ended.error.splitlines()] == ["--listen", "--ttl-default"]


def test_a_port_in_use_is_an_error_in_one_line(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    home = tmp_path / "second"
    home.mkdir()
    ended = process(("serve", "--data-dir", str(home), "--listen", served.address), home=home)
    assert ended.code == 1
    last = ended.error.splitlines()[-1]
    assert served.address in last
    assert "Traceback" not in ended.error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_its_data_lives_and_stops_in_order(
    ricordo: Run, serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    served = serve()
    assert Path(served.facts["data_dir"]) == tmp_path / "data"
    key = "repo/r/mem/t/one"
    ricordo("remember", key, "--title", "kept", "--address", served.address)
    assert served.stop(number) == 0
    again = serve()
    assert ricordo("recall", key, "--field", "title", "--address", again.address).out == b"kept"
    assert again.facts["cluster"] == served.facts["cluster"]


def test_on_a_terminal_it_announces_itself_once(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    words += ["--replication-listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*COMMAND, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(tmp_path)
    ) as running:
        os.close(theirs)
        said = b""
        while b"stops it." not in said:
            said += os.read(ours, 4096)
        running.terminate()
        assert running.wait(30) == 0
    os.close(ours)
    assert said.startswith(b"Ricordo ")
    assert said.count(b"127.0.0.1:") == 2


def test_peers_are_listed_added_and_removed(serve: Serve, ricordo: Run) -> None:
    served = serve("--cluster", "eu", "--peer", "us=127.0.0.1:1")

    added = ricordo("peers", "add", "ap=127.0.0.1:2", "--json", "--address", served.address)
    assert added.value == {"cluster": "ap", "address": "127.0.0.1:2", "added": True}
    again = ricordo("peers", "add", "ap=127.0.0.1:2", "--address", served.address)
    assert (again.code, again.text) == (
        0,
        "ap at 127.0.0.1:2 is a peer already: 'ricordo peers list' shows how it is\n",
    )
    ricordo("peers", "add", "ap=127.0.0.1:3", "--address", served.address).complaint(5)
    ricordo("peers", "remove", "us", "--address", served.address).complaint(6)

    listed = ricordo("peers", "list", "--json", "--address", served.address).lines
    assert [(peer["cluster"], peer["origin"], peer["connected"]) for peer in listed] == [
        ("ap", "added", False),
        ("us", "configured", False),
    ]
    assert all(peer["lag"] is None and peer["last_contact_ms"] is None for peer in listed)
    plain = ricordo("peers", "list", "--address", served.address).text.splitlines()[0].split("\t")
    assert plain == ["ap", "127.0.0.1:2", "added", "not connected", "—", "—", "—"]

    new = ricordo("peers", "add", "za=127.0.0.1:2", "--address", served.address)
    assert new.text.startswith("added za at 127.0.0.1:2; not connected yet")
    away = ricordo("peers", "remove", "za", "--address", served.address)
    assert away.text == "no longer replicating from za\n"
    assert "'ricordo peers retire za'" in away.error

    removed = ricordo("peers", "remove", "ap", "--json", "--address", served.address)
    assert removed.value == {"cluster": "ap", "removed": True}
    gone = ricordo("peers", "remove", "ap", "--json", "--address", served.address)
    assert (gone.code, gone.value) == (3, {"cluster": "ap", "removed": False})
    assert json.loads(gone.error)["error"]["exit_code"] == 3
