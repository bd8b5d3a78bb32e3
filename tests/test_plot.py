"""Figures: not blank, with labelled axes, and with the right data."""

from __future__ import annotations

import builtins
from functools import cache

import numpy as np
import pytest
from scenes import few_quantiles

import fastemf
from fastemf import complete, complete_levels, plot, select
from fastemf.tuning.record import Baseline, Tuning, TuningStep

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SAMPLE = np.random.default_rng(0).gamma(1.0, size=200)
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


@cache
def one_level():
    return complete(np.outer([1.0, 2.0, 3.0], [1.0, 2.0]) + 0.1, 0.3, 1, reg=0.1)


@cache
def perfect():
    return complete(np.zeros((4, 3)), 0.5, 1)


@cache
def three_levels():
    return complete_levels(np.outer([1.0, 2, 4], [3.0, 1, 2]) + np.eye(3), (0.1, 0.5, 0.9), 1)


def tuned():
    """Two families of candidates that start without factors."""
    steps = [
        TuningStep(family, reg, rank, loss, 0.1, 0.5)
        for family, reg, rank, loss in [
            ("constant", np.inf, 0, 2.0), ("equal", np.inf, 0, 1.5), ("weighted", np.inf, 0, 1.4),
            ("weighted", 10.0, 1, 1.2), ("weighted", 7.0, 2, 1.1), ("weighted", 4.9, 2, 1.3),
            ("ridged", 20.0, 1, 1.4), ("ridged", 14.0, 2, 1.2),
        ]
    ]  # fmt: skip
    losses = {"constant": 2.0, "column": 1.6, "row + column": 1.5}
    return Tuning(tuple(steps), 4, tuple(Baseline(*pair) for pair in losses.items()), 500, 10)


def texts(labels):
    return [label.get_text() for label in labels]


PLOTS = {
    "loss": (lambda ax: plot.asymmetric_loss(LEVELS, ax=ax), "unit"),
    "convergence": (lambda ax: plot.convergence(one_level(), unit="ms", ax=ax), "ms squared"),
    "several": (lambda ax: plot.convergence(dict.fromkeys("ab", one_level()), unit="s", ax=ax),
                "s squared"),
    "histogram": (lambda ax: plot.histogram(SAMPLE, label="time", unit="s", ax=ax), "time (s)"),
    "distribution": (lambda ax: plot.error_distribution(dict.fromkeys(LEVELS, SAMPLE), ax=ax),
                     "relative error"),
    "boxes": (lambda ax: plot.error_boxes({"a": {0.1: SAMPLE}, "b": {0.1: SAMPLE}}, ax=ax),
              "relative error"),
    "level": (lambda ax: plot.against_level({"a": LEVELS, "b": SAMPLE[:5]}, LEVELS, label="x (s)",
                                            ax=ax), "x (s)"),
    "extreme levels": (lambda ax: plot.against_level({"a": [1, 2]}, [0.01, 0.99], label="x (s)",
                                                     ax=ax), "x (s)"),
    "levels": (lambda ax: plot.levels(three_levels(), 1, unit="ms", ax=ax), "predicted value (ms)"),
    "tuning": (lambda ax: plot.tuning(tuned(), unit="ms", ax=ax), "ridge λ (ms)"),
    "phase": (lambda ax: plot.phase_diagram(np.eye(2), [1, 2], [0.1, 0.5], ax=ax), "level ω"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_not_blank_and_are_labelled(name):
    draw, words = PLOTS[name]
    ax = Figure(layout="constrained").subplots()
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    empty = np.asarray(canvas.buffer_rgba()).copy()
    assert draw(ax) is ax
    canvas.draw()
    assert (np.asarray(canvas.buffer_rgba()) != empty).any(axis=2).mean() > 0.01
    assert all((ax.get_xlabel(), ax.get_ylabel()))
    assert words in ax.get_xlabel() + ax.get_ylabel()


def test_curves_show_the_data():
    ax = plot.error_distribution({0.5: [0.5, 1.0, 1.0, 9.0]}, limit=1.0, ax=Figure().subplots())
    x, y = ax.lines[0].get_data()
    assert y[x < 0.5].max() == 0
    assert y[-1] == 0.75
    ax = plot.asymmetric_loss([0.1], ax=Figure().subplots())
    r, loss = ax.lines[0].get_data()
    np.testing.assert_allclose(loss[[0, -1]], [0.9 * 4, 0.1 * 4])
    assert (r[0], r[-1]) == (-2, 2)


def test_the_bands_are_the_levels_by_the_middle_one():
    low, middle, high = three_levels().predict_block(1)[0].T
    order = np.argsort(middle)
    assert order.tolist() != [0, 1, 2]
    ax = plot.levels(three_levels(), 1, ax=Figure().subplots())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), middle[order])
    corners = ax.collections[0].get_paths()[0].vertices
    at_first = corners[corners[:, 0] == 1][:, 1]
    assert {low[order[0]], high[order[0]]} <= set(at_first.tolist())


