"""Vector operation that evaluates a row with few unknowns without packing the other factor."""

from __future__ import annotations

from typing import NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastemf.kernels.simd.instructions import Vectors
from fastemf.kernels.simd.operands import CORNER, Pass, RowArrays

__all__ = ["make_direct"]

HALF = CORNER // 2
AHEAD, VALUES_AHEAD = 48, 256  # observations


class _Sum(NamedTuple):
    """A sum of a tile: row `row` times vector `number`; the last row is the gradient."""

    put: Vectors
    row: int
    number: int


def _sums(rows, wide, narrow):
    """List the sums of a tile: from the diagonal on, in whole and half vectors."""
    if rows <= HALF:
        return [_Sum(narrow, i, 0) for i in range(rows + 1)]
    found = [_Sum(wide, i, 0) for i in range(HALF)]
    found += [_Sum(narrow, i, 1) for i in range(HALF, CORNER)]
    # Rows after the eighth are summed below the diagonal, which takes fewer vectors.
    found += [_Sum(wide, i, 0) for i in range(CORNER, rows + 1)]
    return found + [_Sum(narrow, i, 2) for i in range(CORNER, rows + 1) if rows > CORNER]


class _Direct:
    """Emitter of the instructions."""

    def __init__(self, context, builder, rows, signature, args):
        self.builder, self.rows = builder, rows
        self.kinds = RowArrays(*signature.args[0].types)
        self.arrays = RowArrays(*cgutils.unpack_tuple(builder, args[0]))
        self.run = Pass(*cgutils.unpack_tuple(builder, args[1]))
        self.do, self.wide, self.narrow = (
            Vectors(context, builder, self.kinds.other.dtype, lanes)
            for lanes in (None, CORNER, HALF)
        )
        self.weight = args[2]
        self.sums = _sums(rows, self.wide, self.narrow)
        self.weighted = builder.icmp_signed("!=", self.run.weighted, self.do.INDEX(0))
        kind, array = self.kinds.indices, self.arrays.indices
        self.length = self.do.width(kind, array)
        self.few = cgutils.alloca_once(builder, context.get_data_type(kind.dtype), self.do.lanes)
        at_x = self.at("x", self.run.lane, self.do.INDEX(0))
        self.x = [self.narrow.load(at_x, j) for j in range(-(-rows // HALF))]

    def at(self, name, row, column):
        """Return the address of an element of an array."""
        return self.do.pointer(getattr(self.kinds, name), getattr(self.arrays, name), row, column)

    def indices_from(self, place):
        """Return the address of one vector of indices; near the end of the array, of a copy."""
        do, builder = self.do, self.builder
        there, before = self.at("indices", None, place), builder.block
        beyond = builder.icmp_signed(">", builder.add(place, do.INDEX(do.lanes)), self.length)
        with builder.if_then(beyond, likely=False):
            end = builder.sub(self.length, do.INDEX(1))
            for i in range(do.lanes):
                some = builder.add(place, do.INDEX(i))
                some = builder.select(builder.icmp_signed("<", some, end), some, end)
                value = builder.load(self.at("indices", None, some))
                builder.store(value, builder.gep(self.few, [do.INDEX(i)]))
            copied = builder.block
        found = builder.phi(there.type)
        found.add_incoming(there, before)
        found.add_incoming(self.few, copied)
        return found

    def row_of(self, indices, i):
        """Return the address of the row of the other factor with the i-th index."""
        index = self.builder.load(self.builder.gep(indices, [i]))
        if index.type != self.do.INDEX:
            index = self.builder.sext(index, self.do.INDEX)
        return self.at("other", index, self.do.INDEX(0))

    def product(self, row):
        """Multiply a row by x, without the sum over the lanes."""
        total = self.narrow.zero
        for j, part in enumerate(self.x):
            total = self.narrow.multiply_add(self.narrow.load(row, j), part, total)
        return total

    def totals(self, indices, first):
        """Multiply HALF rows by x."""
        numbers = [self.do.INDEX(i) for i in range(first, first + HALF)]
        return self.narrow.totals([self.product(self.row_of(indices, i)) for i in numbers])

    def residuals(self, o, some, indices, squares):
        """Update the residuals and weights of the first `some` of a vector of observations."""
        do, builder = self.do, self.builder
        # A few sums at a time fit into the registers.
        totals = [self.totals(indices, i) for i in range(0, do.lanes, HALF)]
        at = builder.add(self.run.at, o)
        at_v, at_r, at_w = (self.at(name, None, at) for name in "vrw")
        ahead = builder.add(builder.add(self.run.first, o), do.INDEX(VALUES_AHEAD))
        do.prefetch(self.at("values", None, ahead))
        v, before = do.load(at_v), do.load(at_r)
        # Indices after the end belong to the next row, so their residuals are set to zero.
        after = builder.select(do.first(some), builder.fsub(before, do.join(totals)), do.zero)
        do.store(after, at_r)
        do.store(builder.fmul(v, do.splat(self.weight)), at_w)
        found = (do.weighted_squares(r, v) for r in (after, before))
        return [builder.fadd(a, b) for a, b in zip(squares, found, strict=True)]

    def add(self, at, row, later, sums, weighted):
        """Add w y yᵀ and w r y of one observation, or y yᵀ and r y; prefetch a later row."""
        do, builder = self.do, self.builder
        for column in range(0, self.rows, do.per_line):
            do.prefetch(builder.gep(later, [do.INDEX(column)]), 1)
        vectors = {(s.put, s.number): s.put.load(row, s.number) for s in self.sums}
        if weighted:
            w = builder.load(self.at("w", None, at))
            for (put, number), vector in vectors.items():
                scaled = builder.fmul(vector, put.splat(w), flags=do.FUSE)
                vectors[put, number] = scaled
        factors = [builder.load(builder.gep(row, [do.INDEX(i)])) for i in range(self.rows)]
        factors.append(builder.load(self.at("r", None, at)))
        return [
            s.put.multiply_add(s.put.splat(factors[s.row]), vectors[s.put, s.number], total)
            for s, total in zip(self.sums, sums, strict=True)
        ]

    def block(self, o, sums):
        """Process one vector of observations from o on."""
        do, builder = self.do, self.builder
        at, place = builder.add(self.run.at, o), builder.add(self.run.first, o)
        some = do.smaller(builder.sub(self.run.count, o), do.INDEX(do.lanes))
        indices = self.indices_from(place)
        squares = self.residuals(o, some, indices, sums[:2])
        ahead = builder.add(place, do.INDEX(AHEAD))
        ahead = do.smaller(ahead, builder.sub(self.length, do.INDEX(do.lanes)))
        ahead = builder.select(builder.icmp_signed("<", ahead, do.INDEX(0)), do.INDEX(0), ahead)
        later = self.at("indices", None, ahead)

        def add_summands(weighted):
            def body(i, tile):
                rows = self.row_of(indices, i), self.row_of(later, i)
                return self.add(builder.add(at, i), *rows, tile, weighted)

            return do.loop(do.INDEX(0), some, 1, sums[2:], body), builder.block

        with builder.if_else(self.weighted) as (with_weights, without):
            with with_weights:
                one = add_summands(True)
            with without:
                other = add_summands(False)
        tile = [builder.phi(total.type) for total in sums[2:]]
        for ended, block in (one, other):
            for phi, total in zip(tile, ended, strict=True):
                phi.add_incoming(total, block)
        return squares + tile

    def store(self, put, number, row, vector):
        """Add to a vector of the Gram matrix or the gradient, or overwrite it."""
        do, builder = self.do, self.builder
        if row < self.rows:
            target = self.at("gram", builder.add(self.run.top, do.INDEX(row)), do.INDEX(0))
        else:
            target = self.at("g", self.run.lane, do.INDEX(0))
        keep = builder.icmp_signed("!=", self.run.keep, do.INDEX(0))
        before = builder.select(keep, put.load(target, number), put.zero)
        weight = builder.select(self.weighted, do.element(1.0), self.weight)
        put.store(put.multiply_add(put.splat(weight), vector, before), target, number)

    def finish(self, tile):
        """Store the sums of a tile."""
        wide, narrow, below = self.wide, self.narrow, []
        for s, total in zip(self.sums, tile, strict=True):
            if CORNER <= s.row < self.rows and s.put is wide:
                below.append(total)
            elif s.number == 2:
                self.store(wide, 1, s.row, narrow.widen(total))
            else:
                self.store(s.put, s.number, s.row, total)
        if below:
            # The sums below the diagonal are the transpose of those above it.
            beside = wide.transpose(below + [wide.zero] * (CORNER - len(below)))
            for i, vector in enumerate(beside):
                self.store(wide, 1, i, vector)


def _direct_codegen(rows):
    def codegen(context, builder, signature, args):
        emit = _Direct(context, builder, rows, signature, args)
        do = emit.do
        start = [do.zero_64] * 2 + [s.put.zero for s in emit.sums]
        sums = do.loop(do.INDEX(0), emit.run.count, do.lanes, start, emit.block)
        emit.finish(sums[2:])
        return do.sum_lanes(signature.return_type, sums[:2])

    return codegen


def make_direct(rows):
    """Return an operation that evaluates a row of up to `rows` unknowns: 4, 8, 10 or 12."""
    codegen = _direct_codegen(rows)

    @intrinsic
    def direct(typing, arrays, run, weight):
        """Do `gather_dots`, `update_residuals` and the tiles in one pass, with one weight.

        Rows of the other factor are not copied: those of one vector of observations are still
        cached when the tile reads them again. Returns Σ v r² with the new and with the previous
        r, in float64.
        """
        result, dtype = types.UniTuple(types.float64, 2), arrays.types[0].dtype
        return result(arrays, run, dtype), codegen

    return direct
