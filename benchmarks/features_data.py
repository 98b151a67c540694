"""Labeled features for the comparison from features to labels: real sets, shapes and customers.

Real sets come with scikit-learn or from the folder that BIGCONS_DATA names. At most 2,000 objects are taken,
at random, and always in random order; features are raw, and `Labeled.same_unit` says whether all columns are
in one unit, as pixels and word weights are. Nominal columns become a column of 0 and 1 for each value, and
a missing value is 0 in all of them; missing numbers are the mean of their column. Word counts (`BASEHOCK`,
`PCMAC`, `classic3`, `k1b`) are the 50 leading directions, by a truncated SVD, of TF-IDF with rows of length
1. Columns that do not vary are left out. `digits` is the test part of `optdigits`, of which the training part
is taken here. `CHOOSING` and `REPORTING` take turns in the order of names.

Shapes are classes in two dimensions that hardly touch: spectral clustering of the nearest neighbors tells all
of them apart. They are for reporting. `customers` is a table of mixed columns with planted segments.

Run as a script, this lists the sets with their objects, columns and classes.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from real_data import bundled, table

from bigcons.datasets import KDD_FILE
from bigcons.seeding import generator

if TYPE_CHECKING:
    import pandas as pd

MOST, LEAST_IN_CLASS = 2000, 10


class Labeled(NamedTuple):
    """Features (n_objects, n_features), classes (n_objects,), and whether all columns are in one unit."""

    features: np.ndarray
    classes: np.ndarray
    same_unit: bool = False


Raw = tuple[np.ndarray, np.ndarray]

# --------------------------------------------------------------------------------------------- real sets


def numbers_of(columns: pd.DataFrame) -> np.ndarray:
    """Return the columns of a table as numbers: nominal ones as 0 and 1, missing numbers as the mean."""
    import pandas as pd

    numbers = pd.get_dummies(columns.replace({"?": None}), dtype=float)
    return numbers.fillna(numbers.mean()).to_numpy(float)


def kddcup99(most: int) -> Raw:
    """Return a sample of KDD Cup 1999, without the classes that have fewer than ten objects in it."""
    import pandas as pd

    whole = pd.read_csv(Path(os.environ["BIGCONS_DATA"]) / KDD_FILE, header=None)
    drawn = whole.iloc[generator(0, "features.kddcup99").choice(len(whole), most, replace=False)]
    sizes = drawn.groupby(drawn.columns[-1])[0].transform("size")
    drawn = drawn[sizes >= LEAST_IN_CLASS]
    return numbers_of(drawn.iloc[:, :-1]), drawn.iloc[:, -1].to_numpy()


def arff_table(name: str) -> pd.DataFrame:
    """Return a set of mixed columns, of which the last is the class, with None for what is missing."""
    import pandas as pd
    from scipy.io.arff import loadarff

    with gzip.open(Path(os.environ["BIGCONS_DATA"]) / "features" / f"{name}.arff.gz", "rt") as file:
        rows, _ = loadarff(StringIO(file.read()))
    table = pd.DataFrame(rows).map(lambda value: value.decode() if isinstance(value, bytes) else value)
    return table.replace({"?": None})


def arff(name: str, _most: int) -> Raw:
    """Return the features of a set of mixed columns as numbers, and its classes."""
    table = arff_table(name)
    return numbers_of(table.iloc[:, :-1]), table.iloc[:, -1].to_numpy()


def matrix(path: str, features: str, classes: str) -> tuple[Any, np.ndarray]:
    """Return the features, sparse or not, and classes of a MATLAB file."""
    from scipy.io import loadmat

    arrays = loadmat(Path(os.environ["BIGCONS_DATA"]) / path)
    x, truth = arrays[features], arrays[classes].ravel()
    return (x if x.shape[0] == truth.size else x.T), truth


def dense(name: str, _most: int) -> Raw:
    features, classes = matrix(f"features/{name}.mat", "X", "Y")
    return np.asarray(features, float), classes


def words(path: str, features: str, classes: str, _most: int) -> Raw:
    """Return documents as 50 leading directions of TF-IDF with rows of length 1."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    counts, truth = matrix(path, features, classes)
    weights = TfidfTransformer().fit_transform(csr_matrix(counts, dtype=float))
    return TruncatedSVD(50, random_state=0).fit_transform(weights), truth


