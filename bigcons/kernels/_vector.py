"""Vectors of eight doubles, two operations on bits and arrays for kernels, as LLVM instructions.

Numba vectorizes a loop over consecutive entries, but not a sum of rows gathered from a table, which E-steps,
votes and PCC's passes consist of. Written as instructions on ``<8 x double>``, such a sum stays in one
register, and LLVM maps it to the processor's instructions (AVX-512, AVX2, SSE, NEON): 1.7 times as fast.

``zero8()`` is a vector of zeros and ``fill8(number)`` one of a number; ``load8`` and ``store8`` move the
eight consecutive entries of a flat float64 array that begin at a uint64 offset, in entries, which is not
checked: rows are padded to whole vectors. ``add8(a, b)`` is ``a + b``, ``add_times8(a, b, factor)`` is
``a + b * factor`` for a number, ``add_products8(a, b, c)`` is ``a + b * c``, and ``sum8`` adds the two
halves, then theirs, down to a number. ``choose8(a, b, c, d)`` is ``c`` where ``a`` is greater than ``b``,
else ``d``. ``power_of_two`` is 2 to the power of a whole float64 from -1022 to 1023; ``count_bits`` is the
number of bits set in a uint64.

``empty(shape, dtype)`` and ``zeros(shape, dtype)`` make arrays, and ``flat`` is the view of a C-contiguous
one by its single entries. They are a few instructions, where numba compiles a function for every type, and
several for ``np.zeros`` and ``ravel``: a tenth to a quarter of a second each.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import populate_array

_DOUBLE, _INT32, _INT64 = ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, 8)


class Float64x8(types.Type):
    """The numba type of a vector of eight doubles."""

    def __init__(self) -> None:
        super().__init__(name="float64x8")


float64x8 = Float64x8()


@register_model(Float64x8)
class _Float64x8Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _VECTOR)


WIDTH = 8


def _add_products(builder, a, b, c):
    return builder.fadd(a, builder.fmul(b, c, flags=("contract",)), flags=("contract",))


def _broadcast(builder, number):
    first = builder.insert_element(_VECTOR(ir.Undefined), number, _INT32(0))
    lanes = ir.Constant(ir.VectorType(_INT32, 8), [0] * 8)
    return builder.shuffle_vector(first, _VECTOR(ir.Undefined), lanes)


def _data_of(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


@intrinsic
def zero8(typingctx):
    def generate(context, builder, signature, args):
        return ir.Constant(_VECTOR, [0.0] * 8)

    return float64x8(), generate


@intrinsic
def load8(typingctx, array, offset):
    def generate(context, builder, signature, args):
        data = _data_of(context, builder, signature.args[0], args[0])
        value = builder.load(builder.bitcast(builder.gep(data, [args[1]]), _VECTOR.as_pointer()))
        value.align = 8
        return value

    return float64x8(array, types.uint64), generate


@intrinsic
def store8(typingctx, array, offset, vector):
    def generate(context, builder, signature, args):
        data = _data_of(context, builder, signature.args[0], args[0])
        address = builder.bitcast(builder.gep(data, [args[1]]), _VECTOR.as_pointer())
        builder.store(args[2], address).align = 8
        return context.get_dummy_value()

    return types.none(array, types.uint64, float64x8), generate


@intrinsic
def fill8(typingctx, number):
    def generate(context, builder, signature, args):
        return _broadcast(builder, args[0])

    return float64x8(types.float64), generate


@intrinsic
def choose8(typingctx, a, b, c, d):
    def generate(context, builder, signature, args):
        a, b, c, d = args
        return builder.select(builder.fcmp_ordered(">", a, b), c, d)

    return float64x8(a, b, c, d), generate


@intrinsic
def add8(typingctx, a, b):
    def generate(context, builder, signature, args):
        return builder.fadd(*args)

    return float64x8(a, b), generate


@intrinsic
def add_times8(typingctx, a, b, factor):
    def generate(context, builder, signature, args):
        return _add_products(builder, args[0], args[1], _broadcast(builder, args[2]))

    return float64x8(a, b, types.float64), generate


@intrinsic
def add_products8(typingctx, a, b, c):
    def generate(context, builder, signature, args):
        return _add_products(builder, *args)

    return float64x8(a, b, c), generate


@intrinsic
def sum8(typingctx, a):
    def generate(context, builder, signature, args):
        vector, width = args[0], 8
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                lanes = [_INT32(lane) for lane in range(first, first + width)]
                mask = ir.Constant(ir.VectorType(_INT32, width), lanes)
                halves.append(builder.shuffle_vector(vector, vector.type(ir.Undefined), mask))
            vector = builder.fadd(*halves)
        return builder.extract_element(vector, _INT32(0))

    return types.float64(a), generate


@intrinsic
def power_of_two(typingctx, exponent):
    def generate(context, builder, signature, args):
        biased = builder.add(builder.fptosi(args[0], _INT32), _INT32(1023))
        return builder.bitcast(builder.shl(builder.sext(biased, _INT64), _INT64(52)), _DOUBLE)

    return types.float64(types.float64), generate


@intrinsic
def count_bits(typingctx, word):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


def _maker(*, with_zeros):
    @intrinsic
    def make(typingctx, shape, dtype):
        is_tuple = isinstance(shape, types.BaseTuple)

        def generate(context, builder, signature, args):
            lengths, kinds = [args[0]], [shape]
            if is_tuple:
                lengths, kinds = cgutils.unpack_tuple(builder, args[0]), shape
            lengths = [context.cast(builder, *pair, types.intp) for pair in zip(lengths, kinds, strict=True)]
            entry = context.get_data_type(dtype.dtype)
            itemsize = size = context.get_constant(types.intp, context.get_abi_sizeof(entry))
            strides: list[ir.Value] = []
            for length in reversed(lengths):
                strides.insert(0, size)
                size = builder.mul(size, length)
            meminfo = context.nrt.meminfo_alloc_aligned(builder, size, _INT32(64))
            data = context.nrt.meminfo_data(builder, meminfo)
            if with_zeros:
                cgutils.memset(builder, data, size, 0)
            array = context.make_array(signature.return_type)(context, builder)
            data = builder.bitcast(data, entry.as_pointer())
            populate_array(array, data, lengths, strides, itemsize, meminfo)
            return array._getvalue()

        return types.Array(dtype.dtype, shape.count if is_tuple else 1, "C")(shape, dtype), generate

    return make


empty, zeros = _maker(with_zeros=False), _maker(with_zeros=True)


@intrinsic
def flat(typingctx, array):
    def generate(context, builder, signature, args):
        source = context.make_array(signature.args[0])(context, builder, args[0])
        view = context.make_array(signature.return_type)(context, builder)
        lengths, strides = [source.nitems], [source.itemsize]
        populate_array(view, source.data, lengths, strides, source.itemsize, source.meminfo, source.parent)
        if context.enable_nrt:
            context.nrt.incref(builder, signature.return_type, view._getvalue())
        return view._getvalue()

    if array.layout != "C":
        raise TypeError(f"{array} has no flat view")
    return array.copy(ndim=1)(array), generate
