"""New objects placed in the clusters of a consensus, by their base labels or by their features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.disk.commit import is_store
from bigcons.disk.files import StorePath
from bigcons.disk.schema import OF_RUN
from bigcons.errors import InvalidInputError, SuspiciousFeaturesWarning, SuspiciousLabelsWarning, warn_user
from bigcons.io.columns import Ids
from bigcons.io.labels import are_labeled, label_dtype
from bigcons.io.sources import refuse_inputs
from bigcons.run.engine import Engine, open_engine
from bigcons.run.results import renumbered
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble, as_ensemble, as_soft_ensemble
from bigcons.store.generator import Generator, NewRows
from bigcons.store.store import data_frame, export_blocks, ids_first
from bigcons.trust.placement import ClusterSupport, support_factor

if TYPE_CHECKING:
    from bigcons.io.columns import Column
    from bigcons.io.features import Features


class Placed(NamedTuple):
    """New objects placed by their features; see `ConsensusClusterer.predict_features`."""

    labels: np.ndarray
    """(n_objects,) int32: the cluster of each object, -1 of one without a known value in any feature."""
    memberships: np.ndarray | None
    """(n_objects, n_clusters) float32; None of a method that has none."""
    is_far: np.ndarray
    """(n_objects,) bool: whether it is farther from the centers than 99 % of those they were made of."""
    ids: Ids | None = None
    """What identifies the objects, if the table has it."""
    support: np.ndarray | None = None
    """(n_clusters,) the support of the clusters, if it is known."""

    @property
    def confidence(self) -> np.ndarray | None:
        """(n_objects,) float32: the membership of each object in its cluster, times the cluster's support."""
        if self.memberships is None:
            return None
        confidence = self.memberships[np.arange(len(self.labels)), np.maximum(self.labels, 0)]
        if self.support is not None:
            factor = np.ones(self.memberships.shape[1] + 1, np.float32)  # the last, of -1, and empty clusters
            factor[: len(self.support)] = support_factor(self.support)
            confidence = confidence * factor[self.labels]
        return np.where(self.labels >= 0, confidence, np.float32(0))

    @property
    def far_share(self) -> float:
        """Share of the objects that are far: about 0.01 if they are like the objects of the ensemble."""
        return float(self.is_far.mean())

    def columns(self) -> dict[str, Any]:
        """Return label, confidence, if there are memberships, and is_far of the objects, by name."""
        confidence = {} if self.memberships is None else {"confidence": self.confidence}
        return {"label": self.labels, **confidence, "is_far": self.is_far}

    def to_arrow(self) -> Any:
        """Return a pyarrow table with the id of each object, if known, label, confidence and is_far."""
        import pyarrow as pa

        columns = self.columns()
        if self.ids is not None:
            columns = ids_first(columns, self.ids, self.ids.hold().values)
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return a pandas data frame, see `to_arrow`; ids that were an index are its index again."""
        return data_frame(self.to_arrow(), self.ids)


class Recoding:
    """Maps the labels of new ensembles to the codes of the fitted one.

    Labels that the fitted ensemble does not have become missing. Soft clusterings must have the clusters of
    the fitted ones.
    """

    def __init__(self, fitted: Ensemble) -> None:
        parts = zip(fitted.categories, fitted.n_clusters, strict=True)
        self.values: list[np.ndarray] = [np.arange(k) if labels is None else labels for labels, k in parts]
        """The original label of every dense label of every partition."""
        self.names: list[str] = list(fitted.names)
        self.is_named: bool = self.names != [f"p{u}" for u in range(len(self.names))]
        """Whether partitions have names of their own, not only numbers."""
        self.offsets: np.ndarray = fitted.offsets
        self.is_soft: bool = fitted.is_soft

    def ensemble(self, x: Any, *, with_ids: bool = False) -> Ensemble:
        """Return new labels as an ensemble; a partition may be missing for all of the objects."""
        new = as_soft_ensemble(x) if self.is_soft else as_ensemble(x, self.values, with_ids=with_ids)
        if new.n_partitions != len(self.values):
            raise InvalidInputError(
                f"the new labels have n_partitions={new.n_partitions} but {len(self.values)} were fitted; "
                "give the same partitions in the same order."
            )
        return new

    def tables(self, new: Ensemble) -> list[np.ndarray]:
        """Return for each partition the fitted code of each code of ``new``, -1 where there is none.

        Of soft clusterings, an empty list.
        """
        recoding = Recoding(new)
        if new.names != self.names and (
            (recoding.is_named and self.is_named) or set(new.names) == set(self.names)
        ):
            u = next(u for u, name in enumerate(self.names) if new.names[u] != name)
            raise InvalidInputError(
                f"the new labels have partition {new.names[u]!r} where {self.names[u]!r} was fitted; "
                "give the same partitions in the same order."
            )
        if self.is_soft:
            if (new.offsets != self.offsets).any():
                raise InvalidInputError(
                    f"the new memberships are of {new.n_clusters.tolist()} clusters but the fitted ones of "
                    f"{np.diff(self.offsets).tolist()}; give the same clusters in the same order."
                )
            return []
        tables = [codes_in(*values) for values in zip(self.values, recoding.values, strict=True)]
        unseen = [u for u, table in enumerate(tables) if (table[:-1] < 0).any()]
        if unseen:
            u = unseen[0]
            label = recoding.values[u][tables[u][:-1] < 0].tolist()[0]
            warn_user(
                f"{len(unseen)} of {len(tables)} partitions have labels that did not occur in fit, such as "
                f"{label!r} in {new.names[u]!r}; they count as missing.",
                SuspiciousLabelsWarning,
            )
        return tables


def codes_in(fitted: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the code of each value among the fitted ones, -1 where there is none, and a last -1."""
    code = {value: number for number, value in enumerate(fitted.tolist())}
    return np.array([*(code.get(value, -1) for value in values.tolist()), -1], np.int32)


