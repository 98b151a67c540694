"""What the tests of stores share: the labels of an ensemble as its user knows them, the names in a folder."""

import numpy as np

from bigcons import Ensemble
from bigcons.disk import commit
from tests.naive.ensemble import decode


def of_rows(rows):
    """Return the ensemble of a list with a row for each object, its columns of any kinds."""
    return Ensemble.from_labels(np.array(rows, dtype=object), columns=range(len(rows[0])))


def values_of(ensemble):
    """Return the original labels as a list of rows, None where missing."""
    codes = ensemble.read(0, ensemble.n_objects)
    columns = []
    for u, values in enumerate(ensemble.categories):
        known = list(range(ensemble.n_clusters[u])) if values is None else values.tolist()
        columns.append(decode(codes[:, u].tolist(), known))
    return [list(row) for row in zip(*columns, strict=True)]


def names_in(directory):
    """Return the names in a directory in ascending order."""
    return sorted(entry.name for entry in directory.iterdir())


def change_head(path, **changes):
    """Write a head that is whole but says something else; entries that become ``...`` are left out."""
    head = commit.read_head(path)
    body = {name: value for name, value in {**head.body, **changes}.items() if value is not ...}
    commit.write_head(head.data, head.kind, body, parquet=head.is_parquet)
