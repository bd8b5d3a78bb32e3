"""Exact row solves of the expectile loss, compiled. One file because it is one cache unit.

For each row of `this` factor, given the `other` one, minimise over x

    f(x) = Σ v_j w(r_j) r_j² + Σ_a ridge_a x_a²,     r_j = b_j − offset_j − y_j·x,

with w = ω where r_j ≥ 0 and 1 − ω where r_j < 0. There is no version for
columns: the caller swaps the arguments.

The method is Newton's, safeguarded. With the signs frozen f is a quadratic
with Hessian 2H, H = Bᵀ V W B + diag(ridge), and gradient −2g, g = Bᵀ V W r − ridge·x;
the step p solves H p = g and predicts a decrease of g·p. Because the signs
move with x, the full step may raise f or cycle, so a step that does not bring
a quarter of what it predicts is replaced by the exact minimum along p. Weights
take two values only, so after the first H only the observations whose sign
flipped are corrected.

Name prefixes tell the layer: `_chunk_*` up to CHUNK observations, `_row_*` one
row, `_rows_*` a serial block of rows that owns its scratch, `sweep_*` the
parallel entry.
"""

from __future__ import annotations

from collections import namedtuple
from math import isfinite, sqrt

import numpy as np
from numba import prange

from fastemf.jit import kernel

CHUNK = 128  # observations packed at once: long enough for the dot products to run in registers
STRIDE = CHUNK + 8  # keeps the rows of a packed chunk off the same cache sets
SLOTS = 8  # chunks kept packed between the Newton iterations of one row (L2 holds them)
MAX_NEWTON = 60  # hunted cases need at most a dozen

# What a row's solve reports, as columns of `stats`.
ABOVE, BELOW, GRADIENT, ITERATIONS, FLIPS, SEARCHES = range(6)
N_STATS = 6

# Status of a row. Errors are data here: raising would make the parallel loop serial.
SOLVED, EMPTY, MINIMUM_NORM, CAPPED, NOT_FINITE = range(5)

Level = namedtuple(
    "Level",
    [
        "upper",  # ω in the data's dtype
        "lower",  # 1 − ω
        "eps",  # the dtype's rounding unit and smallest normal number
        "tiny",
    ],
)

Scratch = namedtuple(
    "Scratch",
    [
        "pack",  # (SLOTS, q4, STRIDE) other's rows of a chunk, transposed
        "scaled",  # (q4, STRIDE) the same times the weights
        "v",  # (d,) weights of the observations
        "r",  # (d,) residuals
        "s",  # (d,) change of the residuals along p; then change of the weights
        "w",  # (STRIDE,) v·w of a chunk
        "gram",  # (q4, q4) lower triangle of Bᵀ V W B
        "factor",  # (q, q) Cholesky factor
        "small",  # (q, q) work of the rank-deficient solve
        "ridge",  # (q,)
        "g",  # (q4,)
        "x",  # (q4,)
        "p",  # (q4,)
        "z",  # (q,)
        "picked",  # (q,) pivots taken by the rank-deficient solve
    ],
)


@kernel()
def _make_scratch(q, longest, like):
    q4 = (q + 3) // 4 * 4  # tiles of four; the padding stays zero for ever
    t = like.dtype
    return Scratch(
        np.zeros((SLOTS, q4, STRIDE), t),
        np.zeros((q4, STRIDE), t),
        np.empty(longest, t),
        np.empty(longest, t),
        np.empty(longest, t),
        np.zeros(STRIDE, t),
        np.zeros((q4, q4), t),
        np.zeros((q, q), t),
        np.zeros((q, q), t),
        np.zeros(q, t),
        np.zeros(q4, t),
        np.zeros(q4, t),
        np.zeros(q4, t),
        np.zeros(q, t),
        np.zeros(q, np.bool_),
    )


@kernel()
def sign_weight(r, upper, lower):
    """The sign rule, once: ω where r ≥ 0, 1 − ω where r < 0."""
    return upper if r >= 0 else lower


