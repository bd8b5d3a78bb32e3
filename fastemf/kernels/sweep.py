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

Two ideas carry the speed. What costs k² per observation is a sum of outer
products, Gram matrix and gradient together, and goes through one register
tile. What costs k³ per row is done for a batch of rows at once, one row per
lane of the vector registers: factoring a small matrix is a chain of short
dependent steps, and a batch has one such chain instead of eight or sixteen.
Lanes never mix, so a row's bits do not depend on its batch.

Name prefixes tell the layer: `_row_*` one row, `_batch_*` one row per lane,
`_rows_*` a serial block of rows that owns its scratch, `sweep_*` the parallel
entry.
"""

from __future__ import annotations

from collections import namedtuple
from math import frexp, isfinite, ldexp, sqrt
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from fastemf.kernels.compilation import kernel


def _vector_bytes() -> int:
    """Width of the vector registers compiled for; 32 also suits machines with narrower ones."""
    # Numba's cache knows what it was told to compile for, so this must follow it too.
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        return 64 if "+avx512f" in config.CPU_FEATURES else 32  # type: ignore[attr-defined]
    if config.CPU_NAME is not None:  # type: ignore[attr-defined]
        return 32
    try:
        return 64 if llvm.get_host_cpu_features().get("avx512f") else 32
    except RuntimeError:  # LLVM cannot tell on every platform
        return 32


VECTOR_BYTES = _vector_bytes()
# As many rows of a tile as leave its sums in the registers.
TILE_ROWS = 8 if VECTOR_BYTES == 64 else 4
PANEL = 4  # rows of a triangle that are factored together; their tiles are this wide:
PANEL_COLUMNS = 4 if VECTOR_BYTES == 64 else 2
CHUNK_BYTES = 1 << 15  # packed rows that the tiles go over again and again: two thirds of L1
RESIDENT_BYTES = 1 << 19  # a batch's packed observations are kept between its Newton iterations
BATCH_BYTES = 1 << 18  # and its Gram matrices
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
        double = ir.DoubleType()
        self.zero_64 = ir.Constant(ir.VectorType(double, self.lanes), [double(0.0)] * self.lanes)

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

    def index(self, kind, indices, place, end):
        """Element `place` of an integer array, or element `end` if that comes first."""
        builder = self.builder
        place = builder.select(builder.icmp_signed("<", place, end), place, end)
        index = builder.load(self.pointer(kind, indices, None, place))
        return index if index.type == self.INDEX else builder.sext(index, self.INDEX)

    def prefetch(self, pointer):
        """Ask for a cache line, into the second level."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        hint = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        pointer = self.builder.bitcast(pointer, byte)
        self.builder.call(hint, [pointer, number(0), number(2), number(1)])

    def doubled(self, vector):
        """The same numbers in float64."""
        if vector.type == self.zero_64.type:
            return vector
        return self.builder.fpext(vector, self.zero_64.type)

    def squares(self, r, weight):
        """Where r < 0, weight · r² in float64, and that part of it."""
        negative = self.builder.fcmp_ordered("<", r, self.zero)
        r, weight = self.doubled(r), self.doubled(weight)
        square = self.builder.fmul(weight, self.builder.fmul(r, r))
        return negative, square, self.builder.select(negative, square, self.zero_64)

    def loop_of_sums(self, result, count, n, body):
        """Sums over whole vectors, taken in float64 lanes, as a tuple of scalars."""
        start = [self.zero_64] * n
        sums = self.loop(self.INDEX(0), count, self.lanes, start, body)
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f64"
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, self.zero_64.type])
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, name)
        scalars = [
            self.builder.call(reduce, [double(0.0), vector], fastmath=self.FUSE) for vector in sums
        ]
        return self.context.make_tuple(self.builder, result, scalars)

    def vector_sqrt(self, vector):
        name = f"llvm.sqrt.v{self.lanes}f{8 * self.itemsize}"
        kind = ir.FunctionType(self.type, [self.type])
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [vector]
        )

    def _mixed(self, left, right, width):
        """Two vectors with their off-diagonal blocks of `width` lanes exchanged."""
        mask = [
            lane if lane // width % 2 == 0 else self.lanes + lane - width
            for lane in range(self.lanes)
        ]
        kind = ir.VectorType(self.LANE, self.lanes)
        return tuple(
            self.builder.shuffle_vector(
                left, right, ir.Constant(kind, [self.LANE(lane + shift) for lane in mask])
            )
            for shift in (0, width)
        )

    def transposed(self, vectors):
        """As many vectors as lanes: lane i of vector j becomes lane j of vector i."""
        vectors, width = list(vectors), 1
        while width < self.lanes:
            for i in range(self.lanes):
                if not i & width:
                    pair = self._mixed(vectors[i], vectors[i + width], width)
                    vectors[i], vectors[i + width] = pair
            width *= 2
        return vectors

    def totals(self, vectors):
        """As many vectors as lanes: one vector of their sums over lanes.

        Half of a transposition, with additions on the way: fewer shuffles than one sum each.
        """
        vectors, width = list(vectors), 1
        while len(vectors) > 1:
            vectors = [
                self.builder.fadd(*self._mixed(vectors[i], vectors[i + 1], width), flags=self.FUSE)
                for i in range(0, len(vectors), 2)
            ]
            width *= 2
        return vectors[0]

    def loop(self, first, last, step, sums, body):
        """Run body(index, sums) → sums for first, first + step, … below last; returns the sums."""
        builder = self.builder
        before = builder.block
        inside, done = (builder.append_basic_block(name) for name in ("vector.loop", "vector.end"))
        builder.cbranch(builder.icmp_signed("<", first, last), inside, done)
        builder.position_at_end(inside)
        index = builder.phi(self.INDEX)
        running = [builder.phi(start.type) for start in sums]
        following = body(index, running)
        index_next = builder.add(index, self.INDEX(step))
        index.add_incoming(first, before)
        index.add_incoming(index_next, inside)
        builder.cbranch(builder.icmp_signed("<", index_next, last), inside, done)
        builder.position_at_end(done)
        ended = [builder.phi(start.type) for start in sums]
        for start, phi, end, value in zip(sums, running, ended, following, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, inside)
            end.add_incoming(start, before)
            end.add_incoming(value, inside)
        return ended


def _tile_codegen(rows, vectors, gradient, lines=1):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        source, at, weights, first, count, keep, b, a, out, top = args[:10]
        indices, ahead, other, line = args[10:14]
        do = _Vectors(context, builder, kinds[0].dtype)

        def body(o, sums):
            weight = builder.load(do.pointer(kinds[2], weights, None, builder.add(o, first)))
            weight = do.splat(weight)
            row = builder.add(o, at)
            right, left = (do.pointer(kinds[0], source, row, column) for column in (a, b))
            rights = [
                builder.fmul(do.load(right, j), weight, flags=do.FUSE) for j in range(vectors)
            ]
            factors = [builder.load(builder.gep(left, [do.INDEX(i)])) for i in range(rows)]
            if gradient:
                place = do.pointer(kinds[14], args[14], None, builder.add(o, first))
                factors.append(builder.load(place))
            later = do.index(kinds[10], indices, builder.add(ahead, o), end)
            for j in range(lines):
                column = builder.add(line, do.INDEX(j * do.lanes))
                do.prefetch(do.pointer(kinds[12], other, later, column))
            following = []
            for i, factor in enumerate(factors):
                factor = do.splat(factor)
                for j in range(vectors):
                    following.append(do.multiply_add(factor, rights[j], sums[i * vectors + j]))
            return following

        end = builder.sub(do.width(kinds[10], indices), do.INDEX(1))
        sums = do.loop(do.INDEX(0), count, 1, [do.zero] * ((rows + gradient) * vectors), body)
        targets = [
            do.pointer(kinds[8], out, builder.add(builder.add(top, b), do.INDEX(i)), a)
            for i in range(rows)
        ]
        if gradient:
            targets.append(do.pointer(kinds[15], args[15], args[16], a))
        for i, target in enumerate(targets):
            for j in range(vectors):
                before = builder.select(keep, do.load(target, j), do.zero)
                do.store(builder.fadd(before, sums[i * vectors + j]), target, j)
        return context.get_dummy_value()

    return codegen


