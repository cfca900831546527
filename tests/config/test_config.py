"""The configuration: where each key is taken from, and that nothing wrong in it gets by."""

from pathlib import Path

import pytest

from crdt.dot import Millis
from replica.config import SETTINGS, Config, ConfigError, load_config
from replica.config.sizes import InvalidSize, format_size, parse_size
from scripts.reference import PAGE, reference

ELSEWHERE = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def no_file_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def load(
    tmp_path: Path,
    toml: str | None = None,
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
) -> Config:
    file = None
    if toml is not None:
        file = tmp_path / "ricordo.toml"
        file.write_text(toml, encoding="utf-8")
    return load_config(flags or {}, file=file, environ=environ or {})


def problems(
    tmp_path: Path,
    toml: str | None = None,
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, toml, flags, environ)
    assert str(raised.value) == "\n".join(raised.value.problems)
    return [problem.replace(str(tmp_path) + "/", "") for problem in raised.value.problems]


def test_everything_has_a_default(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.listen, config.replication_listen) == ("127.0.0.1:7600", "127.0.0.1:7700")
    assert config.data_dir.is_relative_to(tmp_path)
    assert config.ttl.default is None
    assert config.peers == {}


def test_every_key_can_be_given_in_each_way(tmp_path: Path) -> None:
    texts = {
        "NAME": "eu",
        "FOLDER": "/srv/ricordo",
        "HOST:PORT": "[::1]:7601",
        "NAME=HOST:PORT": "us=127.0.0.1:7701",
        "DURATION": "30s",
        "DURATION|none": "30s",
        "NAME=DURATION|none": "notes=30s",
        "SIZE": "1MiB",
        "NUMBER": "7",
        "LEVEL": "debug",
        "FORMAT": "json",
    }
    default = load(tmp_path)
    for setting in SETTINGS.values():
        text = texts[setting.form]
        if setting.key.startswith("limits."):
            text = "7"
        if setting.key == "replication.batch":
            text = "2MiB"
        if setting.key in ("replication.heartbeat", "replication.backoff_max"):
            text = "9s"
        if setting.key == "replication.listen":
            text = "[::1]:7701"
        flags: dict[str, object] = {setting.key: [text] if setting.several else text}
        by_flag = load(tmp_path, flags=flags)
        by_variable = load(tmp_path, environ={setting.variable: text})
        assert by_flag == by_variable != default, setting.key
        name, _, value = text.partition("=")
        written = f'{{{name} = "{value}"}}' if setting.several else f'"{text}"'
        assert load(tmp_path, toml=f"{setting.key} = {written}\n") == by_flag, setting.key


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    toml = '[ttl]\ndefault = "1h"\n'
    environ = {"RICORDO_TTL_DEFAULT": "2h"}
    assert load(tmp_path, toml).ttl.default == 3_600_000
    assert load(tmp_path, toml, environ=environ).ttl.default == 7_200_000
    assert load(tmp_path, toml, {"ttl.default": "none"}, environ).ttl.default is None
    assert load(tmp_path, toml, {"ttl.default": None}, environ).ttl.default == 7_200_000


def test_a_map_is_taken_whole(tmp_path: Path) -> None:
    toml = 'peers = {us = "10.0.0.1:7700", ap = "10.0.0.2:7700"}\n'
    flags: dict[str, object] = {"peers": ["jp=10.0.0.3:7700", "us=10.0.0.4:7700"]}
    assert load(tmp_path, toml, flags).peers == {"jp": "10.0.0.3:7700", "us": "10.0.0.4:7700"}
    assert load(tmp_path, toml, environ={"RICORDO_PEERS": ""}).peers == {}


