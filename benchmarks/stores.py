"""What does an ensemble take in Zarr and in Parquet: time and bytes of a pass, and memory to read it?

Planted labels of one size, a tenth missing, in stores of bigcons:

- types: 100 partitions, int8 (20 clusters each) and int32 (40,000 clusters), in Zarr also in a bucket of S3,
  a server of moto on this machine, so that the time is that of the protocol, not of a network
- partitions: 100 to 32,768 of int8, as many labels in all, for the limit of Parquet; a file of it is opened

A pass reads all blocks on two threads. Reported are the faster of two, the least processor time of its
process, the bytes stored and the rise of the peak memory. Writes ``results/stores.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import re
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from machine import describe
from pyarrow import parquet

from bigcons import Ensemble
from bigcons.disk.places import DiskPlace, place_of
from bigcons.errors import SuspiciousLabelsWarning
from bigcons.io.labels import default_chunk_rows
from bigcons.io.sources import footer_of
from bigcons.memory import row_blocks
from bigcons.store.ensemble_store import Content, Header, write_store

RESULTS = Path(__file__).parent / "results"
BUCKET = "bucket"
THREADS = 2


def bytes_at(path: str) -> int:
    """Return the total size of the files, or objects in a bucket, below a path."""
    place = place_of(path)
    if isinstance(place, DiskPlace):
        return sum(file.stat().st_size for file in place.path.rglob("*") if file.is_file())
    return sum(entry["size"] for entry in place._below())


def blocks(n_objects: int, n_partitions: int, n_clusters: int, dtype: str) -> Iterator[np.ndarray]:
    """Yield labels, a tenth missing; a partition is one of eight planted ones, renumbered and with noise."""
    rng = np.random.default_rng(0)
    planted = rng.integers(0, n_clusters, (n_objects, 8))
    planted[:n_clusters] = np.arange(n_clusters)[:n_objects, None]
    numbers = np.argsort(rng.random((n_partitions, n_clusters), np.float32), axis=1).astype(dtype)
    for block in row_blocks(n_objects, 1 << 14):
        columns = np.arange(n_partitions)
        rows = numbers[columns, planted[block.start : block.stop][:, columns % 8]]
        if block.start >= n_clusters:  # every cluster has an object
            noise = rng.random(rows.shape, np.float32)
            rows[noise < 0.2] = 0
            rows[noise < 0.1] = -1
        yield rows


def peak() -> int:
    """Return the peak memory of this process."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) * 1024 if match else 0


def read_all(ensemble: Ensemble) -> tuple[float, float]:
    """Return the seconds of a pass, and those of the processor in this process."""
    start, used = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda block: ensemble.read(block.start, block.stop).shape, ensemble.blocks()):
            pass
    return time.perf_counter() - start, time.process_time() - used


def measure_reading(path: str) -> dict[str, float]:
    """Return seconds and memory of a pass; runs in a process of its own."""
    warnings.simplefilter("ignore", SuspiciousLabelsWarning)
    ensemble = Ensemble.open(path)
    ensemble.read(0, 1)  # imports what it needs
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    seconds, used = map(min, zip(*(read_all(ensemble) for _ in range(2)), strict=True))
    assert ensemble.stored is not None
    return {
        "read_seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "stored_mb": round(bytes_at(ensemble.path) / 1e6, 2),
        "memory_mb": round((peak() - before) / 1e6, 1),
        "planned_mb": round(
            (ensemble.stored.reading_bytes(1, THREADS) + THREADS * block_bytes(ensemble)) / 1e6, 1
        ),
    }


def open_ms(file: Path) -> float:
    """Return the milliseconds of opening a file of Parquet, the least of five."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        with parquet.ParquetFile(file):
            seconds.append(time.perf_counter() - start)
    return round(1e3 * min(seconds), 2)


def block_bytes(ensemble: Ensemble) -> int:
    """Return the bytes of a block that is read."""
    return min(ensemble.chunk_rows, ensemble.n_objects) * ensemble.row_bytes


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server of S3 on this machine with an empty bucket; yield its URL."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")):
            yield f"s3://{BUCKET}"
    finally:
        server.stop()


def measure(folders: dict[str, str], n_objects: int, n_partitions: int, n_clusters: int, dtype: str) -> list:
    """Write the same labels to a store of each kind in its folder, and read them."""
    header = Header(
        n_objects,
        [f"p{u}" for u in range(n_partitions)],
        np.full(n_partitions, n_clusters),
        np.full(n_partitions, n_objects),
        default_chunk_rows(n_objects, n_partitions),
        {},
    )
    rows = []
    for kind, folder in folders.items():
        path = f"{folder}/ensemble.{'parquet' if kind == 'parquet' else 'zarr'}"
        source = blocks(n_objects, n_partitions, n_clusters, dtype)
        start = time.perf_counter()
        write_store(path, Content(header, [None] * n_partitions, source), True)
        written = time.perf_counter() - start
        with multiprocessing.get_context("spawn").Pool(1) as process:
            record = process.apply(measure_reading, (path,))
        n_bytes = bytes_at(path)
        files = sorted(Path(path).glob("*.parquet"))
        footers = sum(map(len, map(footer_of, files)))
        rows.append(
            {
                "store": kind,
                "n_objects": n_objects,
                "n_partitions": n_partitions,
                "dtype": dtype,
                "write_seconds": round(written, 2),
                **record,
                "ns_per_label": round(1e9 * record["read_seconds"] / (n_objects * n_partitions), 1),
                "bytes_per_label": round(n_bytes / (n_objects * n_partitions), 3),
                **(
                    {"footer_share": round(footers / n_bytes, 3), "open_ms": open_ms(files[0])}
                    if files
                    else {}
                ),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a run of seconds that shows it works")
    parser.add_argument("-o", "--out", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    n_objects, n_labels, widths = 500_000, 20_000_000, (128, 1_024, 4_096, 16_384, 32_768)
    if options.smallest:
        n_objects, n_labels, widths = 2_000, 200_000, (128, 256)
    with tempfile.TemporaryDirectory() as name:
        folders = {"zarr": name, "parquet": name}
        kinds = (("int8", 20), ("int32", 40_000 if not options.smallest else 1_500))
        with s3_server() as bucket:
            every = {**folders, "zarr in S3": bucket}
            types = [row for dtype, k in kinds for row in measure(every, n_objects, 100, k, dtype)]
        partitions = [
            row for width in widths for row in measure(folders, n_labels // width, width, 20, "int8")
        ]
    result = {"machine": describe(), "threads": THREADS, "types": types, "partitions": partitions}
    if options.out is not None or not options.smallest:
        (options.out or RESULTS / "stores.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
