"""Hypothesis strategies: row problems and partly observed matrices, with edge cases."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

levels = st.sampled_from([0.001, 0.01, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.99, 0.999])
seeds = st.integers(0, 2**32 - 1)
# B and b of a row for which plain reweighting cycles at ω = 0.01.
CYCLE_B = np.array([[-1, 2], [-3, -8], [-5, 0], [1, -1], [0, -5]], float)
CYCLE = CYCLE_B, np.array([2, 0, 3, -1, -3], float)


def sparse_array(shape, density, form, rng):
    """Positive values in distinct cells, the same for every version of SciPy."""
    cells = rng.choice(shape[0] * shape[1], round(density * shape[0] * shape[1]), replace=False)
    values, places = 1 - rng.random(cells.size), np.divmod(cells.astype(np.int32), shape[1])
    return sp.coo_array((values, places), shape=shape).asformat(form)


@st.composite
def row_problems(draw, max_d=30, max_k=6):
    """B, b, ω, ridge, v with ties, repeated and collinear rows, d < k and exact interpolation."""
    rng = np.random.default_rng(draw(seeds))
    d, k = draw(st.integers(1, max_d)), draw(st.integers(1, max_k))
    kind = draw(st.sampled_from(["normal", "integer", "repeated", "collinear", "exact"]))
    if kind == "integer":
        B = rng.integers(-4, 5, (d, k)).astype(float)
        b = rng.integers(-5, 6, d).astype(float)
    else:
        B = rng.standard_normal((d, k))
        b = rng.standard_normal(d) ** 3
    if kind == "repeated":
        pick = rng.integers(0, d, d)
        B, b = B[pick], b[rng.integers(0, d, d)]
    if kind == "collinear":
        B[:, -1] = 2 * B[:, 0]
    if kind == "exact":
        b = B @ rng.standard_normal(k)
    ridge = draw(st.sampled_from([0.0, 0.0, 1e-6, 0.1, 10.0]))
    v = rng.uniform(0.1, 3, d) if draw(st.booleans()) else None
    return B, b, draw(levels), ridge, v


@st.composite
def matrices(draw, max_m=9, max_n=8, full=False):
    """Dense matrices with NaN for missing: empty rows, single entries, ties, constant columns."""
    rng = np.random.default_rng(draw(seeds))
    m, n = draw(st.integers(2, max_m)), draw(st.integers(2, max_n))
    R = rng.standard_normal((m, n)) ** 3 + 1
    kind = draw(st.sampled_from(["skewed", "integer", "constant column", "low rank"]))
    if kind == "integer":
        R = rng.integers(1, 4, (m, n)).astype(float)
    if kind == "constant column":
        R[:, 0] = 2.0
    if kind == "low rank":
        R = np.outer(rng.uniform(1, 2, m), rng.uniform(1, 2, n))
    R[rng.random((m, n)) < draw(st.sampled_from([0.0, 0.3, 0.6]))] = np.nan
    if not full and draw(st.booleans()):
        R[rng.integers(m)] = np.nan
    if np.isnan(R).all():
        R[0, 0] = 1.5
    return R
