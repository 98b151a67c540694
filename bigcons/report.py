"""Report: a consensus told on one HTML page that needs nothing else, no network and no script.

The numbers are gathered by `Report`, block by block; below it is how they are laid out.
"""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.errors import InvalidInputError, MemoryBudgetError, MissingDependencyError
from bigcons.execution.engine import open_engine
from bigcons.memory import BLOCK_ROWS, enough_for, format_size, parse_size
from bigcons.methods import METHODS
from bigcons.methods.cluster_tree import consensus_tree
from bigcons.metrics.confidence import Evidence, codes_for
from bigcons.metrics.description import ClusterProfiles, partition_agreement, profile
from bigcons.metrics.memberships import cluster_overlap
from bigcons.page import CLUSTERS, CONVERGENCE, PARTITIONS, Content, Drawn, name_of, page, percent
from bigcons.solving.results import count_clusters
from bigcons.storage.commit import new_file
from bigcons.stores.clusters import TRUST_ROW, ClusterTree, mergers, tree_in_words
from bigcons.stores.consensus import Consensus, cautions, clusters_in_words, fit_results
from bigcons.stores.ensemble import as_ensemble
from bigcons.tables.ids import IdFacts, canonical, refuse_other_ids
from bigcons.tables.intake import open_table
from bigcons.tables.labels import names_of_rows, refuse_other_rows
from bigcons.tables.select import Columns, SelectedTable, Selection, choose
from bigcons.tables.table import Table
from bigcons.validation import check_int

if TYPE_CHECKING:
    import pyarrow as pa

LEVELS = (0.5, 0.7, 0.9, 0.99)
"""Confidence is counted between these."""