def mnist(_most: int) -> Raw:
    """Return the test images of MNIST, 784 pixels each."""
    folder = Path(os.environ["BIGCONS_DATA"]) / "features"
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        return pixels.astype(float), np.frombuffer(file.read(), np.uint8, offset=8)


def from_table(path: str, _most: int, **options: Any) -> Raw:
    return table(path, **options)


def from_sklearn(name: str, _most: int) -> Raw:
    return bundled(name)


SOURCES: dict[str, Callable[[int], Raw]] = {
    "BASEHOCK": partial(words, "features/BASEHOCK.mat", "X", "Y"),
    "PCMAC": partial(words, "features/PCMAC.mat", "X", "Y"),
    "Yale": partial(dense, "Yale"),
    "anneal": partial(arff, "anneal"),
    "autos": partial(arff, "autos"),
    "balance-scale": partial(from_table, "balance-scale/balance-scale.data.gz", label=0),
    "breast.w": partial(arff, "breast.w"),
    "classic3": partial(words, "text_classic3/classic3.mat", "A", "labels"),
    "colon": partial(dense, "colon"),
    "covertype": partial(from_table, "covertype_sample/covertype_ramp_test.csv.gz", skip=1),
    "credit.a": partial(arff, "credit.a"),
    "digits": partial(from_sklearn, "digits"),
    "glass": partial(from_table, "glass/glass.data.gz", named=True),
    "heart.c": partial(arff, "heart.c"),
    "house-votes": partial(from_table, "house-votes-84/house-votes-84.data.gz", label=0),
    "ionosphere": partial(from_table, "ionosphere/ionosphere.data.gz"),
    "iris": partial(from_sklearn, "iris"),
    "isolet": partial(from_table, "isolet/isolet.csv.gz"),
    "k1b": partial(words, "text_k1b/k1b.mat", "dtm", "classid"),
    "kddcup99": kddcup99,
    "letter": partial(from_table, "features/letter.data.gz", label=0),
    "lymph": partial(arff, "lymph"),
    "magic04": partial(from_table, "magic04/magic04.data.gz"),
    "mnist": mnist,
    "optdigits": partial(from_table, "optdigits/optdigits.tra.gz"),
    "pendigits": partial(from_table, "pendigits/pendigits.tra.gz"),
    "pima": partial(from_table, "pima/pima-indians-diabetes.data.gz"),
    "pixraw10P": partial(dense, "pixraw10P"),
    "segmentation": partial(from_table, "segmentation/segmentation.test.gz", label=0, skip=5),
    "sonar": partial(arff, "sonar"),
    "warpAR10P": partial(dense, "warpAR10P"),
    "wdbc": partial(from_sklearn, "breast_cancer"),
    "wine": partial(from_sklearn, "wine"),
    "yeast": partial(from_table, "yeast/yeast.data.gz", named=True),
}

SAME_UNIT = {
    *("BASEHOCK", "PCMAC", "classic3", "k1b"),
    *("Yale", "digits", "mnist", "optdigits", "pixraw10P", "warpAR10P"),
    *("colon", "house-votes", "ionosphere", "iris", "isolet", "pendigits", "sonar"),
}

BUNDLED = ("digits", "iris", "wdbc", "wine")
"""The real sets that need no folder."""


def read(name: str, most: int = MOST) -> Labeled:
    """Return at most ``most`` objects of a real set, in random order."""
    features, classes = SOURCES[name](most)
    rows = generator(0, f"features.rows.{name}").permutation(len(classes))[:most]
    features = np.asarray(features, float)[rows]
    varying = np.ptp(features, axis=0) > 0
    classes = np.unique(np.asarray(classes)[rows], return_inverse=True)[1]
    return Labeled(features[:, varying], classes.astype(np.int64), name in SAME_UNIT)


REAL: dict[str, Callable[..., Labeled]] = {name: partial(read, name) for name in SOURCES}