def _dots_codegen(gather):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        rows, at, x, lane, out, out_at = args[:6]
        do = _Vectors(context, builder, kinds[0].dtype)
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


def _fetch_codegen(ones):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        out, at, count = args[:3]
        do = _Vectors(context, builder, kinds[0].dtype)
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


def _residuals_codegen(context, builder, signature, args):
    kinds = signature.args
    at, count, upper, lower = args[4:]
    do = _Vectors(context, builder, kinds[0].dtype)
    upper, lower = do.splat(upper), do.splat(lower)

    def body(o, sums):
        places = [do.pointer(kinds[n], args[n], None, builder.add(at, o)) for n in range(4)]
        weight, before, product = (do.load(place) for place in places[:3])
        after = builder.fsub(before, product)
        do.store(after, places[1])
        negative, square, below = do.squares(after, weight)
        do.store(builder.fmul(weight, builder.select(negative, lower, upper)), places[3])
        _, size, _ = do.squares(before, weight)
        return [builder.fadd(a, b) for a, b in zip(sums, (square, below, size), strict=True)]

    return do.loop_of_sums(signature.return_type, count, 3, body)


def _trial_codegen(context, builder, signature, args):
    kinds = signature.args
    at, count, step = args[3:]
    do = _Vectors(context, builder, kinds[0].dtype)
    minus = do.splat(builder.fneg(step))
    one = ir.Constant(do.zero_64.type, [ir.DoubleType()(1.0)] * do.lanes)

    def body(o, sums):
        places = [do.pointer(kinds[n], args[n], None, builder.add(at, o)) for n in range(3)]
        weight, before, change = (do.load(place) for place in places)
        after = do.multiply_add(minus, change, before)
        negative, square, below = do.squares(after, weight)
        was = builder.fcmp_ordered("<", before, do.zero)
        counts = builder.fcmp_ordered(">", weight, do.zero)
        moved = builder.and_(builder.xor(negative, was), counts)
        flip = builder.select(moved, one, do.zero_64)
        return [builder.fadd(a, b) for a, b in zip(sums, (square, below, flip), strict=True)]

    return do.loop_of_sums(signature.return_type, count, 3, body)


def _move_codegen(context, builder, signature, args):
    kinds = signature.args
    at, upper, lower = args[3:]
    do = _Vectors(context, builder, kinds[0].dtype)
    upper, lower = do.splat(upper), do.splat(lower)
    places = [do.pointer(kinds[n], args[n], None, at) for n in range(3)]
    weight, before, change = (do.load(place) for place in places)
    after = builder.fsub(before, change)
    do.store(after, places[1])
    weights = [
        builder.select(builder.fcmp_ordered("<", r, do.zero), lower, upper) for r in (before, after)
    ]
    moved = builder.fmul(weight, builder.fsub(weights[1], weights[0]))
    do.store(moved, places[2])
    bits = builder.bitcast(builder.fcmp_unordered("!=", moved, do.zero), ir.IntType(do.lanes))
    return builder.zext(bits, do.INDEX)


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


def _lanes_in_codegen(context, builder, signature, args):
    kinds = signature.args
    source, members, step, row, column, out, out_row = args
    do = _Vectors(context, builder, kinds[0].dtype)
    vectors = []
    for lane in range(do.lanes):
        member = builder.load(do.pointer(kinds[1], members, None, do.INDEX(lane)))
        at = builder.add(builder.mul(member, step), row)
        vectors.append(do.load(do.pointer(kinds[0], source, at, column)))
    for i, vector in enumerate(do.transposed(vectors)):
        at = builder.add(out_row, do.INDEX(i))
        do.store(vector, do.pointer(kinds[5], out, at, do.INDEX(0)))
    return context.get_dummy_value()


def _lanes_out_codegen(context, builder, signature, args):
    kinds = signature.args
    source, row, out, members, column = args
    do = _Vectors(context, builder, kinds[0].dtype)
    rows = [builder.add(row, do.INDEX(i)) for i in range(do.lanes)]
    vectors = [do.load(do.pointer(kinds[0], source, at, do.INDEX(0))) for at in rows]
    for lane, vector in enumerate(do.transposed(vectors)):
        member = builder.load(do.pointer(kinds[3], members, None, do.INDEX(lane)))
        do.store(vector, do.pointer(kinds[2], out, member, column))
    return context.get_dummy_value()


def _weighted_sum_codegen(vectors):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        indices, values, first, last, dense, out, row, column = args
        do = _Vectors(context, builder, kinds[4].dtype)

        def body(e, sums):
            value = do.splat(builder.load(do.pointer(kinds[1], values, None, e)))
            at = do.pointer(kinds[4], dense, do.index(kinds[0], indices, e, last), column)
            return [do.multiply_add(value, do.load(at, j), total) for j, total in enumerate(sums)]

        target = do.pointer(kinds[5], out, row, column)
        for j, total in enumerate(do.loop(first, last, 1, [do.zero] * vectors, body)):
            do.store(total, target, j)
        return context.get_dummy_value()

    return codegen


class _Panel:
    """Vectors of a batched triangle, and what the rows above take off a tile of it."""

    def __init__(self, do, kinds, U, begin):
        self.do, self.builder, self.kinds, self.U, self.begin = do, do.builder, kinds, U, begin

    def at(self, row, column):
        """Address of the lanes of one element; the row's columns follow each other."""
        first = self.builder.load(self.do.pointer(self.kinds[1], self.begin, None, row))
        where = self.builder.add(first, column)
        return self.do.pointer(self.kinds[0], self.U, where, self.do.INDEX(0))

    def reduced(self, i, j, wanted):
        """Elements (a, c) of the tile at (i, j), less the products of the rows above row i."""
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
    do = _Vectors(context, builder, kinds[0].dtype)
    panel = _Panel(do, kinds, U, begin)
    tile = panel.reduced(i, i, [(a, c) for a in range(PANEL) for c in range(a, PANEL)])
    one = ir.Constant(do.type, [do.element(1.0)] * do.lanes)
    least = do.load(do.pointer(kinds[5], floor, do.INDEX(0), do.INDEX(0)))
    kept_at = do.pointer(kinds[6], kept, do.INDEX(0), do.INDEX(0))
    share = do.load(kept_at)
    for a in range(PANEL):
        row = builder.add(i, do.INDEX(a))
        pivot = tile[a, a]
        sound = builder.fcmp_ordered(">", pivot, least)
        whole = do.load(do.pointer(kinds[4], diagonal, row, do.INDEX(0)))
        left = builder.select(sound, builder.fdiv(pivot, whole), do.zero)
        share = builder.select(builder.fcmp_ordered("<", left, share), left, share)
        root = builder.fdiv(one, do.vector_sqrt(builder.select(sound, pivot, one)))
        do.store(root, do.pointer(kinds[3], inverse, row, do.INDEX(0)))
        for c in range(a, PANEL):
            tile[a, c] = builder.fmul(tile[a, c], root)
        for b in range(a + 1, PANEL):
            for c in range(b, PANEL):
                tile[b, c] = panel.minus(tile[b, c], tile[a, b], tile[a, c])
    do.store(share, kept_at)
    for a in range(PANEL):
        target = panel.at(builder.add(i, do.INDEX(a)), i)
        for c in range(PANEL):
            do.store(tile.get((a, c), do.zero), target, c)
    return context.get_dummy_value()


