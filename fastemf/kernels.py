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

Everything of order k² per observation is a sum of outer products and goes
through one register tile (`_tile`). It is written in LLVM's vector types because
Numba leaves the vectoriser for straight-line code off, and a tile of scalars
stays scalar.

Name prefixes tell the layer: `_chunk_*` up to a cacheful of observations,
`_row_*` one row, `_rows_*` a serial block of rows that owns its scratch,
`sweep_*` the parallel entry.
"""

from __future__ import annotations

from collections import namedtuple
from math import isfinite, sqrt
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from fastemf.jit import kernel

# Vector registers of this machine, and as many tile rows as leave the accumulators in them.
VECTOR_BYTES = 64 if llvm.get_host_cpu_features().get("avx512f") else 32
TILE_ROWS = 8 if VECTOR_BYTES == 64 else 4
CHUNK_BYTES = 1 << 15  # packed rows that the tiles go over again and again: two thirds of L1
RESIDENT_BYTES = 1 << 19  # a row's packed observations are kept between its Newton iterations
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


def padded(factor: NDArray[Any]) -> NDArray[Any]:
    """The factor with zero columns up to whole vectors, as the kernels take it."""
    lanes = VECTOR_BYTES // factor.itemsize
    wide = np.zeros((factor.shape[0], -(-factor.shape[1] // lanes) * lanes), factor.dtype)
    wide[:, : factor.shape[1]] = factor
    return wide


@kernel()
def _aligned(n, m, like):
    """Zeros that start on a cache line: a vector load across two lines costs two."""
    lanes = 64 // like.itemsize
    raw = np.zeros(n * m + lanes, like.dtype)
    first = (-(raw.ctypes.data // like.itemsize)) % lanes
    return raw[first : first + n * m].reshape(n, m)


@kernel()
def sign_weight(r, upper, lower):
    """The sign rule, once: ω where r ≥ 0, 1 − ω where r < 0."""
    return upper if r >= 0 else lower


# --- the register tile ---------------------------------------------------------------------


def _tile_codegen(rows, vectors):
    """LLVM for out[b:b+rows, a:a+vectors·lanes] += Σ_o w[o] · source[o, b:…]ᵀ source[o, a:…]."""

    def codegen(context, builder, signature, args):
        kinds = signature.args
        source, weights, out = (
            context.make_array(kinds[i])(context, builder, args[i]) for i in (0, 1, 7)
        )
        first, first_weight, count, b, a = args[2:7]
        element = context.get_data_type(kinds[0].dtype)
        itemsize = kinds[0].dtype.bitwidth // 8
        lanes = VECTOR_BYTES // itemsize
        vector, index, lane = ir.VectorType(element, lanes), ir.IntType(64), ir.IntType(32)

        def at(array, row, column):
            stride = cgutils.unpack_tuple(builder, array.strides)[0]
            width = builder.sdiv(stride, index(itemsize))
            return builder.gep(array.data, [builder.add(builder.mul(row, width), column)])

        def vector_at(pointer, number):
            pointer = builder.gep(pointer, [index(number * lanes)])
            return builder.bitcast(pointer, vector.as_pointer())

        def load(pointer):
            loaded = builder.load(pointer)
            loaded.align = itemsize
            return loaded

        def splat(scalar):
            undefined = ir.Constant(vector, ir.Undefined)
            single = builder.insert_element(undefined, scalar, lane(0))
            zeros = ir.Constant(ir.VectorType(lane, lanes), [lane(0)] * lanes)
            return builder.shuffle_vector(single, undefined, zeros)

        fuse = ("contract",)  # multiply and add in one instruction
        zero = ir.Constant(vector, [element(0.0)] * lanes)
        before = builder.block
        loop, done = (builder.append_basic_block(f"tile.{name}") for name in ("loop", "done"))
        builder.cbranch(builder.icmp_signed(">", count, index(0)), loop, done)

        builder.position_at_end(loop)
        o = builder.phi(index)
        o.add_incoming(index(0), before)
        sums = [builder.phi(vector) for _ in range(rows * vectors)]
        weight = splat(builder.load(builder.gep(weights.data, [builder.add(o, first_weight)])))
        row = builder.add(o, first)
        right = at(source, row, a)
        rights = [
            builder.fmul(load(vector_at(right, i)), weight, flags=fuse) for i in range(vectors)
        ]
        left = at(source, row, b)
        following = []
        for i in range(rows):
            factor = splat(builder.load(builder.gep(left, [index(i)])))
            for j in range(vectors):
                product = builder.fmul(factor, rights[j], flags=fuse)
                following.append(builder.fadd(product, sums[i * vectors + j], flags=fuse))
        o_next = builder.add(o, index(1))
        o.add_incoming(o_next, loop)
        for phi, value in zip(sums, following, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", o_next, count), loop, done)

        builder.position_at_end(done)
        totals = [builder.phi(vector) for _ in following]
        for phi, value in zip(totals, following, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(value, loop)
        for i in range(rows):
            target = at(out, builder.add(b, index(i)), a)
            for j in range(vectors):
                pointer = vector_at(target, j)
                total = builder.fadd(load(pointer), totals[i * vectors + j])
                builder.store(total, pointer).align = itemsize
        return context.get_dummy_value()

    return codegen


def _make_tile(vectors):
    if config.DISABLE_JIT:

        def tile(source, weights, first, first_weight, count, b, a, out):
            wide = vectors * VECTOR_BYTES // out.itemsize
            rows, w = source[first : first + count], weights[first_weight : first_weight + count]
            left, right = rows[:, b : b + TILE_ROWS], rows[:, a : a + wide]
            for i in range(TILE_ROWS):
                for j in range(wide):
                    out[b + i, a + j] += np.sum(left[:, i] * w * right[:, j])

        return tile

    @intrinsic
    def tile(typing, source, weights, first, first_weight, count, b, a, out):
        index = types.int64
        signature = types.void(source, weights, index, index, index, index, index, out)
        return signature, _tile_codegen(TILE_ROWS, vectors)

    return tile


_tile_1, _tile_2 = _make_tile(1), _make_tile(2)


@kernel()
def _outer_products(source, weights, first, first_weight, count, b, out):
    """Rows b … b+TILE_ROWS−1 of out += Σ_o w[o] y_o y_oᵀ, from the diagonal's vector on."""
    lanes = VECTOR_BYTES // out.itemsize
    a = b // lanes * lanes
    while a + lanes < out.shape[1]:
        _tile_2(source, weights, first, first_weight, count, b, a, out)
        a += 2 * lanes
    if a < out.shape[1]:
        _tile_1(source, weights, first, first_weight, count, b, a, out)


