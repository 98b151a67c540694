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

from bigcons.disk.commit import new_file
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.columns import Selection, choose
from bigcons.io.ids import canonical, refuse_other_ids
from bigcons.io.labels import names_of_rows, refuse_other_rows
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, format_size, parse_size, rows_within
from bigcons.methods import METHODS
from bigcons.metrics.description import ClusterProfiles, cluster_profiles, partition_agreement
from bigcons.metrics.memberships import cluster_overlap
from bigcons.metrics.partitions import codes_for
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
        rows = min(BLOCK_ROWS, source.n_objects)
        rows_within(parse_size(memory), 48 + 12 * source.n_columns, at_least=rows, what="a block of objects")
        self._counts, tables = _count(source, opened, n_objects, client)
        self.clusters: pa.Table = _clusters(self._counts, tables)
        self.least_certain: pa.Table | None = self._counts.least_certain(source.ids)
        self.partitions: pa.Table | None = _partitions(tables, opened)
        self._n_profiles = n_clusters
        self.profiles: ClusterProfiles | None = None
        if features is not None:
            self.profiles = cluster_profiles(_features_of(source, features), source.labels, memory=memory)
        self.tree: ClusterTree | None = source.tree if tree is None else tree
        if self.tree is None and opened is not None and opened.n_partitions > 1:
            self.tree = consensus_tree(opened, random_state=0, client=client)
        self.facts: dict[str, Any] = _facts(source, self._counts, self.tree)
        self.warnings: list[str] = list(_warnings(self))
        self.notes: list[str] = list(_notes(self))
        self._pictures = _pictures(consensus, self, opened) if pictures else {}

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page to a file at ``path``.

        Raises StoreExistsError if there is one, unless ``overwrite``, and InvalidInputError for the suffix of
        another kind of file.
        """
        check_page(path)
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


def check_page(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInputError for a path with the suffix of another kind of file than a page."""
    suffix = Path(path).suffix
    if suffix.lower() not in ("", ".html", ".htm"):
        raise InvalidInputError(f"{os.fspath(path)} has suffix {suffix!r}; a report is HTML, use .html.")


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
        labels, rows = consensus.labels_, getattr(consensus, "_memberships", None)
        rows = rows.membership_rows if isinstance(rows, Consensus) else rows
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


_OBJECT = np.dtype(
    [("object", np.int64), ("cluster", np.int64), *((n, TRUST_ROW[n]) for n in TRUST_ROW.names or ())]
)


class _Counts:
    """What a pass over the objects counts: sizes, confidence, and the least certain objects."""

    def __init__(self, n_clusters: int, n_objects: int, columns: list[str]) -> None:
        self.columns = columns
        """Fields of `TRUST_ROW` that are known, if any."""
        self.sizes: np.ndarray = np.zeros(n_clusters, np.int64)
        self.confidence: np.ndarray = np.zeros(n_clusters)
        """The confidence of the objects of each cluster, summed."""
        self.levels: np.ndarray = np.zeros(len(LEVELS) + 1, np.int64)
        self.n_unlabeled = 0
        self.rows: np.ndarray = np.empty(0, _OBJECT)
        self._n_objects = n_objects

    def add(self, start: int, labels: np.ndarray, trust: np.ndarray | None) -> None:
        """Add the labels (rows,) of a block and, if known, their confidence."""
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
        rows = np.empty(lowest.size, _OBJECT)
        rows["object"], rows["cluster"] = start + lowest, labels[lowest]
        for name in TRUST_ROW.names or ():
            rows[name] = trust[name][lowest]
        both = np.concatenate([self.rows, rows])
        self.rows = both[np.lexsort((both["object"], both["confidence"]))[: self._n_objects]]

    def levels_in_words(self) -> list[dict[str, Any]]:
        """Return how many objects are of each range of confidence, the highest first."""
        bounds = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(LEVELS)]
        words = [f"below {LEVELS[0]:g}", *bounds, f"{LEVELS[-1]:g} or more"]
        rows = [
            {"confidence": word, "objects": count, "share": count / max(int(self.levels.sum()), 1)}
            for word, count in zip(words, self.levels.tolist(), strict=True)
        ]
        return rows[::-1] if self.columns else []

    def least_certain(self, ids: Any) -> pa.Table | None:
        """Return the table of the least certain objects, with their ids, if they have any."""
        import pyarrow as pa

        if not self.columns:
            return None
        names = {"object": "object", "cluster": "cluster"} | {name: name for name in self.columns}
        names |= {"second_labels": "second_label"} if "second_labels" in names else {}
        table = pa.table({shown: self.rows[name].copy() for name, shown in names.items()})
        if ids is None:
            return table
        rows = self.rows["object"].tolist()
        read = ids.read if hasattr(ids, "read") else lambda start, _: ids.values.slice(start, 1)
        return table.add_column(1, "id", pa.concat_arrays([read(row, row + 1) for row in rows]))


