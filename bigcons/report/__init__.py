"""A consensus told on one HTML page that needs nothing else, no network and no script.

`Report` gathers the numbers block by block; `page` and ``template.html`` lay them out.
"""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigcons.contingency import codes_for
from bigcons.disk.commit import new_file
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, format_size, parse_size, row_blocks, rows_within
from bigcons.methods import METHODS
from bigcons.metrics import cluster_overlap, cluster_profiles, partition_agreement
from bigcons.report.page import name_of, page, percent
from bigcons.run.engine import open_engine
from bigcons.run.results import count_clusters
from bigcons.store.clusters import TRUST_ROW, ClusterTree, mergers, tree_in_words
from bigcons.store.consensus import Consensus, cautions, clusters_in_words, fit_results
from bigcons.store.ensemble import as_ensemble
from bigcons.trust.cluster_tree import consensus_tree
from bigcons.trust.confidence import Evidence
from bigcons.validation import check_int

if TYPE_CHECKING:
    import pyarrow as pa

    from bigcons.metrics.profiles import ClusterProfiles

LEVELS = (0.5, 0.7, 0.9, 0.99)
"""Confidence is counted between these."""

AT_A_GLANCE = ("objects", "objects without a label", "clusters", "mean confidence")
"""Facts of the result; the others are of the solver."""


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
        `bigcons.select` chooses among its columns.
        If the objects have ids and the table their column, they are compared.
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
        n_objects: int = 20,
        n_clusters: int = 20,
        pictures: bool = True,
        memory: int | str = "1GB",
        client: object = None,
    ) -> None:
        check_int("n_objects", n_objects)
        check_int("n_clusters", n_clusters)
        self._source = source = _Source.of(consensus)
        opened = None if ensemble is None else as_ensemble(ensemble)
        if opened is not None and opened.n_objects != source.n_objects:
            raise InvalidInputError(
                f"the ensemble has {opened.n_objects:,} objects but the consensus {source.n_objects:,}; "
                "pass its own.",
                parameter="ensemble",
            )
        refuse_other_rows("the ensemble", names_of_rows(opened), "the consensus", source.names)
        n_columns = 0 if source.memberships is None else source.n_clusters
        rows = min(BLOCK_ROWS, source.n_objects)
        rows_within(parse_size(memory), 48 + 12 * n_columns, at_least=rows, what="a block of objects")
        self._counts = counts = _Counts(source, opened, n_objects, client)
        self.clusters: pa.Table = counts.clusters()
        self.least_certain: pa.Table | None = counts.least_certain
        self.partitions: pa.Table | None = _partitions(counts.tables, opened)
        self._n_profiles = n_clusters
        self.profiles: ClusterProfiles | None = None
        if features is not None:
            self.profiles = cluster_profiles(_features_of(source, features), source.labels, memory=memory)
        self.tree: ClusterTree | None = source.tree if tree is None else tree
        if self.tree is None and opened is not None and opened.n_partitions > 1:
            self.tree = consensus_tree(opened, random_state=0, client=client)
        self.facts: dict[str, Any] = _facts(source, counts, self.tree)
        self.warnings: list[str] = list(_warnings(self))
        self.notes: list[str] = list(_notes(self))
        self._pictures: dict[str, bytes] = {}
        if pictures:
            try:
                figures = figures_of(source.consensus, opened, tree=self.tree, client=client)
                self._pictures = {
                    name: figure.image("svg", metadata={"Date": None}) for name, figure in figures.items()
                }
            except MissingDependencyError:  # matplotlib
                pass

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page to a file at ``path``.

        Raises StoreExistsError if there is one, unless ``overwrite``, and InvalidInputError for the suffix of
        another kind of file.
        """
        suffix = Path(path).suffix
        if suffix.lower() not in ("", ".html", ".htm"):
            raise InvalidInputError(f"{os.fspath(path)} has suffix {suffix!r}; a report is HTML, use .html.")
        content = self.html().encode()
        with new_file(path, overwrite=overwrite) as file:
            file.write(content)

    def html(self) -> str:
        """Return the page."""
        source, columns = self._source, self.clusters
        facts = {name: fact for name, fact in self.facts.items() if fact is not None}
        papers = {cls.__name__: cls.info.paper for cls in METHODS.values()}
        paper = f" ({papers[source.method]})" if source.method in papers else ""
        return page(
            report=self, name=source.name, method=source.method + paper, n_objects=source.n_objects,
            facts={name: fact for name, fact in facts.items() if name in AT_A_GLANCE},
            solver={name: fact for name, fact in facts.items() if name not in AT_A_GLANCE},
            unknown=[n for n in columns.column_names if columns[n].null_count == len(columns)],
            levels=self._counts.levels_in_words(), n_profiles=self._n_profiles, pictures=self._pictures,
            history=source.history, parameters=source.parameters, provenance=source.provenance,
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


def figures_of(
    consensus: Any, ensemble: Any = None, *, tree: ClusterTree | None = None, client: object = None
) -> dict[str, Any]:
    """Return the figures of a consensus, and of its ensemble, by name: those with something to draw.

    ``consensus`` as for `Report`; ``tree`` by default the one that it has kept.
    """
    from bigcons import plots
    from bigcons.plots.graphs import LEAST_OVERLAP

    source = _Source.of(consensus)
    figures, solved = {}, source.consensus
    if source.memberships is not None:
        figures["memberships"] = plots.memberships(solved)
        overlap = cluster_overlap(solved, LEAST_OVERLAP, client=client)
        if (overlap - np.diag(np.diag(overlap))).max() >= LEAST_OVERLAP:
            figures["clusters"] = plots.cluster_graph(solved, client=client)
    if source.trust is not None:
        figures["trust"] = plots.trust(source.trust)
    tree = source.tree if tree is None else tree
    if tree is not None and len(tree.sizes) > 1:
        figures["tree"] = plots.tree(tree, max(source.n_clusters, 2))
    unit = "pass" if "pass" in source.history else "step"
    if len(source.history.get(unit, ())) > 1 and source.history.get("objective"):
        figures["convergence"] = plots.convergence(source.history)
    if ensemble is not None:
        opened = as_ensemble(ensemble)
        figures["coassociation"] = plots.coassociation(opened, labels=solved)
        if opened.n_partitions > 1 and not opened.is_soft:
            figures["partitions"] = plots.partitions(opened)
    return figures


# What is read


class _Source(NamedTuple):
    """A consensus, stored or held by a fitted method."""

    consensus: Any
    """The `Consensus` or the method."""
    name: str
    method: str
    n_objects: int
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
            return cls(
                consensus, consensus.path, str(consensus.parameters.get("method", "Consensus")),
                consensus.n_objects, consensus.n_clusters, consensus.label_rows,
                consensus.membership_rows if consensus.has_memberships else None,
                consensus if consensus.has_trust else None, consensus.history, consensus.results,
                consensus.parameters, consensus.provenance, consensus.id_column, consensus.tree,
            )  # fmt: skip
        if not hasattr(consensus, "labels_"):
            what = type(consensus).__name__
            raise InvalidInputError(
                f"consensus is {what} without labels_; pass a Consensus, its path, or a fitted method.",
                parameter="consensus",
            )
        labels, rows = consensus.labels_, getattr(consensus, "_memberships", None)
        rows = rows.membership_rows if isinstance(rows, Consensus) else rows
        K = int(labels.max(initial=0)) + 1 if rows is None else rows.shape[1]
        return cls(
            consensus, "in memory", type(consensus).__name__, len(labels), K, labels, rows,
            getattr(consensus, "_trust", None), consensus.history_, fit_results(consensus),
            consensus.get_params(deep=False), {}, getattr(consensus, "_ids", None),
            getattr(consensus, "tree_", None),
        )  # fmt: skip

    @property
    def names(self) -> Any:
        """What identifies the objects; see `names_of_rows`."""
        return range(self.n_objects) if self.ids is None else self.ids

    def confidence_rows(self, start: int, stop: int) -> np.ndarray | None:
        """Return how far objects can be trusted, (rows,) `TRUST_ROW`, else their largest memberships."""
        if isinstance(self.trust, Consensus):
            return self.trust.read_trust(start, stop)
        rows = np.zeros(stop - start, TRUST_ROW)
        if self.trust is not None:
            for name in TRUST_ROW.names or ():
                rows[name] = getattr(self.trust, name)[start:stop]
        elif self.memberships is not None:
            rows["confidence"] = np.asarray(self.memberships[start:stop]).max(axis=1)
        else:
            return None
        return rows


class _Counts:
    """What a pass over the objects counts: sizes, confidence, and the least certain objects."""

    def __init__(self, source: _Source, ensemble: Any, n_objects: int, client: object) -> None:
        self.sizes: np.ndarray = np.zeros(source.n_clusters, np.int64)
        self.confidence: np.ndarray = np.zeros(source.n_clusters)
        """The confidence of the objects of each cluster, summed."""
        self.levels: np.ndarray = np.zeros(len(LEVELS) + 1, np.int64)
        self.n_unlabeled = 0
        self.least_certain: Any = None
        self.tables: tuple[Any, Any] | None = None
        """The tables of clusters and of partitions, if known."""
        self._n_objects = n_objects
        self._columns = list(TRUST_ROW.names or ())
        """Fields of `TRUST_ROW` that are known, if any."""
        if source.trust is None and ensemble is not None:
            with open_engine(client) as engine:
                codes, values = codes_for(ensemble, source.labels)
                evidence = Evidence(ensemble, codes, values, engine)
                for block, rows in evidence.weigh_blocks(lambda _, rows: rows):
                    self._add(block.start, source.labels[block.start : block.stop], rows)
                self.tables = evidence.sums.tables(ensemble)
        else:
            if isinstance(source.trust, Consensus):
                self.tables = source.trust.trust_tables
            elif source.trust is not None:
                self.tables = source.trust.clusters, source.trust.partitions
            else:
                self._columns = [] if source.memberships is None else ["confidence"]
            for block in row_blocks(source.n_objects, BLOCK_ROWS):
                trust = source.confidence_rows(block.start, block.stop)
                self._add(block.start, source.labels[block.start : block.stop], trust)
        if source.ids is not None:
            self.least_certain = _with_ids(self.least_certain, source.ids)

    def _add(self, start: int, labels: Any, trust: np.ndarray | None) -> None:
        """Add the labels (rows,) of a block and, if known, their confidence."""
        import pyarrow as pa

        labeled = np.flatnonzero(labels >= 0)
        self.n_unlabeled += labels.size - labeled.size
        self.sizes += np.bincount(labels[labeled], minlength=self.sizes.size)
        if trust is None:
            return
        confidence = trust["confidence"][labeled].astype(np.float64)
        self.confidence += np.bincount(labels[labeled], confidence, self.sizes.size)
        levels = np.searchsorted(LEVELS, confidence, side="right")
        self.levels += np.bincount(levels, minlength=self.levels.size)
        lowest = labeled[np.lexsort((labeled, confidence))[: self._n_objects]]
        columns = {"object": start + lowest, "cluster": labels[lowest].astype(np.int64)}
        for name in self._columns:
            columns["second_label" if name == "second_labels" else name] = trust[name][lowest]
        before = [] if self.least_certain is None else [self.least_certain]
        rows = pa.concat_tables([*before, pa.table(columns)])
        order = [("confidence", "ascending"), ("object", "ascending")]
        self.least_certain = rows.sort_by(order).slice(0, self._n_objects)

    def clusters(self) -> pa.Table:
        """Return the table of clusters with objects, from the largest to the smallest."""
        import pyarrow as pa

        shown = np.argsort(-self.sizes, kind="stable")
        shown = shown[self.sizes[shown] > 0]
        share = self.sizes[shown] / max(self.sizes.sum(), 1)
        if self.tables is not None:
            rows = {cluster: row for row, cluster in enumerate(self.tables[0]["cluster"].to_pylist())}
            return (
                self.tables[0].take([rows[k] for k in shown.tolist()]).add_column(2, "share", pa.array(share))
            )
        columns = {"cluster": shown, "size": self.sizes[shown], "share": share}
        if self.least_certain is not None:
            columns["confidence"] = self.confidence[shown] / self.sizes[shown]
        return pa.table(columns)

    def levels_in_words(self) -> list[dict[str, Any]]:
        """Return how many objects are of each range of confidence, the highest first."""
        bounds = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(LEVELS)]
        words = [f"below {LEVELS[0]:g}", *bounds, f"{LEVELS[-1]:g} or more"]
        shares = (self.levels / max(int(self.levels.sum()), 1)).tolist()
        columns = zip(words, self.levels.tolist(), shares, strict=True)
        rows = [dict(zip(("confidence", "objects", "share"), row, strict=True)) for row in columns]
        return rows[::-1] if self.least_certain is not None else []


def _with_ids(table: pa.Table | None, ids: Any) -> pa.Table | None:
    """Return the table of some objects with their ids."""
    import pyarrow as pa

    if table is None or not len(table):
        return table
    read = ids.read if hasattr(ids, "read") else lambda start, _: ids.values.slice(start, 1)
    values = [read(row, row + 1) for row in table["object"].to_pylist()]
    return table.add_column(1, "id", pa.concat_arrays(values))


def _features_of(source: _Source, features: Any) -> Any:
    """Return the table of features, whose ids, if it has them, must be those of the objects."""
    name = None if source.ids is None else source.ids.facts.name
    table = open_source(features, "features", usual_id=name)
    refuse_other_rows(table.where, table.ids or names_of_rows(features), "the consensus", source.names)
    return table


# What is told


def _partitions(tables: tuple[Any, Any] | None, ensemble: Any) -> pa.Table | None:
    """Return the table of partitions, joined from what the consensus knows and what the ensemble does."""
    weights: pa.Table | None = None if tables is None else tables[1]
    if ensemble is None:
        return weights
    agreement = partition_agreement(ensemble)
    if weights is None or weights["partition"].to_pylist() != ensemble.names:
        return agreement
    for name in ("agreement", "coverage"):
        weights = weights.add_column(3, name, agreement[name])
    return weights


def _facts(source: _Source, counts: _Counts, tree: ClusterTree | None) -> dict[str, Any]:
    """Return the numbers of the whole."""
    counted = count_clusters(counts.sizes)
    facts: dict[str, Any] = {
        "objects": source.n_objects,
        "objects without a label": counts.n_unlabeled or None,
        "clusters": clusters_in_words(counted["n_clusters"], None, source.n_clusters),
        "clusters by the tree": None if tree is None else tree_in_words(tree),
    }
    if counts.least_certain is not None:
        facts["mean confidence"] = float(counts.confidence.sum() / max(int(counts.sizes.sum()), 1))
    facts |= {name_of(name): value for name, value in source.results.items() if name not in counted}
    starts = facts.pop(name_of("start_objectives"), None)
    seconds, memory = (
        [value for value in source.history.get(name, []) if value is not None]
        for name in ("seconds", "memory")
    )
    return {
        **facts,
        **({} if starts is None else {"starts": len(starts)}),
        "seconds in passes": float(sum(seconds)) if seconds else None,
        "most memory after a pass": format_size(max(memory)) if memory else None,
    }


def _warnings(report: Report) -> Iterator[str]:
    """Yield what to mind, one sentence each."""
    source, counts, clusters = report._source, report._counts, report.clusters
    structure = {} if report.tree is None else {"has_structure": report.tree.choice.is_clear}
    yield from cautions({**structure, **source.results}, source.n_clusters)
    if counts.n_unlabeled:
        yield f"{_share(counts.n_unlabeled, source.n_objects, 'objects')} have no label in any partition."
    counted = count_clusters(counts.sizes)
    if (empty := source.n_clusters - counted["n_clusters"]) > 0:
        yield f"Without objects: {empty:,} of the {source.n_clusters:,} clusters asked for."
    if n_tiny := counted["n_tiny_clusters"]:
        yield f"Tiny, below a tenth of the mean size: {n_tiny:,} of {counted['n_clusters']:,} clusters."
    if counts.levels[0]:
        low = _share(int(counts.levels[0]), int(counts.sizes.sum()), "objects")
        yield f"{low} have a confidence below {LEVELS[0]:g}."
    if "stability" in clusters.column_names:
        rows = zip(clusters["cluster"].to_pylist(), clusters["stability"].to_pylist(), strict=True)
        if weak := [str(k) for k, value in rows if value is not None and value < 0.5]:
            plural = "s" if len(weak) > 1 else ""
            yield f"Half of the partitions would assign other objects to cluster{plural} {_some(weak, 8)}."
    pairs = {tuple(sorted(pair)) for pair in mergers(clusters).items()}
    if joined := [f"{k} and {other}" for k, other in sorted(pairs)]:
        yield (
            f"Clusters {_some(joined, 8)} are not told apart by halves of the partitions and could be merged."
        )
    words = "say almost nothing about the clusters"
    yield from _of_partitions(report.partitions, "weight", lambda value: value < 0.1, words)


def _notes(report: Report) -> Iterator[str]:
    """Yield what is worth knowing and needs no caution, one or two sentences each."""
    if report.profiles is not None and report.profiles.followed:
        yield report.profiles.followed_in_words()
    words = "are near copies of another (adjusted Rand index 0.99 or more)"
    yield from _of_partitions(report.partitions, "redundancy", lambda value: value >= 0.99, words)


def _of_partitions(
    partitions: Any, column: str, is_meant: Callable[[float], bool], words: str
) -> Iterator[str]:
    """Yield a sentence about the partitions with such values of a column, if there are any."""
    if partitions is None or column not in partitions.column_names:
        return
    rows = zip(partitions["partition"].to_pylist(), partitions[column].to_pylist(), strict=True)
    if names := [name for name, value in rows if value is not None and is_meant(value)]:
        named = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
        yield f"{_share(len(names), len(partitions), 'partitions')} {words}: {named}."


def _share(n: int, total: int, what: str) -> str:
    return f"{n:,} of {total:,} {what} ({percent(n / total)})"


def _some(words: list[str], most: int) -> str:
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")