# --- one row: residuals, gradient, curvature -----------------------------------------------
#
# Arrays go from function to function one by one: a tuple of them would be copied and
# reference-counted at every call, which costs more than a short row's arithmetic. Names:
# idx, b, v: the row's indices, values and weights; rows: other's rows, packed; x, r, w: the
# unknowns, residuals and weights v·w; s: B p, later the change of w; q unknowns are padded to
# whole vectors, and observations are taken by fours, with zero weight behind the last.


@kernel()
def _row_times(idx, other, rows, chunk, pack, x, out):
    """Out = B x, chunk by chunk; `pack` says whether the rows must be fetched first."""
    d = idx.size
    zero = x.dtype.type(0)
    resident = d + 3 < rows.shape[0]
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        at = base if resident else 0
        if pack or not resident:
            _chunk_pack(idx[base : base + count], other, rows, at)
        for o in range(0, count, 4):  # four sums at once, so that they overlap
            s0 = s1 = s2 = s3 = zero
            i = at + o
            for a in range(x.size):
                s0 += rows[i, a] * x[a]
                s1 += rows[i + 1, a] * x[a]
                s2 += rows[i + 2, a] * x[a]
                s3 += rows[i + 3, a] * x[a]
            out[base + o] = s0
            out[base + o + 1] = s1
            out[base + o + 2] = s2
            out[base + o + 3] = s3