# --- one chunk of observations -------------------------------------------------------------


@kernel()
def _chunk_pack(indices, first, count, other, pack):
    for o in range(count):
        j = indices[first + o]
        for a in range(other.shape[1]):
            pack[a, o] = other[j, a]


@kernel()
def _chunk_times(pack, x, count, out, base):
    """out[base:base+count] = B x, four latent dimensions a pass."""
    for o in range(count):
        out[base + o] = (
            x[0] * pack[0, o] + x[1] * pack[1, o] + x[2] * pack[2, o] + x[3] * pack[3, o]
        )
    for a in range(4, x.size, 4):
        x0, x1, x2, x3 = x[a], x[a + 1], x[a + 2], x[a + 3]
        for o in range(count):
            out[base + o] += (
                x0 * pack[a, o] + x1 * pack[a + 1, o] + x2 * pack[a + 2, o] + x3 * pack[a + 3, o]
            )


@kernel()
def _chunk_gradient(pack, w, r, base, count, g):
    """G += Bᵀ (v w r), four dot products at once."""
    zero = g.dtype.type(0)
    for a in range(0, g.size, 4):
        s0 = s1 = s2 = s3 = zero
        for o in range(count):
            wr = w[o] * r[base + o]
            s0 += wr * pack[a, o]
            s1 += wr * pack[a + 1, o]
            s2 += wr * pack[a + 2, o]
            s3 += wr * pack[a + 3, o]
        g[a] += s0
        g[a + 1] += s1
        g[a + 2] += s2
        g[a + 3] += s3


@kernel()
def _chunk_gram(pack, scaled, w, count, gram):
    """Lower triangle of gram += Bᵀ V W B in tiles of 4 × 2 dot products.

    Eight scalar accumulators stay in registers; a small local array would live
    in memory and run ten times slower.
    """
    zero = gram.dtype.type(0)
    q4 = gram.shape[0]
    for a in range(q4):
        for o in range(count):
            scaled[a, o] = w[o] * pack[a, o]
    for a in range(0, q4, 4):
        for b in range(0, a + 4, 2):
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = zero
            for o in range(count):
                b0 = pack[b, o]
                b1 = pack[b + 1, o]
                a0 = scaled[a, o]
                a1 = scaled[a + 1, o]
                a2 = scaled[a + 2, o]
                a3 = scaled[a + 3, o]
                s00 += a0 * b0
                s01 += a0 * b1
                s10 += a1 * b0
                s11 += a1 * b1
                s20 += a2 * b0
                s21 += a2 * b1
                s30 += a3 * b0
                s31 += a3 * b1
            gram[a, b] += s00
            gram[a, b + 1] += s01
            gram[a + 1, b] += s10
            gram[a + 1, b + 1] += s11
            gram[a + 2, b] += s20
            gram[a + 2, b + 1] += s21
            gram[a + 3, b] += s30
            gram[a + 3, b + 1] += s31


# --- one row: residuals, gradient, curvature -----------------------------------------------


@kernel()
def _row_residuals(lo, hi, indices, values, weights, other, offset, scratch):
    """Pack the row, fill v and r = b − offset − B x; returns Σ v target²."""
    v, r, s, pack = scratch.v, scratch.r, scratch.s, scratch.pack
    one = r.dtype.type(1)
    resident = hi - lo <= CHUNK * SLOTS
    size = 0.0
    for base in range(0, hi - lo, CHUNK):
        first, count = lo + base, min(CHUNK, hi - lo - base)
        slot = base // CHUNK if resident else 0
        _chunk_pack(indices, first, count, other, pack[slot])
        _chunk_times(pack[slot], scratch.x, count, s, base)
        for o in range(count):
            target = values[first + o]
            if offset.size:
                target -= offset[indices[first + o]]
            v[base + o] = weights[first + o] if weights.size else one
            r[base + o] = target - s[base + o]
            size += v[base + o] * np.float64(target) * target
    return size


