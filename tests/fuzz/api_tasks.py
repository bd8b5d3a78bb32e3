"""One case of the API fuzzer: a public task with data and settings drawn from a seed."""

import contextlib
import pickle
import warnings

import api_checks as checks
import numpy as np
from api_cases import FORMS, LEVELS, REPEATING, draw_data, draw_settings, pick
from api_measurements import measure

import fastemf

TASKS = ("complete",) * 8 + ("levels",) * 3 + ("select",) * 2 + ("sense",) * 3
TASKS += ("pairs", "rows", "loss")
SOME_FORMS = {
    "pairs": ("pandas log",), "rows": ("dense", "masked", "csr", "csc", "coo"), "loss": REPEATING,
}  # fmt: skip


def run(seed, folder):
    """Run the case of one seed; return its task, and whether it was refused or passed."""
    rng = np.random.default_rng(seed)
    task, outcome = pick(rng, TASKS), "passed"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if task == "sense":
                measure(rng, folder)
            else:
                data = draw_data(rng, SOME_FORMS.get(task, FORMS))
                with checks.unchanged(data.R, data.weights):
                    globals()[f"_{task}"](rng, data, folder)
        except checks.Refused:
            outcome = "refused"
    checks.check_warnings(caught)
    return f"{task} {outcome}"


def is_ordinary(data, settings):
    """Whether there is no reason to refuse the data and settings."""
    return settings.valid and 1e-3 <= settings.omega <= 0.999 and not data.extreme


def draw_options(rng, data):
    """Draw settings; return them, and all keyword arguments of `complete` and similar tasks."""
    settings = draw_settings(rng, data)
    options = settings.options | data.given
    if isinstance(options["init"], str) and options["init"] == "earlier":
        options["init"], same = "random", {"intercepts": options["intercepts"], **data.given}
        with contextlib.suppress(checks.Refused):
            options["init"] = checks.call(
                fastemf.complete, False, data.R, 0.5, settings.k, max_iter=1, **same
            )
    return settings, options


def call_task(task, data, settings, *args, must_work=True, **options):
    """Call a task with one thread and with two; return the results."""
    must_work &= is_ordinary(data, settings)
    found = checks.call_with_threads(task, must_work, data.R, *args, **options)
    ignored = task is fastemf.select  # has no init and reg, which may be the invalid ones
    assert settings.valid or ignored, f"not refused: {settings}"
    return found


def check_fits(one, two, data, settings, options):
    """Check a fit with one thread, and that the fit with two is bitwise identical."""
    checks.check_identical(one, two, "one thread and two")
    whole = "validation" not in options
    checks.check_fit(one, data.placed(one), exact=settings.exact, whole=whole)


def _complete(rng, data, folder):
    settings, options = draw_options(rng, data)
    task = fastemf.complete
    fit, other = call_task(task, data, settings, settings.omega, settings.k, **options)
    check_fits(fit, other, data, settings, options)
    checks.check_file(fit, folder / "fit.npz")
    checks.check_predictions(fit, rng)
    if "validation" not in options:
        checks.check_methods_with_data(fit, data, rng)
        if settings.exact:
            checks.check_fold_in(fit, data)


def _levels(rng, data, folder):
    settings, options = draw_options(rng, data)
    omegas = sorted({settings.omega, *(pick(rng, LEVELS) for _ in range(2))})
    if len(omegas) < 2:
        omegas.append(0.42)
    must_work = all(1e-3 <= omega <= 0.999 for omega in omegas)
    task, args = fastemf.complete_levels, (omegas, settings.k)
    model, other = call_task(task, data, settings, *args, must_work=must_work, **options)
    for one, two in zip(model.fits, other.fits, strict=True):
        check_fits(one, two, data, settings, options)
    rows, cols = checks.ids(model.fits[0])
    together = model.predict(rows[:, None], cols)
    assert (np.diff(together, axis=-1) >= 0).all(), "levels cross"
    assert (model.spread(rows[:, None], cols) >= 0).all()
    alone = np.stack([fit.predict(rows[:, None], cols) for fit in model.fits], axis=-1)
    np.testing.assert_array_equal(together, np.sort(alone, axis=-1))
    assert (np.diff(model.predict_block(rows[:2]), axis=-1) >= 0).all()
    checks.check_file(model, folder / "levels.npz")


