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
from fastemf.solver.axis import Axis

FOLDER = Path(__file__).parents[1] / "golden"


def by_hand():
    """A model with numbers one can check in one's head."""
    record = fastemf.SweepRecord(
        sweep=1, objective=3.0, loss=2.5, penalty=0.5, reg=0.25, intercept_reg=0.36,
        relative_decrease=0.125, gradient_norm=7.0, sign_flips=4, inner_iterations=1.5,
        line_searches=2, extrapolation=0.0, accepted=True, restarts=0, seconds=0.5,
        validation_loss=math.nan,
    )  # fmt: skip
    return fastemf.Factorization(
        rows=Axis(
            np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]),
            np.array([100.0, 200.0, 0.0]),
            fastemf.Labels(["eu-7", "Zürich", ""], "client"),
            np.array([2]),
        ),
        cols=Axis(
            np.array([[1.0, 0.0], [0.5, -1.0]]), np.array([1.0, 2.0]), fastemf.Labels([-3, 2**62])
        ),
        omega=0.1, mu=10.0,
        reg=0.25, reg_scaling="count", intercept_reg=0.36, scale=5.0, converged=True,
        history=(record,),
    )  # fmt: skip


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_golden_files_load(version):
    fit = fastemf.load(FOLDER / f"model-v{version}.npz")
    values = fit.to_dense()
    assert values[0, 0] == 1 + 10 + 100 + 1
    assert values[1, 1] == 3 * 0.5 - 4 + 10 + 200 + 2
    assert fit.unseen_rows.tolist() == [2]
    assert (fit.omega, fit.reg, fit.reg_scaling, fit.converged) == (0.1, 0.25, "count", True)
    assert repr(fit.history) == repr(by_hand().history)  # NaN is not equal to itself
    if version == 1:
        assert fit.row_labels is fit.col_labels is None
    else:
        assert fit.predict("Zürich", 2**62) == values[1, 1]
        assert fit.row_labels == by_hand().row_labels
        assert fit.col_labels == by_hand().col_labels


if __name__ == "__main__":
    path = FOLDER / f"model-v{VERSION}.npz"
    if path.exists():
        raise SystemExit(f"{path} exists: a golden file is never rewritten")
    by_hand().save(path)
