"""The estimator of all consensus methods: fit, results and their stores, and the placing of new objects.

A method is a class with its parameters as dataclass fields. It writes `_solve`; if it places new objects,
also `_placer`. Methods of passes over the labels subclass `PassClusterer` (`methods/pass_clusterer.py`).
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigcons import errors
from bigcons.disk.checkpoint import Snapshots, differences, partial_folder
from bigcons.disk.commit import is_store, refuse_existing, refuse_other, stored_kind
from bigcons.disk.schema import TRUST
from bigcons.errors import InvalidInputError, warn_user
from bigcons.io.columns import Column, Columns, Ids, select
from bigcons.io.sources import is_parquet, origin, refuse_inputs
from bigcons.memory import Block, RowSet, check_all
from bigcons.methods.placing import Placed, PlaceTask, Recoding, place_task, placed_by_features
from bigcons.metrics import average_criterion
from bigcons.progress import progress
from bigcons.run import results as runs
from bigcons.run.engine import Engine, HasClient, SerialEngine, open_engine
from bigcons.run.results import BlockResult, Output, Results, Use
from bigcons.run.survey import LabelsNeededError, MemoryPlan, PlannedEnsemble
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store import consensus as stores
from bigcons.store.clusters import ClusterTree, NClustersChoice, Trust, least_objects
from bigcons.store.consensus import Consensus, write_rows
from bigcons.store.ensemble import Ensemble, as_ensemble
from bigcons.store.generator import Generator
from bigcons.store.pairs import PairTable
from bigcons.store.store import data_frame, ids_first
from bigcons.trust import confidence
from bigcons.trust.groups import FIRST_GROUPS, TREES, Sample, n_groups_for
from bigcons.trust.n_clusters import Search, judge, search, tree_of
from bigcons.validation import check_flag, check_int
from bigcons.weights import Weights

logger: logging.Logger = logging.getLogger("bigcons")


class MethodInfo(NamedTuple):
    """Facts about a method for `bigcons methods` and the documentation; the defaults hold for most.

    Examples
    --------
    >>> import bigcons as bc
    >>> info = bc.METHODS["hbgf"].info
    >>> info.paper
    'Fern and Brodley 2004'
    >>> info.soft_input, info.out_of_core, info.distributed
    (True, True, True)
    """

    paper: str
    needs: str
    """Its input: "labels", "base-cluster overlaps", "co-association", "features and labels"."""
    soft: bool = False
    """Whether it sets ``memberships_``."""
    missing: str = "native"
    """Missing labels: left out ("native"), or out of the denominator of the co-association ("c/N") or not."""
    out_of_core: bool = True
    distributed: bool = True
    soft_input: bool = False
    """Whether it takes soft clusterings: `Ensemble.from_memberships`."""


def _can_place(model: Any) -> bool:
    """Return whether a method has `predict`; raise AttributeError if its fit left nothing to place by."""
    if model._places() and getattr(model, "_parts", {}) is None:
        raise AttributeError(
            f"{type(model).__name__} cannot place new objects: it was solved from a graph or matrix of all "
            "objects, or stored without what predict needs; fit a method that does (bigcons methods)."
        )
    return bool(model._places())


Function = TypeVar("Function")


def available(check: Callable[[Any], bool]) -> Callable[[Function], Function]:
    """Return scikit-learn's `available_if`, which keeps the type of a method."""
    decorator: Callable[[Function], Function] = available_if(check)
    return decorator


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(eq=False, repr=False)
class ConsensusClusterer(HasClient, ClusterMixin, BaseEstimator):
    """Base of the methods that combine an ensemble into one clustering.

    ``fit`` takes an Ensemble, the path of one, or anything ``Ensemble.from_labels`` takes: rows are objects,
    columns partitions, so scikit-learn's checks, which pass real-valued features, do not apply.
    A method sets ``labels_`` (n_objects,) int32, clusters numbered from 0 by decreasing size, with
    -1 for objects that no partition labeled; ``objective_``; ``history_``; ``n_clusters_``, the number of
    clusters that win objects; and ``n_tiny_clusters_``, the number of clusters with less than a tenth of the
    mean size. A soft method sets ``memberships_`` (n_objects, n_clusters) float32, whose last columns are of
    clusters that win no object. A method with starts sets ``start_objectives_``, the objective of every
    start when the best was chosen (on a sample of the objects, if starts run on one).

    Blocks, random draws and sums do not depend on the number of workers: one seed gives the same bits on any
    engine. ``memory`` bounds this process or, on the machine with the most of them, the Dask workers; the
    data held and the blocks being processed must fit. ``client="threads"`` uses all cores of this machine.
    With ``out``, passes are committed to ``<out>.partial``, from which the same call continues after an
    interrupt, and the result of a finished call is found; ``resume=False`` discards both.

    Examples
    --------
    >>> import bigcons as bc
    >>> method = bc.METHODS["mcla"]
    >>> issubclass(method, bc.ConsensusClusterer)
    True
    >>> method(n_clusters=2, random_state=0).fit_predict([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2]])
    array([0, 0, 0, 1, 1], dtype=int32)
    """

    info: ClassVar[MethodInfo]
    chooses: ClassVar[bool] = False
    """Whether the method takes ``n_clusters="auto"``."""

    n_clusters: int | Any = 8
    _: KW_ONLY
    random_state: SeedLike = None
    memory: str | float | None = None
    out: str | os.PathLike[str] | None = None
    client: object = None
    resume: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(eq=False, repr=False, kw_only=True)(cls)  # parameters are fields

    def __repr__(self, *options: Any) -> str:
        return " ".join(super().__repr__(*options).split())  # on one line, arrays too

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: features are labels, numbers or text, and may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags

    # Fitting

    def fit(
        self,
        x: Any,
        y: object = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        id: Column | None = None,
        columns: Columns | None = None,
        drop: Columns | None = None,
    ) -> Self:
        """Find the consensus of ``x``; ``y`` is ignored, for scikit-learn's signature.

        Of a table, ``id`` names the column that identifies the objects, which goes into the store, and
        ``columns`` and ``drop`` choose those that are partitions: see `bigcons.select`.

        With ``out``, here or as a parameter, the result is written to a Consensus store block by block.
        ``labels_`` are read from the store when first needed, and ``memberships_`` is a dask array that reads
        it. Repeating the call continues an interrupted run and finds the result of a finished one; a call
        with other parameters or labels is refused. ``overwrite`` starts over and replaces the store once the
        new one is complete.
        """
        path = out if out is not None else self.out
        check_flag("overwrite", overwrite)
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, np.generic):  # whose arithmetic overflows
                setattr(self, name, value.item())
        resume = check_flag("resume", self.resume) and not overwrite
        if path is not None:
            refuse_inputs(path, x, getattr(self, "pairs", None))
        consensus = None
        if path is not None and resume and stored_kind(path) == stores.KIND:
            consensus = Consensus.open(path)
            consensus = consensus if "run" in consensus.provenance else None
        if path is not None and consensus is None:
            refuse_existing(path, overwrite, "consensus")
        with (
            nullcontext() if path is None else runs.logging_how_to_resume(path, overwrite),
            open_engine(self.client) as engine,
        ):
            x = select(x, id=id, columns=columns, drop=drop)
            ensemble, output = as_ensemble(x, soft=True), None
            if ensemble.is_soft and not self.info.soft_input:
                instead = (
                    "a method that takes memberships (soft input in bigcons methods), such as ConsensusTree"
                )
                raise errors.SoftEnsembleError(type(self).__name__, instead)
            self._check_n_clusters(self.n_clusters, ensemble.n_objects)
            for name in [*vars(self)]:
                if name.endswith("_"):
                    delattr(self, name)  # results of an earlier fit
            self._begin(ensemble)
            seed = resolve_seed(self.random_state)
            if path is not None:
                if self.random_state is None and resume:
                    earlier_seed = runs.seed_of_run(path, consensus)
                    seed = seed if earlier_seed is None else earlier_seed
                source = ensemble.path or origin(x)
                fingerprint = self._fingerprint(ensemble, seed)
                output = Output(path, overwrite, resume, fingerprint, source)
                if resume and consensus is None:
                    Snapshots(partial_folder(path), fingerprint).load()  # refuses another unfinished run
            if consensus is not None and output is not None:
                self._take_finished(consensus, output)
                if consensus.has_placing and self._places():
                    self._take_placing(consensus, ensemble)
            else:
                with self._with_auto(ensemble, engine, seed, output):
                    self._n_columns: Any = self.n_clusters
                    self._solve(ensemble, engine, seed, output)
        return self

    def fit_predict(self, X: Any, y: object = None, **kwargs: Any) -> NDArray[np.int32]:
        """Return ``labels_`` after a `fit` with these options."""
        return self.fit(X, y, **kwargs).labels_

    def _begin(self, ensemble: Ensemble) -> None:
        """Set what a fit starts with, and what depends on the ensemble alone."""
        self._weights: Weights | None = None
        self._is_limit = False  # whether fewer clusters than n_clusters are meant, or told otherwise
        # the search for the number of clusters in a sample, which judges those asked for, too
        self._search: Search | None = None
        self._stored: Consensus | None = None  # of a result that is not in memory
        self._trust: Trust | None = None
        self._parts: Mapping[str, np.ndarray] | None = None  # the arrays by which new objects are placed
        self._ids: Ids | None = ensemble.id_column
        self.n_features_in_: int = ensemble.n_partitions
        self._recoding = Recoding(ensemble)
        if self._recoding.is_named:
            self.feature_names_in_: np.ndarray = np.array(ensemble.names, dtype=object)
        self._generator: Generator | None = ensemble.generator

    def _check_plan(self, ensemble: PlannedEnsemble, out: str | os.PathLike[str]) -> None:
        """Raise what ``fit(out=out)`` of an ensemble of this shape would raise before it reads a label.

        That is MemoryBudgetError if the plan of a method exceeds ``memory``. With "auto", the plans are those
        of the search for the number, and of a solve with as many clusters as the search begins with groups.
        """
        self._check_n_clusters(self.n_clusters, ensemble.n_objects)
        self._begin(ensemble)
        output = Output(out, overwrite=False, resume=True, fingerprint={})
        setting = self.n_clusters

        def check(n_clusters: Any) -> None:
            self.n_clusters = n_clusters
            with (
                suppress(LabelsNeededError),
                open_engine(self.client) as engine,
                self._with_auto(ensemble, engine, 0, output),
            ):
                self._solve(ensemble, engine, 0, output)

        numbers = (setting, min(FIRST_GROUPS, ensemble.n_objects)) if isinstance(setting, str) else (setting,)
        try:
            check_all(partial(check, number) for number in numbers)
        finally:
            self.n_clusters = setting

    @abstractmethod
    def _solve(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> None:
        """Check the method's own parameters, solve, set the method's own results and call `_publish`."""

    def _check_n_clusters(self, number: Any, n_objects: int) -> None:
        """Refuse a number below 1 or above the number of objects, and "auto", unless the method chooses."""
        if isinstance(number, str) and number == "auto":
            if self.chooses:
                return
            words = f"{type(self).__name__} does not choose n_clusters; take it from choose_n_clusters."
            raise InvalidInputError(words, parameter="n_clusters")
        if check_int("n_clusters", number, or_auto=self.chooses) > n_objects:
            raise InvalidInputError(
                f"n_clusters={number} but there are n_objects={n_objects}; use at most {n_objects} clusters."
            )

    def _check_memory_plan(
        self,
        plan: Callable[..., MemoryPlan],
        ensemble: Ensemble,
        engine: Engine,
        out: Output | None,
        memory: str | float | None,
        remedy: str = "",
    ) -> None:
        """Check what a solve needs, ``plan(ensemble, engine, in_memory=)``: see `MemoryPlan.check`.

        ``in_memory``: whether results are held rather than stored. Nothing is planned without a budget,
        worker processes or a log.
        """
        if memory is None and engine.shares_memory and not logger.isEnabledFor(logging.INFO):
            return
        in_memory = out is None and engine.shares_memory
        if in_memory:
            remedy = f" or write the result to a store with out={',' if remedy else ''}{remedy}"
        memory_plan = plan(ensemble, engine, in_memory=in_memory)
        memory_plan.check(type(self).__name__, engine, ensemble, memory, remedy)

    def _partition_weights(self) -> np.ndarray | None:
        """Return the weights (n_partitions,) by which partitions count, None where all count the same."""
        return None if self._weights is None else self._weights.partitions

    # The choice of the number of clusters inside a fit, and what it tells of the structure of the labels

    @contextmanager
    def _with_auto(self, ensemble: Ensemble, engine: Engine, seed: int, out: Output | None) -> Iterator[None]:
        """Set ``n_clusters``, if it is "auto", to the number chosen, for a ``with`` block.

        The choice is ``n_clusters_choice_`` and ``tree_``; in the block, ``_search`` has the search.
        """
        setting = self.n_clusters
        if isinstance(setting, str):
            weights = getattr(self, "weights", None)
            weights = None if isinstance(weights, str) else weights
            result = search(ensemble, engine, seed, weights=weights, memory=self.memory)
            self._judge_structure(result)
            self.n_clusters_choice_: NClustersChoice = result.choice
            self.tree_: ClusterTree = tree_of(result, ensemble.n_objects, getattr(self, "_trees", TREES))
            self.n_clusters = result.choice.n_clusters
        try:
            if out is not None and self.info.soft:
                out.warn_of_size(ensemble.n_objects, self.n_clusters)
            yield
        finally:
            self.n_clusters, self._search = setting, None

    def _judge_sample(self, rows: np.ndarray, sample: Sample | None) -> NClustersChoice | None:
        """Judge structure and clusters by the ``rows`` of a sample; return the choice, if any is needed.

        They are judged by the groups of a tree that is cut at ``n_clusters``; ``_search`` keeps them. Nothing
        is judged if ``sample`` is None, as it would say too little of the base clusters, or if it has fewer
        objects than make clusters that count. A number that has been chosen has been judged.
        """
        if hasattr(self, "n_clusters_choice_"):
            return None
        self.has_structure_: bool | None = None
        least = least_objects(np.array([len(rows)]))
        if sample is not None and len(rows) >= least * self.n_clusters:
            n_groups = n_groups_for(self.n_clusters)
            groups = sample.groups(n_groups, at_any_scale=True)
            result = judge(sample, groups, n_groups, rows)
            self._judge_structure(result)
            return result.choice if self.n_clusters > 1 else None
        if self.n_clusters > 1:
            reason, remedy = f"are fewer than {least} for each of {self.n_clusters:,} clusters", ""
            if sample is None:
                reason = "have too few labels for each of so many base clusters"
                remedy = " Partitions into fewer clusters show it."
            warn_user(
                f"whether the labels have cluster structure is not known: the {len(rows):,} sampled objects "
                f"{reason}, and confidence does not count whether clusters are real.{remedy}"
                f"{self._features_in_words()}",
                errors.NoStructureWarning,
            )
        return None

    def _judge_structure(self, result: Search) -> None:
        """Keep a search, to judge clusters by, and tell whether any number of clusters stands out.

        Warn if none does; a single cluster that was asked for gives no warning.
        """
        self._search, choice = result, result.choice
        if self.n_clusters == 1:
            return
        self.has_structure_ = choice.is_clear
        if not choice.is_clear:
            warn_user(
                "the labels may have no cluster structure: no number of clusters has more evidence than a "
                "single cluster, as in data without clusters and in many whose classes overlap. Best guess: "
                f"{choice.in_words()}; see help(bigcons.choose_n_clusters).{self._features_in_words()}",
                errors.NoStructureWarning,
            )
        elif self.n_clusters == "auto" and choice.runner_up_share > 0.8:  # benchmarks/repeated_numbers.py
            warn_user(
                f"the number of clusters is uncertain: {choice.runner_up} is nearly as good as "
                f"{choice.n_clusters}, and other partitions of the same data may lead to another number; "
                "look at both, see help(bigcons.choose_n_clusters).",
                errors.ConsensusWarning,
            )

    def _features_in_words(self) -> str:
        """Return a sentence that a column may be a feature, if its numbers are unlike those of clusters."""
        for name, values in zip(self._recoding.names, self._recoding.values, strict=True):
            if values.dtype != object and (largest := int(values.max())) > len(values):
                return (
                    f" Column {name!r} has numbers up to {largest} but only {len(values)} different ones: if "
                    "they are measurements, such as ages, counts or pixels, and no names of clusters, make "
                    "partitions of them first, by bigcons.generate.kmeans (bigcons generate)."
                )
        return ""

    # Runs: what identifies one, and the result of a finished one

    def _fingerprint(self, ensemble: Ensemble, seed: int) -> dict[str, Any]:
        """Return the facts that a resumed solve must share with the interrupted one."""
        free = ("max_iter", "memory", "client", "out", "resume", "random_state")
        words = {}
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, (int, np.integer)) and isinstance(getattr(type(self), name, None), float):
                value = float(value)
            if name not in free:
                words[name] = _in_words(value)
        if (pairs := self._pair_table()) is not None:
            words["pairs"] += f", {pairs.digest()}"
        ids = ensemble.id_column
        return {
            "method": type(self).__name__,
            **words,
            "seed": seed,
            "labels": ensemble.digest(),
            **({} if ids is None else {"ids": ids.facts.in_words}),
        }

    def _provenance(self, output: Output) -> dict[str, Any]:
        """Return all that determines a stored result, with the seed listed separately."""
        run = {**output.fingerprint, "max_iter": repr(getattr(self, "max_iter", None))}
        return {"seed": run["seed"], "run": run}

    def _take_finished(self, consensus: Consensus, output: Output) -> None:
        """Set the stored results of a finished run of the same parameters and labels; refuse any other."""
        current = self._provenance(output)["run"]
        refuse_other(output.path, differences(consensus.provenance.get("run", {}), current))
        logger.info("%s holds the finished result of this run: nothing to solve", output.path)
        runs.clear_finished(output)
        self._take_stored(consensus)
        self.history_: dict[str, list[Any]] = consensus.history
        for name, value in consensus.results.items():
            setattr(self, f"{name}_", value)
        if (tree := consensus.tree) is not None:
            self.tree_, self.n_clusters_choice_ = tree, tree.choice

    def _pair_table(self) -> PairTable | None:
        """Return the table of pairs that the method works on, if it is one or the path of one."""
        pairs = getattr(self, "pairs", None)
        if isinstance(pairs, PairTable):
            return pairs
        if not isinstance(pairs, (str, os.PathLike)) or pairs in ("all", "dense"):
            return None
        return PairTable.open(pairs) if is_store(pairs) or is_parquet(pairs) else None

    # Results

    def _publish(
        self,
        ensemble: Ensemble,
        read: Callable[[Block], BlockResult | np.ndarray] | np.ndarray,
        unlabeled: RowSet,
        out: Output | None,
        engine: Engine | None = None,
        n_clusters: int | None = None,
        trust: Engine | None = None,
        *,
        tables: Callable[[Results], tuple[Any, Any, float]] | None = None,
        order: np.ndarray | None = None,
        add: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Set labels, number of clusters and, if the method is soft, memberships; store them at ``out``.

        ``read`` gives the memberships of a block or, if the method is not soft, its labels, -1 included; an
        array has the rows of all objects.
        It is mapped on ``engine``, by default in this thread. ``unlabeled`` are the
        objects that get label -1 and uniform memberships. Labels are below ``n_clusters``, by default the
        parameter of that name. ``order`` is the clusters', largest first, as far as it is known, and
        ``add`` as in `Results`. Which labels to trust is found on the engine ``trust``, if given, with
        the support of clusters by ``_search``; or ``read`` finds it, and ``tables`` gives the
        rest of `Trust`.

        Clusters are published largest first: see `Results`. Cluster k is number ``self._order[k]`` of the
        method, which brings what else it shows by cluster into this order.
        """
        self._n_columns = n_clusters or self.n_clusters
        K = self._n_columns
        read_block = read if callable(read) else (lambda block: read[block.start : block.stop])
        results = Results(
            *(ensemble, unlabeled, K, self.info.soft, read_block, engine or SerialEngine()),
            np.arange(K) if order is None else order,
            has_trust=tables is not None,
            add=add,
        )

        options: dict[str, Any] = {"search": self._search, "n_clusters": K}
        if out is None:
            self.labels_, memberships, rows = results.hold()
            if memberships is not None:
                self.memberships_ = memberships
            self._note(results)
            if tables is not None and rows is not None:
                sure, second, second_sure = (np.ascontiguousarray(rows[name]) for name in TRUST)
                self._trust = Trust(sure, second, second_sure, *tables(results))
            elif trust is not None:
                codes = results.codes_of(self.labels_)
                self._trust = confidence.Evidence(ensemble, *codes, trust, **options).trust()
            return
        with (
            ExitStack() as committing,
            Consensus.create(
                out.path,
                n_objects=ensemble.n_objects,
                n_clusters=results.n_clusters,
                chunk_rows=ensemble.chunk_rows,
                overwrite=out.overwrite,
                memberships=results.soft,
                ids=ensemble.id_column,
            ) as writer,
        ):
            results.write(writer)
            self._note(results)
            if tables is not None:
                writer.describe_trust(*tables(results))
            elif trust is not None:
                codes = results.codes_of(writer.arrays["labels"])
                confidence.Evidence(ensemble, *codes, trust, **options).write(writer)
            writer.describe(
                history=getattr(self, "history_", None),
                parameters={"method": type(self).__name__, **self.get_params(deep=False)},
                results=stores.fit_results(self),
                provenance={"ensemble": out.source, **self._provenance(out)},
            )
            if self._places() and self._parts is not None:
                facts = {"method": type(self).__name__, "labels": out.fingerprint["labels"]}
                weights = self._partition_weights()
                more_parts = {} if weights is None else {"counted": weights}
                writer.write_parts(stores.PLACING, facts, {**self._parts, "order": self._order, **more_parts})
            if (tree := getattr(self, "tree_", None)) is not None:
                writer.write_parts(stores.TREE, *tree.parts())
            committing.enter_context(progress("write to disk", ensemble.n_objects))
        self._take_stored(Consensus.open(out.path))

    def _take_stored(self, consensus: Consensus) -> None:
        """Take labels, memberships and trust from a store, which are read when they are asked for."""
        self._stored = consensus
        self._trust = consensus.trust_rows if consensus.has_trust else None

    def _note_pass(self, objective: float) -> None:
        """Set the results of a method that makes one pass."""
        self.objective_: float = objective
        self.n_passes_: int = 1
        self.history_ = {"pass": [1], "objective": [objective]}

    def _note(self, results: Results) -> None:
        """Set the number of clusters, and the order in which they are published.

        Warn if a third of the clusters asked for, and at least two, hold next to nothing. That is less than a
        tenth of an equal share, if this is at least two objects.
        """
        self._order: np.ndarray = results.order
        counts = runs.count_clusters(results.sizes)
        self.n_clusters_: int = counts["n_clusters"]
        self.n_tiny_clusters_: int = counts["n_tiny_clusters"]
        K: Any = self.n_clusters  # of some methods None or several
        n_objects = int(results.sizes.sum())
        if self._is_limit or getattr(self, "min_size", None) or not isinstance(K, (int, np.integer)):
            return
        least = runs.TINY * n_objects / K
        surplus = K - int(np.count_nonzero(results.sizes >= least))
        if least >= 2 and surplus >= max(2, K / 3):
            is_chosen = hasattr(self, "n_clusters_choice_") and hasattr(self, "min_size")
            join = f"min_size={math.ceil(least)} joins them to others"
            warn_user(
                f"{surplus:,} of {K:,} clusters hold fewer than {math.ceil(least):,} of {n_objects:,} "
                f"objects each; {join if is_chosen else f'n_clusters={K - surplus} may be enough'}.",
                errors.SurplusClustersWarning,
            )

    @cached_property
    def labels_(self) -> NDArray[np.int32]:
        """Labels (n_objects,) int32, once fitted; a stored result reads them at the first use."""
        return self._stored_with("labels_", "fit finds them.").labels

    @cached_property
    def memberships_(self) -> Any:
        """Memberships (n_objects, n_clusters) float32 of a soft method, once fitted.

        For a stored result, a dask array that reads them.
        """
        remedy = "only soft methods have them, once fitted."
        return self._stored_with("memberships_", remedy, soft=True).dask_memberships()

    def _stored_with(self, name: str, remedy: str, *, soft: bool = False) -> Consensus:
        """Return the stored result, with memberships if ``soft``; raise AttributeError without one."""
        consensus: Consensus | None = getattr(self, "_stored", None)
        if consensus is None or (soft and not consensus.has_memberships):
            # of an object, Python would suggest another name
            raise AttributeError(f"{type(self).__name__} has no {name}; {remedy}", name=name)
        return consensus

    def __sklearn_is_fitted__(self) -> bool:
        return "labels_" in vars(self) or getattr(self, "_stored", None) is not None

    @property
    def n_iter_(self) -> int:
        """Number of passes over the objects of the best start: ``n_passes_``, by scikit-learn's name."""
        return self.n_passes_

    @property
    def trust_(self) -> Trust:
        """Which labels to trust, for a fitted tree or PCC; use `bigcons.metrics.trust` for other methods.

        For a stored result, it is read from the store.
        """
        check_is_fitted(self)
        if self._trust is None:
            x = "ensemble.harden()" if self._recoding.is_soft else "x"
            words = f"{type(self).__name__} has no trust_; compute it by bigcons.metrics.trust({x}, model)."
            raise AttributeError(words, name="trust_")
        return self._trust.read()

    def to_pandas(self, *, memberships: bool = False) -> Any:
        """Return the results as a pandas data frame with a row for each object, as `Consensus.to_pandas`.

        The columns are the ids under their own name (ids that were an index are the index again); ``label``;
        if ``trust_`` is known, ``confidence``, ``second_labels`` and ``second_confidence``; and with
        ``memberships``, also ``cluster_0``, ``cluster_1``, ....
        """
        check_is_fitted(self)
        import pyarrow as pa

        columns = {"label": self.labels_}
        if self._trust is not None:
            columns |= {name: getattr(self.trust_, name) for name in TRUST}
        if memberships:
            columns |= {f"cluster_{k}": column for k, column in enumerate(np.asarray(self.memberships_).T)}
        if self._ids is not None:
            columns = ids_first(columns, self._ids, self._ids.hold().values)
        return data_frame(pa.table(columns), self._ids)

    # New objects

    @classmethod
    def _places(cls) -> bool:
        """Return whether the method places new objects, and so has ``predict``."""
        return cls._placer is not ConsensusClusterer._placer

    def _placer(self, parts: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from labels (rows, M) in the fitted codes to clusters or, if soft, memberships.

        Clusters are numbered as by ``read`` of `_publish`, not by size. It follows from the arrays that a fit
        sets as ``_parts`` before it publishes, of ``_n_columns`` clusters; raises KeyError or ValueError for
        others. The function may be sent to other machines, so it should hold no more than it needs.
        """
        raise NotImplementedError

    @available(_can_place)
    def predict(self, x: Any, *, out: str | os.PathLike[str] | None = None) -> NDArray[np.int32]:
        """Return labels (n_objects,) int32 of objects given by their base labels, -1 where none is known.

        ``x`` as in ``fit``, with the same partitions in the same order, some of which may be all missing;
        labels that were not seen in ``fit`` count as missing. After a fit of soft clusterings, ``x`` may be
        the list of their memberships, with the same clusters. A few objects of the fit itself, on a border,
        may get other labels than ``labels_``, in which `ConsensusTree` leaves out an object's own vote.
        With ``out``, the result is also written to a Consensus store, block by block.
        """
        check_is_fitted(self)
        refuse_inputs(out, x)
        ensemble = self._labels_of(x, with_ids=out is not None)
        if out is None:
            return np.concatenate(list(self._placed(ensemble, lambda _, labels, __: labels)))
        with Consensus.create(
            out,
            n_objects=ensemble.n_objects,
            n_clusters=self._n_columns,
            chunk_rows=ensemble.chunk_rows,
            memberships=self.info.soft,
            ids=ensemble.id_column,
        ) as writer:
            arrays = writer.arrays

            def write(block: Block, labels: np.ndarray, memberships: np.ndarray | None) -> Any:
                return write_rows(arrays, block.start, {"labels": labels, "memberships": memberships})

            for chunk_sums in self._placed(ensemble, write):
                writer.note(chunk_sums)
            source = ensemble.path or origin(x)
            writer.describe(provenance={"ensemble": source, "predicted_by": repr(self)})
        return Consensus.open(out).labels

    @available(lambda model: model.info.soft and _can_place(model))
    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """Return memberships (n_objects, n_clusters) float32 of objects given by their base labels.

        See `predict`; objects without any label get uniform memberships.
        """
        check_is_fitted(self)
        return np.concatenate(list(self._placed(self._labels_of(x), lambda _, __, memberships: memberships)))

    @available(_can_place)
    def score(self, x: Any, y: object = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return how far the labels that `predict` gives the objects of ``x`` agree with their partitions.

        That is the mean adjusted Rand index with the partitions, weighted as in the fit and by the number of
        objects compared: higher is better, 0 is chance. GridSearchCV uses it by default; ``y`` is ignored.
        It costs as much as `predict`, and a pass.
        """
        ensemble = self._labels_of(x)
        mode: dict[str, Any] = {"weighted": True, "weights": self._partition_weights(), "client": self.client}
        return average_criterion("adjusted_rand", ensemble, self.predict(ensemble), **mode)

    @available(_can_place)
    def predict_features(self, features: Any, *, id: Column | None = None) -> Placed:
        """Return labels, memberships and confidence of new objects, given by their features.

        The model has to be fitted to an ensemble that `bigcons.generate.mixed`, or another function there,
        made of features. New features are encoded and scaled like the first ones, labeled in every partition
        by the nearest center or landmark, and placed by these base labels as by ``predict``. ``features`` is
        any table with the same columns, in any order if they have names; ``id`` names the column that
        identifies the objects, by default the one of the same name as in the first table.

        The result also tells which objects are farther from their centers than 99 % of the objects from
        which the centers were made; a share far above 0.01 means that the data have changed, so that you
        need an ensemble of newer data. Warnings name the columns with text that did not occur, and count the
        objects without a known value in any feature, which get no label (-1). Features are read block by
        block, CSV twice; memory is for the result.

        Raises InvalidInputError for columns that are missing or of another kind, and if the ensemble was not
        generated.
        """
        check_is_fitted(self)
        with open_engine(self.client) as engine:
            data, _, blocks = placed_by_features(self, features, id, engine)
            parts = [*blocks]
        soft = np.concatenate([part.memberships for part in parts]) if self.info.soft else None
        labels, is_far = (np.concatenate([getattr(p, n) for p in parts]) for n in ("labels", "is_far"))
        return Placed(labels, soft, is_far, data.ids, parts[0].support)

    def _labels_of(self, x: Any, *, with_ids: bool = False) -> Ensemble:
        """Return the base labels of new objects; an error for other values mentions features."""
        check_is_fitted(self)
        try:
            return self._recoding.ensemble(x, with_ids=with_ids)
        except InvalidInputError as error:
            if self._generator is None or type(error) is not InvalidInputError:
                raise
            raise InvalidInputError(f"{error} Of features, call predict_features(x).") from None

    def _placed(
        self, ensemble: Ensemble, use: Callable[[Block, np.ndarray, np.ndarray | None], Use]
    ) -> Iterator[Use]:
        """Yield ``use(block, labels, memberships)`` of new objects, block by block; it runs in the tasks.

        Memberships are None for a method that is not soft.
        """
        place = self._place_task(self._recoding.tables(ensemble))

        def place_block(block: Block) -> Use:
            return use(block, *place(ensemble.read(block.start, block.stop)))

        with open_engine(self.client) as engine:
            yield from engine.map(place_block, ensemble.blocks())

    def _place_task(self, tables: list[np.ndarray]) -> PlaceTask:
        """Return what places blocks of new objects, given `Recoding.tables` of their labels."""
        parts: Any = self._parts
        return place_task(
            *(self._placer(parts), tables, self._recoding.offsets, self._order[: self._n_columns]),
            self._partition_weights(),
            is_soft=self.info.soft,
        )

    def _take_placing(self, consensus: Consensus, ensemble: Ensemble) -> None:
        """Place new objects by the stored consensus of an ``ensemble``, as if it had been fitted.

        Raises InvalidInputError if the store cannot place objects, or is of another ensemble.
        """
        facts, parts = consensus.read_placing()
        if facts["labels"] != ensemble.digest() or facts["method"] != type(self).__name__:
            raise InvalidInputError(
                f"{consensus.path} is of another ensemble than {ensemble.path or 'the one in memory'}; give "
                "the one that it was solved from or, where that has grown since, a consensus solved anew."
            )
        self._recoding, self._generator = Recoding(ensemble), ensemble.generator
        self._n_columns = consensus.n_clusters
        self._trust = consensus.trust_rows if consensus.has_trust else None
        try:
            self._order, weights = parts.pop("order"), parts.pop("counted", None)
            if sorted(self._order.tolist()) != list(range(self._n_columns)):
                raise ValueError("the order of clusters")
            self._weights, self._parts = Weights.parse(weights, ensemble.offsets), parts
            self._placer(parts)
        except (KeyError, ValueError, TypeError) as error:
            raise errors.CorruptStoreError(
                f"{consensus.path} cannot place objects ({error}); solve again with overwrite=True.",
                path=consensus.path,
            ) from None


def _in_words(value: Any) -> str:
    """Return a text that identifies a parameter: its repr or, for an array, a digest."""
    if isinstance(value, ConsensusClusterer):
        parts = (f"{name}={_in_words(part)}" for name, part in value.get_params(deep=False).items())
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, (list, tuple)) and any(isinstance(item, ConsensusClusterer) for item in value):
        return f"[{', '.join(map(_in_words, value))}]"
    value = value.item() if isinstance(value, np.generic) else value
    if not hasattr(value, "__array__"):
        return repr(value)
    values = np.ascontiguousarray(value)
    return f"array {values.shape} {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"
