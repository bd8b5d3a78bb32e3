"""Vector operations of the top-k search: corrections of predictions, and comparisons."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastemf.kernels.simd.instructions import Vectors
from fastemf.kernels.simd.operands import Terms
from fastemf.kernels.vector_width import STRETCH

__all__ = ["add_terms", "at_least", "count_bits", "lowest"]


def _add_terms_codegen(context, builder, signature, args):
    values, row, column, tile, packed = args
    kind, kinds = signature.args[0], Terms(*signature.args[4].types)
    arrays = Terms(*cgutils.unpack_tuple(builder, packed))
    do = Vectors(context, builder, kind.dtype)
    target = do.pointer(kind, values, row, column)
    p = do.load(target)

    def of_row(name, a):
        return do.splat(
            builder.load(do.pointer(getattr(kinds, name), getattr(arrays, name), row, a))
        )

    def of_cols(name, a, count):
        line = builder.add(builder.mul(tile, count), a)
        return do.load(do.pointer(getattr(kinds, name), getattr(arrays, name), line, column))

    def beyond(name, a):
        knot = do.pointer(getattr(kinds, name), getattr(arrays, name), None, a)
        knot = do.splat(builder.load(knot))
        return builder.select(builder.fcmp_ordered(">", p, knot), p, knot)

    def add_product(a, sums):
        return [do.multiply_add(of_row("row_terms", a), of_cols("col_terms", a, n_terms), sums[0])]

    def add_piece(a, sums):
        slope = builder.fadd(of_row("row_slopes", a), of_cols("col_slopes", a, n_pieces))
        short = builder.fsub(beyond("low", a), beyond("high", a))
        return [do.multiply_add(slope, short, sums[0])]

    n_terms = do.width(kinds.row_terms, arrays.row_terms)
    n_pieces = do.width(kinds.low, arrays.low)
    sums = do.loop(do.INDEX(0), n_terms, 1, [p], add_product)
    do.store(do.loop(do.INDEX(0), n_pieces, 1, sums, add_piece)[0], target)
    return context.get_dummy_value()


@intrinsic
def add_terms(typing, values, row, column, tile, terms):
    """Add corrections to the vector values[row, column:…] of a tile of columns."""
    n = types.int64
    return types.void(values, n, n, n, terms), _add_terms_codegen


def _at_least_codegen(context, builder, signature, args):
    values, row, column, sign, bound = args
    kind = signature.args[0]
    do = Vectors(context, builder, kind.dtype)
    start, sign, bound = do.pointer(kind, values, row, column), do.splat(sign), do.splat(bound)
    found = do.INDEX(0)
    for number in range(STRETCH // do.lanes):
        vector = builder.fmul(do.load(start, number), sign)
        bits = builder.fcmp_ordered(">=", vector, bound)
        bits = builder.zext(builder.bitcast(bits, ir.IntType(do.lanes)), do.INDEX)
        found = builder.or_(found, builder.shl(bits, do.INDEX(number * do.lanes)))
    return found


@intrinsic
def at_least(typing, values, row, column, sign, bound):
    """Compare sign · values[row, column:column + STRETCH] ≥ bound; return one bit each."""
    n = types.int64
    return n(values, n, n, values.dtype, values.dtype), _at_least_codegen


@intrinsic
def lowest(typing, bits):
    """Return the position of the lowest set bit; there must be one."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen


@intrinsic
def count_bits(typing, bits):
    """Count the set bits."""
    return types.int64(types.int64), lambda context, builder, _, args: builder.ctpop(args[0])
