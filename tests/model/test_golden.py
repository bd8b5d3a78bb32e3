"""Model files of every format version load for ever.

A golden file is written once, by running this module when its version is new, and never again:
``python tests/model/test_golden.py``.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fastemf
from fastemf.model.file import VERSION
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.level_table import AxisLevels, LevelTable
from fastemf.solver.tuning import Baseline, Tuning, TuningStep

FOLDER = Path(__file__).parents[1] / "golden"


def by_hand():
    """A model with numbers one can check in one's head."""
    record = fastemf.SweepRecord(
        sweep=1, objective=3.0, loss=2.5, penalty=0.5, reg=0.25, intercept_reg=0.36,
        relative_decrease=0.125, gradient_norm=7.0, sign_flips=4, inner_iterations=1.5,
        line_searches=2, extrapolation=0.0, accepted=True, restarts=0, seconds=0.5,
        validation_loss=math.nan,
    )  # fmt: skip
    # 0 below level 1, 40 from level 2 on, and 80 more in columns of level 4.
    table = LevelTable(
        np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([[0.0, 80.0], [40.0, 120.0]]), 0.5
    )
    step = TuningStep("weighted", 0.25, 2, 1.5, 0.125, 0.1)
    return fastemf.Factorization(
        rows=Axis(
            np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]),
            np.array([100.0, 200.0, 0.0]),
            fastemf.Labels(["eu-7", "Zürich", ""], "client"),
            np.array([2]),
            AxisNoise(np.array([1.0, 0.5, 4.0]), 2.0),
            AxisLevels(np.array([-7.0, 1.25, 0.0]), table),
        ),
        cols=Axis(
            np.array([[1.0, 0.0], [0.5, -1.0]]),
            np.array([1.0, 2.0]),
            fastemf.Labels([-3, 2**62]),
            noise=AxisNoise(np.array([1.0, 2.0]), 3.0),
            levels=AxisLevels(np.array([4.0, 3.5]), table),
        ),
        omega=0.1, mu=10.0,
        reg=0.25, reg_scaling="count", intercept_reg=0.36, scale=5.0, converged=True,
        history=(record,), shift=1000.0, family="weighted",
        tuning=Tuning((step,), 0, (Baseline("constant", 3.0),), 7, 1, "", 0.5),
    )  # fmt: skip


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_golden_files_load(version):
    fit = fastemf.load(FOLDER / f"model-v{version}.npz")
    values = fit.to_dense()
    # Since version 3: shift, and the table at levels (−7, 4) and (1.25, 3.5).
    later = (1000 + 80, 1000 + 10 + 40) if version >= 3 else (0, 0)
    assert values[0, 0] == 1 + 10 + 100 + 1 + later[0]
    assert values[1, 1] == 3 * 0.5 - 4 + 10 + 200 + 2 + later[1]
    assert fit.unseen_rows.tolist() == [2]
    assert (fit.omega, fit.reg, fit.reg_scaling, fit.converged) == (0.1, 0.25, "count", True)
    assert repr(fit.history) == repr(by_hand().history)  # NaN is not equal to itself
    if version == 1:
        assert fit.row_labels is fit.col_labels is None
    else:
        assert fit.predict("Zürich", 2**62) == values[1, 1]
        assert fit.row_labels == by_hand().row_labels
        assert fit.col_labels == by_hand().col_labels
    if version < 3:
        assert (fit.shift, fit.family, fit.tuning, fit.table) == (0.0, "even", None, None)
        assert fit.rows.noise is fit.cols.noise is None
    else:
        assert (fit.shift, fit.family, fit.tuning) == (1000.0, "weighted", by_hand().tuning)
        assert fit.rows.noise.variances.tolist() == [1.0, 0.5, 4.0]
        assert (fit.rows.noise.level, fit.cols.noise.level) == (2.0, 3.0)
        assert fit.table.ridge == 0.5
        assert fit.table is fit.cols.levels.table


if __name__ == "__main__":
    path = FOLDER / f"model-v{VERSION}.npz"
    if path.exists():
        raise SystemExit(f"{path} exists: a golden file is never rewritten")
    by_hand().save(path)
