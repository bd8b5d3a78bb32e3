"""Checks of parameters: they return the normalized value, or raise an error.

Messages name the parameter, the rule and the value received.
"""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np

from fastemf.support.arrays import Array, Floats

SAME_LEVEL = 1e-9  # tolerance: 0.1 + 0.2 selects 0.3


def check_level(omega: Any, name: str = "omega") -> float:
    """Return an expectile level in (0, 1)."""
    if isinstance(omega, (list, tuple)) or np.ndim(omega) > 0 or hasattr(omega, "tocsr"):
        raise TypeError(
            f"{name} must be one number in (0, 1), the expectile level; it is not the observed set "
            "Omega (missing entries are those not stored in a sparse R, or NaN in a dense R), and "
            f"several levels are for complete_levels; got {_describe(omega)}"
        )
    if not _is_number(omega):
        raise TypeError(f"{name} must be a number in (0, 1), got {_describe(omega)}")
    if not 0.0 < float(omega) < 1.0:
        raise ValueError(
            f"{name} must lie strictly between 0 and 1 (a level, not a percentage or a "
            f"percentile), got {omega!r}"
        )
    return float(omega)


def check_levels(omegas: Any) -> tuple[float, ...]:
    """Return two or more different levels, in increasing order."""
    if isinstance(omegas, str) or (np.ndim(omegas) == 0 and not hasattr(omegas, "__iter__")):
        raise TypeError(
            "omegas must be two or more levels in (0, 1); for one level use complete, "
            f"got {_describe(omegas)}"
        )
    levels = sorted(check_level(omega, "each of omegas") for omega in omegas)
    if len(levels) < 2:
        raise ValueError(
            f"omegas must be two or more levels; for one level use complete, got {levels}"
        )
    if len(set(levels)) < len(levels):
        raise ValueError(f"omegas must be different levels, got {levels}")
    return tuple(levels)


def check_quantiles(taus: Any) -> tuple[float, ...]:
    """Return one or more different quantile levels in (0, 1), in increasing order."""
    if isinstance(taus, str):
        raise TypeError(f"taus must be numbers in (0, 1), got {_describe(taus)}")
    given = taus if hasattr(taus, "__iter__") and np.ndim(taus) else (taus,)
    checked = sorted(check_proportion(tau, "each of taus") for tau in given)
    if not checked or len(set(checked)) < len(checked):
        raise ValueError(f"taus must be one or more different numbers, got {checked}")
    return tuple(checked)


def check_fitted_level(
    level: Any, fitted: tuple[float, ...], name: str, what: str = "levels"
) -> int:
    """Return the index of a level, or of a quantile, among the fitted ones."""
    wanted = check_level(level, name) if what == "levels" else check_proportion(level, name)
    distances = [abs(one - wanted) for one in fitted]
    if min(distances) > SAME_LEVEL:
        which = ", ".join(f"{one:g}" for one in fitted)
        raise ValueError(f"{name} must be one of the {what} fitted, {which}, got {level:g}")
    return distances.index(min(distances))


def check_integer(value: Any, name: str, *, minimum: int, unless: str = "") -> int:
    """Return an integer that is at least `minimum`; `unless` extends the message."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {_describe(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}{unless}, got {value}")
    return int(value)


def check_rank(k: Any, shape: tuple[int, int], name: str = "k", *, minimum: int = 1) -> int:
    """Return a rank between `minimum` and the smaller dimension."""
    k = check_integer(k, name, minimum=minimum)
    if k > min(shape):
        raise ValueError(
            f"{name} must be at most min(rows, columns) = {min(shape)} for a matrix of "
            f"{shape[0]} rows and {shape[1]} columns, got {k}"
        )
    return int(k)


def check_model_rank(k: Any, name: str = "k", *, intercepts: bool) -> int:
    """Return a rank of at least 1, or at least 0 with intercepts."""
    if intercepts:
        return check_integer(k, name, minimum=0)
    return check_integer(
        k, name, minimum=1, unless=" (0 fits intercepts only and needs intercepts=True)"
    )


def check_number(value: Any, name: str) -> float:
    """Return a finite number >= 0."""
    if not _is_number(value):
        raise TypeError(f"{name} must be a number, got {_describe(value)}")
    if not 0.0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return float(value)


def check_proportion(value: Any, name: str) -> float:
    """Return a proportion in (0, 1)."""
    if not 0.0 < check_number(value, name) < 1.0:
        raise ValueError(
            f"{name} must be a proportion strictly between 0 and 1 (0.95, not 95), got {value!r}"
        )
    return float(value)


def check_reg(reg: Any) -> float | Literal["auto", "noise"]:
    """Return a ridge: ``"auto"``, ``"noise"`` or a number >= 0."""
    if isinstance(reg, str) and reg not in ("auto", "noise"):
        raise ValueError(f'reg must be "auto", "noise" or a number >= 0, got {reg!r}')
    return reg if isinstance(reg, str) else check_number(reg, "reg")  # type: ignore[return-value]


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """Return one of the choices."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {words}, got {value!r}")
    return value