def _count(
    source: _Source, ensemble: Any, n_objects: int, client: object
) -> tuple[_Counts, tuple[Any, Any] | None]:
    """Return what a pass over the objects counts, and the tables of clusters and of partitions, if known."""
    if source.trust is None and ensemble is not None:
        counts = _Counts(source.n_clusters, n_objects, list(TRUST_ROW.names or ()))
        with open_engine(client) as engine:
            codes, values = codes_for(ensemble, source.labels)
            evidence = Evidence(ensemble, codes, values, engine)
            for block, rows in evidence.weigh_blocks(lambda _, rows: rows):
                counts.add(block.start, source.labels[block.start : block.stop], rows)
            return counts, evidence.sums.tables(ensemble)
    columns = list(TRUST_ROW.names or ()) if source.trust is not None else ["confidence"]
    counts = _Counts(
        source.n_clusters, n_objects, columns if source.trust or source.memberships is not None else []
    )
    for start in range(0, source.n_objects, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, source.n_objects)
        counts.add(start, source.labels[start:stop], source.confidence_rows(start, stop))
    if source.trust is None:
        return counts, None
    if isinstance(source.trust, Consensus):
        return counts, source.trust.trust_tables
    return counts, (source.trust.clusters, source.trust.partitions)


def _features_of(source: _Source, features: Any) -> Any:
    """Return the table of features, whose ids, if it has them, must be those of the objects."""
    table = open_source(features, "features")
    names = table.names or []
    if source.ids is not None and (name := source.ids.facts.name) in names:
        position = names.index(name)
        column = table.texts(position) or table.selected([position])
        ids = (
            canonical(rows[0] if isinstance(rows, list) else rows[:, 0], name, column.where,
                      dtype=source.ids.facts.dtype)
            for rows in column.batches(BLOCK_ROWS)
        )  # fmt: skip
        refuse_other_ids(source.ids.blocks(), ids, name, table.where)
        return choose(table, Selection(None, None, [other for other in names if other != name], None))
    refuse_other_rows(table.where, table.ids or names_of_rows(features), "the consensus", source.names)
    return table


# What is told


def _clusters(counts: _Counts, tables: tuple[Any, Any] | None) -> pa.Table:
    """Return the table of clusters with objects, from the largest to the smallest."""
    import pyarrow as pa

    shown = np.argsort(-counts.sizes, kind="stable")
    shown = shown[counts.sizes[shown] > 0]
    share = counts.sizes[shown] / max(counts.sizes.sum(), 1)
    if tables is not None:
        rows = {cluster: row for row, cluster in enumerate(tables[0]["cluster"].to_pylist())}
        return tables[0].take([rows[k] for k in shown.tolist()]).add_column(2, "share", pa.array(share))
    columns = {"cluster": shown, "size": counts.sizes[shown], "share": share}
    if counts.columns:
        columns["confidence"] = counts.confidence[shown] / counts.sizes[shown]
    return pa.table(columns)


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
    if counts.columns:
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
    if counts.columns and counts.levels[0]:
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


# Pictures


def _pictures(consensus: Any, report: Report, ensemble: Any) -> dict[str, bytes]:
    """Return the pictures of the page as SVG, by name; none without matplotlib."""
    from bigcons import plots
    from bigcons.plots.graphs import LEAST_OVERLAP

    source, tree = report._source, report.tree
    figures: dict[str, Any] = {}
    if isinstance(consensus, (str, os.PathLike)):
        consensus = Consensus.open(consensus)
    try:
        if source.memberships is not None:
            figures["memberships"] = plots.memberships(consensus)
            overlap = cluster_overlap(consensus, LEAST_OVERLAP)
            np.fill_diagonal(overlap, 0.0)
            if overlap.max() >= LEAST_OVERLAP:
                figures["graph"] = plots.cluster_graph(consensus)
        if tree is not None and len(tree.sizes) > 1:
            figures["tree"] = plots.tree(tree, max(report.clusters.num_rows, 2))
        unit = "pass" if "pass" in source.history else "step"
        if len(source.history.get(unit, ())) > 1 and source.history.get("objective"):
            figures["convergence"] = plots.convergence(source.history)
        if ensemble is not None and ensemble.n_partitions > 1:
            figures["partitions"] = plots.partitions(ensemble)
    except MissingDependencyError:
        return {}
    return {name: figure.svg() for name, figure in figures.items()}
