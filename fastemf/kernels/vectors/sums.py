"""The vector operation that adds what tables give to predictions."""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastemf.kernels.vectors.instructions import Vectors
from fastemf.kernels.vectors.terms import Terms


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
    """Add what tables give, in a tile of columns, to values[row, column:…], a vector."""
    n = types.int64
    return types.void(values, n, n, n, terms), _add_terms_codegen
