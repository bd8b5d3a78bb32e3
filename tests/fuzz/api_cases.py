"""What the API's fuzzer draws: data in every form that users hand over, and settings of a fit.

A case follows from one seed. Of the data it keeps the entries that were meant, in plain arrays,
so that what the library made of them can be judged without it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp

LEVELS = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9)
FLOATS = ("<f8", "<f8", "<f8", "<f8", "<f4", "<f4", ">f8", ">f4", "<f2")
WHOLE = ("<i8", "<i4", "<i2", "|i1", "|u1", "<u4", ">i4", "|b1")
REPEATING = ("csr", "csc", "coo", "triplets", "arrow", "pandas log")
FORMS = (*REPEATING, "dense", "masked", "pandas matrix", "lil", "dok", "bsr", "dia")


@dataclass
class Data:
    """Data as handed over, and the entries that they mean."""

    R: Any
    form: str
    dtype: np.dtype  # as given
    shape: tuple[int, int]
    rows: np.ndarray
    cols: np.ndarray
    values: np.ndarray  # float64, but rounded to what is computed with
    v: np.ndarray | None  # weights of the entries
    weights: Any = None  # as handed over
    options: dict[str, Any] = field(default_factory=dict)  # names of columns, or a shape
    labels: tuple[list[Any], list[Any]] | None = None  # of the rows and columns meant
    extreme: bool = False  # large or small enough to be refused

    @property
    def computed(self) -> np.dtype:
        """The type that the library computes in."""
        single = self.dtype.kind == "f" and self.dtype.itemsize == 4
        return np.dtype(np.float32 if single else np.float64)

    @property
    def cells(self) -> int:
        """How many cells are observed."""
        return len({*zip(self.rows.tolist(), self.cols.tolist(), strict=True)})

    def mass(self) -> np.ndarray:
        """Weights, ones where there are none."""
        return np.ones(self.rows.size) if self.v is None else self.v

    def placed(self, fit: Any) -> Data:
        """The same entries by the positions that a labelled fit gives its rows and columns."""
        if self.labels is None:
            return self
        found = []
        for code, mine, theirs in zip(
            (self.rows, self.cols), self.labels, (fit.row_labels, fit.col_labels), strict=True
        ):
            where = {_key(label): i for i, label in enumerate(theirs.values.tolist())}
            found.append(np.array([where[_key(mine[i])] for i in code]))
        other = copy.copy(self)
        other.rows, other.cols, other.shape = found[0], found[1], fit.shape
        return other


def _key(label: Any) -> Any:
    return np.datetime64(label, "us") if hasattr(label, "isoformat") else label


def pick(rng: np.random.Generator, choices: Any) -> Any:
    """One of the choices, as it is."""
    return choices[int(rng.integers(len(choices)))]


def draw_data(rng: np.random.Generator, forms: Any = FORMS, *, least: int = 1) -> Data:
    """Draw a matrix, partly observed, and the form in which it is handed over."""
    m, n = _shape(rng, least)
    form = pick(rng, forms)
    dtype = np.dtype(pick(rng, WHOLE if rng.random() < 0.15 else FLOATS))
    matrix, observed = _matrix(rng, m, n), _observed(rng, m, n)
    if form == "dense" and dtype.kind != "f":
        observed[:] = True  # there is no NaN
    rows, cols = np.nonzero(observed)
    if form in REPEATING and rng.random() < 0.4:
        again = rng.integers(0, rows.size, int(rng.integers(1, rows.size + 1)))
        rows, cols = np.append(rows, rows[again]), np.append(cols, cols[again])
    order = rng.permutation(rows.size) if form in REPEATING else np.arange(rows.size)
    rows, cols = rows[order], cols[order]
    values = matrix[rows, cols]
    if rng.random() < 0.5:  # repeats differ
        values = values * (1 + 0.1 * rng.standard_normal(values.size))
    exponent = float(rng.uniform(-3, 3)) if rng.random() < 0.85 else float(rng.uniform(-300, 300))
    with np.errstate(over="ignore", invalid="ignore"):
        values = _cast(values * 10.0**exponent, dtype)
        size = np.abs(values.astype(np.float64))
    largest = float(np.max(size))
    data = Data(
        None, form, dtype, (m, n), rows, cols, values.astype(np.float64), None,
        extreme=not (largest == 0 or 1e-6 < largest < 1e7),
    )  # fmt: skip
    _weigh(rng, data)
    _hand_over(rng, data, values)
    return data


def _shape(rng: np.random.Generator, least: int) -> tuple[int, int]:
    kind = rng.random()
    if kind < 0.04:
        return max(1, least), max(1, least)
    top = 7 if kind < 0.5 else 40
    m, n = rng.integers(least, max(top, least + 1), 2)
    return int(m), int(n)


def _matrix(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    kind = pick(rng, ("skewed", "skewed", "ties", "constant", "exact", "signs", "offset", "tail"))
    skewed = rng.standard_normal((m, n)) ** 2 * rng.uniform(0.5, 2, n)
    if kind == "ties":
        return rng.integers(0, 4, (m, n)).astype(float)
    if kind == "constant":
        return np.full((m, n), float(rng.integers(-2, 3)))
    if kind == "exact":
        return np.outer(rng.uniform(1, 2, m), rng.uniform(1, 2, n))
    if kind == "signs":
        return rng.standard_normal((m, n))
    if kind == "offset":
        return skewed + 10.0 ** rng.uniform(1, 7)
    if kind == "tail":
        return np.exp(rng.uniform(0.5, 4) * rng.standard_normal((m, n)))
    return skewed


def _observed(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    observed = rng.random((m, n)) < pick(rng, (0.1, 0.3, 0.6, 0.9, 1.0))
    if rng.random() < 0.3:
        observed[rng.integers(0, m)] = False
        observed[:, rng.integers(0, n)] = False
    if not observed.any():
        observed[rng.integers(0, m), rng.integers(0, n)] = True
    return observed


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return values.astype(dtype)
    if dtype.kind == "b":
        return values > np.median(values)
    limits = np.iinfo(dtype)
    return np.clip(np.nan_to_num(values), float(limits.min), float(limits.max) * 0.99).astype(dtype)


def _weigh(rng: np.random.Generator, data: Data) -> None:
    kind = rng.random()
    if kind < 0.65:
        return
    size = data.rows.size
    if kind < 0.8:
        v = rng.uniform(0.1, 3, size)
    elif kind < 0.9:
        v = rng.integers(1, 5, size).astype(float)
    else:  # over twelve orders of magnitude
        v = 10.0 ** rng.uniform(-6, 6, size)
        data.extreme = True
    data.v = v.astype(data.computed).astype(np.float64)


def _hand_over(rng: np.random.Generator, data: Data, values: np.ndarray) -> None:
    """Put the entries into the form, and the weights likewise."""
    form, shape, v = data.form, data.shape, data.v
    if form in ("dense", "masked", "pandas matrix"):
        _as_matrix(rng, data, values)
    elif form in ("triplets",):
        given = data.rows.astype(pick(rng, ("i4", "i8", "u2"))), data.cols, values
        data.R, data.options, data.weights = given, {"shape": shape}, v
    elif form in ("arrow", "pandas log"):
        _as_log(rng, data, values)
    elif form in ("csr", "csc", "coo"):
        data.R, order = _compressed(data, values)
        data.weights = None if v is None else v[order]
    else:  # scipy converts, from native byte order only
        native = values.astype(values.dtype.newbyteorder("="))
        native = native.astype(np.float32) if native.dtype == np.float16 else native
        data.dtype = native.dtype
        data.values = native.astype(np.float64)
        _as_other_sparse(data, native)


def _as_other_sparse(data: Data, native: np.ndarray) -> None:
    """Formats with a stored entry beside those meant (bsr, dia) are drawn full."""
    if data.form in ("bsr", "dia"):
        full = np.ones(data.shape)
        full[data.rows, data.cols] = native
        data.rows, data.cols = np.nonzero(np.ones(data.shape, bool))
        native = full.ravel().astype(native.dtype)
        data.values, data.v = native.astype(np.float64), None
        if data.form == "bsr":  # drops zeros
            data.values[data.values == 0] = 1
            data.R = sp.bsr_array(data.values.astype(native.dtype).reshape(data.shape))
            return
        whole = sp.coo_array((native, (data.rows, data.cols)), shape=data.shape)
        data.R = whole.todia()
        return
    whole = sp.coo_array((native, (data.rows, data.cols)), shape=data.shape)
    if data.form == "lil":  # drops zeros
        kept = native != 0
        if not kept.any():
            data.form, data.R = "coo", whole
            data.weights = data.v
            return
        data.rows, data.cols, data.values = data.rows[kept], data.cols[kept], data.values[kept]
        data.v = None
        data.R = sp.coo_array((native[kept], (data.rows, data.cols)), shape=data.shape).tolil()
        return
    data.R, data.v = whole.todok(), None


def _compressed(data: Data, values: np.ndarray) -> tuple[Any, np.ndarray]:
    """Make a matrix whose indices are unsorted and may repeat, and the order of its entries."""
    if data.form == "coo":
        found = sp.coo_array((np.zeros(values.size), (data.rows, data.cols)), shape=data.shape)
        found.data = values  # scipy's constructor refuses other byte orders and float16
        return found, np.arange(values.size)
    major, minor, size = (
        (data.rows, data.cols, data.shape[0])
        if data.form == "csr"
        else (data.cols, data.rows, data.shape[1])
    )
    order = np.argsort(major, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=size))])
    make = sp.csr_array if data.form == "csr" else sp.csc_array
    found = make((np.zeros(values.size), minor[order], indptr), shape=data.shape)
    found.data = values[order]
    return found, order


def _as_matrix(rng: np.random.Generator, data: Data, values: np.ndarray) -> None:
    m, n = data.shape
    where = np.zeros((m, n), bool)
    where[data.rows, data.cols] = True
    full = np.zeros((m, n), data.dtype)
    if data.dtype.kind == "f":
        full[:] = np.nan
    full[data.rows, data.cols] = values
    if data.v is not None:
        data.weights = np.full((m, n), pick(rng, (1.0, np.nan, -1.0)))  # not read where missing
        data.weights[data.rows, data.cols] = data.v
    if data.form == "masked":
        data.R = np.ma.array(full, mask=~where)
    elif data.form == "dense":
        data.R = np.asfortranarray(full) if rng.random() < 0.3 else full
        if rng.random() < 0.3:
            data.R.flags.writeable = False
    else:
        if not where.all() and data.dtype.kind != "f":
            full = np.where(where, full, np.nan)
            data.dtype = full.dtype
        native = full.astype(full.dtype.newbyteorder("="))
        data.labels = _names(rng, m, "r"), _names(rng, n, "c")
        data.R = pd.DataFrame(native, index=data.labels[0], columns=data.labels[1])
        data.dtype = native.dtype


def _names(rng: np.random.Generator, size: int, letter: str) -> list[Any]:
    kind = pick(rng, ("text", "numbers", "dates", "unicode"))
    order = rng.permutation(size)
    if kind == "numbers":
        return [int(i) * 7 - 20 for i in order]
    if kind == "dates":
        return [pd.Timestamp("2024-02-27") + pd.Timedelta(days=int(i)) for i in order]
    return [f"{letter}{'é☃' if kind == 'unicode' else ''}{i}" for i in order]


def _as_log(rng: np.random.Generator, data: Data, values: np.ndarray) -> None:
    native = values.astype(values.dtype.newbyteorder("="))
    data.dtype = native.dtype
    data.labels = _names(rng, data.shape[0], "r"), _names(rng, data.shape[1], "c")
    columns = {
        "row": [data.labels[0][i] for i in data.rows],
        "col": [data.labels[1][j] for j in data.cols],
        "value": native,
    }
    data.options = {"rows": "row", "cols": "col", "values": "value"}
    if data.v is not None:
        columns["weight"] = data.v
        data.weights = "weight"
    if data.form == "arrow":
        data.R = pa.table(columns)
    else:
        data.R = pd.DataFrame(columns)
        if isinstance(columns["row"][0], str) and rng.random() < 0.3:
            data.R["row"] = data.R["row"].astype("category")
    data.shape = np.unique(data.rows).size, np.unique(data.cols).size


# --- settings --------------------------------------------------------------------------------


@dataclass
class Settings:
    """Settings of a fit, and whether the library must accept them."""

    omega: float
    k: int
    options: dict[str, Any]
    valid: bool = True
    moderate: bool = True  # no extreme level

    def __repr__(self) -> str:
        shown = {
            name: value if np.isscalar(value) or value is None else type(value).__name__
            for name, value in self.options.items()
        }
        return f"omega={self.omega!r}, k={self.k}, {shown}"


def draw_settings(rng: np.random.Generator, data: Data) -> Settings:
    """Draw a level, a rank and everything else that `complete` can be told."""
    omega = pick(rng, LEVELS)
    k = min(int(rng.geometric(0.4)), 8, *data.shape)
    size = float(np.abs(data.values).max()) or 1.0
    reg = pick(rng, ("auto", "auto", 0, 0, 1e-9, 1e-3, 0.1, 10.0))
    options: dict[str, Any] = {
        "reg": reg if isinstance(reg, str) else reg * min(size, 1e300),
        "reg_scaling": "count" if reg == "auto" else pick(rng, ("count", "plain")),
        "intercepts": bool(rng.random() < 0.4),
        "init": pick(rng, ("spectral", "spectral", "spectral", "random", "pair", "earlier")),
        "tol": pick(rng, (0.0, 1e-9, 1e-5, 1e-5, 1e-2)),
        "max_iter": int(pick(rng, (1, 3, 10, 30))),
        "momentum": bool(rng.random() < 0.7),
        "anneal": bool(rng.random() < 0.7),
        "orthogonalize": bool(reg == 0 and rng.random() < 0.3),
        "solver": "auto" if reg == 0 else pick(rng, ("auto", "exact", "cg")),
        "random_state": int(rng.integers(0, 100)),
    }
    if options["orthogonalize"]:
        options["intercepts"] = False
    if rng.random() < 0.2:
        options["validation"] = float(rng.uniform(0.05, 0.5))
        if data.form in ("dense", "masked", "csr", "csc", "coo") and rng.random() < 0.4:
            options["validation"] = data.R  # entries, here those that are fitted too
        if rng.random() < 0.5:
            options["patience"] = int(rng.integers(1, 5))
    found = Settings(omega, k, options, moderate=1e-3 <= omega <= 0.999)
    if rng.random() < 0.08:
        _spoil(rng, data, found)
    if options["init"] == "pair":
        root, width = np.sqrt(size), max(found.k, 0)  # a spoilt rank is no size of an array
        options["init"] = tuple(root * rng.standard_normal((side, width)) for side in data.shape)
    if isinstance(options.get("validation"), float) and data.cells < 2:
        found.valid = False
    return found


def _spoil(rng: np.random.Generator, data: Data, found: Settings) -> None:
    """Make one thing wrong."""
    wrong = pick(
        rng,
        (
            {"k": min(data.shape) + 1}, {"k": -1}, {"omega": 1.0}, {"omega": float("nan")},
            {"reg": -1.0}, {"reg": "auto", "reg_scaling": "plain"}, {"max_iter": 0},
            {"reg": 0, "solver": "cg"}, {"orthogonalize": True, "reg": "auto"},
            {"orthogonalize": True, "reg": 0, "intercepts": True}, {"n_jobs": 0},
            {"validation": 1.5}, {"init": "svd"}, {"tol": float("inf")}, {"solver": "lbfgs"},
            {"init": (np.ones((1, 1)), np.ones((99, 2)))}, {"random_state": -1},
        ),
    )  # fmt: skip
    found.valid = False
    wrong = dict(wrong)
    found.omega = wrong.pop("omega", found.omega)
    found.k = wrong.pop("k", found.k)
    found.options |= wrong
