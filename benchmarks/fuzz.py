"""Does any input, however mangled, end in anything but a result or one line that says what is wrong?

Readers of heads and of the other metadata of stores, of CSV, .npy and Parquet, and of checkpoints
get mutated files: bits, runs of bytes and words exchanged, inserted, repeated and cut in the raw content, and
(so that a wrong checksum does not end it at once) values replaced inside JSON, headers and arrays, with all
checksums made right again: of blocks of checkpoints where their numbers stay finite, and never the hash of a
snapshot, which somebody would have to forge. The outcome of an input is

- read: the reader returned,
- refused: an error of bigcons, in one line,
- untyped: an error of another kind, or of more than one line,
- large: the reader took more than 256 MB for a file of a few kilobytes,
- slow: it took more than 10 seconds,
- crash: the process died.

    python benchmarks/fuzz.py --seconds 600

The inputs follow from ``--seed`` and their number, so that ``--only 'npy labels 17'`` repeats one, with
its traceback. ``--smallest`` tries some dozens. Anything but the first two outcomes ends it with an
error.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigcons import METHODS, Consensus, Ensemble, PairTable
from bigcons.coassociation import sample
from bigcons.datasets import planted_ensemble
from bigcons.disk.checkpoint import SEAL_BYTES, FileBlocks, Snapshots
from bigcons.disk.commit import read_head
from bigcons.errors import BigconsError
from bigcons.io.features import open_features
from bigcons.memory import Block
from bigcons.store.ensemble import as_ensemble

RESULTS = Path(__file__).parent / "results" / "fuzz.json"
OUTCOMES = ("read", "refused", "untyped", "large", "slow", "crash")
N_OBJECTS = 60
MOST_BYTES = 256 << 20
MOST_SECONDS = 10.0

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64),
    *(-(2**63), 10**30, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "a", "0", "..", "../x", "a/b", "\0", "\u20ac" * 9, "nan", "x" * 5000, "int8", "object", "<M8[ns]"),
    *([], [[]], [None], [0] * 300, {}, {"": {}}, {"a": [1]}, [[[[[[[[1]]]]]]]]),
]  # fmt: skip
"""What values in JSON are replaced by."""
WORDS = [
    *(b",", b"\n", b"\r", b"\r\n", b'"', b'""', b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b";"),
    *(b"\t", b" ", b"-1", b"0", b"1e999", b"nan", b"NA", b"inf", b"-0.0", b"9223372036854775807", b"1_0"),
    *(b"9223372036854775808", b"0x1", b"1e-400", b"PAR1", b"\x93NUMPY", b"\x01\x00", b"(", b")", b"{", b"}"),
    *(b"[", b"'", b"\\", b"L", b"<i8", b"|O", b"<U0", b"<U99999", b"|V8", b">f2", b"True", b"None", bytes(8)),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"),
]  # fmt: skip
"""What is put into raw content."""


class Target(NamedTuple):
    """A file or store to mutate, how, and what reads it."""

    name: str
    files: Path
    """A folder, of which every input is a mutated copy."""
    mutate: Callable[[Path, np.random.Generator], str]
    """Changes the files of a copy; returns what it did."""
    read: Callable[[Path], object]


# Mutations


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Return ``content`` with one to eight random changes."""
    result = bytearray(content)
    for _ in range(int(2 ** rng.uniform(0, 3))):
        size = len(result)
        at, length = int(rng.integers(size + 1)), int(2 ** rng.uniform(0, 8))
        part = bytes(result[at : at + length])
        word = WORDS[int(rng.integers(len(WORDS)))]
        change = int(rng.integers(9))
        if change == 0 and at < size:
            result[at] ^= 1 << int(rng.integers(8))
        elif change == 1 and at < size:
            result[at] = int(rng.integers(256))
        elif change == 2:
            result[at : at + len(word)] = word
        elif change == 3:
            result[at:at] = word * int(2 ** rng.uniform(0, 10) if rng.random() < 0.1 else 1)
        elif change == 4:
            del result[at : at + length]
        elif change == 5:
            result[at:at] = part
        elif change == 6:
            to = int(rng.integers(size + 1))
            result[to : to + len(part)] = part
        elif change == 7:
            result[at : at + length] = rng.bytes(len(part))
        elif rng.random() < 0.2:
            del result[at:]
    return bytes(result)


