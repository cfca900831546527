"""Exporting entries: one line each, to standard output or to a file that appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from replica.cli.notes import write_note
from replica.client import Client, RepoCount

__all__ = ["Exported", "export_entries", "whole_file"]


@dataclass(slots=True)
class Exported:
    """What was exported so far."""

    exported: int = 0
    concurrent: int = 0
    """Entries with fields of several concurrent values: a line holds the one that is shown."""
    undecodable: int = 0
    """Entries of which the replica decodes nothing: they have no line."""


def export_entries(client: Client, repos: Sequence[RepoCount], out: BinaryIO) -> Iterator[Exported]:
    """Write the live entries of the repositories, in key order; yields the account after each entry."""
    account = Exported()
    for repo in repos:
        for entry in client.scan(repo.repo_id, page_size=500):
            if entry.created_at_ms is None:
                account.undecodable += 1
            else:
                out.write(write_note(entry))
                account.exported += 1
                account.concurrent += bool(entry.concurrent)
            yield account


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name, and the place of an older one, when everything is on disk; after an
    exception the older one is as it was. What is no regular file, such as a pipe, is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as direct:
            yield direct
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
