"""Kernel arguments: named tuples of arrays and numbers that compiled functions share.

In Python, kernel arguments are a named tuple of arrays, numbers and other such tuples. A compiled
function receives the address of a list of 64-bit words: for an array its address and shape, for a
number its value, for a nested tuple its address. Fields are read by name (``rows.indptr``), and
unread fields cost nothing. Functions therefore need few parameters, the signature of a unit is
integers and addresses, and one parallel loop serves all units.

Read fields into local variables before a loop: the compiler cannot exclude that stores in the
loop change the list of words.
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

KernelArgs = Any  # a named tuple of arrays, numbers and kernel arguments
Kind = Any  # of a field: (dtype, ndim) of an array, an `ArgsType`, float or int
LINE = 64  # bytes of a cache line
LONG = (-1,)  # the shape of a vector whose length `allocate_scratch` receives


class ArgsType(types.Type):
    """The Numba type of kernel arguments: names and types of the fields."""

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.fields = dict(fields)
        self.places: dict[str, int] = {}
        self.n_words = 0
        for field, kind in fields:
            self.places[field] = self.n_words
            self.n_words += 1 + (kind.ndim if isinstance(kind, types.Array) else 0)
        described = ", ".join(f"{field}: {kind}" for field, kind in fields)
        super().__init__(name=f"{name}({described})")


@register_model(ArgsType)
class _ArgsModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(64).as_pointer())


@infer_getattr
class _ArgsAttribute(AttributeTemplate):
    key = ArgsType

    def generic_resolve(self, args, name):
        return args.fields.get(name)


@lower_getattr_generic(ArgsType)
def _read_field(context: Any, builder: Any, args: ArgsType, pointer: Any, name: str) -> Any:
    index = ir.IntType(64)
    kind, place = args.fields[name], args.places[name]

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
    if isinstance(kind, ArgsType):
        return builder.inttoptr(word(0), index.as_pointer())
    if isinstance(kind, types.Float):
        return builder.bitcast(word(0), ir.DoubleType())
    return word(0)


# --- from Python ---------------------------------------------------------------------------


class PackedArgs(NamedTuple):
    """Kernel arguments in the form that compiled functions take; valid while this tuple exists."""

    type: ArgsType
    address: int
    referenced: tuple[Any, ...]  # keeps the arrays alive


class DeferredArgs(NamedTuple):
    """Kernel arguments that `allocate_scratch` creates later."""

    type: ArgsType
    template: Any
    fields: dict[str, Any]


def pack(args: KernelArgs) -> PackedArgs:
    """Pack kernel arguments for compiled functions; arrays must be contiguous.

    Nested arguments may already be packed.
    """
    if INTERPRETED:
        return args  # type: ignore[no-any-return]
    kinds: list[Kind] = []
    words: list[Any] = []
    referenced: list[Any] = [args]
    for name, value in zip(args._fields, args, strict=True):
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise TypeError(f"{name} must be contiguous, got strides {value.strides}")
            kinds.append((value.dtype, value.ndim))
            words += (value.__array_interface__["data"][0], *value.shape)
        elif isinstance(value, DeferredArgs):
            kinds.append(value.type)
            words.append(0)
        elif hasattr(value, "_fields"):
            inner = value if isinstance(value, PackedArgs) else pack(value)
            kinds.append(inner.type)
            words.append(inner.address)
            referenced.append(inner)
        elif isinstance(value, float):
            kinds.append(float)
            words.append(_bits_of(value))
        elif isinstance(value, (int, np.integer)):
            kinds.append(int)
            words.append(value)
        else:
            raise TypeError(f"{name} must be an array, named tuple, int or float, got {value!r}")
    memory = np.array(words, np.int64)
    template: Any = type(args)
    kind = args_type(template, tuple(kinds))
    return PackedArgs(kind, memory.__array_interface__["data"][0], (memory, *referenced))


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


@cache
def args_type(template: Any, kinds: tuple[Kind, ...]) -> ArgsType:
    """Return the type of kernel arguments, given the kinds of their fields."""
    fields = zip(template._fields, map(_numba_type, kinds), strict=True)
    return ArgsType(template.__name__, tuple(fields))


def _numba_type(kind: Kind) -> types.Type:
    if isinstance(kind, ArgsType):
        return kind
    if isinstance(kind, tuple):
        dtype, ndim = kind
        return types.Array(numba.from_dtype(dtype), ndim, "C")
    return types.float64 if kind is float else types.int64


def unit_table(template: Any, units: dict[str, Unit], *args_types: Any) -> KernelArgs:
    """Fill a named tuple with the addresses of units for these types; 0 for missing units."""
    addresses: dict[str, Any] = dict.fromkeys(template._fields, 0)
    for name, unit in units.items():
        addresses[name] = unit.function if INTERPRETED else unit.address(*args_types)
    return template(**addresses)


# --- scratch -------------------------------------------------------------------------------


class ScratchPlan(NamedTuple):
    """Layout of the scratch arrays that a block of rows allocates in one piece."""

    words: NDArray[np.int64]  # the words, with addresses relative to the first array
    places: NDArray[np.int64]  # which words are addresses of arrays
    size: int  # bytes of all arrays of fixed length
    long: NDArray[np.int64]  # which words are addresses of vectors of variable length
    item: int  # bytes of an element of these vectors
    least: int  # minimum length of these vectors
    like: DeferredArgs  # has the type of the allocated arguments


def plan_scratch(template: Any, least: int, **fields: Any) -> ScratchPlan:
    """Lay out arrays, given as (dtype, shape), so that each begins on a cache line.

    A vector load that crosses a cache line costs two loads. Vectors of shape `LONG` have one
    dtype and a length that `allocate_scratch` receives, at least `least`.
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
    like = DeferredArgs(args_type(template, tuple(kinds)), template, fields)
    arrays = [np.array(numbers, np.int64) for numbers in (words, places, long)]
    return ScratchPlan(arrays[0], arrays[1], size, arrays[2], item, least, like)