class Report:
    """What to know of a consensus, as tables and as one HTML page.

    Jupyter shows the page; `save` writes it. Everything is read block by block, in one pass over the labels
    and one over the features; pictures, if matplotlib is installed, read the memberships again.

    Parameters
    ----------
    consensus
        A `Consensus`, the path of one, or a fitted method.
    ensemble
        Its ensemble, or the path of one: adds how the partitions agree with each other, the tree of clusters
        with the support of its splits, and finds out which labels to trust where the consensus does not say.
    tree
        What `bigcons.consensus_tree` returned for the ensemble, such as one with p-values; by default the one
        that the consensus has kept, or one made anew.
    features
        Any table of the objects, as for `bigcons.metrics.cluster_profiles`: adds what is in each cluster.
        If the objects have ids and the table their column, they are compared.
    columns, drop
        Its columns to use, by default all, and those to leave out; see `bigcons.select`.
    n_objects : default=20
        Least certain objects to list.
    n_clusters : default=20
        Clusters, the largest, to tell the contents of.
    pictures : default=True
        Whether to draw pictures. Without matplotlib there are none.
    memory : default="1GB"
        Memory for blocks and counts, besides what the process holds. MemoryBudgetError is raised before
        anything is read if it does not suffice.
    client
        Engine that weighs the labels, where the consensus does not say which to trust.

    Attributes
    ----------
    facts : dict
        Numbers of the whole, by name.
    warnings : list of str
        Reasons for caution.
    notes : list of str
        What else is worth knowing.
    clusters : pyarrow.Table
        The clusters, from the largest to the smallest; the columns of `Trust.clusters`, where known, and
        ``share``.
    least_certain : pyarrow.Table or None
        The objects of lowest confidence: ``object``, its row; its ``id``, if it has one; ``cluster``;
        ``confidence``; and, if known, ``second_label`` and ``second_confidence``.
    partitions : pyarrow.Table or None
        The columns of `Trust.partitions` and of `bigcons.metrics.partition_agreement`, where known.
    profiles : ClusterProfiles or None
        What is in each cluster.
    tree : ClusterTree or None
        The tree of clusters, if it is given or kept, or the ensemble is given and has two partitions.

    Examples
    --------
    >>> import bigcons as bc
    >>> ensemble, _ = bc.datasets.planted_ensemble(500, 20, random_state=0)
    >>> report = bc.Report(bc.MCLA(6, random_state=0).fit(ensemble), ensemble=ensemble)
    >>> report.clusters.column_names[:3]
    ['cluster', 'size', 'share']
    >>> report.save("report.html")
    """

    def __init__(
        self,
        consensus: Any,
        *,
        ensemble: Any = None,
        tree: ClusterTree | None = None,
        features: Any = None,
        columns: Columns | None = None,
        drop: Columns | None = None,
        n_objects: int = 20,
        n_clusters: int = 20,
        pictures: bool = True,
        memory: int | str = "1GB",
        client: object = None,
    ) -> None:
        check_int("n_objects", n_objects)
        check_int("n_clusters", n_clusters)
        if features is None and (columns is not None or drop is not None):
            raise InvalidInputError(
                "columns and drop have no effect without features; give features, too.",
                parameter="columns" if drop is None else "drop",
            )
        self._n_profiles = n_clusters
        self._source = source = _Source.of(consensus)
        self._ensemble = None if ensemble is None else as_ensemble(ensemble)
        if self._ensemble is not None and self._ensemble.n_objects != source.n_objects:
            raise InvalidInputError(
                f"the ensemble has {self._ensemble.n_objects:,} objects but the consensus "
                f"{source.n_objects:,}; pass its own.",
                parameter="ensemble",
            )
        refuse_other_rows("the ensemble", names_of_rows(self._ensemble), "the consensus", source.names)
        rows = min(BLOCK_ROWS, source.n_objects)
        needed, budget = rows * (48 + 12 * source.n_columns), parse_size(memory)
        if needed > budget:
            raise MemoryBudgetError(
                f"memory={format_size(budget)} cannot hold a block of {rows:,} objects, which needs "
                f"{format_size(needed)}; raise it to {enough_for(needed)} or more.",
                needed=needed, budget=budget,
            )  # fmt: skip
        told, tables = _read(source, self._ensemble, n_objects, client)
        self.clusters: pa.Table = _clusters(told, tables)
        self.least_certain: pa.Table | None = told.least_certain(source.ids) if told.kind else None
        self.partitions: pa.Table | None = _partitions(tables, self._ensemble)
        self.profiles: ClusterProfiles | None = None
        self._values: dict[int, dict[str, Any]] = {}
        if features is not None:
            kept = np.sort(told.rows["object"]) if told.kind else np.empty(0, np.int64)
            table = open_table(features, "features")
            if source.ids is not None and (name := source.ids.facts.name) in (table.names or ()):
                position = table.names.index(name)  # type: ignore[union-attr]
                column = table.id_table(position) or SelectedTable(table, [position])
                found = _ids_in(column, source.ids.facts)
                refuse_other_ids(source.ids.blocks(), found, name, table.where)
                columns = columns or [other for other in table.names or () if other != name]
            else:
                refuse_other_rows(
                    table.where, table.ids or names_of_rows(features), "the consensus", source.names
                )
            if columns is not None or drop is not None:
                table = choose(table, Selection(None, None, columns, drop))
            self.profiles, values = profile(table, source.labels, None, 3, memory, kept)
            self._values = dict(zip(kept.tolist(), values, strict=True))
        self._told = told
        self.tree: ClusterTree | None = source.tree if tree is None else tree
        if self.tree is None and self._ensemble is not None and self._ensemble.n_partitions > 1:
            self.tree = consensus_tree(self._ensemble, random_state=0, client=client)
        self.facts: dict[str, Any] = _facts(source, told, self.tree)
        self.warnings: list[str] = list(_warnings(source, told, self.clusters, self.partitions, self.tree))
        self.notes: list[str] = list(_notes(self.partitions, self.profiles))
        self._pictures: list[Drawn] = []
        if pictures:
            n_clusters = self.clusters.num_rows
            self._pictures = _pictures(consensus, source, self._ensemble, self.tree, n_clusters)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page to a file at ``path``.

        Raises StoreExistsError if there is one, unless ``overwrite``, and InvalidInputError for the suffix of
        another kind of file.
        """
        check_page(path)
        page = self.html().encode()
        with new_file(path, overwrite=overwrite) as file:
            file.write(page)

    def html(self) -> str:
        """Return the page."""
        source = self._source
        return page(
            Content(
                source.name, _by(source.method), source.n_objects, self.facts, self.warnings, self.notes,
                self.clusters, self._told.levels_in_words(), self.profiles, self._n_profiles,
                self.least_certain, self._values, self.partitions, source.history, source.parameters,
                source.provenance, self._pictures,
            )
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"<Report of {self._source.n_objects:,} objects, {self._source.name}; save(path) writes the page>"
        )

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Report of a consensus" srcdoc="{html.escape(self.html())}" '
            'style="width:100%;height:40rem;border:1px solid #ccc" sandbox></iframe>'
        )


# What is read


class _Source(NamedTuple):
    """A consensus, stored or held by a fitted method."""

    name: str
    method: str
    n_objects: int
    n_columns: int
    """Columns of the memberships; 0 without any."""
    n_clusters: int
    """Clusters asked for, including those without objects."""
    labels: Any
    memberships: Any
    trust: Any
    """A `Trust` or the `Consensus` that has one; None without any."""
    history: Mapping[str, Any]
    results: Mapping[str, Any]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    ids: Any
    tree: ClusterTree | None

    @classmethod
    def of(cls, consensus: Any) -> _Source:
        if isinstance(consensus, (str, os.PathLike)):
            consensus = Consensus.open(consensus)
        if isinstance(consensus, Consensus):
            method = str(consensus.parameters.get("method", "Consensus"))
            n, K, soft = consensus.n_objects, consensus.n_clusters, consensus.has_memberships
            return cls(
                consensus.path, method, n, K if soft else 0, K, consensus.label_rows,
                consensus.membership_rows if soft else None, consensus if consensus.has_trust else None,
                consensus.history, consensus.results, consensus.parameters, consensus.provenance,
                consensus.id_column, consensus.tree,
            )  # fmt: skip
        if not hasattr(consensus, "labels_"):
            what = type(consensus).__name__
            raise InvalidInputError(
                f"consensus is {what} without labels_; pass a Consensus, its path, or a fitted method.",
                parameter="consensus",
            )
        labels, found = consensus.labels_, getattr(consensus, "_memberships", None)
        rows = found.membership_rows if isinstance(found, Consensus) else found
        K = int(labels.max(initial=0)) + 1 if rows is None else rows.shape[1]
        return cls(
            "in memory", type(consensus).__name__, len(labels), 0 if rows is None else K, K, labels, rows,
            getattr(consensus, "_trust", None), consensus.history_, fit_results(consensus),
            consensus.get_params(deep=False), {}, getattr(consensus, "_ids", None),
            getattr(consensus, "tree_", None),
        )  # fmt: skip

    @property
    def names(self) -> Any:
        """What identifies the objects; see `names_of_rows`."""
        return range(self.n_objects) if self.ids is None else self.ids

    def trust_rows(self, start: int, stop: int) -> np.ndarray:
        """Return the trust of a range of objects, (rows,) `TRUST_ROW`."""
        if isinstance(self.trust, Consensus):
            return self.trust.read_trust(start, stop)
        rows = np.empty(stop - start, TRUST_ROW)
        for name in TRUST_ROW.names or ():
            rows[name] = getattr(self.trust, name)[start:stop]
        return rows


def check_page(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInputError for a path with the suffix of another kind of file than a page."""
    suffix = Path(path).suffix
    if suffix.lower() not in ("", ".html", ".htm"):
        raise InvalidInputError(f"{os.fspath(path)} has suffix {suffix!r}; a report is HTML, use .html.")


