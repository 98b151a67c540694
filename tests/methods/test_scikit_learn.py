"""The methods as scikit-learn's estimators."""

import copy
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from bigcons import METHODS, PCC, ConsensusClustering, EnsembleGenerator, generate
from bigcons.datasets import ce_8d5k
from bigcons.errors import InvalidInputError
from bigcons.metrics import adjusted_rand
from tests.support.clusters import local_client
from tests.support.refusals import refused

NOT_KEPT = {
    "check_clustering": "features are labels: real numbers are refused",
    "check_positive_only_tag_during_fit": "features are labels: real numbers are refused",
    "check_complex_data": "the message names the type of the labels",
    "check_estimators_empty_data_messages": "the message names labels and partitions, not features",
    "check_n_features_in_after_fitting": "the message names partitions, not features",
}


REFUSED = {
    "best": "every partition has at least . clusters; allow as many",  # than the columns of numbers have
    "did": "features=None, but DID needs distances",
}
"""What two methods say of the arrays of the checks: methods that are not given what they work on."""


@pytest.mark.parametrize("name", METHODS)
def test_methods__pass_scikit_learn_s_checks_with_stated_exemptions(name):
    few = {"n_init": 1, "max_iter": 5}
    given = {key: few[key] for key in METHODS[name]().get_params().keys() & few}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            METHODS[name](3, **given), expected_failed_checks=NOT_KEPT, on_fail=None, on_skip=None
        )
    for result in results:
        if result["status"] == "failed":
            error = result["exception"]
            said = f"{error} {error.__cause__} {error.__context__}"
            assert re.search(REFUSED.get(name, "^(?!)"), said), f"{result['check_name']}: {said}"
    exempt = {result["check_name"] for result in results if result["status"] == "xfail"}
    # which is of predict: methods without it, and the cut of HGPA, skip it, and what refuses to fit fails it
    is_asked = name in REFUSED or (METHODS[name]._places() and name != "hgpa")
    assert exempt == NOT_KEPT.keys() - (set() if is_asked else {"check_n_features_in_after_fitting"})
    assert isinstance(METHODS[name](), BaseEstimator)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)[:, None].repeat(4, axis=1)
    labels[rng.random(labels.shape) < 0.1] = -1
    return pd.DataFrame(labels, columns=list("abcd"))


def test_methods__end_a_pipeline_count_their_passes_and_keep_to_the_columns_fitted(table):
    model = make_pipeline(FunctionTransformer(), PCC(3, random_state=0)).fit(table)
    assert model[-1].n_iter_ == model[-1].n_passes_ >= 1
    np.testing.assert_array_equal(model.predict(table), model[-1].labels_)
    assert model[-1].feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model[-1].predict(table.to_numpy()), model[-1].labels_)
    for columns in (list("wxyz"), list("dcba")):
        with pytest.raises(InvalidInputError, match=f"has|have.*{columns[0]!r} where 'a'"):
            model[-1].predict(table.set_axis(columns, axis=1))
    for fresh in (PCC(3), ConsensusClustering(3, generator=FunctionTransformer())):
        assert fresh.fit(table).feature_names_in_.tolist() == list("abcd")
        assert not hasattr(fresh.fit(table.to_numpy()), "feature_names_in_")  # of an earlier fit


def test_clustering__encodes_new_rows_as_in_fit():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=200)
    jobs = np.array(["free", "paid", "idle"])[group]
    table = pd.DataFrame({"job": jobs, "x": group + rng.normal(size=200)})
    model = ConsensusClustering(3, random_state=0).fit(table)
    assert adjusted_rand(group, model.labels_) > 0.9
    kept = pickle.loads(pickle.dumps(model))
    for rows in (slice(0, 7), group == 1):
        np.testing.assert_array_equal(kept.predict(table[rows]), model.predict(table)[rows])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[["x", "job"]])
    for text in ("many", "1.5"):
        with refused(r"'x' of features has .*, where it had numbers before; conve"):
            model.predict(table.assign(x=text))


@pytest.fixture(scope="module")
def client():
    with local_client(processes=False) as client:
        with pytest.raises(TypeError, match="cannot pickle"):
            copy.deepcopy(client)
        yield client


