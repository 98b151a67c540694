"""Figures: what they show can be read back from the artists; no global state is touched."""

import io
import itertools
import os
import subprocess
import sys
from functools import partial
from inspect import signature

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.preprocessing import FunctionTransformer

import bigcons
from bigcons import HBGF, MCLA, ConsensusClustering, ConsensusTree, Report, consensus_tree, plots
from bigcons.errors import InvalidInputError, UnlabeledObjectsWarning
from bigcons.metrics import cluster_overlap, reliability, trust, vat_order
from bigcons.store.consensus import Consensus
from bigcons.store.ensemble import Ensemble
from tests.support.refusals import refused
from tests.support.stores import write_consensus


def three_groups(n_objects=60, n_partitions=12, seed=0):
    """Labels of three planted groups, a fifth of them missing."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_objects)
    labels = np.repeat(truth[:, None], n_partitions, axis=1)
    labels[rng.random(labels.shape) < 0.2] = -1
    return truth, labels


def some_memberships(n_objects=50, n_clusters=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(n_clusters, 0.2), n_objects).astype(np.float32)


def heat_map(figure):
    (image,) = figure.axes[0].images
    return np.ma.filled(image.get_array(), np.nan)


def png_bytes(figure):
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()


@pytest.mark.parametrize("seed", range(3))
def test_vat_order__equals_the_plain_algorithm(seed):
    points = np.random.default_rng(seed).random((17, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    order = [int(distances.max(axis=1).argmax())]
    while len(order) < 17:
        waiting = [j for j in range(17) if j not in order]
        order.append(min(waiting, key=lambda j: (distances[order, j].min(), j)))
    np.testing.assert_array_equal(vat_order(distances), order)


def test_coassociation__shows_blocks_on_the_diagonal():
    truth, labels = three_groups()
    shown = heat_map(plots.coassociation(labels, labels=truth))
    sizes = np.flatnonzero(np.diff(shown[0] > 0.5))
    assert shown.shape == (60, 60)
    assert len(sizes) == 1  # the first row is joined to the first block and to nothing else
    np.testing.assert_array_equal(shown, shown.T)


def test_coassociation__puts_clusters_together_that_are_joined():
    labels = np.repeat([[0, 0, 0], [1, 1, 1], [2, 2, 0], [3, 3, 1]], 8, axis=0)
    result = np.repeat([0, 1, 2, 3], 8)
    result[5] = -1
    mixed = np.random.default_rng(0).permutation(32)
    figure = plots.coassociation(labels[mixed], labels=result[mixed])
    shown = heat_map(figure)
    np.testing.assert_array_equal(shown[:7, :7], 1)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["0", "2", "1", "3", "none"]  # the last object has no label
    figure = plots.coassociation(three_groups(200)[1], n_objects=40)
    assert heat_map(figure).shape == (40, 40)
    assert "40 of 200 objects" in figure.axes[0].get_xlabel()


def test_coassociation__of_a_sample_has_the_shares_of_its_labels_though_a_partition_has_none_there():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((900, 5)) < 0.5, rng.integers(0, 3, (900, 5)), -1)
    labels[:, 4] = -1
    labels[3:5, 4] = 1  # objects that are not sampled
    labels[:, 3] = 0
    labels[3, 3] = 1
    rows = plots.sample_rows(900, 40, 0)
    assert not {3, 4} & set(rows)
    ensemble = Ensemble.from_labels(labels)
    shown = heat_map(plots.coassociation(ensemble, np.arange(900), n_objects=40, random_state=0))
    pairs = [(labels[i], labels[j]) for i in rows for j in rows if i != j]
    shares = [((x == y) & (x >= 0)).sum() / ((x >= 0) & (y >= 0)).sum() for x, y in pairs]
    np.testing.assert_allclose(np.sort(shown[~np.eye(40, dtype=bool)]), np.sort(shares), rtol=1e-6)


def test_memberships__sorts_by_cluster_then_confidence_those_of_an_array_and_of_a_store(tmp_path):
    values = some_memberships()
    figure = plots.memberships(values)
    stored = write_consensus(tmp_path / "c.zarr", values.argmax(axis=1), values, chunk_rows=16)
    np.testing.assert_array_equal(
        *(heat_map(plots.memberships(source, n_objects=30)) for source in (stored, values))
    )
    shown = heat_map(figure).T
    winners, confidence = shown.argmax(axis=1), shown.max(axis=1)
    assert (np.diff(winners) >= 0).all()
    assert all((np.diff(confidence[winners == k]) <= 0).all() for k in range(4))
    order = [int(label.get_text().split(":")[0]) for label in figure.axes[0].get_yticklabels()]
    np.testing.assert_allclose(np.sort(shown, axis=0), np.sort(values[:, order], axis=0))


def test_memberships__puts_clusters_together_that_share_objects():
    values = np.zeros((90, 4))
    values[:40, 0], values[40:70, 1], values[70:84, 2], values[84:, 3] = 1, 1, 1, 1
    values[30:40, 0], values[30:40, 2] = 0.6, 0.4
    values[60:70, 1], values[60:70, 3] = 0.6, 0.4
    figure = plots.memberships(values)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "0: 40", "2: 14", "1: 30", "3: 6"
    ]  # fmt: skip
    of_largest = plots.memberships(values, n_clusters=2)
    assert heat_map(of_largest).shape == (2, 70)
    assert "2 largest of 4 clusters" in of_largest.axes[0].get_xlabel()


def test_convergence__draws_objective_and_gap():
    history = {"pass": [1, 2, 3], "objective": [3.0, 2.0, 1.5], "gap": [1.0, None, 0.1]}
    upper, lower = plots.convergence(history).axes
    np.testing.assert_allclose(upper.lines[0].get_ydata(), [1.0, 1 / 3, np.nan])  # from the best, 1.5
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), [1.0, np.nan, 0.1])
    assert upper.figure.get_suptitle() == "best objective: 1.5"
    assert upper.get_yscale() == lower.get_yscale() == "log"
    assert "pass" in lower.get_xlabel()


def arrows_of(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def circles_of(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Circle)]


def test_cluster_graph__draws_an_arrow_for_every_overlap():
    values = some_memberships(200, 5, seed=1)
    overlap = cluster_overlap(values, 0.1)
    figure = plots.cluster_graph(values, threshold=0.1, min_overlap=0.05)
    heavy = sorted(m for a, b in itertools.permutations(range(5), 2) if (m := overlap[a, b]) >= 0.05)
    widths = sorted(arrow.get_linewidth() for arrow in arrows_of(figure))
    assert 0 < len(widths) == len(heavy) < 20
    np.testing.assert_allclose(np.interp(heavy, [heavy[0], heavy[-1]], [widths[0], widths[-1]]), widths)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[5:] == [f"{overlap[a, b]:.2f}" for a, b in itertools.permutations(range(5), 2)
                         if overlap[a, b] >= 0.05]  # fmt: skip
    assert [text.partition("\n")[0] for text in texts[:5]] == list("01234")
    assert len(circles_of(figure)) == 5
    assert png_bytes(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("n_clusters", [2, 5, 8, 12])
def test_cluster_graph__arrows_pass_by_other_nodes_and_weights_hide_no_other(n_clusters):
    values = np.random.default_rng(n_clusters).dirichlet(np.full(n_clusters, 0.15), 300)
    figure = plots.cluster_graph(values, min_overlap=0.07)
    figure.draw_without_rendering()
    axes, circles, arrows = figure.axes[0], circles_of(figure), arrows_of(figure)
    assert arrows
    for a, b in itertools.combinations(circles, 2):
        assert np.hypot(*np.subtract(a.center, b.center)) > a.radius + b.radius + 0.2
    width, height = figure.get_size_inches()
    assert height <= width <= 12
    for arrow in arrows:
        inside = arrow.get_path().interpolated(20).vertices  # between the two circles
        for circle in circles:
            far = np.linalg.norm(inside - circle.center, axis=1)
            assert far.min() > circle.radius - 0.02
    boxes = [text.get_window_extent() for text in axes.texts[n_clusters:]]
    overprinted = sum(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    assert len(boxes) == len(arrows)
    assert overprinted == 0


@pytest.mark.parametrize(("n_clusters", "size"), [(5, None), (28, None), (12, (3, 2.5))])
def test_cluster_graph__words_lie_within_their_circles_and_weights_are_not_zero(n_clusters, size):
    values = np.random.default_rng(0).dirichlet(np.full(n_clusters, 0.02), 2000)
    ax = None if size is None else Figure(figsize=size).subplots()
    figure = plots.cluster_graph(values, min_overlap=0.001, n_clusters=40, ax=ax)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    words = [text for text in axes.texts if "\n" in text.get_text()]
    assert len(words) == n_clusters
    for text, circle in zip(words, circles_of(figure), strict=True):
        inner, outer = text.get_window_extent(), circle.get_window_extent()
        assert inner.height < outer.height
        assert inner.width < outer.width
    assert all(float(text.get_text()) > 0 for text in axes.texts if text not in words)


def test_cluster_graph__places_clusters_that_overlap_next_to_each_other():
    ring = [0, 3, 1, 5, 2, 4]
    values = np.zeros((600, 6))
    for number, pair in enumerate(itertools.pairwise([*ring, ring[0]])):
        values[100 * number : 100 * (number + 1), list(pair)] = 0.5
    centers = np.array([circle.center for circle in circles_of(plots.cluster_graph(values))])
    angles = np.argsort(-np.arctan2(centers[:, 1], centers[:, 0])).tolist()
    first = angles.index(0)
    assert [*angles[first:], *angles[:first]] == ring  # clockwise
    assert centers[0, 0] < 0 < centers[0, 1]


def test_cluster_graph__leaves_out_empty_and_small_clusters_and_draws_centroids():
    values = np.zeros((100, 5))
    values[:50, 0], values[50:80, 2], values[80:, 4] = 1, 1, 1
    for drawn in (values, np.eye(12), np.ones((3, 1))):  # 12 lonely circles say nothing
        with pytest.raises(InvalidInputError, match=r"no cluster has a share of min_overlap=0\.05 or mo"):
            plots.cluster_graph(drawn)
    shared = values.copy()
    shared[:20, 2] = shared[:20, 0] = 0.5
    shared[45:50, 4] = shared[45:50, 0] = 0.5
    figure = plots.cluster_graph(shared, n_clusters=2)
    assert [text.get_text().partition("\n")[0] for text in figure.axes[0].texts[:2]] == ["0", "2"]
    assert "2 largest of 3 clusters" in figure.axes[0].get_xlabel()
    assert len(circles_of(figure)) == 2
    centroids, seen = np.arange(20.0).reshape(5, 4), []
    insets = plots.cluster_graph(values, centroids=centroids).axes[0].child_axes
    np.testing.assert_array_equal([inset.lines[0].get_ydata() for inset in insets], centroids[::2])
    plots.cluster_graph(values, centroids=centroids, glyph=lambda axes, row: seen.append((axes, row)))
    np.testing.assert_array_equal([row for _, row in seen], centroids[::2])


def test_reliability__draws_the_bins_that_have_objects():
    rng = np.random.default_rng(0)
    truth, confidence = rng.integers(3, size=200), 0.5 + rng.random(200) / 2
    result = {name: reliability(truth, truth, confidence**power) for name, power in (("a", 1), ("b", 2))}
    drawings = (plots.reliability(result["a"]), [result["a"]]), (plots.reliability(result), result.values())
    for figure, curves in drawings:
        axes, below = figure.axes
        assert len(axes.containers) == len(below.patches) == len(curves)
        for drawn, steps, curve in zip(axes.containers, below.patches, curves, strict=True):
            line, _, (bars,) = drawn
            some = curve.n_objects > 0
            x, y = np.c_[curve.confidence, curve.accuracy][some].T
            np.testing.assert_array_equal(line.get_xydata(), np.c_[x, y])
            np.testing.assert_array_equal(steps.get_data().values, curve.n_objects)
            low, high = np.array([bar[:, 1] for bar in bars.get_segments()]).T
            for n, share, least, most in zip(curve.n_objects[some], y, low, high, strict=True):
                wilson = stats.binomtest(round(n * share), n).proportion_ci(0.95, "wilson")
                np.testing.assert_allclose([least, most], [wilson.low, wilson.high], atol=1e-4)
            assert f"{curve.error:.3f}" in drawn.get_label()
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert left < x.min() <= x.max() < right
        assert bottom < low.min()
        assert top > high.max() > 0.999  # markers are inside


def test_trust__draws_clusters_and_the_share_of_objects_below_each_confidence(tmp_path):
    truth, labels = three_groups()
    result = trust(labels, truth)
    stored = write_consensus(tmp_path / "c.zarr", truth, None, trust=result, chunk_rows=16)
    sizes = np.bincount(truth)
    for source in (result, stored):
        left, right = plots.trust(source).axes
        drawn = {line.get_label(): line.get_xdata() for line in left.lines}
        order = np.argsort(-sizes, kind="stable")
        for name, column in (("mean confidence", "confidence"), ("stability", "stability")):
            np.testing.assert_array_equal(drawn[name], result.clusters[column].to_numpy()[order])
        assert [label.get_text() for label in left.get_yticklabels()] == [f"{k}: {sizes[k]}" for k in order]
        (steps,) = right.lines
        edges, values = steps.get_data()
        below = [(result.confidence < edge).mean() for edge in edges[:-1]]
        np.testing.assert_allclose(values[:-1], below, atol=1e-9)
        assert steps.get_drawstyle() == "steps-post"  # each value holds from its edge on


@pytest.mark.parametrize("n_clusters", [3, 25])
def test_trust__no_marker_hides_another(n_clusters):
    truth = np.repeat(np.arange(n_clusters), 20)
    result = trust(np.repeat(truth[:, None], 6, axis=1), truth)  # all measures are 1
    figure = plots.trust(result)
    figure.draw_without_rendering()
    left = figure.axes[0]
    heights = np.concatenate([left.transData.transform(line.get_xydata())[:, 1] for line in left.lines])
    assert len(left.lines) > 2
    size = max(line.get_markersize() for line in left.lines) * figure.dpi / 72
    assert np.diff(np.sort(heights)).min() > size


def test_every_plot_takes_what_it_can_draw_and_says_what_to_pass_instead(tmp_path):
    truth, labels = three_groups()
    model = ConsensusTree("auto", random_state=0).fit(labels, out=tmp_path / "c.zarr")
    store, fixed = Consensus.open(tmp_path / "c.zarr"), MCLA(3, random_state=0).fit(labels)
    whole = ConsensusClustering("auto", generator=FunctionTransformer(), random_state=0).fit(labels)
    ensemble, soft = Ensemble.from_labels(labels), some_memberships()
    of_consensuses = (plots.memberships, plots.cluster_graph, plots.trust, plots.tree, plots.n_clusters,
                      plots.convergence, partial(plots.reliability, truth=truth),
                      partial(plots.scatter, np.zeros((len(truth), 2))))  # fmt: skip
    for result in (model, store, whole):
        assert Report(result, pictures=False).tree.choice.n_clusters == 3
        for draw in (plots.coassociation, plots.partitions, ConsensusTree(2).fit, lambda x: trust(x, labels)):
            with refused("keeps no partitions; pass the ensemble"):
                draw(result)
        for draw in of_consensuses:
            if draw in (plots.cluster_graph, plots.convergence):  # the clusters share nothing, after one pass
                with refused(r"there is no (graph|curve) to draw"):
                    draw(result)
            else:
                assert draw(result).axes
    for draw in (*of_consensuses, Report):
        with refused(r"Ensemble(, and no| cannot be drawn so; pass | has no (memberships_|labels).*; pass )"):
            draw(ensemble)
        with refused("MCLA is not fitted"):
            draw(MCLA(3))
    hard = HBGF(3, random_state=0).fit(labels)
    for draw, given, words in (
        (plots.tree, fixed, "MCLA cannot be drawn so; pass bigcons.consensus_tree"),
        (plots.n_clusters, fixed, "a consensus with n_clusters='auto'"),
        (plots.memberships, hard, "HBGF has no memberships_; it finds labels alone: use a"),
        (plots.cluster_graph, hard, "HBGF has no memberships_; it finds labels alone: use a"),
        (plots.reliability, truth, "ndarray cannot be drawn so; pass .*reliability"),
        (plots.reliability, model, "or a model and the truth"),
        (Report, KMeans(3).fit(some_memberships()), "KMeans, and no result of bigcons; pass a Consensus"),
        (plots.trust, fixed, "has no trust_; compute it by bigcons.metrics.trust"),
        (plots.trust, labels, r"ndarray cannot be drawn so; pass bigcons\.metrics\.trust"),
        (plots.convergence, {"pass": [1]}, "has 'pass' or 'step', and 'objective'"),
        (plots.memberships, np.ones(3), r"memberships has shape \(3,\)"),
        (partial(plots.memberships, n_objects=1), soft, "n_objects=1"),
        (partial(plots.cluster_graph, centroids=np.ones((2, 4))), soft, "centroids has length 2"),
        (partial(plots.cluster_graph, threshold=1.0), soft, "threshold=1.0 is above every membership"),
    ):
        with refused(words):
            draw(given)


@pytest.mark.parametrize("name", ["cost $a$ in $", "$^_$", "$\\bad{$", "a_b^c", "100 $"])
def test_partitions__are_named_as_they_are(name):
    labels = three_groups()[1]
    figure = plots.partitions(Ensemble.from_labels(labels[:, :3], names=["a", name, "c"]))
    png_bytes(figure)
    assert name in [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_plots__show_themselves_and_leave_global_state_alone():
    code = (
        "import numpy as np, pickle, sys\n"
        "from IPython.core.formatters import DisplayFormatter\n"
        "from bigcons import plots\n"
        "figure = pickle.loads(pickle.dumps(plots.memberships(np.eye(3))))\n"
        "figure.savefig(sys.argv[1], format='png')\n"
        "shown, _ = DisplayFormatter().format(figure)\n"  # as a kernel does
        "assert shown['image/png'].startswith(b'\\x89PNG')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, os.devnull], check=True)


@pytest.mark.parametrize("k_range", [None, (1, 40)])
def test_n_clusters__draws_the_evidence_and_marks_the_number_and_the_runner_up(k_range):
    choice = bigcons.choose_n_clusters(three_groups()[1], k_range=k_range, random_state=0)
    figure = plots.n_clusters(choice)
    n_shown = np.count_nonzero(choice.table["n_clusters"] <= 15)
    above, below = figure.axes
    curves = {line.get_label(): line for line in above.lines + below.lines}
    np.testing.assert_array_equal(curves["lifetime"].get_ydata(), choice.table["lifetime"][:n_shown])
    np.testing.assert_array_equal(
        curves["distinctness of the least distinct two"].get_ydata(), choice.table["distinctness"][:n_shown]
    )
    decides = curves["merit, which decides"].get_ydata()
    assert choice.table["n_clusters"][np.argmax(decides)] == choice.n_clusters
    assert below.get_xlabel() == "number of clusters" + " (compared: up to 40)" * (k_range is not None)
    low, high = below.get_ylim()
    assert low < decides.min() <= decides.max() < high
    marked = {line.get_xdata()[0] for line in above.lines if len(line.get_xdata()) == 2}
    assert marked == {choice.n_clusters, choice.runner_up}
    assert "3 clusters" in figure.get_suptitle()


def test_tree__has_a_line_as_wide_as_its_share_and_colored_by_support_for_each_side_of_a_split():
    truth, labels = three_groups(200)
    labels[:, :2] = np.minimum(labels[:, :2], 1)  # two of them are closer
    tree = consensus_tree(labels, random_state=0)
    figure = plots.tree(tree)
    axes = figure.axes[0]
    sizes = np.sort(np.bincount(truth))[::-1]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert sorted(names) == [f"{k}: {size / 200:.1%}" for k, size in enumerate(sizes)]
    across = [line for line in axes.lines if line.get_ydata()[0] == line.get_ydata()[-1]]
    next_split = tree.merges[-3, 2]
    ends = {line.get_ydata()[0]: line for line in across if line.get_xdata()[-1] == next_split}
    widths = sorted((line.get_linewidth() for line in ends.values()), reverse=True)
    np.testing.assert_allclose(widths, 14 * sizes / 200)
    assert [text.get_text() for text in axes.texts] == [f"{share:.2f}" for share in tree.support[:-3:-1]]
    down = [line for line in axes.lines if line.get_ydata()[0] != line.get_ydata()[-1]]
    np.testing.assert_allclose([line.get_xdata()[0] for line in down], tree.merges[:-3:-1, 2])
    assert axes.get_xlim()[0] > tree.merges[-1, 2] > axes.get_xlim()[1] == next_split
    assert axes.get_xlabel() == f"height of the split ({tree.tree})"


def test_tree__of_splits_at_one_height_has_one_split_into_lines_that_run_down():
    labels = np.repeat(np.arange(400)[:, None] % 8, 6, axis=1)  # all clusters equally far from each other
    axes = plots.tree(consensus_tree(labels, random_state=0), 3).axes[0]
    first, last = axes.get_xlim()
    assert first > last
    across = [line.get_xdata() for line in axes.lines if line.get_ydata()[0] == line.get_ydata()[-1]]
    assert sorted(x[0] > x[-1] == last for x in across) == [False, True, True, True]  # and what is above
    assert [text.get_text() for text in axes.texts] == ["1.00"]


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_plots__have_words_that_differ_from_what_is_below_them_on_any_background(style):
    from matplotlib import style as styles

    labels, numbers = three_groups()[1], np.arange(60) % 32
    with styles.context(style):
        drawn = [
            plots.scatter(np.random.default_rng(0).normal(size=(60, 2)), numbers),
            plots.tree(consensus_tree(labels, random_state=0)),
            plots.cluster_graph(some_memberships(200, 9), threshold=0.0),
            plots.cluster_graph(some_memberships(200, 9), threshold=0.0, centroids=np.eye(9)),
        ]
    for figure in drawn:
        axes = figure.axes[0]
        background = to_rgba(axes.get_facecolor())
        texts = [text for text in axes.texts if text.get_text()]
        assert texts
        for text in texts:
            box = text.get_bbox_patch()
            below = background if box is None else box.get_facecolor()
            assert abs(sum(to_rgba(text.get_color())) - sum(below)) > 1.5
        colors = [line.get_color() for inset in axes.child_axes for line in inset.lines]
        colors += [circle.get_edgecolor() for circle in circles_of(figure)]
        colors += [color for of_points in axes.collections for color in of_points.get_facecolors()]
        assert all(to_rgba(color)[:3] != background[:3] for color in colors)
        assert all(circle.get_facecolor() == background for circle in circles_of(figure))


def test_scatter__colors_every_object_by_its_cluster_and_pales_the_doubtful(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    labels = np.where(rng.random((200, 15)) < 0.4, rng.integers(3, size=(200, 15)), truth[:, None])
    labels[:7] = -1
    with pytest.warns(UnlabeledObjectsWarning):
        model = ConsensusTree(3, random_state=0).fit(labels, out=tmp_path / "c.zarr")
    points = rng.normal(size=(200, 2))
    (drawn,) = plots.scatter(points, model).axes[0].collections
    np.testing.assert_array_equal(drawn.get_offsets(), points)
    for k in (-1, 0, 1, 2):
        own = model.labels_ == k
        colors = np.tile(to_rgba(plots.color_of(k)), (own.sum(), 1))
        colors[:, 3] = 0.15 + 0.85 * model.trust_.confidence[own]
        np.testing.assert_allclose(drawn.get_facecolors()[own], colors, rtol=1e-6)
    (stored,) = plots.scatter(points, Consensus.open(tmp_path / "c.zarr")).axes[0].collections
    np.testing.assert_allclose(stored.get_facecolors(), drawn.get_facecolors(), rtol=1e-6)
    some = plots.scatter(points, np.array(list("abc"))[truth], n_objects=50).axes[0]
    assert len(some.collections[0].get_offsets()) == 50
    assert {text.get_text() for text in some.texts} == set("abc")
    for wrong, words in ((model, r"\(199, 2\); pass \(200, 2\)"), (None, r"consensus has shape \(\)")):
        with refused(words):
            plots.scatter(points[1:], wrong)


def test_scatter__numbers_every_one_of_24_clusters_and_the_numbers_hide_no_other():
    rng = np.random.default_rng(0)
    labels = rng.integers(24, size=6000)
    points = rng.normal(size=(24, 2))[labels] + rng.normal(size=(6000, 2)) * 0.4  # close to each other
    figure = plots.scatter(points, labels)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert sorted(int(text.get_text()) for text in axes.texts) == list(range(24))
    assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    for text in axes.texts:  # at an object of the cluster
        at = np.flatnonzero((points == text.get_position()).all(axis=1))
        assert int(text.get_text()) in labels[at]


def test_scatter__is_a_small_file_for_many_objects():
    rng = np.random.default_rng(0)
    labels = rng.integers(24, size=60_000)
    points = rng.normal(size=(24, 2))[labels] + rng.normal(size=(60_000, 2)) * 0.05
    figure = plots.scatter(points, labels, n_objects=60_000)
    assert len(plots.image_of(figure, "pdf")) < 300_000
    assert len(plots.image_of(figure, "svg")) < 600_000


def test_plots_of_one_panel__draw_into_the_axes_given():
    truth, labels = three_groups()
    whole = Figure(layout="constrained")
    draws = {
        "scatter": lambda ax: plots.scatter(np.random.default_rng(0).normal(size=(60, 2)), truth, ax=ax),
        "memberships": lambda ax: plots.memberships(some_memberships(), ax=ax),
        "coassociation": lambda ax: plots.coassociation(labels, truth, ax=ax),
        "partitions": lambda ax: plots.partitions(labels, ax=ax),
        "cluster_graph": lambda ax: plots.cluster_graph(some_memberships(), threshold=0.0, ax=ax),
        "tree": lambda ax: plots.tree(consensus_tree(labels, random_state=0), ax=ax),
    }
    for (name, draw), ax in zip(draws.items(), whole.subplots(2, 3).ravel(), strict=True):
        assert draw(ax) is whole
        alone = draw(None).axes[0]
        assert ax.get_xlabel() == alone.get_xlabel() != "", name
        assert len(ax.get_children()) == len(alone.get_children()) > 10, name
        with pytest.raises(InvalidInputError, match="ax is Figure; pass one Axes of matplotlib"):
            draw(whole)
    assert png_bytes(whole).startswith(b"\x89PNG")
    with_ax = {name for name in plots.__all__ if "ax" in signature(getattr(plots, name)).parameters}
    assert with_ax == set(draws)


@pytest.mark.parametrize(
    "history",
    [
        {"pass": [1], "objective": [3.0]},
        {"pass": [1, 2, 3], "objective": [3.0, 3.0, 3.0], "gap": [0.0, 0.0, 0.0]},
        {"step": [1], "objective": [0.0], "gap": [0.5]},
    ],
)
def test_convergence__of_a_single_point_is_refused_in_one_line(history):
    with refused(r"no curve to draw: .*, passes: [13]\)"):
        plots.convergence(history)


def test_coassociation__no_name_of_a_cluster_hides_another():
    truth = np.sort(np.random.default_rng(0).choice(30, p=np.arange(1, 31) / 465, size=500))
    figure = plots.coassociation(np.repeat(truth[:, None], 4, axis=1), truth)
    figure.draw_without_rendering()
    boxes = [name.get_window_extent() for name in figure.axes[0].get_yticklabels()]
    assert len(boxes) > 10
    assert not any(one.overlaps(two) for one, two in itertools.pairwise(boxes))
