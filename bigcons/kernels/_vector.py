"""Vectors of eight doubles for kernels: numba's own loops do not vectorize sums over gathered rows.

``load8`` and ``store8`` move eight consecutive entries of a flat float64 array, from an offset in entries;
``add8`` adds two vectors, ``add_times8`` a vector times a number, ``add_products8`` one times another, and
``sum8`` sums the entries. LLVM maps them to whatever the processor has (AVX-512, AVX2, SSE, NEON). Offsets
are not checked against the array's length: rows are padded to whole vectors by the caller.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

WIDTH = 8

_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)


class Float64x8(types.Type):
    """The numba type of a vector of eight doubles."""

    def __init__(self) -> None:
        super().__init__(name="float64x8")


float64x8 = Float64x8()


@register_model(Float64x8)
class _Float64x8Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _VECTOR)


def _address(context, builder, array_type, array, offset):
    data = context.make_array(array_type)(context, builder, array).data
    entry = builder.gep(data, [offset])
    return builder.bitcast(entry, _VECTOR.as_pointer())


@intrinsic
def zero8(typingctx):
    """Return a vector of zeros."""

    def generate(context, builder, signature, args):
        return ir.Constant(_VECTOR, [0.0] * WIDTH)

    return float64x8(), generate


@intrinsic
def load8(typingctx, array, offset):
    """Return ``array[offset : offset + 8]`` of a flat float64 array."""

    def generate(context, builder, signature, args):
        value = builder.load(_address(context, builder, signature.args[0], *args))
        value.align = 8
        return value

    return float64x8(array, types.uint64), generate


@intrinsic
def store8(typingctx, array, offset, vector):
    """Set ``array[offset : offset + 8]`` of a flat float64 array."""

    def generate(context, builder, signature, args):
        store = builder.store(args[2], _address(context, builder, signature.args[0], *args[:2]))
        store.align = 8
        return context.get_dummy_value()

    return types.none(array, types.uint64, float64x8), generate


@intrinsic
def add8(typingctx, a, b):
    """Return the sum of two vectors."""

    def generate(context, builder, signature, args):
        return builder.fadd(*args)

    return float64x8(a, b), generate


@intrinsic
def add_times8(typingctx, a, b, factor):
    """Return ``a + b * factor`` of two vectors and a number."""

    def generate(context, builder, signature, args):
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        first = builder.insert_element(_VECTOR(ir.Undefined), args[2], ir.IntType(32)(0))
        factors = builder.shuffle_vector(first, _VECTOR(ir.Undefined), lanes)
        product = builder.fmul(args[1], factors, flags=("contract",))
        return builder.fadd(args[0], product, flags=("contract",))

    return float64x8(a, b, types.float64), generate


@intrinsic
def add_products8(typingctx, a, b, c):
    """Return ``a + b * c`` of three vectors."""

    def generate(context, builder, signature, args):
        product = builder.fmul(args[1], args[2], flags=("contract",))
        return builder.fadd(args[0], product, flags=("contract",))

    return float64x8(a, b, c), generate


@intrinsic
def sum8(typingctx, a):
    """Return the sum of the entries of a vector: of its halves, of their halves, of the two that are left."""

    def generate(context, builder, signature, args):
        vector, width = args[0], WIDTH
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                lanes = [ir.IntType(32)(lane) for lane in range(first, first + width)]
                mask = ir.Constant(ir.VectorType(ir.IntType(32), width), lanes)
                halves.append(builder.shuffle_vector(vector, vector.type(ir.Undefined), mask))
            vector = builder.fadd(*halves)
        return builder.extract_element(vector, ir.IntType(32)(0))

    return types.float64(a), generate


@intrinsic
def power_of_two(typingctx, exponent):
    """Return 2 to the power of a whole float64 from -1022 to 1023; loops of it are vectorized."""

    def generate(context, builder, signature, args):
        bits = ir.IntType(64)
        biased = builder.add(builder.fptosi(args[0], ir.IntType(32)), ir.IntType(32)(1023))
        return builder.bitcast(builder.shl(builder.sext(biased, bits), bits(52)), ir.DoubleType())

    return types.float64(types.float64), generate
