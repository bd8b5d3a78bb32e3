"""Vector operations on a batch of triangles, one row of the batch per lane."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastemf.kernels.simd.instructions import Vectors
from fastemf.kernels.vector_width import PANEL, PANEL_COLUMNS

__all__ = [
    "lanes_in", "lanes_out", "panel", "pivots", "substitute_backward", "substitute_forward",
]  # fmt: skip


def _lanes_in_codegen(context, builder, signature, args):
    kinds = signature.args
    source, members, step, row, column, out, out_row = args
    do = Vectors(context, builder, kinds[0].dtype)
    vectors = []
    for lane in range(do.lanes):
        member = builder.load(do.pointer(kinds[1], members, None, do.INDEX(lane)))
        at = builder.add(builder.mul(member, step), row)
        vectors.append(do.load(do.pointer(kinds[0], source, at, column)))
    for i, vector in enumerate(do.transpose(vectors)):
        at = builder.add(out_row, do.INDEX(i))
        do.store(vector, do.pointer(kinds[5], out, at, do.INDEX(0)))
    return context.get_dummy_value()


def _lanes_out_codegen(context, builder, signature, args):
    kinds = signature.args
    source, row, out, members, column = args
    do = Vectors(context, builder, kinds[0].dtype)
    rows = [builder.add(row, do.INDEX(i)) for i in range(do.lanes)]
    vectors = [do.load(do.pointer(kinds[0], source, at, do.INDEX(0))) for at in rows]
    for lane, vector in enumerate(do.transpose(vectors)):
        member = builder.load(do.pointer(kinds[3], members, None, do.INDEX(lane)))
        do.store(vector, do.pointer(kinds[2], out, member, column))
    return context.get_dummy_value()


@intrinsic
def lanes_in(typing, source, members, step, row, column, out, out_row):
    """Set out[out_row + c, l] = source[members[l]·step + row, column + c], lanes × lanes."""
    n = types.int64
    return types.void(source, members, n, n, n, out, n), _lanes_in_codegen


@intrinsic
def lanes_out(typing, source, row, out, members, column):
    """Set out[members[l], column + c] = source[row + c, l], lanes × lanes."""
    n = types.int64
    return types.void(source, n, out, members, n), _lanes_out_codegen


class _Panel:
    """A batch of triangles, and the contributions of the rows above to a tile."""

    def __init__(self, do, kinds, U, begin):
        self.do, self.builder, self.kinds, self.U, self.begin = do, do.builder, kinds, U, begin

    def at(self, row, column):
        """Return the address of the lanes of one element; columns of a row are adjacent."""
        first = self.builder.load(self.do.pointer(self.kinds[1], self.begin, None, row))
        where = self.builder.add(first, column)
        return self.do.pointer(self.kinds[0], self.U, where, self.do.INDEX(0))

    def reduce(self, i, j, wanted):
        """Compute elements (a, c) of the tile at (i, j) minus the products of the rows above i."""
        do, builder = self.do, self.builder
        start = []
        for a, c in wanted:
            start.append(do.load(self.at(builder.add(i, do.INDEX(a)), j), c))

        def body(e, sums):
            upper, right = self.at(e, i), self.at(e, j)
            lefts = [builder.fneg(do.load(upper, a)) for a in range(PANEL)]
            rights = [do.load(right, c) for c in range(max(c for _, c in wanted) + 1)]
            return [
                do.multiply_add(lefts[a], rights[c], total)
                for (a, c), total in zip(wanted, sums, strict=True)
            ]

        ended = do.loop(do.INDEX(0), i, 1, start, body)
        return dict(zip(wanted, ended, strict=True))

    def minus(self, value, a, b):
        return self.do.multiply_add(self.builder.fneg(a), b, value)


def _pivots_codegen(context, builder, signature, args):
    kinds = signature.args
    U, begin, i, inverse, diagonal, floor, kept = args
    do = Vectors(context, builder, kinds[0].dtype)
    panel = _Panel(do, kinds, U, begin)
    tile = panel.reduce(i, i, [(a, c) for a in range(PANEL) for c in range(a, PANEL)])
    one = ir.Constant(do.type, [do.element(1.0)] * do.lanes)
    least = do.load(do.pointer(kinds[5], floor, do.INDEX(0), do.INDEX(0)))
    kept_at = do.pointer(kinds[6], kept, do.INDEX(0), do.INDEX(0))
    ratio = do.load(kept_at)
    for a in range(PANEL):
        row = builder.add(i, do.INDEX(a))
        pivot = tile[a, a]
        sound = builder.fcmp_ordered(">", pivot, least)
        whole = do.load(do.pointer(kinds[4], diagonal, row, do.INDEX(0)))
        left = builder.select(sound, builder.fdiv(pivot, whole), do.zero)
        ratio = builder.select(builder.fcmp_ordered("<", left, ratio), left, ratio)
        root = builder.fdiv(one, do.vector_sqrt(builder.select(sound, pivot, one)))
        do.store(root, do.pointer(kinds[3], inverse, row, do.INDEX(0)))
        for c in range(a, PANEL):
            tile[a, c] = builder.fmul(tile[a, c], root)
        for b in range(a + 1, PANEL):
            for c in range(b, PANEL):
                tile[b, c] = panel.minus(tile[b, c], tile[a, b], tile[a, c])
    do.store(ratio, kept_at)
    for a in range(PANEL):
        target = panel.at(builder.add(i, do.INDEX(a)), i)
        for c in range(PANEL):
            do.store(tile.get((a, c), do.zero), target, c)
    return context.get_dummy_value()


def _panel_codegen(context, builder, signature, args):
    kinds = signature.args
    U, begin, i, j, inverse = args
    do = Vectors(context, builder, kinds[0].dtype)
    panel = _Panel(do, kinds, U, begin)
    tile = panel.reduce(i, j, [(a, c) for a in range(PANEL) for c in range(PANEL_COLUMNS)])
    rows = [builder.add(i, do.INDEX(a)) for a in range(PANEL)]
    for a in range(PANEL):
        root = do.load(do.pointer(kinds[4], inverse, rows[a], do.INDEX(0)))
        target = panel.at(rows[a], j)
        for c in range(PANEL_COLUMNS):
            tile[a, c] = builder.fmul(tile[a, c], root)
            do.store(tile[a, c], target, c)
        for b in range(a + 1, PANEL):
            factor = do.load(panel.at(rows[a], i), b)
            for c in range(PANEL_COLUMNS):
                tile[b, c] = panel.minus(tile[b, c], factor, tile[a, c])
    return context.get_dummy_value()


@intrinsic
def pivots(typing, U, begin, i, inverse, diagonal, floor, kept):
    """Factor the diagonal block of rows i … i+PANEL−1; element (a, c) is U[begin[a] + c]."""
    return types.void(U, begin, types.int64, inverse, diagonal, floor, kept), _pivots_codegen


@intrinsic
def panel(typing, U, begin, i, j, inverse):
    """Factor columns j … j+PANEL_COLUMNS−1 of rows whose diagonal block is factored."""
    n = types.int64
    return types.void(U, begin, n, n, inverse), _panel_codegen


def _substitute_codegen(forward):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        U, at, inverse, z, i, n = args
        do = Vectors(context, builder, kinds[0].dtype)
        zi_at = do.pointer(kinds[3], z, i, do.INDEX(0))
        root = do.load(do.pointer(kinds[2], inverse, i, do.INDEX(0)))
        first = builder.mul(builder.sdiv(i, do.INDEX(PANEL)), do.INDEX(PANEL))

        def places(j):
            left = do.pointer(kinds[0], U, builder.add(at, j), do.INDEX(0))
            return left, do.pointer(kinds[3], z, j, do.INDEX(0))

        zi = do.load(zi_at)
        if forward:
            zi = builder.fmul(zi, root)
            minus = builder.fneg(zi)

            def body(j, _):
                left, target = places(j)
                for c in range(PANEL):
                    value = do.multiply_add(do.load(left, c), minus, do.load(target, c))
                    do.store(value, target, c)
                return []

            do.loop(first, n, PANEL, [], body)
        else:
            do.store(do.zero, zi_at)

            def body(j, sums):
                left, right = places(j)
                return [
                    do.multiply_add(do.load(left, c), do.load(right, c), total)
                    for c, total in enumerate(sums)
                ]

            sums = do.loop(first, n, PANEL, [do.zero] * PANEL, body)
            for total in sums:
                zi = builder.fsub(zi, total, flags=do.FUSE)
            zi = builder.fmul(zi, root)
        do.store(zi, zi_at)
        return context.get_dummy_value()

    return codegen


@intrinsic
def substitute_forward(typing, U, at, inverse, z, i, n):
    """Do step i of solving Uᵀ z = z: finish z[i] and subtract it from the later elements."""
    return types.void(U, types.int64, inverse, z, types.int64, types.int64), (
        _substitute_codegen(True)
    )


@intrinsic
def substitute_backward(typing, U, at, inverse, z, i, n):
    """Do step i of solving U z = z, after the later steps."""
    return types.void(U, types.int64, inverse, z, types.int64, types.int64), (
        _substitute_codegen(False)
    )
