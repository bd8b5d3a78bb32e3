"""The separate benchmarks run at a small size; no timing is checked."""

from __future__ import annotations

import json
import sys

import pytest

from bench import billion, child, levels, sensing, store, tables
from bench.stream import Stream

pytestmark = pytest.mark.bench


@pytest.mark.compiled
def test_levels(tmp_path, capsys):
    out = tmp_path / "levels.json"
    assert levels.main(["--smoke", "--out", str(out)]) == 0
    assert "as predicted" in capsys.readouterr().out
    results = json.loads(out.read_text())["results"]
    assert [(found["reg"], found["intercepts"]) for found in results] == [
        ("noise", False), ("noise", True), ("auto", False), ("auto", True)
    ]  # fmt: skip
    for found in results:
        assert found["crossed"] == 0
        assert 0 <= found["crossed_separately"] <= 1
        assert len(found["sweeps"]["alone"]) == len(levels.OMEGAS)
        compared = len(levels.OMEGAS) if found["reg"] == "noise" else 0
        assert len(found["excess_objective"]) == compared
        taken = found["seconds"]
        assert found["ratio"] == min(taken["together"]) / min(taken["alone"])


@pytest.mark.compiled
def test_sensing(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert sensing.main(["--smoke", "--out", str(path)]) == 0
    results = json.loads(path.read_text())
    assert {"rates", "cost", "asymmetry", "memory"} <= results.keys()
    assert [row["what"] for row in results["rates"]] == ["NumPy", "Gaussian", "Rademacher"]
    assert "ω=0.1" in capsys.readouterr().out


@pytest.mark.compiled
def test_tables(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert tables.main(["--smoke", "--repeats", "1", "--out", str(path)]) == 0
    results = json.loads(path.read_text())
    assert list(results["tables"]) == ["strings", "dictionary", "integers"]
    assert all(found["sweep"] > 0 for found in results["tables"].values())
    assert "2,000 lines" in capsys.readouterr().out


def test_stream_is_reproducible():
    first, again = (list(Stream(3000)) for _ in range(2))
    assert sum(values.size for *_, values in first) == 3000
    for one, other in zip(first, again, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
        assert one[0].max() < Stream(3000).shape[0]
        assert one[1].max() < Stream(3000).shape[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_store(tmp_path, capsys):
    source, target = tmp_path / "log.parquet", tmp_path / "store"
    store.write_table(source, 3000, labelled=False)
    done = child.build_store(str(source), str(target), "20000", *map(str, Stream(3000).shape))
    assert done["peak"] >= done["level"] > 0
    store.report_build(tmp_path, 3000, 20000, labelled=True)
    store.report_csv(tmp_path, 3000)
    store.report_fit(target, k=2, sweeps=1, repeats=1)
    store.report_append(target, 3000, 20000, 3, built=1.0)
    store.report_fit(target, k=2, sweeps=1, repeats=1)
    printed = capsys.readouterr().out
    assert printed.count("bitwise identical") == 2
    assert "append 3e-05M entries, 3 times" in printed
    assert "0.003M labelled lines: " in printed
    assert "CSV of 0.003M labelled lines into a fit" in printed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_billion(tmp_path, capsys, monkeypatch):
    options = ["--entries", "3000", "--sweeps", "2", "--memory", "20000"]
    monkeypatch.setattr(sys, "argv", ["billion", *options, "--folder", str(tmp_path)])
    billion.main()
    out = capsys.readouterr().out
    assert "3,000 observations of a 50 x 20 matrix" in out
    assert "sweep 2: " in out
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "argv", ["billion", "--entries", "1e18", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit):
        billion.main()
    assert "bytes are needed" in capsys.readouterr().err
