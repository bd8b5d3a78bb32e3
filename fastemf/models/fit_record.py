"""One fit in a model file: a header with the scalars, and arrays for the rest.

Reading checks every key, type, shape and value, so that a damaged file is an error here and not a
wrong prediction later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fastemf.censoring.imputation import Imputation
from fastemf.censoring.kaplan_meier import KNOTS, ConditionalExpectation
from fastemf.censoring.limits import parse_limit
from fastemf.inputs.label_arrays import from_arrays, to_arrays
from fastemf.inputs.labels import Labels
from fastemf.models.entities import Entities
from fastemf.models.held_out import DriftReport, pack_reports, unpack_report
from fastemf.solver.records import FIELDS, pack_history, unpack_history
from fastemf.support.array_file import DamagedFileError, check_keys, require
from fastemf.support.arrays import Array
from fastemf.tuning import corrections
from fastemf.tuning.baselines import TrainingBaselines
from fastemf.tuning.corrections import Corrections, EntityEffects
from fastemf.tuning.noise import EntityNoise
from fastemf.tuning.record import pack_tuning, unpack_tuning

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization

Header = dict[str, Any]
Arrays = dict[str, Array]
Parsed = TypeVar("Parsed")

SCALARS: dict[str, type] = {"reg_scaling": str, "family": str, "converged": bool, "weighted": bool}
SCALARS |= dict.fromkeys(("omega", "mu", "reg", "intercept_reg", "scale", "shift"), float)
FAMILIES = ("equal", "weighted", "ridged")
# Array names, each for rows and for columns.
FACTORS = ("X", "Y")
INTERCEPTS = ("row_intercepts", "col_intercepts")
UNSEEN = ("unseen_rows", "unseen_cols")
LABELS = ("row_labels", "col_labels")
OFFSETS = ("row_label_offsets", "col_label_offsets")  # start of each string
NOISE = ("row_noise", "col_noise")
EFFECTS = ("row_effects", "col_effects")  # which the correction tables are over
BASELINES = ("baseline_rows", "baseline_cols")  # intercepts and medians of the training data
BASELINE_NUMBERS = ("constant", "column", "both", "median", "ridge")
SCALES = ("imputation_rows", "imputation_cols")  # residual scales
CURVES = ("imputation_right", "imputation_left")  # two rows: knots and values
# Header fields that are null where the fit has no such part, and the arrays of that part.
OPTIONAL: dict[str, tuple[str, ...]] = {
    "noise": NOISE,
    "corrections": EFFECTS,
    "baselines": BASELINES,
    "imputation": (*SCALES, *CURVES),
    "row_labels": (LABELS[0], OFFSETS[0]),
    "col_labels": (LABELS[1], OFFSETS[1]),
}
HEADER = {"history_fields", "intercepts", "tuning", "value_name", "censored", *SCALARS, *OPTIONAL}


def pack_fit(fit: Factorization) -> tuple[Header, Arrays]:
    """Return the header and the arrays of a fit, in the form that `unpack_fit` reads."""
    header: Header = {name: kind(getattr(fit, name)) for name, kind in SCALARS.items()}
    header |= {"history_fields": list(FIELDS), "intercepts": fit.rows.has_intercepts}
    header |= {"tuning": pack_tuning(fit.tuning), "value_name": fit.value_name}
    header |= {"censored": fit.censored} | pack_reports(drift=fit.drift)
    header |= dict.fromkeys(OPTIONAL)
    arrays: Arrays = {"history": pack_history(fit.history)}
    for at, axis in enumerate(fit.axes):
        arrays |= {FACTORS[at]: axis.factor, UNSEEN[at]: axis.unseen}
        if axis.intercepts is not None:
            arrays[INTERCEPTS[at]] = axis.intercepts
        if axis.labels is not None:
            header[LABELS[at]], (arrays[LABELS[at]], arrays[OFFSETS[at]]) = to_arrays(axis.labels)
    noise = [axis.noise for axis in fit.axes if axis.noise is not None]
    if len(noise) == len(fit.axes):
        header["noise"] = [one.base for one in noise]
        arrays |= {name: one.variances for name, one in zip(NOISE, noise, strict=True)}
    effects = [axis.effects for axis in fit.axes if axis.effects is not None]
    if len(effects) == len(fit.axes):
        header["corrections"], of_tables = corrections.pack_corrections(effects[0].corrections)
        arrays |= {name: one.values for name, one in zip(EFFECTS, effects, strict=True)} | of_tables
    if fit.training is not None:
        header["baselines"] = {name: getattr(fit.training, name) for name in BASELINE_NUMBERS}
        arrays |= dict(zip(BASELINES, (fit.training.rows, fit.training.cols), strict=True))
    if fit.imputation is not None:
        imputation = fit.imputation
        curves = [np.stack([curve.at, curve.by]) for curve in (imputation.right, imputation.left)]
        header["imputation"] = list(imputation.bounds)
        arrays |= dict(zip((*SCALES, *CURVES), (*imputation.scales, *curves), strict=True))
    _check_range(header, arrays)
    return header, arrays


def unpack_fit(header: Header, arrays: Arrays) -> dict[str, Any]:
    """Check the header and the arrays of a fit, and return the fields of its constructor."""
    check_keys(header.keys(), HEADER | ({"drift"} & header.keys()), "header field")
    intercepts = header["intercepts"]
    require(type(intercepts) is bool, "intercepts must be bool")
    _check_array_names(header, arrays)
    _check_scalars(header)
    X, Y = arrays["X"], arrays["Y"]
    right = X.ndim == Y.ndim == 2 and X.shape[1] == Y.shape[1] and len(X) > 0 and len(Y) > 0
    require(
        right and X.shape[1] + intercepts > 0,
        f"X and Y must be matrices of equal rank, not empty, got shapes {X.shape} and {Y.shape}",
    )
    require(X.dtype in (np.float32, np.float64), f"X must be float32 or float64, got {X.dtype}")
    for name in (*FACTORS, *(INTERCEPTS if intercepts else ())):
        require(arrays[name].dtype == X.dtype, f"{name} must have the dtype of X")
    tables = None
    if header["corrections"] is not None:
        require(intercepts, "corrections require intercepts")
        tables = corrections.unpack_corrections(header["corrections"], arrays)
    _check_range(header, arrays)
    labelled = [header[name] is not None for name in LABELS]
    require(labelled[0] == labelled[1], "labels must be given for rows and columns, or for neither")
    value_name = header["value_name"]
    require(value_name is None or type(value_name) is str, "value_name must be a string")
    require(header["history_fields"] == list(FIELDS), "history must have its columns")
    return {
        **{name: header[name] for name in SCALARS},
        "rows": _unpack_axis(0, header, arrays, tables),
        "cols": _unpack_axis(1, header, arrays, tables),
        "history": _parse(lambda: unpack_history(arrays["history"], list(FIELDS))),
        "tuning": _parse(lambda: unpack_tuning(header["tuning"])),
        "training": _unpack_baselines(header["baselines"], arrays, (len(X), len(Y))),
        "value_name": value_name,
        "imputation": _unpack_imputation(header["imputation"], arrays, (len(X), len(Y))),
        "censored": _unpack_limit(header["censored"]),
        "drift": unpack_report(DriftReport, header, "drift"),
    }


def _check_array_names(header: Header, arrays: Arrays) -> None:
    """Check that the arrays are those that the header requires."""
    expected = {"header", "history", *FACTORS, *UNSEEN}
    expected |= set(INTERCEPTS if header["intercepts"] else ())
    for name, required in OPTIONAL.items():
        expected |= set(required if header[name] is not None else ())
    if header["corrections"] is not None:
        for place in range(len(corrections.check_corrections(header["corrections"]))):
            expected |= set(corrections.array_names(place))
    check_keys(arrays.keys(), expected, "array")


def _check_scalars(header: Header) -> None:
    for name, kind in SCALARS.items():
        require(type(header[name]) is kind, f"{name} must be {kind.__name__}")
    require(0 < header["omega"] < 1, "omega must lie in (0, 1)")
    require(header["reg_scaling"] in ("count", "plain"), "reg_scaling must be count or plain")
    for name in ("reg", "intercept_reg", "scale"):
        require(0 <= header[name] < np.inf, f"{name} must be finite and not negative")
    require(header["family"] in FAMILIES, f"family must be one of {', '.join(FAMILIES)}")
    has_noise = header["noise"] is not None
    require(has_noise or header["family"] == "equal", "noise must be given unless family is equal")


def _check_range(header: Header, arrays: Arrays) -> None:
    """Refuse numbers that are not finite, or so large that predictions may overflow."""
    for name in ("mu", "shift"):
        require(bool(np.isfinite(header[name])), f"{name} must be finite")
    over = (header["corrections"] or {}).get("over", ())
    added = (*INTERCEPTS, *(corrections.array_names(place)[-1] for place in range(len(over))))
    sizes = {
        # Needs no temporary array of that length; NaN propagates.
        name: float(np.abs([arrays[name].min(initial=0), arrays[name].max(initial=0)]).max())
        for name in (*FACTORS, *added)
        if name in arrays
    }
    for name, size in sizes.items():
        require(bool(np.isfinite(size)), f"{name} must be finite")
    largest = arrays["X"].shape[1] * sizes["X"] * sizes["Y"]
    largest += abs(header["mu"]) + abs(header["shift"])
    largest += sum(sizes.get(name, 0.0) for name in added)
    limits = np.finfo(arrays["X"].dtype)
    require(largest < float(limits.max) / 2, f"its numbers must not overflow {limits.dtype}")


def _unpack_axis(at: int, header: Header, arrays: Arrays, tables: Corrections | None) -> Entities:
    """Read the rows (0) or the columns (1) of a fit, whose factors are already checked."""
    factor, unseen, intercepts = arrays[FACTORS[at]], arrays[UNSEEN[at]], arrays.get(INTERCEPTS[at])
    n = len(factor)
    if intercepts is not None:
        require(intercepts.shape == (n,), f"{INTERCEPTS[at]} must have shape ({n},)")
    right = unseen.dtype == np.int64 and unseen.ndim == 1
    right = right and bool(((unseen >= 0) & (unseen < n)).all())
    require(right, f"{UNSEEN[at]} must hold indices below {n}")
    noise = effects = labels = None
    if header["noise"] is not None:
        _check_numbers(header["noise"], "noise", 0.0)
        _check_positive(NOISE[at], arrays[NOISE[at]], n)
        noise = EntityNoise(arrays[NOISE[at]], header["noise"][at])
    if tables is not None:
        corrections.check_numbers(EFFECTS[at], arrays[EFFECTS[at]], n)
        effects = EntityEffects(arrays[EFFECTS[at]], tables)
    if header[LABELS[at]] is not None:
        labels = _unpack_labels(LABELS[at], OFFSETS[at], header, arrays, n)
    return Entities(factor, intercepts, labels, unseen, noise, effects)


def _unpack_labels(name: str, offsets: str, header: Header, arrays: Arrays, n: int) -> Labels:
    try:
        return from_arrays(header[name], arrays[name], arrays[offsets], n)
    except ValueError as error:
        raise DamagedFileError(f"{name}: {error}") from error


def _unpack_baselines(
    numbers: Any, arrays: Arrays, shape: tuple[int, int]
) -> TrainingBaselines | None:
    if numbers is None:
        return None
    right = isinstance(numbers, dict) and set(numbers) == set(BASELINE_NUMBERS)
    require(right, f"baselines must have the numbers {', '.join(BASELINE_NUMBERS)}")
    right = all(type(number) is float and np.isfinite(number) for number in numbers.values())
    require(right and numbers["ridge"] > 0, "baselines must have finite numbers, a positive ridge")
    rows, cols = (arrays[name] for name in BASELINES)
    corrections.check_numbers(BASELINES[0], rows, shape[0])
    corrections.check_numbers(BASELINES[1], cols, shape[1], 3)
    return TrainingBaselines(rows=rows, cols=cols, **numbers)


def _unpack_imputation(bounds: Any, arrays: Arrays, shape: tuple[int, int]) -> Imputation | None:
    if bounds is None:
        return None
    _check_numbers(bounds, "imputation", -np.inf)
    require(bounds[0] <= bounds[1], "imputation must be two bounds in order")
    for name, size in zip(SCALES, shape, strict=True):
        _check_positive(name, arrays[name], size)
    for name in CURVES:
        curve = arrays[name]
        right = curve.ndim == 2 and 1 <= curve.shape[1] <= KNOTS
        require(right, f"{name} must have at most {KNOTS} knots")
        corrections.check_numbers(name, curve, 2, curve.shape[1])
        require(bool((np.diff(curve[0]) > 0).all()), f"{name} must have increasing knots")
    rows, cols = (arrays[name] for name in SCALES)
    right_curve, left_curve = (ConditionalExpectation(*arrays[name]) for name in CURVES)
    return Imputation((rows, cols), right_curve, left_curve, (bounds[0], bounds[1]), None)


def _unpack_limit(pair: Any) -> tuple[str, float] | None:
    if pair is None:
        return None
    right = isinstance(pair, list) and [type(part) for part in pair] == [str, float]
    require(right, "censored must be a side and a limit")
    _parse(lambda: parse_limit(tuple(pair)))
    return pair[0], pair[1]


def _check_numbers(pair: Any, name: str, minimum: float) -> None:
    """Check that a header field holds two finite numbers of at least `minimum`."""
    right = isinstance(pair, list) and [type(number) for number in pair] == [float, float]
    right = right and all(np.isfinite(number) and number >= minimum for number in pair)
    bound = "" if minimum == -np.inf else f" of at least {minimum:g}"
    require(right, f"{name} must be two finite numbers{bound}")


def _check_positive(name: str, array: Array, size: int) -> None:
    corrections.check_numbers(name, array, size)
    require(bool((array > 0).all()), f"{name} must be positive")


def _parse(read: Callable[[], Parsed]) -> Parsed:
    """Call a reader whose ValueError means that the file is damaged."""
    try:
        return read()
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