def check_axis(axis: Any, meanings: tuple[str, str]) -> int:
    """Return an axis, 0 or 1; the message explains both."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or axis not in (0, 1):
        raise ValueError(f"axis must be 0 ({meanings[0]}) or 1 ({meanings[1]}), got {axis!r}")
    return int(axis)


def check_clip(clip: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the bounds of predictions in their dtype, infinite for an open side."""
    if clip is None:
        return dtype.type(-np.inf), dtype.type(np.inf)
    try:
        low, high = clip
    except (TypeError, ValueError):
        raise ValueError(
            f"clip must be (low, high), None for an open side, got {_describe(clip)}"
        ) from None
    bounds = []
    for bound, name, free in ((low, "clip[0]", -np.inf), (high, "clip[1]", np.inf)):
        if bound is None:
            bounds.append(dtype.type(free))
            continue
        if not _is_number(bound):
            raise TypeError(f"{name} must be a number or None, got {_describe(bound)}")
        with np.errstate(over="ignore"):  # infinity raises below
            bounds.append(dtype.type(bound))
        if not np.isfinite(bounds[-1]):
            raise ValueError(f"{name} must be finite in {dtype}, or None, got {bound!r}")
    if bounds[0] > bounds[1]:
        raise ValueError(f"clip must be (low, high) with low <= high, got {clip!r}")
    return bounds[0], bounds[1]


def check_flag(value: Any, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {_describe(value)}")
    return bool(value)


def check_rng(random_state: Any) -> np.random.Generator:
    """Return a generator from a seed, a generator, or None for fresh entropy."""
    message = (
        "random_state must be None, a non-negative integer or a numpy Generator, "
        f"got {_describe(random_state)}"
    )
    if isinstance(random_state, (bool, np.bool_)):
        raise TypeError(message)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(message) from None


def check_shape(shape: Any, name: str) -> tuple[int, int]:
    """Return (rows, columns), at least one each."""
    try:
        m, n = shape
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be (rows, columns), got {_describe(shape)}") from None
    return (check_integer(m, f"{name}[0]", minimum=1), check_integer(n, f"{name}[1]", minimum=1))


def check_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype for computation: float32 stays, other types become float64."""
    if dtype.kind not in "biuf":
        hint = (
            "; convert objects with .astype(float), a nullable pandas table with "
            ".to_numpy(float, na_value=np.nan)"
            if dtype.kind == "O"
            else ""
        )
        raise TypeError(f"{name} must hold real numbers, got dtype {dtype}{hint}")
    is_single = dtype.kind == "f" and dtype.itemsize == 4
    return np.dtype(np.float32) if is_single else np.dtype(np.float64)


def check_indices(indices: Any, name: str, size: int | None, *, widen: bool = True) -> Array:
    """Return non-negative integers, below `size` if given, widened to int64 by default."""
    array = np.asarray(indices)
    if array.size == 0 and array.dtype.kind == "f":  # np.asarray([]) is float64
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must hold integers, got dtype {array.dtype}; turn labels into "
            "positions with np.unique(labels, return_inverse=True), whole floats with "
            ".astype(int)"
        )
    if array.size:
        lowest, highest = int(array.min()), int(array.max())
        if lowest < 0:
            raise IndexError(f"{name} must not be negative, got {lowest}")
        if size is not None and highest >= size:
            raise IndexError(f"{name} must be below {size}, got {highest}")
        if highest > np.iinfo(np.int64).max:
            raise IndexError(f"{name} must fit into 64-bit integers, got {highest}")
    return array.astype(np.int64, copy=False) if widen else array


def check_factor(factor: Any, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Floats:
    """Return a real matrix of the given shape, small enough for `dtype`."""
    array = np.asarray(factor)
    check_dtype(array.dtype, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        row, col = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{name} must be finite, got {array[row, col]} at ({row}, {col})")
    limit = float(np.finfo(dtype).max) ** 0.25  # squares of products are still finite
    if array.size and (largest := float(np.abs(array).max())) > limit:
        raise ValueError(f"{name} must be below {limit:.2g} in {dtype}, got {largest}")
    return array.astype(np.float64)


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number, not a bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def _describe(value: Any) -> str:
    """Return a short description of a value."""
    if hasattr(value, "shape") and np.ndim(value) > 0:
        return f"{type(value).__name__} of shape {value.shape}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
