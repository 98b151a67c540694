"""Sources in files: .npy, .csv, .tsv, .parquet and .zarr, one or many. Pickles are never loaded."""

from __future__ import annotations

import copy
import csv
import glob
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from bigcons.disk.arrays import METADATA, read_metadata
from bigcons.disk.commit import PARQUET, head_of, is_store, names_parquet
from bigcons.disk.files import READ_AHEAD, Place, StorePath, check_file, open_file
from bigcons.disk.places import DiskPlace, place_of
from bigcons.errors import (
    DamagedFileError,
    InvalidInputError,
    StoreError,
    StoreNotFoundError,
    first_line,
    shown,
)
from bigcons.io.batches import (
    DEFAULT_READING,
    ArraySource,
    PartedSource,
    Reading,
    Rows,
    Source,
    check_matrix,
    is_index_name,
    pandas_index,
)
from bigcons.io.columns import INDEX, MISSING_WORDS, Selection, loose_number, number_of, source_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.disk.buckets import BucketPlace

    File = Path | BucketPlace
    """A file or folder, on a disk or in a bucket."""

STANDARD_INPUT = "standard input"
IN_MEMORY = "in memory"

_COMPRESSED = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_TABS = tuple(f".tsv{suffix}" for suffix in _COMPRESSED)
_CSV = (*(f".csv{suffix}" for suffix in _COMPRESSED), *_TABS)
KNOWN = ".npy, .csv, .tsv (or either with .gz, .bz2 or .zst), .parquet, .h5ad or .zarr (version 3)"
"""What files may be, in words."""

_COLUMN_BYTES = 1 << 20
"""What is read at once of each column of Parquet in a bucket."""

_NO_TEXT = (b"PK\3\4", b"<!DOCTYPE", b"<html", b"<?xml", b'[{"', b'{"', b"version https://git-lfs")
"""How files begin that are no CSV, but that the reader of CSV would take for such."""


def file_of(path: StorePath | File) -> File:
    """Return the file or folder at a path, as it is given, or at a URL."""
    given: Any = path
    place: Any = place_of(path)
    return Path(given) if isinstance(place, DiskPlace) else place


def open_path(source: StorePath | File, role: str, how: Reading = DEFAULT_READING) -> Source:
    """Return the source of the file, folder or Zarr array at a path or URL."""
    place = place_of(source)
    if (place / METADATA).is_file():
        return ArraySource(_open_zarr(place, role), str(place))
    refuse_missing(place)
    if not place.exists():
        return open_files(matching(place), role, str(place), how)
    path = file_of(source)
    where = STANDARD_INPUT if isinstance(source, StandardInput) else str(path)
    name, is_folder = path.name.lower(), path.is_dir()
    if role == "pairs":
        refuse_bucket(path)
    if is_folder and (found := _files_in(path)):
        return open_files(found, role, str(path), how)
    if isinstance(path, Path) and (not is_folder or name.endswith((".npy", *_CSV))):
        check_file(path)
    if is_folder and (path / ".zarray").exists():
        raise InvalidInputError(f"{path} is a Zarr array of version 2; write it as version 3.")
    if is_folder:
        pattern = f", or a pattern such as '{path}/**/*.parquet'" if isinstance(path, Path) else ""
        raise InvalidInputError(f"{path} is a folder without tables; pass its files{pattern}.")
    if name.endswith(".npy"):
        return ArraySource(NpyFile(path), str(path))
    if name.endswith(_CSV) or (how.sep is not None and not is_table_path(name)):
        return CsvSource(path, where, role, how)
    if name.endswith(PARQUET):
        return ParquetSource(path)
    raise InvalidInputError(
        f"{path} has suffix {path.suffix!r}; use {KNOWN}, or pass sep= of "
        "bigcons.select (--sep) for text of any suffix."
    )


