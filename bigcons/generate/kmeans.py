"""Ensembles of features, in memory or out of core: mixed, by landmarks, and by k-means of random views.

All objects are read twice, however many partitions there are: to measure the features and draw a pool of
objects, and to label. In between, sets of centers are trained one by one on samples of the pool.

Repeating an interrupted call resumes it, and repeating a finished one returns its result, as of every solve:
sets of centers and blocks of labels are kept, each sealed as a snapshot, in the folder ``<out>.partial``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from bigcons.disk.checkpoint import Snapshots, differences, partial_folder
from bigcons.disk.commit import refuse_existing, refuse_other, stored_kind
from bigcons.errors import CorruptStoreError, InvalidInputError, StoreExistsError
from bigcons.generate import training
from bigcons.generate.training import ClusterCount, Scheme
from bigcons.io.columns import Column, Columns
from bigcons.io.features import CATEGORY, HASHED, Features, open_features
from bigcons.io.labels import default_chunk_rows, label_dtype
from bigcons.io.sources import refuse_inputs
from bigcons.memory import BLOCK_ROWS, PROCESS_BYTES, Block, DataBudget, beside_processes
from bigcons.run.engine import Engine, open_engine
from bigcons.run.passes import open_workspace
from bigcons.run.results import Output, clear_finished, logging_how_to_resume, seed_of_run
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.ensemble import Ensemble, ensemble_of_content
from bigcons.store.ensemble_store import Content, Header
from bigcons.store.generator import Generator
from bigcons.validation import check_int, check_number
from bigcons.version import __version__

_log = logging.getLogger(__name__)


class GeneratorOptions(TypedDict, total=False):
    """Parameters of every ensemble of features; see `bigcons.generate.kmeans`."""

    id: Column | None
    columns: Columns | None
    drop: Columns | None
    out: str | os.PathLike[str] | None
    standardize: bool
    train: int | str
    memory: int | float | str | None
    random_state: SeedLike
    overwrite: bool
    client: object


def mixed(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount | None = None,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of two kinds of partitions of all objects: the default if you start from features.

    Every other partition is by `landmarks`, which follow curved shapes; the others are by k-means, which
    follows the directions in which features vary most.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_partitions
        Number of partitions.
    n_clusters
        Number of clusters, or an inclusive range (low, high) to draw it from uniformly. None: 2 to 20 by
        landmarks and 2 to 30 by k-means, which serve any consensus of fewer than ten clusters. For a
        consensus of K clusters, ten or more, give ``(2, 3 * K)``, as `ConsensusClustering` and ``bigcons
        run`` do: a partition that has fewer clusters than the consensus joins some of its clusters.
    **options
        ``id``, ``columns``, ``drop``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    No label is missing. Errors and memory are those of `kmeans`; the cost is that of both kinds.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.mixed(features, n_partitions=12, random_state=0)
    Ensemble(1,000 objects x 12 partitions of 3-21 clusters, 0.0% missing, 12 kB in memory)
    """
    scheme = Scheme("mixed", n_partitions, n_clusters)
    return make_partitions(features, scheme, **options)