_OBJECT = np.dtype(
    [("object", np.int64), ("cluster", np.int64), *((n, TRUST_ROW[n]) for n in TRUST_ROW.names or ())]
)


class _Told:
    """What a pass over the objects tells: sizes, confidence, and the least certain ones."""

    def __init__(self, n_clusters: int, n_objects: int, kind: str) -> None:
        self.kind = kind
        """Where the confidence is from: "trust", "memberships", or empty without any."""
        self.sizes: np.ndarray = np.zeros(n_clusters, np.int64)
        self.confidence: np.ndarray = np.zeros(n_clusters)
        """The confidence of the objects of each cluster, summed."""
        self.levels: np.ndarray = np.zeros(len(LEVELS) + 1, np.int64)
        self.n_unlabeled = 0
        self.rows: np.ndarray = np.empty(0, _OBJECT)
        self._most = n_objects

    def add(self, start: int, labels: np.ndarray, found: np.ndarray | None) -> None:
        """Add the labels (rows,) of a block and, if known, their confidence."""
        labeled = np.flatnonzero(labels >= 0)
        self.n_unlabeled += labels.size - labeled.size
        self.sizes += np.bincount(labels[labeled], minlength=self.sizes.size)
        if found is None:
            return
        stated = found["confidence"][labeled].astype(np.float64)
        self.confidence += np.bincount(labels[labeled], stated, self.sizes.size)
        self.levels += np.bincount(np.searchsorted(LEVELS, stated, side="right"), minlength=self.levels.size)
        lowest = np.lexsort((labeled, stated))[: self._most]
        rows = np.empty(lowest.size, _OBJECT)
        rows["object"], rows["cluster"] = start + labeled[lowest], labels[labeled[lowest]]
        for name in TRUST_ROW.names or ():
            rows[name] = found[name][labeled[lowest]]
        both = np.concatenate([self.rows, rows])
        self.rows = both[np.lexsort((both["object"], both["confidence"]))[: self._most]]

    def levels_in_words(self) -> list[tuple[str, int]]:
        """Return how many objects are of each range of confidence, the highest first."""
        bounds = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(LEVELS)]
        words = [f"below {LEVELS[0]:g}", *bounds, f"{LEVELS[-1]:g} or more"]
        return list(zip(words, self.levels.tolist(), strict=True))[::-1] if self.kind else []

    def least_certain(self, ids: Any) -> pa.Table:
        """Return the table of the least certain objects, with their ids, if they have any."""
        import pyarrow as pa

        names = [n for n in _OBJECT.names or () if self.kind == "trust" or not n.startswith("second")]
        table = pa.table({{"second_labels": "second_label"}.get(n, n): self.rows[n].copy() for n in names})
        if ids is None:
            return table
        rows = self.rows["object"].tolist()
        one = ids.read if hasattr(ids, "read") else lambda start, _: ids.values.slice(start, 1)
        return table.add_column(1, "id", pa.concat_arrays([one(row, row + 1) for row in rows]))