def refuse_bucket(path: StorePath | File) -> None:
    """Raise InvalidInputError for a URL of what is read from a disk only."""
    if not isinstance(place := place_of(path), DiskPlace):
        raise InvalidInputError(
            f"{place} cannot be read from a bucket, as tables of labels and features in Parquet, CSV, .npy "
            "and Zarr can; copy it to a disk."
        )


def matching(place: Place) -> list[File]:
    """Return the files that match a pattern: in a bucket of one folder."""
    if isinstance(place, DiskPlace):
        found: Any = map(Path, glob.iglob(str(place), recursive=True))  # noqa: PTH207 - may begin anywhere
    elif glob.has_magic(str(place.sibling(""))):
        raise InvalidInputError(
            f"{place} is a pattern of folders, which are matched on a disk only; name the folder, or pass a "
            "list of its files."
        )
    else:
        names = place.sibling("").names()
        found = (place.sibling(name) for name in names if fnmatchcase(name, place.name))
    return sorted(found, key=natural_order)


def is_parquet(path: StorePath) -> bool:
    """Return whether ``path`` is a file of this suffix, or a folder of such files.

    A store of bigcons is none.
    """
    place = place_of(path)
    if not isinstance(place, DiskPlace) or is_store(place):
        return False
    if place.is_file():
        return names_parquet(path)
    return any(name.endswith(".parquet") for name in place.names())


class StandardInput(str):
    """The path of the file to which standard input was copied, with the CRC-32 of the content."""

    checksum: int


def describe(source: Any) -> str:
    """Return in words what a table is made of: paths, or the type of what is in memory."""
    if isinstance(source, Selection):
        return describe(source.source)
    if isinstance(source, StandardInput):
        return STANDARD_INPUT
    if is_list_of_paths(source):
        return ", ".join(map(describe, source))
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__


def origin(source: Any) -> str:
    """Return the paths that a table is read from, standard input, or "in memory"."""
    if isinstance(source, Selection):
        return origin(source.source)
    is_read = isinstance(source, (str, os.PathLike)) or is_list_of_paths(source)
    return describe(source) if is_read else IN_MEMORY


