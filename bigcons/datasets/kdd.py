"""KDD Cup 1999, read from its file or downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigcons.errors import InvalidInputError, StoreNotFoundError
from bigcons.seeding import SeedLike, generator, resolve_seed
from bigcons.validation import check_int

if TYPE_CHECKING:
    import pyarrow as pa

KDD_FILE = "kddcup99/kddcup.data_10_percent.gz"
KDD_CLASSES = ("neptune", "normal", "smurf")
# fmt: off
KDD_COLUMNS = (
    "duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment",
    "urgent", "hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted",
    "num_root", "num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds", "is_host_login",
    "is_guest_login", "count", "srv_count", "serror_rate", "srv_serror_rate", "rerror_rate",
    "srv_rerror_rate", "same_srv_rate", "diff_srv_rate", "srv_diff_host_rate", "dst_host_count",
    "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate", "dst_host_same_src_port_rate",
    "dst_host_srv_diff_host_rate", "dst_host_serror_rate", "dst_host_srv_serror_rate", "dst_host_rerror_rate",
    "dst_host_srv_rerror_rate",
)
# fmt: on
_SYMBOLIC = ("protocol_type", "service", "flag")


def kddcup99(
    data_dir: str | os.PathLike[str] | None = None,
    n_objects: int = 120_000,
    *,
    as_numbers: bool = False,
    random_state: SeedLike = 0,
) -> tuple[pa.Table, np.ndarray]:
    """Return connections of KDD Cup 1999 as features and truth (Lourenço et al. 2015, large scale).

    A random subset, in file order, of the three large classes (normal, neptune, smurf: 485,269 connections)
    of the 10 % file. The paper uses 120,000 objects of three classes without naming them; only these three
    are large enough.

    Parameters
    ----------
    data_dir
        Directory of ``kddcup99/kddcup.data_10_percent.gz``, by default the value of the environment variable
        BIGCONS_DATA; if neither is given, scikit-learn downloads the file.
    n_objects
        Size of the subset.
    as_numbers
        Whether the columns of text have the position of each value among their sorted values instead, as the
        paper discretizes the symbolic attributes.
    random_state
        Seed of the subset.

    Returns
    -------
    features
        Table of 41 named columns, of which protocol_type, service and flag are text, or numbers.
    truth
        Class names ``(n_objects,)``.

    Raises StoreNotFoundError if the data cannot be found or downloaded, InvalidInputError if n_objects is too
    large.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.kddcup99(n_objects=1000)  # doctest: +SKIP
    """
    check_int("n_objects", n_objects)
    table, classes = _table(data_dir)
    classes = np.array([name.decode() if isinstance(name, bytes) else name for name in classes])
    classes = np.char.rstrip(classes, ".")
    rows = np.flatnonzero(np.isin(classes, KDD_CLASSES))
    if n_objects > len(rows):
        raise InvalidInputError(
            f"n_objects={n_objects} but there are {len(rows)} connections; ask for fewer."
        )
    rng = generator(resolve_seed(random_state), "datasets.kddcup99")
    chosen = np.sort(rng.choice(rows, size=n_objects, replace=False))
    table = table.take(chosen)
    for name in _SYMBOLIC if as_numbers else ():
        values = np.unique(table[name].to_numpy(), return_inverse=True)[1].astype(float)
        table = table.set_column(table.column_names.index(name), name, [values])
    return table, classes[chosen]


def _table(data_dir: str | os.PathLike[str] | None) -> tuple[pa.Table, Any]:
    """Return all connections of the 10 % file, the 41 features, and the names of their classes."""
    import pyarrow as pa
    from pyarrow import csv
    from sklearn.datasets import fetch_kddcup99

    path = Path(data_dir or os.environ.get("BIGCONS_DATA", "")) / KDD_FILE
    if path.is_file():
        types = dict.fromkeys([*_SYMBOLIC, "class"], pa.string())
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=[*KDD_COLUMNS, "class"]),
            convert_options=csv.ConvertOptions(column_types=types),
        )
        return table.drop_columns("class"), table["class"].to_pylist()
    if data_dir is not None:
        raise StoreNotFoundError(f"{path} does not exist; data_dir must hold {KDD_FILE}.", path=path)
    try:
        bunch = fetch_kddcup99(percent10=True)
    except (OSError, ValueError) as error:
        raise StoreNotFoundError(
            f"KDD Cup 1999 could not be downloaded ({error}); put {KDD_FILE} in a directory and pass it as "
            "data_dir= or in BIGCONS_DATA."
        ) from None
    columns: dict[str, Any] = {}
    for name, values in zip(KDD_COLUMNS, bunch.data.T, strict=True):
        columns[name] = [v.decode() for v in values] if name in _SYMBOLIC else values.astype(np.float64)
    return pa.table(columns), bunch.target