@kernel()
def _chunk_pack(idx, other, rows, at):
    for o in range(idx.size):
        j = idx[o]
        for a in range(rows.shape[1]):
            rows[at + o, a] = other[j, a]


@kernel()
def _row_residuals(idx, b, weights, offset, s, v, r):
    """Fill v and r = b − offset − B x, with B x in s; returns Σ v (b − offset)².

    One loop for one thing: a branch inside would keep it from being vectorised.
    """
    for o in range(b.size):
        r[o] = b[o]
        v[o] = 1
    if weights.size:
        for o in range(b.size):
            v[o] = weights[o]
    if offset.size:
        for o in range(b.size):
            r[o] -= offset[idx[o]]
    size = 0.0
    for o in range(b.size):
        size += v[o] * np.float64(r[o]) * r[o]
        r[o] -= s[o]
    return size


@kernel()
def _row_slope(idx, other, rows, chunk, v, r, w, x, ridge, upper, lower, rebuild, g, gram):
    """Half the negative gradient g at the residuals, and the Gram matrix if it is to be rebuilt."""
    d = idx.size
    resident = d + 3 < rows.shape[0]
    for a in range(g.size):  # loops, not slices: those take ten times as long to compile
        g[a] = 0
    if rebuild:
        for b in range(gram.shape[0]):
            for a in range(gram.shape[1]):
                gram[b, a] = 0
    for o in range(d):
        w[o] = v[o] * sign_weight(r[o], upper, lower)
    for o in range(3):
        w[d + o] = 0
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        at = base if resident else 0
        if not resident:
            _chunk_pack(idx[base : base + count], other, rows, at)
        for o in range(0, count, 4):  # by fours, so that g is loaded a quarter as often
            i, e = at + o, base + o
            c0, c1, c2, c3 = (
                w[e] * r[e],
                w[e + 1] * r[e + 1],
                w[e + 2] * r[e + 2],
                w[e + 3] * r[e + 3],
            )
            for a in range(g.size):
                g[a] += (
                    c0 * rows[i, a]
                    + c1 * rows[i + 1, a]
                    + c2 * rows[i + 2, a]
                    + c3 * rows[i + 3, a]
                )
        if rebuild:
            for b in range(0, gram.shape[0], TILE_ROWS):
                _outer_products(rows, w, at, base, count, b, gram)
    for a in range(ridge.size):
        g[a] -= ridge[a] * x[a]


@kernel()
def _row_flips(idx, other, s, spare, gram):
    """Correct the Gram matrix by the observations whose weight changed (by s)."""
    found = 0
    for o in range(idx.size):
        if s[o] != 0:
            s[found] = s[o]  # to the front: found never overtakes o
            j = idx[o]
            for a in range(spare.shape[1]):
                spare[found, a] = other[j, a]
            found += 1
        if found == spare.shape[0] or (found > 0 and o == idx.size - 1):
            for b in range(0, gram.shape[0], TILE_ROWS):
                _outer_products(spare, s, 0, 0, found, b, gram)
            found = 0


# --- one row: the Newton direction ---------------------------------------------------------


@kernel()
def _cholesky_solve(U, n, z):
    """Overwrite z[:n] by (Uᵀ U)⁻¹ z."""
    for i in range(n):
        zi = z[i] / U[i, i]
        z[i] = zi
        for c in range(i + 1, n):
            z[c] -= U[i, c] * zi
    for back in range(n):
        i = n - 1 - back
        total = z[i]
        for c in range(i + 1, n):
            total -= U[i, c] * z[c]
        z[i] = total / U[i, i]