def _panel_codegen(context, builder, signature, args):
    kinds = signature.args
    U, begin, i, j, inverse = args
    do = _Vectors(context, builder, kinds[0].dtype)
    panel = _Panel(do, kinds, U, begin)
    tile = panel.reduced(i, j, [(a, c) for a in range(PANEL) for c in range(PANEL_COLUMNS)])
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


def _substitute_codegen(forward):
    def codegen(context, builder, signature, args):
        kinds = signature.args
        U, at, inverse, z, i, n = args
        do = _Vectors(context, builder, kinds[0].dtype)
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


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _apart():
        pass

    def _lanes(array):
        return VECTOR_BYTES // array.itemsize

    def _make_tile(rows, vectors, gradient=False, lines=1):
        def tile(
            source, at, weights, first, count, keep, b, a, out, top, indices, ahead, other, line,
            r=None, g=None, lane=0,
        ):  # fmt: skip
            wide = slice(a, a + vectors * _lanes(out))
            w = weights[first : first + count]
            y = source[at : at + count]
            for i in range(b, b + rows):
                product = np.sum((w * y[:, i])[:, None] * y[:, wide], axis=0)
                out[top + i, wide] = keep * out[top + i, wide] + product
            if gradient:
                slope = np.sum((w * r[first : first + count])[:, None] * y[:, wide], axis=0)
                g[lane, wide] = keep * g[lane, wide] + slope

        return tile

    def _dots(rows, at, x, lane, out, out_at):
        for i in range(_lanes(rows)):
            out[out_at + i] = np.sum(rows[at + i] * x[lane])

    def _gather_dots(rows, at, x, lane, out, out_at, indices, first, last, other):
        for i in range(_lanes(rows)):
            rows[at + i] = other[indices[min(first + i, last - 1)]]
        _dots(rows, at, x, lane, out, out_at)

    def _fetch(out, at, count, source, first):
        out[at : at - (-count // _lanes(out)) * _lanes(out)] = 0
        out[at : at + count] = source[first : first + count]

    def _fetch_ones(out, at, count):
        _fetch(out, at, count, np.ones(count, out.dtype), 0)

    def _residuals(v, r, s, w, at, count, upper, lower):
        part = slice(at, at + count)
        before = r[part].astype(np.float64)
        r[part] -= s[part]
        w[part] = v[part] * np.where(r[part] < 0, lower, upper)
        square = v[part] * r[part].astype(np.float64) ** 2
        return np.sum(square), np.sum(square[r[part] < 0]), np.sum(v[part] * before**2)

    def _trial(v, r, s, at, count, step):
        part = slice(at, at + count)
        after = r[part] - step * s[part]
        square = v[part] * after.astype(np.float64) ** 2
        flips = ((after < 0) != (r[part] < 0)) & (v[part] > 0)
        return np.sum(square), np.sum(square[after < 0]), np.sum(flips)

    def _move(v, r, s, at, upper, lower):
        part = slice(at, at + _lanes(r))
        before = np.where(r[part] < 0, lower, upper)
        r[part] -= s[part]
        s[part] = v[part] * (np.where(r[part] < 0, lower, upper) - before)
        return sum(1 << int(lane) for lane in np.flatnonzero(s[part]))

    def _copy(out, out_row, source, row):
        out[out_row] = source[row]

    def _make_weighted_sum(vectors):
        def weighted_sum(indices, values, first, last, dense, out, row, column):
            wide = slice(column, column + vectors * _lanes(dense))
            out[row, wide] = 0
            for e in range(first, last):
                out[row, wide] += values[e] * dense[indices[e], wide]

        return weighted_sum

    def _lanes_in(source, members, step, row, column, out, out_row):
        n = _lanes(source)
        block = [source[row + member * step, column : column + n] for member in members]
        out[out_row : out_row + n] = np.transpose(block)

    def _lanes_out(source, row, out, members, column):
        n = _lanes(source)
        for lane, member in enumerate(members):
            out[member, column : column + n] = source[row : row + n, lane]

    def _pivots(U, begin, i, inverse, diagonal, floor, kept):
        for a in range(i, i + PANEL):
            for c in range(i, a):
                U[begin[a] + c] = 0
            for c in range(a, i + PANEL):
                U[begin[a] + c] -= sum(U[begin[e] + a] * U[begin[e] + c] for e in range(a))
            pivot = U[begin[a] + a].copy()
            sound = pivot > floor[0]
            share = np.divide(pivot, diagonal[a], out=np.zeros_like(pivot), where=sound)
            kept[0] = np.minimum(kept[0], share)
            inverse[a] = 1 / np.sqrt(np.where(sound, pivot, 1))
            for c in range(a, i + PANEL):
                U[begin[a] + c] *= inverse[a]

    def _panel(U, begin, i, j, inverse):
        for a in range(i, i + PANEL):
            for c in range(j, j + PANEL_COLUMNS):
                U[begin[a] + c] -= sum(U[begin[e] + a] * U[begin[e] + c] for e in range(a))
                U[begin[a] + c] *= inverse[a]

    def _forward(U, at, inverse, z, i, n):
        z[i] *= inverse[i]
        for j in range(i + 1, n):
            z[j] -= U[at + j] * z[i]

    def _backward(U, at, inverse, z, i, n):
        for j in range(i + 1, n):
            z[i] -= U[at + j] * z[j]
        z[i] *= inverse[i]

else:

    @intrinsic
    def _apart(typing):
        """Keep the calling function out of its callers, for what is rare: it compiles once."""

        def codegen(context, builder, signature, args):
            builder.function.attributes.add("noinline")
            return context.get_dummy_value()

        return types.void(), codegen

    @intrinsic
    def _lanes(typing, array):
        """Elements in a vector, known to the compiler."""
        count = VECTOR_BYTES // (array.dtype.bitwidth // 8)
        return types.int64(array), lambda context, *_: context.get_constant(types.int64, count)

    def _make_tile(rows, vectors, gradient=False, lines=1):
        n, codegen = types.int64, _tile_codegen(rows, vectors, gradient, lines)

        if gradient:

            @intrinsic
            def tile(
                typing, source, at, weights, first, count, keep, b, a, out, top,
                indices, ahead, other, line, r, g, lane,
            ):  # fmt: skip
                """The same, and g[lane, a:…] += Σ_o w_o r_o y_o[a:…]."""
                kinds = (source, n, weights, n, n, types.boolean, n, n, out, n)
                kinds += (indices, n, other, n, r, g, n)
                return types.void(*kinds), codegen

        else:

            @intrinsic
            def tile(
                typing, source, at, weights, first, count, keep, b, a, out, top,
                indices, ahead, other, line,
            ):  # fmt: skip
                """out[top+b:…, a:…] += Σ_o w_o y_o[b:…] y_o[a:…]ᵀ, y_o = source[at + o].

                `rows` elements from b on, `vectors` vectors from a on; w_o = weights[first + o].
                Without `keep` out is overwritten: cheaper than to clear it first. On the way
                `lines` vectors from column `line` on are prefetched of each row of `other` that
                comes next, by indices[ahead + o]: arithmetic leaves the memory idle otherwise.
                """
                kinds = (source, n, weights, n, n, types.boolean, n, n, out, n)
                kinds += (indices, n, other, n)
                return types.void(*kinds), codegen

        return tile

    @intrinsic
    def _dots(typing, rows, at, x, lane, out, out_at):
        """out[out_at + i] = rows[at + i] · x[lane], for as many i as a vector has lanes."""
        n = types.int64
        return types.void(rows, n, x, n, out, n), _dots_codegen(False)

    @intrinsic
    def _gather_dots(typing, rows, at, x, lane, out, out_at, indices, first, last, other):
        """The same, once rows[at + i] = other[indices[first + i]]; behind `last` the last again."""
        n = types.int64
        return types.void(rows, n, x, n, out, n, indices, n, n, other), _dots_codegen(True)

    @intrinsic
    def _fetch(typing, out, at, count, source, first):
        """out[at:at+count] = source[first:first+count], then zeros to the end of a vector."""
        n = types.int64
        return types.void(out, n, n, source, n), _fetch_codegen(False)

    @intrinsic
    def _fetch_ones(typing, out, at, count):
        """The same from a source of ones."""
        return types.void(out, types.int64, types.int64), _fetch_codegen(True)

    @intrinsic
    def _residuals(typing, v, r, s, w, at, count, upper, lower):
        """Take s off r; w = v · weight of r's sign, for whole vectors from `at` on.

        Returns Σ v r², its part with r < 0, and Σ v r² as r was before, in float64.
        """
        n, result = types.int64, types.UniTuple(types.float64, 3)
        return result(v, r, s, w, n, n, v.dtype, v.dtype), _residuals_codegen

    @intrinsic
    def _trial(typing, v, r, s, at, count, step):
        """Of r − step·s: Σ v r², its part with r < 0, and how many that count change sign."""
        n, result = types.int64, types.UniTuple(types.float64, 3)
        return result(v, r, s, n, n, v.dtype), _trial_codegen

    @intrinsic
    def _move(typing, v, r, s, at, upper, lower):
        """Take s off r and let s become the change of the weights, for one vector from `at` on.

        Returns where that is not zero, one bit per lane.
        """
        n = types.int64
        return n(v, r, s, n, v.dtype, v.dtype), _move_codegen

    @intrinsic
    def _copy(typing, out, out_row, source, row):
        """out[out_row] = source[row]."""
        return types.void(out, types.int64, source, types.int64), _copy_codegen

    def _make_weighted_sum(vectors):
        @intrinsic
        def weighted_sum(typing, indices, values, first, last, dense, out, row, column):
            """out[row, column:…] = Σ_e values[e] · dense[indices[e], column:…], e from first on."""
            n = types.int64
            kinds = (indices, values, n, n, dense, out, n, n)
            return types.void(*kinds), _weighted_sum_codegen(vectors)

        return weighted_sum

    @intrinsic
    def _lanes_in(typing, source, members, step, row, column, out, out_row):
        """out[out_row + c, l] = source[members[l]·step + row, column + c], lanes × lanes."""
        n = types.int64
        return types.void(source, members, n, n, n, out, n), _lanes_in_codegen

    @intrinsic
    def _lanes_out(typing, source, row, out, members, column):
        """out[members[l], column + c] = source[row + c, l], lanes × lanes."""
        n = types.int64
        return types.void(source, n, out, members, n), _lanes_out_codegen

    @intrinsic
    def _pivots(typing, U, begin, i, inverse, diagonal, floor, kept):
        """Factor the diagonal block of rows i … i+PANEL−1; element (a, c) is U[begin[a] + c]."""
        return types.void(U, begin, types.int64, inverse, diagonal, floor, kept), _pivots_codegen

    @intrinsic
    def _panel(typing, U, begin, i, j, inverse):
        """Factor columns j … j+PANEL_COLUMNS−1 of those rows, once their diagonal block is."""
        n = types.int64
        return types.void(U, begin, n, n, inverse), _panel_codegen

    @intrinsic
    def _forward(typing, U, at, inverse, z, i, n):
        """Step i of Uᵀ z = given: finish z[i] and take it off the later ones; row i is at `at`."""
        return types.void(U, types.int64, inverse, z, types.int64, types.int64), (
            _substitute_codegen(True)
        )

    @intrinsic
    def _backward(typing, U, at, inverse, z, i, n):
        """Step i of U z = given, the later ones being done."""
        return types.void(U, types.int64, inverse, z, types.int64, types.int64), (
            _substitute_codegen(False)
        )


_tile_full_2, _tile_full_1 = _make_tile(TILE_ROWS, 2), _make_tile(TILE_ROWS, 1)
_tile_half_1, _tile_pair_1 = _make_tile(TILE_ROWS // 2, 1), _make_tile(2, 1)
_slope_full_2, _slope_full_1 = _make_tile(TILE_ROWS, 2, True), _make_tile(TILE_ROWS, 1, True)
_slope_plus_2, _slope_plus_1 = (
    _make_tile(TILE_ROWS + 2, 2, True, lines=2),
    _make_tile(TILE_ROWS + 2, 1, True),
)
_slope_4, _slope_1 = _make_tile(0, 4, True, lines=0), _make_tile(0, 1, True, lines=0)
_weighted_sum_1, _weighted_sum_3 = _make_weighted_sum(1), _make_weighted_sum(3)


# --- one row: residuals, gradient, curvature -----------------------------------------------
#
# Arrays go from function to function one by one, with offsets instead of slices: a tuple of
# them would be copied and a slice reference-counted at every call, which costs more than a
# short row's arithmetic. Names:
#
# first, last   the row's entries in indices, values, weights
# l             its number in the batch and its row in x, g, p, ridge; its gram begins at l·tall
# at            where its observations begin in v, r, s, w: weights, residuals, B p (later the
#               changes of w), and v times the weight of r's sign. Padded to whole vectors, v = 0
# rows          other's rows, packed: from `home` = at on, or, where the row is too long to be
#               kept (home < 0), one chunk at a time from `spare` on
# q             unknowns, without the padding


@kernel(lean=True)
def _gram_add(source, home, w, r, at, count, keep, q, gram, top, g, l, indices, ahead, other):
    """Gram matrix += Σ w y yᵀ from the diagonal's vector on, gradient += Σ w r y.

    Without `keep` both are overwritten. Meanwhile the rows for indices[ahead:] are prefetched.
    """
    _apart()
    lanes = _lanes(gram)
    wide = source.shape[1]
    if TILE_ROWS < q <= TILE_ROWS + 2 and wide <= 2 * lanes:
        # One tile for all: two rows alone would wait for their sums.
        if wide > lanes:
            _slope_plus_2(
                source, home, w, at, count, keep, 0, 0, gram, top, indices, ahead, other, 0, r, g, l
            )
        else:
            _slope_plus_1(
                source, home, w, at, count, keep, 0, 0, gram, top, indices, ahead, other, 0, r, g, l
            )
        return
    a = 0
    line = 0  # one after the other, so that no tile asks for more than memory can give meanwhile
    while a + lanes < wide:
        _slope_full_2(
            source, home, w, at, count, keep, 0, a, gram, top, indices, ahead, other, line, r, g, l
        )
        a += 2 * lanes
        line += lanes
    if a < wide:
        _slope_full_1(
            source, home, w, at, count, keep, 0, a, gram, top, indices, ahead, other, line, r, g, l
        )
        line += lanes
    for b in range(TILE_ROWS, q, TILE_ROWS):
        # Full tiles, and at the end the smallest one that covers what is left.
        a = b // lanes * lanes
        while a < wide:
            line = min(line, wide - lanes)
            if q - b <= 2:
                _tile_pair_1(
                    source, home, w, at, count, keep, b, a, gram, top, indices, ahead, other, line
                )
                a += lanes
            elif q - b <= TILE_ROWS // 2:
                _tile_half_1(
                    source, home, w, at, count, keep, b, a, gram, top, indices, ahead, other, line
                )
                a += lanes
            elif a + lanes < wide:
                _tile_full_2(
                    source, home, w, at, count, keep, b, a, gram, top, indices, ahead, other, line
                )
                a += 2 * lanes
            else:
                _tile_full_1(
                    source, home, w, at, count, keep, b, a, gram, top, indices, ahead, other, line
                )
                a += lanes
            line += lanes


@kernel(lean=True)
def _gradient_add(source, home, w, r, at, count, keep, gram, g, l, indices, other):
    """The gradient's part of `_gram_add` alone."""
    _apart()
    lanes = _lanes(gram)
    wide = source.shape[1]
    a = 0
    while a + 4 * lanes <= wide:
        _slope_4(source, home, w, at, count, keep, 0, a, gram, 0, indices, 0, other, 0, r, g, l)
        a += 4 * lanes
    while a < wide:
        _slope_1(source, home, w, at, count, keep, 0, a, gram, 0, indices, 0, other, 0, r, g, l)
        a += lanes


@kernel(lean=True)
def _row_evaluate(
    first, last, indices, values, weights, other, offset, upper, lower, curvature,
    l, at, home, spare, chunk, rows, v, r, s, w, gram, tall, ridge, x, g,
):  # fmt: skip
    """All there is to know at x: r, half the negative gradient g and, if asked for, Gram matrix.

    Returns f, Σ v r² over the residuals ≥ 0 and < 0, and Σ v (b − offset)².
    """
    _apart()
    lanes = _lanes(r)
    d, q, top = last - first, ridge.shape[1], l * tall
    total = 0.0
    below = 0.0
    size = 0.0
    for base in range(0, d, chunk):
        count = min(chunk, d - base)
        whole = -(-count // lanes) * lanes
        e, o = first + base, at + base
        place = home + base if home >= 0 else spare
        for c in range(0, count, lanes):
            _gather_dots(rows, place + c, x, l, s, o + c, indices, e + c, e + count, other)
        _fetch(r, o, count, values, e)
        if weights.size:
            _fetch(v, o, count, weights, e)
        else:
            _fetch_ones(v, o, count)
        if offset.size:
            for c in range(count):
                r[o + c] -= offset[indices[e + c]]
        squares = _residuals(v, r, s, w, o, whole, upper, lower)
        total += squares[0]
        below += squares[1]
        size += squares[2]
        if curvature:
            _gram_add(
                rows, place, w, r, o, count, base > 0, q, gram, top, g, l, indices, e + count, other
            )
        else:
            _gradient_add(rows, place, w, r, o, count, base > 0, gram, g, l, indices, other)
    penalty = 0.0
    for a in range(q):
        g[l, a] -= ridge[l, a] * x[l, a]
        penalty += ridge[l, a] * np.float64(x[l, a]) * x[l, a]
    above = total - below
    return upper * above + lower * below + penalty, above, below, size


@kernel(lean=True)
def _row_times(first, last, indices, other, l, at, home, spare, rows, p, s):
    """Fill s with B p."""
    lanes = _lanes(s)
    d = last - first
    if home >= 0:
        for c in range(0, d, lanes):
            _dots(rows, home + c, p, l, s, at + c)
    else:
        for c in range(0, d, lanes):
            _gather_dots(rows, spare, p, l, s, at + c, indices, first + c, last, other)


@kernel(lean=True)
def _row_flips(
    first, last, indices, other, l, at, home, spare, chunk, rows,
    v, r, s, w, upper, lower, q, gram, tall, g,
):  # fmt: skip
    """Take s off r, and correct Gram matrix and gradient by the observations that change sign."""
    _apart()
    lanes = _lanes(r)
    found = 0
    for o in range(at, at + last - first, lanes):
        changed = _move(v, r, s, o, upper, lower)
        lane = 0
        while changed:
            if changed & 1:
                # To the front, which is behind us. w is rebuilt before it is needed again.
                s[at + found] = s[o + lane]
                w[at + found] = r[o + lane]
                if home >= 0:
                    _copy(rows, spare + found, rows, o + lane)
                else:
                    _copy(rows, spare + found, other, indices[first + o + lane - at])
                found += 1
            changed >>= 1
            lane += 1
        if found > 0 and (found + lanes > chunk or o + lanes >= at + last - first):
            _gram_add(
                rows, spare, s, w, at, found, True, q, gram, l * tall, g, l, indices, last, other
            )
            found = 0


# --- a batch of rows: the Newton directions ------------------------------------------------


@kernel(lean=True)
def _batch_factor(members, gram, tall, ridge, largest, floor, begin, U, diagonal, inverse, kept):
    """Upper factors of gram + diag(ridge), a member of the batch per lane.

    kept[0] becomes the smallest share that a pivot kept of its diagonal; 0 where one came down
    to `floor`, and what follows in that lane is meaningless. The solves multiply by `inverse`,
    the reciprocals of the diagonals.
    """
    lanes = _lanes(U)
    q, n = ridge.shape[1], diagonal.shape[0]
    for b in range(n):
        for a in range(b // lanes * lanes, gram.shape[1], lanes):
            _lanes_in(gram, members, tall, b, a, U, begin[b] + a)
        for l in range(lanes):
            # Behind the unknowns the matrix is padded with a diagonal that is no pivot's floor.
            U[begin[b] + b, l] += ridge[members[l], b] if b < q else largest[l]
            diagonal[b, l] = U[begin[b] + b, l]
    for l in range(lanes):
        kept[0, l] = 1
    for i in range(0, n, PANEL):
        _pivots(U, begin, i, inverse, diagonal, floor, kept)
        for j in range(i + PANEL, n, PANEL_COLUMNS):
            _panel(U, begin, i, j, inverse)


@kernel(lean=True)
def _batch_directions(
    members, length, level, gram, tall, ridge, largest, floor,
    begin, U, diagonal, inverse, kept, z, project, L, M, picked, x, g, p, predicted, share,
):  # fmt: skip
    """Solve H p = g for the members, with the pseudo-inverse where H is numerically singular.

    There, if `project` is set, x is projected onto the row space instead.

    `predicted` becomes the decrease of f that p predicts, `share` how far H is from singular:
    the smallest share a pivot kept of its diagonal, 0 for singular.
    """
    _apart()
    lanes = _lanes(U)
    q, wide, n = ridge.shape[1], g.shape[1], diagonal.shape[0]
    for l in range(lanes):
        member = members[l]
        top = 0.0
        for a in range(q):
            top = max(top, np.float64(gram[member * tall + a, a]) + ridge[member, a])
        largest[l] = top
        # Against the largest diagonal, so that a factor column at rounding level counts as none.
        floor[0, l] = max(64 * q * level.eps * top, level.tiny / level.eps)
    _batch_factor(members, gram, tall, ridge, largest, floor, begin, U, diagonal, inverse, kept)
    for a in range(0, wide, lanes):
        _lanes_in(g, members, 1, 0, a, z, a)
    for i in range(n):
        _forward(U, begin[i], inverse, z, i, n)
    for i in range(n - 1, -1, -1):
        _backward(U, begin[i], inverse, z, i, n)
    for a in range(0, wide, lanes):
        _lanes_out(z, a, p, members, a)
    for l in range(lanes):
        member = members[l]
        if l > 0 and member == members[l - 1]:
            break  # lanes to spare repeat the last member
        share[member] = kept[0, l]
        predicted[member] = 0
        if not isfinite(largest[l]):
            predicted[member] = np.nan
            continue
        # Fewer observations than unknowns: H is singular unless the ridge says otherwise, and
        # rounding must not decide it.
        short = length[member] < q
        for a in range(q):
            short = short and ridge[member, a] <= floor[0, l]
        if short or share[member] == 0:
            share[member] = 0
            predicted[member] = _row_minimum_norm(
                member, gram, tall, ridge, floor[0, l], length[member] if short else q,
                project[member], L, M, x, g, p, picked,
            )  # fmt: skip
        else:
            for a in range(q):
                predicted[member] += np.float64(g[member, a]) * p[member, a]


@kernel(lean=True)
def _row_minimum_norm(l, gram, tall, ridge, floor, max_rank, project, L, M, x, g, p, picked):
    """For singular H: p = H⁺ g, or if `project` is set x projected onto the row space.

    Cholesky with diagonal pivoting gives H ≈ L Lᵀ with L of full column rank, so
    H⁺ = L (LᵀL)⁻² Lᵀ, and L (LᵀL)⁻¹ Lᵀ is the projection, which drops the part of the
    warm start that no observation sees. Returns the decrease g·p that p predicts.
    """
    _apart()
    q, top = ridge.shape[1], l * tall
    zero = L.dtype.type(0)
    left, y = M[q], M[q + 1]  # what is left of the diagonal; a right-hand side and its solution
    for a in range(q):
        left[a] = gram[top + a, a] + ridge[l, a]
        picked[a] = False
        for c in range(q):
            L[a, c] = 0
    rank = 0
    for c in range(max_rank):
        pivot = -1
        for a in range(q):
            if not picked[a] and left[a] > floor and (pivot < 0 or left[a] > left[pivot]):
                pivot = a
        if pivot < 0:
            break
        picked[pivot] = True
        root = sqrt(left[pivot])
        L[pivot, c] = root
        for a in range(q):
            if not picked[a]:
                total = gram[top + pivot, a] if a > pivot else gram[top + a, pivot]
                for e in range(c):
                    total -= L[a, e] * L[pivot, e]
                L[a, c] = total / root
                left[a] -= L[a, c] * L[a, c]
        rank += 1

    for a in range(rank):
        for b in range(a + 1):
            total = zero
            for i in range(q):
                total += L[i, a] * L[i, b]
            M[b, a] = total
    for a in range(rank):
        total = zero
        for i in range(q):
            total += L[i, a] * (x[l, i] if project else g[l, i])
        y[a] = total
    rank = _small_cholesky(M, rank)  # rounding may shorten it
    _small_solve(M, rank, y)
    predicted = 0.0
    for a in range(rank):
        predicted += np.float64(y[a]) * y[a]
    if not project:
        _small_solve(M, rank, y)
    for i in range(q):
        total = zero
        for a in range(rank):
            total += L[i, a] * y[a]
        if project:
            x[l, i] = total
        else:
            p[l, i] = total
    for i in range(q, p.shape[1]):
        p[l, i] = 0  # the lane's own solution, which went on past a pivot that was none
    return predicted


@kernel(lean=True)
def _small_cholesky(M, n):
    """Overwrite the upper triangle of M[:n, :n] by its factor; returns the rows that went."""
    for i in range(n):
        if not M[i, i] > 0:
            return i
        M[i, i] = sqrt(M[i, i])
        for a in range(i + 1, n):
            M[i, a] /= M[i, i]
        for b in range(i + 1, n):
            for a in range(b, n):
                M[b, a] -= M[i, b] * M[i, a]
    return n


@kernel(lean=True)
def _small_solve(M, n, y):
    """Overwrite y[:n] by (Uᵀ U)⁻¹ y, U in the upper triangle of M."""
    for i in range(n):
        y[i] /= M[i, i]
        for a in range(i + 1, n):
            y[a] -= M[i, a] * y[i]
    for i in range(n - 1, -1, -1):
        for a in range(i + 1, n):
            y[i] -= M[i, a] * y[a]
        y[i] /= M[i, i]


# --- one row: how far along its direction --------------------------------------------------


@kernel(lean=True)
def _row_trial(l, at, d, v, r, s, ridge, x, p, step, level):
    """What a step would give: f, Σ v r² over the residuals ≥ 0 and < 0, changed weights."""
    _apart()
    whole = -(-d // _lanes(r)) * _lanes(r)
    total, below, flips = _trial(v, r, s, at, whole, step)
    penalty = 0.0
    for a in range(ridge.shape[1]):
        xa = np.float64(x[l, a] + step * p[l, a])
        penalty += ridge[l, a] * xa * xa
    above = total - below
    f = level.upper * above + level.lower * below + penalty
    return f, above, below, flips if level.upper != level.lower else 0.0


@kernel(lean=True)
def _row_line_search(l, at, d, v, r, s, ridge, x, p, level):
    """The exact minimum along p: the root of the derivative, increasing and piecewise linear.

    Newton's method in one unknown inside a bracket; it lands on the root as soon
    as it reaches the root's own linear piece, so no breakpoints need sorting.
    """
    _apart()
    left, right, step = 0.0, np.inf, 1.0
    for _ in range(100):
        slope = 0.0
        curvature = 0.0
        for o in range(at, at + d):
            so = np.float64(s[o])
            t = r[o] - step * so
            wso = v[o] * sign_weight(t, level.upper, level.lower) * so
            slope -= wso * t
            curvature += wso * so
        for a in range(ridge.shape[1]):
            pa = np.float64(p[l, a])
            slope += ridge[l, a] * (x[l, a] + step * pa) * pa
            curvature += ridge[l, a] * pa * pa
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


# --- one row by conjugate gradients --------------------------------------------------------


@kernel(lean=True)
def _row_curve(
    first, last, indices, other, l, at, home, spare, chunk, rows, s, w, gram, ridge, p, out
):  # fmt: skip
    """Fill s with B p and out with H p, a chunk at a time while it is in the cache."""
    lanes = _lanes(s)
    for base in range(0, last - first, chunk):
        count = min(chunk, last - first - base)
        e, o = first + base, at + base
        place = home + base if home >= 0 else spare
        for c in range(0, count, lanes):
            if home >= 0:
                _dots(rows, place + c, p, l, s, o + c)
            else:
                _gather_dots(rows, place + c, p, l, s, o + c, indices, e + c, e + count, other)
        _gradient_add(rows, place, w, s, o, count, base > 0, gram, out, l, indices, other)
    for a in range(ridge.shape[1]):
        out[l, a] += ridge[l, a] * p[l, a]


@kernel(lean=True)
def _row_conjugate(
    i, first, last, indices, other, l, at, home, spare, chunk, rows, v, r, s, w, change,
    gram, ridge, x, g, p, toward, product, level, steps, f, stats,
):  # fmt: skip
    """Move x along p, a few steps of conjugate gradients for H p = g with the signs frozen.

    What p does to the residuals is summed on the way. Then as after a Newton direction: take
    the full step where that pays, else the exact minimum along p, so f never rises.
    """
    _apart()
    q, d = ridge.shape[1], last - first
    whole = -(-d // _lanes(r)) * _lanes(r)
    largest = r.dtype.type(0)
    for a in range(q):
        largest = max(largest, abs(g[l, a]))
    if not isfinite(largest):
        return NOT_FINITE
    if largest == 0:
        return SOLVED
    # In units of the gradient: products with H twice over would leave the dtype's range. So might
    # a square of the unit, which the compiler may form of factors; not of exponents.
    exponent = frexp(largest)[1]
    unit = r.dtype.type(ldexp(1.0, exponent))
    square = 0.0
    for a in range(p.shape[1]):
        p[l, a] = 0
        g[l, a] /= unit
        toward[l, a] = g[l, a]
        square += np.float64(g[l, a]) * g[l, a]
    for o in range(at, at + whole):
        change[o] = 0
    start = square
    predicted = 0.0
    for _ in range(steps):
        if not square > level.eps * level.eps * start:
            break
        _row_curve(
            first, last, indices, other, l, at, home, spare, chunk, rows, s, w, gram, ridge,
            toward, product,
        )  # fmt: skip
        curvature = 0.0
        for a in range(q):
            curvature += np.float64(toward[l, a]) * product[l, a]
        if not isfinite(curvature):
            return NOT_FINITE
        if curvature <= 0:
            break
        step = r.dtype.type(square / curvature)
        predicted += 0.5 * square * step
        following = 0.0
        for a in range(q):
            p[l, a] += step * toward[l, a]
            g[l, a] -= step * product[l, a]
            following += np.float64(g[l, a]) * g[l, a]
        for o in range(at, at + whole):
            change[o] += step * s[o]
        ratio = r.dtype.type(following / square)
        square = following
        for a in range(q):
            toward[l, a] = g[l, a] + ratio * toward[l, a]
    for a in range(q):
        p[l, a] *= unit
    for o in range(at, at + whole):
        change[o] *= unit
    predicted = ldexp(predicted, 2 * exponent)
    if not isfinite(predicted):
        return NOT_FINITE
    step = r.dtype.type(1)
    trial, above, below, flips = _row_trial(l, at, d, v, r, change, ridge, x, p, step, level)
    if trial > f[l] - 0.5 * predicted:
        stats[i, SEARCHES] += 1
        step = r.dtype.type(_row_line_search(l, at, d, v, r, change, ridge, x, p, level))
        trial, above, below, flips = _row_trial(l, at, d, v, r, change, ridge, x, p, step, level)
    stats[i, ITERATIONS] += 1
    if trial <= f[l]:
        for a in range(q):
            x[l, a] += step * p[l, a]
        stats[i, FLIPS] += flips
        f[l], stats[i, ABOVE], stats[i, BELOW] = trial, above, below
    return SOLVED


# --- a batch of rows, a block of rows, all rows --------------------------------------------


@kernel(lean=True)
def _row_step(
    i, first, last, indices, other, l, at, home, spare, chunk, rows,
    v, r, s, w, gram, tall, ridge, x, g, p, level, noise, predicted, kept, f, stats,
):  # fmt: skip
    """Move x along p as far as that pays; returns the status, and whether to evaluate afresh."""
    if not isfinite(predicted):
        return NOT_FINITE, False
    d, q, eps = last - first, ridge.shape[1], level.eps
    solved = SOLVED if kept > 0 else MINIMUM_NORM
    rounding = 64 * eps * f[l] + noise
    tiny = predicted <= rounding  # then f cannot tell whether the step pays
    _row_times(first, last, indices, other, l, at, home, spare, rows, p, s)
    step = r.dtype.type(1)
    trial, above, below, flips = _row_trial(l, at, d, v, r, s, ridge, x, p, step, level)
    if trial > f[l] + (rounding if tiny else -0.25 * predicted):
        stats[i, SEARCHES] += 1
        step = r.dtype.type(_row_line_search(l, at, d, v, r, s, ridge, x, p, level))
        trial, above, below, flips = _row_trial(l, at, d, v, r, s, ridge, x, p, step, level)
    stats[i, ITERATIONS] += 1
    if trial > f[l] + (rounding if tiny else 0.0):  # so is x as good as it gets
        return solved, False
    for a in range(q):
        x[l, a] += step * p[l, a]
    stats[i, FLIPS] += flips
    f[l], stats[i, ABOVE], stats[i, BELOW] = trial, above, below
    # A full step that changed no weight has reached the minimum of its quadratic, to an
    # accuracy that a second one could improve only where H is ill-conditioned.
    accurate = kept * kept > eps
    if predicted <= noise or (flips == 0 and (tiny or (step == 1 and accurate))):
        return solved, False
    if step != 1 or 2 * flips > d or not accurate:  # many flips: a fresh Gram matrix is cheaper
        return CAPPED, True
    # After a full step the frozen quadratic has no gradient left: what there is comes from the
    # observations that changed weight.
    for a in range(g.shape[1]):
        g[l, a] = 0
    _row_flips(
        first, last, indices, other, l, at, home, spare, chunk, rows,
        v, r, s, w, level.upper, level.lower, q, gram, tall, g,
    )  # fmt: skip
    return CAPPED, False


@kernel(lean=True)
def _batch_solve(
    start, stop, indptr, indices, values, weights, other, offset, level, max_newton, steps,
    stats, status, active, members, length, at, home, f, noise, project, predicted, share,
    spare, chunk, rows, v, r, s, w, change, gram, tall, ridge, largest, floor,
    begin, U, diagonal, inverse, kept, z, L, M, picked, x, g, p, toward, product,
):  # fmt: skip
    """Minimise f for the rows start … stop − 1 of a batch, from x, where the solutions are left.

    Fills the rows' stats and status. All rows are evaluated, then those that are not solved yet
    share the lanes, iteration by iteration.
    """
    exact = max_newton > 0 and steps == 0
    upper, lower, eps = level.upper, level.lower, level.eps
    lanes, q = _lanes(r), ridge.shape[1]
    filled = 0
    unfinished = 0
    for i in range(start, stop):
        l, first, last = i - start, indptr[i], indptr[i + 1]
        d = last - first
        if d == 0:
            status[i] = EMPTY
            continue
        whole = -(-d // lanes) * lanes
        length[l], at[l], project[l] = d, filled, True
        home[l] = filled if filled + whole <= spare else -1
        filled += whole
        f[l], stats[i, ABOVE], stats[i, BELOW], size = _row_evaluate(
            first, last, indices, values, weights, other, offset, upper, lower, exact,
            l, at[l], home[l], spare, chunk, rows, v, r, s, w, gram, tall, ridge, x, g,
        )  # fmt: skip
        size += f[l]
        for a in range(q):
            stats[i, GRADIENT] += 4 * np.float64(g[l, a]) * g[l, a]
            if exact:
                size += q * np.float64(gram[l * tall + a, a]) * x[l, a] ** 2
        noise[l] = 256 * eps * eps * size  # rounding of f: residuals are differences of these
        status[i] = SOLVED if max_newton == 0 else CAPPED
        if not isfinite(f[l]):
            status[i] = NOT_FINITE
        elif exact:
            active[unfinished] = l
            unfinished += 1
        elif max_newton > 0:
            status[i] = _row_conjugate(
                i, first, last, indices, other, l, at[l], home[l], spare, chunk, rows,
                v, r, s, w, change, gram, ridge, x, g, p, toward, product, level, steps, f, stats,
            )  # fmt: skip

    for _ in range(max_newton):
        if unfinished == 0:
            break
        for c in range(0, unfinished, lanes):
            for l in range(lanes):
                members[l] = active[min(c + l, unfinished - 1)]
            _batch_directions(
                members, length, level, gram, tall, ridge, largest, floor,
                begin, U, diagonal, inverse, kept, z, project, L, M, picked, x, g, p,
                predicted, share,
            )  # fmt: skip
        before, unfinished = unfinished, 0
        for c in range(before):
            l = active[c]
            i = start + l
            first, last = indptr[i], indptr[i + 1]
            if share[l] == 0 and project[l] and isfinite(predicted[l]):
                # Once: from here on x stays in the row space, and only rounding moved f.
                project[l] = False
                afresh = True
            else:
                status[i], afresh = _row_step(
                    i, first, last, indices, other, l, at[l], home[l], spare, chunk, rows,
                    v, r, s, w, gram, tall, ridge, x, g, p, level,
                    noise[l], predicted[l], share[l], f, stats,
                )  # fmt: skip
            if status[i] == CAPPED:
                active[unfinished] = l
                unfinished += 1
            if afresh:
                f[l], stats[i, ABOVE], stats[i, BELOW], _ = _row_evaluate(
                    first, last, indices, values, weights, other, offset, upper, lower, True,
                    l, at[l], home[l], spare, chunk, rows, v, r, s, w, gram, tall, ridge, x, g,
                )  # fmt: skip


@kernel()
def _rows_solve(
    first, last, indptr, indices, values, weights, other, offset,
    ridge, intercept_ridge, n_factors, level, max_newton, steps, start, out, stats, status,
):  # fmt: skip
    """Rows first … last − 1, batch after batch, in scratch that this block owns."""
    lanes = _lanes(out)
    q, wide = start.shape[1], other.shape[1]
    longest, filled = 0, 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
        filled += indptr[i + 1] - indptr[i] + lanes
    chunk = max(lanes, CHUNK_BYTES // (wide * out.itemsize) // lanes * lanes)
    spare = min(filled, max(lanes, RESIDENT_BYTES // (wide * out.itemsize)))
    rows = _aligned(spare + chunk, wide, out)
    observed = _aligned(5, max(longest + lanes, spare) // 16 * 16 + 16, out)
    v, r, s, w, change = observed[0], observed[1], observed[2], observed[3], observed[4]

    tall = -(-q // TILE_ROWS) * TILE_ROWS
    n = -(-q // PANEL) * PANEL
    # Several rows per lane: rows that need more iterations than others share the lanes then.
    size = lanes * max(1, min(4, BATCH_BYTES // (lanes * tall * wide * out.itemsize)))
    exact = max_newton > 0 and steps == 0
    gram = _aligned(size * tall if exact else 1, wide, out)
    x, g, p = _aligned(size, wide, out), _aligned(size, wide, out), _aligned(size, wide, out)
    toward, product = _aligned(size, wide, out), _aligned(size, wide, out)
    penalties = np.zeros((size, q), out.dtype)
    members, active = np.zeros(lanes, np.int64), np.zeros(size, np.int64)
    length, at = np.zeros(size, np.int64), np.zeros(size, np.int64)
    home, project = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    f, noise, predicted, share = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    begin = np.zeros(n, np.int64)  # element (b, a) of the triangles is U[begin[b] + a]
    triangle = 0
    for b in range(n):
        begin[b] = triangle - b // lanes * lanes
        triangle += wide - b // lanes * lanes
    U, z = _aligned(triangle if exact else 1, lanes, out), _aligned(wide, lanes, out)
    diagonal, inverse = _aligned(n, lanes, out), _aligned(n, lanes, out)
    floor, kept = _aligned(1, lanes, out), _aligned(1, lanes, out)
    largest = np.zeros(lanes, out.dtype)
    L, picked = np.zeros((q if exact else 1, q), out.dtype), np.zeros(q, np.bool_)
    M = np.zeros((q + 2 if exact else 1, q), out.dtype)
    stop = first
    while stop < last:
        # As many rows as the batch holds, but no more than can be kept packed.
        i, filled = stop, 0
        while stop < last and stop < i + size:
            filled += indptr[stop + 1] - indptr[stop] + lanes
            if stop > i and filled > spare:
                break
            stop += 1
        for row in range(i, stop):
            for a in range(q):
                x[row - i, a] = start[row, a]
                penalties[row - i, a] = ridge[row] if a < n_factors else intercept_ridge
        _batch_solve(
            i, stop, indptr, indices, values, weights, other, offset, level, max_newton, steps,
            stats, status, active, members, length, at, home, f, noise, project, predicted, share,
            spare, chunk, rows, v, r, s, w, change, gram, tall, penalties, largest, floor,
            begin, U, diagonal, inverse, kept, z, L, M, picked, x, g, p, toward, product,
        )  # fmt: skip
        for row in range(i, stop):
            for a in range(q):
                out[row, a] = x[row - i, a] if status[row] != EMPTY else 0


@kernel(parallel=True)
def sweep_rows(
    blocks, indptr, indices, values, weights, other, offset,
    ridge, intercept_ridge, n_factors, level, max_newton, steps, start, out, stats, status,
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
    steps
        0 minimises exactly; else one direction is followed, from that many steps of
        conjugate gradients.
    start, out
        Where rows start from, where the solutions go (may be one array).
    stats, status
        Reports per row: the columns and codes above. `stats` arrives as zeros.
    """
    for b in prange(blocks.size - 1):
        _rows_solve(
            blocks[b], blocks[b + 1], indptr, indices, values, weights, other, offset,
            ridge, intercept_ridge, n_factors, level, max_newton, steps, start, out, stats, status,
        )  # fmt: skip


SWEEP = (sweep_rows, _rows_solve)  # (parallel, serial) for threads.launch


# --- the sparse products of a start --------------------------------------------------------


@kernel()
def _rows_times(first, last, indptr, indices, values, dense, out):
    lanes = _lanes(dense)
    for i in range(first, last):
        a = 0
        while a + 3 * lanes <= dense.shape[1]:
            _weighted_sum_3(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += 3 * lanes
        while a < dense.shape[1]:
            _weighted_sum_1(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += lanes


@kernel(parallel=True)
def times(blocks, indptr, indices, values, dense, out):
    """Out = S dense, where S sums the entries of each cell and is zero elsewhere.

    `dense` and `out` are padded to whole vectors.
    """
    for b in prange(blocks.size - 1):
        _rows_times(blocks[b], blocks[b + 1], indptr, indices, values, dense, out)


TIMES = (times, _rows_times)
