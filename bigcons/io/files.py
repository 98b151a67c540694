"""Sources in files: .npy, .csv, .tsv, .parquet and .zarr, one or many. Pickles are never loaded."""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.arrays import METADATA, ZarrArray
from bigcons.disk.commit import PARQUET, head_of, is_store, names_parquet
from bigcons.disk.files import READ_AHEAD, Place, StorePath, check_file, open_file
from bigcons.disk.places import DiskPlace, place_of
from bigcons.errors import (
    BigconsError,
    DamagedFileError,
    InvalidInputError,
    StoreNotFoundError,
    first_line,
)
from bigcons.io.batches import Rows, Source, array_source, count_rows, pandas_index, sliced, with_index
from bigcons.io.columns import MISSING_WORDS, Selection, loose_number, missing_rule, source_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.disk.buckets import BucketPlace

    File = Path | BucketPlace
    """A file or folder, on a disk or in a bucket."""

IN_MEMORY = "in memory"

_COMPRESSED = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_TABS = tuple(f".tsv{suffix}" for suffix in _COMPRESSED)
_CSV = (*(f".csv{suffix}" for suffix in _COMPRESSED), *_TABS)
KNOWN = ".npy, .csv, .tsv (or either with .gz, .bz2 or .zst), .parquet, .h5ad or .zarr (version 3)"
"""What files may be, in words."""

_NO_TEXT = (b"PK\3\4", b"<!DOCTYPE", b"<html", b"<?xml", b'[{"', b'{"', b"version https://git-lfs")
"""How files begin that are no CSV, but that the reader of CSV would take for such."""


# Paths


def file_of(path: StorePath | File) -> File:
    """Return the file or folder at a path, as it is given, or at a URL."""
    given: Any = path
    place: Any = place_of(path)
    return Path(given) if isinstance(place, DiskPlace) else place


def open_path(source: StorePath | File, role: str, how: Selection) -> Source:
    """Return the source of the file, folder, pattern or Zarr array at a path or URL."""
    place, path = place_of(source), file_of(source)
    name = path.name.lower()
    if (place / METADATA).is_file():
        return array_source(ZarrArray(place), str(place))
    refuse_missing(place)
    if role == "pairs" or name.endswith(".npy"):
        refuse_bucket(path)
    if not place.exists():
        return open_files(matching(place), role, how, str(place))
    if path.is_dir():
        if files := _files_in(path):
            return open_files(files, role, how, str(path))
        raise InvalidInputError(
            f"{path} is a folder without tables, or a Zarr array of version 2; pass files, or a pattern."
        )
    if isinstance(path, Path) and name.endswith(".npy"):
        return _open_npy(path)
    if name.endswith(PARQUET):
        return parquet_source(path)
    if name.endswith(_CSV) or how.sep is not None:
        return csv_source(path, str(path), role, how)
    raise InvalidInputError(f"{path} has suffix {path.suffix!r}; use {KNOWN}, or name sep= (--sep) for text.")


def open_files(paths: Sequence[File], role: str, how: Selection, where: str | None = None) -> Source:
    """Return the source of the rows of several files, one after another."""
    if not paths:
        raise StoreNotFoundError(f"no file matches {where}; check the path.", path=where)
    if len(paths) == 1:
        return open_path(paths[0], role, how)
    source = joined([open_path(path, role, how) for path in paths], where)
    if role == "labels" and (source.n_columns == 1 or source.names is None):
        raise InvalidInputError(
            f"{source.where} has {len(paths)} files of one column, or without names; pass them to Ensemble."
            "from_runs([...]) (bigcons import --runs) if each is a partition, else one file of all rows."
        )
    return source


def refuse_bucket(path: StorePath | File) -> None:
    """Raise InvalidInputError for a URL of what is read from a disk only."""
    if not isinstance(place := place_of(path), DiskPlace):
        raise InvalidInputError(f"{place} cannot be read from a bucket; copy it, or use Parquet.")


