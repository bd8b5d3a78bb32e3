"""Model files of every format version load for ever.

A golden file is written once, by running this module when its version is new, and never again:
``python tests/model/test_golden.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf.model.file import VERSION
from fastemf.model.measured_share import MeasuredShare
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.beyond import Beyond
from fastemf.solver.imputation import Imputation
from fastemf.solver.tables import AxisLevels, Table, Tables
from fastemf.solver.training import TrainingLevels
from fastemf.solver.tuning import Baseline, Tuning, TuningStep
from fastemf.stacking.items import COLUMNS, KINDS, KnownItems, Pools
from fastemf.stacking.normal_scores import NormalScores
from fastemf.stacking.pinball import Regression
from fastemf.stacking.size_table import SizeTable
from fastemf.stacking.stack import Stack, Stacked

FOLDER = Path(__file__).parents[1] / "golden"


def by_hand():
    """A model with numbers one can check in one's head."""
    record = fastemf.SweepRecord(
        sweep=1, objective=3.0, loss=2.5, penalty=0.5, reg=0.25, intercept_reg=0.36,
        relative_decrease=0.125, gradient_norm=7.0, sign_flips=4, inner_iterations=1.5,
        line_searches=2, extrapolation=0.0, accepted=True, restarts=0, seconds=0.5,
        validation_loss=math.nan, renewals=3,
    )  # fmt: skip
    # 0 below level 1, 40 from level 2 on, and 80 more in columns of level 4; 3000 more where the
    # product is at least 150 and the column's variance at least e.
    tables = Tables(
        (
            Table(
                ("row level", "column level"), (np.array([1.0, 2.0]), np.array([3.0, 4.0])),
                np.array([[0.0, 80.0], [40.0, 120.0]]),
            ),
            Table(
                ("product", "column noise"), (np.array([140.0, 150.0]), np.array([0.0, 1.0])),
                np.array([[0.0, 0.0], [0.0, 3000.0]]),
            ),
        ),
        0.5,
    )  # fmt: skip
    step = TuningStep("weighted", 0.25, 2, 1.5, 0.125, 0.1)
    return fastemf.Factorization(
        rows=Axis(
            np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]),
            np.array([100.0, 200.0, 0.0]),
            fastemf.Labels(["eu-7", "Zürich", ""], "client"),
            np.array([2]),
            AxisNoise(np.array([1.0, 0.5, 4.0]), 2.0),
            AxisLevels(np.array([-7.0, 1.25, 0.0]), tables),
        ),
        cols=Axis(
            np.array([[1.0, 0.0], [0.5, -1.0]]),
            np.array([1.0, 2.0]),
            fastemf.Labels([-3, 2**62]),
            noise=AxisNoise(np.array([1.0, 4.0]), 3.0),
            levels=AxisLevels(np.array([4.0, 3.5]), tables),
        ),
        omega=0.1, mu=10.0,
        reg=0.25, reg_scaling="count", intercept_reg=0.36, scale=5.0, converged=True,
        history=(record,), shift=1000.0, family="weighted",
        tuning=Tuning((step,), 0, (Baseline("constant", 3.0),), 7, 1, "", 0.5, 1.25, 0.125),
        training=TrainingLevels(
            constant=8.0, column=9.0, both=7.0, median=6.0, ridge=0.5,
            cols=np.array([[1.0, 2.0, 5.0], [-1.0, 0.5, 6.0]]), rows=np.array([3.0, -4.0, 0.0]),
        ),
        value_name="ms",
        coverage=MeasuredShare(0.75, 0.5, 0.125, (0.25, 1.0), 8, 1000.0),
        imputation=Imputation(
            (np.array([1.0, 2.0, 0.5]), np.array([1.0, 4.0])),
            Beyond(np.array([-1.0, 1.0]), np.array([1.0, 2.0])),
            Beyond(np.array([0.0]), np.array([0.0])),
            (-100.0, 5000.0),
            None,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_golden_files_load(version):
    fit = fastemf.load(FOLDER / f"model-v{version}.npz")
    values = fit.to_dense()
    # Since version 3: shift, and the table at levels (−7, 4) and (1.25, 3.5).
    later = (1000 + 80, 1000 + 10 + 40) if version >= 3 else (0, 0)
    if version >= 4:  # and the second table, at the product 3 · 0.5 − 4 + 200 + 2
        later = (later[0], later[1] + 3000)
    assert values[0, 0] == 1 + 10 + 100 + 1 + later[0]
    assert values[1, 1] == 3 * 0.5 - 4 + 10 + 200 + 2 + later[1]
    assert fit.unseen_rows.tolist() == [2]
    assert (fit.omega, fit.reg, fit.reg_scaling, fit.converged) == (0.1, 0.25, "count", True)
    [record] = by_hand().history
    expected = record if version >= 5 else replace(record, renewals=0)
    assert repr(fit.history) == repr((expected,))  # NaN is not equal to itself
    if version < 5:
        assert fit.imputation is None
    else:  # 40 or more where 38 was predicted, at a noise of 2: 1 beyond in its units, so 2
        told = (np.array([40.0]), np.array([1], np.int8), np.array([38.0]), np.array([2.0]))
        assert fit.imputation.values(*told).tolist() == [38.0 + 2 * 2.0]
        assert [scale.tolist() for scale in fit.imputation.scales] == [[1.0, 2.0, 0.5], [1.0, 4.0]]
    if version == 1:
        assert fit.row_labels is fit.col_labels is None
    else:
        assert fit.predict("Zürich", 2**62) == values[1, 1]
        assert fit.row_labels == by_hand().row_labels
        assert fit.col_labels == by_hand().col_labels
    if version < 3:
        assert (fit.shift, fit.family, fit.tuning, fit.tables) == (0.0, "even", None, ())
        assert fit.rows.noise is fit.cols.noise is None
    else:
        assert (fit.shift, fit.family) == (1000.0, "weighted")
        tuning = by_hand().tuning
        if version == 3:  # which had no tables to judge with the best step
            tuning = replace(tuning, loss=1.5, effective_omega=0.1)
        assert fit.tuning == tuning
        assert fit.rows.noise.variances.tolist() == [1.0, 0.5, 4.0]
        assert (fit.rows.noise.level, fit.cols.noise.level) == (2.0, 3.0)
        assert fit.rows.levels.tables.ridge == 0.5
        assert fit.rows.levels.tables is fit.cols.levels.tables
        assert len(fit.tables) == (1 if version == 3 else 2)
    if version < 4:
        assert fit.training is fit.value_name is fit.coverage is None
    else:
        assert fit.value_name == "ms"
        assert fit.coverage == by_hand().coverage
        cells = np.array([1, -1]), np.array([0, 1])
        predict = fit.training.predict
        assert {name: predict(name, *cells).tolist() for name in fit.training.NAMES} == {
            "constant": [8.0, 8.0],
            "column": [10.0, 8.0],
            "row + column": [7.0 - 4 + 2, 7.5],
            "column median": [5.0, 6.0],
        }


def quantiles_by_hand():
    """Two quantiles of a 2 × 2 matrix, from fits without factors."""

    def fit(omega, mu, value_name=None):
        rows, cols = (Axis(np.zeros((2, 1)), np.array([0.0, 8.0 * at])) for at in (0, 1))
        return fastemf.Factorization(
            rows=rows, cols=cols, omega=omega, mu=mu, reg=0.25, reg_scaling="count",
            intercept_reg=0.5, scale=1.0, converged=True, history=(), value_name=value_name,
        )  # fmt: skip

    fits = tuple(
        tuple(fit(omega, mu + fold, "ms" if at == fold == 0 else None) for fold in (0, 2))
        for at, (omega, mu) in enumerate([(0.5, 10.0), (0.9, 20.0), (0.5, 0.0)])
    )
    count, atoms = 2, np.array([0.0, 1.0])
    pools = Pools(
        np.broadcast_to(atoms, (KINDS, count, 2, 2)).copy(),
        np.broadcast_to([0.5, 1.0], (KINDS, count, 2, 2)).copy(),
        np.full((KINDS, count, 2), 3.0),
        np.array([3.0, 10.0]),
    )
    items = KnownItems(
        (0.5, 0.9),
        (np.zeros((KINDS, count, 3)), np.zeros((KINDS, count, 3))),
        (np.zeros((2, 3)), np.zeros((2, 3))),
        np.array([4.0, 1.0]),
        np.array([0.0, 1.0]),
        pools,
    )
    # The location plus 1, and the fit at 0.9 plus twice the scale; tables add 0, or 100 from 25 on.
    parts = []
    for weights, intercept, table in (
        ({7: 1.0}, 1.0, SizeTable(np.array([0.0]), np.array([0.0]))),
        ({8: 1.0, 5: 2.0}, 0.0, SizeTable(np.array([20.0, 25.0]), np.array([0.0, 100.0]))),
    ):
        coefficients = np.zeros(len(COLUMNS) + 1)
        for at, value in weights.items():
            coefficients[at] = value
        parts.append(Stacked(Regression(coefficients, intercept), table))
    promises = tuple(
        fastemf.Promise(
            tau=tau, coverage=tau, interval=(tau - 0.01, tau + 0.01), deciles=(tau,) * 10, many=tau,
            many_cells=7, cells=1000, pinball=1.0, constant=2.0, column=1.75, row_column=1.5,
            larger=1.25, checked=checked,
        )
        for tau, checked in ((0.5, 1.0), (0.9, 0.75))
    )  # fmt: skip
    return fastemf.Quantiles(
        fits=fits,
        labels=(fastemf.Labels(["eu", "us"], "client"), fastemf.Labels(["a", "b"], "service")),
        normal=NormalScores(np.array([0.0, 50.0]), np.array([-1.0, 1.0])),
        items=items,
        stack=Stack((0.5, 0.9), tuple(parts), 0.0, 1000.0),
        promises=promises,
    )


@pytest.mark.parametrize("version", range(4, VERSION + 1))
def test_golden_files_of_quantiles_load(version):
    quantiles = fastemf.load(FOLDER / f"quantiles-v{version}.npz")
    # Means of the two folds: locations 11 and, in the second column, 8 more; likewise 21 at 0.9.
    assert quantiles.predict("eu", "a").tolist() == [12.0, 21 + 8 + 100]
    assert quantiles.predict("us", "b").tolist() == [20.0, 29 + 8 + 100]
    assert quantiles.taus == (0.5, 0.9)
    promises = quantiles_by_hand().promises
    if version < 6:  # which did not tell what could be checked
        promises = tuple(replace(promise, checked=1.0) for promise in promises)
    assert quantiles.promises == promises
    assert quantiles.value_name == "ms"
    assert quantiles.row_labels.name == "client"


if __name__ == "__main__":
    for model, path in (
        (by_hand(), FOLDER / f"model-v{VERSION}.npz"),
        (quantiles_by_hand(), FOLDER / f"quantiles-v{VERSION}.npz"),
    ):
        if path.exists():
            print(f"{path} exists: a golden file is never rewritten")
        else:
            model.save(path)
