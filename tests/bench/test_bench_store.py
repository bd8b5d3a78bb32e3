"""The benchmarks of stores run, small."""

from __future__ import annotations

import sys

import pytest

from bench import billion, child, store
from bench.stream import Stream

pytestmark = pytest.mark.bench


def test_a_stream_is_the_same_each_time():
    first, again = ([chunk for chunk in Stream(3000)] for _ in range(2))
    assert sum(values.size for *_, values in first) == 3000
    for one, other in zip(first, again, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
        assert one[0].max() < Stream(3000).shape[0]
        assert one[1].max() < Stream(3000).shape[1]


@pytest.mark.filterwarnings("ignore")
def test_build_and_fit(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    source, target = tmp_path / "log.parquet", tmp_path / "store"
    store.write_parquet(source, 3000)
    done = child.build_store(str(source), str(target), *map(str, Stream(3000).shape), "20000")
    assert done["peak"] >= done["level"] > 0
    store.report_fit(target, k=2, sweeps=1, repeats=1)
    assert "bitwise identical" in capsys.readouterr().out
    store.report_append(target, 3000, 20000, 3, built=1.0)
    assert "append 3e-05M entries, 3 times: the first takes" in capsys.readouterr().out
    store.report_fit(target, k=2, sweeps=1, repeats=1)
    assert "bitwise identical" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_a_billion_on_a_small_scale(tmp_path, capsys, monkeypatch):
    options = ["--entries", "3000", "--sweeps", "2", "--budget", "20000"]
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
