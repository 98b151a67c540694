"""Ensembles of features as a transformer of scikit-learn, which labels new objects, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from bigcons.generate.training import ClusterCount, Scheme, choose_sample_rows, measure, train_centers
from bigcons.io.features import FeatureEncoding, Features, encoded_features
from bigcons.io.sources import open_source
from bigcons.memory import Block
from bigcons.run.engine import HasClient, open_engine
from bigcons.seeding import SeedLike, resolve_seed
from bigcons.store.generator import NewRows
from bigcons.validation import check_choice, check_flag, check_number


class EnsembleGenerator(HasClient, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Cluster features many times: a transformer of features into base labels.

    By default partitions are made as by `bigcons.generate.mixed`, half by landmarks and half by k-means. The
    transformer keeps their centers, so that it also labels new objects, by the nearest center in each
    partition.

    Parameters
    ----------
    n_partitions : int, default=100
        Number of partitions.
    scheme : {"mixed", "kmeans", "landmarks"}, default="mixed"
        Name of the function of `bigcons.generate` that makes the partitions.
    n_clusters : int, (int, int), "split" or None, default=None
        Number of clusters, or the range from which it is drawn, or "split", as in `bigcons.generate.kmeans`;
        at most as many as the objects that a partition sees. None: 2 to 20 by landmarks, 2 to 30 by k-means.
    sample : float, default=1.0
        Share of the objects on which a partition by k-means is trained.
    standardize : bool, default=True
        Scale every feature to mean 0 and variance 1. Constant features are dropped.
    random_state : int, RandomState, Generator or None, default=None
        Seed. A partition depends on the seed and its number alone.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    n_clusters_ : (n_partitions,) int64, the clusters of each partition
    n_features_in_, feature_names_in_

    Notes
    -----
    Features are in memory: numbers, also sparse, with NaN for missing values; in a table with names, also
    text and dates, which are encoded as by `bigcons.generate.mixed`. For data larger than memory use that
    function, which costs as much. There is no ``sample_weight``.

    Examples
    --------
    >>> import bigcons as bc
    >>> from sklearn.pipeline import make_pipeline
    >>> features, truth = bc.datasets.ce_8d5k(random_state=0)
    >>> generator = bc.EnsembleGenerator(20, random_state=0)
    >>> generator.fit_transform(features).shape
    (1000, 20)
    >>> model = make_pipeline(generator, bc.PCC(5, random_state=0)).fit(features)
    >>> model.predict(features[:3]).shape
    (3,)
    """

    def __init__(
        self,
        n_partitions: int = 100,
        *,
        scheme: str = "mixed",
        n_clusters: ClusterCount | None = None,
        sample: float = 1.0,
        standardize: bool = True,
        random_state: SeedLike = None,
        client: object = None,
    ) -> None:
        self.n_partitions = n_partitions
        self.scheme = scheme
        self.n_clusters = n_clusters
        self.sample = sample
        self.standardize = standardize
        self.random_state = random_state
        self.client = client

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Find the centers of all partitions of features ``(n_objects, n_features)``; ``y`` is ignored."""
        check_flag("standardize", self.standardize)
        name = check_choice("scheme", self.scheme, ("mixed", "kmeans", "landmarks"))
        sample = check_number("sample", self.sample, above=0, at_most=1)
        seed = resolve_seed(self.random_state)
        scheme = Scheme(name, self.n_partitions, self.n_clusters, sample, seed=seed)
        data = self._open(X, ensure_min_samples=2)
        scheme = scheme.of_objects(data.n_objects, data.chunk_rows)
        sample_rows = choose_sample_rows(scheme.ranges[0][1], data.n_features)
        subset = scheme.pool(sample_rows)
        self._scaling, rows = measure(data, subset, standardize=self.standardize)
        encoding = replace(data.encoding, scaling=self._scaling)
        with open_engine(self.client) as engine:
            self._centers = train_centers(scheme, subset, rows, encoding, sample_rows, engine.map)[0]
        self.n_clusters_: np.ndarray = self._centers.n_clusters
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the labels ``(n_objects, n_partitions)`` of objects, each by the nearest center.

        They are whole numbers from 0, of the smallest type that holds them; of equally near centers the first
        wins. Objects without a known value in any feature have none, -1. Warnings count them, and name the
        columns with text that did not occur in the fit.
        """
        check_is_fitted(self)
        rows = NewRows(self._open(X, reset=False), self._scaling)
        scaling, centers = self._scaling, self._centers

        def label(item: tuple[Block, np.ndarray, np.ndarray]) -> np.ndarray:
            is_seen = np.tile(item[2], (len(centers.offsets) - 1, 1))
            return centers.label(scaling.apply(item[1]), is_seen)[0]

        with open_engine(self.client) as engine:
            labels = np.concatenate(list(engine.map(label, rows)))
        rows.warn()
        return labels

    def _open(self, X: Any, *, reset: bool = True, **options: Any) -> Features:
        """Open a matrix as scikit-learn checks it, but what that would take for plain numbers as it is.

        These are tables, masked values, text and times. Of an AnnData its X is read.
        """
        X = X.X if hasattr(X, "obs") else X
        X = X.reset_index(drop=True) if hasattr(X, "reset_index") else X  # names of rows may repeat here
        kind = getattr(getattr(X, "dtype", None), "kind", "")
        is_more = hasattr(X, "columns") or np.ma.isMaskedArray(X) or kind in tuple("mMSU")
        if is_more or not (reset or self._encoding.is_plain):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            options |= {"accept_sparse": "csr", "ensure_all_finite": "allow-nan"}
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=reset, **options)
        if not reset:
            return encoded_features(X, self._encoding)
        data = Features(open_source(X, "features"), options={"columns": "all"})
        self._encoding: FeatureEncoding = data.encoding
        return data

    @property
    def _n_features_out(self) -> int:
        """The number of columns, by scikit-learn's name for it."""
        return len(self.n_clusters_)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: labels are of a type of their own, and values may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags
