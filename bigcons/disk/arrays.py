"""The Zarr arrays of stores, as the head determines them.

Nothing but chunks is read of them: their metadata follow from the head. A chunk is a file of its compressed
values and their crc32c. What decompresses to more than a chunk is not decompressed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
from typing import Any

import numpy as np

from bigcons.disk.files import Place, corrupt, decoding, read_json
from bigcons.disk.schema import Array
from bigcons.errors import StoreNotFoundError

MAX_CHUNK_BYTES = 1 << 31
METADATA = "zarr.json"
CODECS = ("bytes", "zstd", "blosc", "gzip", "crc32c", "transpose", "sharding_indexed")
"""The codecs of arrays that bigcons did not write; none executes code from the data."""

ChunkSums = dict[tuple[str, int], tuple[int, str]]
"""The digests of rows of chunks that were written, and the crc32c of each chunk, by array and number."""

AT_ONCE = 4
"""Chunks that are read at a time, where rows are in several."""


class StoredArray:
    """An array of a store, in chunks of its rows and columns; picklable and thread-safe.

    Rows, or entries, are read when sliced.
    """

    def __init__(
        self, place: Place, array: Array, check: Callable[[], None] | None = None, sums: str = ""
    ) -> None:
        """Take the folder of the array and, once it is written, the crc32c of its chunks.

        ``check`` raises an error if chunks that were read may be of two stores.
        """
        self.place = place
        self.chunks: tuple[int, ...] = array.chunks
        self.array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = np.dtype(array.dtype)
        self.ndim: int = len(array.shape)
        self._check, self._sums = check, sums

    @classmethod
    def create(cls, place: Place, array: Array) -> StoredArray:
        """Return a new array at ``place``, to be written."""
        (place / METADATA).write(json.dumps(array.metadata(), indent=1).encode())
        return cls(place, array)

    def files_of(self, row: int) -> list[Place]:
        """Return the files of a row of chunks."""
        rows = self.place / "c" / str(row)
        if self.ndim == 1:
            return [rows]
        return [rows / str(column) for column in range(-(-self.shape[1] // self.array.chunks[1]))]

    def __getitem__(self, index: Any) -> np.ndarray:
        rows, *columns = index if isinstance(index, tuple) else (index,)
        part = self.read(*rows.indices(self.shape[0])[:2])
        return part[(slice(None), *columns)] if columns else part

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return entries, or rows; raises CorruptStoreError for a chunk that is damaged or missing."""
        try:
            height, width = (*self.array.chunks, 1)[:2]
            rows = range(start // height, -(-stop // height)) if start < stop else range(0)
            files = [(file, row, column) for row in rows for column, file in enumerate(self.files_of(row))]
            if len(files) == 1:
                values = self._chunk(*files[0])[start - rows[0] * height : stop - rows[0] * height]
                return values if values.shape[1:] == self.shape[1:] else values[:, : self.shape[1]].copy()
            out = np.empty((stop - start, *self.shape[1:]), self.dtype)

            def fill(part: tuple[Place, int, int]) -> None:
                file, row, column = part
                low, high = max(start, row * height), min(stop, (row + 1) * height)
                target = out[low - start : high - start]
                values = self._chunk(file, row, column)[low - row * height : high - row * height]
                if self.ndim == 2:
                    target = target[:, column * width : (column + 1) * width]
                    values = values[:, : target.shape[1]]
                target[...] = values

            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(fill, files))
            return out
        finally:
            if self._check is not None:
                self._check()

    def _chunk(self, file: Place, row: int, column: int) -> np.ndarray:
        """Return a chunk, in its full shape; no compressor adds more than a 64th and a megabyte."""
        from numcodecs import blosc, zstd
        from numcodecs.checksum32 import CRC32C

        values = np.empty(self.array.chunks, self.dtype)
        start, stop = row * self.array.chunks[0], min((row + 1) * self.array.chunks[0], self.shape[0])
        effect = f"rows {start} to {stop} of {self.place.name} cannot be read"
        with decoding(lambda reason: corrupt(file, f"is damaged: {effect} ({reason})")):
            try:
                content = np.frombuffer(file.read(values.nbytes + values.nbytes // 64 + (1 << 20)), np.uint8)
            except (FileNotFoundError, NotADirectoryError):
                raise corrupt(file, f"is missing: {effect}") from None
            content, checksum = content[:-4], content[-4:].tobytes()
            if CRC32C.checksum(content) != int.from_bytes(checksum, "little"):
                raise ValueError("wrong checksum")
            if stated_size(self.array.compressor, content[:18].tobytes()) != values.nbytes:
                raise ValueError("it does not decompress to a chunk")
            position = 8 * (row * -(-self.shape[-1] // self.chunks[-1]) + column if self.ndim == 2 else row)
            if self._sums and self._sums[position : position + 8] != checksum.hex():
                raise ValueError("it is a chunk of another place or store")
            codec = zstd if self.array.compressor == "zstd" else blosc
            codec.decompress(content, values)
        return values

    def write(self, start: int, values: np.ndarray) -> ChunkSums:
        """Write whole chunks of entries, or rows, from ``start`` on; the last ones may end with the array.

        A chunk may be written twice. Returns the digests of the rows of chunks.
        """
        from numcodecs import blosc, zstd
        from numcodecs.checksum32 import CRC32C

        blosc.use_threads = False  # as Zarr has it: there is an engine around
        height, *width = self.array.chunks
        digests = {}
        for offset in range(0, len(values), height):
            rows = np.ascontiguousarray(values[offset : offset + height], self.dtype)
            row, sums = (start + offset) // height, ""
            for column, file in enumerate(self.files_of(row)):
                chunk = rows[:, column * width[0] : (column + 1) * width[0]] if width else rows
                if chunk.shape != self.array.chunks:
                    part = chunk
                    chunk = np.full(self.array.chunks, self.array.metadata()["fill_value"], self.dtype)
                    chunk[tuple(map(slice, part.shape))] = part
                if self.array.compressor == "zstd":
                    packed = zstd.compress(np.ascontiguousarray(chunk), 1)
                else:
                    packed = blosc.compress(chunk, b"lz4", 5, blosc.SHUFFLE, 0)
                checksum = CRC32C.checksum(np.frombuffer(packed, np.uint8)).to_bytes(4, "little")
                file.write(packed, checksum)
                sums += checksum.hex()
            digests[self.place.name, row] = rows_digest(self.place.name, row, rows, self.array.chunks), sums
        return digests


class ArrayAppender:
    """Appends to an array of entries, whose length is known at the end; keeps the last part and one chunk."""

    def __init__(self, place: Place, array: Array) -> None:
        """Take an ``array`` of any length: chunks do not depend on it."""
        self._stored = StoredArray(place, array)
        self._pending: list[np.ndarray] = []
        self.n_appended: int = 0
        self._n_written = 0
        self.chunk_sums: ChunkSums = {(place.name, 0): (0, "")}  # of no chunks

    def append(self, part: np.ndarray) -> None:
        """Write complete chunks and keep the rest."""
        self._pending.append(part)
        self.n_appended += len(part)
        if self.n_appended - self._n_written >= self._stored.array.chunks[0]:
            self._write(self.n_appended - self.n_appended % self._stored.array.chunks[0])

    def close(self, array: Array) -> None:
        """Write the rest of the array, and its metadata."""
        self._stored = StoredArray.create(self._stored.place, array)
        self._write(self.n_appended)

    def _write(self, stop: int) -> None:
        """Write the entries before ``stop``, whole chunks or the last ones."""
        pending = np.concatenate([np.empty(0, self._stored.dtype), *self._pending], dtype=self._stored.dtype)
        n_whole = stop - self._n_written
        self.chunk_sums |= self._stored.write(self._n_written, pending[:n_whole])
        self._pending, self._n_written = [pending[n_whole:].copy()], stop


def stated_size(compressor: str, head: bytes) -> int | None:
    """Return the size after decompression that a chunk states; 0 of what is damaged, as the codec reports."""
    if compressor != "zstd":
        return int.from_bytes(head[4:8], "little")
    if head[:4] != b"\x28\xb5\x2f\xfd":
        return 0
    flags = head[4] if len(head) > 4 else 0
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    offset = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(head[offset : offset + width], "little") + (256 if width == 2 else 0)
    return size if width else None


def rows_digest(name: str, row: int, values: np.ndarray, chunks: tuple[int, ...]) -> int:
    """Return a number that depends on a row of chunks of an array, and on their places in the store.

    The digest of a store is the sum over its chunks modulo 2^64, so that blocks may be written in any order.
    """
    total = 0
    width = chunks[1] if values.ndim == 2 else 1
    for offset in range(0, values.shape[1] if values.ndim == 2 else 1, width):
        part = values[:, offset : offset + width] if values.ndim == 2 else values
        position = (row, offset // width) if values.ndim == 2 else (row,)
        crc = zlib.crc32(np.ascontiguousarray(part, part.dtype.newbyteorder("<")).data.cast("B"))
        text = f"{name} {position} {part.shape} {part.dtype.name} {crc}"
        total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return total


def seals_of(*arrays: ChunkSums) -> dict[str, Any]:
    """Return the entries of a head that seal its arrays, the last of which is of ids."""
    crc32c: dict[str, str] = {}
    for (name, _), (_, sums) in sorted(chain.from_iterable(chunks.items() for chunks in arrays)):
        crc32c[name] = crc32c.get(name, "") + sums
    digests = (digest for chunks in arrays[:-1] for digest, _ in chunks.values())
    return {"digest": digest_text(sum(digests)), "crc32c": crc32c}


def digest_text(total: int) -> str:
    """Return a digest of a store as the head has it."""
    return f"{total % 2**64:016x}"


def read_metadata(place: Place) -> dict[str, Any]:
    """Return the metadata of the array or group at ``place``; only its format is checked."""
    try:
        metadata = read_json(place / METADATA, 1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(f"{place} is no Zarr version 3 array; check the path.", path=place) from None
    if not isinstance(metadata, dict) or metadata.get("zarr_format") != 3:
        raise corrupt(place, "is not Zarr version 3", "rewrite it with zarr_format=3.")
    return metadata


class ZarrArray:
    """An array of one or two dimensions that was not written by bigcons, read by Zarr when it is sliced."""

    def __init__(self, place: Place) -> None:
        """Open it; raises CorruptStoreError for damage, codecs outside `CODECS`, and chunks above 2 GiB."""
        names = _codec_names(read_metadata(place).get("codecs", []))
        if not set(names) <= set(CODECS):
            fault = f"uses codecs that are not supported ({', '.join(names)})"
            raise corrupt(place, fault, "rewrite it with zstd, or pass it as an array.")
        import zarr  # a fifth of a second

        self.place = place
        broken = "is damaged, or no array of numbers"
        remedy = "restore it, or pass the array that you can read."
        decoded = decoding(lambda reason: corrupt(place, f"{broken} ({reason})", remedy))
        with decoded, place.for_zarr() as store:
            self._array = zarr.open_array(store=store, mode="r", zarr_format=3)
            self.shape: tuple[int, ...] = self._array.shape
            self.dtype: np.dtype = self._array.dtype
            self.attrs: dict[str, Any] = dict(self._array.attrs)
            self.chunks: tuple[int, ...] = self._array.shards or self._array.chunks
            if len(self.shape) not in (1, 2) or min(self.shape) < 0 or self.dtype.kind not in "biuf":
                raise ValueError(f"{self.dtype} of shape {self.shape}")
            if not 0 < np.prod((*self.chunks, self.dtype.itemsize), dtype=object) <= MAX_CHUNK_BYTES:
                raise ValueError(f"chunks of {self.chunks}, of no size or above 2 GiB")

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return rows; raises CorruptStoreError if a chunk is missing that Zarr would take for zeros.

        With another fill value, which somebody chose, a missing chunk holds that value.
        """
        place, fault = self.place, f"is damaged: rows {rows.start} to {rows.stop} cannot be read"
        remedy = "restore it, or write empty chunks, too, as Zarr does with write_empty_chunks=True."
        with decoding(lambda reason: corrupt(place, f"{fault} ({reason})", remedy)), place.for_zarr():
            spans = [rows.indices(self.shape[0])[:2], *((0, n) for n in self.shape[1:])]
            parts = (range(a // c, -(-b // c)) for (a, b), c in zip(spans, self.chunks, strict=True))
            keys = () if self._array.fill_value else product(*parts)
            for key in map(self._array.metadata.encode_chunk_key, keys):
                if not ((place / key).stamp() or (0,))[0]:
                    raise ValueError(f"chunk {key} is missing or empty")
            return np.asarray(self._array[rows])


def _codec_names(codecs: Any) -> list[str]:
    """Return the names of all codecs, including those inside shards."""
    names: list[str] = []
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        names.append(str(codec.get("name") if isinstance(codec, dict) else codec))
        inner = codec.get("configuration") if isinstance(codec, dict) else None
        for key in ("codecs", "index_codecs"):
            if isinstance(inner, dict) and key in inner:
                names += _codec_names(inner[key])
    return names