def test_the_file_is_the_one_named_or_the_one_in_the_environment_or_the_usual_one(tmp_path: Path) -> None:
    for name in ("flag", "variable"):
        (tmp_path / name).write_text(f'cluster = "{name}"\n')
    usual = tmp_path / "config" / "ricordo" / "ricordo.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text('cluster = "usual"\n')
    environ = {"RICORDO_CONFIG": str(tmp_path / "variable")}
    assert load_config({}, file=tmp_path / "flag", environ=environ).cluster == "flag"
    assert load_config({}, environ=environ).cluster == "variable"
    assert load_config({}, environ={}).cluster == "usual"


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("cluster", "ricordo.toml: is not TOML: "),
        ("datadir = 1", "ricordo.toml: datadir: is not known; did you mean data_dir?"),
        ("zzz = 1", "ricordo.toml: zzz: is not known"),
        ("[ttl]\ndefualt = 1", "ricordo.toml: ttl.defualt: is not known; did you mean ttl.default?"),
        ("ttl = 1", "ricordo.toml: ttl: must be a table"),
        ("cluster = ''", "ricordo.toml: cluster: must not be empty"),
        ("cluster = 'a b'", "ricordo.toml: cluster: must not contain whitespace"),
        ("cluster = 1", "ricordo.toml: cluster: must be a valid string"),
        ("data_dir = ''", "ricordo.toml: data_dir: must be the path of a folder"),
        ("listen = '7600'", "ricordo.toml: listen: is no address: "),
        ("listen = '::1:7600'", "ricordo.toml: listen: is no address: "),
        ("listen = 'a:70000'", "ricordo.toml: listen: has a port that is not in 0 to 65535"),
        ("peers = ['us']", "ricordo.toml: peers: must be written name=value"),
        ("peers = 3", "ricordo.toml: peers: must be a table of names and values"),
        ("peers = {us = 'a:0'}", "ricordo.toml: peers.us: has a port that is not in 1 to 65535"),
        ("peers = {'' = 'a:1'}", "ricordo.toml: peers.: must not be empty"),
        ("cluster = 'eu'\npeers = {eu = 'a:1'}", "ricordo.toml: peers: names this replica's own cluster"),
        ("[ttl]\ndefault = 3600", "ricordo.toml: ttl.default: must be text, in quotes"),
        ("[ttl]\ndefault = '3600'", "ricordo.toml: ttl.default: lacks a unit: "),
        ("[ttl]\ndefault = '0s'", "ricordo.toml: ttl.default: must be positive"),
        ("[ttl]\ndefault = '-3s'", "ricordo.toml: ttl.default: must be positive"),
        ("[ttl]\ndefault = 'inf'", "ricordo.toml: ttl.default: is no duration"),
        ("[ttl]\ndefault = '99999999d'", "ricordo.toml: ttl.default: is too long"),
        ("ttl.repositories = {notes = '0s'}", "ricordo.toml: ttl.repositories.notes: must be positive"),
        (
            "ttl.repositories.\"a\\u0007\" = '1s'",
            "ricordo.toml: ttl.repositories.a\a: must not contain control",
        ),
        (
            "[limits]\ntitle_bytes = '2KiB'",
            "ricordo.toml: limits.title_bytes: must be less than or equal to 1024",
        ),
        ("[limits]\ntags = 0", "ricordo.toml: limits.tags: must be greater than or equal to 1"),
        ("[limits]\nbody_bytes = '9XB'", "ricordo.toml: limits.body_bytes: is no size: "),
        ("[limits]\nbody_bytes = true", "ricordo.toml: limits.body_bytes: must be text, in quotes"),
        ("[compaction]\ngrace = 'none'", "ricordo.toml: compaction.grace: is no duration"),
        ("[log]\nlevel = 'loud'", "ricordo.toml: log.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("listen = 'a:1'\nreplication_listen = 'a:1'", "ricordo.toml: replication_listen: must be another"),
        (
            "[replication]\nheartbeat = '1h'",
            "ricordo.toml: replication.silence: must be at least twice replication.heartbeat",
        ),
        (
            "[replication]\nbackoff = '1h'",
            "ricordo.toml: replication.backoff: must not be longer than replication.backoff_max",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_file_key_and_reason(
    tmp_path: Path, toml: str, expected: str
) -> None:
    [problem] = problems(tmp_path, toml)
    assert problem.startswith(expected)
    assert "\n" not in problem


def test_what_is_wrong_in_the_environment_and_in_a_flag_is_named_by_it(tmp_path: Path) -> None:
    environ = {
        "RICORDO_TTL_DEFUALT": "1h",
        "RICORDO_FOO": "1",
        "RICORDO_LISTEN": "here",
        "RICORDO_ADDRESS": "localhost:1",
        "HOME": "/",
    }
    assert problems(tmp_path, environ=environ, flags={"peers": ["us=a:1", "us=a:2"]}) == [
        "RICORDO_TTL_DEFUALT: is not known; did you mean RICORDO_TTL_DEFAULT?",
        "RICORDO_FOO: is not known",
        "RICORDO_LISTEN: is no address: write host:port, such as 127.0.0.1:7600 or [::1]:7600",
        "--peer: names one thing twice",
    ]


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    toml = "unheard = 1\ncluster = ''\n[limits]\ntag_bytes = 'x'\n"
    assert len(problems(tmp_path, toml, {"compaction.grace": "1"}, {"RICORDO_X": ""})) == 5


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such configuration file"):
        load_config({}, file=tmp_path / "nowhere", environ={})
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="bytes: is not TOML: it is not UTF-8"):
        load_config({}, file=tmp_path / "bytes", environ={})


def test_the_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `python scripts/reference.py`"


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512B", 512), ("64KiB", 65536), ("2 mib", 2 << 20), ("1TiB", 1 << 40)]
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "64KB", "-1", "1.5MiB", "9999999999TiB", "KiB", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidSize):
        parse_size(text)


def test_durations_are_in_milliseconds(tmp_path: Path) -> None:
    assert load(tmp_path, flags={"compaction.grace": "1500ms"}).compaction.grace == Millis(1500)