@kernel()
def _row_slope(lo, hi, indices, other, scratch, upper, lower, rebuild):
    """Half the negative gradient g at the residuals, and the Gram matrix if it is to be rebuilt."""
    resident = hi - lo <= CHUNK * SLOTS
    g, gram = scratch.g, scratch.gram
    for a in range(g.size):  # loops, not slices: those take ten times as long to compile
        g[a] = 0
        if rebuild:
            for b in range(a + 1):
                gram[a, b] = 0
    for base in range(0, hi - lo, CHUNK):
        first, count = lo + base, min(CHUNK, hi - lo - base)
        slot = base // CHUNK if resident else 0
        if not resident:
            _chunk_pack(indices, first, count, other, scratch.pack[slot])
        for o in range(count):
            scratch.w[o] = scratch.v[base + o] * sign_weight(scratch.r[base + o], upper, lower)
        _chunk_gradient(scratch.pack[slot], scratch.w, scratch.r, base, count, scratch.g)
        if rebuild:
            _chunk_gram(scratch.pack[slot], scratch.scaled, scratch.w, count, scratch.gram)
    for a in range(scratch.ridge.size):
        scratch.g[a] -= scratch.ridge[a] * scratch.x[a]


@kernel()
def _row_flips(lo, hi, indices, other, scratch):
    """Correct the Gram matrix by the observations whose weight changed (by s)."""
    gram = scratch.gram
    for o in range(hi - lo):
        change = scratch.s[o]
        if change != 0:
            j = indices[lo + o]
            for a in range(other.shape[1]):
                scale = change * other[j, a]
                for b in range(a + 1):
                    gram[a, b] += scale * other[j, b]


# --- one row: the Newton direction ---------------------------------------------------------


@kernel()
def _cholesky_solve(factor, n, z):
    """Overwrite z[:n] by (L Lᵀ)⁻¹ z."""
    for i in range(n):
        total = z[i]
        for c in range(i):
            total -= factor[i, c] * z[c]
        z[i] = total / factor[i, i]
    for i in range(n - 1, -1, -1):
        zi = z[i] / factor[i, i]
        z[i] = zi
        for c in range(i):
            z[c] -= factor[i, c] * zi


@kernel()
def _cholesky(gram, ridge, factor, n, floor):
    """Factor gram + diag(ridge) while the pivots are above `floor`.

    Returns the number of rows done and the smallest share that a pivot kept of its diagonal.
    """
    kept = 1.0
    for i in range(n):
        for j in range(i):
            total = gram[i, j]
            for c in range(j):
                total -= factor[i, c] * factor[j, c]
            factor[i, j] = total / factor[j, j]
        diagonal = gram[i, i] + ridge[i]
        pivot = diagonal
        for c in range(i):
            pivot -= factor[i, c] * factor[i, c]
        if not pivot > floor:
            return i, 0.0
        kept = min(kept, pivot / diagonal)
        factor[i, i] = sqrt(pivot)
    return n, kept


