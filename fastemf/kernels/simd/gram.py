"""Vector operations that add outer products to the Gram matrix and gradient of a row, in tiles.

The sums of a tile stay in the registers during the pass over the observations.
"""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastemf.kernels.simd.instructions import Vectors
from fastemf.kernels.simd.operands import CORNER, Run, Summands

__all__ = ["make_corner_tile", "make_tile"]


def _tile_codegen(rows, vectors, gradient, lines, whole):
    def codegen(context, builder, signature, args):
        kinds = Summands(*signature.args[0].types)
        arrays = Summands(*cgutils.unpack_tuple(builder, args[0]))
        run = Run(*cgutils.unpack_tuple(builder, args[1]))
        b, a, line = args[2:]
        do = Vectors(context, builder, kinds.source.dtype)
        half = Vectors(context, builder, kinds.source.dtype, do.lanes // 2)
        n_whole = rows if whole is None else whole

        def is_half(i, j):
            return j == 0 and n_whole <= i < rows

        places = [(i, j) for i in range(rows + gradient) for j in range(vectors)]

        def body(o, sums):
            observation = builder.add(o, run.first)
            weight = builder.load(do.pointer(kinds.weights, arrays.weights, None, observation))
            row = builder.add(o, run.at)
            right, left = (
                do.pointer(kinds.source, arrays.source, row, column) for column in (a, b)
            )
            rights = [
                builder.fmul(do.load(right, j), do.splat(weight), flags=do.FUSE)
                for j in range(vectors)
            ]
            second = half.load(builder.gep(right, [do.INDEX(half.lanes)]))
            second = builder.fmul(second, half.splat(weight), flags=do.FUSE)
            factors = [builder.load(builder.gep(left, [do.INDEX(i)])) for i in range(rows)]
            if gradient:
                factors.append(builder.load(do.pointer(kinds.r, arrays.r, None, observation)))
            later = do.index(kinds.indices, arrays.indices, builder.add(run.ahead, o), end)
            for j in range(lines):
                column = builder.add(line, do.INDEX(j * do.lanes))
                do.prefetch(do.pointer(kinds.other, arrays.other, later, column))
            return [
                half.multiply_add(half.splat(factors[i]), second, total)
                if is_half(i, j)
                else do.multiply_add(do.splat(factors[i]), rights[j], total)
                for (i, j), total in zip(places, sums, strict=True)
            ]

        end = builder.sub(do.width(kinds.indices, arrays.indices), do.INDEX(1))
        start = [(half if is_half(i, j) else do).zero for i, j in places]
        sums = do.loop(do.INDEX(0), run.count, 1, start, body)
        first = builder.add(run.top, b)
        targets = [
            do.pointer(kinds.gram, arrays.gram, builder.add(first, do.INDEX(i)), a)
            for i in range(rows)
        ]
        if gradient:
            targets.append(do.pointer(kinds.g, arrays.g, run.lane, a))
        keep = builder.icmp_signed("!=", run.keep, do.INDEX(0))
        for (i, j), total in zip(places, sums, strict=True):
            put, number = (half, 1) if is_half(i, j) else (do, j)
            before = builder.select(keep, put.load(targets[i], number), put.zero)
            put.store(builder.fadd(before, total), targets[i], number)
        return context.get_dummy_value()

    return codegen


def make_tile(rows, vectors, gradient=False, lines=1, whole=None):
    """Return an operation that adds a tile of `rows` × `vectors` to the Gram matrix.

    After the first `whole` rows, if given, the first half of the first vector is skipped: it is
    below the diagonal, and half a vector takes less time on some machines.
    """
    codegen = _tile_codegen(rows, vectors, gradient, lines, whole)

    @intrinsic
    def tile(typing, summands, run, b, a, line):
        """Add Σ_o w_o y_o[b:…] y_o[a:…]ᵀ to gram[top+b:…, a:…], where y_o = source[at + o].

        The tile has `rows` elements from b on and `vectors` vectors from a on, and
        w_o = weights[first + o]. With `gradient`, Σ_o w_o r_o y_o[a:…] is added to g[lane, a:…].
        Without `keep` the targets are overwritten, which is cheaper than clearing them first.
        Meanwhile `lines` vectors from column `line` on are prefetched from the rows of `other`
        with indices[ahead + o], because the arithmetic leaves the memory idle.
        """
        n = types.int64
        return types.void(summands, run, n, n, n), codegen

    return tile


def _corner_tile_codegen(rows):
    def codegen(context, builder, signature, args):
        kinds = Summands(*signature.args[0].types)
        arrays = Summands(*cgutils.unpack_tuple(builder, args[0]))
        run = Run(*cgutils.unpack_tuple(builder, args[1]))
        dtype = kinds.source.dtype
        wide, narrow = (Vectors(context, builder, dtype, lanes) for lanes in (CORNER, CORNER // 2))
        zero, n_corner = wide.INDEX(0), rows - CORNER

        def body(o, sums):
            observation = builder.add(o, run.first)
            weight = builder.load(wide.pointer(kinds.weights, arrays.weights, None, observation))
            left = wide.pointer(kinds.source, arrays.source, builder.add(o, run.at), zero)
            right = builder.fmul(wide.load(left), wide.splat(weight), flags=wide.FUSE)
            corner = builder.gep(left, [wide.INDEX(CORNER)])
            corner = builder.fmul(narrow.load(corner), narrow.splat(weight), flags=wide.FUSE)
            factors = [builder.load(builder.gep(left, [wide.INDEX(i)])) for i in range(rows)]
            factors.append(builder.load(wide.pointer(kinds.r, arrays.r, None, observation)))
            later = wide.index(kinds.indices, arrays.indices, builder.add(run.ahead, o), end)
            for column in range(0, 2 * CORNER, wide.per_line):
                wide.prefetch(wide.pointer(kinds.other, arrays.other, later, wide.INDEX(column)))
            products = [(wide, factor, right) for factor in factors]
            products += [(narrow, factor, corner) for factor in factors[CORNER:]]
            return [
                do.multiply_add(do.splat(factor), vector, total)
                for (do, factor, vector), total in zip(products, sums, strict=True)
            ]

        end = builder.sub(wide.width(kinds.indices, arrays.indices), wide.INDEX(1))
        start = [wide.zero] * (rows + 1) + [narrow.zero] * (n_corner + 1)
        sums = wide.loop(wide.INDEX(0), run.count, 1, start, body)
        over, below, slope = sums[:CORNER], sums[CORNER:rows], sums[rows]
        # The sums below the diagonal are the transpose of those above it.
        beside = wide.transpose(below + [wide.zero] * (CORNER - n_corner))
        corners = [narrow.widen(vector) for vector in sums[rows + 1 :]]
        keep = builder.icmp_signed("!=", run.keep, wide.INDEX(0))

        def put(target, vectors):
            for j, vector in enumerate(vectors):
                before = builder.select(keep, wide.load(target, j), wide.zero)
                wide.store(builder.fadd(before, vector), target, j)

        for i, pair in enumerate(zip(over + below, beside + corners[:-1], strict=True)):
            row = builder.add(run.top, wide.INDEX(i))
            put(wide.pointer(kinds.gram, arrays.gram, row, zero), pair)
        put(wide.pointer(kinds.g, arrays.g, run.lane, zero), (slope, corners[-1]))
        return context.get_dummy_value()

    return codegen


def make_corner_tile(rows):
    """Return an operation for all products of 8 < `rows` ≤ 12 unknowns, padded to 16 columns.

    Full vectors would mostly multiply zeros.
    """
    codegen = _corner_tile_codegen(rows)

    @intrinsic
    def tile(typing, summands, run):
        """Add Σ_o w_o y_o y_oᵀ to gram[top:…] and Σ_o w_o r_o y_o to g[lane], as `make_tile` does.

        It sums eight columns of all rows, and four more columns of the rows after the eighth. The
        rest follows by symmetry.
        """
        return types.void(summands, run), codegen

    return tile
