"""Frames: the arrays and numbers that compiled functions share, as one argument.

In Python a frame is a named tuple of arrays, numbers and other frames. Compiled functions get
the address of a list of 64-bit words: for an array where its data are, then its shape; for a
number the number; for another frame its address. Fields are read by name (``rows.indptr``),
and only those that are read cost anything. So no function has more than a few arguments, a
unit's signature is whole numbers and frames, and one parallel loop serves all units.

Read fields into local names before a loop: the compiler cannot know that what the loop writes
is not the frame itself.
"""

from __future__ import annotations

import struct
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
)
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from fastemf.kernels.compilation import INTERPRETED, Unit, helper

__all__ = [
    "LONG",
    "Frame",
    "FrameType",
    "Plan",
    "code_of",
    "hold",
    "invoke",
    "pack",
    "plan_for",
    "reserve",
]

Frame = Any  # a named tuple of arrays, numbers and frames
Kind = Any  # of a field: (dtype, dimensions) of an array, a `FrameType`, float or int
LINE = 64  # bytes of a cache line
LONG = (-1,)  # the shape of a vector whose length is known later


class FrameType(types.Type):
    """The names and types of a frame's fields."""

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.fields = dict(fields)
        self.places: dict[str, int] = {}
        self.n_words = 0
        for field, kind in fields:
            self.places[field] = self.n_words
            self.n_words += 1 + (kind.ndim if isinstance(kind, types.Array) else 0)
        described = ", ".join(f"{field}: {kind}" for field, kind in fields)
        super().__init__(name=f"{name}({described})")


@register_model(FrameType)
class _FrameModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(64).as_pointer())


@infer_getattr
class _FrameAttribute(AttributeTemplate):
    key = FrameType

    def generic_resolve(self, frame, name):
        return frame.fields.get(name)


@lower_getattr_generic(FrameType)
def _read_field(context: Any, builder: Any, frame: FrameType, pointer: Any, name: str) -> Any:
    index = ir.IntType(64)
    kind, place = frame.fields[name], frame.places[name]

    def word(number: int) -> Any:
        return builder.load(builder.gep(pointer, [index(place + number)]))

    if isinstance(kind, types.Array):
        item = context.get_data_type(kind.dtype)
        shape = [word(1 + axis) for axis in range(kind.ndim)]
        size = index(context.get_abi_sizeof(item))
        strides = [size]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        array = make_array(kind)(context, builder)
        data = builder.inttoptr(word(0), item.as_pointer())
        populate_array(
            array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None
        )  # fmt: skip
        return array._getvalue()
    if isinstance(kind, FrameType):
        return builder.inttoptr(word(0), index.as_pointer())
    if isinstance(kind, types.Float):
        return builder.bitcast(word(0), ir.DoubleType())
    return word(0)


# --- from Python ---------------------------------------------------------------------------


class Packed(NamedTuple):
    """A frame as compiled functions take it; valid while this tuple is held."""

    type: FrameType
    address: int
    held: tuple[Any, ...]


class Unset(NamedTuple):
    """A frame that is made later, by `reserve`."""

    type: FrameType
    template: Any
    fields: dict[str, Any]


def pack(frame: Frame) -> Packed:
    """Pack a frame for compiled functions; its arrays must be contiguous.

    Frames within it may be packed already.
    """
    if INTERPRETED:
        return frame  # type: ignore[no-any-return]
    kinds: list[Kind] = []
    words: list[Any] = []
    held: list[Any] = [frame]
    for name, value in zip(frame._fields, frame, strict=True):
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise TypeError(f"{name} must be contiguous, got strides {value.strides}")
            kinds.append((value.dtype, value.ndim))
            words += (value.__array_interface__["data"][0], *value.shape)
        elif isinstance(value, Unset):
            kinds.append(value.type)
            words.append(0)
        elif hasattr(value, "_fields"):
            inner = value if isinstance(value, Packed) else pack(value)
            kinds.append(inner.type)
            words.append(inner.address)
            held.append(inner)
        elif isinstance(value, float):
            kinds.append(float)
            words.append(_bits_of(value))
        elif isinstance(value, (int, np.integer)):
            kinds.append(int)
            words.append(value)
        else:
            raise TypeError(f"{name} must be an array, a frame, an int or a float, got {value!r}")
    laid = np.array(words, np.int64)
    template: Any = type(frame)
    kind = frame_type(template, tuple(kinds))
    return Packed(kind, laid.__array_interface__["data"][0], (laid, *held))


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


@cache
def frame_type(template: Any, kinds: tuple[Kind, ...]) -> FrameType:
    """Return the type of a frame, given the kinds of its fields."""
    fields = zip(template._fields, map(_typed, kinds), strict=True)
    return FrameType(template.__name__, tuple(fields))


