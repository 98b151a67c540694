"""Is damage on disk ever silently wrong, and does a kill ever lose or spoil anything?

Alterations: every kind of file that bigcons writes (stores, tables of pairs in Zarr and Parquet, results,
checkpoints of four kinds of solves, the scratch of ``generate``) is altered at random: bits flipped, bytes
zeroed, files cut, emptied, deleted, lengthened, exchanged with each other, or replaced by the same or another
file of an earlier pass or of another run. Then it is read, or the run that left it is resumed. The outcome is

- detected: a one-line error of bigcons, by reading or by ``verify`` alone,
- recovered: a warning, and the same bits from what was left whole,
- harmless: the same bits as from the files that were not altered,
- silent: other bits and no error,
- untyped: an error of another kind, or of more than one line.

Kills: every command that writes, and an append, is killed (SIGKILL) at random moments and repeated; with
``--overwrite`` if the kill came after its commit and it does not know its own result. The results must have
the bits of a quiet run, and nothing else may be left. Only kills that met the command running count.

    python benchmarks/faults.py --alterations 420 --kills 312

Calls: every call by which an append, a commit and passes change the disk fails once; see `system_calls.py`.

``--smallest`` makes a few of each, to show that it runs. Silent or untyped outcomes end it with an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))  # of scripts, only their own folder is searched
from benchmarks import system_calls
from bigcons import METHODS, Consensus, Ensemble, PairTable, generate
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.disk.commit import read_head
from bigcons.errors import BigconsError

RESULTS = Path(__file__).parent / "results" / "faults.json"
OUTCOMES = ("detected", "detected by verify", "recovered", "harmless", "silent", "untyped")
N_OBJECTS = 400


class Target(NamedTuple):
    """Files to alter, others to replace them by, and what reads them."""

    name: str
    files: Path
    others: list[Path]
    """Folders of the same layout: of the pass before, of another run."""
    use: Callable[[Path], bytes]
    """Returns the bits that a reader of a copy of the files gets."""
    verify: Callable[[Path], Any] | None = None


# Alterations


def _flip(rng: np.random.Generator, content: bytearray, _: list[bytes]) -> bytes:
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    return bytes(content)


def _zero(rng: np.random.Generator, content: bytearray, _: list[bytes]) -> bytes:
    first = int(rng.integers(len(content)))
    length = min(int(rng.integers(1, 64)), len(content) - first)
    content[first : first + length] = bytes(length)
    return bytes(content)


def _cut(rng: np.random.Generator, content: bytearray, _: list[bytes]) -> bytes:
    return bytes(content[: int(rng.integers(len(content)))])


def _lengthen(rng: np.random.Generator, content: bytearray, _: list[bytes]) -> bytes:
    return bytes(content) + rng.bytes(int(rng.integers(1, 64)))


def _replace(rng: np.random.Generator, _: bytearray, others: list[bytes]) -> bytes:
    return others[int(rng.integers(len(others)))] if others else b""


CHANGES = {"flip a bit": _flip, "zero": _zero, "cut": _cut, "lengthen": _lengthen, "replace": _replace}


def alter(folder: Path, others: list[Path], rng: np.random.Generator) -> str:
    """Alter a file below ``folder``, or exchange two; return what was done."""
    before = _digest(folder)
    while True:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        file = files[int(rng.integers(len(files)))]
        name = str(file.relative_to(folder))
        change = str(rng.choice([*CHANGES, "replace", "exchange", "delete", "empty"]))
        if change == "replace" and len(files) == 1:  # by another whole table, which is no damage
            continue
        if change == "delete":
            file.unlink()
        elif change == "empty":
            file.write_bytes(b"")
        elif change == "exchange":
            alike = [path for path in files if path.suffix == file.suffix]
            other = alike[int(rng.integers(len(alike)))]
            contents = file.read_bytes(), other.read_bytes()
            file.write_bytes(contents[1])
            other.write_bytes(contents[0])
            name += f" and {other.relative_to(folder)}"
        else:
            alike = [path for other in others for path in sorted(other.rglob(file.name)) if path.is_file()]
            originals = [path.read_bytes() for path in alike]
            file.write_bytes(CHANGES[change](rng, bytearray(file.read_bytes()), originals))
        if _digest(folder) != before:
            return f"{change} {name}"


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect what bigcons warns of."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("bigcons").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("bigcons").removeHandler(handler)


def judge(target: Target, expected: bytes, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Alter a copy of the files at ``folder`` and use it; return the outcome, and what was done and said."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(target.files, folder)
    done = alter(folder, target.others, rng)
    outcome, message = "harmless", ""
    try:
        with logged() as warned:
            if target.use(folder) != expected:
                outcome = "silent"
            elif any("damaged" in line for line in warned):
                outcome = "recovered"
    except Exception as error:
        is_typed = isinstance(error, BigconsError) and "\n" not in str(error)
        return "detected" if is_typed else "untyped", f"{done}: {type(error).__name__}: {error}"
    if target.verify is not None:
        try:
            target.verify(folder)
        except BigconsError as error:
            outcome, message = "detected by verify", str(error)
        except Exception as error:
            outcome, message = "untyped", f"{type(error).__name__}: {error}"
    return outcome, f"{done}: {message}"


def sample_alterations(
    targets: list[Target], n: int, seed: int, folder: Path
) -> Iterator[tuple[str, str, str]]:
    """Yield target, outcome and details of ``n`` alterations, the targets in turn.

    Raises RuntimeError if a copy that is not altered does not give the same bits.
    """
    expected = {}
    for target in targets:
        outcomes = []
        for attempt in range(2):
            shutil.copytree(target.files, folder / f"{target.name} {attempt}")
            outcomes.append(target.use(folder / f"{target.name} {attempt}"))
        if outcomes[0] != outcomes[1]:
            raise RuntimeError(f"{target.name} does not give the same bits twice")
        expected[target.name] = outcomes[0]
    for number in range(n):
        target = targets[number % len(targets)]
        rng = np.random.default_rng([seed, number])
        yield (target.name, *judge(target, expected[target.name], folder / "altered", rng))


# What is altered


def read_ensemble(store: Path) -> bytes:
    ensemble = Ensemble.open(store)
    ids = [] if ensemble.ids is None else list(ensemble.ids[:])
    facts = [ensemble.info()["n_base_clusters"], ids, [repr(values) for values in ensemble.categories]]
    return ensemble.read(0, ensemble.n_objects).tobytes() + repr(facts).encode()


def read_pairs(store: Path) -> bytes:
    pairs = PairTable.open(store)
    return b"".join(np.ascontiguousarray(column).tobytes() for column in pairs.read(0, pairs.n_objects))


def read_consensus(store: Path) -> bytes:
    consensus = Consensus.open(store)
    arrays = [consensus.labels]
    if consensus.has_memberships:
        arrays.append(consensus.memberships)
    if consensus.has_trust:
        trust = consensus.trust
        arrays += [trust.confidence, trust.second_labels, trust.second_confidence]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def inside(read: Callable[[Path], bytes], name: str, path: Path) -> bytes:
    return read(path / name)


def verify(kind: Any, name: str, path: Path) -> Any:
    return kind.open(path / name).verify()


def resume(method: str, options: dict[str, Any], ensemble: Path, path: Path) -> bytes:
    """Return the bits of a solve that goes on in ``path``."""
    METHODS[method](**options, client="serial").fit(str(ensemble), out=path / "c.zarr")
    return read_consensus(path / "c.zarr")


def make_partitions(features: np.ndarray, train: str, path: Path, seed: int = 0) -> bytes:
    ensemble = generate.kmeans(
        features,
        n_partitions=6,
        n_clusters=3,
        sample=0.7,
        train=150 if train == "auto" else train,
        out=path / "e.zarr",
        random_state=seed,
        client="serial",
    )
    return ensemble.read(0, ensemble.n_objects).tobytes()


class Stop(Exception):  # noqa: N818 - no error: it stands for a kill
    """Stands for a kill."""


@contextmanager
def stopping(kind: Any, name: str, at: int) -> Iterator[None]:
    """Stop the ``with`` block after the call of that number of a method."""
    original, calls = getattr(kind, name), [0]

    def counted(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        calls[0] += 1
        if calls[0] == at:
            raise Stop
        return result

    with patch.object(kind, name, counted), suppress(Stop):
        yield


SOLVES: dict[str, tuple[str, dict[str, Any]]] = {
    "PCC": ("pcc", {}),
    "PCC of pairs by KL": ("pcc", {"pairs": "pairs", "divergence": "kl", "n_init": 1}),
    "blocked PCC": ("pcc", {"pairs": "pairs", "solver": "blocked", "n_init": 1}),
    "BCE": ("bce", {"n_init": 2}),
    "mixture": ("mixture", {"n_init": 2}),
}


def make_targets(folder: Path, solves: list[str]) -> list[Target]:
    """Write one of every kind of file."""
    import pyarrow as pa

    from bigcons.disk.checkpoint import Snapshots

    ensembles = []
    for seed in range(2):
        ensemble, _ = planted_ensemble(N_OBJECTS, 8, noise=(0.4, 0.6), random_state=seed)
        path = folder / f"ensemble {seed}"
        ensembles.append(ensemble.save(path / "e.zarr", chunk_rows=128))
        pairs = sample(ensembles[seed], per_object=16, out=folder / f"pairs {seed}/p.zarr", random_state=seed)
        parquet = folder / f"pairs in Parquet {seed}"
        parquet.mkdir()
        pairs.to_parquet(parquet / "p.parquet")
        rng = np.random.default_rng(seed)
        words = np.array(["ant", "bee", "c,t", 'd"g', "eel"])[rng.integers(0, 5, (N_OBJECTS, 3))]
        columns = {"name": [f"{seed}-{row}" for row in range(N_OBJECTS)], "a": words[:, 0], "b": words[:, 1]}
        named = Ensemble.from_labels(pa.table(columns), id="name")
        named.save(folder / f"words and ids {seed}/e.zarr", chunk_rows=128)
        named.save(folder / f"ensemble in Parquet {seed}/e.parquet", chunk_rows=128)
        soft = [rng.dirichlet(np.ones(3), N_OBJECTS).astype(np.float32) for _ in range(3)]
        Ensemble.from_memberships(soft).save(folder / f"soft ensemble {seed}/e.zarr", chunk_rows=128)
        METHODS["pcc"](3, random_state=seed).fit(ensembles[seed], out=folder / f"consensus {seed}/c.zarr")

    kinds: list[tuple[str, str, Any, Callable[[Path], bytes]]] = [
        ("ensemble", "e.zarr", Ensemble, read_ensemble),
        ("words and ids", "e.zarr", Ensemble, read_ensemble),
        ("ensemble in Parquet", "e.parquet", Ensemble, read_ensemble),
        ("soft ensemble", "e.zarr", Ensemble, read_ensemble),
        ("pairs", "p.zarr", PairTable, read_pairs),
        ("pairs in Parquet", "p.parquet", PairTable, read_pairs),
        ("consensus", "c.zarr", Consensus, read_consensus),
    ]
    targets = []
    for name, store, kind, read in kinds:
        folders = folder / f"{name} 0", [folder / f"{name} 1"]
        targets.append(Target(name, *folders, partial(inside, read, store), partial(verify, kind, store)))
    for name in solves:
        method, parameters = SOLVES[name]
        states = {"last": (3, 1), "before": (2, 1), "other": (3, 2)}
        for state, (commits, seed) in states.items():
            options = {"n_clusters": 3, "random_state": seed, **parameters}
            if "pairs" in parameters:
                options["pairs"] = str(folder / "pairs 0/p.zarr")
            if method != "bce-gibbs":
                options |= {"tol": 0.0, "max_iter": 5}
            with stopping(Snapshots, "save", commits):
                resume(method, options, folder / "ensemble 0/e.zarr", folder / f"{name} {state}")
            if state == "last":
                use = partial(resume, method, options, folder / "ensemble 0/e.zarr")
        targets.append(Target(name, folder / f"{name} last", [folder / f"{name} {s}" for s in states], use))
    features = np.random.default_rng(0).normal(size=(N_OBJECTS, 3)).astype(np.float32)
    for name, train in (("generate", "all"), ("generate by samples", "auto")):
        for state, calls, seed in (("last", 4, 0), ("before", 3, 0), ("other", 4, 1)):
            with stopping(Snapshots, "save", calls + 1):
                make_partitions(features, train, folder / f"{name} {state}", seed)
                raise RuntimeError(f"{name} did not come to {calls} files")
        others = [folder / f"{name} {state}" for state in ("before", "other")]
        use = partial(make_partitions, features, train)
        targets.append(Target(name, folder / f"{name} last", others, use))
    return targets


# Kills


COMMANDS: dict[str, tuple[str, str]] = {
    "import": ("import labels.csv -o e.zarr", "e.zarr"),
    "import pairs": ("import --pairs pairs.csv -o q.zarr", "q.zarr"),
    "generate": (
        "generate features.npy -o g.zarr --n-partitions 8 --random-state 0",
        "g.zarr",
    ),
    "append": ("append more.csv -o a.zarr", "a.zarr"),
    "import to Parquet": ("import labels.csv -o e.parquet", "e.parquet"),
    "append in Parquet": ("append more.csv -o a.parquet", "a.parquet"),
    "sample": ("sample e.zarr -o p.zarr --per-object 20 --random-state 0 --scheduler serial", "p.zarr"),
    "solve": ("solve e.zarr -m pcc -k 4 --random-state 0 --tol 1e-9 --scheduler serial -o c.zarr", "c.zarr"),
    "solve pairs": (
        "solve e.zarr -m pcc -k 4 --pairs p.zarr --random-state 0 --scheduler serial -o d.zarr",
        "d.zarr",
    ),
    "run": ("run features.npy -o run -k 3 --n-partitions 8 --random-state 0 --scheduler serial", "run"),
    "export": ("export c.zarr --memberships -o o.csv", "o.csv"),
    "report": ("report c.zarr --ensemble e.zarr --scheduler serial -o r.html", "r.html"),
    "plot": ("plot c.zarr --ensemble e.zarr -o plots", "plots"),
}
FEW = ("import", "generate", "append", "sample", "solve", "export")
"""Commands for a short run."""
FINDS_ITS_RESULT = ("generate", "solve", "solve pairs", "run")
"""Commands that are simply repeated, and by which a finished result is found."""


def run_command(text: str) -> int:
    """Run a command of bigcons, or an append, in this process; return its exit code."""
    from bigcons.cli import main

    if text.startswith("append"):
        _, table, _, path = text.split()[:4]
        Ensemble.open(path, mode="a").append_objects(table)
        return 0
    with Path(os.devnull).open("w") as null, patch("sys.stdout", null), patch("sys.stderr", null):
        try:
            main(text.split(), standalone_mode=False)
        except SystemExit as end:
            return int(end.code or 0)
        except Exception:
            return 1
    return 0


def in_child(text: str, after: float | None) -> int:
    """Run a command in a forked child, killed ``after`` so many seconds; return its exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os._exit(run_command(text))
    if after is not None:
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def bits_of(path: Path) -> bytes:
    """Return the bits of what a command wrote."""
    if path.suffix == ".parquet":
        return read_ensemble(path)
    if path.is_file():
        return path.read_bytes()
    if path.suffix != ".zarr":
        return b"".join(bits_of(entry) for entry in sorted(path.iterdir()))
    kind = read_head(path).kind
    return {"ensemble": read_ensemble, "pairs": read_pairs, "consensus": read_consensus}[kind](path)