def mutate_json(content: Any, rng: np.random.Generator) -> Any:
    """Return JSON values with one to four entries replaced, removed, repeated or put elsewhere."""
    root = [copy.deepcopy(content)]
    for _ in range(int(2 ** rng.uniform(0, 2.3))):
        places = list(_entries(root))
        holder, key = places[int(rng.integers(len(places)))]
        change = int(rng.integers(6))
        if change < 3:
            holder[key] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])
        elif change == 3 and holder is not root:
            del holder[key]
        elif change == 4:
            other, name = places[int(rng.integers(len(places)))]
            holder[key] = copy.deepcopy(other[name])
        elif isinstance(value := holder[key], (int, float)) and not isinstance(value, bool):
            holder[key] = value + int(rng.integers(-2, 3))
        elif isinstance(value, str):
            holder[key] = mutate_bytes(value.encode(), rng).decode("utf-8", "replace")
        elif isinstance(value, list):
            holder[key] = value * int(rng.integers(3)) if len(value) < 1000 else value[:1]
        else:
            holder[key] = [value]
    return root[0]


def _entries(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield holder and key of every value in JSON."""
    if isinstance(value, (list, dict)):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            yield value, key
            yield from _entries(value[key])


def mutate_store(folder: Path, rng: np.random.Generator) -> str:
    """Change the head, or the metadata or categories of a store, and make the checksums right."""
    store = next(folder.glob("*.zarr"))
    content = json.loads((store / "zarr.json").read_text())
    head = content["attributes"]["bigcons"]
    del head["checksum"]
    others = sorted([*store.glob("*/zarr.json"), *store.glob("categories*"), *store.rglob("c/**/[0-9]*")])
    files = [store / "zarr.json", *(path for path in others if path.is_file())]
    file = files[0 if rng.random() < 0.6 else int(rng.integers(len(files)))]
    if file == files[0]:
        changed = mutate_json(head if rng.random() < 0.3 else head["body"], rng)
        head = changed if isinstance(changed, dict) and "body" in changed else {**head, "body": changed}
    elif file.suffix == ".json" and rng.random() < 0.8:
        file.write_text(json.dumps(mutate_json(json.loads(file.read_text()), rng)))
    else:
        file.write_bytes(mutate_bytes(file.read_bytes(), rng))
    if file.name == "categories.json":
        head["body"]["files"][file.name] = zlib.crc32(file.read_bytes())
    content["attributes"]["bigcons"] = head
    if rng.random() < 0.95:
        head["checksum"] = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    text = json.dumps(content, indent=1).encode()
    files[0].write_bytes(mutate_bytes(text, rng) if rng.random() < 0.05 else text)
    return str(file.relative_to(folder))


def mutate_file(folder: Path, rng: np.random.Generator) -> str:
    """Change the raw content of a file, within a gzipped one too."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    file = files[int(rng.integers(len(files)))]
    content = file.read_bytes()
    if file.suffix == ".gz" and rng.random() < 0.7:
        content = gzip.compress(mutate_bytes(gzip.decompress(content), rng), 1)
    else:
        content = mutate_bytes(content, rng)
    for other in files:
        if other != file:
            other.unlink()
    file.write_bytes(content)
    return file.name


def _mutated_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """Return an archive with a changed member or name, and its checksums right."""
    sink = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(sink, "w") as target,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of names that are there twice
        names = source.namelist()
        chosen = names[int(rng.integers(len(names)))]
        for name in names:
            data = source.read(name)
            if name == chosen and rng.random() < 0.9:
                data = mutate_bytes(data, rng)
            elif name == chosen:
                name = str(rng.choice(["labels.npy", "../x.npy", "head.npy", "/", "a.txt", names[0]]))
            target.writestr(name, data, zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED)
    return sink.getvalue()


def mutate_checkpoint(folder: Path, rng: np.random.Generator) -> str:
    """Change the snapshot or a block of an unfinished run, and make its checksums and seals right."""
    files = sorted(folder.glob("c.zarr.partial/generation-*/block-*"))
    snapshot = folder / "c.zarr.partial" / "snapshot.npz"
    if files and rng.random() < 0.4:
        file = files[int(rng.integers(len(files)))]
        rows = mutate_bytes(file.read_bytes()[:-SEAL_BYTES], rng)
        fingerprint = json.loads(_members(snapshot)["facts"].tobytes())["fingerprint"]
        seal = bytes(SEAL_BYTES)  # of numbers that are not finite it stays broken
        if np.isfinite(np.frombuffer(rows[: len(rows) // 4 * 4], np.float32)).all():
            generation, number = (int(part.partition("-")[2]) for part in file.parts[-2:])
            seal = FileBlocks(folder, 1, run=Snapshots(folder, fingerprint).run)._seal(
                generation, Block(number, 0, 0), rows
            )
        file.write_bytes(rows + seal)
        return str(file.relative_to(folder))
    if rng.random() < 0.3:
        content = snapshot.read_bytes()
        snapshot.write_bytes(_mutated_archive(content[:-SEAL_BYTES], rng) + content[-SEAL_BYTES:])
        return "a member of snapshot.npz"
    arrays = _members(snapshot)
    head = json.loads(arrays["facts"].tobytes())
    if rng.random() < 0.7:
        facts = mutate_json(head["facts"] if rng.random() < 0.7 else head, rng)
        head = facts if isinstance(facts, dict) and "facts" in facts else {**head, "facts": facts}
        arrays["facts"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        what = "facts"
    else:
        what = sorted(set(arrays) - {"head"})[int(rng.integers(len(arrays) - 1))]
        arrays[what] = _mutated_array(arrays[what], rng)
    file = io.BytesIO()
    np.savez(file, **arrays)
    snapshot.write_bytes(file.getvalue() + snapshot.read_bytes()[-SEAL_BYTES:])
    return f"{what} of snapshot.npz"


def _members(snapshot: Path) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(snapshot.read_bytes()[:-SEAL_BYTES])) as archive:
        return dict(archive)


def _mutated_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    changed = [
        lambda: array.reshape(-1),
        lambda: array[..., :0] if array.ndim else array[None],
        lambda: array[None],
        lambda: np.concatenate([array.reshape(-1)] * 2),
        lambda: array.astype(str(rng.choice(["i1", "f4", "U4", "c16", "?", ">f8"]))),
        lambda: np.full_like(array, rng.choice([-1, 0, 100])),
        lambda: np.full(array.shape, rng.choice([np.nan, np.inf, -1e308])),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return changed[int(rng.integers(len(changed)))]()


# Readers


def read_ensemble(folder: Path) -> None:
    path = folder / "e.zarr"
    with suppress(BigconsError):  # whatever `info` of the command line asks first
        read_head(path)
    ensemble = Ensemble.open(path)
    repr(ensemble), ensemble.digest(), json.dumps(ensemble.info())
    ensemble.read(0, ensemble.n_objects)
    repr(ensemble.categories)
    ensemble.verify()


def read_pairs(name: str, folder: Path) -> None:
    pairs = PairTable.open(folder / name)
    repr(pairs), pairs.digest(), json.dumps(pairs.info(), default=str)
    pairs.read(0, pairs.n_objects)
    pairs.verify()


def read_consensus(folder: Path) -> None:
    consensus = Consensus.open(folder / "c.zarr")
    repr(consensus), json.dumps(consensus.info(), default=str)
    consensus.cluster_sizes()
    if consensus.has_memberships:
        consensus.read_memberships(0, consensus.n_objects)
    if consensus.has_trust:
        repr(consensus.trust)
    consensus.verify()


def read_table(role: str, folder: Path) -> None:
    path = next(path for path in folder.iterdir() if path.is_file())
    if role == "labels":
        as_ensemble(path)
    elif role == "features":
        features = open_features(path)
        features.read(0, features.n_objects)
    else:
        PairTable.from_table(path)


def resume(method: str, options: dict[str, Any], ensemble: Path, folder: Path) -> None:
    METHODS[method](**options, client="serial").fit(ensemble, out=folder / "c.zarr")


class Stop(Exception):  # noqa: N818 - no error: it stands for a kill
    """Stands for a kill."""


@contextmanager
def stopped_after(n_commits: int) -> Iterator[None]:
    """Stop the ``with`` block when it has saved that many snapshots."""
    save, left = Snapshots.save, [n_commits]

    def counted(*arguments: Any) -> None:
        save(*arguments)
        left[0] -= 1
        if not left[0]:
            raise Stop

    Snapshots.save = counted  # type: ignore[method-assign]
    try:
        with suppress(Stop):
            yield
    finally:
        Snapshots.save = save  # type: ignore[method-assign]


def make_targets(folder: Path) -> list[Target]:
    """Write one file or store of every kind below ``folder``, unless they are there."""
    import pyarrow as pa
    from pyarrow import parquet

    places = {
        name: folder / name for name in ("ensemble", "words", "soft", "pairs", "parquet pairs", "consensus")
    }
    tables = {f"{kind} {role}": folder / f"{kind} {role}" for kind in ("csv", "npy", "parquet")
              for role in ("labels", "features", "pairs")}  # fmt: skip
    del tables["npy pairs"], tables["parquet pairs"]
    runs = {
        "PCC": ("pcc", {"tol": 0.0, "max_iter": 4}),
        "mixture": ("mixture", {"n_init": 2, "tol": 0.0, "max_iter": 4}),
    }
    source = folder / "source" / "e.zarr"
    if not source.exists():
        ensemble = planted_ensemble(N_OBJECTS, 4, noise=(0.2, 0.4), random_state=0)[0].save(
            source, chunk_rows=16
        )
        shutil.copytree(source, places["ensemble"] / "e.zarr")
        labels = ensemble.read(0, N_OBJECTS)
        rng = np.random.default_rng(0)
        words = np.array(["ant", "bee", "c,t", 'd"g', None], dtype=object)[labels % 5]
        Ensemble.from_labels(words).save(places["words"] / "e.zarr", chunk_rows=32)
        soft = [rng.dirichlet(np.ones(3), N_OBJECTS).astype(np.float32) for _ in range(2)]
        Ensemble.from_memberships(soft).save(places["soft"] / "e.zarr", chunk_rows=32)
        pairs = sample(ensemble, per_object=8, out=places["pairs"] / "p.zarr", random_state=0)
        places["parquet pairs"].mkdir()
        pairs.to_parquet(places["parquet pairs"] / "p.parquet")
        METHODS["pcc"](
            3,
            random_state=0,
        ).fit(ensemble, out=places["consensus"] / "c.zarr")
        columns = {
            "labels": {f"u{u}": labels[:, u] for u in range(4)},
            "features": {f"x{c}": rng.normal(size=N_OBJECTS) for c in range(3)},
            "pairs": {name: np.asarray(column) for name, column in pairs.edges()._asdict().items()},
        }
        for name, place in tables.items():
            kind, role = name.split()
            place.mkdir()
            table = pa.table(columns[role])
            if kind == "csv":
                rows = zip(*(column.tolist() for column in columns[role].values()), strict=True)
                text = "\n".join(
                    [",".join(columns[role]), *(",".join(map(str, row)) for row in rows)]
                ).encode()
                (place / "t.csv").write_bytes(text)
                (place / "u.csv.gz").write_bytes(gzip.compress(text))
            elif kind == "parquet":
                parquet.write_table(table, place / "t.parquet", row_group_size=32)
            else:
                np.save(place / "t.npy", np.stack(list(columns[role].values()), axis=1))
        for name, (method, options) in runs.items():
            with stopped_after(3):
                resume(method, {"n_clusters": 3, "random_state": 0, **options}, source, folder / name)
    targets = [
        *(Target(name, places[name], mutate_store, read_ensemble) for name in ("ensemble", "words", "soft")),
        Target("pairs", places["pairs"], mutate_store, partial(read_pairs, "p.zarr")),
        Target("consensus", places["consensus"], mutate_store, read_consensus),
        Target("pairs in Parquet", places["parquet pairs"], mutate_file, partial(read_pairs, "p.parquet")),
    ]
    targets += [
        Target(name, place, mutate_file, partial(read_table, name.split()[1]))
        for name, place in tables.items()
    ]
    for name, (method, options) in runs.items():
        use = partial(resume, method, {"n_clusters": 3, "random_state": 0, **options}, source)
        use(shutil.copytree(folder / name, folder / f"{name}-{os.getpid()}"))  # what compiles is not timed
        targets.append(Target(f"checkpoint of {name}", folder / name, mutate_checkpoint, use))
    return targets


# One input, many inputs


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def try_input(target: Target, number: int, seed: int, folder: Path) -> tuple[str, str]:
    """Mutate a copy of the target's files and read it; return the outcome, and what was done and said."""
    rng = np.random.default_rng([seed, zlib.crc32(target.name.encode()), number])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(target.files, folder)
    done, outcome = target.mutate(folder, rng), "read"
    before, began = peak_bytes(), time.perf_counter()
    try:
        target.read(folder)
    except BigconsError as error:
        outcome, message = "refused", f"{type(error).__name__}: {error}"
        if "\n" in str(error):
            outcome = "untyped"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/bigcons/" in frame.filename]
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (*ours[-1:], where)]
        outcome, message = "untyped", f"{type(error).__name__}: {str(error)[:200]!r} at {', '.join(places)}"
    else:
        message = ""
    if time.perf_counter() - began > MOST_SECONDS:
        outcome = "slow"
    elif peak_bytes() - before > MOST_BYTES:
        outcome = "large"
    return outcome, f"{done}: {message}"


def run_inputs(folder: Path, seed: int, first: int, seconds: float, at_most: int) -> None:
    """Try inputs, the targets in turn, from number ``first`` on; print JSON before and after each."""
    targets = make_targets(folder)
    until = time.perf_counter() + seconds
    number = first
    while number < at_most and time.perf_counter() < until:
        target = targets[number % len(targets)]
        print(json.dumps([number, target.name]), flush=True)
        outcome, message = try_input(target, number // len(targets), seed, folder / f"input-{os.getpid()}")
        print(json.dumps([number, target.name, outcome, message]), flush=True)
        number += 1


def fuzz(folder: Path, seed: int, seconds: float, at_most: int) -> dict[str, Any]:
    """Try inputs in a process of its own, started again whenever it dies or hangs; return the outcomes."""
    names = [target.name for target in make_targets(folder)]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    bad: list[str] = []
    began, number = time.perf_counter(), 0
    while number < at_most and (left := seconds - (time.perf_counter() - began)) > 0:
        command = [sys.executable, __file__, "--child", str(folder), "--first", str(number)]
        command += ["--seed", str(seed), "--seconds", str(left), "--at-most", str(at_most)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            watch = threading.Timer(6 * MOST_SECONDS, process.kill)
            current = None
            for line in process.stdout or ():
                watch.cancel()
                current = json.loads(line)
                if len(current) == 2:
                    watch = threading.Timer(6 * MOST_SECONDS, process.kill)
                    watch.start()
                    continue
                number, name, outcome, message = current
                number += 1
                counts[name][outcome] += 1
                if outcome not in ("read", "refused"):
                    bad.append(f"{name} {(number - 1) // len(names)}: {outcome}: {message}")
            watch.cancel()
        if process.returncode and current is not None and len(current) == 2:
            number, name = current[0] + 1, current[1]
            counts[name]["crash"] += 1
            bad.append(f"{name} {current[0] // len(names)}: crash or hang, exit {process.returncode}")
        elif process.returncode:
            raise RuntimeError(f"the process that reads ended with {process.returncode}")
    total = sum(counts.values(), Counter())
    return {
        "seed": seed,
        "seconds": round(time.perf_counter() - began),
        "inputs": total.total(),
        "outcomes": {outcome: total[outcome] for outcome in OUTCOMES},
        "by target": {name: dict(count) for name, count in counts.items()},
        "bad": bad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", metavar="INPUT", help="try this input, named as in the results, and show its traceback"
    )
    parser.add_argument("-o", "--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--at-most", type=int, default=sys.maxsize, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if arguments.child:
        run_inputs(arguments.child, arguments.seed, arguments.first, arguments.seconds, arguments.at_most)
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only:
            name, _, number = arguments.only.rpartition(" ")
            target = next(target for target in make_targets(Path(folder)) if target.name == name)
            target = target._replace(read=partial(_shown, target.read))
            print(*try_input(target, int(number), arguments.seed, Path(folder, "input")))
            return
        at_most = 80 if arguments.smallest else arguments.at_most
        record = fuzz(Path(folder), arguments.seed, arguments.seconds, at_most)
    print(json.dumps(record, indent=1))
    out = arguments.out or (None if arguments.smallest else RESULTS)
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n")
    if record["bad"]:
        sys.exit(1)


def _shown(read: Callable[[Path], object], folder: Path) -> None:
    try:
        read(folder)
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