def _typed(kind: Kind) -> types.Type:
    if isinstance(kind, FrameType):
        return kind
    if isinstance(kind, tuple):
        dtype, ndim = kind
        return types.Array(numba.from_dtype(dtype), ndim, "C")
    return types.float64 if kind is float else types.int64


def code_of(table: Any, units: dict[str, Unit], *frames: Any) -> Frame:
    """Fill a table with the addresses of units for frames of these types; 0 for those left out."""
    found: dict[str, Any] = dict.fromkeys(table._fields, 0)
    for name, unit in units.items():
        found[name] = unit.function if INTERPRETED else unit.address(*frames)
    return table(**found)


# --- scratch -------------------------------------------------------------------------------


class Plan(NamedTuple):
    """A frame that a block of rows allocates for itself, in one piece."""

    words: NDArray[np.int64]  # the frame's words, with arrays counted from where the data begin
    places: NDArray[np.int64]  # of the words that say where an array is
    size: int  # bytes of all arrays but those that are
    long: NDArray[np.int64]  # places of vectors whose length the block asks for,
    item: int  # bytes of an element of them,
    least: int  # and their least length
    like: Unset  # has the type of the frame


def plan_for(template: Any, least: int, **fields: Any) -> Plan:
    """Plan a frame whose arrays, given as (dtype, shape), each begin on a cache line.

    A vector load that crosses from one line into the next costs two. Of shape `LONG` are
    vectors of one dtype whose length `reserve` is told, at least `least`.
    """
    kinds: list[Kind] = []
    words: list[int] = []
    places: list[int] = []
    long: list[int] = []
    size, item = 0, 1
    for name in template._fields:
        field = fields[name]
        if isinstance(field, tuple):
            dtype, shape = np.dtype(field[0]), field[1]
            kinds.append((dtype, len(shape)))
            if shape == LONG:
                item = dtype.itemsize
                long.append(len(words))
                words += (0, 0)
                continue
            places.append(len(words))
            words += (size, *shape)
            size += -(-prod(shape) * dtype.itemsize // LINE) * LINE
        else:
            kinds.append(int)
            words.append(field)
    like = Unset(frame_type(template, tuple(kinds)), template, fields)
    laid = [np.array(numbers, np.int64) for numbers in (words, places, long)]
    return Plan(laid[0], laid[1], size, laid[2], item, least, like)


if INTERPRETED:

    def invoke(function, *args):
        """Call a unit of a table."""
        function(*args)

    def reserve(plan, length):
        """Allocate the frame of a plan, zeroed."""
        _, template, fields = plan.like
        values = dict(fields)
        for name, field in fields.items():
            if isinstance(field, tuple):
                shape = max(length, plan.least) if field[1] == LONG else field[1]
                values[name] = np.zeros(shape, field[0])
        return None, template(**values)

    def hold(owner):
        """Keep what `reserve` allocated alive until here."""

else:

    @intrinsic
    def invoke(typing, address, *args):
        """Call the unit at an address with whole numbers and frames."""
        kinds = [types.int64 if isinstance(kind, types.Integer) else kind for kind in args]

        def codegen(context, builder, signature, values):
            numbers = cgutils.unpack_tuple(builder, values[1])
            kind = ir.FunctionType(ir.VoidType(), [number.type for number in numbers])
            builder.call(builder.inttoptr(values[0], kind.as_pointer()), numbers)
            return context.get_dummy_value()

        return types.void(types.int64, types.StarArgTuple.from_types(kinds)), codegen

    @intrinsic
    def _as_frame(typing, words, like):
        """Make a frame of the words in an array."""

        def codegen(context, builder, signature, args):
            return make_array(signature.args[0])(context, builder, args[0]).data

        return like(words, like), codegen

    @intrinsic
    def hold(typing, owner):
        """Keep what `reserve` allocated alive: Numba frees an array after its last use."""
        return types.void(owner), lambda context, *_: context.get_dummy_value()

    @helper(allocates=True)
    def reserve(plan, length):
        """Allocate the frame of a plan, zeroed; return what owns it, to be held, and the frame."""
        words, places, long = plan.words, plan.places, plan.long
        n = words.size
        length = max(length, plan.least)
        each = (length * plan.item + LINE - 1) // LINE * LINE
        owner = np.zeros(n + (plan.size + long.size * each + LINE) // 8, np.int64)
        first = owner.ctypes.data + 8 * n
        first += -first % LINE
        for i in range(n):
            owner[i] = words[i]
        for i in range(places.size):
            owner[places[i]] += first
        for i in range(long.size):
            owner[long[i]] = first + plan.size + i * each
            owner[long[i] + 1] = length
        return owner, _as_frame(owner, plan.like)
