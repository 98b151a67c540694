"""One estimator from features to labels: a generator of base labels and a method of consensus."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigcons.errors import InvalidInputError
from bigcons.generate.transformer import EnsembleGenerator
from bigcons.methods import METHODS
from bigcons.methods.base import ConsensusClusterer
from bigcons.seeding import SeedLike, resolve_seed


def _places(model: ConsensusClustering) -> bool:
    """Return whether the method of consensus of a model places new objects."""
    return hasattr(model._method(), "predict")


class ConsensusClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Cluster features by the consensus of many clusterings of them.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Maximum number of clusters. "auto": by `choose_n_clusters`, where the method takes it.
    generator : transformer or None, default=None
        What makes base labels ``(n_objects, n_partitions)`` of features, and of new ones: an
        `EnsembleGenerator`, or any transformer of scikit-learn whose columns are labels. None is
        ``EnsembleGenerator()``.
    consensus : str or estimator, default="tree"
        The method: a name in `METHODS` or an estimator such as ``PCC(n_init=3)``, which takes the
        ``n_clusters`` given here.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the generator and the method, where they have none of their own.

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
    ``predict`` and ``transform`` exist where the method places new objects, as the tree, PCC and most do.
    Objects all count the same: there is no ``sample_weight``. Features, labels and results are in memory; for
    larger data see `bigcons.generate.mixed` and `bigcons.consensus`.

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
        K = self.n_clusters
        generator = self.generator
        if generator is None:
            generator = EnsembleGenerator()
        parts = clone(generator), clone(self._method()).set_params(n_clusters=K)
        seed = resolve_seed(self.random_state)
        for part in parts:
            if part.get_params(deep=False).get("random_state", seed) is None:
                part.set_params(random_state=seed)
        self.generator_: Any = parts[0]
        self.consensus_: Any = parts[1]
        self.consensus_.fit(self.generator_.fit_transform(X))
        self.labels_: np.ndarray = self.consensus_.labels_
        self.n_clusters_: int = self.consensus_.n_clusters_
        return self

    @available_if(_places)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> np.ndarray:
        """Return the labels ``(n_objects,)`` int32 of objects by their features."""
        check_is_fitted(self)
        labels: np.ndarray = self.consensus_.predict(self.generator_.transform(X))
        return labels

    @available_if(_places)  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: object = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean adjusted Rand index of predicted labels with the base labels of ``X``.

        It compares methods and numbers of clusters of one generator in GridSearchCV without ``scoring``;
        generators have other base labels, and are compared by a criterion of the features.
        """
        check_is_fitted(self)
        found: float = self.consensus_.score(self.generator_.transform(X))
        return found

    def transform(self, X: Any) -> np.ndarray:
        """Return the memberships ``(n_objects, n_clusters)`` float32 of objects by their features.

        By a method that is not soft, they are 1 in the cluster of an object, if it has one, and else 0.
        """
        check_is_fitted(self)
        labels = self.generator_.transform(X)
        if self.consensus_.info.soft:
            memberships: np.ndarray = self.consensus_.predict_proba(labels)
            return memberships
        numbers = np.arange(self._n_features_out)
        return (self.consensus_.predict(labels)[:, None] == numbers).astype(np.float32)

    @property
    def memberships_(self) -> Any:
        """Memberships (n_objects, n_clusters) float32 of a soft method, once fitted."""
        return self.consensus_.memberships_

    @property
    def n_features_in_(self) -> int:
        """The number of features, once fitted."""
        return int(self.generator_.n_features_in_)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features, once fitted to a table with names."""
        names: np.ndarray = self.generator_.feature_names_in_
        return names

    @property
    def _n_features_out(self) -> int:
        """The number of columns of `transform`, by scikit-learn's name for it."""
        return self.consensus_._n_columns

    def _method(self) -> ConsensusClusterer:
        """Return the method as it was given, as an estimator."""
        given = self.consensus
        if isinstance(given, str):
            try:
                return METHODS[given]()
            except KeyError as error:
                raise InvalidInputError(error.args[0], parameter="consensus") from None
        if not isinstance(given, ConsensusClusterer):
            raise InvalidInputError(
                f"consensus={given!r} is no method; give a name in bigcons.METHODS or an estimator such as "
                "PCC().",
                parameter="consensus",
            )
        return given

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: memberships are of a type of their own; features as the generator's."""
        tags = super().__sklearn_tags__()
        generator = EnsembleGenerator() if self.generator is None else self.generator
        tags.input_tags.allow_nan = get_tags(generator).input_tags.allow_nan
        tags.transformer_tags.preserves_dtype = []
        return tags