def names_in(folder: Path) -> set[str]:
    """Return what is in a folder, and in folders there that are no stores."""
    names = {path.name for path in folder.iterdir()}
    inside = [path for path in folder.iterdir() if path.is_dir() and "." not in path.name]
    return names.union(*({f"{path.name}/{entry.name}" for entry in path.iterdir()} for path in inside))


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def write_inputs(folder: Path, n_objects: int) -> None:
    """Write what the commands read."""
    labels = planted_ensemble(n_objects, 12, noise=(0.4, 0.6), missing=0.2, random_state=0)[0].read(
        0, n_objects
    )
    header = {"header": ",".join("abcdefghijkl"), "comments": "", "fmt": "%d", "delimiter": ","}
    np.savetxt(folder / "labels.csv", labels, **header)
    np.savetxt(folder / "more.csv", labels[: n_objects // 2], **header)
    for suffix in ("zarr", "parquet"):
        before = Ensemble.from_labels(folder / "labels.csv")
        before.save(folder / f"before.{suffix}", chunk_rows=n_objects // 10)
    rng = np.random.default_rng(0)
    np.save(folder / "features.npy", rng.normal(size=(n_objects, 4)).astype(np.float32))
    pairs = np.unique(np.sort(rng.integers(0, n_objects, (8 * n_objects, 2))), axis=0)
    pairs = rng.permutation(pairs[pairs[:, 0] < pairs[:, 1]])
    counts = np.sort(rng.integers(1, 9, (len(pairs), 2)))
    header["header"] = "i,j,n_agree,n_seen"
    np.savetxt(folder / "pairs.csv", np.hstack([pairs, counts]), **header)
    soft = [rng.dirichlet(np.ones(3), n_objects).astype(np.float32) for _ in range(6)]
    Ensemble.from_memberships(soft).save(folder / "soft.zarr")


def prepare(output: str) -> None:
    """Remove the output; one to append to is put back as it was."""
    remove(Path(output))
    if output.startswith("a."):
        shutil.copytree(output.replace("a.", "before."), output)


def repeat(name: str, text: str, output: str, n_before: int) -> int:
    """Run a command again after a kill, as its user would; return its exit code."""
    if name.startswith("append"):
        if Ensemble.open(output).n_objects == n_before:
            return in_child(text, None)
        for left in Path().glob(f".{output}.*"):  # a lock of nobody, the store before: the next append's work
            remove(left)
        return 0
    overwrites = name not in FINDS_ITS_RESULT and Path(output).exists()
    return in_child(f"{text} --overwrite" if overwrites else text, None)


def sample_kills(n: int, seed: int, folder: Path, n_objects: int) -> dict[str, Any]:
    """Kill and repeat commands; return how many kills met a running command, and what was wrong after."""
    folder.mkdir(parents=True)
    began = Path.cwd()
    os.chdir(folder)
    try:
        write_inputs(folder, n_objects)
        commands = {name: COMMANDS[name] for name in (COMMANDS if n >= 2 * len(COMMANDS) else FEW)}
        tried, killed, checkpoints, wrong = Counter(), Counter(), Counter(), []
        for name, (text, output) in commands.items():
            prepare(output)
            if not name.startswith("append"):
                run_command(text.replace(f"-o {output}", f"-o warm-{output}"))  # kernels are compiled
                remove(Path(f"warm-{output}"))
            start = time.perf_counter()
            if in_child(text, None):
                raise RuntimeError(f"{text} fails undisturbed")
            seconds = time.perf_counter() - start
            quiet, expected = bits_of(folder / output), names_in(folder)
            n_kills = -(-n // len(commands))
            while killed[name] < n_kills and tried[name] < 4 * n_kills:
                rng = np.random.default_rng([seed, zlib.crc32(name.encode()), tried[name]])
                tried[name] += 1
                prepare(output)
                if in_child(text, float(rng.uniform(0, seconds))) != -signal.SIGKILL:
                    continue
                killed[name] += 1
                partials = [Path(f"{output}.partial"), *Path(output).glob("*.partial")]
                checkpoints[name] += any(path.exists() for path in partials)
                code = repeat(name, text, output, n_objects)
                left = sorted(names_in(folder) - expected)
                same = code == 0 and bits_of(folder / output) == quiet
                if not same or left:
                    what = {
                        "command": name,
                        "number": tried[name] - 1,
                        "exit": code,
                        "same": same,
                        "left": left,
                    }
                    wrong.append(what)
                    for entry in left:
                        remove(Path(entry))
    finally:
        os.chdir(began)
    return {
        "tried": tried.total(),
        "met running": killed.total(),
        "by command": dict(killed),
        "left a checkpoint": {name: count for name, count in checkpoints.items() if count},
        "wrong": wrong,
    }


def measure(
    n_alterations: int, n_kills: int, seed: int, folder: Path, solves: list[str], every_call: int = 1
) -> dict[str, Any]:
    targets = make_targets(folder / "targets", solves)
    counts: dict[str, Counter[str]] = {target.name: Counter() for target in targets}
    bad = []
    for name, outcome, done in sample_alterations(targets, n_alterations, seed, folder / "work"):
        counts[name][outcome] += 1
        if outcome in ("silent", "untyped"):
            bad.append(f"{name}: {outcome}: {done}")
    total = sum(counts.values(), Counter())
    record = {
        "seed": seed,
        "alterations": {outcome: total[outcome] for outcome in OUTCOMES},
        "by target": {name: dict(count) for name, count in counts.items()},
        "bad": bad,
    }
    if every_call and sys.platform == "linux":
        record["calls"] = {}
        for name, fault in product(system_calls.WORK, system_calls.FAULTS):
            outcomes, wrong = system_calls.fail_every_call(folder / "calls", name, fault, every_call)
            record["calls"][f"{name}, {fault}"] = dict(outcomes)
            bad += wrong
    if n_kills and hasattr(os, "fork"):
        record["kills"] = sample_kills(
            n_kills, seed, folder / "kills", 20_000 if n_kills >= 2 * len(COMMANDS) else 2000
        )
    return record


def main() -> None:
    tqdm.monitor_interval = 0  # its thread may hold a lock while this process is forked
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--alterations", type=int, default=420)
    parser.add_argument("--kills", type=int, default=312)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("bigcons").addHandler(logging.NullHandler())  # nothing on the screen
    sizes = (12, 3) if arguments.smallest else (arguments.alterations, arguments.kills)
    solves = ["PCC", "mixture"] if arguments.smallest else list(SOLVES)
    with tempfile.TemporaryDirectory() as folder:
        record = measure(*sizes, arguments.seed, Path(folder), solves, 400 if arguments.smallest else 1)
    print(json.dumps(record, indent=1))
    out = arguments.out or (None if arguments.smallest else RESULTS)
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n")
    if record["bad"] or record.get("kills", {}).get("wrong"):
        sys.exit(1)


if __name__ == "__main__":
    main()