def refuse_missing(path: StorePath | Place) -> None:
    """Raise StoreNotFoundError for a path where nothing is and that is no pattern."""
    place = place_of(path)
    if not place.exists() and not glob.has_magic(str(place)):
        raise StoreNotFoundError(f"{place} does not exist; check the path.", path=place)


def matching(place: Place) -> list[File]:
    """Return the files that match a pattern: in a bucket of one folder."""
    if isinstance(place, DiskPlace):
        files: Any = map(Path, glob.iglob(str(place), recursive=True))  # noqa: PTH207 - may begin anywhere
    else:
        names = place.sibling("").names()
        files = (place.sibling(name) for name in names if fnmatchcase(name, place.name))
    return sorted(files, key=_natural_order)


def _files_in(folder: File) -> list[File]:
    """Return the files of a folder that have a table, of Parquet or of text; raises for both."""
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    parquet, text = ([p for p in files if p.name.lower().endswith(ends)] for ends in (PARQUET, _CSV))
    if parquet and text:
        raise InvalidInputError(f"{folder} has files of Parquet and of text; pass '{folder}/*.csv'.")
    return sorted(parquet or text, key=_natural_order)


def _natural_order(path: File) -> tuple[list[tuple[int, str]], str]:
    """Sort ``part.10`` after ``part.9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], path.name


def is_parquet(path: StorePath) -> bool:
    """Return whether ``path`` is a file of this suffix, or a folder of such, but no store of bigcons."""
    place = place_of(path)
    if not isinstance(place, DiskPlace) or is_store(place):
        return False
    return names_parquet(path) if place.is_file() else any(n.endswith(".parquet") for n in place.names())


def is_list_of_paths(x: Any) -> bool:
    """Return whether ``x`` is a list of paths to tables."""
    suffixes = (*PARQUET, *_CSV, ".npy", ".zarr", ".h5ad")
    return (
        isinstance(x, (list, tuple))
        and len(x) > 0
        and all(isinstance(p, os.PathLike) or str(p).lower().endswith(suffixes) for p in x)
    )


# Provenance


def describe(source: Any) -> str:
    """Return in words what a table is made of: paths, or the type of what is in memory."""
    source = source_of(source)
    if is_list_of_paths(source):
        return ", ".join(map(describe, source))
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__


def origin(source: Any) -> str:
    """Return the paths that a table is read from, or "in memory"."""
    source = source_of(source)
    is_read = isinstance(source, (str, os.PathLike)) or is_list_of_paths(source)
    return describe(source) if is_read else IN_MEMORY


def provenance_of_files(source: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of what is made of a table: its source, the options ``given``, and its version.

    The version of a file, of the files of a folder or a pattern, or of several, tells whether they have
    changed: it is a checksum of their names, sizes and times of change.
    Other sources have none.
    """
    if isinstance(source, Selection):
        given, source = {"sep": source.sep, **given}, source.source
    plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in given.items()}
    options = {name: str(value) for name, value in plain.items() if value is not None}
    made: dict[str, Any] = {"source": describe(source), "options": options}
    versions = [_versions_of(path) for path in (source if isinstance(source, (list, tuple)) else [source])]
    if versions and all(versions):
        made["version"] = f"{zlib.crc32(repr(list(chain(*versions))).encode()):08x}"
    return made


def _versions_of(source: Any) -> list[Any]:
    """Return what tells whether the files at a path have changed; nothing without files there."""
    source = source_of(source)
    if not isinstance(source, (str, os.PathLike)):
        return []
    place, path = place_of(source), file_of(source)
    if path.is_file():
        files = [path]
    elif not place.exists():
        files = matching(place)
    else:
        files = [file_of(str(head_of(place)))] if is_store(place) else _files_in(path)
        if isinstance(path, Path) and not files:
            files = [*sorted(file for file in path.rglob("*") if file.is_file())]
    if not all(file.is_file() for file in files):
        return []
    stamps = [
        (file.stat().st_size, file.stat().st_mtime_ns) if isinstance(file, Path) else (file.stamp(),)
        for file in files
    ]
    return [(str(file), *stamp) for file, stamp in zip(files, stamps, strict=True)]


