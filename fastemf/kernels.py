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
through one register tile.

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


def _vector_bytes() -> int:
    """Width of this machine's vector registers; 32 also suits those with narrower ones."""
    try:
        return 64 if llvm.get_host_cpu_features().get("avx512f") else 32
    except RuntimeError:  # LLVM cannot tell on every platform
        return 32


VECTOR_BYTES = _vector_bytes()
# As many rows of a tile as leave its sums in the registers.
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
    # np.empty, not np.zeros: only the former asks for huge pages, and rows are fetched at random
    wide = np.empty((factor.shape[0], -(-factor.shape[1] // lanes) * lanes), factor.dtype)
    wide[:, : factor.shape[1]] = factor
    wide[:, factor.shape[1] :] = 0
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


# --- vector operations ---------------------------------------------------------------------
#
# Numba leaves LLVM's vectoriser for straight-line code off, and its loop vectoriser ends every
# loop with a scalar remainder, which dominates at the lengths of one row. So what runs once per
# observation or per row of a triangle is written in vector types. Rows are padded to whole
# vectors, hence no remainders. Each operation has its meaning beside it in Python, which is also
# what runs without the JIT.


class _Vectors:
    """The instructions the operations below are made of."""

    FUSE = ("contract", "reassoc")  # multiply and add in one instruction; sum lanes in any order
    INDEX, LANE = ir.IntType(64), ir.IntType(32)

    def __init__(self, context, builder, dtype):
        self.context, self.builder = context, builder
        self.element = context.get_data_type(dtype)
        self.itemsize = dtype.bitwidth // 8
        self.lanes = VECTOR_BYTES // self.itemsize
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, [self.element(0.0)] * self.lanes)

    def pointer(self, kind, array, row, column):
        """Address of an element; one-dimensional arrays are a single row."""
        view = self.context.make_array(kind)(self.context, self.builder, array)
        if kind.ndim == 2:
            stride = cgutils.unpack_tuple(self.builder, view.strides)[0]
            width = self.builder.sdiv(stride, self.INDEX(self.itemsize))
            column = self.builder.add(self.builder.mul(row, width), column)
        return self.builder.gep(view.data, [column])

    def width(self, kind, array):
        view = self.context.make_array(kind)(self.context, self.builder, array)
        return cgutils.unpack_tuple(self.builder, view.shape)[-1]

    def _at(self, pointer, number):
        pointer = self.builder.gep(pointer, [self.INDEX(number * self.lanes)])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def load(self, pointer, number=0):
        loaded = self.builder.load(self._at(pointer, number))
        loaded.align = self.itemsize
        return loaded

    def store(self, value, pointer, number=0):
        self.builder.store(value, self._at(pointer, number)).align = self.itemsize

    def splat(self, scalar):
        undefined = ir.Constant(self.type, ir.Undefined)
        single = self.builder.insert_element(undefined, scalar, self.LANE(0))
        zeros = ir.Constant(ir.VectorType(self.LANE, self.lanes), [self.LANE(0)] * self.lanes)
        return self.builder.shuffle_vector(single, undefined, zeros)

    def multiply_add(self, a, b, c):
        product = self.builder.fmul(a, b, flags=self.FUSE)
        return self.builder.fadd(product, c, flags=self.FUSE)

    def total(self, vector):
        """Sum of the lanes."""
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.itemsize}"
        kind = ir.FunctionType(self.element, [self.element, self.type])
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(reduce, [self.element(0.0), vector], fastmath=self.FUSE)

    def loop(self, first, last, step, sums, body):
        """Run body(index, sums) → sums for first, first + step, … below last; returns the sums."""
        builder = self.builder
        before = builder.block
        inside, done = (builder.append_basic_block(name) for name in ("vector.loop", "vector.end"))
        builder.cbranch(builder.icmp_signed("<", first, last), inside, done)
        builder.position_at_end(inside)
        index = builder.phi(self.INDEX)
        running = [builder.phi(self.type) for _ in sums]
        following = body(index, running)
        index_next = builder.add(index, self.INDEX(step))
        index.add_incoming(first, before)
        index.add_incoming(index_next, inside)
        builder.cbranch(builder.icmp_signed("<", index_next, last), inside, done)
        builder.position_at_end(done)
        ended = [builder.phi(self.type) for _ in sums]
        for start, phi, end, value in zip(sums, running, ended, following, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, inside)
            end.add_incoming(start, before)
            end.add_incoming(value, inside)
        return ended


def _tile_codegen(rows, vectors):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        source, weights, first, first_weight, count, b, a, out = args
        do = _Vectors(context, builder, kinds[0].dtype)

        def body(o, sums):
            at = builder.add(o, first_weight)
            weight = do.splat(builder.load(do.pointer(kinds[1], weights, None, at)))
            row = builder.add(o, first)
            right, left = (do.pointer(kinds[0], source, row, column) for column in (a, b))
            rights = [
                builder.fmul(do.load(right, j), weight, flags=do.FUSE) for j in range(vectors)
            ]
            following = []
            for i in range(rows):
                factor = do.splat(builder.load(builder.gep(left, [do.INDEX(i)])))
                for j in range(vectors):
                    following.append(do.multiply_add(factor, rights[j], sums[i * vectors + j]))
            return following

        sums = do.loop(do.INDEX(0), count, 1, [do.zero] * (rows * vectors), body)
        for i in range(rows):
            target = do.pointer(kinds[7], out, builder.add(b, do.INDEX(i)), a)
            for j in range(vectors):
                do.store(builder.fadd(do.load(target, j), sums[i * vectors + j]), target, j)
        return context.get_dummy_value()

    return codegen


def _dot_codegen(rows):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        source, row, x, first = args
        do = _Vectors(context, builder, kinds[0].dtype)

        def body(column, sums):
            other = do.load(do.pointer(kinds[2], x, None, column))
            return [
                do.multiply_add(
                    do.load(do.pointer(kinds[0], source, builder.add(row, do.INDEX(i)), column)),
                    other,
                    sums[i],
                )
                for i in range(rows)
            ]

        last = do.width(kinds[0], source)
        sums = do.loop(first, last, do.lanes, [do.zero] * rows, body)
        totals = [do.total(value) for value in sums]
        return (
            totals[0] if rows == 1 else context.make_tuple(builder, signature.return_type, totals)
        )

    return codegen


def _add_codegen(rows):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        out, out_row, source, row, first = args[:5]
        do = _Vectors(context, builder, kinds[0].dtype)
        factors = [do.splat(factor) for factor in args[5:]]

        def body(column, _):
            target = do.pointer(kinds[0], out, out_row, column)
            value = do.load(target)
            for i in range(rows):
                at = do.pointer(kinds[2], source, builder.add(row, do.INDEX(i)), column)
                value = do.multiply_add(factors[i], do.load(at), value)
            do.store(value, target)
            return []

        do.loop(first, do.width(kinds[2], source), do.lanes, [], body)
        return context.get_dummy_value()

    return codegen


def _copy_codegen(context, builder, signature, args):
    kinds = signature.args
    out, out_row, source, row = args
    do = _Vectors(context, builder, kinds[0].dtype)

    def body(column, _):
        value = do.load(do.pointer(kinds[2], source, row, column))
        do.store(value, do.pointer(kinds[0], out, out_row, column))
        return []

    do.loop(do.INDEX(0), do.width(kinds[0], out), do.lanes, [], body)
    return context.get_dummy_value()


def _scale_codegen(context, builder, signature, args):
    kind = signature.args[0]
    out, row, first, factor = args
    do = _Vectors(context, builder, kind.dtype)
    factor = do.splat(factor)

    def body(column, _):
        target = do.pointer(kind, out, row, column)
        do.store(builder.fmul(do.load(target), factor), target)
        return []

    do.loop(first, do.width(kind, out), do.lanes, [], body)
    return context.get_dummy_value()


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _make_tile(vectors):
        def tile(source, weights, first, first_weight, count, b, a, out):
            wide = vectors * VECTOR_BYTES // out.itemsize
            rows, w = source[first : first + count], weights[first_weight : first_weight + count]
            left, right = rows[:, b : b + TILE_ROWS], rows[:, a : a + wide]
            for i in range(TILE_ROWS):
                for j in range(wide):
                    out[b + i, a + j] += np.sum(left[:, i] * w * right[:, j])

        return tile

    def _dot_1(source, row, x, first):
        return np.sum(source[row, first:] * x[first : source.shape[1]])

    def _dot_4(source, row, x, first):
        return tuple(_dot_1(source, row + i, x, first) for i in range(4))

    def _add_1(out, out_row, source, row, first, factor):
        target = out[out_row] if out.ndim == 2 else out
        target[first:] += factor * source[row, first:]

    def _add_4(out, out_row, source, row, first, c0, c1, c2, c3):
        for i, factor in enumerate((c0, c1, c2, c3)):
            _add_1(out, out_row, source, row + i, first, factor)

    def _copy(out, out_row, source, row):
        out[out_row] = source[row]

    def _scale(out, row, first, factor):
        out[row, first:] *= factor

else:

    def _make_tile(vectors):
        @intrinsic
        def tile(typing, source, weights, first, first_weight, count, b, a, out):
            """out[b:b+TILE_ROWS, a:a+vectors·lanes] += Σ_o w[o] source[o, b:…]ᵀ source[o, a:…]."""
            n = types.int64
            signature = types.void(source, weights, n, n, n, n, n, out)
            return signature, _tile_codegen(TILE_ROWS, vectors)

        return tile

    @intrinsic
    def _dot_1(typing, source, row, x, first):
        """source[row, first:] · x[first:]; `first` begins a vector."""
        return source.dtype(source, types.int64, x, types.int64), _dot_codegen(1)

    @intrinsic
    def _dot_4(typing, source, row, x, first):
        """The same for rows row … row + 3, at once so that the sums overlap."""
        result = types.UniTuple(source.dtype, 4)
        return result(source, types.int64, x, types.int64), _dot_codegen(4)

    @intrinsic
    def _add_1(typing, out, out_row, source, row, first, factor):
        """out[out_row, first:] += factor · source[row, first:]; `first` begins a vector."""
        n, t = types.int64, source.dtype
        return types.void(out, n, source, n, n, t), _add_codegen(1)

    @intrinsic
    def _add_4(typing, out, out_row, source, row, first, c0, c1, c2, c3):
        """The same for four rows with a factor each, so that out is loaded a quarter as often."""
        n, t = types.int64, source.dtype
        return types.void(out, n, source, n, n, t, t, t, t), _add_codegen(4)

    @intrinsic
    def _copy(typing, out, out_row, source, row):
        """out[out_row] = source[row]."""
        return types.void(out, types.int64, source, types.int64), _copy_codegen

    @intrinsic
    def _scale(typing, out, row, first, factor):
        """out[row, first:] *= factor; `first` begins a vector."""
        return types.void(out, types.int64, types.int64, out.dtype), _scale_codegen


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
    """Fill out with B x, chunk by chunk; `pack` says whether the rows must be fetched first."""
    d = idx.size
    resident = d + 3 < rows.shape[0]
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        at = base if resident else 0
        if pack or not resident:
            _chunk_pack(idx[base : base + count], other, rows, at)
        for o in range(0, count, 4):
            s0, s1, s2, s3 = _dot_4(rows, at + o, x, 0)
            out[base + o] = s0
            out[base + o + 1] = s1
            out[base + o + 2] = s2
            out[base + o + 3] = s3


@kernel()
def _chunk_pack(idx, other, rows, at):
    for o in range(idx.size):
        _copy(rows, at + o, other, idx[o])


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
        for o in range(0, count, 4):
            e = base + o
            _add_4(
                g, 0, rows, at + o, 0,
                w[e] * r[e], w[e + 1] * r[e + 1], w[e + 2] * r[e + 2], w[e + 3] * r[e + 3],
            )  # fmt: skip
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
            _copy(spare, found, other, idx[o])
            found += 1
        if found == spare.shape[0] or (found > 0 and o == idx.size - 1):
            for b in range(0, gram.shape[0], TILE_ROWS):
                _outer_products(spare, s, 0, 0, found, b, gram)
            found = 0


# --- one row: the Newton direction ---------------------------------------------------------


@kernel()
def _cholesky_solve(U, inverse, n, z):
    """Overwrite z[:n] by (Uᵀ U)⁻¹ z, with the reciprocals of U's diagonal.

    Both U and z are zero where they are padded, U also below its diagonal.
    """
    lanes = VECTOR_BYTES // U.itemsize
    for i in range(n):
        zi = z[i] * inverse[i]
        _add_1(z, 0, U, i, i // lanes * lanes, -zi)
        z[i] = zi
    for back in range(n):
        i = n - 1 - back
        zi, z[i] = z[i], 0
        z[i] = (zi - _dot_1(U, i, z, i // lanes * lanes)) * inverse[i]


@kernel()
def _cholesky_rows(U, first, last, floor, diagonal):
    """Factor rows first … last − 1 in place once the rows above them are taken off.

    Returns how many rows are done so far and the smallest share a pivot kept of the diagonal
    as it was; `diagonal` brings that and takes back the reciprocals of U's own, by which the
    solves multiply: each of their steps waits for the one before, and a division is slow.
    """
    lanes = VECTOR_BYTES // U.itemsize
    one = U.dtype.type(1)
    share = 1.0
    for i in range(first, last):
        pivot = U[i, i]
        if not pivot > floor:
            return i, 0.0
        share = min(share, pivot / diagonal[i])
        begin = i // lanes * lanes
        for c in range(begin, i):
            U[i, c] = 0
        diagonal[i] = one / sqrt(pivot)
        _scale(U, i, begin, diagonal[i])
        for e in range(i + 1, last):
            _add_1(U, e, U, i, e // lanes * lanes, -U[i, e])
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
        done, panel = _cholesky_rows(U, first, last, floor, diagonal)
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

    for b in range(M.shape[0]):
        for a in range(M.shape[1]):
            M[b, a] = 0
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
    for a in range(rank, q):
        z[a] = 0
    for a in range(rank):
        p[a] = M[a, a]
    rank, _ = _cholesky_rows(M, 0, rank, zero, p)  # rounding may shorten it
    _cholesky_solve(M, p, rank, z)
    predicted = 0.0
    for a in range(rank):
        predicted += np.float64(z[a]) * z[a]
    if not project:
        _cholesky_solve(M, p, rank, z)
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
            for a in range(g.size):
                p[a] = g[a]
            _cholesky_solve(U, z, q, p)
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
    M = _aligned(tall, wide, out)
    v, r = np.zeros(padded, out.dtype), np.zeros(padded, out.dtype)
    s, w = np.zeros(padded, out.dtype), np.zeros(padded, out.dtype)
    g, x, p = np.zeros(wide, out.dtype), np.zeros(wide, out.dtype), np.zeros(wide, out.dtype)
    penalties, z = np.zeros(q, out.dtype), np.zeros(wide, out.dtype)
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