@kernel()
def _cholesky_rows(U, first, last, n, floor, diagonal):
    """Factor rows first … last − 1 in place once the rows above them are taken off.

    Returns how many rows are done so far and the smallest share a pivot kept of the diagonal
    as it was.
    """
    share = 1.0
    if first < 0:  # never: but now LLVM knows, drops Python's wrap-around and vectorises
        return 0, share
    for i in range(first, last):
        pivot = U[i, i]
        if not pivot > floor:
            return i, 0.0
        share = min(share, pivot / diagonal[i])
        scale = 1 / sqrt(pivot)
        for c in range(i, n):
            U[i, c] *= scale
        for e in range(i + 1, last):
            factor = U[i, e]
            for c in range(e, n):
                U[e, c] -= factor * U[i, c]
    return last, share


@kernel()
def _cholesky(gram, ridge, minus, floor, U, diagonal):
    """Upper factor of gram + diag(ridge) while the pivots are above `floor`.

    Returns the number of rows done and the smallest share that a pivot kept of its diagonal.
    A panel of rows takes off all rows above it at once, through the tile.
    """
    q = ridge.size
    for b in range(gram.shape[0]):
        for a in range(gram.shape[1]):
            U[b, a] = gram[b, a]
    for b in range(q):
        U[b, b] += ridge[b]
        diagonal[b] = U[b, b]
    share = 1.0
    for first in range(0, q, TILE_ROWS):
        last = min(first + TILE_ROWS, q)
        if first > 0:
            _outer_products(U, minus, 0, 0, first, first, U)
        done, panel = _cholesky_rows(U, first, last, q, floor, diagonal)
        if done < last:
            return done, 0.0
        share = min(share, panel)
    return q, share


@kernel()
def _row_minimum_norm(gram, ridge, floor, max_rank, project, L, M, x, g, p, z, picked):
    """For singular H: p = H⁺ g, or if `project` is set x projected onto the row space.

    Cholesky with diagonal pivoting gives H ≈ L Lᵀ with L of full column rank, so
    H⁺ = L (LᵀL)⁻² Lᵀ, and L (LᵀL)⁻¹ Lᵀ is the projection, which drops the part of the
    warm start that no observation sees. Returns the decrease g·p that p predicts.
    """
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
                total = gram[pivot, a] if a > pivot else gram[a, pivot]
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
            M[b, a] = total
    source = x if project else g
    for a in range(rank):
        total = zero
        for i in range(q):
            total += L[i, a] * source[i]
        z[a] = total
    for a in range(rank):
        p[a] = M[a, a]
    rank, _ = _cholesky_rows(M, 0, rank, rank, zero, p)  # rounding may shorten it
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
def _row_direction(gram, ridge, minus, d, level, project, U, M, x, g, p, z, picked):
    """Solve H p = g, with the pseudo-inverse where H is numerically singular.

    There, if `project` is set, x is projected onto the row space instead.

    Returns the decrease of f that p predicts, and how far H is from singular: the smallest
    share a pivot kept of its diagonal, 0 for singular.
    """
    q = ridge.size
    largest = 0.0
    for a in range(q):
        largest = max(largest, np.float64(gram[a, a]) + ridge[a])
    if not isfinite(largest):
        return largest, 0.0
    # Against the largest diagonal, so that a factor column at rounding level counts as none.
    floor = max(64 * q * level.eps * largest, level.tiny / level.eps)
    # Fewer observations than unknowns: H is singular unless the ridge says otherwise, and
    # rounding must not decide it.
    short = d < q
    for a in range(q):
        short = short and ridge[a] <= floor
    if not short:
        done, kept = _cholesky(gram, ridge, minus, floor, U, z)
        if done == q:
            for a in range(q):
                p[a] = g[a]
            _cholesky_solve(U, q, p)
            predicted = 0.0
            for a in range(q):
                predicted += np.float64(g[a]) * p[a]
            return predicted, kept
    max_rank = d if short else q
    predicted = _row_minimum_norm(
        gram, ridge, floor, max_rank, project, U, M, x, g, p, z, picked
    )  # fmt: skip
    return predicted, 0.0


# --- one row: how far along it -------------------------------------------------------------


