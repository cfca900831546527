"""A replica that serves, for what the pages show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.processes import COMMAND


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a replica that serves."""
    folder = tmp_path_factory.mktemp("readme")
    words = ["serve", "--data-dir", str(folder / "data"), "--log-level", "warning"]
    words += ["--listen", "127.0.0.1:0", "--replication-listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    announced = process.stdout.readline()
    assert announced, "it did not start"
    yield json.loads(announced)["listen"]
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