# Arrays


def _open_npy(path: Path) -> Source:
    """Return the source of a ``.npy``, of which a one-dimensional array is one column.

    It is read, not memory-mapped, because a map counts as memory, and ends the process if the file is cut.
    """
    check_file(path)
    with reading(path, ".npy of numbers or fixed-width text (pickles are never loaded)"):
        header = np.lib.format.open_memmap(path, mode="r")
        if not header.dtype.itemsize:
            raise ValueError("its type holds nothing")
    source = array_source(header.reshape(-1, 1) if header.ndim == 1 else header, str(path))
    n_rows, width, dtype, begin = len(header), source.n_columns, header.dtype, header.offset
    by_columns = not header.flags.c_contiguous
    del header

    def values(first: int, count: int) -> np.ndarray:
        values = np.fromfile(path, dtype, count, offset=begin + first * dtype.itemsize)
        if len(values) < count:
            raise InvalidInputError(f"{path} is truncated; write the file again.")
        return values

    def read(start: int, stop: int, columns: Sequence[int]) -> Rows:
        if by_columns:
            return np.stack([values(c * n_rows + start, stop - start) for c in columns], axis=1)
        rows = values(start * width, (stop - start) * width).reshape(stop - start, width)
        return rows if list(columns) == list(range(width)) else rows[:, list(columns)]

    source.load = sliced(read)
    return source


# Text