@kernel()
def _row_minimum_norm(scratch, floor, max_rank, project):
    """For singular H: p = H⁺ g, or if `project` is set x projected onto the row space.

    Cholesky with diagonal pivoting gives H ≈ L Lᵀ with L of full column rank, so
    H⁺ = L (LᵀL)⁻² Lᵀ, and L (LᵀL)⁻¹ Lᵀ is the projection, which drops the part of the
    warm start that no observation sees. Returns the decrease g·p that p predicts.
    """
    gram, ridge, L, M = scratch.gram, scratch.ridge, scratch.factor, scratch.small
    x, g, p, z, picked = scratch.x, scratch.g, scratch.p, scratch.z, scratch.picked
    q = ridge.size
    zero = z.dtype.type(0)
    for a in range(q):
        z[a] = gram[a, a] + ridge[a]  # what is left of the diagonal
        picked[a] = False
        for c in range(q):
            L[a, c] = 0
    rank = 0
    for c in range(max_rank):
        pivot = -1
        for a in range(q):
            if not picked[a] and z[a] > floor and (pivot < 0 or z[a] > z[pivot]):
                pivot = a
        if pivot < 0:
            break
        picked[pivot] = True
        root = sqrt(z[pivot])
        L[pivot, c] = root
        for a in range(q):
            if not picked[a]:
                total = gram[a, pivot] if a > pivot else gram[pivot, a]
                for e in range(c):
                    total -= L[a, e] * L[pivot, e]
                L[a, c] = total / root
                z[a] -= L[a, c] * L[a, c]
        rank += 1

    for a in range(rank):
        for b in range(a + 1):
            total = zero
            for i in range(q):
                total += L[i, a] * L[i, b]
            M[a, b] = total
    source = x if project else g
    for a in range(rank):
        total = zero
        for i in range(q):
            total += L[i, a] * source[i]
        z[a] = total
        p[a] = 0
    # Positive definite but for rounding, which may shorten it; p lends its zeros as ridge.
    rank, _ = _cholesky(M, p, M, rank, zero)
    _cholesky_solve(M, rank, z)
    predicted = 0.0
    for a in range(rank):
        predicted += np.float64(z[a]) * z[a]
    if not project:
        _cholesky_solve(M, rank, z)
    target = x if project else p
    for i in range(q):
        total = zero
        for a in range(rank):
            total += L[i, a] * z[a]
        target[i] = total
    return predicted


@kernel()
def _row_direction(scratch, d, eps, tiny, project):
    """Solve H p = g, with the pseudo-inverse where H is numerically singular.

    There, if `project` is set, x is projected onto the row space instead.

    Returns the decrease of f that p predicts, and how far H is from singular: the smallest
    share a pivot kept of its diagonal, 0 for singular.
    """
    gram, ridge, g, p = scratch.gram, scratch.ridge, scratch.g, scratch.p
    q = ridge.size
    largest = 0.0
    for a in range(q):
        largest = max(largest, np.float64(gram[a, a]) + ridge[a])
    if not isfinite(largest):
        return largest, 0.0
    # Against the largest diagonal, so that a factor column at rounding level counts as none.
    floor = max(64 * q * eps * largest, tiny / eps)
    # Fewer observations than unknowns: H is singular unless the ridge says otherwise, and
    # rounding must not decide it.
    short = d < q
    for a in range(q):
        short = short and ridge[a] <= floor
    if not short:
        done, kept = _cholesky(gram, ridge, scratch.factor, q, floor)
        if done == q:
            for a in range(q):
                p[a] = g[a]
            _cholesky_solve(scratch.factor, q, p)
            predicted = 0.0
            for a in range(q):
                predicted += np.float64(g[a]) * p[a]
            return predicted, kept
    return _row_minimum_norm(scratch, floor, d if short else q, project), 0.0


# --- one row: how far along it -------------------------------------------------------------


@kernel()
def _row_squares(scratch, d, step):
    """Σ v r² over the residuals ≥ 0 and < 0 after `step` times s, in float64."""
    v, r, s = scratch.v, scratch.r, scratch.s
    total = 0.0
    below = 0.0
    for o in range(d):
        t = np.float64(r[o] - step * s[o])
        square = v[o] * t * t
        total += square
        below += square if t < 0 else 0.0
    return total - below, below


@kernel()
def _row_penalty(scratch, step):
    total = 0.0
    for a in range(scratch.ridge.size):
        xa = np.float64(scratch.x[a] + step * scratch.p[a])
        total += scratch.ridge[a] * xa * xa
    return total


