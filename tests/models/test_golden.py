"""Model files of format version 1 load with the predictions they were written with.

``PYTHONPATH=.:tests python tests/models/test_golden.py`` writes the golden files. Until release
0.1.0 a change of the format replaces them; afterwards files of every released version must load.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scenes import few_quantiles

import fastemf
from fastemf.censoring.imputation import Imputation
from fastemf.censoring.kaplan_meier import ConditionalExpectation
from fastemf.models.entities import Entities
from fastemf.models.file import VERSION
from fastemf.solver.records import SweepRecord
from fastemf.tuning.baselines import TrainingBaselines
from fastemf.tuning.corrections import Correction, Corrections, EntityEffects
from fastemf.tuning.noise import EntityNoise
from fastemf.tuning.record import Baseline, Tuning, TuningStep

FOLDER = Path(__file__).parents[1] / "golden"
ROWS = [f"r{i}" for i in range(6)]


def factorization_by_hand():
    """Build a factorization with every optional part, whose predictions are easy to check."""
    record = SweepRecord(
        sweep=1, objective=3.0, loss=2.5, penalty=0.5, reg=0.25, intercept_reg=0.36,
        relative_decrease=0.125, gradient_norm=7.0, sign_flips=4, inner_iterations=1.5,
        line_searches=2, extrapolation=0.0, accepted=True, restarts=0, seconds=0.5,
        validation_loss=math.nan, renewals=3,
    )  # fmt: skip
    # The first table adds 0 for row effects up to 1 and 40 from 2 on, and 80 more for column
    # effects from 4 on. The second adds 3000 where the product is at least 150 and the column's
    # log variance at least 1.
    first = Correction(
        ("row effect", "column effect"), (np.array([1.0, 2.0]), np.array([3.0, 4.0])),
        np.array([[0.0, 80.0], [40.0, 120.0]]),
    )  # fmt: skip
    second = Correction(
        ("product", "column noise"), (np.array([140.0, 150.0]), np.array([0.0, 1.0])),
        np.array([[0.0, 0.0], [0.0, 3000.0]]),
    )  # fmt: skip
    tables = Corrections((first, second), 0.5)
    rows = Entities(
        np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]), np.array([100.0, 200.0, 0.0]),
        fastemf.Labels(["eu-7", "Zürich", ""], "client"), np.array([2]),
        EntityNoise(np.array([1.0, 0.5, 4.0]), 2.0),
        EntityEffects(np.array([-7.0, 1.25, 0.0]), tables),
    )  # fmt: skip
    cols = Entities(
        np.array([[1.0, 0.0], [0.5, -1.0]]), np.array([1.0, 2.0]), fastemf.Labels([-3, 2**62]),
        noise=EntityNoise(np.array([1.0, 4.0]), 3.0),
        effects=EntityEffects(np.array([4.0, 3.5]), tables),
    )  # fmt: skip
    step = TuningStep("weighted", 0.25, 2, 1.5, 0.125, 0.1)
    training = TrainingBaselines(
        constant=8.0, column=9.0, both=7.0, median=6.0, ridge=0.5,
        cols=np.array([[1.0, 2.0, 5.0], [-1.0, 0.5, 6.0]]), rows=np.array([3.0, -4.0, 0.0]),
    )  # fmt: skip
    imputation = Imputation(
        (np.array([1.0, 2.0, 0.5]), np.array([1.0, 4.0])),
        ConditionalExpectation(np.array([-1.0, 1.0]), np.array([1.0, 2.0])),
        ConditionalExpectation(np.array([0.0]), np.array([0.0])), (-100.0, 5000.0), None,
    )  # fmt: skip
    return fastemf.Factorization(
        rows=rows, cols=cols, omega=0.1, mu=10.0, reg=0.25, reg_scaling="count",
        intercept_reg=0.36, scale=5.0, converged=True, history=(record,), shift=1000.0,
        family="weighted", value_name="ms", training=training, imputation=imputation,
        censored=("right", 40.0),
        tuning=Tuning((step,), 0, (Baseline("constant", 3.0),), 7, 1, "", 0.5, 1.25, 0.125, 2),
    )  # fmt: skip


def small_quantiles():
    """Fit quantiles, with trees and side features, to a small labelled table."""
    i, j = np.divmod(np.arange(30), 5)
    R = np.random.default_rng(5).gamma(2, 10, 30) + 20 * (i % 2)
    log = {"client": np.array(ROWS)[i], "service": 10 * j, "ms": R, "hour": (i + j) % 4}
    clients = {"client": ROWS, "site": ["a", "b"] * 3}
    services = {"service": np.arange(0, 50, 10), "cores": [1.0, 2.0, np.nan, 4.0, 8.0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastemf.boosting.training._choose_count", lambda *_: 2)
        for name in ("FEWEST", "FEWEST_BEYOND"):
            patch.setattr(f"fastemf.boosting.training.{name}", 2)
        return few_quantiles(
            pd.DataFrame(log), rows="client", cols="service", values="ms", features=["hour"],
            row_features=pd.DataFrame(clients), col_features=pd.DataFrame(services), groups="site",
        )  # fmt: skip


GOLDEN = {"model": factorization_by_hand, "quantiles": small_quantiles}


def golden(name):
    return FOLDER / f"{name}-v{VERSION}.npz"


def read(path):
    """Return the arrays of a file, and its headers as objects."""
    with np.load(path) as file:
        found = dict(file)
    for key in [key for key in found if key.endswith("header")]:
        found[key] = json.loads(found[key].tobytes())
    return found


def test_a_golden_factorization_loads():
    fit = fastemf.load(golden("model"))
    # mu, intercepts, factors, shift and corrections; the row effects are −7 and 1.25, the column
    # effects 4 and 3.5. The third row has no observations.
    expected = [
        [10 + 100 + 1 + 1 + 1000 + 80, 10 + 100 + 2 + 0.5 - 2 + 1000 + 40],
        [10 + 200 + 1 + 3 + 1000 + 90, 10 + 200 + 2 + 1.5 - 4 + 1000 + 50 + 3000],
        [10 + 0 + 1 + 0 + 1000 + 80, 10 + 0 + 2 + 0 + 1000 + 40],
    ]
    np.testing.assert_allclose(fit.to_dense(), expected, rtol=1e-12)
    np.testing.assert_allclose(fit.predict("Zürich", 2**62), expected[1][1], rtol=1e-12)
    assert fit.unseen_rows.tolist() == [2]
    assert fit.censored == ("right", 40.0)
    # A limit of 40 where the prediction is 38 and the noise 2 is 1 in units of noise: imputed 2.
    censored = (np.array([40.0]), np.array([1], np.int8), np.array([38.0]), np.array([2.0]))
    np.testing.assert_allclose(fit.imputation.impute(*censored), [38 + 2 * 2])
    cells = np.array([1, -1]), np.array([0, 1])
    baselines = {"constant": [8, 8], "column": [10, 8], "row + column": [7 - 4 + 2, 7.5],
                 "column median": [5, 6]}  # fmt: skip
    for name, values in baselines.items():
        np.testing.assert_allclose(fit.training.predict(name, *cells), values)


def test_golden_quantiles_load():
    quantiles = fastemf.load(golden("quantiles"))
    expected = np.load(FOLDER / f"quantiles-v{VERSION}-predictions.npy")
    np.testing.assert_allclose(quantiles.predict_block(ROWS), expected, rtol=1e-9)
    assert (quantiles.row_labels.values == ROWS).all()
    assert quantiles.features.names == (("site",), ("cores",), ("hour",))
    assert quantiles.groups == "site"
    assert [report.tau for report in quantiles.coverage] == list(quantiles.taus)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_are_written_back_unchanged(name, tmp_path):
    fastemf.load(golden(name)).save(tmp_path / "model.npz")
    np.testing.assert_equal(read(tmp_path / "model.npz"), read(golden(name)))


if __name__ == "__main__":
    for name, build in GOLDEN.items():
        build().save(golden(name))
    quantiles = fastemf.load(golden("quantiles"))
    block = quantiles.predict_block(quantiles.row_labels.values)
    np.save(FOLDER / f"quantiles-v{VERSION}-predictions.npy", block)
