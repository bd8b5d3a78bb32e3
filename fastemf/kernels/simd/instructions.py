"""LLVM instructions for vector operations."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from fastemf.kernels.vector_width import CACHE_LINE, VECTOR_BYTES


class Vectors:
    """Emitter of instructions on whole vectors of one element type."""

    FUSE = ("contract", "reassoc")  # multiply and add in one instruction; sum lanes in any order
    INDEX, LANE = ir.IntType(64), ir.IntType(32)

    def __init__(self, context, builder, dtype, lanes=None):
        self.context, self.builder = context, builder
        self.element = context.get_data_type(dtype)
        self.itemsize = dtype.bitwidth // 8
        self.per_line = CACHE_LINE // self.itemsize
        self.lanes = VECTOR_BYTES // self.itemsize if lanes is None else lanes
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, [self.element(0.0)] * self.lanes)
        double = ir.DoubleType()
        self.zero_64 = ir.Constant(ir.VectorType(double, self.lanes), [double(0.0)] * self.lanes)

    def pointer(self, kind, array, row, column):
        """Return the address of an element; a one-dimensional array is a single row."""
        view = self.context.make_array(kind)(self.context, self.builder, array)
        if kind.ndim == 2:
            stride = cgutils.unpack_tuple(self.builder, view.strides)[0]
            width = self.builder.sdiv(stride, self.INDEX(self.itemsize))
            column = self.builder.add(self.builder.mul(row, width), column)
        return self.builder.gep(view.data, [column])

    def width(self, kind, array):
        """Return the length of an array's last axis."""
        view = self.context.make_array(kind)(self.context, self.builder, array)
        return cgutils.unpack_tuple(self.builder, view.shape)[-1]

    def _at(self, pointer, number):
        pointer = self.builder.gep(pointer, [self.INDEX(number * self.lanes)])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def load(self, pointer, number=0):
        """Load the vector that begins `number` vectors after a pointer."""
        loaded = self.builder.load(self._at(pointer, number))
        loaded.align = self.itemsize
        return loaded

    def store(self, value, pointer, number=0):
        """Store a vector where `load` would read it."""
        self.builder.store(value, self._at(pointer, number)).align = self.itemsize

    def splat(self, scalar, kind=None):
        """Copy a number to every lane of a vector, by default of the element type."""
        undefined = ir.Constant(kind or self.type, ir.Undefined)
        single = self.builder.insert_element(undefined, scalar, self.LANE(0))
        zeros = ir.Constant(ir.VectorType(self.LANE, self.lanes), [self.LANE(0)] * self.lanes)
        return self.builder.shuffle_vector(single, undefined, zeros)

    def widen(self, vector):
        """Double the length of a vector by appending zeros."""
        kind = ir.VectorType(self.LANE, 2 * self.lanes)
        lanes = ir.Constant(kind, [self.LANE(lane) for lane in range(2 * self.lanes)])
        return self.builder.shuffle_vector(vector, self.zero, lanes)

    def join(self, vectors):
        """Concatenate vectors; their number is a power of two."""
        while len(vectors) > 1:
            count = 2 * vectors[0].type.count
            kind = ir.VectorType(self.LANE, count)
            lanes = ir.Constant(kind, [self.LANE(lane) for lane in range(count)])
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.builder.shuffle_vector(*pair, lanes) for pair in pairs]
        return vectors[0]

    def multiply_add(self, a, b, c):
        """Compute a · b + c, in one instruction if available."""
        product = self.builder.fmul(a, b, flags=self.FUSE)
        return self.builder.fadd(product, c, flags=self.FUSE)

    def smaller(self, a, b):
        """Return the smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def first(self, count):
        """Return a mask of the first `count` lanes."""
        kind = ir.VectorType(self.LANE, self.lanes)
        numbers = ir.Constant(kind, [self.LANE(lane) for lane in range(self.lanes)])
        count = self.builder.trunc(count, self.LANE)
        return self.builder.icmp_signed("<", numbers, self.splat(count, kind))

    def index(self, kind, indices, place, end):
        """Load element min(place, end) of an integer array."""
        builder = self.builder
        place = builder.select(builder.icmp_signed("<", place, end), place, end)
        index = builder.load(self.pointer(kind, indices, None, place))
        return index if index.type == self.INDEX else builder.sext(index, self.INDEX)

    def looked_up(self, kind, table, places, element):
        """Load table[place] for a list of places, one per lane."""
        vector = ir.Constant(ir.VectorType(element, self.lanes), ir.Undefined)
        for lane, place in enumerate(places):
            found = self.builder.load(self.pointer(kind, table, None, place))
            if found.type != element:
                found = self.builder.trunc(found, element)
            vector = self.builder.insert_element(vector, found, self.LANE(lane))
        return vector

    def prefetch(self, pointer, level=2):
        """Prefetch a cache line into the cache of a level."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        hint = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        pointer = self.builder.bitcast(pointer, byte)
        self.builder.call(hint, [pointer, number(0), number(4 - level), number(1)])

    def to_float64(self, vector):
        """Convert a vector to float64."""
        if vector.type == self.zero_64.type:
            return vector
        return self.builder.fpext(vector, self.zero_64.type)

    def weighted_squares(self, r, weight):
        """Compute weight · r² in float64."""
        r, weight = self.to_float64(r), self.to_float64(weight)
        return self.builder.fmul(weight, self.builder.fmul(r, r))

    def loop_of_sums(self, result, count, n, body):
        """Sum over whole vectors in float64 lanes, and return a tuple of scalars."""
        start = [self.zero_64] * n
        return self.sum_lanes(result, self.loop(self.INDEX(0), count, self.lanes, start, body))

    def sum_lanes(self, result, sums):
        """Sum the lanes of vectors of float64, and return a tuple of scalars."""
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f64"
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, self.zero_64.type])
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, name)
        scalars = [
            self.builder.call(reduce, [double(0.0), vector], fastmath=self.FUSE) for vector in sums
        ]
        return self.context.make_tuple(self.builder, result, scalars)

    def vector_sqrt(self, vector):
        """Take the square root of every lane."""
        name = f"llvm.sqrt.v{self.lanes}f{8 * self.itemsize}"
        kind = ir.FunctionType(self.type, [self.type])
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [vector]
        )

    def _swap(self, left, right, width):
        """Exchange the off-diagonal blocks of `width` lanes of two vectors."""
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

    def transpose(self, vectors):
        """Transpose a square of vectors: lane i of vector j becomes lane j of vector i."""
        vectors, width = list(vectors), 1
        while width < self.lanes:
            for i in range(self.lanes):
                if not i & width:
                    pair = self._swap(vectors[i], vectors[i + width], width)
                    vectors[i], vectors[i + width] = pair
            width *= 2
        return vectors

    def totals(self, vectors):
        """Sum each of as many vectors as there are lanes, and return one vector of the sums.

        This combines half of a transposition with additions and needs fewer shuffles than a
        separate sum of each vector.
        """
        vectors, width = list(vectors), 1
        while len(vectors) > 1:
            vectors = [
                self.builder.fadd(*self._swap(vectors[i], vectors[i + 1], width), flags=self.FUSE)
                for i in range(0, len(vectors), 2)
            ]
            width *= 2
        return vectors[0]

    def loop(self, first, last, step, sums, body):
        """Run body(index, sums) → sums for first, first + step, … below last; return the sums."""
        builder = self.builder
        before = builder.block
        inside, done = (builder.append_basic_block(name) for name in ("vector.loop", "vector.end"))
        builder.cbranch(builder.icmp_signed("<", first, last), inside, done)
        builder.position_at_end(inside)
        index = builder.phi(self.INDEX)
        running = [builder.phi(start.type) for start in sums]
        following = body(index, running)
        ending = builder.block  # not `inside`, if the body has a loop of its own
        index_next = builder.add(index, self.INDEX(step))
        index.add_incoming(first, before)
        index.add_incoming(index_next, ending)
        builder.cbranch(builder.icmp_signed("<", index_next, last), inside, done)
        builder.position_at_end(done)
        ended = [builder.phi(start.type) for start in sums]
        for start, phi, end, value in zip(sums, running, ended, following, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, ending)
            end.add_incoming(start, before)
            end.add_incoming(value, ending)
        return ended
