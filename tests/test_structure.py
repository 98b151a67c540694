"""The size of the package and the ways of its main calls: ceilings that only fall.

Whoever makes the package smaller lowers a ceiling here; nobody raises one without saying what the lines buy.
"""

import ast
import io
import json
import subprocess
import sys
import threading
import tokenize
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import bigcons as bc

PACKAGE = Path(bc.__file__).parent
CEILINGS = {"lines": 21_136, "functions": 1_688, "classes": 213, "numbers": 73, "files": 99}
WALKS = {"array": (181, 27, 11), "store": (305, 36, 17), "features": (106, 15, 12)}
"""Functions, files and depth of each call, kernels left out."""

OUTSIDE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}
OUTSIDE |= {tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def size(path):
    """Return the lines of code of a file without docstrings, its functions, classes and named numbers."""
    source = path.read_text()
    tree, docstrings, lines = ast.parse(source), set(), set()
    for node in ast.walk(tree):
        is_documented = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
        if is_documented and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in OUTSIDE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return {
        "lines": len(lines - docstrings),
        "functions": sum(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(tree)),
        "classes": sum(isinstance(n, ast.ClassDef) for n in ast.walk(tree)),
        "numbers": sum(is_number(node) for node in tree.body),
        "files": 1,
    }


def is_number(node):
    """Return whether a statement of a module names a number."""
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    while isinstance(value, (ast.UnaryOp, ast.BinOp)):
        value = value.operand if isinstance(value, ast.UnaryOp) else value.left
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def test_package__is_no_larger_than_it_was():
    sizes = [size(path) for path in PACKAGE.rglob("*.py")]
    total = {kind: sum(counts[kind] for counts in sizes) for kind in CEILINGS}
    larger = [f"{n} {kind}, ceiling {CEILINGS[kind]}" for kind, n in total.items() if n > CEILINGS[kind]]
    assert larger == [], "delete as much elsewhere, or raise CEILINGS and say in the commit for what"


def walk(call):
    """Return the functions and files of the package that the second run of a call enters, and how deep."""
    call()
    functions, depths, local = set(), [0], threading.local()

    @cache
    def is_seen(file):
        return PACKAGE in Path(file).parents and PACKAGE / "kernels" not in Path(file).parents

    def profile(frame, event, _):
        file = frame.f_code.co_filename
        if not is_seen(file):
            return
        if event == "call":
            functions.add((file, frame.f_code.co_qualname))
            local.depth = getattr(local, "depth", 0) + 1
            depths.append(local.depth)
        elif event == "return":
            local.depth = getattr(local, "depth", 0) - 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(functions), len({file for file, _ in functions}), max(depths)


def calls(folder):
    """Return the calls by name; they store in a folder."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 40)
    drawn = rng.integers(0, 3, (120, 6))
    labels = np.where(rng.random((120, 6)) < 0.1, drawn, truth[:, None])
    features = rng.normal(size=(300, 4)) + 4 * np.repeat(np.arange(3), 100)[:, None]
    bc.Ensemble.from_labels(labels).save(folder / "e.zarr")
    outputs = (folder / f"c{number}.zarr" for number in range(9))
    return {
        "array": lambda: bc.consensus(labels, 3, random_state=0),
        "store": lambda: bc.PCC(3, random_state=0, client="serial").fit(folder / "e.zarr", out=next(outputs)),
        "features": lambda: bc.generate.kmeans(
            features, n_partitions=4, n_clusters=(2, 4), random_state=0, client="serial"
        ),
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are functions in Python 3.11 only")
def test_calls__walk_through_no_more_than_they_did(tmp_path):
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path)]  # apart from other tests
    walked = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for name, most in WALKS.items():
        assert [now for now, ceiling in zip(walked[name], most, strict=True) if now > ceiling] == [], name


if __name__ == "__main__":
    print(json.dumps({name: walk(call) for name, call in calls(Path(sys.argv[1])).items()}))