@kernel()
def _row_line_search(scratch, d, upper, lower, eps):
    """The exact minimum along p: the root of the derivative, increasing and piecewise linear.

    Newton's method in one unknown inside a bracket; it lands on the root as soon
    as it reaches the root's own linear piece, so no breakpoints need sorting.
    """
    v, r, s = scratch.v, scratch.r, scratch.s
    left, right, step = 0.0, np.inf, 1.0
    for _ in range(100):
        slope = 0.0
        curvature = 0.0
        for o in range(d):
            so = np.float64(s[o])
            t = r[o] - step * so
            wso = v[o] * sign_weight(t, upper, lower) * so
            slope -= wso * t
            curvature += wso * so
        for a in range(scratch.ridge.size):
            pa = np.float64(scratch.p[a])
            slope += scratch.ridge[a] * (scratch.x[a] + step * pa) * pa
            curvature += scratch.ridge[a] * pa * pa
        if slope > 0:
            right = step
        else:
            left = step
        if not curvature > 0:
            break
        following = step - slope / curvature
        if not left < following < right:
            following = 0.5 * (left + right) if isfinite(right) else 2.0 * step
        if abs(following - step) <= 4 * eps * step:
            break
        step = following
    return step


@kernel()
def _row_change(lo, hi, indices, other, scratch):
    """S = B p: how the residuals fall along the direction."""
    resident = hi - lo <= CHUNK * SLOTS
    for base in range(0, hi - lo, CHUNK):
        count = min(CHUNK, hi - lo - base)
        slot = base // CHUNK if resident else 0
        if not resident:
            _chunk_pack(indices, lo + base, count, other, scratch.pack[slot])
        _chunk_times(scratch.pack[slot], scratch.p, count, scratch.s, base)


@kernel()
def _row_move(scratch, d, step, upper, lower):
    """X += step·p, r −= step·s; s becomes the change of the weights; returns how many changed."""
    v, r, s = scratch.v, scratch.r, scratch.s
    flips = 0
    for a in range(scratch.ridge.size):
        scratch.x[a] += step * scratch.p[a]
    for o in range(d):
        before = sign_weight(r[o], upper, lower)
        r[o] -= step * s[o]
        after = sign_weight(r[o], upper, lower)
        s[o] = v[o] * (after - before)
        flips += after != before
    return flips


# --- one row, a block of rows, all rows ----------------------------------------------------


@kernel()
def _row_solve(
    lo, hi, indices, values, weights, other, offset, scratch, level, max_newton, stats
):  # fmt: skip
    """Minimise f from scratch.x; fills the row's stats, returns its status."""
    upper, lower, eps, tiny = level.upper, level.lower, level.eps, level.tiny
    d = hi - lo
    size = _row_residuals(lo, hi, indices, values, weights, other, offset, scratch)
    above, below = _row_squares(scratch, d, 0.0)
    f = upper * above + lower * below + _row_penalty(scratch, 0.0)
    size += f
    _row_slope(lo, hi, indices, other, scratch, upper, lower, max_newton > 0)
    for a in range(scratch.ridge.size):
        stats[GRADIENT] += 4 * np.float64(scratch.g[a]) * scratch.g[a]
        size += scratch.ridge.size * np.float64(scratch.gram[a, a]) * scratch.x[a] ** 2
    noise = 256 * eps * eps * size  # rounding of f, from what the residuals are differences of
    status = SOLVED if max_newton == 0 else CAPPED
    if not isfinite(f):
        status = NOT_FINITE
        max_newton = 0
    project = True
    for _ in range(max_newton):
        predicted, kept = _row_direction(scratch, d, eps, tiny, project)
        if kept == 0 and project and isfinite(predicted):
            # Once: from here on x stays in the row space, and f is what it was but for rounding.
            project = False
            _row_residuals(lo, hi, indices, values, weights, other, offset, scratch)
            above, below = _row_squares(scratch, d, 0.0)
            f = upper * above + lower * below + _row_penalty(scratch, 0.0)
            _row_slope(lo, hi, indices, other, scratch, upper, lower, True)
            continue
        if not isfinite(predicted):
            status = NOT_FINITE
            break
        last = predicted <= 64 * eps * f + noise
        _row_change(lo, hi, indices, other, scratch)
        step = 1.0
        trial_above, trial_below = _row_squares(scratch, d, step)
        trial = upper * trial_above + lower * trial_below + _row_penalty(scratch, step)
        if trial > f - (0.0 if last else 0.25 * predicted):
            stats[SEARCHES] += 1
            step = _row_line_search(scratch, d, upper, lower, eps)
            trial_above, trial_below = _row_squares(scratch, d, step)
            trial = upper * trial_above + lower * trial_below + _row_penalty(scratch, step)
        stats[ITERATIONS] += 1
        if trial > f:  # only rounding can do that: x is as good as it gets
            status = SOLVED if kept > 0 else MINIMUM_NORM
            break
        flips = _row_move(scratch, d, step, upper, lower)
        stats[FLIPS] += flips
        above, below, f = trial_above, trial_below, trial
        # A full step that changed no weight has reached the minimum of its quadratic, to an
        # accuracy that a second one could improve only where H is ill-conditioned.
        if last or (flips == 0 and step == 1.0 and kept * kept > eps):
            status = SOLVED if kept > 0 else MINIMUM_NORM
            break
        rebuild = 3 * flips > d  # past that a fresh Gram matrix is cheaper than corrections
        if not rebuild:
            _row_flips(lo, hi, indices, other, scratch)
        _row_slope(lo, hi, indices, other, scratch, upper, lower, rebuild)
    stats[ABOVE] = above
    stats[BELOW] = below
    return status


