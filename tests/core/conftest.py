"""The core runs over every store; what rests on the store's behaviour is tested over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replica.core.storage import Storage
from replica.storage.lmdb_store import LmdbStorage
from replica.storage.memory import MemoryStorage
from tests.core.one_replica import Replica


@pytest.fixture(params=["memory", "lmdb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    store: Storage = MemoryStorage() if request.param == "memory" else LmdbStorage.open(tmp_path / "store")
    yield store
    store.close()


@pytest.fixture
def replica(storage: Storage) -> Replica:
    return Replica(storage)
