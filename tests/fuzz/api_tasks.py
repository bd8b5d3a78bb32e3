"""One case of the API's fuzzer: a public task with data and settings drawn from a seed."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import api_checks as checks
import numpy as np
from api_cases import LEVELS, REPEATING, Data, Settings, draw_data, draw_settings, pick
from api_measurements import measure

import fastemf

TASKS = ("complete",) * 8 + ("levels",) * 3 + ("coverage", "select", "select") + ("sense",) * 3
TASKS += ("pairs", "rows", "loss")


def run(seed: int, folder: Path) -> str:
    """Run the case of one seed; return its task, and whether it was refused or fitted."""
    rng = np.random.default_rng(seed)
    task = pick(rng, TASKS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = measure(rng, folder) if task == "sense" else globals()[f"_{task}"](rng, folder)
    checks.check_warnings(caught)
    return f"{task} {outcome}"


def everyday(data: Data, settings: Settings) -> bool:
    """Whether data and settings leave no reason to refuse."""
    return settings.valid and settings.moderate and not data.extreme


def handed_over(data: Data, settings: Settings) -> dict[str, Any]:
    """All that a task of the family of `complete` is told by name."""
    options = settings.options | data.options
    if data.weights is not None:
        options["weights"] = data.weights
    if isinstance(options["init"], str) and options["init"] == "earlier":
        options["init"] = "spectral"
        short = {name: options[name] for name in ("weights", "rows", "cols", "values", "shape")
                 if name in options}  # fmt: skip
        earlier = checks.called(
            fastemf.complete, False, data.R, 0.5, settings.k, max_iter=1,
            intercepts=settings.options["intercepts"], **short,
        )  # fmt: skip
        options["init"] = "random" if earlier is None else earlier
    return options


def asked(data: Data, **more: Any) -> dict[str, Any]:
    """What questions to a fit are told of the data's form."""
    given = {} if data.weights is None else {"weights": data.weights}
    return given | data.options | more


def is_exact(settings: Settings) -> bool:
    """Whether rows are solved to their minimum."""
    return settings.options["solver"] != "cg"


def _complete(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng)
    settings = draw_settings(rng, data)
    options, must_work = handed_over(data, settings), everyday(data, settings)
    before = checks.kept(data.R), checks.kept(data.weights)
    fits = [
        checks.called(fastemf.complete, must_work, data.R, settings.omega, settings.k,
               **{"n_jobs": jobs, **options})
        for jobs in (1, 2)
    ]  # fmt: skip
    checks.check_untouched(data.R, before[0])
    checks.check_untouched(data.weights, before[1])
    assert (fits[0] is None) == (fits[1] is None), "refused for one number of threads only"
    if fits[0] is None:
        return "refused"
    assert settings.valid, f"not refused: {settings}"
    fit, placed = fits[0], data.placed(fits[0])
    checks.check_identical(*fits, "one thread and two")
    whole, exact = "validation" not in options, is_exact(settings)
    checks.check_fit(fit, placed, exact=exact, whole=whole)
    checks.check_file(fit, folder / "fit.npz")
    checks.check_questions(fit, placed, rng)
    if whole:
        for axis in (0, 1):
            checks.check_summary(fit, data, axis, **asked(data))
        checks.check_data_questions(fit, data, rng, **asked(data))
        if exact:
            checks.check_folded(fit, data, **asked(data))
    checks.check_untouched(data.R, before[0])
    return "fitted"