def _select(rng, data, folder):
    settings, options = draw_options(rng, data)
    del options["init"], options["reg"]
    size = min(float(np.abs(data.values).max()), 1e300)
    regs = [settings.options["reg"], *([] if rng.random() < 0.5 else [0.1 * size])]
    ks = sorted({1, settings.k}) if rng.random() < 0.7 else None
    rule = pick(rng, ("best", "one_se"))
    options["max_iter"] = min(options["max_iter"], 10)
    must_work = len(regs) == 1 or not getattr(options["solver"], "orthogonalize", False)
    must_work &= settings.exact or 0 not in regs  # 0.1 * size is 0 where all values are
    must_work &= data.cells >= 8
    args, more = (settings.omega, ks, regs, 2), {"rule": rule, "must_work": must_work}
    one, two = call_task(fastemf.select, data, settings, *args, **more, **options)
    assert repr(one) == repr(two)
    check_fits(one.fit, two.fit, data, settings, options)
    left = [row for row in one.table if not row.dropped]
    assert one.best in left
    assert all(np.isfinite(row.loss) and row.loss >= 0 for row in one.table), "losses"
    assert rule == "one_se" or one.best.loss == min(row.loss for row in left)
    best = {"k": one.best.k, "reg": one.best.reg}
    alone = fastemf.complete(data.R, settings.omega, n_jobs=1, **best, **options)
    checks.check_identical(one.fit, alone, "the fits of select and complete")


# --- estimators, and the loss --------------------------------------------------------------------


def draw_estimator(rng, data, estimator):
    """Draw settings; return them and an estimator with them."""
    settings = draw_settings(rng, data)
    options = {name: value for name, value in settings.options.items() if name != "validation"}
    if isinstance(options["init"], str) and options["init"] == "earlier":
        options["init"] = "random"
    return settings, estimator(settings.omega, settings.k, **options)


def check_score(score):
    assert np.isnan(score) or score <= 1


def _rows(rng, data, folder):
    data.weights = data.v = None
    settings, model = draw_estimator(rng, data, fastemf.ExpectileFactorization)
    checks.call(model.fit, is_ordinary(data, settings), data.R, also="sklearn")
    fit = model.factorization_
    if not data.dtype.isnative:  # converted by scikit-learn
        data.dtype = fit.X.dtype
    checks.check_fit(fit, data, exact=False, whole=False)
    factors = checks.call(model.transform, False, data.R, also="sklearn")
    assert factors.shape == (data.shape[0], fit.k + settings.options["intercepts"])
    again = checks.call(model.inverse_transform, not data.extreme, factors)
    assert again.shape == data.shape
    assert np.isfinite(again).all()
    check_score(model.score(data.R))


def _pairs(rng, data, folder):
    settings, model = draw_estimator(rng, data, fastemf.ExpectilePairRegressor)
    X, y = data.R[["row", "col"]], data.R["value"].to_numpy()
    pairs = pick(rng, (X, list(map(tuple, X.to_numpy().tolist())), X.to_numpy()))
    weights = {"sample_weight": data.v}
    checks.call(model.fit, is_ordinary(data, settings), pairs, y, **weights, also="sklearn")
    model = pickle.loads(pickle.dumps(model))
    predicted = model.predict(pairs)
    assert np.isfinite(predicted).all()
    fit = model.factorization_
    np.testing.assert_array_equal(predicted, fit.predict(X["row"], X["col"]))
    assert fit.predict(X["row"][:1], [X["col"].iloc[0]], unknown="nan") == predicted[0]
    check_score(model.score(X, y, **weights))


def _loss(rng, data, folder):
    omega = pick(rng, LEVELS)
    values, v = data.values, data.mass()
    if not 1e-140 < np.abs(values).max() < 1e140:
        return
    e = fastemf.loss.expectile(values, omega, data.v)
    assert values.min() <= e <= values.max()
    above, below = v * np.maximum(values - e, 0), v * np.maximum(e - values, 0)
    left = abs(omega * above.sum() - (1 - omega) * below.sum())
    terms = v * (np.abs(values) + abs(e)) * np.where(values >= e, omega, 1 - omega)
    # Values equal to e up to rounding may count on either side.
    near = v * (np.abs(values - e) <= 1e-14 * (np.abs(values) + abs(e))) * np.abs(e)
    assert left <= 1e-12 * (terms.sum() + near.sum()), f"expectile: {left} of {terms.sum()}"
    level = fastemf.metrics.effective_omega(values - e, data.v)
    size = float(np.sum(v * np.abs(values - e)))
    if size > 1e-6 * float(np.sum(v * np.abs(values))):
        assert abs(level - omega) <= 1e-5, f"effective level {level}"
