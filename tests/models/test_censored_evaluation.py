"""Scores of held-out values of which some are censored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scenes import few_quantiles

import fastemf
from fastemf.loss import expectile_loss
from fastemf.metrics import coverage, pinball_loss

pytestmark = [pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning")]

LIMIT = 3.0
RIGHT = {"censored": ("right", LIMIT)}
SETTINGS = {"k": 1, "reg": 0.3, "intercepts": True, "max_iter": 5}


def skewed(seed, m=20, n=15):
    """A log of log-normal values, and the values recorded up to the limit."""
    rng = np.random.default_rng(seed)
    i, j = np.divmod(np.arange(m * n), n)
    whole = np.round((rng.lognormal(0, 0.5, m)[i] + rng.lognormal(0, 0.5, n)[j]) *
                     rng.lognormal(0, 0.5, m * n), 2)  # fmt: skip
    return i, j, whole, np.minimum(whole, LIMIT)


I, J, _, TRAINED = skewed(0)
*_, WHOLE, CUT = skewed(1)
DATA, TEST = (I, J, TRAINED), (I, J, CUT)
MODELS = {
    "factorization": lambda data, **given: fastemf.complete(data, 0.9, **SETTINGS, **given),
    "levels": lambda data, **given: fastemf.complete_levels(data, (0.5, 0.9), **SETTINGS, **given),
    "quantiles": lambda data, **given: few_quantiles(data, (0.5, 0.9), **given),
}


@pytest.fixture(params=MODELS)
def make(request):
    return MODELS[request.param]


def same_scores(one, other):
    assert one.censored == other.censored
    for left, right in zip(one.scores, other.scores, strict=True):
        np.testing.assert_allclose(left[2:], right[2:], rtol=1e-12, err_msg=left.name)


@pytest.mark.compiled
def test_scores_of_quantiles_are_those_of_the_whole_values_within_the_limit():
    quantiles = MODELS["quantiles"](DATA, **RIGHT)
    evaluation = quantiles.evaluate(TEST)
    assert evaluation.censored == np.count_nonzero(WHOLE >= LIMIT) > 30
    for t, report in enumerate(evaluation.coverage):
        baselines = quantiles.features.baselines(t, I, J)
        for name, predicted in {"fit": quantiles.predict(I, J)[:, t], **baselines}.items():
            score, short = evaluation.score(name, tau=report.tau), predicted < LIMIT
            known = np.minimum(WHOLE, LIMIT), np.minimum(predicted, LIMIT)
            assert score.pinball == pytest.approx(pinball_loss(*known, report.tau))
            covered = np.mean((predicted >= WHOLE)[short]) if short.any() else np.nan
            assert score.coverage == pytest.approx(covered, nan_ok=True)
            if name == "fit":
                assert report.verifiable == pytest.approx(np.mean(short))
                assert (report.coverage, report.pinball) == pytest.approx((covered, score.pinball))
            else:
                assert report.baselines[name] == pytest.approx(score.pinball)
    assert quantiles.coverage[1].verifiable < 1
    assert f"{evaluation.censored} censored values: pinball loss" in str(evaluation)
    assert "beyond the censoring limit in" in evaluation.verdict()


def test_expectile_losses_are_those_of_imputed_values():
    fit = MODELS["factorization"](DATA, **RIGHT)
    evaluation, predicted = fit.evaluate(TEST), fit.predict(I, J)
    at, codes = CUT >= LIMIT, np.ones(CUT.size, np.int8)
    scales = fit.imputation.scales
    imputed = np.where(
        at, fit.imputation.impute(CUT, codes, predicted, scales[0][I] * scales[1][J]), CUT
    )
    assert (imputed[at] >= LIMIT).all()
    score = evaluation.score("fit")
    assert score.loss == pytest.approx(expectile_loss(imputed - predicted, 0.9) / CUT.size)
    constant = np.full(CUT.size, fit.training.constant)
    assert evaluation.score("constant").loss == pytest.approx(
        expectile_loss(imputed - constant, 0.9) / CUT.size
    )
    known = np.minimum(predicted, LIMIT)
    assert score.pinball == pytest.approx(pinball_loss(CUT, known, 0.9))
    assert "censored values: imputed for loss, skill and effective omega" in str(evaluation)
    assert score.effective_omega == pytest.approx(fit.effective_omega(TEST))
    assert fit.loo(DATA).loss == pytest.approx(fit.loo(DATA, **RIGHT).loss)


def test_the_limit_of_a_model_is_the_default_and_saved(make, tmp_path):
    model = make(DATA, **RIGHT)
    model.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    assert loaded.censored == model.censored == ("right", LIMIT)
    same_scores(loaded.evaluate(TEST), model.evaluate(TEST, **RIGHT))
    exact = model.evaluate(TEST, censored=False)
    assert exact.censored == 0
    assert exact.score("fit").pinball > model.evaluate(TEST).score("fit").pinball
    lower = model.evaluate(TEST, censored=("right", 2.0))
    assert lower.censored == np.count_nonzero(CUT >= 2) > model.evaluate(TEST).censored
    assert "imputed for loss" in fastemf.report(model, TEST) or hasattr(model, "taus")


def test_marks_that_amount_to_a_limit_give_the_same_scores(make):
    model = make(DATA, **RIGHT)
    expected, marks = model.evaluate(TEST), CUT >= LIMIT
    same_scores(model.evaluate(TEST, censored=marks), expected)
    dense, sparse = CUT.reshape(20, 15), marks.reshape(20, 15)
    same_scores(model.evaluate(dense, censored=sparse), expected)
    same_scores(model.evaluate(dense), expected)


def test_tables_and_files_with_a_column_of_marks(tmp_path):
    log = pd.DataFrame({"row": I, "col": J, "v": CUT, "late": np.where(CUT >= LIMIT, "right", "")})
    names = {"rows": "row", "cols": "col", "values": "v"}
    fit = fastemf.complete(log.assign(v=TRAINED), 0.5, **SETTINGS, **RIGHT, **names)
    log = log.sample(frac=1, random_state=0)
    log.to_csv(tmp_path / "log.csv", index=False)
    matrix = log.pivot(index="row", columns="col", values="v")
    expected = fit.evaluate(log)
    assert expected.censored > 0
    for data, censored in (
        (log, "late"), (str(tmp_path / "log.csv"), "late"), (str(tmp_path / "log.csv"), None),
        (matrix, matrix >= LIMIT), ((log.row, log.col, log.v), log.late),
    ):  # fmt: skip
        same_scores(fit.evaluate(data, censored=censored), expected)


def test_left_censoring_mirrors_right_censoring():
    marked = (I, J, -TRAINED), {"censored": ("left", -LIMIT)}
    fits = (
        MODELS["factorization"](DATA, **RIGHT),
        fastemf.complete(marked[0], 0.1, **SETTINGS, **marked[1]),
    )
    right, left = (fit.evaluate(test) for fit, test in zip(fits, (TEST, (I, J, -CUT)), strict=True))
    assert fits[1].censored == ("left", -LIMIT)
    for name in ("fit", "constant"):
        one, other = right.score(name), left.score(name)
        assert other.loss == pytest.approx(one.loss, rel=1e-6)
        assert other.pinball == pytest.approx(one.pinball, rel=1e-6)
        assert other.coverage == pytest.approx(1 - one.coverage, rel=1e-6)


def test_summaries_of_rows_add_up_to_the_evaluation(make):
    model = make(DATA, **RIGHT)
    evaluation = model.evaluate(TEST)
    for axis in (0, 1):
        if hasattr(model, "taus"):
            summary, score = model.summary(TEST, axis, tau=0.9), evaluation.score(tau=0.9)
            predicted = model.predict(I, J)[:, 1]
            short = predicted < LIMIT
            counts = np.bincount((I, J)[axis], short)
            covered = np.average(np.where(counts, summary.coverage, 0), weights=counts)
            assert covered == pytest.approx(score.coverage)
            assert summary.loss.mean() == pytest.approx(score.pinball)
        else:
            level = {} if isinstance(model, fastemf.Factorization) else {"omega": 0.9}
            summary, score = model.summary(TEST, axis, **level), evaluation.score(omega=0.9)
            assert summary.loss.mean() == pytest.approx(score.loss)


def test_marked_values_need_marks_and_a_fit_without_censored_values_cannot_impute():
    marked = fastemf.complete(DATA, 0.5, **SETTINGS, censored=TRAINED >= LIMIT)
    assert marked.censored is None
    with pytest.warns(UserWarning, match="all values of these data are taken as exact"):
        exact = marked.evaluate(TEST)
    same_scores(exact, marked.evaluate(TEST, censored=False))
    plain = fastemf.complete((I, J, WHOLE), 0.5, **SETTINGS)
    with pytest.raises(ValueError, match="fitted to some censored values; censored=False takes"):
        plain.evaluate(TEST, **RIGHT)


def test_metrics_of_censored_values():
    rng = np.random.default_rng(0)
    values, predicted = rng.lognormal(0, 1, 500), rng.lognormal(0, 1, 500)
    cut = np.minimum(values, 2.0)
    known = pinball_loss(cut, np.minimum(predicted, 2.0), 0.7)
    assert pinball_loss(cut, predicted, 0.7, censored=("right", 2.0)) == pytest.approx(known)
    assert pinball_loss(cut, predicted, 0.7, censored=cut == 2.0) == pytest.approx(known)
    assert pinball_loss(-cut, -predicted, 0.3, censored=("left", -2.0)) == pytest.approx(known)
    short = predicted < 2.0
    share = np.mean((values <= predicted)[short])
    assert coverage(cut, predicted, censored=("right", 2.0)) == pytest.approx(share)
    assert np.isnan(coverage(cut, np.full(500, 2.0), censored=("right", 2.0)))
    # Proper: of all constants below the limit, the quantile of the whole values is best.
    quantile = np.quantile(values, 0.601, method="inverted_cdf")
    losses = [
        pinball_loss(cut, np.full(500, one), 0.601, censored=("right", 2.0)) for one in np.sort(cut)
    ]
    assert np.sort(cut)[int(np.argmin(losses))] == quantile < 2.0
    with pytest.raises(ValueError, match="censored must mark each of the 500 values, got 2"):
        coverage(cut, predicted, censored=[True, False])