def _read(
    source: _Source, ensemble: Any, n_objects: int, client: object
) -> tuple[_Told, tuple[Any, Any] | None]:
    """Return what a pass over the objects tells, and the tables of clusters and of partitions, if known."""
    if source.trust is not None or ensemble is None:
        kind = (
            "trust" if source.trust is not None else "memberships" if source.memberships is not None else ""
        )
        told = _Told(source.n_clusters, n_objects, kind)
        for start in range(0, source.n_objects, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, source.n_objects)
            found = source.trust_rows(start, stop) if kind == "trust" else None
            if kind == "memberships":
                found = np.zeros(stop - start, TRUST_ROW)
                found["confidence"] = np.asarray(source.memberships[start:stop]).max(axis=1)
            told.add(start, source.labels[start:stop], found)
        if source.trust is None:
            return told, None
        stored = isinstance(source.trust, Consensus)
        return told, source.trust.trust_tables if stored else (source.trust.clusters, source.trust.partitions)
    told = _Told(source.n_clusters, n_objects, "trust")
    with open_engine(client) as engine:
        codes, values = codes_for(ensemble, source.labels)
        evidence = Evidence(ensemble, codes, values, engine)
        for block, rows in evidence.weigh_blocks(lambda _, rows: rows):
            told.add(block.start, source.labels[block.start : block.stop], rows)
        return told, evidence.told.tables(ensemble)


def _ids_in(column: Table, facts: IdFacts) -> Iterator[Any]:
    """Yield the ids in a table of one column, in the form of known ones."""
    for rows in column.blocks(BLOCK_ROWS):
        values = rows[0] if isinstance(rows, list) else rows[:, 0]
        yield canonical(values, facts.name, column.where, dtype=facts.dtype)