@kernel()
def _row_squares(v, r, s, step, d):
    """Σ v r² over the residuals ≥ 0 and < 0 after `step` times s, in float64."""
    total = 0.0
    below = 0.0
    for o in range(d):
        t = np.float64(r[o] - step * s[o])
        square = v[o] * t * t
        total += square
        below += square if t < 0 else 0.0
    return total - below, below


@kernel()
def _row_penalty(ridge, x, p, step):
    total = 0.0
    for a in range(ridge.size):
        xa = np.float64(x[a] + step * p[a])
        total += ridge[a] * xa * xa
    return total


@kernel()
def _row_line_search(v, r, s, d, ridge, x, p, level):
    """The exact minimum along p: the root of the derivative, increasing and piecewise linear.

    Newton's method in one unknown inside a bracket; it lands on the root as soon
    as it reaches the root's own linear piece, so no breakpoints need sorting.
    """
    left, right, step = 0.0, np.inf, 1.0
    for _ in range(100):
        slope = 0.0
        curvature = 0.0
        for o in range(d):
            so = np.float64(s[o])
            t = r[o] - step * so
            wso = v[o] * sign_weight(t, level.upper, level.lower) * so
            slope -= wso * t
            curvature += wso * so
        for a in range(ridge.size):
            pa = np.float64(p[a])
            slope += ridge[a] * (x[a] + step * pa) * pa
            curvature += ridge[a] * pa * pa
        if slope > 0:
            right = step
        else:
            left = step
        if not curvature > 0:
            break
        following = step - slope / curvature
        if not left < following < right:
            following = 0.5 * (left + right) if isfinite(right) else 2.0 * step
        if abs(following - step) <= 4 * level.eps * step:
            break
        step = following
    return step


@kernel()
def _row_move(v, r, s, d, x, p, step, upper, lower):
    """X += step·p, r −= step·s; s becomes the change of the weights; returns how many changed."""
    flips = 0
    for a in range(x.size):
        x[a] += step * p[a]
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
    idx, b, weights, other, offset, level, max_newton, stats,
    rows, spare, v, r, s, w, minus, gram, U, M, ridge, g, x, p, z, picked,
):  # fmt: skip
    """Minimise f from x; leaves the solution there, fills the row's stats, returns its status."""
    upper, lower, eps = level.upper, level.lower, level.eps
    d, q, chunk = idx.size, ridge.size, spare.shape[0]
    _row_times(idx, other, rows, chunk, True, x, s)
    size = _row_residuals(idx, b, weights, offset, s, v, r)
    above, below = _row_squares(v, r, s, 0.0, d)
    f = upper * above + lower * below + _row_penalty(ridge, x, p, 0.0)
    size += f
    rebuild = max_newton > 0
    _row_slope(idx, other, rows, chunk, v, r, w, x, ridge, upper, lower, rebuild, g, gram)
    for a in range(q):
        stats[GRADIENT] += 4 * np.float64(g[a]) * g[a]
        size += q * np.float64(gram[a, a]) * x[a] ** 2
    noise = 256 * eps * eps * size  # rounding of f, from what the residuals are differences of
    status = SOLVED if max_newton == 0 else CAPPED
    if not isfinite(f):
        status = NOT_FINITE
        max_newton = 0
    project = True
    for _ in range(max_newton):
        predicted, kept = _row_direction(
            gram, ridge, minus, d, level, project, U, M, x, g, p, z, picked
        )  # fmt: skip
        if not isfinite(predicted):
            status = NOT_FINITE
            break
        if kept == 0 and project:
            # Once: from here on x stays in the row space, and f is what it was but for rounding.
            project = False
            _row_times(idx, other, rows, chunk, False, x, s)
            _row_residuals(idx, b, weights, offset, s, v, r)
            above, below = _row_squares(v, r, s, 0.0, d)
            f = upper * above + lower * below + _row_penalty(ridge, x, p, 0.0)
            _row_slope(idx, other, rows, chunk, v, r, w, x, ridge, upper, lower, True, g, gram)
            continue
        last = predicted <= 64 * eps * f + noise
        _row_times(idx, other, rows, chunk, False, p, s)
        step = 1.0
        trial_above, trial_below = _row_squares(v, r, s, step, d)
        trial = upper * trial_above + lower * trial_below + _row_penalty(ridge, x, p, step)
        if trial > f - (0.0 if last else 0.25 * predicted):
            stats[SEARCHES] += 1
            step = _row_line_search(v, r, s, d, ridge, x, p, level)
            trial_above, trial_below = _row_squares(v, r, s, step, d)
            trial = upper * trial_above + lower * trial_below + _row_penalty(ridge, x, p, step)
        stats[ITERATIONS] += 1
        if trial > f:  # only rounding can do that: x is as good as it gets
            status = SOLVED if kept > 0 else MINIMUM_NORM
            break
        flips = _row_move(v, r, s, d, x, p, step, upper, lower)
        stats[FLIPS] += flips
        above, below, f = trial_above, trial_below, trial
        # A full step that changed no weight has reached the minimum of its quadratic, to an
        # accuracy that a second one could improve only where H is ill-conditioned.
        if last or (flips == 0 and step == 1.0 and kept * kept > eps):
            status = SOLVED if kept > 0 else MINIMUM_NORM
            break
        rebuild = 2 * flips > d  # past that a fresh Gram matrix is cheaper than corrections
        if not rebuild:
            _row_flips(idx, other, s, spare, gram)
        _row_slope(idx, other, rows, chunk, v, r, w, x, ridge, upper, lower, rebuild, g, gram)
    stats[ABOVE] = above
    stats[BELOW] = below
    return status