@pytest.mark.compiled
def test_quantiles_are_bands_from_the_median():
    R = fastemf.datasets.make_skewed(30, 20, rank=1, noise=0.3, density=0.9, random_state=0).R
    quantiles = few_quantiles(R, (0.1, 0.5, 0.8, 0.9))
    ax = plot.levels(quantiles, 1, ax=Figure().subplots())
    assert texts(ax.get_legend().get_texts()) == ["p10 to p90", "p10 to p80", "p50"]
    middle = np.sort(quantiles.predict_block([1])[0][:, 1])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), middle)
    assert ax.get_xlabel() == "columns of row 1, sorted by median"


def test_the_path_of_a_tuning():
    ax = plot.tuning(tuned(), ax=Figure().subplots())
    constant, equal, weighted, ridged = (bars.lines[0].get_xydata() for bars in ax.containers)
    assert weighted[1:].tolist() == [[10.0, 0.6], [7.0, 0.55], [4.9, 0.65]]
    assert ridged.tolist() == [[20.0, 0.7], [14.0, 0.6]]
    # Models without factors share a place beyond the strongest ridge.
    assert constant[0, 0] == equal[0, 0] == weighted[0, 0] > 20
    ticks = dict(zip(ax.get_xticks(), texts(ax.get_xticklabels()), strict=True))
    assert ticks == {5.0: "5", 10.0: "10", 20.0: "20", constant[0, 0]: "∞"}
    assert [constant[0, 1], equal[0, 1], weighted[0, 1]] == [1.0, 0.75, 0.7]
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert lines["chosen"].tolist() == [[7.0, 0.55]]
    for name, height in (("constant", 1.0), ("column", 0.8), ("row + column", 0.75)):
        assert lines[f"baseline: {name}"][:, 1].tolist() == [height, height]
    names = texts(ax.get_legend().get_texts())
    assert names[:5] == ["constant", "equal", "weighted", "ridged", "baseline: constant"]
    assert ax.get_ylabel() == "validation loss / loss of a constant"


def test_new_axes_by_default():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    ax = plot.asymmetric_loss()
    assert ax.figure in map(plt.figure, plt.get_fignums())
    plt.close(ax.figure)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fastemf\[plot\]'"):
        plot.asymmetric_loss()


@pytest.mark.filterwarnings("ignore:.*observations are zero")
def test_zeros_are_drawn_on_a_linear_axis():
    # A logarithmic one would have nothing to show, which matplotlib warns of.
    for draw, data in (
        (plot.convergence, perfect()),
        (plot.error_boxes, {"a": {0.5: [0.0, 0.0]}}),
        (plot.selection, select(np.zeros((4, 3)), 0.5, [1], [0.1], 2)),
    ):
        ax = draw(data, ax=Figure().subplots())
        FigureCanvasAgg(ax.figure).draw()
        assert ax.get_yscale() == "linear"


@pytest.mark.filterwarnings("ignore:.*observations are zero")
def test_bad_input():
    ax = Figure().subplots()
    with pytest.raises(ValueError, match="values must not be empty"):
        plot.histogram([], label="time", unit="s", ax=ax)
    with pytest.raises(ValueError, match=r"recovered must have .* \(1, 2\), got \(2, 2\)"):
        plot.phase_diagram(np.eye(2), [1.0], [0.1, 0.5], ax=ax)
    with pytest.raises(ValueError, match=r"tuned must have candidates .* whose reg was not"):
        plot.tuning(one_level(), ax=ax)
    with pytest.raises(ValueError, match=r"errors must contain at least one level, got \{\}"):
        plot.error_boxes({}, ax=ax)


def test_columns_are_labelled_if_there_is_room():
    pd = pytest.importorskip("pandas")
    values = np.random.default_rng(0).gamma(2, 3, (5, 4))
    table = pd.DataFrame(values, index=list("abcde"), columns=list("wxyz"))
    fitted = complete_levels(table, (0.2, 0.5, 0.8), 1, reg=0.1)
    ax = plot.levels(fitted, "b", ax=Figure().subplots())
    by_middle = np.argsort(fitted.predict_block("b")[0, :, 1])
    assert texts(ax.get_xticklabels()) == ["wxyz"[at] for at in by_middle]
