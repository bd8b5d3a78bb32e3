"""Vector operations on the observations of a row: dot products, residuals.

Numba disables LLVM's vectoriser for straight-line code, and the loop vectoriser adds a scalar
remainder to every loop, which dominates at the length of one row. Therefore operations per
observation, or per row of a triangle, are written with vector types. Rows are padded to whole
vectors, so there are no remainders. `fastemf.kernels.simd.reference` has the same operations in
Python.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastemf.kernels.loss import emit_is_negative, emit_sign_weights, emit_squares
from fastemf.kernels.problem import MULTIPLIER
from fastemf.kernels.simd.instructions import Vectors
from fastemf.kernels.vector_width import VECTOR_BYTES

__all__ = [
    "copy", "dots", "fetch", "fetch_ones", "gather_dots", "hint", "keep_sampled", "lanes_of",
    "long_dots", "make_weighted_sum", "move", "multiply_at", "subtract_at", "trial",
    "update_residuals",
]  # fmt: skip


@intrinsic
def lanes_of(typing, array):
    """Return the number of elements of a vector, as a compile-time constant."""
    count = VECTOR_BYTES // (array.dtype.bitwidth // 8)
    return types.int64(array), lambda context, *_: context.get_constant(types.int64, count)


def _dots_codegen(gather):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        rows, at, x, lane, out, out_at = args[:6]
        do = Vectors(context, builder, kinds[0].dtype)
        packed = [
            do.pointer(kinds[0], rows, builder.add(at, do.INDEX(i)), do.INDEX(0))
            for i in range(do.lanes)
        ]
        sources = packed
        if gather:
            indices, first, last, other = args[6:]
            end = builder.sub(last, do.INDEX(1))
            sources = []
            for i in range(do.lanes):
                index = do.index(kinds[6], indices, builder.add(first, do.INDEX(i)), end)
                sources.append(do.pointer(kinds[9], other, index, do.INDEX(0)))
        with_x = do.pointer(kinds[2], x, lane, do.INDEX(0))

        def body(column, sums):
            factor = do.load(builder.gep(with_x, [column]))
            following = []
            for source, target, total in zip(sources, packed, sums, strict=True):
                value = do.load(builder.gep(source, [column]))
                if gather:
                    do.store(value, builder.gep(target, [column]))
                following.append(do.multiply_add(value, factor, total))
            return following

        width = do.width(kinds[0], rows)
        sums = do.loop(do.INDEX(0), width, do.lanes, [do.zero] * do.lanes, body)
        do.store(do.totals(sums), do.pointer(kinds[4], out, None, out_at))
        return context.get_dummy_value()

    return codegen


@intrinsic
def dots(typing, rows, at, x, lane, out, out_at):
    """Set out[out_at + i] = rows[at + i] · x[lane], for as many i as a vector has lanes."""
    n = types.int64
    return types.void(rows, n, x, n, out, n), _dots_codegen(False)


@intrinsic
def gather_dots(typing, rows, at, x, lane, out, out_at, indices, first, last, other):
    """Gather rows[at + i] = other[indices[first + i]], then compute the `dots` with them.

    From `last` on the last index is repeated.
    """
    n = types.int64
    return types.void(rows, n, x, n, out, n, indices, n, n, other), _dots_codegen(True)


def _long_dots_codegen(context, builder, signature, args):
    kinds = signature.args
    out, out_at, x, row, indices, first, last, other = args
    do = Vectors(context, builder, types.float64)
    short = Vectors(context, builder, kinds[7].dtype, do.lanes)
    end = builder.sub(last, do.INDEX(1))
    places = [
        do.index(kinds[4], indices, builder.add(first, do.INDEX(i)), end) for i in range(do.lanes)
    ]
    sources = [short.pointer(kinds[7], other, place, do.INDEX(0)) for place in places]
    with_x = short.pointer(kinds[2], x, row, do.INDEX(0))

    def body(column, sums):
        def load(pointer):
            return do.to_float64(short.load(builder.gep(pointer, [column])))

        factor = load(with_x)
        return [
            do.multiply_add(load(source), factor, total)
            for source, total in zip(sources, sums, strict=True)
        ]

    width = short.width(kinds[7], other)
    sums = do.loop(do.INDEX(0), width, do.lanes, [do.zero] * do.lanes, body)
    do.store(do.totals(sums), do.pointer(kinds[0], out, None, out_at))
    return context.get_dummy_value()


@intrinsic
def long_dots(typing, out, out_at, x, row, indices, first, last, other):
    """Set out[out_at + i] = other[indices[first + i]] · x[row] in float64, as `gather_dots` does.

    There are as many i as a vector has lanes of float64.
    """
    n = types.int64
    return types.void(out, n, x, n, indices, n, n, other), _long_dots_codegen


def _fetch_codegen(ones):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        out, at, count = args[:3]
        do = Vectors(context, builder, kinds[0].dtype)
        one = do.element(1.0)
        target = do.pointer(kinds[0], out, None, at)
        source = None if ones else do.pointer(kinds[3], args[3], None, args[4])
        full = builder.mul(builder.sdiv(count, do.INDEX(do.lanes)), do.INDEX(do.lanes))

        def vector(o, _):
            value = do.splat(one) if ones else do.load(builder.gep(source, [o]))
            do.store(value, builder.gep(target, [o]))
            return []

        def scalar(o, _):
            value = one if ones else builder.load(builder.gep(source, [o]))
            builder.store(value, builder.gep(target, [o]))
            return []

        do.loop(do.INDEX(0), full, do.lanes, [], vector)
        with builder.if_then(builder.icmp_signed("<", full, count)):
            do.store(do.zero, builder.gep(target, [full]))
            do.loop(full, count, 1, [], scalar)
        return context.get_dummy_value()

    return codegen


@intrinsic
def fetch(typing, out, at, count, source, first):
    """Copy source[first:first+count] to out[at:at+count], with zeros to the end of a vector."""
    n = types.int64
    return types.void(out, n, n, source, n), _fetch_codegen(False)


@intrinsic
def fetch_ones(typing, out, at, count):
    """Fill out[at:at+count] with ones, and with zeros to the end of a vector."""
    return types.void(out, types.int64, types.int64), _fetch_codegen(True)


def _at_indices(context, builder, signature, args, change):
    """Change the vectors of an array by the values of a table at the observations' indices."""
    out, at, count, table, indices, first = args[:6]
    kinds = signature.args
    do = Vectors(context, builder, kinds[0].dtype)
    end = builder.sub(builder.add(first, count), do.INDEX(1))

    def body(o, _):
        places = [
            do.index(kinds[4], indices, builder.add(builder.add(first, o), do.INDEX(i)), end)
            for i in range(do.lanes)
        ]
        target = do.pointer(kinds[0], out, None, builder.add(at, o))
        do.store(
            change(do, do.load(target), partial(do.looked_up, kinds[3], table, places)), target
        )
        return []

    do.loop(do.INDEX(0), count, do.lanes, [], body)
    return context.get_dummy_value()


