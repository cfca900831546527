"""The page about bounds shows what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from scripts.bench_bounds import files


def test_page_and_plots_are_those_of_the_figures() -> None:
    for file, content in files().items():
        assert file.read_text(encoding="utf-8") == content, "run python -m scripts.bench_bounds"
        if file.suffix == ".svg":
            assert ET.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