@kernel()
def _rows_solve(
    first, last, indptr, indices, values, weights, other, offset,
    ridge, intercept_ridge, n_factors, level, max_newton, start, out, stats, status,
):  # fmt: skip
    """Rows first … last − 1, one after the other, in scratch that this block owns."""
    q, wide = start.shape[1], other.shape[1]
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    padded = longest + 4
    chunk = max(16, CHUNK_BYTES // (wide * out.itemsize) // 4 * 4)
    tall = -(-q // TILE_ROWS) * TILE_ROWS
    kept = min(padded, max(chunk, RESIDENT_BYTES // (wide * out.itemsize)))
    rows, spare = _aligned(kept, wide, out), _aligned(chunk, wide, out)
    gram, U = _aligned(tall, wide, out), _aligned(tall, wide, out)
    M = np.zeros((q, q), out.dtype)
    v, r = np.zeros(padded, out.dtype), np.zeros(padded, out.dtype)
    s, w = np.zeros(padded, out.dtype), np.zeros(padded, out.dtype)
    g, x, p = np.zeros(wide, out.dtype), np.zeros(wide, out.dtype), np.zeros(wide, out.dtype)
    penalties, z = np.zeros(q, out.dtype), np.zeros(q, out.dtype)
    minus = np.full(wide, -1, out.dtype)
    picked = np.zeros(q, np.bool_)
    for i in range(first, last):
        lo, hi = indptr[i], indptr[i + 1]
        if lo == hi:
            for a in range(q):
                out[i, a] = 0
            status[i] = EMPTY
            continue
        for a in range(q):
            x[a] = start[i, a]
            p[a] = 0
            penalties[a] = ridge[i] if a < n_factors else intercept_ridge
        status[i] = _row_solve(
            indices[lo:hi], values[lo:hi], weights[lo:hi] if weights.size else weights,
            other, offset, level, max_newton, stats[i],
            rows, spare, v, r, s, w, minus, gram, U, M, penalties, g, x, p, z, picked,
        )  # fmt: skip
        for a in range(q):
            out[i, a] = x[a]


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
        The other factor (one row per index, its columns padded to
        whole vectors by `padded`) and what is subtracted from the values (one per index, or empty).
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
