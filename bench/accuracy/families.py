"""Generated data with one peculiarity each, defined before any result was computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.splits import Cells, Features, Split, divide

Shape = tuple[int, int]
SHAPE = (400, 600)


def multiplicative(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate gamma factors with multiplicative log-normal noise."""
    rng = np.random.default_rng(seed)
    signal = _gamma_factors(rng, shape, 4)
    return _observed(rng, signal * np.exp(0.5 * rng.standard_normal(shape)), 0.1)


def pareto(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate row plus column effects with a right tail of index 2.5."""
    rng = np.random.default_rng(seed)
    return _observed(rng, _rows_plus_columns(rng, shape) + rng.pareto(2.5, shape), 0.1)


def student(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate row plus column effects with both tails of index 2.5."""
    rng = np.random.default_rng(seed)
    return _observed(rng, _rows_plus_columns(rng, shape) + rng.standard_t(2.5, shape), 0.1)


def few(seed: int, shape: Shape = (500, 6000)) -> Split:
    """Generate a log in which most columns have fewer than five entries, by a power law."""
    rng = np.random.default_rng(seed)
    m, n = shape
    popularity = np.arange(1.0, n + 1) ** -1.1
    activity = rng.lognormal(0, 0.7, m)
    lines = 5 * n
    cell = np.unique(
        rng.choice(m, lines, p=activity / activity.sum()) * n
        + rng.choice(n, lines, p=popularity / popularity.sum())
    )
    rows, cols = cell // n, cell % n
    logs = 0.7 * rng.standard_normal(m)[rows] + 0.7 * rng.standard_normal(n)[cols]
    logs += 0.3 * (rng.standard_normal(m)[rows] * rng.standard_normal(n)[cols])
    values = np.exp(logs + 0.6 * rng.standard_normal(cell.size))
    return divide(Cells(rows, cols, values), shape, rng.random(cell.size) < 0.8)


def strong(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate five strong factors with 3 % noise."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((shape[0], 5)) @ rng.standard_normal((shape[1], 5)).T
    return _observed(rng, signal + 0.03 * signal.std() * rng.standard_normal(shape), 0.15)


def structureless(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate log-normal values that depend on neither row nor column."""
    rng = np.random.default_rng(seed)
    return _observed(rng, rng.lognormal(0, 1, shape), 0.1)


def mirrored(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate distances between nodes, measured in both directions with nearly the same noise."""
    rng = np.random.default_rng(seed)
    n = shape[0]
    place, access = rng.standard_normal((n, 3)), rng.gamma(1.0, 0.5, n)
    distance = np.linalg.norm(place[:, None] - place, axis=-1) + access[:, None] + access
    shared = np.triu(rng.standard_normal((n, n)), 1)
    logs = 0.25 * (shared + shared.T) + 0.02 * rng.standard_normal((n, n))
    fitted = np.triu(rng.random((n, n)) < 0.1, 1)
    rows, cols = np.nonzero(~np.eye(n, dtype=bool))
    cells = Cells(rows, cols, (distance * np.exp(logs))[rows, cols])
    return divide(cells, (n, n), (fitted | fitted.T)[rows, cols], mirrored=True)


def left(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate negative values whose log-magnitudes have row and column effects and two factors."""
    rng = np.random.default_rng(seed)
    logs = 0.6 * _rows_plus_columns(rng, shape)
    logs += 0.3 * rng.standard_normal((shape[0], 2)) @ rng.standard_normal((shape[1], 2)).T
    return _observed(rng, -np.exp(logs + 0.6 * rng.standard_normal(shape)), 0.1)


def heteroscedastic(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate factors with skewed noise whose scale varies 30-fold, by rows and by columns."""
    rng = np.random.default_rng(seed)
    row, col = (np.exp(np.log(30) / 2 * rng.random(size)) for size in shape)
    noise = rng.gamma(2.0, 1.0, shape) - 2
    return _observed(rng, _gamma_factors(rng, shape, 3) + 0.3 * row[:, None] * col * noise, 0.1)


def additive(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate row plus column effects only, with gamma noise."""
    rng = np.random.default_rng(seed)
    return _observed(rng, _rows_plus_columns(rng, shape) + rng.gamma(2.0, 0.7, shape), 0.08)


def outliers(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate factors with mild noise; 2 % of the values are multiplied by fifty."""
    rng = np.random.default_rng(seed)
    values = _gamma_factors(rng, shape, 3) * np.exp(0.2 * rng.standard_normal(shape))
    return _observed(rng, np.where(rng.random(shape) < 0.02, 50 * values, values), 0.1)


def features_only(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate log-normal values that depend on features of row, column and observation only."""
    rng = np.random.default_rng(seed)
    m, n = shape
    rows = {"age": rng.uniform(18, 80, m), "region": _words(rng, "r", 6, m)}
    cols = {"size": rng.lognormal(0, 1, n), "kind": _words(rng, "k", 12, n)}
    observed = {"hour": rng.uniform(0, 24, shape), "device": _words(rng, "d", 3, shape)}
    regions, kinds = (
        np.unique(one, return_inverse=True)[1] for one in (rows["region"], cols["kind"])
    )
    logs = 0.5 * np.sin(rows["age"] / 10)[:, None] + 0.4 * np.log1p(cols["size"])
    logs = logs + (0.5 * rng.standard_normal((6, 12)))[np.ix_(regions, kinds)]
    logs += 0.5 * np.sin(np.pi / 12 * observed["hour"])
    slow = observed["device"] == "d0"
    values = np.exp(logs + 0.4 * slow + (0.2 + 0.3 * slow) * rng.standard_normal(shape))
    return _with_features(_observed(rng, values, 0.05), rows, cols, observed)


def noise_features(seed: int, shape: Shape = SHAPE) -> Split:
    """Generate gamma factors with log-normal noise, and features that do not matter."""
    rng = np.random.default_rng((seed, 1))
    sizes: tuple[int | Shape, ...] = (*shape, shape)
    rows, cols, observed = (
        {f"{side}_number": rng.standard_normal(size), f"{side}_count": rng.poisson(3.0, size),
         f"{side}_word": _words(rng, "w", 20, size)}
        for side, size in zip(("row", "col", "cell"), sizes, strict=True)
    )  # fmt: skip
    return _with_features(multiplicative(seed, shape), rows, cols, observed)


def _words(rng: np.random.Generator, prefix: str, number: int, size: Any) -> NDArray[Any]:
    return np.char.add(prefix, rng.integers(number, size=size).astype(str))


def _with_features(made: Split, rows: Features, cols: Features, matrix: Features) -> Split:
    """Add features of rows, of columns, and of observations, which are given for all cells."""
    fitted, tested = (
        {name: of_cell[cells.rows, cells.cols] for name, of_cell in matrix.items()}
        for cells in (made.train.cells, made.test)
    )
    train = replace(made.train, features=fitted, row_features=rows, col_features=cols)
    return Split(train, made.test, tested)


def _gamma_factors(rng: np.random.Generator, shape: Shape, rank: int) -> NDArray[np.float64]:
    X, Y = (rng.gamma(2.0, 1.0, (size, rank)) for size in shape)
    return np.asarray(X @ Y.T / rank)


def _rows_plus_columns(rng: np.random.Generator, shape: Shape) -> NDArray[np.float64]:
    row, col = (rng.standard_normal(size) for size in shape)
    return row[:, None] + col


def _observed(rng: np.random.Generator, values: NDArray[np.float64], density: float) -> Split:
    """Split all cells of a matrix: a proportion `density` for training, the rest for testing."""
    rows, cols = (places.ravel() for places in np.indices(values.shape))
    shape = (values.shape[0], values.shape[1])
    return divide(Cells(rows, cols, values.ravel()), shape, rng.random(values.size) < density)


FAMILIES: dict[str, Callable[..., Split]] = {
    family.__name__: family
    for family in (
        multiplicative, pareto, student, few, strong, structureless, mirrored, left,
        heteroscedastic, additive, outliers,
    )
}  # fmt: skip
FAMILIES_WITH_FEATURES: dict[str, Callable[..., Split]] = {
    family.__name__: family for family in (features_only, noise_features)
}
