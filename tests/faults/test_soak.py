"""A short soak: every kind of fault may strike three replicas under load. `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.soak import soak

SECONDS = 25.0


@pytest.mark.timeout(400)
def test_random_faults_under_load_lose_nothing_and_raise_nothing_from_the_dead(tmp_path: Path) -> None:
    report = soak(tmp_path, SECONDS, 3, seed=11)
    assert not report.violations, report.text()
    assert sum(report.struck.values()) >= 3
    assert report.acknowledged > 100
    print(report.text())
