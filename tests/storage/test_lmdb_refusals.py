"""What must not be opened is refused before it is mapped, with the reason, and stays as it is to the byte."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from replica.core.storage import StoreRefused
from replica.storage import lmdb_store
from replica.storage.lmdb_store import LmdbStorage
from tests.storage.contract import fill, rows

PAGE = os.sysconf("SC_PAGE_SIZE")
IDENTITY = "ricordo-store.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound store, closed."""
    place = tmp_path / "data"
    store = LmdbStorage.open(place)
    for batch in range(5):
        fill(store, *(b"%d %04d" % (batch, number) for number in range(500)))
    store.close()
    return place


def state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything a refusal must leave alone."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def refusal(directory: Path, *, create: bool = True) -> StoreRefused:
    """How `directory` is refused, which must not change anything."""
    before = state(directory)
    with pytest.raises(StoreRefused) as caught:
        LmdbStorage.open(directory, create=create)
    assert state(directory) == before
    assert caught.value.place == str(directory)
    assert caught.value.remedy
    assert str(caught.value) == f"{directory}: {caught.value.reason}; {caught.value.remedy}"
    return caught.value


def cut(length: int) -> Callable[[Path], None]:
    """Keep the first `length` bytes of the data, or all but so many if it is negative."""

    def damage(directory: Path) -> None:
        path = directory / "data.mdb"
        os.truncate(path, length if length >= 0 else path.stat().st_size + length)

    return damage


def overwrite(offset: int, content: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        with (directory / "data.mdb").open("r+b") as file:
            file.seek(offset)
            file.write(content)

    return damage


def identity(content: object) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / IDENTITY).write_text(text, encoding="utf-8")

    return damage


