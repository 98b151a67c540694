"""What bigcons uses of numba beyond its documented interface: that it is there, and that it need not be."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.options import DefaultOptions

from bigcons.kernels import _cache, _inlined, _jit, _llvm, _plain
from bigcons.kernels._jit import empty, flat, jit, leaf, zeros

ADVICE = (
    "numba or llvmlite changed. Kernels fall back to plain ones and stay right; to regain the speed, adapt "
    "the module that names the assumption: "
)


def test_numba_cache__has_the_private_hooks_we_override() -> None:
    broken = _cache.broken_assumptions()
    assert not broken, ADVICE + "; ".join(broken)


def test_numba_cache__is_called_by_the_dispatcher_and_has_its_serializer() -> None:
    kernel = njit(lambda x: x)
    for name in ("_cache", "_set_uuid"):
        assert hasattr(kernel, name), f"{ADVICE}a dispatcher has no {name}"
    assert hasattr(_cache.FunctionCache(kernel.py_func), "_impl"), ADVICE + "a FunctionCache has no _impl"
    source = inspect.getsource(type(kernel).compile)
    for call in ("_cache.load_overload(", "_cache.save_overload("):
        assert call in source, f"{ADVICE}Dispatcher.compile does not call self.{call}...)"


def test_numba_llvm__has_the_instructions_of_our_vectors() -> None:
    broken = _llvm.broken_assumptions()
    assert not broken, ADVICE + "; ".join(broken)


def test_numba_libraries__leave_machine_code_of_leaves_out() -> None:
    broken = _inlined.broken_assumptions()
    assert not broken, ADVICE + "; ".join(broken)


@pytest.mark.parametrize("name", ["_nrt", "no_cfunc_wrapper", "no_cpython_wrapper"])
def test_numba_options__can_leave_reference_counts_and_entries_for_python_out(name) -> None:
    assert hasattr(DefaultOptions, name), f"{ADVICE}numba's options have no {name} (kernels._jit.leaf)"


def test_leaf__is_compiled_once_for_constants_and_numbers_and_runs_as_written_in_python() -> None:
    @leaf
    def add(a, b):
        return a + b

    @jit
    def sums(n):
        return add(n, 1), add(2, n), add(n, n)

    assert sums(5) == (6, 7, 10)
    assert len(add.signatures) == 1
    assert add("a", "b") == "ab"


def test_jit__rests_on_the_private_parts_where_they_are_whole() -> None:
    assert _jit.LLVM is _llvm
    assert _jit._OF_ALL == {"no_cfunc_wrapper": True}
    of_leaves = {"_nrt": False, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}
    assert of_leaves | {"pipeline_class": _inlined.LeafCompiler} == _jit._OF_LEAVES


def use_vectors(vectors):
    """Return a kernel of every function of a module of vectors."""
    zero8, load8, store8, add8 = vectors.zero8, vectors.load8, vectors.store8, vectors.add8
    add_times8, add_products8, sum8 = vectors.add_times8, vectors.add_products8, vectors.sum8
    power_of_two, count_bits = vectors.power_of_two, vectors.count_bits
    fill8, choose8 = vectors.fill8, vectors.choose8

    @jit
    def kernel(table, factor, exponent, word, out):
        a, b = load8(table, np.uint64(3)), load8(table, np.uint64(11))
        store8(out, np.uint64(0), add8(a, b))
        store8(out, np.uint64(8), add_times8(a, b, factor))
        store8(out, np.uint64(16), add_products8(zero8(), a, b))
        store8(out, np.uint64(24), choose8(a, b, fill8(factor), a))
        return sum8(add_products8(a, a, b)), power_of_two(exponent), count_bits(word)

    return kernel


def test_plain__twins_of_the_llvm_functions_give_the_same() -> None:
    draw = np.random.default_rng(0)
    llvm, plain = use_vectors(_llvm), use_vectors(_plain)
    words = [0, 1, 2**64 - 1, *draw.integers(2**63, size=5).tolist()]
    for word, exponent in zip(words, (-1022.0, -3.0, -0.0, 0.0, 1.0, 52.0, 1000.0, 1023.0), strict=True):
        table, factor = draw.normal(size=20), draw.normal()
        outs = np.zeros((2, 32))
        first, second = (
            kernel(table, factor, exponent, np.uint64(word), out)
            for kernel, out in zip((llvm, plain), outs, strict=True)
        )
        np.testing.assert_allclose(outs[1], outs[0], rtol=1e-15, atol=1e-15)
        assert first[0] == pytest.approx(second[0], rel=1e-14)
        assert first[1:] == second[1:] == (2.0**exponent, word.bit_count())


def test_arrays__are_those_of_numpy_and_the_flat_one_is_a_view() -> None:
    @jit
    def made(n):
        counts, table, cube = zeros(n, np.int32), empty((n, 2), np.float64), zeros((n, 2, 3), np.bool_)
        entries = flat(table)
        for i in range(entries.shape[0]):
            entries[i] = i
        flat(cube)[6 * n - 1] = True
        return counts, table, cube

    for n in (1, 5):
        counts, table, cube = made(n)
        expected = np.zeros(n, np.int32), np.arange(2.0 * n).reshape(n, 2), np.zeros((n, 2, 3), bool)
        expected[2][-1, -1, -1] = True
        for found, wanted in zip((counts, table, cube), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    with pytest.raises(MemoryError):
        made(2**55)


# Kernels that count bits, compare labels and sum vectors, in leaves and around them, on the same input.
RESULTS = """
import json, logging
import numpy as np
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("bigcons").addHandler(handler)
from bigcons.kernels import _jit
from bigcons.kernels.cluster_tables import sum_votes
from bigcons.kernels.label_rows import count_tile
from bigcons.kernels.overlaps import count_overlaps
draw = np.random.default_rng(0)
labels = draw.integers(-1, 5, (150, 12)).astype(np.int8)
offsets = np.arange(13) * 5
table = draw.normal(size=(60, 8))
scores, n_labels = np.zeros((150, 8)), np.zeros(150, np.int64)
sum_votes(labels, offsets, table, scores, n_labels)
overlaps = np.zeros((60, 60))
count_overlaps(labels, offsets, overlaps)
counts = np.zeros((2, 150, 150), np.int32)
count_tile(labels, labels, *counts)
found = [scores, overlaps, counts.sum(axis=2)]
print(json.dumps({
    "results": [value for array in found for value in array.ravel().tolist()],
    "logged": logged,
    "vectors": _jit.LLVM is not None,
    "disk": _jit._DISK is not None,
    "hits": sum(count_tile.stats.cache_hits.values()),
}))
"""

# How a release of numba or llvmlite may take a private part away, and what the warning has to name.
LOSSES = {
    "cache hook": (
        "from numba.core import caching; del caching.Cache._save_overload",
        "_save_overload",
        {"disk": False, "vectors": True},
    ),
    "cache class": (
        "import numba, numba.core.ccallback; from numba.core import caching; del caching.FunctionCache",
        "FunctionCache",
        {"disk": False, "vectors": True},
    ),
    "cache serializer": (
        "from numba.core import caching; caching.CompileResultCacheImpl.reduce = lambda self, result: 1 / 0",
        "ZeroDivisionError",
        {"disk": True, "vectors": True},
    ),
    "instruction": (
        "import numba; from llvmlite import ir; del ir.IRBuilder.shuffle_vector",
        "shuffle_vector",
        {"disk": True, "vectors": False},
    ),
    "library": (
        "import numba; from numba.core import codegen; del codegen.JITCodeLibrary",
        "JITCodeLibrary",
        {"disk": True, "vectors": True},
    ),
    "reference counts": (
        "from numba.core.options import DefaultOptions; del DefaultOptions._nrt",
        "_nrt",
        {"disk": True, "vectors": True},
    ),
    "entries": (
        "from numba.core.options import DefaultOptions; del DefaultOptions.no_cpython_wrapper",
        "no_cpython_wrapper",
        {"disk": True, "vectors": True},
    ),
}


def run(tmp_path: Path, prelude: str = "", **environment: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", prelude + RESULTS],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("BIGCONS_JIT")},
            "NUMBA_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jit")


@pytest.fixture(scope="module")
def whole(cache: Path) -> dict:
    return run(cache)


def test_jit__says_nothing_when_numba_is_as_expected(whole: dict) -> None:
    assert whole["logged"] == []
    assert whole["disk"]
    assert whole["vectors"]


def test_jit__a_kernel_gives_the_same_bits_where_it_was_compiled_and_where_it_was_found(whole, cache) -> None:
    found = run(cache)
    assert found["results"] == whole["results"]
    assert (whole["hits"], found["hits"]) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_jit__without_a_private_part_kernels_give_the_same_and_one_warning_names_it(loss, whole, tmp_path):
    prelude, named, rests_on = LOSSES[loss]
    found = run(tmp_path, prelude + "\n")
    np.testing.assert_allclose(found["results"], whole["results"], rtol=1e-12, atol=1e-12)
    assert len(found["logged"]) == 1
    assert named in found["logged"][0]
    assert {part: found[part] for part in rests_on} == rests_on


@pytest.mark.slow
def test_jit__environment_chooses_plain_vectors_which_have_entries_of_their_own(whole, cache) -> None:
    found = [run(cache, BIGCONS_JIT_VECTORS="0") for _ in range(2)]
    for result in found:
        expected = whole["results"][: len(result["results"])]
        np.testing.assert_allclose(result["results"], expected, rtol=1e-12, atol=1e-12)
        assert not result["vectors"]
        assert result["logged"] == []
    assert [result["hits"] for result in found] == [0, 1]


@pytest.mark.slow
def test_jit__environment_keeps_nothing_on_disk(whole, tmp_path) -> None:
    found = run(tmp_path, BIGCONS_JIT_CACHE="0")
    assert found["results"] == whole["results"]
    assert not list(tmp_path.rglob("*.nbc"))