CHOOSING = sorted(REAL, key=str.lower)[::2]
REPORTING = sorted(REAL, key=str.lower)[1::2]

# ------------------------------------------------------------------------------------------------ shapes

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Draws so many points of a part of a shape."""


def arc(x: float, y: float, radius: float, noise: float, start: float = 0, stop: float = 1) -> Draw:
    """Return a part on a circle around (x, y) from ``start`` to ``stop``, in turns."""

    def draw(random: np.random.Generator, n: int) -> np.ndarray:
        angle = 2 * np.pi * random.uniform(start, stop, n)
        points = radius * np.column_stack([np.cos(angle), np.sin(angle)])
        return points + random.normal((x, y), noise, (n, 2))

    return draw


def blob(x: float, y: float, spread: float) -> Draw:
    return lambda random, n: random.normal((x, y), spread, (n, 2))


def bar(x: float, y: float, width: float, height: float, noise: float) -> Draw:
    """Return a part that fills a rectangle around (x, y)."""

    def draw(random: np.random.Generator, n: int) -> np.ndarray:
        points = random.uniform(-0.5, 0.5, (n, 2)) * [width, height]
        return points + random.normal((x, y), noise, (n, 2))

    return draw


def petal(turn: float, near: float, far: float, width: float, noise: float) -> Draw:
    """Return a part that fills an ellipse which points away from the origin."""

    def draw(random: np.random.Generator, n: int) -> np.ndarray:
        angle, radius = random.uniform(0, 2 * np.pi, n), np.sqrt(random.uniform(0, 1, n))
        along = (near + far) / 2 + (far - near) / 2 * radius * np.cos(angle)
        across = width / 2 * radius * np.sin(angle)
        cos, sin = np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)
        points = np.column_stack([cos * along - sin * across, sin * along + cos * across])
        return points + random.normal(0, noise, (n, 2))

    return draw


def spiral(turn: float, noise: float) -> Draw:
    """Return a part on a spiral, as dense at its end as at its start."""

    def draw(random: np.random.Generator, n: int) -> np.ndarray:
        radius = np.sqrt(random.uniform(0.1, 1, n))
        angle = 2 * np.pi * (1.5 * radius + turn)
        points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        return points + random.normal(0, noise, (n, 2))

    return draw


BLOBS = ((0, 0), (3, 1), (6, -1), (1, 4), (5, 4), (9, 2), (-3, 3), (-2, -3), (3, -4), (8, -4))
CORNERS = ((0, 0), (5, 0), (2.5, 4.5))

PARTS: dict[str, list[tuple[float, Draw]]] = {
    "bananas": [(1, arc(0, 0, 2, 0.15, 0.05, 0.45)), (1, arc(1.6, 1.2, 2, 0.15, 0.55, 0.95))],
    "blobs": [(0.8**i, blob(x, y, 0.35)) for i, (x, y) in enumerate(BLOBS)],
    "circles": [(radius, arc(0, 0, radius, 0.08)) for radius in (1, 2, 3)],
    "circles-and-blobs": [(3, arc(x, y, 1.8, 0.08)) for x, y in CORNERS]
    + [(1, blob(x, y, 0.2)) for x, y in CORNERS],
    "face": [
        (6, arc(0, 0, 3, 0.08)),
        (1, blob(-1, 1, 0.18)),
        (1, blob(1, 1, 0.18)),
        (2, arc(0, 0, 1.7, 0.08, 0.58, 0.92)),
    ],
    "flower": [(1, blob(0, 0, 0.15))] + [(1, petal(i / 8, 1, 5, 0.9, 0.04)) for i in range(8)],
    "grid": [(1, blob(i % 7, i // 7, 0.2)) for i in range(49)],
    "half-ring": [(4, arc(0, 0, 3, 0.15, 0, 0.5)), (2, blob(0, 0.8, 0.3)), (3, bar(0, -2.2, 6, 0.4, 0.05))],
    "moons": [(1, arc(0, 0, 1, 0.06, 0, 0.5)), (1, arc(1, 0.4, 1, 0.06, 0.5, 1))],
    "spirals": [(1, spiral(0, 0.028)), (1, spiral(0.5, 0.028))],
    "unequal-spread": [
        (1, blob(x, y, spread)) for x, y, spread in ((0, 0, 1.2), (7, 1, 0.3), (7, 3.5, 0.1), (2, -7, 0.4))
    ],
}
"""By shape, the share and the part of each class."""


def shape(name: str, n: int = 10_000, seed: int = 0) -> Labeled:
    """Return ``n`` points of a shape in two dimensions, in random order."""
    random = generator(seed, f"features.shape.{name}")
    shares = np.array([share for share, _ in PARTS[name]], float)
    classes = np.sort(random.choice(shares.size, n, p=shares / shares.sum()))
    sizes = np.bincount(classes, minlength=shares.size)
    points = [draw(random, size) for size, (_, draw) in zip(sizes, PARTS[name], strict=True)]
    order = random.permutation(n)
    return Labeled(np.concatenate(points)[order], classes[order], same_unit=True)


SHAPES: dict[str, Callable[..., Labeled]] = {name: partial(shape, name) for name in PARTS}

# --------------------------------------------------------------------------------------------- customers

SEGMENTS = (0.30, 0.25, 0.18, 0.13, 0.10, 0.04)
MEASURES = ("age", "visits", "basket", "tenure", "returns", "clicks", "distance", "orders", "calls", "rating")
SENTINEL = -999.0


def customers(n: int = 10_000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of 20 mixed columns, and the planted segments of its rows.

    Ten numbers are normal around the means of the segments, of which the smallest lies beyond the others;
    `income` has an exponential tail of which the scale depends a bit on the segment, and `region`, `channel`
    and `plan` have probabilities that do. The others tell nothing of it: the exponential `spend_once`, the
    coin `newsletter`, the constant `country`, `score`, which is -999 in 2 % of the rows, and `noise_1` and
    `noise_2`. The segments are the same for every seed.
    """
    import pandas as pd

    of_segments, draw = generator(3, "features.segments"), generator(seed, "features.customers", n)
    segments = draw.choice(len(SEGMENTS), n, p=SEGMENTS)
    table: dict[str, np.ndarray] = {}
    for name in MEASURES:
        means = np.append(of_segments.permutation(len(SEGMENTS) - 1), of_segments.choice((-1, 5)))
        table[name] = 50 + 10 * means[segments] + draw.normal(0, 4, n)
    table["income"] = draw.exponential(20_000 + 2_000 * segments)
    table["spend_once"] = draw.exponential(100, n)
    for name, values in (("region", "nesw"), ("channel", "abc"), ("plan", "xyz")):
        shares = of_segments.dirichlet(np.ones(len(values)), len(SEGMENTS)).cumsum(axis=1)
        picked = (draw.random(n)[:, None] > shares[segments, :-1]).sum(axis=1)
        table[name] = np.array(list(values))[picked]
    table["newsletter"] = draw.random(n) < 0.5
    table["country"] = np.full(n, "one")
    table["score"] = np.where(draw.random(n) < 0.02, SENTINEL, draw.normal(300, 400, n))
    table["noise_1"], table["noise_2"] = draw.normal(size=(2, n))
    return pd.DataFrame(table), segments


# ------------------------------------------------------------------------------------------------ script


def at_hand() -> list[str]:
    """Return the real sets that can be read, in the order of names."""
    return sorted(REAL if os.environ.get("BIGCONS_DATA") else BUNDLED, key=str.lower)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="shapes of 100 points and one real set")
    arguments = parser.parse_args()
    real = ["iris"] if arguments.smallest else at_hand()
    shapes = {name: partial(make, 100 if arguments.smallest else 10_000) for name, make in SHAPES.items()}
    for name, make in {**{name: REAL[name] for name in real}, **shapes}.items():
        data = make()
        n, d = data.features.shape
        unit = "same unit" if data.same_unit else ""
        print(f"{name:<20}{n:>7}{d:>7}{data.classes.max() + 1:>5}  {unit}", flush=True)


if __name__ == "__main__":
    main()
