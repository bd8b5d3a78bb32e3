"""Data and settings of the API fuzzer: every form of input, and all settings of a fit.

A case follows from one seed. It stores the observed entries in plain arrays as well, so that
results can be checked without the library.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp

import fastemf

LEVELS = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9)
FLOATS = ("<f8", "<f8", "<f8", "<f8", "<f4", "<f4", ">f8", ">f4", "<f2")
INTEGERS = ("<i8", "<i4", "<i2", "|i1", "|u1", "<u4", ">i4", "|b1")
WITHOUT_ZEROS = ("lil", "dok", "bsr", "dia")  # SciPy drops zeros on conversion to most of them
LOGS = ("arrow", "pandas log")
REPEATING = ("csr", "csc", "coo", "triplets", *LOGS)  # may hold a cell more than once
DENSE = ("dense", "masked", "pandas matrix")
FORMS = (*REPEATING, *DENSE, *WITHOUT_ZEROS)


@dataclass
class Data:
    """The data passed to a task, and the entries in it."""

    R: Any
    form: str
    dtype: np.dtype  # of the data passed
    shape: tuple[int, int]
    rows: np.ndarray
    cols: np.ndarray
    values: np.ndarray  # float64
    v: np.ndarray | None  # weights of the entries
    weights: Any = None  # in the form that is passed
    options: dict[str, Any] = field(default_factory=dict)  # names of columns, or a shape
    labels: tuple[list[Any], list[Any]] | None = None  # of rows and of columns
    extreme: bool = False  # magnitudes that may be refused

    @property
    def computed(self):
        """The type in which the library computes."""
        single = self.dtype.kind == "f" and self.dtype.itemsize == 4
        return np.dtype(np.float32 if single else np.float64)

    @property
    def cells(self):
        """The number of distinct observed cells."""
        return len({*zip(self.rows.tolist(), self.cols.tolist(), strict=True)})

    @property
    def given(self):
        """The keyword arguments that describe the data."""
        return ({} if self.weights is None else {"weights": self.weights}) | self.options

    def mass(self):
        """Weights, or ones."""
        return np.ones(self.rows.size) if self.v is None else self.v

    def placed(self, fit):
        """The same entries with the row and column positions of a labelled fit."""
        if self.labels is None:
            return self
        rows = _positions(self.rows, self.labels[0], fit.row_labels)
        cols = _positions(self.cols, self.labels[1], fit.col_labels)
        return replace(self, rows=rows, cols=cols, shape=fit.shape)


def _positions(codes, mine, theirs):
    where = {_key(label): i for i, label in enumerate(theirs.values.tolist())}
    return np.array([where[_key(mine[i])] for i in codes])


def _key(label):
    return np.datetime64(label, "us") if hasattr(label, "isoformat") else label


def pick(rng, choices):
    """One of the choices, with its Python type."""
    return choices[int(rng.integers(len(choices)))]


def draw_data(rng, forms=FORMS):
    """Draw a partly observed matrix and the form in which it is passed."""
    m, n = (1, 1) if rng.random() < 0.04 else rng.integers(1, pick(rng, (7, 40)), 2).tolist()
    form = pick(rng, forms)
    dtype = np.dtype(pick(rng, INTEGERS if rng.random() < 0.15 else FLOATS))
    if form not in ("dense", "masked", "csr", "csc", "coo", "triplets"):
        dtype = dtype.newbyteorder("=")  # pandas, pyarrow and SciPy's conversions require it
    matrix, observed = _draw_matrix(rng, m, n), _draw_observed(rng, m, n)
    if form in ("bsr", "dia") or (form == "dense" and dtype.kind != "f"):
        observed[:] = True  # no way to mark a missing cell
    rows, cols = np.nonzero(observed)
    if form in REPEATING:
        again = rng.integers(0, rows.size, int(rng.integers(rows.size + 1)) * (rng.random() < 0.4))
        order = rng.permutation(np.append(np.arange(rows.size), again))
        rows, cols = rows[order], cols[order]
    values = matrix[rows, cols]
    if rng.random() < 0.5:  # different values in the same cell
        values = values * (1 + 0.1 * rng.standard_normal(values.size))
    exponent = float(rng.uniform(-3, 3) if rng.random() < 0.85 else rng.uniform(-300, 300))
    with np.errstate(over="ignore", invalid="ignore"):
        values = _cast(values * 10.0**exponent, dtype)
        if form in WITHOUT_ZEROS:
            values = values.astype("f4") if dtype == np.float16 else values
            values[values == 0] = 1
        largest = float(np.max(np.abs(values.astype(np.float64))))
    data = Data(
        None, form, values.dtype, (m, n), rows, cols, values.astype(np.float64), None,
        extreme=not (largest == 0 or 1e-6 < largest < 1e7),
    )  # fmt: skip
    if form not in WITHOUT_ZEROS:
        _draw_weights(rng, data)
    _convert(rng, data, values)
    return data


def _draw_matrix(rng, m, n):
    skewed = rng.standard_normal((m, n)) ** 2 * rng.uniform(0.5, 2, n)
    kinds = [skewed, skewed, skewed + 10.0 ** rng.uniform(1, 7)]
    kinds.append(rng.integers(0, 4, (m, n)).astype(float))  # ties
    kinds.append(np.full((m, n), float(rng.integers(-2, 3))))
    kinds.append(np.outer(rng.uniform(1, 2, m), rng.uniform(1, 2, n)))  # of rank one
    kinds.append(rng.standard_normal((m, n)))
    kinds.append(np.exp(rng.uniform(0.5, 4) * rng.standard_normal((m, n))))  # heavy tails
    return pick(rng, kinds)


def _draw_observed(rng, m, n):
    observed = rng.random((m, n)) < pick(rng, (0.1, 0.3, 0.6, 0.9, 1.0))
    if rng.random() < 0.3:
        observed[rng.integers(0, m)] = False
        observed[:, rng.integers(0, n)] = False
    if not observed.any():
        observed[rng.integers(0, m), rng.integers(0, n)] = True
    return observed


def _cast(values, dtype):
    if dtype.kind == "f":
        return values.astype(dtype)
    if dtype.kind == "b":
        return values > np.median(values)
    limits = np.iinfo(dtype)
    return np.clip(np.nan_to_num(values), float(limits.min), float(limits.max) * 0.99).astype(dtype)


def _draw_weights(rng, data):
    size = data.rows.size
    kind = pick(rng, ("none",) * 6 + ("moderate", "moderate", "integer", "extreme"))
    if kind == "none":
        return
    v = 10.0 ** rng.uniform(-6, 6, size) if kind == "extreme" else rng.uniform(0.1, 3, size)
    v = np.ceil(v) if kind == "integer" else v
    data.extreme |= kind == "extreme"
    data.v = v.astype(data.computed).astype(np.float64)


def _convert(rng, data, values):
    """Write values and weights in the form of the data."""
    if data.form in DENSE:
        _make_matrix(rng, data, values)
    elif data.form in LOGS:
        _make_log(rng, data, values)
    elif data.form in WITHOUT_ZEROS:
        whole = sp.coo_array((values, (data.rows, data.cols)), shape=data.shape)
        data.R = whole.asformat(data.form)
    elif data.form == "triplets":
        data.R = data.rows.astype(pick(rng, ("i4", "i8", "u2"))), data.cols, values
        data.options, data.weights = {"shape": data.shape}, data.v
    else:
        _make_sparse(data, values)


def _make_sparse(data, values):
    """Make a sparse array with unsorted indices, some of them repeated."""
    order, places = np.arange(values.size), (data.rows, data.cols)
    if data.form != "coo":
        side = 0 if data.form == "csr" else 1
        order = np.argsort(places[side], kind="stable")
        counts = np.bincount(places[side], minlength=data.shape[side])
        places = places[1 - side][order], np.concatenate([[0], np.cumsum(counts)])
        make = (sp.csr_array, sp.csc_array)[side]
        data.R = make((np.zeros(values.size), *places), shape=data.shape)
    else:
        data.R = sp.coo_array((np.zeros(values.size), places), shape=data.shape)
    data.R.data = values[order]  # SciPy's constructor refuses other byte orders and float16
    data.weights = None if data.v is None else data.v[order]


def _make_matrix(rng, data, values):
    (m, n), at = data.shape, (data.rows, data.cols)
    missing = np.ones((m, n), bool)
    missing[at] = False
    if data.form == "pandas matrix" and missing.any() and data.dtype.kind != "f":
        data.dtype = np.dtype(np.float64)
    full = np.full((m, n), np.nan if data.dtype.kind == "f" else 0, data.dtype)
    full[at] = values
    if data.v is not None:
        data.weights = np.full((m, n), pick(rng, (1.0, np.nan, -1.0)))  # unused where missing
        data.weights[at] = data.v
    if data.form == "masked":
        data.R = np.ma.array(full, mask=missing)
    elif data.form == "dense":
        data.R = np.asfortranarray(full) if rng.random() < 0.3 else full
        data.R.flags.writeable = bool(rng.random() < 0.7)
    else:
        data.labels = _draw_labels(rng, m, "r"), _draw_labels(rng, n, "c")
        data.R = pd.DataFrame(full, index=data.labels[0], columns=data.labels[1])


def _draw_labels(rng, size, letter):
    kind = pick(rng, ("text", "numbers", "dates", "unicode"))
    order = rng.permutation(size).tolist()
    if kind == "numbers":
        return [i * 7 - 20 for i in order]
    if kind == "dates":
        return [pd.Timestamp("2024-02-27") + pd.Timedelta(days=i) for i in order]
    return [f"{letter}{'é☃' if kind == 'unicode' else ''}{i}" for i in order]


def _make_log(rng, data, values):
    data.labels = _draw_labels(rng, data.shape[0], "r"), _draw_labels(rng, data.shape[1], "c")
    rows, cols = ([data.labels[0][i] for i in data.rows], [data.labels[1][j] for j in data.cols])
    columns = {"row": rows, "col": cols, "value": values}
    data.options = {"rows": "row", "cols": "col", "values": "value"}
    if data.v is not None:
        columns["weight"] = data.v
        data.weights = "weight"
    data.R = pa.table(columns) if data.form == "arrow" else pd.DataFrame(columns)
    if data.form != "arrow" and isinstance(columns["row"][0], str) and rng.random() < 0.3:
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

    @property
    def exact(self):
        """Whether rows are solved to their minimum."""
        return getattr(self.options["solver"], "method", self.options["solver"]) != "cg"


def draw_settings(rng, data):
    """Draw a level, a rank and the other settings of `complete`, in 8 % of cases a wrong one."""
    k = min(int(rng.geometric(0.4)), 8, *data.shape)
    size = float(np.abs(data.values).max()) or 1.0
    reg = pick(rng, ("auto", "auto", 0, 0, 1e-9, 1e-3, 0.1, 10.0))
    solver = fastemf.Solver(
        method="auto" if reg == 0 else pick(rng, ("auto", "exact", "cg")),
        momentum=bool(rng.random() < 0.7), anneal=bool(rng.random() < 0.7),
        orthogonalize=bool(reg == 0 and rng.random() < 0.3),
        reg_scaling="count" if reg == "auto" else pick(rng, ("count", "plain")),
    )  # fmt: skip
    options = {
        "reg": reg if isinstance(reg, str) else reg * min(size, 1e300), "solver": solver,
        "intercepts": bool(rng.random() < 0.4) and not solver.orthogonalize,
        "init": pick(rng, ("spectral", "spectral", "spectral", "random", "pair", "earlier")),
        "tol": pick(rng, (0.0, 1e-9, 1e-5, 1e-5, 1e-2)), "max_iter": pick(rng, (1, 3, 10, 30)),
        "random_state": int(rng.integers(0, 100)),
    }  # fmt: skip
    if rng.random() < 0.2:
        options["validation"] = float(rng.uniform(0.05, 0.5))
        if data.form in ("dense", "masked", "csr", "csc", "coo") and rng.random() < 0.4:
            options["validation"] = data.R  # entries: here those that are fitted too
        if rng.random() < 0.5:
            patience = int(rng.integers(1, 5))
            options["validation"] = fastemf.Validation(options["validation"], patience=patience)
    settings = Settings(pick(rng, LEVELS), k, options)
    if rng.random() < 0.08:
        _spoil(rng, data, settings)
    if options["init"] == "pair":
        root, width = np.sqrt(size), max(settings.k, 0)
        options["init"] = tuple(root * rng.standard_normal((side, width)) for side in data.shape)
    share = getattr(options.get("validation"), "data", options.get("validation"))
    if isinstance(share, float) and data.cells < 2:
        settings.valid = False
    return settings


def _spoil(rng, data, settings):
    """Make one setting, or a combination of settings, invalid."""
    orthogonal, plain = fastemf.Solver(orthogonalize=True), fastemf.Solver(reg_scaling="plain")
    wrong = pick(rng, (
        {"k": min(data.shape) + 1}, {"k": -1}, {"omega": 1.0}, {"omega": float("nan")},
        {"reg": -1.0}, {"max_iter": 0}, {"n_jobs": 0}, {"validation": 1.5}, {"init": "svd"},
        {"tol": float("inf")}, {"solver": "lbfgs"}, {"random_state": -1},
        {"init": (np.ones((1, 1)), np.ones((99, 2)))}, {"reg": 0, "solver": "cg"},
        {"reg": "auto", "solver": plain}, {"reg": "auto", "solver": orthogonal},
        {"reg": 0, "solver": orthogonal, "intercepts": True},
    ))  # fmt: skip
    settings.valid = False
    settings.omega = wrong.pop("omega", settings.omega)
    settings.k = wrong.pop("k", settings.k)
    settings.options |= wrong