def _subtract_codegen(context, builder, signature, args):
    def change(do, vector, looked_up):
        return builder.fsub(vector, looked_up(do.element))

    return _at_indices(context, builder, signature, args, change)


def _multiply_codegen(context, builder, signature, args):
    def change(do, vector, looked_up):
        return builder.fmul(vector, looked_up(do.element))

    return _at_indices(context, builder, signature, args, change)


def _sampled_codegen(context, builder, signature, args):
    own, begin, span = args[6:]
    hashed = ir.IntType(32)

    def change(do, vector, looked_up):
        def splat(number, kind):
            return do.splat(number, ir.VectorType(kind, do.lanes))

        def mix(z):
            return builder.xor(z, builder.lshr(z, splat(hashed(16), hashed)))

        z = builder.add(looked_up(hashed), splat(builder.trunc(own, hashed), hashed))
        for _ in range(2):
            z = builder.mul(mix(z), splat(hashed(MULTIPLIER), hashed))
        z = builder.sub(mix(z), splat(builder.trunc(begin, hashed), hashed))
        z = builder.zext(z, ir.VectorType(do.INDEX, do.lanes))
        counts = builder.icmp_unsigned("<", z, splat(span, do.INDEX))
        return builder.select(counts, vector, do.zero)

    return _at_indices(context, builder, signature, args, change)


@intrinsic
def subtract_at(typing, out, at, count, table, indices, first):
    """Subtract table[indices[first + c]] from out[at + c] for c < count.

    The rest of the last vector is changed too, with the last index.
    """
    n = types.int64
    return types.void(out, n, n, table, indices, n), _subtract_codegen


@intrinsic
def multiply_at(typing, out, at, count, table, indices, first):
    """Multiply out[at + c] by table[indices[first + c]] for c < count, as `subtract_at` does."""
    n = types.int64
    return types.void(out, n, n, table, indices, n), _multiply_codegen


@intrinsic
def keep_sampled(typing, out, at, count, marks, indices, first, own, begin, span):
    """Set out[at + c] = 0 for c < count if a cell is not in the sample, as `subtract_at` does.

    The marks of the cell are `own` and marks[indices[first + c]]; the rule is
    `fastemf.kernels.problem.is_in_sample`.
    """
    n = types.int64
    return types.void(out, n, n, marks, indices, n, n, n, n), _sampled_codegen


def _hint_codegen(context, builder, signature, args):
    do = Vectors(context, builder, signature.args[0].dtype)
    do.prefetch(do.pointer(signature.args[0], args[0], None, args[1]))
    return context.get_dummy_value()


@intrinsic
def hint(typing, array, at):
    """Prefetch array[at], which may lie after the end."""
    return types.void(array, types.int64), _hint_codegen


def _residuals_codegen(context, builder, signature, args):
    kinds = signature.args
    at, count, upper, lower = args[4:]
    do = Vectors(context, builder, kinds[0].dtype)
    upper, lower = do.splat(upper), do.splat(lower)

    def body(o, sums):
        places = [do.pointer(kinds[n], args[n], None, builder.add(at, o)) for n in range(4)]
        weight, before, product = (do.load(place) for place in places[:3])
        after = builder.fsub(before, product)
        do.store(after, places[1])
        above, below = emit_squares(do, after, weight)
        by_sign = emit_sign_weights(do, after, upper, lower)
        do.store(builder.fmul(weight, by_sign), places[3])
        size = do.weighted_squares(before, weight)
        return [builder.fadd(a, b) for a, b in zip(sums, (above, below, size), strict=True)]

    return do.loop_of_sums(signature.return_type, count, 3, body)


