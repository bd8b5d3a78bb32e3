"""The benchmark of linear measurements runs. Nothing is timed here."""

from __future__ import annotations

import json

import pytest

from bench.sensing import main

pytestmark = pytest.mark.bench


@pytest.mark.compiled
def test_the_smoke_run_writes_what_it_prints(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--out", str(path)]) == 0
    results = json.loads(path.read_text())
    assert {"rates", "cost", "asymmetry", "memory"} <= results.keys()
    assert [row["what"] for row in results["rates"]] == ["NumPy", "Gaussian", "Rademacher"]
    assert "ω=0.1" in capsys.readouterr().out
