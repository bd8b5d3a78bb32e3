"""The benchmarks run and their arithmetic is right; no timing is checked."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp

from bench import runner
from bench.__main__ import main
from bench.compare import compare
from bench.competitors import COMPETITORS, Cmfrec, Fastemf, NumpyReference, Point
from bench.flops import gemm_rate, roofline_fraction, sweep_flops
from bench.objective import objective
from bench.problems import skewed, uniform
from bench.quality import first_reaching, gap, target
from bench.runner import Timing, interleaved
from bench.scale import SMOKE
from bench.sections import SECTIONS
from bench.sections.memory import memory_ratio
from bench.sections.sweeps import time_sweeps
from bench.sections.time_to_quality import race
from bench.targets import find_targets, relative_half_range

pytestmark = pytest.mark.bench

# --- arithmetic ----------------------------------------------------------------------------


def test_rates_and_ratios_by_hand():
    R = sp.csr_matrix(np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]))
    # rows of 2 and 1 entries, columns of 2 and 1, an empty one that costs nothing
    assert sweep_flops(R, 3) == 6 * 9 + 4 * 27 / 3
    assert roofline_fraction(8e9, 2.0, 2, 4e9) == 0.5
    assert gemm_rate(0.5, n=10) == 4000
    assert memory_ratio(peak=1300, level=200, given=500, factors=100) == 2.0
    assert relative_half_range([3.0, 5.0, 4.0]) == 0.25


def test_objective_by_hand():
    # residuals 5 - 2 = 3 and 1 - 4 = -3; the missing cell counts for nothing
    R = sp.csr_matrix((np.array([5.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    X, Y = np.array([[2.0]]), np.array([[1.0], [2.0], [7.0]])
    assert objective(R, X, Y, 0.0) == 0.5 * 9 + 0.5 * 9
    assert objective(R, X, Y, 10.0, omega=0.25) == 0.25 * 9 + 0.75 * 9 + 10 * (4 + 1 + 4 + 49)
    # It does not depend on the size of a chunk.
    R, rng = skewed(40, 30, 600), np.random.default_rng(0)
    X, Y = rng.random((40, 3)), rng.random((30, 3))
    assert objective(R, X, Y, 1.0, chunk=7) == pytest.approx(objective(R, X, Y, 1.0), rel=1e-12)


def test_target_is_set_by_the_best_curve():
    curves = [[Point(1, 1.0, 300.0), Point(2, 2.0, 210.0)], [Point(5, 9.0, 200.0)]]
    assert target(curves) == pytest.approx(200.2)
    assert gap(curves[0][1], target(curves)) == pytest.approx(0.05)


@pytest.mark.parametrize("needed", range(1, 17))
def test_bisection_finds_the_fewest_sweeps(needed):
    def fit(sweeps):
        fits.append(sweeps)
        return Point(sweeps, 0.1 * sweeps, 100.0 + needed - sweeps)

    fits = []
    curve = [fit(sweeps) for sweeps in (2, 4, 8, 16)]
    fits.clear()
    assert first_reaching(curve, 100.0, fit) == fit(needed)
    assert len(fits) <= 4  # three halvings of an interval of eight, and the line above
    assert first_reaching(curve, 50.0, fit) is None


def result(section, what, seconds, competitor="fastemf ω=0.5", k=32, threads=2, **more):
    setting = "p", 1000, "float64", k, threads, competitor
    return runner.row(section, what, *setting, Timing([seconds]), **more)


def test_targets_by_hand():
    chol, cg = "cmfrec Cholesky", "cmfrec CG"
    never = {**result("quality", "to 0.1 %", 1.0, cg, k=64, spent=9.0), "seconds": None}
    found = find_targets(
        [
            result("sweeps", "sweep", 1.0, threads=1, roofline=0.36),
            result("sweeps", "sweep", 0.5, roofline=0.3),
            result("sweeps", "sweep", 1.5, chol),
            result("quality", "to 0.1 %", 2.0),
            result("quality", "to 0.1 %", 5.0, cg),
            result("quality", "to 0.1 %", 3.0, k=64),
            never,
            result("asymmetry", "sweep 2", 9.0, omega=0.1, sweep=2, ratio=9.0),
            result("asymmetry", "sweep 3", 1.2, omega=0.1, sweep=3, ratio=1.2),
            result("asymmetry", "sweep 4", 1.25, omega=0.1, sweep=4, ratio=1.25),
            result("asymmetry", "to 0.1 %", 2.0, omega=0.1, ratio=1.4),
            result("threads", "sweep", 2.0, threads=1, speedup=1.0),
            result("threads", "sweep", 1.0, speedup=2.0),
            result("growth", "entries", 1.0, per_entry=2.0),
            result("growth", "entries", 1.0, per_entry=6.0),
            result("setup", "observe", 1.0),
            result("setup", "start", 2.0),
            result("setup", "sweep", 2.0),
            result("memory", "peak over input", 0.0, ratio=2.7),
            result("rank", "product", 3.0, ratio=1.5),
            result("cold", "import numba", 9.0),
            result("cold", "first call, cold", 25.0),
        ]
    )
    assert [(entry.target, entry.measured, entry.met) for entry in found] == [
        (0.42, 0.36, False), (4.0, 3.0, False), (4.0, 2.5, False), (4.0, 3.0, False),
        (1.3, 1.25, True), (1.5, 1.4, True), (1.8, 2.0, True), (0.2, 0.5, False),
        (2.0, 1.5, True), (2.6, 2.7, False), (2.0, 1.5, True), (25.0, 25.0, True),
    ]  # fmt: skip
    assert [place for place, entry in enumerate(found) if entry.bound] == [3]
    assert find_targets([]) == []
    broken = {**result("sweeps", "sweep", 1.0, chol), "error": "x", "seconds": None}
    assert find_targets([result("sweeps", "sweep", 0.5), broken]) == []


@pytest.mark.parametrize(
    ("before", "after", "slower"),
    [(1, 1.3, True), (1, 1.2, False), (0.01, 0.02, False), (0.05, 0.08, True), (2, 1, False)],
)
def test_slowdown_must_be_large_relatively_and_absolutely(before, after, slower):
    rows = [[result("sweeps", "sweep", seconds)] for seconds in (before, after)]
    (found,) = compare(*rows)
    assert (found["slower"], found["ratio"]) == (slower, after / before)


# --- the harness ---------------------------------------------------------------------------


def test_interleaved_takes_turns_and_does_not_repeat_long_runs():
    left = iter([3.0, 2.0, 1.0, 4.0])
    timings = interleaved({"a": lambda: next(left), "b": lambda: next(left)}, repeats=2)
    assert [timing.seconds for timing in timings.values()] == [[3.0, 1.0], [2.0, 4.0]]
    assert [timing.best for timing in timings.values()] == [1.0, 2.0]
    assert interleaved({"a": lambda: 1.0}, 3, patience=-1.0)["a"].seconds == [1.0]


class Broken:
    name = "broken"
    exact = True

    def prepare(self, R):
        raise OSError("no such library")


def test_failed_competitors_are_listed():
    R = skewed(30, 20, 200).astype(np.float64)
    (failed,) = time_sweeps(R, "p", [Broken()], "float64", 2, 1, repeats=2)
    assert failed["error"] == "OSError: no such library"
    assert failed["seconds"] is None
    assert runner.line(failed).endswith("failed: OSError: no such library")
    errors = [row["error"] for row in race(R, 2, [Fastemf(), Broken()], SMOKE)]
    assert errors == [None, "OSError: no such library"]
    assert next(race(R, 2, [Broken()], SMOKE))["seconds"] is None


def test_a_failed_section_does_not_end_the_run(monkeypatch, tmp_path, capsys):
    def fail(scale):
        raise MemoryError("too large")

    sections = {"a": fail, "b": lambda scale: [result("b", "x", 1.0)], "not selected": fail}
    monkeypatch.setattr("bench.__main__.SECTIONS", sections)
    path = tmp_path / "out.json"
    assert main(["--smoke", "--only", "b,a", "--out", str(path)]) == 0
    rows = json.loads(path.read_text())["results"]
    assert [row["error"] for row in rows] == ["MemoryError: too large", None]
    assert "MemoryError: too large" in capsys.readouterr().out


# --- problems and competitors --------------------------------------------------------------


def test_problems_have_distinct_cells_and_the_requested_size():
    for make in (skewed, uniform):
        R = make(3000, 1000, 40_000)
        assert R.shape == (3000, 1000)
        assert 0.8 * 40_000 < R.nnz <= 41_000
        assert R.has_canonical_format
        assert (np.diff(R.indptr) > 0).all()


def test_competitors_minimise_the_same_function():
    R = skewed(40, 30, 600).astype(np.float64)
    entries = [Fastemf(), NumpyReference()]
    if find_spec("cmfrec"):
        entries += [Cmfrec(use_cg=False), Cmfrec(use_cg=True)]
    found = [objective(R, *entry.fit(R, 2, 1.0, 1, 60), 1.0) for entry in entries]
    np.testing.assert_allclose(found, found[0], rtol=0.02)
    assert len({entry.name for entry in COMPETITORS}) == len(COMPETITORS)


def test_curve_has_the_objective_of_every_sweep():
    R = skewed(40, 30, 600).astype(np.float64)
    entry = Fastemf()
    curve = entry.curve(R, 2, 1.0, 1, [3, 6])
    assert [p.sweeps for p in curve] == [1, 2, 3, 4, 5, 6]
    for sweeps in (1, 4):
        found = objective(R, *entry.fit(R, 2, 1.0, 1, sweeps), 1.0)
        assert curve[sweeps - 1].objective == pytest.approx(found, rel=1e-9)
    refitted = NumpyReference().curve(R, 2, 1.0, 1, [1, 4])
    assert [p.sweeps for p in refitted] == [1, 4]
    assert refitted[1].objective < refitted[0].objective


def test_curve_checks_the_reported_objective(monkeypatch):
    monkeypatch.setattr("bench.competitors.objective", lambda *_: 1.0)
    with pytest.raises(ArithmeticError, match="its factors give 1"):
        Fastemf().curve(skewed(40, 30, 600).astype(np.float64), 2, 1.0, 1, [2])


# --- the whole -----------------------------------------------------------------------------


def test_smoke_run_covers_every_section(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--out", str(path)]) == 0
    written = json.loads(path.read_text())
    printed = capsys.readouterr().out
    assert {row["section"] for row in written["results"]} == set(SECTIONS)
    ours = [row for row in written["results"] if row["competitor"].startswith("fastemf")]
    assert len(ours) > 10
    assert [row["error"] for row in ours] == [None] * len(ours)
    assert {row["competitor"] for row in written["results"]} >= {"NumPy loop", "nothing"}
    assert written["machine"]["versions"]["numba"] is not None
    assert set(written["compiled"]) == {"float64", "float32"}
    assert "fastemf ω=0.1" in printed
    assert "Targets of the project (set for the full sizes)" in printed
    assert main(["compare", str(path), str(path)]) == 0
    for row in written["results"]:
        row["seconds"] = row["seconds"] and row["seconds"] + 1.0
    later = tmp_path / "later.json"
    later.write_text(json.dumps(written))
    assert main(["compare", str(path), str(later)]) == 1
    assert "SLOWER" in capsys.readouterr().out

    pytest.importorskip("matplotlib")
    assert main(["plot", str(path), str(tmp_path / "plots")]) == 0
    names = {picture.stem for picture in (tmp_path / "plots").iterdir()}
    assert names == {
        "roofline", "sweeps_by_rank", "throughput_by_entries", "throughput_by_rank",
        "throughput_by_threads", "time_to_quality",
    }  # fmt: skip