def _levels(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng)
    settings = draw_settings(rng, data)
    omegas = sorted({settings.omega, *(pick(rng, LEVELS) for _ in range(2))})
    if len(omegas) < 2:
        omegas.append(0.42)
    options = handed_over(data, settings)
    must_work = everyday(data, settings) and all(1e-3 <= omega <= 0.999 for omega in omegas)
    levels = [
        checks.called(fastemf.complete_levels, must_work, data.R, omegas, settings.k,
               **{"n_jobs": jobs, **options})
        for jobs in (1, 2)
    ]  # fmt: skip
    if levels[0] is None:
        return "refused"
    assert settings.valid, f"not refused: {settings}"
    for one, two in zip(levels[0].fits, levels[1].fits, strict=True):
        checks.check_identical(one, two, "one thread and two")
        whole, exact = "validation" not in options, is_exact(settings)
        checks.check_fit(one, data.placed(one), exact=exact, whole=whole)
    found = levels[0]
    rows, cols = checks.ids(found.fits[0])
    together = found.predict(rows[:, None], cols)
    assert (np.diff(together, axis=-1) >= 0).all(), "levels cross"
    assert (found.spread(rows[:, None], cols) >= 0).all()
    alone = np.stack([fit.predict(rows[:, None], cols) for fit in found.fits], axis=-1)
    np.testing.assert_array_equal(together, np.sort(alone, axis=-1))
    assert (np.diff(found.predict_block(rows[:2]), axis=-1) >= 0).all()
    checks.check_file(found, folder / "levels.npz")
    return "fitted"


def _coverage(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng, least=12)
    settings = draw_settings(rng, data)
    wanted = float(rng.uniform(0.2, 0.8))
    share = float(rng.uniform(0.3, 0.6))
    options = handed_over(data, settings) | {"max_iter": 10, "held_out": share}
    left = round(share * data.cells) * min(wanted, 1 - wanted)
    must_work = everyday(data, settings) and data.v is None and data.form not in REPEATING
    must_work &= left >= 21 and "validation" not in options
    found = [
        checks.called(fastemf.level_for_coverage, must_work, data.R, wanted, settings.k,
               **{"n_jobs": jobs, **options})
        for jobs in (1, 2)
    ]  # fmt: skip
    if found[0] is None:
        return "refused"
    one, two = found
    checks.check_identical(one.fit, two.fit, "one thread and two")
    checks.check_fit(one.fit, data.placed(one.fit), exact=False, whole=False)
    assert one.tried == two.tried
    assert 0 <= one.coverage <= 1
    assert one.interval[0] <= one.coverage <= one.interval[1]
    assert np.isfinite([one.shift, one.standard_error, *one.interval]).all()
    assert one.shift != 0 or (one.omega, one.coverage) in one.tried
    assert 0 < one.held_out < data.rows.size
    checks.check_file(one.fit, folder / "fit.npz")
    return "fitted"


def _select(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng)
    settings = draw_settings(rng, data)
    options = handed_over(data, settings)
    for name in ("init", "reg"):
        options.pop(name)
    size = min(float(np.abs(data.values).max()), 1e300)
    regs = [settings.options["reg"], *([] if rng.random() < 0.5 else [0.1 * size])]
    ks = sorted({1, settings.k}) if rng.random() < 0.7 else None
    rule = pick(rng, ("best", "one_se"))
    options["max_iter"] = min(options["max_iter"], 10)
    must_work = everyday(data, settings) and data.cells >= 8
    must_work &= len(regs) == 1 or not options["orthogonalize"]
    must_work &= options["solver"] != "cg" or 0 not in regs  # as it is where all values are
    found = [
        checks.called(fastemf.select, must_work, data.R, settings.omega, ks, regs, 2,
               **{"rule": rule, "n_jobs": jobs, **options})
        for jobs in (1, 2)
    ]  # fmt: skip
    if found[0] is None:
        return "refused"
    one, two = found
    assert repr(one) == repr(two)
    checks.check_identical(one.fit, two.fit, "one thread and two")
    left = [row for row in one.table if not row.dropped]
    assert one.best in left
    assert all(np.isfinite(row.loss) and row.loss >= 0 for row in one.table), "losses"
    assert rule == "one_se" or one.best.loss == min(row.loss for row in left)
    alone = fastemf.complete(
        data.R, settings.omega, one.best.k, reg=one.best.reg, n_jobs=1, **options
    )
    checks.check_identical(one.fit, alone, "select's fit and complete's")
    checks.check_fit(one.fit, data.placed(one.fit), exact=is_exact(settings),
                     whole="validation" not in options)  # fmt: skip
    return "fitted"