ESTIMATORS = {name: METHODS[name](3) for name in METHODS} | {
    "generator": EnsembleGenerator(3),
    "of a model": ConsensusClustering(3, consensus=PCC(3)),
    "in a pipeline": make_pipeline(StandardScaler(), PCC(3)),
}


def clients_of(model):
    return {name: value for name, value in model.get_params().items() if name.split("__")[-1] == "client"}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators__share_their_client_with_clones_and_leave_it_out_of_pickles(client, name):
    model = clone(ESTIMATORS[name])
    model.set_params(**dict.fromkeys(clients_of(model), client))
    assert set(clients_of(clone(model)).values()) == {client}
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert set(clients_of(copied).values()) == {None}
    assert set(clients_of(model).values()) == {client}
    for stays in ("threads", "tcp://host:8786"):
        model.set_params(**dict.fromkeys(clients_of(model), stays))
        for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert set(clients_of(copied).values()) == {stays}


@pytest.fixture(scope="module")
def blobs():
    features, truth = ce_8d5k(random_state=0)
    return features[::2], truth[::2]


@pytest.mark.parametrize(
    "estimator",
    [
        EnsembleGenerator(5),
        pytest.param(ConsensusClustering(3, generator=EnsembleGenerator(5)), marks=pytest.mark.slow),
        pytest.param(
            ConsensusClustering(3, consensus="hbgf", generator=EnsembleGenerator(5)), marks=pytest.mark.slow
        ),
    ],
    ids=["generator", "soft", "hard"],
)
def test_estimators_of_features__pass_scikit_learn_s_checks_without_exemptions(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def with_gaps(blobs):
    """Features with missing numbers, and the consensus of them."""
    values = blobs[0].astype(np.float32).astype(float)
    values[::7, 2] = values[::9, 5] = np.nan
    return values, of_features().fit(values)


def of_features():
    return ConsensusClustering(5, generator=EnsembleGenerator(15), random_state=0)


def test_consensus_of_features__refuses_infinity_and_places_rows_with_new_gaps(blobs, with_gaps):
    features, truth = blobs
    values, model = with_gaps
    assert get_tags(model).input_tags.allow_nan
    assert not get_tags(ConsensusClustering(generator=FunctionTransformer())).input_tags.allow_nan
    for call, far in ((of_features().fit, np.inf), (model.predict, np.inf), (model.predict, 1e300)):
        with pytest.raises(ValueError, match=r"inf|too far for float32"):
            call(np.where(np.arange(8) == 3, far, values))
    piped = make_pipeline(StandardScaler(), of_features()).fit(values)
    assert adjusted_rand(truth, piped[-1].labels_) > 0.9
    whole = of_features().fit(features)
    assert adjusted_rand(whole.predict(values), whole.predict(features)) > 0.9


def test_consensus_of_features__is_searched_in_a_pipeline(blobs):
    features, truth = blobs
    frame = pd.DataFrame(features, np.zeros(len(features)), list("abcdefgh"))  # as a bootstrap repeats names
    generator = EnsembleGenerator(15)
    pipeline = make_pipeline(StandardScaler(), ConsensusClustering(generator=generator, random_state=0))
    pipeline.set_output(transform="pandas")
    grid = {"consensusclustering__n_clusters": [2, 5], "consensusclustering__generator__n_partitions": [10]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(pipeline, grid, scoring="adjusted_rand_score", cv=2, error_score="raise")
        search.fit(frame, truth)
    assert search.best_params_["consensusclustering__n_clusters"] == 5
    model = search.best_estimator_
    assert adjusted_rand(truth, model[-1].labels_) > 0.9
    np.testing.assert_array_equal(model.predict(frame), model[-1].labels_)
    assert model.score(frame) == model[-1].consensus_.score(
        model[-1].generator_.transform(model[:-1].transform(frame))
    )
    memberships = model.transform(frame)
    assert memberships.columns.tolist() == [f"consensusclustering{k}" for k in range(5)]
    np.testing.assert_allclose(memberships.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="feature names"):
        model[-1].predict(frame[list("hgfedcba")])


def test_consensus_of_features__takes_any_transformer_and_method(blobs):
    features, _ = blobs
    low, high = features.min(axis=0), features.max(axis=0)
    bins = FunctionTransformer(lambda X: (5 * (X - low) / (high - low)).astype(int))
    model = ConsensusClustering(4, generator=bins, consensus=PCC(n_init=2, random_state=5), random_state=0)
    labels = model.fit_predict(features)
    direct = PCC(4, n_init=2, random_state=5).fit_predict(bins.transform(features))
    np.testing.assert_array_equal(labels, direct)
    assert not hasattr(ConsensusClustering(consensus="eac"), "predict")
    bins = KBinsDiscretizer(3, encode="ordinal", strategy="kmeans")  # which has a seed, too, and no large one
    for generator in (bins, make_pipeline(StandardScaler(), EnsembleGenerator(3, n_clusters=9))):
        models = [ConsensusClustering(2, generator=generator, random_state=2**40) for _ in range(2)]
        made = [model.fit(features).generator_.transform(features) for model in models]
        np.testing.assert_array_equal(*made)
    wrong = {
        r"^consensus='pccc' is unknown; .*Did you mean 'pcc'\?$": {"consensus": "pccc"},
        r"^consensus=5 is no method; give a name .* or an estimator such as PCC\(\)\.$": {"consensus": 5},
        r"^generator=3 is no transformer; give an EnsembleGenerator, or ": {"generator": 3},
        r"^n_clusters='many' has type str; use an integer >= 1 or 'auto'\.$": {"n_clusters": "many"},
    }
    for message, parameters in wrong.items():
        with pytest.raises(InvalidInputError, match=message):
            ConsensusClustering(**parameters).fit(None)  # before it reads features


GROUP = np.arange(90) % 3
COUNTS = np.random.default_rng(0).poisson(np.where(GROUP[:, None] == np.arange(30) % 3, 5.0, 0.1))
DAYS = pd.to_datetime(np.where(np.arange(90) == 7, None, 400 * GROUP + COUNTS[:, 0]), unit="D")
FEATURES = {
    "coo": sparse.coo_array(COUNTS.astype(np.float32)),
    "sparse frame": pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(COUNTS[:, :3])),
    "masked": np.ma.masked_array(COUNTS * 1.0, mask=COUNTS == 9),
    "categories of numbers": pd.DataFrame({"x": COUNTS[:, 0], "zip": pd.Categorical(10_115 * GROUP)}),
    "categories of digits": pl.DataFrame(
        {"x": COUNTS[:, 0], "zip": GROUP.astype(str)}, schema={"x": pl.Int64, "zip": pl.Enum("012")}
    ),
    "dates": pd.DataFrame({"from": DAYS, "to": DAYS[::-1]}),
}


@pytest.mark.parametrize("kind", FEATURES)
def test_features_of_any_kind__are_clustered_as_by_generate(kind):
    features = FEATURES[kind]
    made = generate.mixed(features, n_partitions=4, random_state=0)
    generator = EnsembleGenerator(4, random_state=0)
    np.testing.assert_array_equal(generator.fit_transform(features), made.read(0, 90))
    np.testing.assert_array_equal(generator.transform(features), made.read(0, 90))
    if kind == "coo":
        model = ConsensusClustering(12, generator=generator, consensus="mcla", random_state=0).fit(features)
        assert model.predict(features).shape == (90,)
        assert (generator.n_clusters, model.generator_.n_clusters) == (None, (2, 36))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (pd.DataFrame({"x": COUNTS[:, 0].astype(str)}), "text that may be numbers"),
        *((x, "cannot serve as features") for x in (pd.DataFrame(DAYS - DAYS[0]), DAYS.to_numpy()[:, None])),
        (np.ma.masked_equal(COUNTS[:, :1].astype("U"), "9"), "cannot serve as features"),
    ],
)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_features_that_are_no_numbers__are_not_taken_for_such(features, message):
    for call in (EnsembleGenerator(4).fit, EnsembleGenerator(4).fit(COUNTS[:, :1]).transform):
        with pytest.raises(InvalidInputError, match=f"{message}|had numbers before"):
            call(features)
