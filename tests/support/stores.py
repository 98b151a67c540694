"""What the tests of stores share: the labels of an ensemble as its user knows them, the names in a folder."""

import numpy as np

from bigcons import Consensus, Ensemble
from bigcons.disk import commit
from bigcons.disk.schema import TRUST
from bigcons.memory import BLOCK_ROWS, row_blocks
from bigcons.store.consensus import write_rows
from bigcons.store.store import ids_of
from tests.naive.ensemble import decode


def of_rows(rows):
    """Return the ensemble of a list with a row for each object, its columns of any kinds."""
    return Ensemble.from_labels(np.array(rows, dtype=object), columns=range(len(rows[0])))


def dense_codes(labels):
    """Return an ensemble of labels, and its labels in dense codes."""
    ensemble = Ensemble.from_labels(labels)
    return ensemble, ensemble.read(0, ensemble.n_objects)


def values_of(ensemble):
    """Return the original labels as a list of rows, None where missing."""
    codes = ensemble.read(0, ensemble.n_objects)
    columns = []
    for u, values in enumerate(ensemble.categories):
        known = list(range(ensemble.n_clusters[u])) if values is None else values.tolist()
        columns.append(decode(codes[:, u].tolist(), known))
    return [list(row) for row in zip(*columns, strict=True)]


def write_consensus(
    path, labels, memberships, *, trust=None, ids=None, chunk_rows=BLOCK_ROWS, overwrite=False, **description
):
    """Store labels (n_objects,) and, unless they are None, memberships as a consensus; return it opened."""
    labels = np.asarray(labels)
    n_clusters = labels.max() + 1 if memberships is None else np.shape(memberships)[1]
    with Consensus.create(
        path,
        n_objects=len(labels),
        n_clusters=int(n_clusters),
        chunk_rows=chunk_rows,
        overwrite=overwrite,
        memberships=memberships is not None,
        ids=ids_of(ids),
    ) as writer:
        writer.describe(**description)
        columns = {"labels": labels, "memberships": memberships}
        if trust is not None:
            writer.create_arrays(trust=True)
            writer.describe_trust(trust.clusters, trust.partitions, trust.temperature)
            columns |= {name: getattr(trust, name) for name in TRUST}
        for block in row_blocks(len(labels), chunk_rows):
            rows = slice(block.start, block.stop)
            part = {name: None if values is None else values[rows] for name, values in columns.items()}
            writer.note(write_rows(writer.arrays, block.start, part))
    return Consensus.open(path)


def names_in(directory):
    """Return the names in a directory in ascending order."""
    return sorted(entry.name for entry in directory.iterdir())


def change_head(path, **changes):
    """Write a head that is whole but says something else; entries that become ``...`` are left out."""
    head = commit.read_head(path)
    body = {name: value for name, value in {**head.body, **changes}.items() if value is not ...}
    commit.write_head(head.data, head.kind, body, parquet=head.is_parquet)
