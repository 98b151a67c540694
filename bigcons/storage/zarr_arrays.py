"""Zarr arrays, opened with care: version 3 only, a short list of codecs, checked before any is run."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreError, StoreNotFoundError
from bigcons.storage.place import Place
from bigcons.storage.zarr_stores import SharingStore

CODECS = ("bytes", "zstd", "crc32c", "blosc", "gzip", "transpose", "sharding_indexed")
"""The codecs a store may name: none of them runs code from the data."""
MAX_METADATA_BYTES = 1 << 20
MAX_CHUNK_BYTES = 1 << 31
METADATA = "zarr.json"


def create_array(
    place: Place,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype,
    fill_value: int | float,
    dims: Sequence[str],
) -> zarr.Array:
    """Create an empty array at ``place``: zstd level 1, then crc32c over what is written."""
    return zarr.create_array(
        store=place.for_zarr(read_only=False),
        shape=shape,
        chunks=chunks,
        dtype=dtype.name,
        fill_value=fill_value,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        dimension_names=list(dims),
        zarr_format=3,
        config={"write_empty_chunks": True},
    )


def bytes_kept_by_decoding(chunk_bytes: int) -> int:
    """Return what a process that reads chunks of this size comes to keep of memory that it freed.

    Zarr decodes on threads of its own, any of which may come to decode a chunk, and glibc keeps for each what
    it freed: the chunk and the same compressed, together half as much again as the chunk.
    """
    n_threads = zarr.config.get("threading.max_workers") or min(32, (os.cpu_count() or 1) + 4)
    return int(n_threads) * chunk_bytes * 3 // 2


def create_group(place: Place) -> None:
    """Make ``place`` a Zarr group, so that other tools find the arrays in it."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    (place / METADATA).write(json.dumps(group).encode())


def open_array(
    place: Place, elsewhere: Mapping[str, Place] | None = None, *, read_only: bool = True
) -> zarr.Array:
    """Open the array at ``place``; of chunks that lie in other arrays, ``elsewhere`` says which.

    Raises StoreNotFoundError, or CorruptStoreError for damaged metadata, links that leave the store,
    codecs outside ``CODECS`` and chunks above 2 GiB.
    """
    metadata = read_metadata(place)
    names = set(codec_names(metadata.get("codecs", [])))
    if unknown := sorted(names - set(CODECS)) or metadata.get("storage_transformers"):
        raise CorruptStoreError(f"{place} names codecs that are not read: {unknown}; rewrite it with zstd.")
    try:
        store = place.for_zarr(read_only=read_only)
        if elsewhere:
            others = {key: other.for_zarr(read_only=True) for key, other in elsewhere.items()}
            store = SharingStore(store, others)
        array = zarr.open_array(store=store, mode="r" if read_only else "r+", zarr_format=3)
    except StoreError:
        raise
    except Exception as error:  # damaged metadata surfaces as an error of almost any type
        raise damaged(place, error) from None
    if int(np.prod(array.chunks, dtype=object)) * array.dtype.itemsize > MAX_CHUNK_BYTES:
        raise CorruptStoreError(
            f"{place} declares chunks of {array.chunks}, above 2 GiB; rewrite it with less."
        )
    return array


def open_matrix(place: Place) -> zarr.Array:
    """Open a Zarr array from outside, or the only array of a group, as a source of labels."""
    if read_metadata(place).get("node_type") == "group":
        members = [place / name for name in place.names() if (place / name / METADATA).is_file()]
        named = [entry for entry in members if entry.name == "labels"]
        if len(named or members) != 1:
            raise InvalidInputError(
                f"{place} is a group of {len(members)} arrays; give the path of the one with the labels."
            )
        place = (named or members)[0]
    return open_array(place)


def read_metadata(place: Place) -> dict[str, Any]:
    """Return the metadata of the array or group at ``place`` without acting on it."""
    file = place / METADATA
    if place.is_link() or file.is_link():
        raise CorruptStoreError(f"{place} is a link that may leave the store; copy the data in its place.")
    try:
        metadata = json.loads(file.read(MAX_METADATA_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFoundError(f"{place} is not a Zarr version 3 array; check the path.") from None
    except (ValueError, RecursionError) as error:
        raise damaged(place, error) from None
    if not isinstance(metadata, dict) or metadata.get("zarr_format") != 3:
        raise CorruptStoreError(f"{place} is not Zarr version 3; rewrite it with zarr_format=3.")
    return metadata


def metadata_checksum(place: Place) -> int:
    """Return the crc32 of the array's metadata as it lies on disk."""
    return zlib.crc32((place / METADATA).read())


def codec_names(codecs: Any) -> list[str]:
    """Return the names of all codecs, those inside shards too."""
    names: list[str] = []
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        name = codec.get("name") if isinstance(codec, dict) else codec
        names.append(str(name))
        inner = codec.get("configuration") if isinstance(codec, dict) else None
        for key in ("codecs", "index_codecs"):
            if isinstance(inner, dict) and key in inner:
                names += codec_names(inner[key])
    return names


def damaged(place: Place, error: Exception) -> CorruptStoreError:
    """Return the one-line error for data at ``place`` that cannot be read."""
    reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
    return CorruptStoreError(f"{place} is damaged ({reason}); restore it from a copy.")