def csv_source(path: File, where: str, role: str, how: Selection) -> Source:
    """Return values separated by commas or tabs, plain or compressed, read as a stream.

    Labels are read as text, each cell as it is; otherwise column types are inferred from the first megabyte,
    and whole numbers are read as floats but of pairs. Seeking parses all before.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow

    separator = how.sep or ("\t" if path.name.lower().endswith(_TABS) else ",")
    with reading(where, "CSV"):
        names, width, n_skipped = _head_of(path, where, separator, how.header)
    places = [str(c) for c in range(width)]

    def open_text(types: Sequence[pa.DataType], columns: Sequence[int], *, as_text: bool) -> Any:
        missing = [*MISSING_WORDS, *missing_rule(how.missing).more_words]
        if as_text:  # an empty line of a single column may be an object without a value
            missing = [""] if width == 1 else []
        return arrow.open_csv(
            _content_of(path),
            read_options=arrow.ReadOptions(
                use_threads=not as_text and role != "pairs",
                block_size=1 << 20,
                column_names=places,
                skip_rows=n_skipped,
            ),
            parse_options=arrow.ParseOptions(delimiter=separator, ignore_empty_lines=width > 1),
            convert_options=arrow.ConvertOptions(
                decimal_point=how.decimal or ".",
                column_types=dict(zip(places, types, strict=False)),
                null_values=missing,
                strings_can_be_null=True,
                quoted_strings_can_be_null=not as_text,
                include_columns=[places[c] for c in columns],
            ),
        )

    def source_of(types: Sequence[pa.DataType], *, as_text: bool) -> Source:
        def load(_: int, __: int, columns: Sequence[int], *___: int) -> Iterator[tuple[int, Rows]]:
            first = 0
            with reading(where, "CSV"), open_text(types, columns, as_text=as_text) as batches:
                for batch in batches:
                    texts = [column for column in batch.columns if column.type == pa.large_string()]
                    if any(pc.any(pc.match_substring(column, "\0")).as_py() for column in texts):
                        raise InvalidInputError(f"{where} has NUL bytes, as after a crash; write it again.")
                    if as_text and width == 1 and batch.columns[0].null_count:
                        row = first + batch.columns[0].is_null().index(True).as_py()
                        raise InvalidInputError(
                            f'{where} has an empty line in place of row {row} (from 0); write NA or "" '
                            "there, or delete it."
                        )
                    yield first, batch.columns
                    first += batch.num_rows

        made = Source(where, names, width, [None], load, 64.0, types=lambda: types)
        made.of_text, made.is_text = True, as_text
        # measured: the threaded reader is about 32 blocks ahead
        made.fixed_bytes = 0 if as_text or role == "pairs" else 64 << 20
        return made

    source = text = source_of([pa.large_string()] * width, as_text=True)
    if role != "labels":
        with reading(where, "CSV"), open_text([], range(width), as_text=False) as batches:
            types = batches.schema.types
        number = pa.int64() if role == "pairs" else pa.float64()  # whole ones may have fractions further down
        types = [number if pa.types.is_integer(t) or pa.types.is_null(t) else t for t in types]
        source = source_of([pa.large_string() if t == pa.string() else t for t in types], as_text=False)
        source.text = text
    return with_index(source, 0 if names is not None and names[0] == "" else None)


@contextmanager
def reading(where: object, kind: str) -> Iterator[None]:
    """Raise DamagedFileError, with the path before the reason, for a file that is not of its kind."""
    try:
        yield
    except (PermissionError, BigconsError):
        raise
    except Exception as error:  # parsers meet what was made to harm with errors of many types
        remedy = "write it again"
        if "conversion error" in str(error):
            remedy = "name in missing= of bigcons.select (--missing) what stands for no value, else fix it"
        elif "UTF8" in str(error) or isinstance(error, UnicodeDecodeError):
            remedy = "write it in UTF-8, as iconv -t UTF-8 does"
        raise DamagedFileError(
            f"{where} cannot be read as {kind} ({first_line(error)}); {remedy}.", path=where
        ) from None


def _content_of(path: File) -> Any:
    """Return the content of a file as a stream, decompressed by its suffix."""
    import pyarrow as pa

    if isinstance(path, Path):
        check_file(path)
    content = path if isinstance(path, Path) else path.open("rb")
    return pa.input_stream(content, compression=_COMPRESSED.get(path.suffix.lower()))


def _head_of(
    path: File, where: str, separator: str, header: bool | None
) -> tuple[list[str] | None, int, int]:
    """Return names and number of columns, and the lines that are skipped, as the first two lines say.

    The first column may have no name, "", if it has the names of the rows. A first line with a number may be
    an object as well: it is refused unless ``header`` says what it is.
    """
    with _content_of(path) as content:
        head = content.read(1 << 23)
    if head.removeprefix(b"\xef\xbb\xbf").startswith(_NO_TEXT) or b"\0" in head[: 1 << 16]:
        raise InvalidInputError(
            f"{where} is no CSV, but begins with {head[:12]!r} or has NUL bytes; get or save it as CSV."
        )
    end = head.rfind(b"\n") + 1
    reader = csv.reader(io.StringIO(head[: end or None].decode("utf-8-sig"), newline=""), delimiter=separator)
    lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in islice(filter(None, reader), 2)]
    if not lines:
        raise InvalidInputError(f"{where} is empty; write one line per object.")
    (n_first, names), (_, second) = lines[0], lines[-1]
    marks = [mark for mark in ";\t|, " if mark in names[0] and mark in "".join(second)]
    if len(names) == 1 and marks and (marks[0] != " " or loose_number(second[0].split()[0]) is not None):
        raise InvalidInputError(
            f"{where} begins with {names[0][:40]!r}, of which {marks[0]!r} may separate columns; pass "
            f"sep={marks[0]!r} of bigcons.select (--sep {marks[0]!r}), or another."
        )
    if header is False:
        return None, len(names), 0
    has_rows = names[0] == "" and len(second) > 1 and loose_number(second[0]) is None
    has_numbers = any(loose_number(name) is not None for name in names) and not has_rows
    if header is None and (has_numbers or all(name in MISSING_WORDS for name in names)):
        raise InvalidInputError(
            f"{where} begins with the line {','.join(names)[:60]}, which may be a header or an object; pass "
            "header=True (--header) if it has names, header=False (--no-header) if it has values."
        )
    if "" in names[1:] or len(second) != len(names):
        raise InvalidInputError(
            f"{where} has a header of {len(names)} columns, one without a name, or not the {len(second)} of "
            "the next line; name all but that of the names of rows, or pass header=False (--no-header)."
        )
    return names, len(names), n_first


# Many files


def joined(sources: Sequence[Source], where: str | None = None) -> Source:
    """Return the rows of several sources of the same columns, one after another."""
    first = sources[0]
    for source in sources:
        if (source.names or source.n_columns, source.index is None) != (
            first.names or first.n_columns,
            first.index is None,
        ):
            raise InvalidInputError(
                f"{source.where} has other columns than {Path(first.where).name}, or another order; write "
                "all alike, or pass them to Ensemble.from_runs([...]) (--runs) if each is a partition."
            )

    def load(
        part: int, rows: int, columns: Sequence[int], start: int, stop: int
    ) -> Iterator[tuple[int, Rows]]:
        source = sources[part]
        first = 0 if source.n_rows is None else start
        for batch in source.batches(rows, first, stop, columns):
            yield first, batch
            first += count_rows(batch)

    def types() -> list[pa.DataType]:
        """Return text where any of the sources has text."""
        import pyarrow as pa

        kinds_of_columns = zip(*(source.column_types() or [] for source in sources), strict=True)
        return [next(filter(pa.types.is_large_string, kinds), kinds[0]) for kinds in kinds_of_columns]

    where = where or f"{first.where} and {len(sources) - 1} more"
    lengths = [source.n_rows for source in sources]
    made = Source(where, first.names, first.n_columns, lengths, load, max(s.column_bytes for s in sources))
    made.types = None if any(source.types is None for source in sources) else types
    made.is_text, made.of_text, made.is_named = first.is_text, first.of_text, first.is_named
    made.fixed_bytes = max(source.held_bytes for source in sources)
    for name in ("text", "index"):
        if None not in (parts := [getattr(source, name) for source in sources]):
            setattr(made, name, joined(parts, where))
    return made


# Parquet


def parquet_source(path: File) -> Source:
    """Return a Parquet file, of which row groups outside the rows that are wanted are not read."""
    with _parquet(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
        columns = [[group.column(c) for c in range(group.num_columns)] for group in groups]
    # pages compressed, decompressed and decoded: of data and a dictionary, usually a megabyte each
    held = [sum(min(3 * int(c.total_uncompressed_size), 5 << 19) for c in group) for group in columns]
    if not isinstance(path, Path):
        ahead = [sum(min(int(c.total_compressed_size), 1 << 20) for c in group) for group in columns]
        held = [READ_AHEAD + sum(both) for both in zip(held, ahead, strict=True)]
    group_rows = [group.num_rows for group in groups]
    ends = np.cumsum(group_rows)

    def load(_: int, rows: int, places: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, Rows]]:
        chosen = np.flatnonzero((ends > start) & (ends - group_rows < stop)).tolist()
        first = int(ends[chosen[0]]) - group_rows[chosen[0]] if chosen else 0
        names = [schema.names[c] for c in places]
        with _parquet(path) as file:
            for batch in file.iter_batches(rows, row_groups=chosen, columns=names, use_threads=False):
                yield first, [batch.column(name) for name in names]
                first += batch.num_rows

    source = Source(str(path), schema.names, len(schema.names), [sum(group_rows)], load, 24.0)
    source.types, source.fixed_bytes = lambda: schema.types, max(held, default=0)
    return with_index(source, pandas_index(schema))


@contextmanager
def _parquet(path: File) -> Iterator[Any]:
    """Open a Parquet file; a small buffer streams column chunks instead of loading them."""
    from pyarrow import parquet

    if isinstance(path, Path):
        check_file(path)
    content, at_once = (path, 1 << 16) if isinstance(path, Path) else (path.open("rb", 0), 1 << 20)
    how: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
    with reading(path, "Parquet"), parquet.ParquetFile(content, buffer_size=at_once, **how) as file:
        yield file


def footer_of(path: Path) -> bytes:
    """Return the metadata at the end of a Parquet file: schema, sizes and statistics of all its pages."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))  # of a file that was cut, there may be less
        n_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - n_bytes, 0))
        return file.read()