@kernel()
def _rows_solve(
    first, last, indptr, indices, values, weights, other, offset,
    ridge, intercept_ridge, n_factors, level, max_newton, start, out, stats, status,
):  # fmt: skip
    """Rows first … last − 1, one after the other, in scratch that this block owns."""
    q = other.shape[1]
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    scratch = _make_scratch(q, longest, out)
    for i in range(first, last):
        lo, hi = indptr[i], indptr[i + 1]
        if lo == hi:
            for a in range(q):
                out[i, a] = 0
            status[i] = EMPTY
            continue
        for a in range(q):
            scratch.x[a] = start[i, a]
            scratch.ridge[a] = ridge[i] if a < n_factors else intercept_ridge
        status[i] = _row_solve(
            lo, hi, indices, values, weights, other, offset,
            scratch, level, max_newton, stats[i],
        )  # fmt: skip
        for a in range(q):
            out[i, a] = scratch.x[a]


@kernel(parallel=True)
def sweep_rows(
    blocks, indptr, indices, values, weights, other, offset,
    ridge, intercept_ridge, n_factors, level, max_newton, start, out, stats, status,
):  # fmt: skip
    """Solve the rows of each block; a row's result depends on nothing but its own data.

    Parameters
    ----------
    blocks
        Row boundaries, increasing; block b is rows blocks[b] … blocks[b+1] − 1.
    indptr, indices, values, weights
        The observations by row; `weights` is empty where all are one.
    other, offset
        The other factor (one row per index) and what is subtracted from the values
        (one per index, or empty).
    ridge, intercept_ridge, n_factors
        Ridge per row on the first `n_factors` coordinates, and on the rest.
    level
        A `Level`: the two weights and the dtype's limits.
    max_newton
        0 evaluates at `start` and moves nothing.
    start, out
        Where rows start from, where the solutions go (may be one array).
    stats, status
        Reports per row: the columns and codes above. `stats` arrives as zeros.
    """
    for b in prange(blocks.size - 1):
        _rows_solve(
            blocks[b], blocks[b + 1], indptr, indices, values, weights, other, offset,
            ridge, intercept_ridge, n_factors, level, max_newton, start, out, stats, status,
        )  # fmt: skip


SWEEP = (sweep_rows, _rows_solve)  # (parallel, serial) for threads.launch