def _clusters(told: _Told, tables: tuple[Any, Any] | None) -> pa.Table:
    """Return the table of clusters with objects, from the largest to the smallest."""
    import pyarrow as pa

    shown = np.argsort(-told.sizes, kind="stable")
    shown = shown[told.sizes[shown] > 0]
    share = told.sizes[shown] / max(told.sizes.sum(), 1)
    if tables is not None:
        known = tables[0]
        places = {cluster: row for row, cluster in enumerate(known["cluster"].to_pylist())}
        table = known.take([places[k] for k in shown.tolist()])
        return table.add_column(2, "share", pa.array(share))
    found = {"cluster": shown, "size": told.sizes[shown], "share": share}
    if told.kind:
        found["confidence"] = told.confidence[shown] / told.sizes[shown]
    return pa.table(found)


def _partitions(tables: tuple[Any, Any] | None, ensemble: Any) -> pa.Table | None:
    """Return the table of partitions, joined from what the consensus knows and what the ensemble does."""
    known = None if tables is None else tables[1]
    if ensemble is None:
        return known
    agreement = partition_agreement(ensemble)
    if known is None or known["partition"].to_pylist() != ensemble.names:
        return agreement
    for name in ("agreement", "coverage"):
        known = known.add_column(3, name, agreement[name])
    return known


def _facts(source: _Source, told: _Told, tree: ClusterTree | None) -> dict[str, Any]:
    """Return the numbers of the whole."""
    counted = count_clusters(told.sizes)
    found: dict[str, Any] = {
        "objects": source.n_objects,
        "objects without a label": told.n_unlabeled or None,
        "clusters": clusters_in_words(counted["n_clusters"], None, source.n_clusters),
        "clusters by the tree": None if tree is None else tree_in_words(tree),
    }
    if told.kind:
        n_labeled = int(told.sizes.sum())
        found["mean confidence"] = float(told.confidence.sum() / max(n_labeled, 1))
    seconds = [s for s in source.history.get("seconds", []) if s is not None]
    results = {name_of(name): value for name, value in source.results.items() if name not in counted}
    starts = results.pop(name_of("start_objectives"), None)
    if starts is not None:
        results["starts"] = len(starts)
    memory = [m for m in source.history.get("memory", []) if m is not None]
    return {
        **found,
        **results,
        "seconds in passes": float(sum(seconds)) if seconds else None,
        "most memory after a pass": format_size(max(memory)) if memory else None,
    }


def _warnings(
    source: _Source, told: _Told, clusters: Any, partitions: Any, tree: ClusterTree | None
) -> Iterable[str]:
    """Yield what to mind, one sentence each."""
    known = {} if tree is None else {"has_structure": tree.choice.is_clear}
    yield from cautions({**known, **source.results}, source.n_clusters)
    if told.n_unlabeled:
        yield f"{_of(told.n_unlabeled, source.n_objects, 'objects')} have no label in any partition."
    counted = count_clusters(told.sizes)
    if (empty := source.n_clusters - counted["n_clusters"]) > 0:
        yield f"Without objects: {empty:,} of the {source.n_clusters:,} clusters asked for."
    if counted["n_tiny_clusters"]:
        n_tiny, n_found = counted["n_tiny_clusters"], counted["n_clusters"]
        yield f"Tiny, below a tenth of the mean size: {n_tiny:,} of {n_found:,} clusters."
    if told.kind and told.levels[0]:
        n = int(told.sizes.sum())
        yield f"{_of(int(told.levels[0]), n, 'objects')} have a confidence below {LEVELS[0]:g}."
    if "stability" in clusters.column_names:
        rows = zip(clusters["cluster"].to_pylist(), clusters["stability"].to_pylist(), strict=True)
        if weak := [k for k, value in rows if value is not None and value < 0.5]:
            yield f"Half of the partitions would assign other objects to {_some('cluster', weak)}."
    if joined := [f"{k} and {other}" for k, other in mergers(clusters).items()]:
        pairs = _some("Cluster", joined).replace("Cluster ", "Clusters ")
        yield f"{pairs} are not told apart by halves of the partitions and could be merged."
    yield from _of_partitions(
        partitions, "weight", lambda v: v < 0.1, "say almost nothing about the clusters"
    )


