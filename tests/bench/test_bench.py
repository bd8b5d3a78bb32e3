"""The benchmark code runs, and its arithmetic is right. Nothing is timed here."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bench import runner
from bench.__main__ import main, measure
from bench.bars import Bar, bars, growth_spread, table
from bench.child import call
from bench.compare import compare
from bench.competitors import COMPETITORS, Cmfrec, Fastemf, NumpyReference, Point
from bench.flops import gemm_rate, roofline_fraction, sweep_flops
from bench.objective import objective
from bench.problems import grown, label, skewed, uniform
from bench.quality import first_reaching, gap, target
from bench.runner import Timing, interleaved
from bench.scale import SMOKE
from bench.sections.memory import memory_ratio
from bench.sections.sweeps import time_sweeps
from bench.sections.threads import powers_of_two
from bench.sections.time_to_quality import race

pytestmark = pytest.mark.bench

# --- arithmetic ----------------------------------------------------------------------------


def test_flops_by_hand():
    R = sp.csr_matrix(np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]))
    # rows of 2 and 1 entries, columns of 2 and 1, an empty one that costs nothing
    assert sweep_flops(R, 3) == 6 * 9 + 4 * 27 / 3
    assert roofline_fraction(8e9, 2.0, 2, 4e9) == 0.5
    assert gemm_rate(0.5, n=10) == 4000


def test_objective_by_hand():
    # residuals 5 - 2 = 3 and 1 - 4 = -3; the missing cell counts for nothing
    R = sp.csr_matrix((np.array([5.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    X, Y = np.array([[2.0]]), np.array([[1.0], [2.0], [7.0]])
    assert objective(R, X, Y, 0.0) == 0.5 * 9 + 0.5 * 9
    assert objective(R, X, Y, 10.0, omega=0.25) == 0.25 * 9 + 0.75 * 9 + 10 * (4 + 1 + 4 + 49)


def test_objective_does_not_depend_on_its_chunks(monkeypatch):
    R = skewed(40, 30, 600)
    rng = np.random.default_rng(0)
    X, Y = rng.random((40, 3)), rng.random((30, 3))
    whole = objective(R, X, Y, 1.0)
    monkeypatch.setattr("bench.objective.CHUNK", 7)
    assert objective(R, X, Y, 1.0) == pytest.approx(whole, rel=1e-12)


def test_the_target_is_set_by_the_best_of_all():
    curves = [[Point(1, 1.0, 300.0), Point(2, 2.0, 210.0)], [Point(5, 9.0, 200.0)]]
    assert target(curves) == pytest.approx(200.2)
    assert gap(curves[0][1], target(curves)) == pytest.approx(0.05)


@pytest.mark.parametrize("needed", range(1, 17))
def test_the_fewest_sweeps_are_found_between_the_points(needed):
    def fit(sweeps):
        fits.append(sweeps)
        return Point(sweeps, 0.1 * sweeps, 100.0 + needed - sweeps)

    fits = []
    curve = [fit(sweeps) for sweeps in (2, 4, 8, 16)]
    fits.clear()
    assert first_reaching(curve, 100.0, fit) == fit(needed)
    assert len(fits) <= 4  # three halvings of an interval of eight, and the line above
    assert first_reaching(curve, 50.0, fit) is None


def test_memory_ratio_by_hand():
    assert memory_ratio(peak=1300, level=200, given=500, factors=100) == 2.0


def test_growth_spread_by_hand():
    assert growth_spread([3.0, 5.0, 4.0]) == 0.25


def test_thread_counts():
    assert [powers_of_two(most) for most in (1, 2, 3, 6, 8)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4, 6], [1, 2, 4, 8],
    ]  # fmt: skip


def result(section, what, seconds, competitor="fastemf ω=0.5", k=32, threads=2, **more):
    return runner.row(
        section, what, "p", 1000, "float64", k, threads, competitor, Timing([seconds]), **more
    )


def test_bars_by_hand():
    chol, cg = "cmfrec Cholesky", "cmfrec CG"
    never = {**result("quality", "to 0.1 %", 1.0, cg, k=64, spent=9.0), "seconds": None}
    found = bars(
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
    assert [(bar.bar, bar.measured, bar.bound, bar.met) for bar in found] == [
        (0.42, 0.36, False, False),
        (4.0, 3.0, False, False),
        (4.0, 2.5, False, False),
        (4.0, 3.0, True, False),
        (1.3, 1.25, False, True),
        (1.5, 1.4, False, True),
        (1.8, 2.0, False, True),
        (0.2, 0.5, False, False),
        (2.0, 1.5, False, True),
        (2.6, 2.7, False, False),
        (2.0, 1.5, False, True),
        (25.0, 25.0, False, True),
    ]
    assert bars([]) == []


def test_failed_rows_are_no_evidence():
    broken = {**result("sweeps", "sweep", 1.0, "cmfrec Cholesky"), "error": "x", "seconds": None}
    assert bars([result("sweeps", "sweep", 0.5), broken]) == []


def test_the_table_of_bars_says_which_way_they_go():
    lines = table([Bar("quick", 2.0, True, 1.5), Bar("small", 2.0, False, 1.5, bound=True)])
    assert [line.split() for line in lines[1:]] == [
        ["quick", "≥", "2", "1.5", "NO"],
        ["small", "≤", "2", ">", "1.5", "yes"],
    ]


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
    rows = [[result("sweeps", "sweep", seconds)] for seconds in (before, after)]
    found = compare(*rows)
    assert [entry["slower"] for entry in found] == [slower]
    assert found[0]["ratio"] == after / before


def test_only_equal_settings_are_compared():
    before = [result("sweeps", "sweep", 1.0), result("setup", "start", 1.0)]
    after = [result("sweeps", "sweep", 1.0, k=33), result("setup", "start", 2.0)]
    assert [entry["setting"][0] for entry in compare(before, after)] == ["setup"]


# --- the harness ---------------------------------------------------------------------------


def test_runs_take_turns_and_keep_their_best():
    order = []

    def taking(name, *seconds):
        left = iter(seconds)

        def run():
            order.append(name)
            return next(left)

        return run

    timings = interleaved({"a": taking("a", 3.0, 1.0), "b": taking("b", 2.0, 4.0)}, repeats=2)
    assert order == ["a", "b", "a", "b"]
    assert [timing.best for timing in timings.values()] == [1.0, 2.0]
    assert timings["a"].seconds == [3.0, 1.0]


def test_a_long_run_is_not_repeated(monkeypatch):
    monkeypatch.setattr(runner, "PATIENCE", -1.0)
    assert interleaved({"a": lambda: 1.0}, repeats=3)["a"].seconds == [1.0]


class Broken:
    name = "broken"
    exact = True

    def prepare(self, R):
        raise OSError("no such library")


def test_failed_competitors_are_listed():
    R = skewed(30, 20, 200)
    said = []
    rows = time_sweeps(R, "p", [Broken()], "float64", 2, 1, repeats=2, say=said.append)
    assert rows[0]["error"] == "OSError: no such library"
    assert rows[0]["seconds"] is None
    assert said[0].endswith("failed: OSError: no such library")
    found = race(R.astype(np.float64), 2, [Fastemf(), Broken()], SMOKE)
    assert [row["error"] for row in found] == [None, "OSError: no such library"]
    assert race(R.astype(np.float64), 2, [Broken()], SMOKE)[0]["seconds"] is None


def test_a_section_that_fails_does_not_end_the_run(monkeypatch, tmp_path, capsys):
    def fail(scale, say):
        raise MemoryError("too large")

    monkeypatch.setattr(
        "bench.__main__.SECTIONS", {"a": fail, "b": lambda scale, say: [result("b", "x", 1.0)]}
    )
    rows = measure(SMOKE, ["a", "b"], tmp_path / "out.json")
    assert [row["error"] for row in rows] == ["MemoryError: too large", None]
    assert "MemoryError: too large" in capsys.readouterr().out


def test_a_child_that_fails_says_why():
    with pytest.raises(RuntimeError, match="absent: KeyError: 'absent'"):
        call("absent")


# --- problems and competitors --------------------------------------------------------------


def test_problems_have_distinct_cells_and_the_asked_size():
    for make in (skewed, uniform):
        R = make(3000, 1000, 40_000)
        assert R.shape == (3000, 1000)
        assert 0.8 * 40_000 < R.nnz <= 41_000
        assert R.has_canonical_format
        assert (np.diff(R.indptr) > 0).all()


def test_rows_keep_their_length_as_problems_grow():
    for entries in (300_000, 1_000_000):
        R = grown(entries)
        assert R.nnz == pytest.approx(entries, rel=0.1)
        assert R.nnz / R.shape[0] == pytest.approx(92, rel=0.1)
    assert [label(size) for size in (50_000_000, 300_000, 600)] == ["50M", "300k", "600"]


def test_competitors_minimise_the_same_function():
    R = skewed(40, 30, 600).astype(np.float64)
    entries = [Fastemf(), NumpyReference()]
    try:
        import cmfrec  # noqa: F401

        entries += [Cmfrec(use_cg=False), Cmfrec(use_cg=True)]
    except ImportError:
        pass
    found = [objective(R, *entry.fit(R, 2, 1.0, 1, 60), 1.0) for entry in entries]
    np.testing.assert_allclose(found, found[0], rtol=0.02)


def test_names_tell_competitors_apart():
    assert len({entry.name for entry in COMPETITORS}) == len(COMPETITORS)


def test_a_curve_has_the_objective_of_every_sweep():
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


def test_a_fit_that_lies_about_its_objective_is_refused(monkeypatch):
    monkeypatch.setattr("bench.competitors.objective", lambda *_: 1.0)
    with pytest.raises(ArithmeticError, match="its factors give 1"):
        Fastemf().curve(skewed(40, 30, 600).astype(np.float64), 2, 1.0, 1, [2])


# --- the whole -----------------------------------------------------------------------------


def test_the_smoke_run_covers_every_section(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--out", str(path)]) == 0
    written = json.loads(path.read_text())
    printed = capsys.readouterr().out
    assert {row["section"] for row in written["results"]} == {
        "sweeps", "quality", "asymmetry", "threads", "growth", "setup", "memory", "tuned", "rank",
        "cold",
    }  # fmt: skip
    ours = [row for row in written["results"] if row["competitor"].startswith("fastemf")]
    assert len(ours) > 10
    assert [row["error"] for row in ours] == [None] * len(ours)
    assert {row["competitor"] for row in written["results"]} >= {"NumPy loop", "nothing"}
    assert written["machine"]["versions"]["numba"] is not None
    assert set(written["compiled"]) == {"float64", "float32"}
    assert "fastemf ω=0.1" in printed
    assert "Targets of the project (set for the full sizes)" in printed
    assert main(["compare", str(path), str(path)]) == 0
    slower = [
        {**row, "seconds": row["seconds"] and row["seconds"] + 1.0} for row in written["results"]
    ]
    later = tmp_path / "later.json"
    later.write_text(json.dumps({"results": slower}))
    assert main(["compare", str(path), str(later)]) == 1
    assert "SLOWER" in capsys.readouterr().out

    pytest.importorskip("matplotlib")
    assert main(["plot", str(path), str(tmp_path / "plots")]) == 0
    names = {picture.stem for picture in (tmp_path / "plots").iterdir()}
    assert names == {
        "roofline", "sweeps_by_rank", "throughput_by_entries", "throughput_by_rank",
        "throughput_by_threads", "time_to_quality",
    }  # fmt: skip


def test_an_empty_cache_is_filled_once(monkeypatch):
    from bench.sections import cold_start

    calls = []

    def answer(task, env=None):
        calls.append((task, env))
        return {"numba": 2.0, "beyond": 0.25, "seconds": 20.0 if len(calls) == 2 else 0.5}

    monkeypatch.setattr(cold_start, "call", answer)
    rows = cold_start.run(replace(SMOKE, cold_compile=True), lambda text: None)
    assert {row["what"]: row["seconds"] for row in rows} == {
        "import numba": 2.0,
        "import beyond numba": 0.25,
        "first call, cold": 20.0,
        "first call, warm cache": 0.5,
    }
    assert calls[1][1] == calls[2][1] != {}


def test_only_asks_for_sections_that_exist(capsys):
    with pytest.raises(SystemExit):
        main(["--smoke", "--only", "sweep"])
    assert "must be among sweeps, quality" in capsys.readouterr().err


def test_what_would_lose_a_run_is_found_before_it(tmp_path, capsys, monkeypatch):
    with pytest.raises(SystemExit):
        main(["--smoke", "--out", str(tmp_path / "absent" / "results.json")])
    assert "--out must lie in a folder that exists, got" in capsys.readouterr().err
    (tmp_path / "other.json").write_text("{}")
    for name in ("absent.json", "other.json"):
        with pytest.raises(SystemExit):
            main(["plot", str(tmp_path / name), str(tmp_path)])
        assert "must be a file that --out wrote, got" in capsys.readouterr().err
    monkeypatch.setattr("bench.__main__.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["--smoke", "--plots", str(tmp_path)])
    assert "plots need matplotlib" in capsys.readouterr().err


def test_nothing_is_drawn_of_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    from bench.plots import draw

    assert draw([{"section": "sweeps", "error": "failed"}], tmp_path) == []


def test_one_section_alone(tmp_path):
    path = tmp_path / "results.json"
    assert main(["--smoke", "--only", "threads", "--out", str(path)]) == 0
    assert {row["section"] for row in json.loads(path.read_text())["results"]} == {"threads"}
