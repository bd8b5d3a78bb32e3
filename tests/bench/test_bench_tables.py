"""The benchmark of tables runs. Nothing is timed here."""

from __future__ import annotations

import json

import pytest

from bench.tables import main

pytestmark = pytest.mark.bench


@pytest.mark.compiled
def test_the_smoke_run_writes_what_it_prints(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--repeats", "1", "--out", str(path)]) == 0
    results = json.loads(path.read_text())
    assert list(results["tables"]) == ["strings", "dictionary", "integers"]
    assert all(found["sweep"] > 0 for found in results["tables"].values())
    assert "2,000 lines" in capsys.readouterr().out
