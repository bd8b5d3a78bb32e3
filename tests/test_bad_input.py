"""Errors and warnings of the public functions."""

import numpy as np
import pytest
import scipy.sparse as sp
from scenes import refuses

import fastemf
from fastemf.datasets import make_skewed
from fastemf.sources.memory import observe

RNG = np.random.default_rng(5)
DATA = np.outer(RNG.random(6) + 1, RNG.random(5) + 1) + 0.2 * RNG.random((6, 5))
M, N, NAN, INF = *DATA.shape, float("nan"), float("inf")


def complete(R=DATA, omega=0.3, k=2, **options):
    return fastemf.complete(R, omega, k, **{"tol": 0.5, **options})


@pytest.fixture(scope="module")
def fit():
    return complete(reg=0.1)


def changed(*changes, base=DATA, dtype=None):
    """A copy of the data with single cells changed: (row, column, value)."""
    R = np.array(base, dtype)
    for i, j, value in changes:
        R[i, j] = value
    return R


def stored(*changes):
    """A CSR array that stores all of the data, changed."""
    R = sp.csr_array(DATA)
    R.data[:] = changed(*changes).ravel()
    return R


# --- data -----------------------------------------------------------------------------------

REAL, TWO = "must hold real numbers", [1.0, 2.0]
BAD_DATA = {
    "object": (DATA.astype(object), TypeError, "R", REAL, "object"),
    "text": ([["a", "b"]], TypeError, "R", REAL, "<U1"),
    "complex": (DATA * 1j, TypeError, "R", REAL, "complex128"),
    "complex sparse": (sp.csr_array(DATA * 1j), TypeError, "R", REAL, "complex128"),
    "complex triplets": (([0], [0], [1j]), TypeError, "values", REAL, "complex128"),
    "None": (None, TypeError, "R", REAL, "object"),
    "scalar": (3.0, ValueError, "R must have two dimensions", "()"),
    "vector": (np.ones(6), ValueError, "R must have two dimensions", "(6,)"),
    "cube": (np.ones((2, 3, 4)), ValueError, "R must have two dimensions", "(2, 3, 4)"),
    "sparse vector": (sp.coo_array(np.ones(3)), ValueError, "R must have two dim", "(3,)"),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, "R must"),
    "pair": (([1.0], ([0], [0])), ValueError, "(rows, cols, values)", "2 items", "scipy"),
    "identifiers": (([0, 10**9], [0, 1], TWO), ValueError, "positions from 0", 10**9, "identif"),
    "missing as None": ([[1.0, None]], TypeError, "R", REAL, "object", "na_value"),
    "lengths": (([0, 1], [0], [1.0]), ValueError, "equal length", "(2,), (1,) and (1,)"),
    "float rows": (([0.0], [0], [1.0]), TypeError, "rows must hold integers", "float64"),
    "bool cols": (([0], [True], [1.0]), TypeError, "cols must hold integers", "bool"),
    "negative row": (([0, -3], [0, 1], [1.0, 2.0]), IndexError, "rows", "negative", -3),
    "empty dense": (np.full((6, 5), NAN), ValueError, "R", "at least one observation", "none"),
    "no rows": (np.ones((0, 5)), ValueError, "R", "at least one observation", "(0, 5)"),
    "empty masked": (np.ma.masked_all((6, 5)), ValueError, "R", "at least one observation"),
    "empty triplets": (([], [], []), ValueError, "R", "at least one observation", "none"),
}  # fmt: skip
FINITE, LARGE, SMALL = "R must be finite", "R is too large for", "R is too small for"
TINY32, TINY64 = DATA * 1e-22, DATA * 1e-170
BAD_VALUES = {
    "inf": (changed((2, 3, INF), (2, 1, -INF)), FINITE, "-inf at row 2, column 1"),
    "NaN sparse": (stored((3, 4, NAN), (4, 0, NAN)), FINITE, "nan at row 3, column 4"),
    "inf sparse": (stored((5, 0, INF), (5, 4, NAN)), FINITE, "inf at row 5, column 0"),
    "NaN triplets": (([5, 1], [2, 0], [NAN, INF]), FINITE, "nan at row 5, column 2"),
    "NaN unmasked": (np.ma.array(changed((1, 1, NAN))), FINITE, "nan at row 1, column 1"),
    "inf float16": (changed((0, 2, INF), dtype="f2"), FINITE, "inf at row 0, column 2"),
    "large 32": (changed((1, 0, 1e20), dtype="f4"), LARGE, "float32", "e+20 at row 1, column 0"),
    "small 32": (changed((4, 2, 2e-21), base=TINY32, dtype="f4"), SMALL, "float32", "row 4, col"),
    "large 64": (changed((1, 0, -1e160)), LARGE, "float64", "-1e+160 at row 1, column 0"),
    "small 64": (changed((4, 2, 1e-160), base=TINY64), SMALL, "float64", "1e-160 at row 4, col"),
}  # fmt: skip


