"""The vector operation that evaluates a row of few unknowns straight from the other factor."""

from __future__ import annotations

from typing import NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastemf.kernels.vectors.instructions import Vectors
from fastemf.kernels.vectors.tiles import CORNER, Pass, Regression

HALF = CORNER // 2
AHEAD, VALUES_AHEAD = 24, 256  # observations


class _Sum(NamedTuple):
    """A sum of a tile: of a row, the last of which is the gradient, times vector `number`."""

    put: Vectors
    row: int
    number: int


def _sums(rows, wide, narrow):
    """List what a tile sums: from the diagonal on, by whole and half vectors."""
    if rows <= HALF:
        return [_Sum(narrow, i, 0) for i in range(rows + 1)]
    found = [_Sum(wide, i, 0) for i in range(HALF)]
    found += [_Sum(narrow, i, 1) for i in range(HALF, CORNER)]
    # Those after the eighth are summed below the diagonal, which takes fewer vectors.
    found += [_Sum(wide, i, 0) for i in range(CORNER, rows + 1)]
    return found + [_Sum(narrow, i, 2) for i in range(CORNER, rows + 1) if rows > CORNER]


class _Direct:
    """Emitter of one such operation."""

    def __init__(self, context, builder, rows, signature, args):
        self.builder, self.rows = builder, rows
        self.kinds = Regression(*signature.args[0].types)
        self.arrays = Regression(*cgutils.unpack_tuple(builder, args[0]))
        self.run = Pass(*cgutils.unpack_tuple(builder, args[1]))
        self.do, self.wide, self.narrow = (
            Vectors(context, builder, self.kinds.other.dtype, lanes)
            for lanes in (None, CORNER, HALF)
        )
        self.weight = args[2]
        self.sums = _sums(rows, self.wide, self.narrow)
        self.weighted = builder.icmp_signed("!=", self.run.weighted, self.do.INDEX(0))
        one = self.do.INDEX(1)
        self.last = builder.sub(builder.add(self.run.first, self.run.count), one)
        self.end = builder.sub(self.do.width(self.kinds.indices, self.arrays.indices), one)
        at_x = self.at("x", self.run.lane, self.do.INDEX(0))
        self.x = [self.narrow.load(at_x, j) for j in range(-(-rows // HALF))]

    def at(self, name, row, column):
        """Address an element of one of the arrays."""
        return self.do.pointer(getattr(self.kinds, name), getattr(self.arrays, name), row, column)

    def row_of(self, place, end):
        """Address the row of the other factor of an observation, or of `end` if that is first."""
        index = self.do.index(self.kinds.indices, self.arrays.indices, place, end)
        return self.at("other", index, self.do.INDEX(0))

    def product(self, place):
        """Multiply the row of an observation by x; the lanes are still to be summed."""
        row, total = self.row_of(place, self.last), self.narrow.zero
        for j, part in enumerate(self.x):
            total = self.narrow.multiply_add(self.narrow.load(row, j), part, total)
        return total

    def residuals(self, o, squares):
        """Update the residuals and weights of one vector of observations from o on."""
        do, builder = self.do, self.builder
        first, at = builder.add(self.run.first, o), builder.add(self.run.at, o)
        products = [self.product(builder.add(first, do.INDEX(i))) for i in range(do.lanes)]
        totals = [self.narrow.totals(products[i : i + HALF]) for i in range(0, do.lanes, HALF)]
        at_v, at_r, at_w = (self.at(name, None, at) for name in "vrw")
        do.prefetch(self.at("values", None, builder.add(first, do.INDEX(VALUES_AHEAD))))
        v, before = do.load(at_v), do.load(at_r)
        after = builder.fsub(before, do.joined(totals))
        do.store(after, at_r)
        do.store(builder.fmul(v, do.splat(self.weight)), at_w)
        found = (do.squares(r, v)[1] for r in (after, before))
        return [builder.fadd(a, b) for a, b in zip(squares, found, strict=True)]

    def add(self, o, sums, weighted):
        """Add w y yᵀ and w r y of one observation, or y yᵀ and r y."""
        do, builder = self.do, self.builder
        at, place = builder.add(self.run.at, o), builder.add(self.run.first, o)
        row = self.row_of(place, self.last)
        later = self.row_of(builder.add(place, do.INDEX(AHEAD)), self.end)
        for column in range(0, self.rows, do.per_line):
            do.prefetch(builder.gep(later, [do.INDEX(column)]))
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
        """Take one vector of observations from o on."""
        do, builder = self.do, self.builder
        squares = self.residuals(o, sums[:2])
        left, lanes = builder.sub(self.run.count, o), do.INDEX(do.lanes)
        some = builder.select(builder.icmp_signed("<", left, lanes), left, lanes)

        def added(weighted):
            def body(i, tile):
                return self.add(builder.add(o, i), tile, weighted)

            return do.loop(do.INDEX(0), some, 1, sums[2:], body), builder.block

        with builder.if_else(self.weighted) as (with_weights, without):
            with with_weights:
                one = added(True)
            with without:
                other = added(False)
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
                self.store(wide, 1, s.row, narrow.widened(total))
            else:
                self.store(s.put, s.number, s.row, total)
        if below:
            # What was summed below the diagonal is what is above it, transposed.
            beside = wide.transposed(below + [wide.zero] * (CORNER - len(below)))
            for i, vector in enumerate(beside):
                self.store(wide, 1, i, vector)


def _direct_codegen(rows):
    def codegen(context, builder, signature, args):
        emit = _Direct(context, builder, rows, signature, args)
        do = emit.do
        start = [do.zero_64] * 2 + [s.put.zero for s in emit.sums]
        sums = do.loop(do.INDEX(0), emit.run.count, do.lanes, start, emit.block)
        emit.finish(sums[2:])
        return do.reduced(signature.return_type, sums[:2])

    return codegen


def make_direct(rows):
    """Make an operation that evaluates a row of up to `rows` unknowns, 4, 8, 10 or 12."""
    codegen = _direct_codegen(rows)

    @intrinsic
    def direct(typing, regression, run, weight):
        """Do what `gather_dots`, `update_residuals` and the tiles do, in one pass, at one weight.

        No row of the other factor is copied: those of one vector of observations are near when
        the tile reads them again. Returns Σ v r², and the same with r as it was before, in
        float64.
        """
        result, dtype = types.UniTuple(types.float64, 2), regression.types[0].dtype
        return result(regression, run, dtype), codegen

    return direct