def provenance_of_files(source: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of what is made of a table: its source, the options ``given``, and its version.

    The version of a file, of the files of a folder or a pattern, or of several, tells whether they have
    changed: it is a checksum of their names, sizes and times of change, of standard input of its content.
    Other sources have none.
    """
    while isinstance(source, Selection):
        given = {"sep": source.sep, **given}
        source = source.source
    plain = {name: getattr(value, "tolist", lambda value=value: value)() for name, value in given.items()}
    options = {name: str(value) for name, value in plain.items() if value is not None}
    found = [_files_of(path) for path in (source if isinstance(source, (list, tuple)) else [source])]
    made: dict[str, Any] = {"source": describe(source), "options": options}
    if found and all(found):
        made["version"] = f"{zlib.crc32(repr(list(chain(*found))).encode()):08x}"
    return made


def _files_of(source: Any) -> list[Any]:
    """Return what tells whether the files at a path have changed; nothing without files there."""
    source = source_of(source)
    if isinstance(source, StandardInput):
        return [source.checksum]
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
    return [(str(file), *_version(file)) for file in files] if all(file.is_file() for file in files) else []


def _version(file: File) -> tuple[Any, ...]:
    """Return what changes when a file is written anew."""
    if isinstance(file, Path):
        return file.stat().st_size, file.stat().st_mtime_ns
    return (file.stamp(),)


def refuse_missing(path: StorePath | Place) -> None:
    """Raise StoreNotFoundError for a path where nothing is and that is no pattern."""
    place = place_of(path)
    if not place.exists() and not glob.has_magic(str(place)):
        raise StoreNotFoundError(f"{place} does not exist; check the path.", path=place)


def open_files(
    paths: Sequence[File], role: str, where: str | None = None, how: Reading = DEFAULT_READING
) -> Source:
    """Return the source of the rows of several files, one after another."""
    if not paths:
        raise StoreNotFoundError(f"no file matches {where}; check the path.", path=where)
    if all(path.name.lower().endswith(PARQUET) and not path.is_dir() for path in paths):
        source: ParquetSource | JoinedSource = ParquetSource(paths, where)
    elif len(paths) == 1:
        return open_path(paths[0], role, how)
    else:
        source = JoinedSource([open_path(path, role, how) for path in paths], where)
    if role == "labels" and len(paths) > 1:
        _refuse_runs(source, len(paths))
    return source


def _refuse_runs(table: ParquetSource | JoinedSource, n_files: int) -> None:
    """Raise InvalidInputError for files of one column or without names, which may be of the same objects."""
    if table.n_columns - (table.index_position is not None) == 1:
        raise InvalidInputError(
            f"{table.where} has {n_files} files of one column, which may be partitions or parts of one; "
            "pass them to Ensemble.from_runs([...]) (bigcons import --runs) if each is a partition, or "
            "one file of all rows if each has other objects."
        )
    if table.names is None:
        raise InvalidInputError(
            f"{table.where} has {n_files} files without names of columns, which may be of the same objects; "
            "append them to the ensemble of the first by append_partitions (bigcons append) if so, or "
            "write one file of all rows if each has other objects."
        )


def is_list_of_paths(x: Any, are_text: bool = False) -> bool:
    """Return whether ``x`` is a list of paths to tables, of any suffix if ``are_text`` files."""
    return (
        isinstance(x, (list, tuple))
        and len(x) > 0
        and all(
            isinstance(entry, os.PathLike) or (isinstance(entry, str) and (are_text or is_table_path(entry)))
            for entry in x
        )
    )


def is_table_path(name: str) -> bool:
    """Return whether text looks like the path of a file with a table."""
    return name.lower().endswith((*PARQUET, *_CSV, ".npy", ".zarr", ".h5ad"))


def _files_in(folder: File) -> list[File]:
    """Return the files of a folder that have a table, of Parquet or of text; raises for both."""
    seen = [path for path in folder.iterdir() if not path.name.startswith(".")]
    parquet, text = ([p for p in seen if p.name.lower().endswith(ends)] for ends in (PARQUET, _CSV))
    if parquet and text:
        raise InvalidInputError(
            f"{folder} has files of Parquet and of text, {parquet[0].name} and {text[0].name}; pass a "
            f"pattern, such as '{folder}/*{parquet[0].suffix}'."
        )
    return sorted(parquet or text, key=natural_order)


def _open_zarr(place: Place, role: str) -> Any:
    """Open a Zarr array, or the array of a group that is named ``role`` or is the only one."""
    from bigcons.disk.chunks import open_array  # imports Zarr

    if read_metadata(place).get("node_type") == "group":
        members = [name for name in place.names() if (place / name / METADATA).is_file()]
        chosen = [role] if role in members else members
        if len(chosen) != 1:
            raise InvalidInputError(
                f"{place} is a group of {len(chosen)} arrays; pass the path of the one with the {role}."
            )
        place = place / chosen[0]
    return open_array(place)


class NpyFile:
    """The matrix in a ``.npy`` file, of which rows are read when sliced; 1-D arrays are one column.

    It is read, not memory-mapped, because mapped pages count as memory of this process.
    """

    def __init__(self, path: File) -> None:
        self._path, self._version = path, _version(path)
        with path.open("rb") as file:
            self.dtype: np.dtype
            self.shape: tuple[int, int]
            self.dtype, self.shape, self._by_columns = _read_header(file, str(path))
            self._first_byte = file.tell()
        if self._first_byte + self.shape[0] * self.shape[1] * self.dtype.itemsize > size_of(path):
            raise self._cut()

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        n_rows, width = self.shape
        if _version(self._path) != self._version:
            raise StoreError(f"{self._path} has changed while it was read; read it again.", path=self._path)
        with self._path.open("rb") as file:
            if not self._by_columns:
                return self._values(file, start * width, (stop - start) * width).reshape(stop - start, width)
            columns = [self._values(file, c * n_rows + start, stop - start) for c in range(width)]
        return np.stack(columns, axis=1)

    def _values(self, file: IO[bytes], first: int, count: int) -> np.ndarray:
        file.seek(self._first_byte + first * self.dtype.itemsize)
        data = file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise self._cut()
        return np.frombuffer(data, self.dtype)

    def _cut(self) -> InvalidInputError:
        return InvalidInputError(f"{self._path} is truncated; write the file again.")


def _read_header(file: IO[bytes], where: str) -> tuple[np.dtype, tuple[int, int], bool]:
    try:
        version = np.lib.format.read_magic(file)
        is_old = version == (1, 0)
        begins = file.tell()
        if int.from_bytes(file.read(2 if is_old else 4), "little") > 1 << 20:
            raise ValueError("the header is too long")  # numpy would read it first
        file.seek(begins)
        read = np.lib.format.read_array_header_1_0 if is_old else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except Exception:  # the parser of Python meets a header made to harm with errors of many types
        raise InvalidInputError(f"{where} is not a .npy file; write it with numpy.save.") from None
    if dtype.itemsize == 0:
        raise InvalidInputError(f"{where} has type {dtype.str}, which holds nothing; save numbers or text.")
    if dtype.hasobject:
        raise InvalidInputError(
            f"{where} contains pickled objects, which are never loaded; save numbers or fixed-width text."
        )
    if len(shape) == 1:
        shape = (*shape, 1)
    check_matrix(shape, where)
    if min(shape) < 0:
        raise InvalidInputError(f"{where} has a negative shape; write it with numpy.save.")
    return dtype, (int(shape[0]), int(shape[1])), by_columns


class CsvSource(PartedSource):
    """Values separated by commas or tabs, plain or compressed, read as a stream; seeking parses all before.

    Labels are read as text, each cell as it is; otherwise column types are inferred from the first megabyte,
    and whole numbers are read as floats but of pairs.
    """

    of_text = True

    def __init__(self, path: File, where: str, role: str, how: Reading) -> None:
        import pyarrow as pa

        whole, self._role, self._path = role == "pairs", role, path
        self._delimiter = how.sep or ("\t" if path.name.lower().endswith(_TABS) else ",")
        self._decimal = how.decimal or "."
        self.is_text: bool = role == "labels"
        self._missing = [] if self.is_text else [*MISSING_WORDS, *how.missing]
        self._threads = not (self.is_text or whole)
        self.where = where  # of errors
        lines, self._skip_lines = self._first_lines()
        if len(lines[0]) > (most := 1 << 17):
            raise InvalidInputError(
                f"{where} has {len(lines[0]):,} columns, more than {most:,}; write it as Zarr."
            )
        _check_delimiter(lines, where, self._delimiter)
        names = _header_names(lines, where, how.header)
        if names is None:
            self._skip_lines = 0
        shape = (None, len(names or lines[0]))
        super().__init__(where, shape, names, column_bytes=64.0)
        if self.names and self.names[0] == "":
            self.names[0] = INDEX if INDEX not in self.names else ""
            self.take_index(0)
        self._width = self.n_columns
        self._types: dict[str, pa.DataType] = {str(c): pa.large_string() for c in range(self._width)}
        if not self.is_text:
            try:
                with self._reader(None, infer=True) as reader:
                    inferred = reader.schema
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(error) from None
            for field in inferred:  # whole numbers may have fractions further down
                is_whole = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
                number = pa.int64() if whole else pa.float64()
                self._types[field.name] = number if is_whole else field.type

    @property
    def held_bytes(self) -> int:
        """What the reader buffers ahead."""
        return 64 << 20 if self._threads else 0  # measured: the threaded reader is about 32 blocks ahead

    def column_types(self) -> list[pa.DataType]:
        """Return the types of the columns."""
        return [self._types[str(c)] for c in self._positions]

    def texts(self, position: int) -> Source:
        """Return a column as text; only an empty cell is missing."""
        import pyarrow as pa

        texts = copy.copy(self)
        texts.is_text, texts._missing, texts.lengths = True, [""], [None]
        texts._types = {str(c): pa.large_string() for c in range(self._width)}
        return texts.selected([position])

    def _load(self, part: int, rows: int, positions: Sequence[int]) -> Iterator[Rows]:  # noqa: ARG002 - one
        """Yield the batches of the file, whose size is fixed in bytes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            with self._reader(positions) as reader:
                row = 0
                for batch in reader:
                    for column in batch.columns:
                        is_text = column.type in (pa.string(), pa.large_string())
                        has_nul = is_text and pc.match_substring(column, "\0")
                        if has_nul and (first := has_nul.index(True).as_py()) >= 0:
                            raise self._not_text(f"row {row + first:,} (counted from 0)")
                    if self.is_text and self._width == 1 and batch.columns[0].null_count:
                        first = batch.columns[0].is_null().index(True).as_py()
                        raise InvalidInputError(
                            f"{self.where} has an empty line in place of row {row + first} (from 0); write "
                            'NA or "" there if it is an object without a label, else delete it.'
                        )
                    row += batch.num_rows
                    yield batch.columns
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from None

    def _first_lines(self) -> tuple[list[list[str]], int]:
        """Return the cells of the first three lines, but empty ones, and the number of the first of them."""
        import pyarrow as pa

        longest = 1 << 23
        try:
            with self._content() as content:
                head = content.read(longest)
            begins = head[:32].removeprefix(b"\xef\xbb\xbf")
            if begins.startswith(_NO_TEXT):
                raise InvalidInputError(
                    f"{self.where} is no CSV, but begins with {begins[:12]!r}; get or save it as CSV."
                )
            end = head.rfind(b"\n") + 1
            if len(head) == longest and not end:
                raise InvalidInputError(
                    f"{self.where} has a line of more than {longest:,} characters; write it as Parquet."
                )
            text = head[: end or None].decode("utf-8-sig")
            if "\0" in text[: 1 << 16]:
                raise self._not_text("one of its first lines")
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
            lines: list[list[str]] = []
            n_first = 0
            for cells in reader:
                if cells:
                    n_first = n_first or reader.line_num
                    lines.append([cell.strip() for cell in cells])
                if len(lines) == 3:
                    break
        except (csv.Error, OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise self._unreadable(error) from None
        if not lines:
            raise InvalidInputError(f"{self.where} is empty; write one line per object.")
        return lines, n_first

    def _content(self) -> Any:
        """Return the content of the file as a stream, decompressed by its suffix."""
        import pyarrow as pa

        compression = _COMPRESSED.get(self._path.suffix.lower())
        if isinstance(self._path, Path):
            check_file(self._path)
            return pa.input_stream(self._path, compression=compression)
        return pa.input_stream(self._path.open("rb"), compression=compression)

    def _reader(self, positions: Sequence[int] | None, *, infer: bool = False) -> Any:
        from pyarrow import csv as arrow

        names = [str(c) for c in range(self._width)]
        return arrow.open_csv(
            self._content(),
            read_options=arrow.ReadOptions(
                use_threads=self._threads,
                block_size=1 << 20,
                column_names=names,
                skip_rows=self._skip_lines,
            ),
            # an empty line of a single column may be an object without a value
            parse_options=arrow.ParseOptions(delimiter=self._delimiter, ignore_empty_lines=self._width > 1),
            convert_options=arrow.ConvertOptions(
                decimal_point=self._decimal,
                column_types={} if infer else self._types,
                null_values=[""] if self.is_text and self._width == 1 else self._missing,
                strings_can_be_null=True,
                quoted_strings_can_be_null=not self.is_text,
                include_columns=[] if positions is None else [names[c] for c in positions],
            ),
        )

    def _not_text(self, place: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where} has a NUL byte in {place}: it is no text, or was cut by a crash or a full disk; "
            "write it again."
        )

    def _unreadable(self, error: Exception) -> InvalidInputError:
        if "UTF8" in str(error) or isinstance(error, UnicodeDecodeError):
            head = error.object[:2] if isinstance(error, UnicodeDecodeError) else b""
            encoding = "UTF-16" if head in (b"\xff\xfe", b"\xfe\xff") else "CP1252"
            return InvalidInputError(
                f"{self.where} is not UTF-8 but perhaps {encoding}; write it in UTF-8, as does "
                f"iconv -f {encoding} -t UTF-8 FILE > NEW."
            )
        is_word = self._role == "features" and "conversion error" in str(error)
        remedy = (
            "name it in missing= of bigcons.select (--missing) if it stands for no value, else " * is_word
        )
        return InvalidInputError(
            f"{self.where} cannot be read as CSV ({first_line(error)}); {remedy}fix it or write it as "
            "Parquet."
        )


def _check_delimiter(head: list[list[str]], where: str, delimiter: str) -> None:
    """Raise InvalidInputError if the first line is a single cell with another separator in it.

    Blanks separate numbers only.
    """
    marks = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars", " ": "blanks"}
    for mark, name in marks.items():
        if mark == delimiter or len(head[0]) > 1 or mark not in head[0][0] or mark not in "".join(head[-1]):
            continue
        parts = head[-1][0].split()
        if mark == " " and (len(parts) == 1 or None in map(number_of, parts)):
            continue
        raise InvalidInputError(
            f"{where} begins with {head[0][0][:40]!r}, separated by {name}; pass sep={mark!r} of "
            f"bigcons.select (--sep {mark!r})."
        )


def _header_names(lines: list[list[str]], where: str, header: bool | None) -> list[str] | None:
    """Return the names of the columns in the first of the ``lines``; None with ``header=False``.

    The first column may have no name, "", if it has the names of the rows; it has none where there is a name
    less than the next line has cells, as write.table of R writes it. A first line with a number may be an
    object as well: it is refused unless ``header`` says what it is.
    """
    if header is False:
        return None
    first, second = lines[0], lines[1] if len(lines) > 1 else []
    is_short = len(second) == len(first) + 1 and second[-1] != ""
    names = ["", *first] if is_short else first
    if header is None and second and len(second) != len(first) and first[0].startswith("#"):
        raise InvalidInputError(
            f"{where} begins with a comment, {first[0]!r}; delete such lines, or pass header=True (--header) "
            "if it has names of columns."
        )
    values = [cell for cell in names[1 if names[0] == "" else 0 :] if loose_number(cell) is not None]
    is_named = names[0] == "" and len(second) > 1 and loose_number(second[0]) is None
    if header is None and ((values and not is_named) or all(cell in MISSING_WORDS for cell in names)):
        line = ",".join(first[:4] if len(first) <= 4 else [*first[:4], "..."])
        raise InvalidInputError(
            f"{where} begins with the line {line}, which may be a header or an object; pass header=True "
            "(--header) if these are names of columns, header=False (--no-header) if they are values."
        )
    if "" in names[1:]:
        raise InvalidInputError(
            f"{where} has no name for column {names.index('', 1)}; name it, or pass header=False "
            "(--no-header) if the first line is an object."
        )
    return list(names)


def _names_in(source: Source) -> list[str]:
    return [str(c) for c in range(source.n_columns)] if source.names is None else source.names


def _refuse_other_columns(first: str, names: Sequence[str], where: str, others: Sequence[str]) -> None:
    """Raise InvalidInputError unless two files have the same columns in the same order."""
    if list(names) == list(others):
        return
    lacking = [name for name in names if name not in others] or [n for n in others if n not in names]
    words = shown([INDEX if is_index_name(name) else name for name in lacking])
    what = f"other columns than {Path(first).name}, such as {words}"
    if not lacking:
        what = f"the columns of {Path(first).name} in another order"
    raise InvalidInputError(
        f"{where} has {what}; write all files with the same columns in the same order, or pass them to "
        "Ensemble.from_runs([...]) (bigcons import --runs) if each is a partition."
    )


class JoinedSource(PartedSource):
    """The rows of several sources of the same columns, one after another."""

    def __init__(self, sources: Sequence[Source], where: str | None = None) -> None:
        first = sources[0]
        where = where or f"{first.where} and {len(sources) - 1} more"
        for source in sources:
            if (source.names is None) != (first.names is None):
                without = source if source.names is None else first
                raise InvalidInputError(
                    f"{without.where} has no names of columns but others of {where} have; pass "
                    "header=True (--header) if its first line has them, else write them."
                )
            _refuse_other_columns(first.where, _names_in(first), source.where, _names_in(source))
        super().__init__(where, (None, first.n_columns), first.names)
        self.take_index(first.index_position)
        self.is_text: bool = any(source.is_text for source in sources)
        self.of_text: bool = any(source.of_text for source in sources)
        self.lengths: list[int | None] = [source.n_rows for source in sources]
        self.row_bytes: float = max(source.row_bytes for source in sources)
        self.fixed_bytes: int = max(source.held_bytes for source in sources)
        self._sources = sources

    def column_types(self) -> list[pa.DataType] | None:
        """Return the types of the columns: text where any of the sources has text."""
        import pyarrow as pa

        types = [source.column_types() for source in self._sources]
        found = [kinds for kinds in types if kinds is not None]
        if len(found) < len(types):
            return None
        return [
            next((kinds[c] for kinds in found if pa.types.is_large_string(kinds[c])), found[0][c])
            for c in self._positions
        ]

    def texts(self, position: int) -> Source | None:
        """Return a column as the text in the files."""
        at = self._positions[position]
        found = [text for source in self._sources if (text := source.texts(at)) is not None]
        return JoinedSource(found, self.where) if len(found) == len(self._sources) else None

    def _load(self, part: int, rows: int, positions: Sequence[int]) -> Iterator[Rows]:
        yield from self._sources[part].batches(rows, columns=positions)


MADE_FOR_ENSEMBLE = {b"bigcons.ensemble": b"_bigcons.json"}
"""The metadata of the files of an ensemble in Parquet, which names its head."""


class ParquetSource(Source):
    """A Parquet file, several of them, or a folder of them in natural order of their names."""

    def __init__(self, path: File | Sequence[File], where: str | None = None) -> None:
        paths = list(path) if isinstance(path, Sequence) else [path]
        if isinstance(path, Path) and path.is_dir():
            paths = sorted(path.glob("*.parquet"), key=natural_order)
        one = path if not isinstance(path, Sequence) else paths[0] if len(paths) == 1 else None
        where = where or (f"{paths[0]} and {len(paths) - 1} more" if one is None else str(one))
        self._files: list[tuple[File, list[int]]] = []  # with the rows of each row group
        self.is_part: bool = False
        """Whether bigcons wrote the files as those of an ensemble."""
        for file in paths:
            if isinstance(file, Path):
                check_file(file)
            self._add(file)
        n_rows = sum(sum(group_rows) for _, group_rows in self._files)
        super().__init__(where, (n_rows, len(self._schema)), self._schema.names, column_bytes=24.0)
        self.take_index(pandas_index(self._schema))

    def _add(self, path: File) -> None:
        with _open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            if not self._files:
                self.is_part = MADE_FOR_ENSEMBLE.keys() <= (schema.metadata or {}).keys()
                self._schema: pa.Schema = schema
            _refuse_other_columns(
                str(self._files[0][0] if self._files else path), self._schema.names, str(path), schema.names
            )
            groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
            self._files.append((path, [group.num_rows for group in groups]))
            n_bytes = size_of(path)
            if metadata.num_rows != sum(group.num_rows for group in groups):
                raise _broken_parquet(path, ValueError("its footer counts other rows than its row groups"))
            for group in groups:  # pages compressed, decompressed and decoded
                columns = [group.column(c) for c in range(group.num_columns)]
                if not is_within(columns, group.num_rows, n_bytes):
                    raise _broken_parquet(path, ValueError("its footer places columns beyond the file"))
                # a data page and a dictionary page, usually a megabyte each
                held = sum(min(3 * int(column.total_uncompressed_size), 5 << 19) for column in columns)
                if not isinstance(path, Path):
                    of_columns = (min(int(column.total_compressed_size), _COLUMN_BYTES) for column in columns)
                    held += READ_AHEAD + sum(of_columns)
                self.fixed_bytes: int = max(self.fixed_bytes, held)

    def column_types(self) -> list[pa.DataType]:
        """Return the types of the columns in the first file."""
        return [self._schema.types[c] for c in self._positions]

    def files(self) -> list[Any]:
        """Return the paths of the files, or their places in a bucket, in order."""
        return [path for path, _ in self._files]

    def _slice(self, start: int, stop: int, positions: Sequence[int]) -> Rows:
        raise NotImplementedError  # it is read row group by row group

    def _read(self, rows: int, start: int, stop: int | None, positions: Sequence[int]) -> Iterator[Rows]:
        """Yield batches of at most ``rows`` rows; row groups outside the range are not read."""
        import pyarrow as pa

        names = [self._schema.names[c] for c in positions]
        end = self.n_rows if stop is None else stop
        row = 0  # the first row of the row group
        for path, group_rows in self._files:
            groups, first = [], row
            for g, n_rows in enumerate(group_rows):
                if row + n_rows <= start:
                    first = row + n_rows
                elif row < (end or 0):
                    groups.append(g)
                row += n_rows
            if not groups:
                continue
            try:
                with _open_parquet(path) as file:
                    for batch in file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
                        low, high = max(start - first, 0), min((end or 0) - first, batch.num_rows)
                        first += batch.num_rows
                        if low < high:
                            yield [batch.column(name)[low:high] for name in names]
            except (pa.ArrowException, OSError, ValueError) as error:
                raise _broken_parquet(path, error) from None


def footer_of(path: Path) -> bytes:
    """Return the metadata at the end of a Parquet file: schema, sizes and statistics of all its pages."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))  # of a file that was cut, there may be less
        n_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - n_bytes, 0))
        return file.read()


def is_within(columns: Sequence[Any], n_rows: int, n_bytes: int) -> bool:
    """Return whether the pages of columns are within a file of this size; Arrow may crash on others."""
    for column in columns if n_rows else ():
        start, size = column.data_page_offset, column.total_compressed_size
        if column.has_dictionary_page and column.dictionary_page_offset > 0:  # 0 is of some old writers
            start = min(start, column.dictionary_page_offset)
        is_sound = min(n_rows, size, column.num_values, column.total_uncompressed_size) >= 0
        if not (is_sound and 4 <= start <= n_bytes - size):
            return False
    return True


def size_of(path: File) -> int:
    """Return the number of bytes of a file."""
    if isinstance(path, Path):
        return path.stat().st_size
    with path.open("rb", 0) as file:
        return file.seek(0, os.SEEK_END)


def _open_parquet(path: File) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    source, at_once = (path, 1 << 16) if isinstance(path, Path) else (path.open("rb", 0), _COLUMN_BYTES)
    try:
        # a small buffer streams column chunks instead of loading them
        return parquet.ParquetFile(
            source, buffer_size=at_once, pre_buffer=False, page_checksum_verification=True
        )
    except PermissionError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _broken_parquet(path, error) from None


def _broken_parquet(path: File, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is truncated or not Parquet ({first_line(error)}); write it again.", path=path
    )


def natural_order(path: File) -> tuple[list[tuple[int, str]], str]:
    """Sort ``part.10`` after ``part.9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], path.name
