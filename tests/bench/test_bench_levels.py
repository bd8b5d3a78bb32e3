"""The benchmark of several levels runs, and says what it measured. Nothing is timed here."""

from __future__ import annotations

import json

import pytest

from bench.levels import OMEGAS, main

pytestmark = pytest.mark.bench


@pytest.mark.compiled
def test_smoke(tmp_path, capsys):
    out = tmp_path / "levels.json"
    assert main(["--smoke", "--out", str(out)]) == 0
    assert "as predicted" in capsys.readouterr().out
    results = json.loads(out.read_text())["results"]
    assert [(found["reg"], found["intercepts"]) for found in results] == [
        ("noise", False), ("noise", True), ("auto", False), ("auto", True)
    ]  # fmt: skip
    for found in results:
        assert found["crossed"] == 0
        assert 0 <= found["crossed_one_by_one"] <= 1
        assert len(found["sweeps"]["alone"]) == len(OMEGAS)
        compared = len(OMEGAS) if found["reg"] == "noise" else 0
        assert len(found["objective_over_anew"]) == compared
        taken = found["seconds"]
        assert found["ratio"] == min(taken["together"]) / min(taken["alone"])
        assert found["over_one"] == pytest.approx(len(OMEGAS) * found["ratio"])
