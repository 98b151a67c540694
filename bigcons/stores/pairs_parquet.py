"""Pairs as Parquet: the form to exchange them with other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bigcons.errors import CorruptStoreError, InvalidInputError, StoreNotFoundError
from bigcons.storage.commit import new_file
from bigcons.storage.places import local_path
from bigcons.stores.symmetric import Edges
from bigcons.validation import check_int

_METADATA = b"bigcons.pairs"


def write(
    path: str | os.PathLike[str], parts: Iterable[Edges], facts: dict[str, Any], *, overwrite: bool
) -> None:
    """Write ``parts`` as row groups of one file, with ``facts`` in its metadata, all or nothing."""
    writer = None
    with new_file(path, overwrite=overwrite) as file:
        for part in parts:
            table = pa.table(part._asdict())
            if writer is None:
                schema = table.schema.with_metadata({_METADATA: json.dumps(facts, default=str).encode()})
                writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def read(path: str | os.PathLike[str], n_objects: int | None) -> tuple[Edges, dict[str, Any]]:
    """Return the columns of the file, as they stand, and its facts: n_objects and provenance."""
    if not local_path(path).is_file():
        raise StoreNotFoundError(f"{path} is not a file; check the path.")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema, metadata = file.schema_arrow, file.schema_arrow.metadata or {}
            _check_schema(path, schema)
            table = file.read(columns=list(Edges._fields))
    except (pa.ArrowException, OSError) as error:
        raise CorruptStoreError(
            f"{path} cannot be read as Parquet ({error}); export the pairs again."
        ) from error
    for name in Edges._fields:
        if table[name].null_count:
            raise InvalidInputError(
                f"{path}: column {name!r} has {table[name].null_count} nulls; give every pair its counts."
            )
    columns = Edges(*(table[name].to_numpy() for name in Edges._fields))
    return columns, _facts(path, metadata, n_objects)


def _check_schema(path: str | os.PathLike[str], schema: pa.Schema) -> None:
    for name in Edges._fields:
        places = schema.get_all_field_indices(name)
        if len(places) != 1 or not pa.types.is_integer(schema.field(places[0]).type):
            got = ", ".join(f"{field.name}: {field.type}" for field in schema)
            raise InvalidInputError(
                f"{path} has the columns {got}; the integer columns i, j, n_agree, n_seen are needed."
            )


def _facts(
    path: str | os.PathLike[str], metadata: dict[bytes, bytes], n_objects: int | None
) -> dict[str, Any]:
    try:
        facts = json.loads(metadata.get(_METADATA, b"{}"))
        stated, provenance = facts.get("n_objects"), dict(facts.get("provenance") or {"source": str(path)})
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptStoreError(f"{path} has damaged metadata; export the pairs again.") from error
    if n_objects is None and stated is None:
        raise InvalidInputError(f"{path} does not say how many objects there are; pass n_objects.")
    if None not in (n_objects, stated) and n_objects != stated:
        raise InvalidInputError(f"{path} is of n_objects={stated}, not {n_objects}; leave n_objects out.")
    n_objects = check_int("n_objects", stated if n_objects is None else n_objects, at_least=0)
    return {"n_objects": n_objects, "provenance": provenance}
