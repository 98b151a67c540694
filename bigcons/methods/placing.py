"""New objects placed in the clusters of a consensus, by their base labels or by their features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, SuspiciousLabelsWarning, warn_user
from bigcons.io.factorize import label_dtype
from bigcons.io.ids import Ids
from bigcons.io.labels import are_labeled
from bigcons.run.engine import Engine
from bigcons.run.results import renumbered
from bigcons.store.ensemble import Ensemble, as_ensemble, as_soft_ensemble
from bigcons.store.export import import_pandas
from bigcons.store.generator import AssignTask, Generator, NewRows
from bigcons.store.store import data_frame, ids_first
from bigcons.trust.placement import support_factor


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
        """(n_objects,) float32: the membership of each object in its cluster, times the support of that."""
        if self.memberships is None:
            return None
        return confidence_of(self.labels, self.memberships, self.support)

    @property
    def far_share(self) -> float:
        """Share of the objects that are far: about 0.01 if they are like those of the ensemble."""
        return float(self.is_far.mean())

    def to_arrow(self) -> Any:
        """Return a pyarrow table with the id of each object, if known, label, confidence and is_far."""
        import pyarrow as pa

        columns: dict[str, Any] = {"label": self.labels}
        if self.memberships is not None:
            columns["confidence"] = self.confidence
        columns["is_far"] = self.is_far
        if self.ids is not None:
            columns = ids_first(columns, self.ids, self.ids.hold().values)
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return a pandas data frame, see `to_arrow`; ids that were an index are its index again."""
        import_pandas()
        return data_frame(self.to_arrow(), self.ids)

    def __repr__(self) -> str:
        confidence = self.confidence
        sure = "" if confidence is None else f"mean confidence {float(confidence.mean()):.2f}, "
        return f"Placed({len(self.labels):,} objects, {sure}{self.far_share:.1%} far from the centers)"


def confidence_of(
    labels: np.ndarray, memberships: np.ndarray, support: np.ndarray | None = None
) -> np.ndarray:
    """Return the memberships ``(rows,)`` in the clusters of ``labels``, 0 of objects without one.

    Times the ``support`` (K,) of the clusters, where that is known.
    """
    confidence = memberships[np.arange(len(labels)), np.maximum(labels, 0)]
    if support is not None:
        factor = np.ones(memberships.shape[1] + 1, np.float32)  # the last, of -1, and empty clusters
        factor[: len(support)] = support_factor(support)
        confidence = confidence * factor[labels]
    return np.where(labels >= 0, confidence, np.float32(0))


class Recoding:
    """Maps the labels of new ensembles to the codes of the fitted one.

    Labels that the fitted ensemble does not have become missing. Soft clusterings must have the clusters of
    the fitted ones.
    """

    def __init__(self, fitted: Ensemble) -> None:
        values = zip(fitted.categories, fitted.n_clusters, strict=True)
        self.values: list[np.ndarray] = [
            np.arange(k) if categories is None else np.asarray(categories) for categories, k in values
        ]
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
        given = Recoding(new)
        if new.names != self.names and (
            (given.is_named and self.is_named) or set(new.names) == set(self.names)
        ):
            u = next(u for u, name in enumerate(self.names) if new.names[u] != name)
            raise InvalidInputError(
                f"the new labels have partition {new.names[u]!r} where {self.names[u]!r} was fitted; "
                "give the same partitions in the same order."
            )
        if self.is_soft:
            if (new.offsets != self.offsets).any():
                raise InvalidInputError(
                    f"the new memberships are of {new.n_clusters.tolist()} clusters but those of "
                    f"{np.diff(self.offsets).tolist()} were fitted; give the same clusters in the same order."
                )
            return []
        tables = [codes_in(*values) for values in zip(self.values, given.values, strict=True)]
        unseen = [u for u, table in enumerate(tables) if (table[:-1] < 0).any()]
        if unseen:
            u = unseen[0]
            label = given.values[u][tables[u][:-1] < 0].tolist()[0]
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
    recoded = np.empty(labels.shape, dtype)
    for u, table in enumerate(tables):
        recoded[:, u] = table[labels[:, u]]  # code -1 takes the last entry of the table, which is -1
    return recoded


@dataclass(frozen=True)
class PlaceTask:
    """Places a block of objects by their base labels; made by a fitted method, and sent to workers."""

    place: Callable[[np.ndarray], np.ndarray]
    """From labels in the fitted codes to clusters or, if soft, memberships, by the method's own numbers."""
    tables: Sequence[np.ndarray]
    """For each partition the fitted code of each label, and a last -1; none of memberships."""
    offsets: np.ndarray
    order: np.ndarray
    """The method's number of each cluster as published."""
    weights: np.ndarray | None
    is_soft: bool

    def __call__(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return labels (rows,) int32, -1 where no base label is known, and memberships or None."""
        labels = recode(labels, self.tables, label_dtype(np.diff(self.offsets)))
        placed, labeled = self.place(labels), are_labeled(labels, self.offsets, self.weights)
        if not self.is_soft:
            return np.where(labeled, renumbered(placed, self.order), -1).astype(np.int32), None
        memberships = np.take(placed, self.order, axis=1)
        winners = np.where(labeled, memberships.argmax(axis=1), -1).astype(np.int32)
        return winners, np.where(labeled[:, None], memberships, np.float32(1.0 / len(self.order)))


@dataclass(frozen=True)
class FeaturesTask:
    """Places a block of objects by their features."""

    assign: AssignTask
    place: PlaceTask

    def __call__(self, item: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return labels, memberships or None, and which objects are far."""
        labels, is_far = self.assign(item)
        return *self.place(labels), is_far


def place_features(
    generator: Generator, place: PlaceTask, rows: NewRows, engine: Engine
) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
    """Yield labels, memberships or None, and which objects are far, for each block of rows; warn of some."""
    yield from engine.map(FeaturesTask(generator.task(), place), rows)
    rows.warn()


def tables_of_generator(generator: Generator, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return for each partition the fitted code of each generated label, given the fitted ``values``."""
    tables = []
    for n_clusters, fitted in zip(generator.centers.n_clusters, values, strict=True):
        if fitted.dtype == object and n_clusters:
            raise InvalidInputError("labels were generated but text was fitted; fit the generated ensemble.")
        tables.append(codes_in(fitted, np.arange(n_clusters)))
    return tables