# --- estimators, and the loss --------------------------------------------------------------------


def _estimator_settings(rng: np.random.Generator, data: Data) -> tuple[Settings, dict[str, Any]]:
    settings = draw_settings(rng, data)
    options = {
        name: value for name, value in settings.options.items()
        if name not in ("orthogonalize", "validation", "patience")
    }  # fmt: skip
    if isinstance(options["init"], str) and options["init"] == "earlier":
        options["init"] = "random"
    return settings, options


def _rows(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng, ("dense", "masked", "csr", "csc", "coo"))
    data.weights = data.v = None
    settings, options = _estimator_settings(rng, data)
    model = fastemf.ExpectileFactorization(settings.omega, settings.k, **options)
    before = checks.kept(data.R)
    if checks.called(model.fit, everyday(data, settings), data.R, also="sklearn") is None:
        return "refused"
    fit = model.factorization_
    if not data.dtype.isnative:  # scikit-learn converts these
        data.dtype = fit.X.dtype
    checks.check_fit(fit, data, exact=False, whole=False)
    factors = checks.called(model.transform, False, data.R, also="sklearn")
    if factors is None:
        return "fitted, and refused to transform"
    assert factors.shape == (data.shape[0], fit.k + settings.options["intercepts"])
    again = checks.called(model.inverse_transform, not data.extreme, factors)
    if again is None:
        return "fitted, and refused to go back"
    assert again.shape == data.shape
    assert np.isfinite(again).all()
    score = model.score(data.R)
    assert np.isnan(score) or score <= 1
    checks.check_untouched(data.R, before)
    return "fitted"


def _pairs(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng, ("pandas log",))
    settings, options = _estimator_settings(rng, data)
    model = fastemf.ExpectilePairRegressor(settings.omega, settings.k, **options)
    X, y = data.R[["row", "col"]], data.R["value"].to_numpy()
    before = data.R.copy(deep=True)
    kind = pick(rng, ("table", "list", "array"))
    given = {"table": X, "list": list(map(tuple, X.to_numpy().tolist())), "array": X.to_numpy()}
    must_work = everyday(data, settings)
    done = checks.called(model.fit, must_work, given[kind], y, sample_weight=data.v, also="sklearn")
    if done is None:
        return "refused"
    model = pickle.loads(pickle.dumps(model))
    predicted = model.predict(given[kind])
    assert np.isfinite(predicted).all()
    fit = model.factorization_
    np.testing.assert_array_equal(predicted, fit.predict(X["row"], X["col"]))
    unknown = fit.predict(X["row"][:1], [X["col"].iloc[0]], unknown="nan")
    assert unknown == predicted[0]
    score = model.score(X, y, sample_weight=data.v)
    assert np.isnan(score) or score <= 1
    checks.check_untouched(data.R, before)
    return "fitted"


def _loss(rng: np.random.Generator, folder: Path) -> str:
    data = draw_data(rng, REPEATING)
    omega = pick(rng, LEVELS)
    values, v = data.values, data.mass()
    if not 1e-140 < np.abs(values).max() < 1e140:
        return "left out"
    e = fastemf.loss.expectile(values, omega, data.v)
    assert values.min() <= e <= values.max()
    above, below = v * np.maximum(values - e, 0), v * np.maximum(e - values, 0)
    left = abs(omega * above.sum() - (1 - omega) * below.sum())
    terms = v * (np.abs(values) + abs(e)) * np.where(values >= e, omega, 1 - omega)
    # What lies at e to rounding counts either way.
    near = v * (np.abs(values - e) <= 1e-14 * (np.abs(values) + abs(e))) * np.abs(e)
    assert left <= 1e-12 * (terms.sum() + near.sum()), f"expectile: {left} of {terms.sum()}"
    level = fastemf.metrics.effective_omega(values - e, data.v)
    size = float(np.sum(v * np.abs(values - e)))
    if size > 1e-6 * float(np.sum(v * np.abs(values))):
        assert abs(level - omega) <= 1e-5, f"effective level {level}"
    return "fitted"
