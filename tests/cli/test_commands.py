"""Each command makes its call and shows the answer: to programs by the API's names, to people in words."""

import pytest

from replica.cli.times import format_time
from tests.cli.processes import Run

ENTRY = {
    "key",
    "exists",
    "repo_id",
    "topic",
    "id",
    "kind",
    "title",
    "body",
    "author",
    "provenance",
    "created_at_ms",
    "tags",
    "links",
    "expires_at_ms",
    "remaining_seconds",
    "version",
    "sibling_count",
    "concurrent",
    "undecodable",
}


def test_what_is_remembered_is_recalled(ricordo: Run, repo: str) -> None:
    made = ricordo(
        *(
            "remember",
            "--repo",
            repo,
            "--topic",
            "t",
            "--id",
            "one",
            "--kind",
            "Decision",
            "--title",
            "First",
        ),
        *("--body", "line\nline", "--author", "ada", "--provenance", "commit 1", "--tag", "b", "--tag", "a"),
        *("--link", "touches=x=y", "--link", "touches=z", "--created-at", "2026-03-01T12:00:00Z", "--json"),
    ).value
    assert made["created"]
    assert made["key"] == f"repo/{repo}/mem/t/one"
    entry = ricordo("recall", made["key"], "--json").value
    assert set(entry) == ENTRY
    assert entry["version"] == made["version"]
    del entry["version"]
    assert entry == {
        "key": f"repo/{repo}/mem/t/one",
        "exists": True,
        "repo_id": repo,
        "topic": "t",
        "id": "one",
        "kind": "Decision",
        "title": "First",
        "body": "line\nline",
        "author": "ada",
        "provenance": "commit 1",
        "created_at_ms": 1772366400000,
        "tags": ["a", "b"],
        "links": {"touches": ["x=y", "z"]},
        "expires_at_ms": None,
        "remaining_seconds": None,
        "sibling_count": 1,
        "concurrent": {},
        "undecodable": 0,
    }


def test_an_entry_is_named_by_its_key_or_by_its_parts(ricordo: Run, repo: str) -> None:
    ricordo("remember", "--repo", repo, "--topic", "a/b", "--id", "50%/50", "--title", "x")
    key = f"repo/{repo}/mem/a%2Fb/50%25%2F50"
    by_parts = ricordo("recall", "--repo", repo, "--topic", "a/b", "--id", "50%/50", "--json").value
    assert by_parts == ricordo("recall", key, "--json").value
    assert (by_parts["key"], by_parts["topic"], by_parts["id"]) == (key, "a/b", "50%/50")


def test_an_entry_without_an_id_gets_one(ricordo: Run, repo: str) -> None:
    first, second = (
        ricordo("remember", "--repo", repo, "--topic", "t", "--title", "x", "--json").value for _ in range(2)
    )
    assert first["created"]
    assert second["created"]
    assert first["id"] < second["id"]


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("90s", 90), ("12h", 43_200), ("1d12h", 129_600), ("none", None)]
)
def test_a_ttl_is_a_duration(ricordo: Run, repo: str, ttl: str, seconds: int | None) -> None:
    key = f"repo/{repo}/mem/t/one"
    made = ricordo("remember", key, "--title", "x", "--ttl", ttl, "--json").value
    entry = ricordo("recall", key, "--json").value
    assert entry["expires_at_ms"] == made["expires_at_ms"]
    if seconds is None:
        assert entry["remaining_seconds"] is None
    else:
        assert seconds - 60 < entry["remaining_seconds"] <= seconds