def without(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


# The place of a field behind the 16 bytes of the header of a meta page.
MAGIC, VERSION, PAGE_SIZE, FREE_ROOT, NAMES_ROOT, LAST_PAGE, TRANSACTION = 16, 20, 40, 80, 128, 136, 144


@pytest.mark.parametrize("locked_before", [True, False], ids=["with a lock file", "without"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(cut(-PAGE), "cut short: it has", id="one page short"),
        pytest.param(cut(-1), "cut short: it has", id="one byte short"),
        pytest.param(cut(4 * PAGE), "cut short: it has", id="four pages left"),
        pytest.param(cut(2 * PAGE), "cut short: it has", id="only meta pages left"),
        pytest.param(cut(PAGE + 50), "cut short: it ends", id="half a second meta page"),
        pytest.param(cut(PAGE), "cut short: it ends", id="one page left"),
        pytest.param(cut(10), "cut short: it ends", id="ten bytes left"),
        pytest.param(cut(0), "is empty", id="empty"),
        pytest.param(without("data.mdb"), "data.mdb is missing beside", id="no data"),
        pytest.param(overwrite(0, bytes(PAGE)), "damaged", id="first meta page zeroed"),
        pytest.param(overwrite(PAGE, bytes(PAGE)), "damaged", id="second meta page zeroed"),
        pytest.param(overwrite(0, bytes(2 * PAGE)), "damaged", id="both meta pages zeroed"),
        pytest.param(overwrite(0, b"garbage " * PAGE), "damaged", id="garbage"),
        pytest.param(overwrite(PAGE + MAGIC, b"\0"), "damaged", id="a bad magic number"),
        pytest.param(overwrite(PAGE_SIZE, struct.pack("=I", 4095)), "damaged", id="an odd page size"),
        pytest.param(overwrite(PAGE_SIZE, struct.pack("=I", 0)), "damaged", id="no page size"),
        pytest.param(
            overwrite(PAGE + PAGE_SIZE, struct.pack("=I", 2 * PAGE)), "damaged", id="two different page sizes"
        ),
        pytest.param(
            overwrite(NAMES_ROOT, struct.pack("=Q", 1 << 40)), "damaged", id="a root beyond the end"
        ),
        pytest.param(overwrite(VERSION, struct.pack("=I", 3)), "LMDB format 3", id="another LMDB format"),
        pytest.param(identity({"magic": "ricordo store", "format": 2}), "format 2", id="a newer format"),
        pytest.param(identity({"magic": "ricordo store", "format": 0}), "damaged", id="format 0"),
        pytest.param(identity({"magic": "ricordo store", "format": "1"}), "damaged", id="a textual format"),
        pytest.param(identity({"magic": "another store", "format": 1}), "damaged", id="another magic"),
        pytest.param(identity([1]), "damaged", id="an identity of another shape"),
        pytest.param(identity(""), "damaged", id="an empty identity"),
        pytest.param(identity("[" * 100_000), "damaged", id="an identity too deep to parse"),
        pytest.param(identity("not JSON"), "damaged", id="an identity that is not JSON"),
    ],
)
def test_a_damaged_store_is_refused(
    directory: Path, damage: Callable[[Path], None], reason: str, locked_before: bool
) -> None:
    damage(directory)
    if not locked_before:
        (directory / "ricordo.lock").unlink()
    assert reason in refusal(directory).reason


def test_after_a_refusal_a_store_that_was_mended_opens(directory: Path) -> None:
    sound = (directory / "data.mdb").read_bytes()
    cut(100)(directory)
    refusal(directory)
    (directory / "data.mdb").write_bytes(sound)
    store = LmdbStorage.open(directory)
    assert len(rows(store)) == 2500
    store.close()


def test_a_store_that_another_process_makes_meanwhile_is_opened_and_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(directory: Path) -> None:
        monkeypatch.undo()
        other = LmdbStorage.open(directory)
        fill(other, b"a")
        other.close()

    monkeypatch.setattr(lmdb_store, "make_directory", overtaken)
    store = LmdbStorage.open(tmp_path / "data")
    assert rows(store) == [(b"a", b"A")]
    store.close()


def test_a_store_whose_newer_meta_page_names_more_pages_is_refused(directory: Path) -> None:
    with (directory / "data.mdb").open("r+b") as file:
        for page in (0, PAGE):
            file.seek(page + LAST_PAGE)
            (last,) = struct.unpack("=Q", file.read(8))
            file.seek(page + LAST_PAGE)
            file.write(struct.pack("=Q", last + 1000))
    assert "cut short" in refusal(directory).reason


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("dear")
    assert "not empty" in refusal(tmp_path).reason


def test_a_foreign_lmdb_store_is_refused(tmp_path: Path) -> None:
    environment = lmdb.open(str(tmp_path), lib_version=0)
    with environment.begin(write=True) as transaction:
        transaction.put(b"a", b"1")
    environment.close()
    assert "not a store of Ricordo" in refusal(tmp_path).reason
    (tmp_path / "data.mdb").write_bytes(b"")
    assert "not a store of Ricordo" in refusal(tmp_path).reason


def test_a_store_in_the_other_format_of_lmdb_is_refused(directory: Path) -> None:
    (directory / "data.mdb").unlink()
    (directory / "lock.mdb").unlink()
    lmdb.open(str(directory), lib_version=1).close()
    refused = refusal(directory)
    assert "LMDB format" in refused.reason
    assert "the version of Ricordo that wrote it" in refused.remedy


def test_where_a_store_must_exist_none_is_made(tmp_path: Path) -> None:
    assert "no store here" in refusal(tmp_path, create=False).reason
    with pytest.raises(StoreRefused, match="no store here"):
        LmdbStorage.open(tmp_path / "missing", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with pytest.raises(StoreRefused, match="not a directory"):
        LmdbStorage.open(path)
    with pytest.raises(StoreRefused, match=r"[Nn]ot a directory"):
        LmdbStorage.open(path / "below")
    assert path.read_text() == "text"


def test_the_identity_says_what_the_directory_is(directory: Path) -> None:
    content = json.loads((directory / IDENTITY).read_text(encoding="utf-8"))
    assert content["magic"] == "ricordo store"
    assert content["format"] == 1
    assert content["created"].startswith("20")


def test_the_files_are_for_their_owner_only(directory: Path) -> None:
    assert directory.stat().st_mode & 0o077 == 0
    for name in ("data.mdb", "lock.mdb", "ricordo.lock"):
        assert (directory / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "leftovers",
    [
        {"ricordo.lock": b"1234\n"},
        {"ricordo.lock": b"1234\n", "ricordo-store.new": b""},
        {"ricordo.lock": b"1234\n", "ricordo-store.new": b'{"magic": "ricordo store", "format": 1}'},
        {"ricordo-store.new": b'{"magic": "ricordo store", "format": 1}', "data.mdb": b"", "lock.mdb": b""},
        {"ricordo-store.new": b'{"magic": "ricordo store", "format": 1}', "data.mdb": b"half a page"},
    ],
    ids=["locked", "begun", "marked", "data begun", "data half written"],
)
def test_a_store_whose_making_was_interrupted_is_made_anew(
    tmp_path: Path, leftovers: dict[str, bytes]
) -> None:
    for name, content in leftovers.items():
        (tmp_path / name).write_bytes(content)
    store = LmdbStorage.open(tmp_path)
    fill(store, b"a")
    assert rows(store) == [(b"a", b"A")]
    store.close()
    assert {path.name for path in tmp_path.iterdir()} == {"data.mdb", "lock.mdb", "ricordo.lock", IDENTITY}
    store = LmdbStorage.open(tmp_path, create=False)
    assert rows(store) == [(b"a", b"A")]
    store.close()


def test_a_store_that_could_not_be_finished_is_made_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(directory: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(lmdb_store, "finish_store", full)
        with pytest.raises(StoreRefused, match="No space left"):
            LmdbStorage.open(tmp_path)
    store = LmdbStorage.open(tmp_path)
    fill(store, b"a")
    store.close()


def test_data_beside_a_strange_unfinished_mark_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "ricordo-store.new").write_bytes(b"something else")
    (tmp_path / "data.mdb").write_bytes(b"somebody's data")
    assert "not a store of Ricordo" in refusal(tmp_path).reason


def test_a_fresh_file_system_is_as_good_as_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    LmdbStorage.open(tmp_path).close()
