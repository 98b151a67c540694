"""The consensus in one call."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from bigcons.errors import InvalidInputError, UnknownMethodError, nearest
from bigcons.generate.training import range_for
from bigcons.generate.transformer import EnsembleGenerator
from bigcons.methods import METHODS
from bigcons.methods.base import ConsensusClusterer, available
from bigcons.metrics import micro_precision
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.ensemble import as_ensemble
from bigcons.trust.n_clusters import choose_n_clusters
from bigcons.validation import check_choice

if TYPE_CHECKING:
    from bigcons.methods.tree import ConsensusTree

AS_IN_PAPER: dict[str, dict[str, Any]] = {
    # Lourenço et al. 2015: the heap over all pairs; their cap of n K steps is max_iter="paper"
    "pcc": {"pairs": "dense", "solver": "heap"},
    # Wang, Shan and Banerjee 2009: one random start, plain EM; tables of the best and the mean over runs
    "bce": {"init": "random", "n_init": 1, "relaxation": 1.0},
    "bce-gibbs": {"init": "random", "n_init": 1},
    "mixture": {"background": False, "init": "dirichlet", "n_init": 1},
    "kmeans": {"encode": "integer", "n_init": 1},
    "micro_precision": {"mode": "majority"},
    # Strehl and Ghosh 2002
    "cspa": {"partitioner": "metis", "normalize": "all"},
    "hgpa": {"objective": "cut"},
    "mcla": {"partitioner": "metis", "ties": "random"},
    "supra": {
        "members": "cspa(partitioner=metis, normalize=all), hgpa(objective=cut), "
        "mcla(partitioner=metis, ties=random)"
    },
    # Fern and Brodley 2004
    "hbgf": {"partitioner": "metis"},
    # Nguyen and Caruana 2007: 100 restarts; similarities over all partitions
    "ivc": {"n_init": 100},
    "ipvc": {"n_init": 100},
    "ipc": {"normalize": "all", "n_init": 100},
    # Aidos and Fred, and the rest of these papers: the defaults
    **{name: {} for name in ("did", "eac", "eac-single", "eac-average", "greedy-anmi", "qmi", "furthest")},
    **{name: {} for name in ("best", "ccc", "ccu", "ccsvd")},
}
"""Parameters as published, by method or criterion, where they are not the defaults."""


@overload
def consensus(
    x: Any, n_clusters: int | Literal["auto"], method: Literal["tree"] = "tree", **parameters: Any
) -> ConsensusTree: ...


@overload
def consensus(x: Any, n_clusters: Any, method: str, **parameters: Any) -> ConsensusClusterer: ...


def consensus(x: Any, n_clusters: Any, method: str = "tree", **parameters: Any) -> ConsensusClusterer:
    """Return a fitted model of the consensus of the clusterings in ``x``.

    Short for ``METHODS[method](n_clusters, **parameters).fit(x)``. Cost and errors are those of the method.

    Parameters
    ----------
    x : Ensemble, table or path
        The clusterings: an `Ensemble` or the path of one, or labels ``(n_objects, n_partitions)`` in anything
        that `Ensemble.from_labels` takes.
    n_clusters : int or "auto"
        Number of clusters. "auto": by `choose_n_clusters`, if the method can choose.
    method : str, default="tree"
        Name of a method in `METHODS`.
    **parameters
        Parameters of the method, such as ``random_state``, ``memory``, ``out`` and ``client``, and of its
        ``fit``: ``id``, ``columns`` and ``drop`` choose the columns of a table.

    Returns
    -------
    ConsensusClusterer
        The model, with ``labels_`` and, by a soft method, ``memberships_``.

    Examples
    --------
    >>> import bigcons as bc
    >>> labels = 3 * [[0, 0, 1, 0]] + [[0, 2, -1, 0]] + 3 * [[1, 1, 0, 1]] + [[1, -1, 0, 1]]
    >>> bc.consensus(labels, n_clusters=2).labels_
    array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32)
    >>> bc.consensus(labels, n_clusters=2, method="hbgf", random_state=0)
    HBGF(n_clusters=2, random_state=0)
    """
    estimator = METHODS[method]
    of_fit = inspect.signature(estimator.fit).parameters.keys() - {"self", "out"}
    known = estimator._get_param_names()
    for name in sorted(parameters.keys() - of_fit - {*known}):
        close = nearest(name, ["method", *known, *of_fit])
        remedy = f"it has {', '.join(known)}." if close is None else f"did you mean {close}?"
        raise InvalidInputError(f"{estimator.__name__} has no parameter {name}; {remedy}", parameter=name)
    fitting = {}
    for name in of_fit & parameters.keys():
        fitting[name] = parameters.pop(name)
    return estimator(n_clusters, **parameters).fit(x, **fitting)


def as_in_paper(name: str, *arguments: Any, **parameters: Any) -> Any:
    """Return a method, not fitted, with the parameters of its paper, to repeat what was published.

    The defaults of bigcons are chosen for accuracy and size. If a paper leaves a parameter open, the default
    stays.

    Parameters
    ----------
    name : str
        Name of a method in `METHODS`, or "micro_precision", for the criterion as Wang, Shan and Banerjee
        define it (their tables use another).
    *arguments, **parameters
        Number of clusters and parameters of the method; they take precedence over the paper's.

    Returns
    -------
    ConsensusClusterer, or for "micro_precision" the function

    Raises
    ------
    InvalidInputError
        If no paper has the method.

    Examples
    --------
    >>> import bigcons as bc
    >>> bc.as_in_paper("hgpa", 3)
    HGPA(n_clusters=3, objective='cut')
    >>> bc.as_in_paper("pcc", 8, divergence="kl")
    PCC(divergence='kl', pairs='dense', solver='heap')
    """
    check_choice("name", name, tuple(AS_IN_PAPER))
    merged = {**AS_IN_PAPER[name], **parameters}
    if name == "micro_precision":
        return partial(micro_precision, *arguments, **merged)
    return METHODS[name](*arguments, **merged)


def _places(model: ConsensusClustering) -> bool:
    """Return whether the method of consensus of a model, or its fit, places new objects."""
    fitted = getattr(model, "consensus_", None)
    return model._method()._places() if fitted is None else hasattr(fitted, "predict")


class ConsensusClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Cluster features by the consensus of many clusterings of them.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters. "auto": by `choose_n_clusters`, where the method takes it.
    generator : transformer or None, default=None
        The transformer of features, also of new ones, into base labels ``(n_objects, n_partitions)``: an
        `EnsembleGenerator`, or any transformer of scikit-learn whose columns are labels. None is
        ``EnsembleGenerator()``. If the generator has no ``n_clusters`` and K clusters are asked for here, ten
        or more, partitions have 2 to 3 K clusters. Where "auto" finds more than ten, it makes partitions
        again, for the number found, and chooses again.
    consensus : str or estimator, default="tree"
        The method: a name in `METHODS` or an estimator such as ``PCC(n_init=3)``, which takes the
        ``n_clusters`` given here.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the generator and the method, if they have none of their own.

    Attributes
    ----------
    labels_ : (n_objects,) int32, clusters, largest first
    memberships_ : (n_objects, n_clusters) float32, of a soft method
    n_clusters_ : the number of clusters that win objects
    generator_ : the fitted generator
    consensus_ : the fitted method, with its further results, such as ``trust_``
    n_features_in_, feature_names_in_

    Notes
    -----
    ``predict``, ``transform`` and ``score`` exist if the method places new objects, as the tree and most
    methods do. They place objects that they are given as new ones, so that a few objects of the fit, whose
    labels counted in it, can get another label than in ``labels_``. All objects count the same: there is no
    ``sample_weight``. Features, labels and results are in memory; for larger data see
    `bigcons.generate.mixed` and `bigcons.consensus`.

    Examples
    --------
    >>> import bigcons as bc
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import RobustScaler
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> model = make_pipeline(RobustScaler(), bc.ConsensusClustering(5, random_state=0)).fit(features)
    >>> model.predict(features[:3]).tolist() == model[-1].labels_[:3].tolist()
    True
    >>> model.transform(features).shape
    (1000, 5)
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        generator: Any = None,
        consensus: str | ConsensusClusterer = "tree",
        random_state: SeedLike = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.generator = generator
        self.consensus = consensus
        self.random_state = random_state

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Make base labels of features ``(n_objects, n_features)`` and find their consensus."""
        generator = EnsembleGenerator() if self.generator is None else self.generator
        if not hasattr(generator, "fit_transform"):
            raise InvalidInputError(
                f"generator={generator!r} is no transformer; give an EnsembleGenerator, or another whose "
                "columns are labels.",
                parameter="generator",
            )
        generator = clone(generator)
        if follows := isinstance(generator, EnsembleGenerator) and generator.n_clusters is None:
            generator.set_params(n_clusters=range_for(self.n_clusters))
        parts = generator, clone(self._method()).set_params(n_clusters=self.n_clusters)
        seed = resolve_seed(self.random_state)
        for part in parts:
            free = sorted(n for n, v in part.get_params().items() if v is None and n.endswith("random_state"))
            first = seed if hasattr(part, "client") else seed % (1 << 31)  # scikit-learn takes no larger ones
            part.set_params(**{name: first + number for number, name in enumerate(free)})
        parts[1]._check_n_clusters(self.n_clusters, sys.maxsize)  # before partitions are made
        self.generator_: Any = parts[0]
        self.consensus_: Any = parts[1]
        X = X.reset_index(drop=True) if hasattr(X, "reset_index") else X  # names of rows may repeat
        ensemble = as_ensemble(self.generator_.fit_transform(X))
        if follows and self.n_clusters == "auto":
            chosen = choose_n_clusters(ensemble, random_state=seed).n_clusters
            if wider := range_for(chosen, is_found=True):
                ensemble = as_ensemble(self.generator_.set_params(n_clusters=wider).fit_transform(X))
        ensemble.provenance["generator"] = type(generator).__name__  # of which no partition can be left out
        self.consensus_.fit(ensemble)
        self.labels_: NDArray[np.int32] = self.consensus_.labels_
        self.n_clusters_: int = self.consensus_.n_clusters_
        if self.consensus_.info.soft:
            self.memberships_: Any = self.consensus_.memberships_
        return self

    n_features_in_: Any = property(attrgetter("generator_.n_features_in_"))
    feature_names_in_: Any = property(attrgetter("generator_.feature_names_in_"))

    @available(_places)
    def predict(self, X: Any) -> NDArray[np.int32]:
        """Return the labels ``(n_objects,)`` int32 of objects by their features."""
        check_is_fitted(self)
        labels: NDArray[np.int32] = self.consensus_.predict(self.generator_.transform(X))
        return labels

    @available(_places)
    def score(self, X: Any, y: object = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean adjusted Rand index of predicted labels with the base labels of ``X``.

        GridSearchCV without ``scoring`` compares methods and numbers of clusters of one generator by it.
        Different generators have different base labels; compare them by a criterion of the features.
        """
        check_is_fitted(self)
        value: float = self.consensus_.score(self.generator_.transform(X))
        return value

    def fit_predict(self, X: Any, y: object = None, **kwargs: Any) -> NDArray[np.int32]:
        """Return ``labels_`` after a fit of the objects of ``X``."""
        return self.fit(X, y, **kwargs).labels_

    def fit_transform(self, X: Any, y: object = None) -> NDArray[np.float32]:  # type: ignore[override]
        """Return what `transform` returns of the objects of ``X``, after a fit of them."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the memberships ``(n_objects, n_clusters)`` float32 of objects by their features.

        For a method that is not soft, they are 1 for the cluster of an object, if it has one, and else 0.
        """
        check_is_fitted(self)
        labels = self.generator_.transform(X)
        if self.consensus_.info.soft:
            memberships: NDArray[np.float32] = self.consensus_.predict_proba(labels)
            return memberships
        numbers = np.arange(self._n_features_out)
        return (self.consensus_.predict(labels)[:, None] == numbers).astype(np.float32)

    @property
    def _n_features_out(self) -> int:
        """The number of columns of `transform`, by scikit-learn's name for it."""
        return self.consensus_._n_columns

    def _method(self) -> ConsensusClusterer:
        """Return the method as it was given, as an estimator."""
        method = self.consensus
        if isinstance(method, str):
            if method not in METHODS:
                raise UnknownMethodError(method, tuple(METHODS), nearest(method, METHODS), "consensus")
            return METHODS[method]()
        if not isinstance(method, ConsensusClusterer):
            raise InvalidInputError(
                f"consensus={method!r} is no method; give a name in bigcons.METHODS or an estimator such as "
                "PCC().",
                parameter="consensus",
            )
        return method

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: memberships are of a type of their own; features as the generator's."""
        tags = super().__sklearn_tags__()
        generator = EnsembleGenerator() if self.generator is None else self.generator
        tags.input_tags = get_tags(generator).input_tags
        tags.transformer_tags.preserves_dtype = []
        return tags


for _name in ("transform", "fit_transform"):  # which scikit-learn wraps, so that they would always be there
    setattr(ConsensusClustering, _name, available(_places)(getattr(ConsensusClustering, _name)))