def landmarks(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 20),
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of spectral clusterings on landmarks, which follow curved shapes.

    U-SPEC of Huang et al. 2020, simplified: up to 1,000 random objects are landmarks, a graph joins every
    object of a sample to its five nearest, and k-means in the leading eigenvectors of that graph clusters the
    landmarks; every object is in the cluster of its nearest landmark. All partitions share three sets of
    landmarks.

    Parameters
    ----------
    features, n_partitions
        As in `kmeans`.
    n_clusters
        Number of clusters, or an inclusive range (low, high) to draw it from uniformly. Partitions have at
        most as many clusters as there are landmarks: at most one for three objects.
    **options
        ``id``, ``columns``, ``drop``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`; ``train`` is the sample of
        which the graphs are made.

    Landmarks ignore columns of two values, such as booleans and categories, along which a graph of
    nearest neighbors falls apart, unless these hold more than a third of the variance. No label is missing.
    Errors are those of `kmeans`.

    Cost: two passes over the features; three graphs of a sample, each with 1,000 distances of every object of
    it and eigenvectors of a matrix of landmarks; and three nearest landmarks of every object, ``3,000 *
    n_objects * n_features`` operations, whatever the number of partitions.

    References
    ----------
    Huang, Wang, Wu, Lai and Kwoh (2020), *Ultra-scalable spectral clustering and ensemble clustering*, IEEE
    Transactions on Knowledge and Data Engineering 32.

    Examples
    --------
    >>> import bigcons as bc
    >>> from sklearn.datasets import make_moons
    >>> features, truth = make_moons(600, noise=0.05, random_state=0)
    >>> ensemble = bc.generate.landmarks(features, n_partitions=20, random_state=0)
    >>> bc.metrics.adjusted_rand(truth, bc.consensus(ensemble, 2, random_state=0).labels_)
    1.0
    """
    scheme = Scheme("landmarks", n_partitions, n_clusters)
    return make_partitions(features, scheme, **options)


def kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 10),
    sample: float = 0.5,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions, each of a random subset of the objects.

    By default these are the ensembles of Lourenço et al. 2015 (large scale: 100 partitions of random halves
    into 2 to 10 clusters, random starts). With ``sample=1`` and one number of clusters, they are the random
    restarts of Wang et al. 2009 and of Nguyen and Caruana 2007.

    Parameters
    ----------
    features
        An array, sparse matrix, table, dask collection or path. Text and categories become one-hot columns,
        dates become numbers, and missing values are filled: see `FeatureEncoding`.
    n_partitions
        Number of partitions.
    n_clusters
        Number of clusters, or an inclusive range (low, high) to draw it from uniformly, or "split":
        the range from ``max(sqrt(n) / 2, n / 50)`` to 20 more, which splits the n objects that a partition
        sees into micro-blocks (the rule of evidence accumulation; Aidos and Fred's DID paper, with
        ``sample=1``). A range ends at the number of objects that a partition sees.
    sample
        Share of the objects that each partition sees; the others have no label (-1) in it.
    n_init
        Number of random starts, of which the best is kept.
    id
        Column that identifies the objects. It is no feature; the ensemble and its consensus keep it.
    columns, drop
        The columns to use, or to leave out; see `bigcons.select`.
    out
        Path of the store to write; if None, the ensemble is in memory.
    standardize
        Scale every column to mean 0 and variance 1 over all objects, so that each counts the same; sparse
        columns are scaled to variance 1. Constant columns are always dropped.
    train
        Objects on which the k-means of a partition is trained. "auto": a sample of 40,000 of the objects that
        it sees, fewer if there are more than 104 features, and at least 256 per cluster; k-means runs on a
        quarter of the sample, and from there up to 20 iterations on all of it. Centers estimated from m
        objects per cluster add about 1/m to the inertia, more if distances have heavy tails. A number: a
        sample of so many objects. "all": all objects that the partition sees, which are then in memory.
    memory
        Memory budget such as "2GB" for the processes and what they hold: blocks, samples, and the labels
        if ``out`` is None, but not features that the caller holds. A call that would need more is
        refused; None allows 4 GB of data. Labels do not depend on the budget.
    random_state
        Seed. Partition ``u`` depends on the seed and on ``u``, not on the number of partitions or
        workers, nor on the budget.
    overwrite
        Start over, and replace the store at ``out`` once the new one is complete. Otherwise, repeating an
        interrupted call resumes from the finished centers and blocks of labels in ``<out>.partial``,
        repeating a finished call returns the result at ``out``, and other parameters or features raise an
        error.
    client
        Engine: None (the active Dask client if there is one, else threads), "threads", "serial", a Dask
        client or its address, or an Engine. The engine is logged. Every task runs on one thread; ``memory``
        bounds all concurrent tasks. Dask workers need access to the disk of ``out``.

    Subsets are a fixed number of random rows from each segment of 4,096 (see `Subset`). Empty clusters
    are dropped, so a partition may have fewer clusters than requested.

    Raises InvalidInputError, also for unfinished partitions with other parameters, StoreExistsError for an
    ensemble at ``out`` with other parameters, and MemoryBudgetError if not even one task fits.

    Cost: two passes over the features, k-means of the samples, and ``n_objects * n_features`` operations per
    cluster of all partitions, in float64; of equally near centers the first wins.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.kmeans(features, n_partitions=10, n_clusters=(2, 8), sample=0.5, random_state=0)
    Ensemble(1,000 objects x 10 partitions of 3-8 clusters, 50.0% missing, 10 kB in memory)
    """
    sample = check_number("sample", sample, above=0, at_most=1)
    scheme = Scheme("kmeans", n_partitions, n_clusters, sample, n_init=n_init)
    return make_partitions(features, scheme, **options)


def weighted_kmeans(
    features: object,
    *,
    n_partitions: int = 100,
    n_clusters: ClusterCount = (2, 10),
    alpha_range: tuple[float, float] = (0.0, 1.5),
    largest_weight: int = 20,
    sample: float = 1.0,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions, each under random Zipf weights of the features.

    The generator of Nguyen and Caruana 2007 (after Caruana et al. 2006, *Meta Clustering*): for each
    partition draw ``alpha`` uniformly from ``alpha_range``, then for every feature a weight from 1 to
    ``largest_weight`` with probability proportional to ``weight ** -alpha``; multiply the standardized
    features by their weights and run k-means once. With ``alpha = 0`` all weights are equally
    likely; larger values make large weights rarer.

    Parameters
    ----------
    features, n_partitions, n_clusters, sample, n_init
        As in `kmeans`; by default, every partition sees all objects.
    alpha_range
        Lowest and highest exponent, >= 0. The papers do not state it; the default is ours.
    largest_weight
        Number of possible weights (T); the default is ours, too.
    **options
        ``id``, ``columns``, ``drop``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    Constant columns are dropped and have no weights. Errors, memory and cost as of `kmeans`.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.weighted_kmeans(features, n_partitions=10, n_clusters=5, random_state=0)
    Ensemble(1,000 objects x 10 partitions of 5 clusters, 0.0% missing, 10 kB in memory)
    """
    if not isinstance(alpha_range, (tuple, list)) or len(alpha_range) != 2:
        raise InvalidInputError(f"alpha_range={alpha_range!r} is not a range; use (low, high).")
    low = check_number("alpha_range[0]", alpha_range[0], at_least=0)
    high = check_number("alpha_range[1]", alpha_range[1], at_least=low)
    scheme = Scheme(
        "weighted_kmeans",
        n_partitions,
        n_clusters,
        check_number("sample", sample, above=0, at_most=1),
        alpha_range=(low, high),
        largest_weight=check_int("largest_weight", largest_weight),
        n_init=n_init,
    )
    return make_partitions(features, scheme, **options)


def feature_views(
    features: object,
    *,
    n_features: int,
    n_clusters: ClusterCount,
    n_partitions: int = 10,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions of all objects, each on a random subset of the features.

    Feature-distributed clustering (FDC) of Strehl and Ghosh 2002, with k-means in place of their graph
    partitioning, so that the data need not fit in memory.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_features
        Number of features per view, drawn without replacement from those that vary; a category is one, with
        all its columns.
    n_clusters
        As in `kmeans`; the paper gives every view the same number.
    n_partitions
        Number of views.
    n_init
        As in `kmeans`.
    **options
        ``id``, ``columns``, ``drop``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    No label is missing. Errors, memory and cost as of `kmeans` with ``n_features`` features,
    and InvalidInputError if fewer than ``n_features`` vary.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.feature_views(features, n_features=2, n_clusters=5, n_partitions=3, random_state=0)
    Ensemble(1,000 objects x 3 partitions of 5 clusters, 0.0% missing, 3 kB in memory)
    """
    check_int("n_features", n_features)
    scheme = Scheme("feature_views", n_partitions, n_clusters, n_features=n_features, n_init=n_init)
    return make_partitions(features, scheme, **options)


def object_views(
    features: object,
    *,
    n_clusters: ClusterCount,
    n_partitions: int = 16,
    repetition: int = 2,
    n_init: int = 1,
    **options: Unpack[GeneratorOptions],
) -> Ensemble:
    """Return an ensemble of k-means partitions of overlapping subsets that cover all objects.

    Object-distributed clustering (ODC) of Strehl and Ghosh 2002: each of the ``p = n_partitions``
    partitions sees ``v n / p`` of the ``n`` objects, where ``v = repetition``. ``n / p`` of them are
    dealt to it after a shuffle, so that every object is in at least one partition; the rest are drawn
    at random from the other objects. A share ``1 - v / p`` of the labels is missing.

    Parameters
    ----------
    features
        As in `kmeans`.
    n_clusters
        As in `kmeans`; the paper gives every partition the same number.
    n_partitions
        Number of partitions, p.
    repetition
        Average number of partitions that see an object, v, from 1 to ``n_partitions``; 2 in the paper.
    n_init
        As in `kmeans`.
    **options
        ``id``, ``columns``, ``drop``, ``out``, ``standardize``, ``train``, ``memory``,
        ``random_state``, ``overwrite``, ``client`` as in `kmeans`.

    Objects are shuffled and dealt within strata of the data (see `Subset`), and k-means replaces the
    graph partitioning of the paper. Partition ``u`` depends on
    ``n_partitions``. Errors and memory as of `kmeans`; it costs as much as ``repetition``
    partitions of all objects.

    Examples
    --------
    >>> import bigcons as bc
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> bc.generate.object_views(features, n_clusters=5, n_partitions=8, repetition=2, random_state=0)
    Ensemble(1,000 objects x 8 partitions of 5 clusters, 75.0% missing, 8 kB in memory)
    """
    check_int("repetition", repetition, at_most=check_int("n_partitions", n_partitions))
    scheme = Scheme(
        "object_views", n_partitions, n_clusters, repetition / n_partitions, repetition, n_init=n_init
    )
    return make_partitions(features, scheme, **options)


# The pipeline of all of them


def make_partitions(
    features: object,
    scheme: Scheme,
    *,
    id: Column | None = None,
    columns: Columns | None = None,
    drop: Columns | None = None,
    out: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    train: int | str = "auto",
    memory: int | float | str | None = None,
    random_state: SeedLike = None,
    overwrite: bool = False,
    client: object = None,
    **unknown: object,
) -> Ensemble:
    """Return the ensemble of ``scheme``; parameters as in `bigcons.generate.kmeans`."""
    from sklearn import __version__ as sklearn_version

    for name in unknown:
        raise TypeError(f"{scheme.name}() got an unexpected keyword argument {name!r}")
    ensemble, seed = None, resolve_seed(random_state)
    if out is not None:
        refuse_inputs(out, features)
        if not overwrite and stored_kind(out) == "ensemble":
            ensemble = Ensemble.open(out)
        if ensemble is None or "generator" not in ensemble.provenance:
            refuse_existing(out, overwrite, "ensemble")
        if random_state is None and not overwrite:
            kept_seed = seed_of_run(out, ensemble)
            seed = seed if kept_seed is None else kept_seed
    with ExitStack() as stack:
        if out is not None:
            stack.enter_context(logging_how_to_resume(out, overwrite))
        engine = stack.enter_context(open_engine(client))
        _log.info("%s runs on the engine %r (workers: %d)", scheme.name, engine.name, engine.n_workers)
        data = open_features(features, id=id, columns=columns, drop=drop)
        _log.info("%s has %s", data.where, data.encoding)
        scheme = replace(scheme, seed=seed).of_objects(data.n_objects, data.chunk_rows)
        sample_rows = rows_to_train(scheme, data, train)
        budget = beside_processes(memory, PROCESS_BYTES * engine.n_processes)
        subset = scheme.pool(sample_rows)
        shape = data, scheme, sample_rows, int(subset.size(data.n_objects)), budget, engine
        n_tasks, block_rows = make_plan(*shape, in_memory=out is None)
        facts: dict[str, Any] = {
            "generator": scheme.name,
            "standardize": standardize,
            "train": train,
            "n_partitions": scheme.n_partitions,
            "n_init": scheme.n_init,
            "n_clusters": scheme.ranges[0],
            "sample_rows": sample_rows,
            "n_objects": data.n_objects,
            "columns": [code.name for code in data.encoding.columns],
            **{name: data.options.get(name) for name in ("missing", "categorical")},
            "bigcons": __version__,
            "scikit_learn": sklearn_version,
            "seed": seed,
        }
        if data.ids is not None:
            facts["ids"] = data.ids.facts.in_words
        optional = ("sample" if scheme.repetition is None else "repetition", "n_features", "alpha_range")
        for name in (*optional, "largest_weight"):
            if getattr(scheme, name) is not None:
                facts[name] = getattr(scheme, name)
        current = json.loads(json.dumps(facts))
        if ensemble is not None:
            if "appended" in ensemble.provenance:
                reason = "has grown since it was generated; solve it as it is, or"
                raise StoreExistsError(f"{out} {reason} pass overwrite=True (--overwrite).", path=out)
            provenance = {**ensemble.provenance, "n_partitions": ensemble.n_partitions}
            del current["bigcons"], current["scikit_learn"]  # other versions made the same
            refuse_other(out or "", differences(provenance, current))
        elif out is not None and not overwrite:
            Snapshots(partial_folder(out), current).load()  # refuses a run of other parameters
        output = None if out is None else Output(out, overwrite, not overwrite, facts)
        origin = {"read": data.options, "source": data.where, "version": data.version}
        is_same = data.version is not None and ensemble and not differences(ensemble.provenance, origin)
        if ensemble is not None and output is not None and is_same:  # of files that have not changed
            clear_finished(output)
            return ensemble
        scaling, rows = training.measure(data, subset if ensemble is None else None, standardize=standardize)
        facts["features_checksum"] = scaling.checksum
        if ensemble is not None and output is not None:
            identity = {"features_checksum": scaling.checksum}
            refuse_other(output.path, differences(ensemble.provenance, identity))
            clear_finished(output)
            return ensemble
        encoding = replace(data.encoding, scaling=scaling)
        # gaps, and what varies of categories, were not known before all was read
        if len(scaling.gaps) or not data.encoding.is_plain:
            n_tasks, block_rows = make_plan(*shape, len(scaling.gaps), in_memory=out is None)
        run = None if output is None else stack.enter_context(open_workspace(output, engine, 0))[1]
        if run is not None:
            run.load()  # refuses a run of other parameters

        def map_sets(task: Callable[[Any], np.ndarray], sets: list[tuple[int, ...]]) -> Iterator[np.ndarray]:
            at_once = max(len(sets) if engine.n_workers <= n_tasks else n_tasks, 1)
            for first in range(0, len(sets), at_once):
                batch = sets[first : first + at_once]
                yield from map_kept(run, engine, task, batch, list(map("centers-{0[0]}".format, batch)))

        centers, reach = training.train_centers(scheme, subset, rows, encoding, sample_rows, map_sets)
        names = [f"p{u}" for u in range(scheme.n_partitions)]
        subsets = [scheme.subset(partitions[0]) for partitions in scheme.sets()]

        def label(item: tuple[Block, Any]) -> np.ndarray:
            """Return the labels (rows, n_partitions) of a block of features, -1 for what is not seen.

            The objects that trained a center get it again, so every cluster of every partition occurs.
            """
            block, values = item
            is_seen = np.array([subset.mask(block.start, block.stop) for subset in subsets])
            return centers.label(scaling.apply(values), is_seen)[0]

        header = Header(
            data.n_objects,
            names,
            centers.n_clusters,
            np.array([scheme.subset(u).size(data.n_objects) for u in range(len(names))], np.int64),
            default_chunk_rows(data.n_objects, len(names)),
            {**facts, **origin, "features": encoding.column_names()},
            ids=data.ids,
            generator=Generator(encoding, names, centers, reach),
        )
        parts = list(map("labels-{0.start}-{0.stop}".format, data.blocks(block_rows)))
        labels = map_kept(run, engine, label, data.iterate(block_rows, gaps=True, sparse=True), parts)
        content = Content(header, [None] * len(names), labels)
        return ensemble_of_content(content, out, overwrite=overwrite)


def rows_to_train(scheme: Scheme, data: Features, train: int | str) -> int:
    """Return the size of the samples on which the partitions of a scheme are trained."""
    limit, sample_rows = scheme.ranges[0][1], int(scheme.subset(0).size(data.n_objects))  # no other sees more
    if train == "auto":
        return min(sample_rows, training.choose_sample_rows(limit, data.n_features))
    if train == "all":
        return sample_rows
    return min(sample_rows, check_int("train", train, at_least=limit, or_auto=True))


def check_memory(data: Features, scheme: Scheme, memory: int | float | str, client: object) -> None:
    """Raise MemoryBudgetError if a scheme of features needs more."""
    sample_rows = rows_to_train(scheme, data, "auto")
    pool_rows = int(scheme.pool(sample_rows).size(data.n_objects))
    with open_engine(client) as engine:
        budget = beside_processes(memory, PROCESS_BYTES * engine.n_processes)
        make_plan(data, scheme, sample_rows, pool_rows, budget, engine, in_memory=False, with_train=False)


def map_kept(
    run: Snapshots | None,
    engine: Engine,
    task: Callable[..., np.ndarray],
    items: Iterable[Any],
    names: list[str],
) -> Iterator[Any]:
    """Yield ``task(item)`` for every item in order, and keep it by name; what a run has is not made again.

    Each result is sealed as a snapshot of its own, which a task looks for before it makes it.
    """
    if run is None:
        yield from engine.map(task, items)
        return
    folder, fingerprint = run.folder, run.fingerprint

    def find_or_make(entry: tuple[str, Any]) -> tuple[bool, Any]:
        try:
            snapshot = Snapshots(folder / entry[0], {**fingerprint, "name": entry[0]}).load()
        except (CorruptStoreError, InvalidInputError) as error:  # damaged, or of another place or run
            _log.warning("%s is made again: %s", folder / entry[0], error)
            snapshot = None
        return (False, task(entry[1])) if snapshot is None else (True, snapshot.arrays["values"])

    with closing(engine.map(find_or_make, zip(names, items, strict=True))) as results:
        for name, (is_kept, result) in zip(names, results, strict=True):
            if not is_kept:
                if not run.exists():
                    run.save({}, {})
                run.check_lock()
                Snapshots(folder / name, {**fingerprint, "name": name}).save({"values": result}, {})
            yield result


def make_plan(
    data: Features,
    scheme: Scheme,
    sample_rows: int,
    pool_rows: int,
    budget: DataBudget,
    engine: Engine,
    n_gaps: int | None = None,
    *,
    in_memory: bool,
    with_train: bool = True,
) -> tuple[int, int]:
    """Return the sets that may be trained, and the rows that may be labeled, at a time.

    Labels are independent of these. Raises MemoryBudgetError, which states what is enough, and tells to lower
    ``train`` where that can be set, ``with_train``, and where it is enough.

    All columns count, because it is not known yet which vary, and ``n_gaps`` more that tell what is missing:
    while these are not known, none if that fits, and all that may be in the message.
    Of sparse rows the values that are stored do. Held are the pool, once more while it is scaled, and the
    centers; besides, either a block of features is measured, a set of centers trained, or blocks are labeled.
    """
    width, n_features = (number + (n_gaps or 0) for number in (data.row_values, data.n_features))
    read_values, value_bytes = min(data.chunk_rows, data.n_objects) * width, data.dtype.itemsize
    pool, unscaled, least = pool_rows * (4 * width + 8), pool_rows * width * value_bytes, 0
    sets, k, p = scheme.sets(), scheme.ranges[0][1], training.n_landmarks(sample_rows, n_features)
    n_centers = sum(p if scheme.is_by_landmarks(partitions[0]) else k for partitions in sets)
    centers = 8 * n_centers * (n_features + 1) + 8 * p * scheme.n_partitions
    measuring = 48 * read_values + unscaled + pool
    # the points, as the partition sees them, a copy to measure their variance, work per row and cluster
    task = sample_rows * (16 * width + 64) + k * (32 * n_features + 2048)
    if scheme.name in training.BY_LANDMARKS:  # the points, the graph twice, distances, the graph of landmarks
        least = 32 * training.AT_ONCE
        graph = least + sample_rows * (8 * width + 80 * training.N_NEAREST) + 8 * p * (6 * p + 4 * n_features)
        task = max(task, graph)
    copies = 1 if engine.shares_memory else max(engine.n_processes, 2)  # a worker may be a thread here
    base = pool * copies + centers
    highest = max(k, scheme.ranges[1][1])
    label_bytes = scheme.n_partitions * label_dtype([highest]).itemsize
    # a block in transit is held as read, centered, and as float32; labels three times, and what is nearest
    row_bytes = (value_bytes + 12) * width + 3 * label_bytes + 3 * len(sets)
    row_bytes += 8 * n_centers if data.is_sparse else 0  # its products with all centers
    row_bytes *= engine.in_flight + 1
    stored_bytes = label_bytes + (0 if data.ids is None else math.ceil(data.ids.row_bytes))
    kept_rows = data.n_objects if in_memory else 4 * default_chunk_rows(data.n_objects, scheme.n_partitions)
    fixed = 24 * read_values + (2 * centers + (1 << 20)) * engine.n_workers + stored_bytes * kept_rows
    block_rows = min(BLOCK_ROWS, data.sparse_rows if data.is_sparse else data.chunk_rows)
    ids = 0 if data.ids is None else data.ids.held_bytes  # twice while they are read
    n_bytes = data.held_bytes + max(measuring, base + task, fixed + scheme.segment_rows * row_bytes, ids)
    if n_bytes > budget.n_bytes:
        n_most = sum(code.kind not in (CATEGORY, HASHED) for code in data.encoding.columns)
        if n_gaps is None and n_most:
            options = {"in_memory": in_memory, "with_train": with_train}
            return make_plan(data, scheme, sample_rows, pool_rows, budget, engine, n_most, **options)
        others = data.held_bytes + max(48 * read_values, least, fixed + scheme.segment_rows * row_bytes, ids)
        remedy = "lower train= (--train)" if with_train and others <= budget.n_bytes else ""
        budget.check(int(n_bytes), f"generate.{scheme.name}: its processes, samples and blocks", remedy)
    available = budget.n_bytes - data.held_bytes
    while fixed + block_rows * row_bytes > available and block_rows > scheme.segment_rows:
        block_rows //= 2
    thread_bytes = max(task, block_rows * row_bytes // engine.in_flight)
    engine.check_limits(scheme.name, PROCESS_BYTES + pool + centers, thread_bytes)
    return int((available - base) // task), block_rows