if INTERPRETED:

    def invoke(function, *args):
        """Call a unit."""
        function(*args)

    def allocate_scratch(plan, length):
        """Allocate zeroed scratch arrays."""
        _, template, fields = plan.like
        values = dict(fields)
        for name, field in fields.items():
            if isinstance(field, tuple):
                shape = max(length, plan.least) if field[1] == LONG else field[1]
                values[name] = np.zeros(shape, field[0])
        return None, template(**values)

    def keep_alive(owner):
        """Keep scratch arrays alive until here."""

else:

    @intrinsic
    def invoke(typing, address, *args):
        """Call the unit at an address with integers and kernel arguments."""
        kinds = [types.int64 if isinstance(kind, types.Integer) else kind for kind in args]

        def codegen(context, builder, signature, values):
            numbers = cgutils.unpack_tuple(builder, values[1])
            kind = ir.FunctionType(ir.VoidType(), [number.type for number in numbers])
            builder.call(builder.inttoptr(values[0], kind.as_pointer()), numbers)
            return context.get_dummy_value()

        return types.void(types.int64, types.StarArgTuple.from_types(kinds)), codegen

    @intrinsic
    def _as_args(typing, words, like):
        """Return the kernel arguments whose words are in an array."""

        def codegen(context, builder, signature, args):
            return make_array(signature.args[0])(context, builder, args[0]).data

        return like(words, like), codegen

    @intrinsic
    def keep_alive(typing, owner):
        """Keep scratch arrays alive: Numba frees an array after its last use."""
        return types.void(owner), lambda context, *_: context.get_dummy_value()

    @helper(allocates=True)
    def allocate_scratch(plan, length):
        """Allocate zeroed scratch arrays; return their owner (see `keep_alive`) and them."""
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
        return owner, _as_args(owner, plan.like)