def _notes(partitions: Any, profiles: ClusterProfiles | None) -> Iterable[str]:
    """Yield what is worth knowing and needs no caution, one or two sentences each."""
    if profiles is not None and profiles.followed:
        yield profiles.followed_in_words()
    yield from _of_partitions(
        partitions,
        "redundancy",
        lambda v: v >= 0.99,
        "are near copies of another (adjusted Rand index 0.99 or more)",
    )


def _of_partitions(
    partitions: Any, column: str, is_meant: Callable[[float], bool], words: str
) -> Iterable[str]:
    """Yield a sentence about the partitions with such values of a column, if there are any."""
    if partitions is None or column not in partitions.column_names:
        return
    rows = zip(partitions["partition"].to_pylist(), partitions[column].to_pylist(), strict=True)
    if meant := [name for name, value in rows if value is not None and is_meant(value)]:
        names = ", ".join(meant[:3]) + (" and others" if len(meant) > 3 else "")
        yield f"{_of(len(meant), len(partitions), 'partitions')} {words}: {names}."


def _of(n: int, total: int, what: str) -> str:
    return f"{n:,} of {total:,} {what} ({percent(n / total)})"


def _some(what: str, numbers: Sequence[Any]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"{what}{'s' if len(numbers) > 1 else ''} {shown}"


# Pictures


def _pictures(
    consensus: Any, source: _Source, ensemble: Any, tree: ClusterTree | None, n_clusters: int
) -> list[Drawn]:
    """Return the pictures, of a tree down to ``n_clusters``; none without matplotlib."""
    from bigcons import plots
    from bigcons.plots.graph import LEAST_OVERLAP

    if isinstance(consensus, (str, os.PathLike)):
        consensus = Consensus.open(consensus)
    drawn: list[tuple[str, Any, str]] = []
    try:
        if source.memberships is not None:
            drawn.append((CLUSTERS, plots.memberships(consensus), "memberships"))
            overlap = cluster_overlap(consensus, LEAST_OVERLAP)
            np.fill_diagonal(overlap, 0.0)
            if overlap.max() >= LEAST_OVERLAP:
                drawn.append((CLUSTERS, plots.cluster_graph(consensus), "graph"))
        if tree is not None and len(tree.sizes) > 1:
            drawn.append((CLUSTERS, plots.tree(tree, max(n_clusters, 2)), "tree"))
        unit = "pass" if "pass" in source.history else "step"
        if len(source.history.get(unit, ())) > 1 and source.history.get("objective"):
            drawn.append((CONVERGENCE, plots.convergence(source.history), "convergence"))
        if ensemble is not None and ensemble.n_partitions > 1:
            drawn.append((PARTITIONS, plots.partitions(ensemble), "partitions"))
    except MissingDependencyError:
        return []
    return [Drawn(section, WORDS[name], CAPTIONS[name], figure.svg()) for section, figure, name in drawn]


WORDS = {
    "memberships": "Heat map of the memberships: a row for each cluster, named with its number of objects, "
    "and a column for each sampled object, sorted by cluster. An object is certain where its column is dark "
    "once.",
    "graph": "Graph of the clusters, with their shares of the objects. Arrows say which share of a cluster "
    "also lies in another one.",
    "tree": "Tree of clusters, from all objects on the left to as many clusters as the consensus has on the "
    "right, with their shares. Lines are as wide as their share, and dark where halves of the partitions "
    "reproduce the split.",
    "convergence": "Curves of the objective and, if measured, the optimality gap against the passes; the "
    "table below has the numbers.",
    "partitions": "Heat map of the adjusted Rand index of every two partitions, those that agree next to "
    "each other; the table below has the means.",
}
"""What pictures show, for those who do not see them."""

CAPTIONS = {
    "memberships": "Memberships of sampled objects, by cluster and confidence.",
    "graph": "Overlap of the largest clusters.",
    "tree": "Tree of clusters, and the support of its splits.",
    "convergence": "Objective and gap by pass.",
    "partitions": "How far every two partitions agree.",
}


def _by(method: str) -> str:
    """Return the name of a method with the paper it is from, if it is one of the package."""
    papers = {cls.__name__: cls.info.paper for cls in METHODS.values()}
    return f"{method} ({papers[method]})" if method in papers else method
