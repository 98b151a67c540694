"""A consensus on one HTML page that needs nothing else, no network and no script.

`Report` gathers the numbers block by block; ``template.html`` lays them out.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bigcons import plots
from bigcons.contingency import refuse_other_objects
from bigcons.disk.commit import new_file
from bigcons.errors import InvalidInputError, MissingDependencyError
from bigcons.io.columns import missing_rule
from bigcons.io.labels import names_of_rows, refuse_other_rows, stored_result
from bigcons.io.sources import open_source
from bigcons.memory import BLOCK_ROWS, DataBudget, format_size, parse_size, row_blocks, rows_within
from bigcons.methods import class_named
from bigcons.metrics import cluster_profiles, partition_agreement, trust
from bigcons.run.results import count_clusters
from bigcons.store.clusters import TRUST_ROW, ClusterTree, mergers, tree_in_words
from bigcons.store.consensus import Consensus, cautions, clusters_in_words, fit_results
from bigcons.store.ensemble import as_ensemble
from bigcons.trust.n_clusters import consensus_tree
from bigcons.version import __version__

if TYPE_CHECKING:
    from bigcons.metrics import ClusterProfiles

DOUBTFUL, N_LISTED = 0.5, 20
"""Objects of lower confidence are counted; so many objects, and clusters with their contents, are listed."""


class Report:
    """A report on a consensus, as tables and as one HTML page.

    Jupyter shows the page; `save` writes it. Everything is read block by block, in one pass over the labels
    and one over the features, except that results of `bigcons.metrics.trust` are held in memory; pictures, if
    matplotlib is installed, read the memberships again.

    Parameters
    ----------
    consensus
        A `Consensus`, the path of one, or a fitted method.
    ensemble
        Its ensemble, or the path of one: adds how the partitions agree with each other, the tree of clusters
        with the support of its splits, and which labels to trust if the consensus does not say.
    tree
        The result of `bigcons.consensus_tree` for the ensemble, for example with p-values; by default the
        tree that the consensus has kept, or a new one.
    features
        Any table of the objects, as for `bigcons.metrics.cluster_profiles`: adds what is in each cluster.
        `bigcons.select` chooses among its columns, and says what is missing; by default, the values that
        counted as missing when the partitions of ``ensemble`` were generated. If the objects have ids and the
        table has their column, the ids are compared.
    pictures : default=True
        Whether to draw pictures. Without matplotlib there are none.
    memory : default="1GB"
        Memory for blocks and counts, besides what the process holds. If it does not suffice,
        MemoryBudgetError is raised before anything is read.
    client
        Engine that finds which labels to trust, if the consensus does not say.

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
        The 20 objects of lowest confidence: ``object``, its row; its ``id``, if it has one; ``cluster``;
        ``confidence``; and, if known, ``second_labels`` and ``second_confidence``.
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
        pictures: bool = True,
        memory: int | str = "1GB",
        client: object = None,
    ) -> None:
        self._source = source = _Source(consensus)
        opened = None if ensemble is None else as_ensemble(ensemble)
        if opened is not None:
            reference = "the consensus has", source.n_objects, source.names
            refuse_other_objects("the ensemble", opened.n_objects, names_of_rows(opened), *reference)
        n_columns = 0 if source.memberships is None else source.n_clusters
        size, rows = 48 + 12 * n_columns, min(BLOCK_ROWS, source.n_objects)
        rows_within(DataBudget(parse_size(memory)), size, at_least=rows, noun="a block of objects")
        if source.trust is None and opened is not None:
            source.trust = trust(opened, source.labels, client=client)
        self._counts = counts = _Counts(source)
        self.clusters: pa.Table = counts.clusters()
        self.least_certain: pa.Table | None = counts.least_certain
        if source.ids is not None and self.least_certain:
            ids = [source.ids.read(row, row + 1) for row in self.least_certain["object"].to_pylist()]
            self.least_certain = self.least_certain.add_column(1, "id", pa.concat_arrays(ids))
        self.partitions: pa.Table | None = _partitions(source.trust, opened)
        self.profiles: ClusterProfiles | None = None
        if features is not None:
            id_name = None if source.ids is None else source.ids.facts.name
            table = open_source(features, "features", usual_id=id_name)
            row_names = table.ids or names_of_rows(features)
            refuse_other_rows(table.where, row_names, "the consensus", source.names)
            generator = None if opened is None else opened.generator
            if generator is not None and not table.rule.more_words:
                table.rule = missing_rule(generator.encoding.columns[0].missing or None)
            self.profiles = cluster_profiles(table, source.labels, memory=memory)
        self.tree: ClusterTree | None = source.tree if tree is None else tree
        if self.tree is None and opened is not None and opened.n_partitions > 1:
            self.tree = consensus_tree(opened, random_state=0, client=client)
        self.facts: dict[str, Any] = _facts(source, counts, self.tree)
        self.warnings: list[str] = list(_warnings(self))
        self.notes: list[str] = list(_notes(self))
        self._pictures: dict[str, bytes] = {}
        if pictures:
            with suppress(MissingDependencyError):  # matplotlib
                figures = figures_of(source.consensus, opened, tree=self.tree, client=client)
                figures.pop("coassociation", None)  # as large as the rest of the page
                for name, figure in figures.items():
                    self._pictures[name] = plots.image_of(figure, "svg", metadata={"Date": None})

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
        solver = class_named(source.method)
        paper = "" if solver is None else f" ({solver.info.paper})"
        from jinja2 import Environment, PackageLoader, StrictUndefined

        templates = Environment(
            loader=PackageLoader("bigcons", "report"),
            autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        )  # fmt: skip
        templates.filters |= {
            "anchor": lambda title: title.lower().replace(" ", "-"),
            "base64": lambda svg: base64.b64encode(svg).decode(),
            "flat": lambda mapping: list(_flat(mapping)),
            "name": name_of,
            "number": lambda value: f"{value:,}",
            "percent": percent,
        }
        templates.globals |= {"cell": cell, "numeric_columns": numeric_columns, "ranked": ranked}
        templates.globals |= {"traits": traits, "passes": passes, "version": __version__}
        return templates.get_template("template.html").render(
            report=self, source=source, method=source.method + paper,
            facts={name: fact for name, fact in self.facts.items() if fact is not None},
            unknown=[n for n in columns.column_names if columns[n].null_count == len(columns)],
            n_profiles=N_LISTED, pictures=self._pictures,
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
    source = _Source(consensus)
    figures, solved = {}, source.consensus
    if source.memberships is not None:
        figures["memberships"] = plots.memberships(solved)
        with suppress(InvalidInputError):  # clusters that share nothing
            figures["clusters"] = plots.cluster_graph(solved, client=client)
    if source.trust is not None:
        figures["trust"] = plots.trust(source.trust)
    tree = source.tree if tree is None else tree
    if tree is not None and len(tree.sizes) > 1:
        figures["tree"] = plots.tree(tree, max(source.n_clusters, 2))
    with suppress(InvalidInputError):  # no objective, or the same in every pass
        figures["convergence"] = plots.convergence(source.history)
    if ensemble is not None:
        opened = as_ensemble(ensemble)
        figures["coassociation"] = plots.coassociation(opened, labels=solved)
        if opened.n_partitions > 1 and not opened.is_soft:
            figures["partitions"] = plots.partitions(opened)
    return figures


# What is read


class _Source:
    """A consensus, stored or held by a fitted method.

    ``n_clusters`` were asked for, some perhaps without objects; ``trust`` is a `Trust`, or the `Consensus`
    that has one, if any.
    """

    labels: Any
    memberships: Any = None
    trust: Any = None

    def __init__(self, consensus: Any) -> None:
        if isinstance(consensus, (str, os.PathLike)):
            consensus = Consensus.open(consensus)
        self.consensus: Any = stored_result(consensus)
        consensus = self.consensus
        self.tree: ClusterTree | None = getattr(consensus, "tree_", None)
        if isinstance(consensus, Consensus):
            self.name, self.labels, self.tree = consensus.path, consensus.label_rows, consensus.tree
            self.method = str(consensus.parameters.get("method", "Consensus"))
            self.n_clusters, self.ids = consensus.n_clusters, consensus.id_column
            self.memberships = consensus.membership_rows if consensus.has_memberships else None
            self.trust = consensus.trust_rows if consensus.has_trust else None
            self.history, self.results = consensus.history, consensus.results
            self.parameters, self.provenance = consensus.parameters, consensus.provenance
        elif hasattr(consensus, "history_"):
            self.name, self.labels, self.method = "in memory", consensus.labels_, type(consensus).__name__
            rows = self.memberships = getattr(consensus, "memberships_", None)
            self.n_clusters = int(self.labels.max(initial=0)) + 1 if rows is None else rows.shape[1]
            self.trust, self.ids = getattr(consensus, "_trust", None), getattr(consensus, "_ids", None)
            self.history, self.results = consensus.history_, fit_results(consensus)
            self.parameters, self.provenance = consensus.get_params(deep=False), {}
        else:
            words = f"consensus is {type(consensus).__name__}, and no result of bigcons; pass a Consensus, "
            raise InvalidInputError(f"{words}its path, or a fitted method.", parameter="consensus")
        self.n_objects = self.labels.shape[0]

    @property
    def names(self) -> Any:
        """What identifies the objects; see `names_of_rows`."""
        return range(self.n_objects) if self.ids is None else self.ids


class _Counts:
    """What a pass over the objects counts: sizes, confidence, and the least certain objects."""

    def __init__(self, source: _Source) -> None:
        self.sizes: np.ndarray = np.zeros(source.n_clusters, np.int64)
        self.confidence: np.ndarray = np.zeros(source.n_clusters)
        """The confidence of the objects of each cluster, summed."""
        self.n_unlabeled = self.n_doubtful = 0
        self.least_certain: Any = None
        self._of_trust: pa.Table | None = None if source.trust is None else source.trust.clusters
        order = [("confidence", "ascending"), ("object", "ascending")]
        for block in row_blocks(source.n_objects, BLOCK_ROWS):
            rows = slice(block.start, block.stop)
            labels = np.asarray(source.labels[rows])
            labeled = np.flatnonzero(labels >= 0)
            self.n_unlabeled += labels.size - labeled.size
            self.sizes += np.bincount(labels[labeled], minlength=self.sizes.size)
            if source.trust is not None:
                scores = {name: getattr(source.trust, name)[rows] for name in TRUST_ROW.names or ()}
            elif source.memberships is not None:
                scores = {"confidence": np.asarray(source.memberships[rows]).max(axis=1)}
            else:
                continue
            confidence = scores["confidence"][labeled].astype(np.float64)
            self.confidence += np.bincount(labels[labeled], confidence, self.sizes.size)
            self.n_doubtful += int(np.count_nonzero(confidence < DOUBTFUL))
            lowest = labeled[np.lexsort((labeled, confidence))[:N_LISTED]]
            columns = {"object": block.start + lowest, "cluster": labels[lowest].astype(np.int64)}
            for name, values in scores.items():
                columns[name] = values[lowest]
            table = pa.table(columns)
            table = table if self.least_certain is None else pa.concat_tables([self.least_certain, table])
            self.least_certain = table.sort_by(order).slice(0, N_LISTED)

    def clusters(self) -> pa.Table:
        """Return the table of clusters with objects, from the largest to the smallest."""
        numbers = np.argsort(-self.sizes, kind="stable")
        numbers = numbers[self.sizes[numbers] > 0]
        share = self.sizes[numbers] / max(self.sizes.sum(), 1)
        if self._of_trust is not None:
            rows = {cluster: row for row, cluster in enumerate(self._of_trust["cluster"].to_pylist())}
            table = self._of_trust.take([rows[k] for k in numbers.tolist()])
            return table.add_column(2, "share", pa.array(share))
        columns = {"cluster": numbers, "size": self.sizes[numbers], "share": share}
        if self.least_certain is not None:
            columns["confidence"] = self.confidence[numbers] / self.sizes[numbers]
        return pa.table(columns)


# Sentences


def _partitions(result: Any, ensemble: Any) -> pa.Table | None:
    """Return the table of partitions, joined from what the consensus knows and what the ensemble does."""
    weights: pa.Table | None = None if result is None else result.partitions
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
    numbers = count_clusters(counts.sizes)
    facts: dict[str, Any] = {
        "objects": source.n_objects,
        "objects without a label": counts.n_unlabeled or None,
        "clusters": clusters_in_words(numbers["n_clusters"], None, source.n_clusters),
        "clusters by the tree": None if tree is None else tree_in_words(tree),
    }
    if counts.least_certain is not None:
        facts["mean confidence"] = float(counts.confidence.sum() / max(int(counts.sizes.sum()), 1))
    facts |= {name_of(name): value for name, value in source.results.items() if name not in numbers}
    facts.pop(name_of("start_objectives"), None)
    seconds = [value for value in source.history.get("seconds", []) if value is not None]
    return {**facts, "seconds in passes": float(sum(seconds)) if seconds else None}


def _warnings(report: Report) -> Iterator[str]:
    """Yield what to mind, one sentence each."""
    source, counts, clusters = report._source, report._counts, report.clusters
    structure = {} if report.tree is None else {"has_structure": report.tree.choice.is_clear}
    yield from cautions({**structure, **source.results}, source.n_clusters)
    if counts.n_unlabeled:
        yield f"{_share(counts.n_unlabeled, source.n_objects, 'objects')} have no label in any partition."
    numbers = count_clusters(counts.sizes)
    if (empty := source.n_clusters - numbers["n_clusters"]) > 0:
        yield f"Without objects: {empty:,} of the {source.n_clusters:,} clusters asked for."
    if n_tiny := numbers["n_tiny_clusters"]:
        yield f"Tiny, below a tenth of the mean size: {n_tiny:,} of {numbers['n_clusters']:,} clusters."
    if counts.n_doubtful:
        low = _share(counts.n_doubtful, int(counts.sizes.sum()), "objects")
        yield f"{low} have a confidence below {DOUBTFUL:g}."
    words = "would have other objects by half of the partitions"
    yield from _of_rows(clusters, "cluster", "stability", lambda value: value < 0.5, words)
    pairs = {tuple(sorted(pair)) for pair in mergers(clusters).items()}
    if names := [f"{k} and {other}" for k, other in sorted(pairs)]:
        yield f"Halves of the partitions do not separate clusters {_list(names)}, which could be merged."
    words = "say almost nothing about the clusters"
    yield from _of_rows(report.partitions, "partition", "weight", lambda value: value < 0.1, words)


def _notes(report: Report) -> Iterator[str]:
    """Yield what is worth knowing and needs no caution, one or two sentences each."""
    if report.profiles is not None and report.profiles.followed:
        yield report.profiles.followed_in_words()
    words = "are near copies of another (adjusted Rand index 0.99 or more)"
    yield from _of_rows(report.partitions, "partition", "redundancy", lambda value: value >= 0.99, words)


def _of_rows(
    table: Any, noun: str, column: str, is_meant: Callable[[float], bool], words: str
) -> Iterator[str]:
    """Yield a sentence about the rows of a table with such values of a column, if there are any."""
    if table is None or column not in table.column_names:
        return
    rows = zip(table[noun].to_pylist(), table[column].to_pylist(), strict=True)
    if names := [str(name) for name, value in rows if value is not None and is_meant(value)]:
        yield f"{_share(len(names), len(table), f'{noun}s')} {words}: {_list(names)}."


def _share(n: int, total: int, noun: str) -> str:
    return f"{n:,} of {total:,} {noun} ({percent(n / total)})"


def _list(words: list[str]) -> str:
    return ", ".join(words[:8]) + (" and others" if len(words) > 8 else "")


# The page: values as people read them, put into ``template.html``

_NAMES = {
    "adjusted_rand": "adjusted Rand", "nmi": "NMI", "n_labeled": "objects", "n_clusters": "clusters",
    "size": "objects", "false_join_rate": "false-join rate", "n_passes": "passes", "n_steps": "steps",
    "second_labels": "second cluster", "second_confidence": "its confidence",
    "has_structure": "clear structure", "n_told_apart": "clusters supported by the data",
    "overall": "all objects", "overall_share": "all objects", "feature": "column",
}  # fmt: skip


def name_of(column: str) -> str:
    """Return the name of a column, or of a result, for people."""
    return _NAMES.get(column, column.replace("_", " "))


def cell(column: str, value: Any) -> str:
    """Return a value of a column for people."""
    is_none = value is None or (isinstance(value, float) and isnan(value))
    if is_none or (column in ("nearest", "second_labels") and value == -1):
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "memory":
        return format_size(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.date().isoformat()
    if not isinstance(value, float):
        return str(value)
    if column in ("share", "coverage", "overall_share"):
        return percent(value)
    if column in ("confidence", "second_confidence", "hit_rate", "false_join_rate") and 0 < value < 0.001:
        return "<0.001"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    text = f"{value:.3f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"
    return text + ("\N{MULTIPLICATION SIGN}" if column == "lift" else "")


def percent(share: float) -> str:
    """Return a share in percent, which is not rounded to none or all."""
    if 0 < share < 0.0005 or 0.9995 <= share < 1:
        return "<0.1%" if share < 0.5 else ">99.9%"
    return f"{share:.1%}"


def numeric_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> set[str]:
    """Return the columns in which no row has text."""
    return {column for column in columns if not any(isinstance(row.get(column), str) for row in rows)}


def ranked(table: Any, column: str) -> list[dict[str, Any]]:
    """Return the rows of a table, those with the highest value in a column first."""
    return sorted(table.to_pylist(), key=lambda row: -(row[column] or 0.0))


def traits(profiles: Any, cluster: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of `ClusterProfiles` of one cluster: of numbers and dates, those that differ most from
    all objects first, and of text that is not the same in all.
    """
    tables = (profiles.numbers, profiles.dates, profiles.categories)
    numbers, dates, texts = ([r for r in table.to_pylist() if r["cluster"] == cluster] for table in tables)
    return (
        sorted([*numbers, *dates], key=lambda row: -abs(row["difference"] or 0.0)),
        [{**row, "overall_share": row["overall"]} for row in texts if row["overall"] < 1.0],
    )


def passes(history: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of the history that have a value for every pass, and their rows."""
    length = max(map(len, history.values()), default=0)
    columns = {name: values for name, values in history.items() if values and len(values) == length}
    rows = zip(*columns.values(), strict=True)
    return list(columns), [dict(zip(columns, row, strict=True)) for row in rows]


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[dict[str, str]]:
    """Yield names and values of nested mappings."""
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}: ")
        else:
            text = cell(name, value) if value is None else str(value)
            yield {"name": f"{prefix}{name}", "value": text}