def recode(labels: np.ndarray, tables: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return a block of labels (rows, M) in the fitted codes, of their type; memberships unchanged."""
    if labels.dtype.kind == "f":
        return labels
    codes = np.empty(labels.shape, dtype)
    for u, table in enumerate(tables):
        codes[:, u] = table[labels[:, u]]  # code -1 takes the last entry of the table, which is -1
    return codes


PlaceTask = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]
"""Places a block of objects by their labels; made by a fitted method, and sent to workers."""


def place_task(
    place: Callable[[np.ndarray], np.ndarray],
    tables: Sequence[np.ndarray],
    offsets: np.ndarray,
    order: np.ndarray,
    weights: np.ndarray | None,
    *,
    is_soft: bool,
) -> PlaceTask:
    """Return the task of labels (rows, int32), -1 where no base label is known, and memberships or None.

    ``place`` takes labels in the fitted codes to clusters or, if soft, memberships, by the method's own
    numbers, of which ``order`` has that of each cluster as published. ``tables`` are those of `Recoding`.
    """
    dtype = label_dtype(np.diff(offsets))

    def task(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        labels = recode(labels, tables, dtype)
        placed, labeled = place(labels), are_labeled(labels, offsets, weights)
        if not is_soft:
            return np.where(labeled, renumbered(placed, order), -1).astype(np.int32), None
        memberships = np.take(placed, order, axis=1)
        winners = np.where(labeled, memberships.argmax(axis=1), -1).astype(np.int32)
        return winners, np.where(labeled[:, None], memberships, np.float32(1.0 / len(order)))

    return task


def placed_by_features(
    model: Any, features: Any, id: Column | None, engine: Engine
) -> tuple[Features, NewRows, Iterator[Placed]]:
    """Return a table of features, its rows as a generator takes them, and the blocks as a method places them.

    Blocks are placed as they are iterated, without ids; at the end `NewRows` warns of rows that it counted.
    """
    generator: Generator | None = model._generator
    if generator is None:
        raise InvalidInputError(
            "the ensemble was not generated from features, or by an older version; fit one of "
            "bigcons.generate.kmeans, or pass base labels to predict."
        )
    data = generator.open(features, id=id)
    rows, assign, support = NewRows(data, generator.encoding.scaling), generator.task(), None
    place = model._place_task(tables_of_generator(generator, model._recoding.values))
    if model._trust is not None:
        support = ClusterSupport.of_table(model._trust.clusters, np.arange(model._n_columns)).clusters

    def task(item: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        labels, is_far = assign(item)
        return *place(labels), is_far

    def blocks() -> Iterator[Placed]:
        for labels, memberships, is_far in engine.map(task, rows):
            yield Placed(labels, memberships, is_far, None, support)
        rows.warn()

    return data, rows, blocks()


def tables_of_generator(generator: Generator, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return for each partition the fitted code of each generated label, given the fitted ``values``."""
    tables = []
    for n_clusters, fitted in zip(generator.centers.n_clusters, values, strict=True):
        if fitted.dtype == object and n_clusters:
            raise InvalidInputError("labels were generated but text was fitted; fit the generated ensemble.")
        tables.append(codes_in(fitted, np.arange(n_clusters)))
    return tables


# Of stores


def open_placing(path: StorePath) -> Any:
    """Return the method of a stored consensus, ready to place objects.

    ``path`` is the store, or the folder of ``consensus.zarr``; the ensemble may have been moved with it.
    """
    from bigcons.methods import class_named

    path = path if is_store(path) else f"{str(path).rstrip('/')}/{OF_RUN[1]}"
    consensus = Consensus.open(path)
    consensus.read_placing()  # raises if there is nothing to place by
    source = str(consensus.provenance.get("ensemble"))
    sibling = f"{consensus.path.rstrip('/').rpartition('/')[0] or '.'}/{source.rpartition('/')[2]}"
    name = str(consensus.parameters.get("method"))
    solver = class_named(name)
    if solver is None:
        raise InvalidInputError(
            f"{consensus.path} was solved by {name}, which is no method here; install its package."
        )
    model = solver()
    settable = set(model.get_params()) - {"memory", "client", "out", "pairs", "weights"}
    plain = (bool, int, float, str)  # values that a store gives back as they were
    stored = consensus.parameters.items()
    model.set_params(**{n: value for n, value in stored if n in settable and isinstance(value, plain)})
    model._take_placing(consensus, Ensemble.open(sibling if is_store(sibling) else source))
    return model


def place_file(
    model: Any,
    features: Any,
    out: StorePath | IO[bytes],
    *,
    id: Column | None = None,
    memberships: bool = False,
    overwrite: bool = False,
    client: object = None,
) -> dict[str, Any]:
    """Write `Placed.to_arrow` of the rows of ``features`` to a file, see `Consensus.export`, block by block.

    With ``memberships`` also these, as ``cluster_0``, ``cluster_1``, ... Returns ``n_objects``; the ``sizes``
    of the clusters; ``mean_confidence`` and ``far_share``; and ``n_unseen``, for each column with text that
    did not occur where the ensemble was made in how many rows.
    """
    if memberships and not model.info.soft:
        raise InvalidInputError(
            f"{type(model).__name__} has no memberships; leave out memberships=True (--memberships)."
        )
    refuse_inputs(out, features)
    sizes, total, n_far = np.zeros(model._n_columns, np.int64), 0.0, 0

    def columns_of_blocks() -> Iterator[dict[str, Any]]:
        nonlocal total, n_far
        id_blocks = iter(()) if data.ids is None else data.ids.blocks(data.chunk_rows)
        for placed in blocks:
            columns = placed.columns()
            sizes[:] += np.bincount(placed.labels[placed.labels >= 0], minlength=sizes.size)
            total += float(columns["confidence"].sum(dtype=float)) if model.info.soft else math.nan
            n_far += int(placed.is_far.sum())
            if memberships:
                soft: Any = placed.memberships
                columns |= {f"cluster_{k}": np.ascontiguousarray(soft[:, k]) for k in range(len(sizes))}
            yield columns if data.ids is None else ids_first(columns, data.ids, next(id_blocks))

    with open_engine(client) as engine:
        data, rows, blocks = placed_by_features(model, features, id, engine)
        export_blocks(out, data.n_objects, columns_of_blocks(), overwrite=overwrite)
    if (far_share := n_far / data.n_objects) > 0.5:
        warn_user(
            f"{far_share:.1%} of the rows are far from all centers: they are unlike the rows of the "
            "ensemble, and confidence in their labels means little.",
            SuspiciousFeaturesWarning,
        )
    confidence = total / data.n_objects if model.info.soft else None
    return {"n_objects": data.n_objects, "sizes": sizes.tolist(), "mean_confidence": confidence,
            "far_share": far_share, "n_unseen": rows.n_unseen}  # fmt: skip
