"""The benchmark code runs, and its arithmetic is right. Nothing is timed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.__main__ import main
from bench.compare import compare
from bench.competitors import Cmfrec, Fastemf, NumpyReference
from bench.flops import roofline_fraction, sweep_flops
from bench.problems import skewed, uniform
from bench.runner import time_sweeps


def test_flops_by_hand():
    R = sp.csr_matrix(np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]))
    # rows of 2 and 1 entries, columns of 2 and 1, an empty one that costs nothing
    assert sweep_flops(R, 3) == 6 * 9 + 4 * 27 / 3
    assert roofline_fraction(8e9, 2.0, 2, 4e9) == 0.5


def test_problems_have_distinct_cells_and_the_asked_size():
    for make in (skewed, uniform):
        R = make(3000, 1000, 40_000)
        assert R.shape == (3000, 1000)
        assert 0.8 * 40_000 < R.nnz <= 41_000
        assert R.has_canonical_format
        assert (np.diff(R.indptr) > 0).all()


@pytest.mark.parametrize(
    ("before", "after", "slower"),
    [
        (1.0, 1.3, True),
        (1.0, 1.2, False),
        (0.010, 0.020, False),
        (0.05, 0.08, True),
        (2.0, 1.0, False),
    ],
)
def test_a_slowdown_must_be_large_relatively_and_absolutely(before, after, slower):
    row = {"problem": "p", "dtype": "float64", "k": 8, "threads": 1, "competitor": "c"}
    found = compare([{**row, "seconds": before}], [{**row, "seconds": after}])
    assert [entry["slower"] for entry in found] == [slower]
    assert found[0]["ratio"] == after / before


def test_failed_competitors_are_listed():
    class Broken:
        name = "broken"

        def sweep_seconds(self, *_):
            raise OSError("no such library")

    rows = time_sweeps(skewed(30, 20, 200), "p", [Broken()], [("float64", 2, 1)], repeats=2)
    assert rows[0]["error"] == "OSError: no such library"
    assert rows[0]["seconds"] is None


def test_competitors_minimise_the_same_function():
    R = skewed(40, 30, 600).astype(np.float64)
    rows, cols = R.nonzero()

    def objective(X, Y):
        r = R.data - np.einsum("ij,ij->i", X[rows], Y[cols])
        return 0.5 * np.sum(r**2) + np.sum(X**2) + np.sum(Y**2)

    entries = [Fastemf(), NumpyReference()]
    try:
        import cmfrec  # noqa: F401

        entries += [Cmfrec(use_cg=False), Cmfrec(use_cg=True)]
    except ImportError:
        pass
    found = [objective(*entry.fit(R, 2, 1.0, 1, 60)) for entry in entries]
    np.testing.assert_allclose(found, found[0], rtol=0.02)


def test_the_smoke_run_writes_what_it_prints(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--out", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    printed = capsys.readouterr().out
    assert {row["competitor"] for row in results} >= {"fastemf ω=0.5", "NumPy loop", "nothing"}
    assert "fastemf ω=0.1" in printed
    assert main(["compare", str(path), str(path)]) == 0