BAD_DATA |= {name: (R, ValueError, *parts) for name, (R, *parts) in BAD_VALUES.items()}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(case):
    R, *expected = BAD_DATA[case]
    with refuses(*expected):
        complete(R)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"])
@pytest.mark.parametrize("shape", [(6, 5), (0, 5)])
def test_empty_sparse(form, shape):
    empty = sp.coo_array(shape).asformat(form)
    with refuses(ValueError, "R", "at least one observation", "none", shape):
        complete(empty)


WEIGHT_RULE = "weights must be finite and positive"
BAD_WEIGHTS = {
    "zero": (changed((2, 1, 0.0), (3, 0, 0.0)), ValueError, WEIGHT_RULE, "0.0 at row 2, column 1"),
    "negative": (changed((5, 4, -2.0)), ValueError, WEIGHT_RULE, "-2.0 at row 5, column 4"),
    "NaN": (changed((0, 0, NAN)), ValueError, WEIGHT_RULE, "nan at row 0, column 0"),
    "infinite": (changed((0, 1, INF)), ValueError, WEIGHT_RULE, "inf at row 0, column 1"),
    "shape": (np.ones((5, 6)), ValueError, "weights must have the shape of R", (5, 6)),
    "scalar": (2.0, ValueError, "weights must have the shape of R", "()"),
    "object": (DATA.astype(object), TypeError, "weights", REAL, "object"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
@pytest.mark.parametrize("call", ["complete", "objective", "effective_omega", "fold_in"])
def test_bad_weights(case, call, fit):
    weights, *expected = BAD_WEIGHTS[case]
    with refuses(*expected):
        (complete if call == "complete" else getattr(fit, call))(DATA, weights=weights)


@pytest.mark.parametrize("weight", [1e-60, 1e60])
def test_weights_outside_float32_are_refused_with_float32_data(weight):
    with refuses(ValueError, "weights"):
        complete(DATA.astype(np.float32), weights=changed((2, 1, weight)))


def test_a_log_passed_as_a_matrix_warns():
    rng = np.random.default_rng(0)
    lines = np.column_stack([rng.integers(0, 9, (40, 2)), rng.uniform(1, 2, 40)])
    for matrix in (lines, lines.T):
        with pytest.warns(UserWarning, match="pass a tuple"):
            observe(matrix)
    observe(rng.uniform(1, 2, (40, 3)))  # a matrix with three columns, and no warning


def test_folding_in_empty_rows_warns(fit):
    new = np.full((3, 5), np.nan)
    new[1] = 2.0
    with pytest.warns(UserWarning, match="2 of the 3 new rows have no observations"):
        assert fit.fold_in(new).unseen_rows.tolist() == [0, 2]


# --- options --------------------------------------------------------------------------------


def each(name, error, rule, values):
    """Return one case per value, which the message must contain."""
    return [(name, value, error, f"{name} {rule}", repr(value)) for value in values]


FLAGS = ("intercepts", "progress")
PLAIN = fastemf.Solver(reg_scaling="plain")
ORTHOGONAL = fastemf.Solver(orthogonalize=True)
SEED = "must be None, a non-negative integer or a numpy Generator"
OBSERVED_SET = ("omega", "expectile level", "not the observed set", "got")
X, Y = np.ones((M, 2)), np.ones((N, 2))
X_NAN, Y_INF = changed((4, 1, NAN), base=X), changed((3, 0, INF), base=Y)
BAD_OPTIONS = [
    *each("omega", ValueError, "must lie strictly between 0 and 1", (0, 1, 1.0, -0.1, 1.5, NAN)),
    *each("omega", TypeError, "must be a number in (0, 1)", (True, "0.5", None, 1j)),
    ("shape", (6, 4), ValueError, "shape must be that of R", (6, 5), (6, 4)),
    *each("shape", ValueError, "must be (rows, columns)", (6, (6, 5, 1))),
    ("shape", (6.0, 5), TypeError, "shape[0] must be an integer", 6.0),
    ("shape", (0, 5), ValueError, "shape[0] must be at least 1", 0),
    ("omega", DATA > 2, TypeError, *OBSERVED_SET, "(6, 5)"),
    ("omega", sp.csr_array(DATA), TypeError, *OBSERVED_SET, "csr_array of shape (6, 5)"),
    ("omega", [0.1, 0.9], TypeError, *OBSERVED_SET, "[0.1, 0.9]"),
    *each("k", ValueError, "must be at least 1 (0 fits intercepts only", (0, -2)),
    *each("k", TypeError, "must be an integer", (2.0, True, "2", None)),
    ("k", 6, ValueError, "k must be at most min(rows, columns) = 5", "6 rows and 5 columns", 6),
    *each("reg", ValueError, "must be finite and not negative", (-0.1, NAN, INF)),
    *each("reg", ValueError, 'must be "auto", "noise" or a number >= 0', ("ridge", "")),
    *each("reg", TypeError, "must be a number", (None, True)),
    ("solver", PLAIN, ValueError, 'reg="auto"', 'reg_scaling="plain"'),
    *each("solver", ValueError, "must be one of 'auto', 'exact', 'cg' or a fast", ("lu", None, 3)),
    *each("checkpoint", TypeError, "must be a path or a fastemf.Checkpoint", (3, True)),
    *[c for flag in FLAGS for c in each(flag, TypeError, "must be True or False", (1, "yes"))],
    ("solver", ORTHOGONAL, ValueError, "orthogonalize=True needs reg=0", "reg='auto'"),
    *each("tol", ValueError, "must be finite and not negative", (-1e-3, NAN, INF)),
    *each("max_iter", ValueError, "must be at least 1", (0, -5)),
    *each("random_state", ValueError, SEED, (-1,)),
    *each("random_state", TypeError, SEED, (1.5, "seed")),
    ("n_jobs", 0, ValueError, "n_jobs must not be 0"),
    *each("n_jobs", TypeError, "must be an integer", (1.0, True, "all")),
    *each("callback", TypeError, "must be callable", ("print", 3)),
    *each("init", ValueError, 'must be "spectral", "random", a pair', ("svd", None, 3, [1, 2])),
    ("init", (X, Y, X), ValueError, "init", "pair (X, Y)", "3 items"),
    ("init", (Y, X), ValueError, "init[0] must have shape (6, 2)", "(5, 2)"),
    ("init", (X_NAN, Y), ValueError, "init[0] must be finite", "nan at (4, 1)"),
    ("init", (X, Y_INF), ValueError, "init[1] must be finite", "inf at (3, 0)"),
    ("init", (X, Y.astype(object)), TypeError, "init[1]", REAL, "object"),
]  # fmt: skip


@pytest.mark.parametrize("case", BAD_OPTIONS, ids=lambda case: case[0])
def test_bad_option(case):
    name, value, *expected = case
    with refuses(*expected):
        complete(**{name: value})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_that_overflow_are_refused(dtype):
    with pytest.raises((ValueError, FloatingPointError), match=r"init|too large"):
        complete(DATA.astype(dtype), init=(1e200 * X, 1e200 * Y))


# --- the result's methods -------------------------------------------------------------------

BAD_INDICES = [
    (6, IndexError, "must be below", 6),
    (-1, IndexError, "must not be negative", -1),
    (0.0, TypeError, "must hold integers", "float64"),
    (True, TypeError, "must hold integers", "bool"),
    ("0", TypeError, "must hold integers", "<U1"),
    (None, TypeError, "must hold integers", "object"),
]


@pytest.mark.parametrize("case", BAD_INDICES)
def test_predict_at_bad_indices(case, fit):
    index, error, *parts = case
    for given in (index, [0, index] if isinstance(index, int) and index is not True else [index]):
        with refuses(error, "rows", *parts):
            fit.predict(given, 0)
        with refuses(error, "cols", *(["must be given", "int"] if given is None else parts)):
            fit.predict(0, given)
        with refuses(error, "rows", *parts):
            fit.predict_block(given)


INFINITE, AT_INF = changed((1, 2, INF)), "inf at row 1, column 2"
OTHER_SHAPE = "R must have the fit's shape (6, 5)"
BEYOND, SWAPPED = ([4, 0], [0, 3], TWO), ([4, 0], [0, 1], TWO)
BAD_CALLS = [
    (lambda fit: complete(BEYOND, shape=(2, 5)), IndexError, "rows must be below 2", 4),
    (lambda fit: complete(SWAPPED, shape=(2, 5)), IndexError, "rows go up to 4 and cols up to 1",
     "(2, 5)", "swapped?"),
    (lambda fit: complete(observe(DATA), shape=(5, 6)), ValueError, "shape must be that of R",
     (6, 5), (5, 6)),
    (lambda fit: complete(observe(DATA), weights=DATA), ValueError,
     "weights must not be given with observations"),
    (lambda fit: complete(solver=ORTHOGONAL, reg=0.1), ValueError,
     "orthogonalize=True needs reg=0", "got reg=0.1"),
    (lambda fit: complete(solver=ORTHOGONAL, reg=0, intercepts=True), ValueError,
     "orthogonalize=True needs intercepts=False", "got intercepts=True"),
    (lambda fit: complete(k=3, init=fit), ValueError, "init has rank 2, k is 3", "equal"),
    (lambda fit: complete(DATA[:4], init=fit), ValueError,
     "init has shape (6, 5), larger than the data's (4, 5)"),
    (lambda fit: complete(DATA[:, :3], init=fit), ValueError,
     "init has shape (6, 5), larger than the data's (6, 3)"),
    (lambda fit: complete(init=complete(reg=0.1, intercepts=True)), ValueError,
     "init has intercepts", "intercepts=True"),
    (lambda fit: fit.predict([0, 1], [0, 1, 2]), ValueError, "rows", "cols"),  # do not broadcast
    (lambda fit: fit.predict(0, 0, unseen="zero"), ValueError,
     "unseen must be one of 'model', 'nan'", "'zero'"),
    (lambda fit: fit.predict_block([[0, 1]]), ValueError, "rows must be one-dimensional", (1, 2)),
    (lambda fit: fit.to_dense(max_bytes=239), ValueError, "6 x 5", "240 bytes", "max_bytes=239"),
    (lambda fit: fit.to_dense(max_bytes=1e9), TypeError, "max_bytes must be an integer", 1e9),
    (lambda fit: fit.objective(DATA[:4]), ValueError, OTHER_SHAPE, (4, 5)),
    (lambda fit: fit.objective(INFINITE), ValueError, FINITE, AT_INF),
    (lambda fit: fit.effective_omega(([9], [0], [1.0])), IndexError, "rows must be below 6", 9),
    (lambda fit: fit.fold_in(DATA[:, :4]), ValueError,
     "R_new must have the fit's 5 columns for axis=0", (6, 4)),
    (lambda fit: fit.fold_in(DATA[:4], axis=1), ValueError,
     "R_new must have the fit's 6 rows for axis=1", (4, 5)),
    (lambda fit: fit.fold_in(([0], [5], [1.0])), IndexError, "cols must be below 5", 5),
    (lambda fit: fit.fold_in(INFINITE), ValueError, FINITE, AT_INF),
    (lambda fit: fit.fold_in(DATA, n_jobs=0), ValueError, "n_jobs must not be 0"),
]  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_bad_arguments_of_methods_and_starts(case, fit):
    call, *expected = case
    with refuses(*expected):
        call(fit)


def test_the_limit_of_a_dense_matrix_is_inclusive(fit):
    assert fit.to_dense(max_bytes=240).shape == (6, 5)


@pytest.mark.parametrize("axis", [2, -1, "rows", None, 0.0, [0, 1]], ids=repr)
def test_bad_axis(axis, fit):
    with refuses((ValueError, TypeError), "axis must be 0 (new rows) or 1 (new columns)", axis):
        fit.fold_in(DATA, axis=axis)


BAD_GENERATOR = [
    *each("m", ValueError, "must be at least 1", (0,)),
    *each("rank", ValueError, "must be at most min(rows, columns) = 5", (6,)),
    *each("density", ValueError, "must", (0.0, 1.5, -1.0, NAN)),
    *each("noise", ValueError, "must be finite and not negative", (-1.0, INF)),
    *each("degrees", ValueError, "must be", (0.0, -3.0, NAN)),
    *each("factor_low", ValueError, "must", (2.0, NAN)),
    ("factor_high", INF, ValueError, "factor_high", INF),
]


@pytest.mark.parametrize("case", BAD_GENERATOR, ids=lambda case: case[0])
def test_bad_make_skewed(case):
    name, value, *expected = case
    with refuses(*expected):
        make_skewed(**{"m": 6, "n": 5, "rank": 2, name: value})


# --- warnings -------------------------------------------------------------------------------

GAPS = DATA.copy()
GAPS[2] = GAPS[:, 0] = GAPS[:, 3] = NAN  # one row and two columns without observations
SHORT = DATA.copy()
SHORT[1, 1:] = SHORT[4, :4] = SHORT[2:, 2] = NAN  # rows 1 and 4: one entry; column 2: row 0 only


def zeros(count):
    return np.where(np.arange(M * N).reshape(M, N) < count, 0.0, DATA)


WARNED = {
    "unseen": ({"R": GAPS}, "1 rows and 2 columns have no observations"),
    "short": (
        {"R": SHORT, "reg": 0, "solver": fastemf.Solver(anneal=False)},
        "2 rows and 1 columns have fewer than k=2",
    ),
    "zeros": ({"R": zeros(16), "reg": 0.1}, "16 of 30 observations are zero"),
    "limit": ({"tol": 0, "max_iter": 2}, r"did not .* within max_iter=2 sweeps"),
}


@pytest.mark.parametrize("case", WARNED)
def test_one_warning_that_points_to_the_caller(case):
    options, message = WARNED[case]
    category = fastemf.ConvergenceWarning if case == "limit" else UserWarning
    with pytest.warns(category, match=message) as caught:
        fit = fastemf.complete(**{"omega": 0.3, "k": 2, "R": DATA, "tol": 0.5, **options})
    assert [warning.category for warning in caught] == [category]
    assert caught[0].filename == __file__
    assert np.isfinite(fit.to_dense()).all()
    assert fit.converged == (case != "limit")
    assert case != "limit" or fit.n_iter == 2


@pytest.mark.parametrize("options", [{"R": SHORT}, {"R": zeros(15), "reg": 0.1}])
def test_ordinary_data_do_not_warn(options):
    complete(**options)  # a warning would be an error