@intrinsic
def update_residuals(typing, v, r, s, w, at, count, upper, lower):
    """Subtract s from r and set w to v times the sign weight of r, for whole vectors from `at` on.

    Returns Σ v r² over r ≥ 0, over r < 0, and over all with the previous r, in float64.
    """
    n, result = types.int64, types.UniTuple(types.float64, 3)
    return result(v, r, s, w, n, n, v.dtype, v.dtype), _residuals_codegen


def _trial_codegen(context, builder, signature, args):
    kinds = signature.args
    at, count, step = args[3:]
    do = Vectors(context, builder, kinds[0].dtype)
    minus = do.splat(builder.fneg(step))
    one = ir.Constant(do.zero_64.type, [ir.DoubleType()(1.0)] * do.lanes)

    def body(o, sums):
        places = [do.pointer(kinds[n], args[n], None, builder.add(at, o)) for n in range(3)]
        weight, before, change = (do.load(place) for place in places)
        after = do.multiply_add(minus, change, before)
        above, below = emit_squares(do, after, weight)
        was, negative = emit_is_negative(do, before), emit_is_negative(do, after)
        counts = builder.fcmp_ordered(">", weight, do.zero)
        moved = builder.and_(builder.xor(negative, was), counts)
        flip = builder.select(moved, one, do.zero_64)
        return [builder.fadd(a, b) for a, b in zip(sums, (above, below, flip), strict=True)]

    return do.loop_of_sums(signature.return_type, count, 3, body)


@intrinsic
def trial(typing, v, r, s, at, count, step):
    """Return, for r − step·s, Σ v r² over r ≥ 0 and r < 0, and the sign changes with v > 0."""
    n, result = types.int64, types.UniTuple(types.float64, 3)
    return result(v, r, s, n, n, v.dtype), _trial_codegen


def _move_codegen(context, builder, signature, args):
    kinds = signature.args
    at, upper, lower = args[3:]
    do = Vectors(context, builder, kinds[0].dtype)
    upper, lower = do.splat(upper), do.splat(lower)
    places = [do.pointer(kinds[n], args[n], None, at) for n in range(3)]
    weight, before, change = (do.load(place) for place in places)
    after = builder.fsub(before, change)
    do.store(after, places[1])
    weights = [emit_sign_weights(do, r, upper, lower) for r in (before, after)]
    moved = builder.fmul(weight, builder.fsub(weights[1], weights[0]))
    do.store(moved, places[2])
    bits = builder.bitcast(builder.fcmp_unordered("!=", moved, do.zero), ir.IntType(do.lanes))
    return builder.zext(bits, do.INDEX)


@intrinsic
def move(typing, v, r, s, at, upper, lower):
    """Subtract s from r and set s to the change of the weights, for one vector from `at` on.

    Returns a mask of nonzero changes, one bit per lane.
    """
    n = types.int64
    return n(v, r, s, n, v.dtype, v.dtype), _move_codegen


def _copy_codegen(context, builder, signature, args):
    kinds = signature.args
    out, out_row, source, row = args
    do = Vectors(context, builder, kinds[0].dtype)

    def body(column, _):
        value = do.load(do.pointer(kinds[2], source, row, column))
        do.store(value, do.pointer(kinds[0], out, out_row, column))
        return []

    do.loop(do.INDEX(0), do.width(kinds[0], out), do.lanes, [], body)
    return context.get_dummy_value()


@intrinsic
def copy(typing, out, out_row, source, row):
    """Copy source[row] to out[out_row]."""
    return types.void(out, types.int64, source, types.int64), _copy_codegen


def _weighted_sum_codegen(vectors):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        indices, values, first, last, dense, out, row, column = args
        do = Vectors(context, builder, kinds[4].dtype)

        def body(e, sums):
            value = do.splat(builder.load(do.pointer(kinds[1], values, None, e)))
            at = do.pointer(kinds[4], dense, do.index(kinds[0], indices, e, last), column)
            return [do.multiply_add(value, do.load(at, j), total) for j, total in enumerate(sums)]

        target = do.pointer(kinds[5], out, row, column)
        for j, total in enumerate(do.loop(first, last, 1, [do.zero] * vectors, body)):
            do.store(total, target, j)
        return context.get_dummy_value()

    return codegen


def make_weighted_sum(vectors):
    """Return an operation that sums rows, `vectors` vectors wide."""

    @intrinsic
    def weighted_sum(typing, indices, values, first, last, dense, out, row, column):
        """Set out[row, column:…] = Σ values[e] · dense[indices[e], column:…], first ≤ e < last."""
        n = types.int64
        kinds = (indices, values, n, n, dense, out, n, n)
        return types.void(*kinds), _weighted_sum_codegen(vectors)

    return weighted_sum