def test_an_update_says_what_it_changed(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x", "--body", "b", "--tag", "old", "--link", "r=a")
    done = ricordo(
        *("update", key, "--title", "y", "--body", "", "--tag", "new", "--untag", "old"),
        *("--link", "r=b", "--unlink", "r=a", "--json"),
    ).value
    assert {name: count for name, count in done.items() if name not in ("key", "version")} == {
        "fields_updated": 2,
        "tags_added": 1,
        "tags_removed": 1,
        "links_added": 1,
        "links_removed": 1,
        "expires_at_ms": None,
        "undecodable": 0,
    }
    entry = ricordo("recall", key, "--json").value
    assert (entry["title"], entry["body"], entry["tags"], entry["links"]) == ("y", "", ["new"], {"r": ["b"]})
    said = ricordo("update", key, "--title", "z", "--tag", "more", "--tag", "most").text
    assert said == f"updated {key}: 1 field set, 2 tags added\n"


def test_a_scan_lists_a_repository_or_a_topic_in_key_order(ricordo: Run, repo: str) -> None:
    for topic, id in (("svc-api", "1"), ("svc", "2"), ("svc", "1")):
        ricordo("remember", "--repo", repo, "--topic", topic, "--id", id, "--title", f"{topic} {id}")
    lines = ricordo("scan", "--repo", repo, "--json").lines
    assert [(line["topic"], line["id"]) for line in lines] == [("svc", "1"), ("svc", "2"), ("svc-api", "1")]
    assert all(set(line) == ENTRY for line in lines)
    assert [line["id"] for line in ricordo("scan", "--repo", repo, "--topic", "svc", "--json").lines] == [
        "1",
        "2",
    ]
    assert [line["id"] for line in ricordo("scan", "--repo", repo, "--limit", "1", "--json").lines] == ["1"]
    plain = ricordo("scan", "--repo", repo).text
    assert plain.splitlines()[0] == "svc\t1\tNote\tsvc 1\t\tdurable"


def test_a_limit_counts_over_pages(ricordo: Run, repo: str) -> None:
    for number in range(5):
        ricordo("remember", "--repo", repo, "--topic", "t", "--id", str(number), "--title", "x")
    assert len(ricordo("scan", "--repo", repo, "--limit", "3", "--json").lines) == 3
    assert len(ricordo("scan", "--repo", repo, "--limit", "300", "--json").lines) == 5


def test_topics_and_repositories_are_counted(ricordo: Run, repo: str) -> None:
    for topic, id in (("a", "1"), ("a", "2"), ("b", "1")):
        ricordo("remember", "--repo", repo, "--topic", topic, "--id", id, "--title", "x")
    assert ricordo("topics", "--repo", repo, "--json").lines == [
        {"topic": "a", "live": 2},
        {"topic": "b", "live": 1},
    ]
    assert ricordo("topics", "--repo", repo).text == "a\t2\nb\t1\n"
    assert {"repo_id": repo, "live": 3} in ricordo("repos", "--json").lines


def test_an_empty_list_says_so_to_people_and_nothing_to_programs(ricordo: Run, repo: str) -> None:
    ended = ricordo("scan", "--repo", repo)
    assert (ended.code, ended.out, ended.error) == (0, b"", "no live entries there\n")
    ended = ricordo("scan", "--repo", repo, "--json")
    assert (ended.code, ended.out, ended.err) == (0, b"", b"")


def test_what_is_forgotten_is_gone(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x")
    done = ricordo("forget", key, "--json").value
    assert done == {"key": key, "mode": "forget", "existed": True, "expires_at_ms": None, "undecodable": 0}
    again = ricordo("forget", key)
    assert (again.code, again.text) == (0, f"nothing to forget at {key}\n")
    ricordo("recall", key).complaint(3)


def test_an_entry_can_be_left_to_lapse(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x")
    done = ricordo("forget", key, "--lapse", "60s", "--json").value
    entry = ricordo("recall", key, "--json").value
    assert (done["mode"], done["existed"]) == ("lapse", True)
    assert done["expires_at_ms"] == entry["expires_at_ms"]
    assert 0 < entry["remaining_seconds"] <= 60


def test_a_history_names_each_field_that_has_a_value(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x", "--body", "y")
    found = ricordo("history", key, "--json").value
    assert set(found) == {"key", "exists", "version", "fields", "undecodable"}
    assert list(found["fields"]) == ["kind", "title", "body", "created_at"]
    assert set(found["fields"]["title"]) == {"shown", "concurrent", "revisions"}
    assert found["fields"]["title"]["shown"]["value"] == "x"
    assert found["fields"]["title"]["shown"]["cluster"] == "eu"


def test_a_version_guards_a_write(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    version = ricordo("remember", key, "--title", "x", "--json").value["version"]
    assert ricordo("update", key, "--title", "y", "--if-version", version).code == 0
    ricordo("update", key, "--title", "z", "--if-version", version).complaint(5)
    assert ricordo("recall", key, "--field", "title").out == b"y"


@pytest.mark.parametrize(
    "body",
    [
        "x" * 65536,
        "שלום עולם",
        "‮ بالعربية",
        "𝕬 🧠🏽‍🚀 𒀀",
        "a\nb\r\nc\n",
        "tab\there",
        "%2F % %25",
        "\x1b[31mred",
        "\u0000",
    ],
    ids=["64KiB", "hebrew", "bidi", "4-byte", "newlines", "tab", "percent", "escape", "nul"],
)
def test_one_field_is_written_exactly_as_it_is(
    ricordo: Run, repo: str, body: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("body") / "body"
    file.write_bytes(body.encode())
    key = f"repo/{repo}/mem/t/one"
    assert ricordo("remember", key, "--body-file", str(file)).code == 0
    assert ricordo("recall", key, "--field", "body").out == body.encode()
    assert ricordo("recall", key, "--json").value["body"] == body


def test_no_entry_can_steer_a_terminal(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "a\x1b]0;b\x07\nc", "--body", "\x9b2J\x7f")
    for command in (("recall", key), ("history", key), ("scan", "--repo", repo)):
        shown = ricordo(*command).out
        assert b"\x1b" not in shown
        assert b"\x07" not in shown
        assert b"\xc2\x9b" not in shown
        assert b"\x7f" not in shown
    assert ricordo("scan", "--repo", repo).text.count("\n") == 1


def test_what_was_not_done_is_said(ricordo: Run, repo: str) -> None:
    key = f"repo/{repo}/mem/t/one"
    ricordo("remember", key, "--title", "x", "--kind", "Decision", "--ttl", "1h")
    more = ("--title", "x", "--kind", "Note", "--ttl", "none", "--created-at", "0")
    ended = ricordo("remember", key, *more)
    assert ended.code == 0
    assert "the kind stays Decision" in ended.error
    assert "still expires" in ended.error
    assert "time of creation stays" in ended.error
    done = ricordo("remember", key, *more, "--json")
    assert done.err == b""
    assert done.value["kind_ignored"]
    assert done.value["durable_ignored"]
    assert done.value["created_at_ignored"]


def test_a_status_never_shows_what_was_not_measured_as_zero(ricordo: Run) -> None:
    status = ricordo("status", "--json").value
    assert set(status) == {
        "cluster",
        "incarnation",
        "store_id",
        "version",
        "data_dir",
        "started_at_ms",
        "now_ms",
        "listen_address",
        "replication_address",
        "sequence",
        "counts",
        "damaged_keys",
        "purging",
        "storage",
        "peers",
        "members",
    }
    assert status["cluster"] == "eu"
    assert len(bytes.fromhex(status["incarnation"])) == 16
    shown = dict(line.split(": ", 1) for line in ricordo("status").text.splitlines() if ": " in line)
    for label, value in {
        "live": status["counts"]["live"],
        "writes in them": status["storage"]["writes"],
    }.items():
        assert (shown[label] == "not measured") == (value is None)


def test_digests_are_of_one_moment(ricordo: Run, repo: str) -> None:
    empty = ricordo("digest", "--repo", repo, "--json").value
    ricordo("remember", f"repo/{repo}/mem/t/one", "--title", "x", "--ttl", "1h")
    first = ricordo("digest", "--repo", repo, "--json").value
    again = ricordo("digest", "--repo", repo, "--at", str(first["at_ms"]), "--json").value
    assert (empty["live"], first["live"]) == (0, 1)
    assert empty["digest"] != first["digest"]
    assert again == first
    assert ricordo("digest", "--repo", repo, "--at", "2999-01-01", "--json").value["live"] == 0
    line = ricordo("digest", "--repo", repo, "--at", str(first["at_ms"])).text
    assert line == f"{first['digest']}  1 live  at {format_time(first['at_ms'])}\n"


def test_a_compaction_says_what_it_purged(ricordo: Run) -> None:
    done = ricordo("compact", "--json").value
    assert set(done) == {"purged_tombstones", "purged_expired", "waiting", "held_by"}
    assert ricordo("compact").text.startswith("Compaction\n")


def test_help_is_shown_where_nothing_is_asked_for(ricordo: Run) -> None:
    assert ricordo().text == ricordo("--help").text
    assert ricordo("peers").text == ricordo("peers", "-h").text
    assert ricordo().code == ricordo("peers").code == 0


def test_every_exit_code_is_in_the_manual(ricordo: Run) -> None:
    shown = ricordo("--help").text
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 130, 141):
        assert f"  {code}  " in shown


def test_the_version_is_that_of_the_distribution(ricordo: Run) -> None:
    from replica import __version__

    assert ricordo("--version").text == f"ricordo {__version__}\n"
