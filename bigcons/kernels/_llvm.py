"""Vectors of eight doubles, two operations on bits and arrays for kernels, as LLVM instructions.

Numba vectorizes a loop over consecutive entries, but not a sum of rows gathered from a table, which E-steps,
votes and PCC's passes consist of. Written as instructions on ``<8 x double>``, such a sum stays in one
register, and LLVM maps it to the processor's instructions (AVX-512, AVX2, SSE, NEON).

Arrays are made by a few instructions, too, where numba compiles a function for every type, and several for
``np.zeros`` and ``ravel``: a tenth to a quarter of a second each.

Assumptions beyond numba's documented ``intrinsic``, ``models`` and ``register_model``:

- llvmlite's ``IRBuilder`` has the instructions used below, and LLVM accepts its output;
- numba's code generator offers ``make_array``, which finds an array's data, and ``get_dummy_value``;
- ``populate_array`` fills the record of an array, whose memory the runtime ``nrt`` allocates and counts.

If `broken_assumptions` finds any that no longer hold, which takes no compilation, kernels use `_plain`, and
results differ in the last bits at most.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.runtime.context import NRTContext
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


# The instructions; they need only a builder, so they can be tried without compiling a kernel


def _load(builder, data, offset):
    value = builder.load(builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer()))
    value.align = 8
    return value


def _store(builder, data, offset, vector):
    store = builder.store(vector, builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer()))
    store.align = 8


def _add_products(builder, a, b, c):
    return builder.fadd(a, builder.fmul(b, c, flags=("contract",)), flags=("contract",))


def _broadcast(builder, number):
    first = builder.insert_element(_VECTOR(ir.Undefined), number, _INT32(0))
    lanes = ir.Constant(ir.VectorType(_INT32, 8), [0] * 8)
    return builder.shuffle_vector(first, _VECTOR(ir.Undefined), lanes)


def _sum(builder, vector):
    width = 8
    while width > 1:
        width //= 2
        halves = []
        for first in (0, width):
            lanes = [_INT32(lane) for lane in range(first, first + width)]
            mask = ir.Constant(ir.VectorType(_INT32, width), lanes)
            halves.append(builder.shuffle_vector(vector, vector.type(ir.Undefined), mask))
        vector = builder.fadd(*halves)
    return builder.extract_element(vector, _INT32(0))


def _choose(builder, a, b, c, d):
    return builder.select(builder.fcmp_ordered(">", a, b), c, d)


def _power_of_two(builder, exponent):
    biased = builder.add(builder.fptosi(exponent, _INT32), _INT32(1023))
    return builder.bitcast(builder.shl(builder.sext(biased, _INT64), _INT64(52)), _DOUBLE)


def broken_assumptions() -> list[str]:
    """Return the assumptions of this module that do not hold, one line each; takes about a millisecond."""
    needed = ("make_array", "get_dummy_value")
    broken = [f"numba's code generator has no {name}" for name in needed if not hasattr(BaseContext, name)]
    of_runtime = ("meminfo_alloc_aligned", "meminfo_data", "incref")
    broken += [f"numba's runtime has no {name}" for name in of_runtime if not hasattr(NRTContext, name)]
    module = ir.Module()
    signature = ir.FunctionType(_DOUBLE, [_DOUBLE.as_pointer(), _INT64, _DOUBLE])
    function = ir.Function(module, signature, "bigcons_probe")
    data, offset, number = function.args
    try:
        builder = ir.IRBuilder(function.append_basic_block())
        vector = _load(builder, data, offset)
        vector = builder.fadd(_add_products(builder, vector, vector, _broadcast(builder, number)), vector)
        vector = _choose(builder, vector, _broadcast(builder, number), vector, vector)
        _store(builder, data, builder.ctpop(offset), vector)
        builder.ret(_power_of_two(builder, _sum(builder, vector)))
        binding.parse_assembly(str(module)).verify()
    except Exception as error:  # llvmlite raises various errors for what it does not know
        broken.append(f"llvmlite cannot build vectors of doubles ({type(error).__name__}: {error})")
    return broken


# As functions for kernels; `_vector` documents them


def _data_of(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


@intrinsic
def zero8(typingctx):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return ir.Constant(_VECTOR, [0.0] * 8)

    return float64x8(), generate


@intrinsic
def load8(typingctx, array, offset):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _load(builder, _data_of(context, builder, signature.args[0], args[0]), args[1])

    return float64x8(array, types.uint64), generate


@intrinsic
def store8(typingctx, array, offset, vector):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        _store(builder, _data_of(context, builder, signature.args[0], args[0]), args[1], args[2])
        return context.get_dummy_value()

    return types.none(array, types.uint64, float64x8), generate


@intrinsic
def fill8(typingctx, number):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _broadcast(builder, args[0])

    return float64x8(types.float64), generate


@intrinsic
def choose8(typingctx, a, b, c, d):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _choose(builder, *args)

    return float64x8(a, b, c, d), generate


@intrinsic
def add8(typingctx, a, b):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return builder.fadd(*args)

    return float64x8(a, b), generate


@intrinsic
def add_times8(typingctx, a, b, factor):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _add_products(builder, args[0], args[1], _broadcast(builder, args[2]))

    return float64x8(a, b, types.float64), generate


@intrinsic
def add_products8(typingctx, a, b, c):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _add_products(builder, *args)

    return float64x8(a, b, c), generate


@intrinsic
def sum8(typingctx, a):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _sum(builder, args[0])

    return types.float64(a), generate


@intrinsic
def power_of_two(typingctx, exponent):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return _power_of_two(builder, args[0])

    return types.float64(types.float64), generate


@intrinsic
def count_bits(typingctx, word):
    """See `_vector`."""

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


# Arrays; `_jit` documents them


def _maker(*, with_zeros):
    @intrinsic
    def make(typingctx, shape, dtype):
        is_tuple = isinstance(shape, types.BaseTuple)

        def generate(context, builder, signature, args):
            lengths, kinds = [args[0]], [shape]
            if is_tuple:
                lengths, kinds = cgutils.unpack_tuple(builder, args[0]), shape
            lengths = [context.cast(builder, *of, types.intp) for of in zip(lengths, kinds, strict=True)]
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
    """See `_jit`."""

    def generate(context, builder, signature, args):
        given = context.make_array(signature.args[0])(context, builder, args[0])
        view = context.make_array(signature.return_type)(context, builder)
        lengths, strides = [given.nitems], [given.itemsize]
        populate_array(view, given.data, lengths, strides, given.itemsize, given.meminfo, given.parent)
        if context.enable_nrt:
            context.nrt.incref(builder, signature.return_type, view._getvalue())
        return view._getvalue()

    if array.layout != "C":
        raise TypeError(f"{array} has no flat view")
    return array.copy(ndim=1)(array), generate
