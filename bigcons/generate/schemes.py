"""What sets one k-means ensemble apart from another: the objects and the features each partition sees."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.generate.subsets import DealtSubset, Rows, Subset, subset_size
from bigcons.seeding import generator


class ObjectChoice(Protocol):
    """Which objects a partition sees."""

    remedy: ClassVar[str]
    """how to let it see more, as an error says it"""

    @property
    def share(self) -> float:
        """The share of the objects."""
        ...

    def least(self, n_objects: int) -> int:
        """The fewest objects a partition may see."""
        ...

    def most(self, n_objects: int) -> int:
        """The most objects a partition may see."""
        ...

    def subset(self, n_objects: int, segment_rows: int, seed: int, stream: str, u: int) -> Rows:
        """The objects of partition ``u``."""
        ...

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        ...


class FeatureChoice(Protocol):
    """Which features a partition sees, and with which weights."""

    def width(self, n_features: int) -> int:
        """How many of ``n_features`` features a partition sees; raises InvalidInputError if too many."""
        ...

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:
        """The view of partition ``u``."""
        ...

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        ...


class View(NamedTuple):
    """A choice of columns and their weights; None for all columns, and for weights that are all one."""

    columns: np.ndarray | None = None
    weights: np.ndarray | None = None

    def of(self, points: np.ndarray) -> np.ndarray:
        """Return ``points`` as the partition sees them; these may be changed."""
        if self.columns is not None:
            points = points[:, self.columns]
        if self.weights is not None:
            points *= self.weights
        return points


class Scheme(NamedTuple):
    """A k-means ensemble: its name, and what each partition sees."""

    name: str
    objects: ObjectChoice
    features: FeatureChoice

    @property
    def stream(self) -> str:
        """The name of its random draws."""
        return f"generate.{self.name}"

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        return self.objects.parameters() | self.features.parameters()


@dataclass(frozen=True)
class RandomShare:
    """A random share of the objects, for each partition anew."""

    sample: float
    remedy: ClassVar[str] = "raise sample"

    @property
    def share(self) -> float:
        """The share of the objects."""
        return self.sample

    def least(self, n_objects: int) -> int:
        """The number of objects each partition sees."""
        return subset_size(n_objects, self.sample)

    most = least

    def subset(self, n_objects: int, segment_rows: int, seed: int, stream: str, u: int) -> Subset:
        """The objects of partition ``u``."""
        return Subset(n_objects, self.sample, segment_rows, seed, f"{stream}.subset", u)

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        return asdict(self)


@dataclass(frozen=True)
class DealtShare:
    """All objects dealt out to ``n_partitions`` partitions, each object to about ``repetition`` of them."""

    n_partitions: int
    repetition: int
    remedy: ClassVar[str] = "raise repetition, make fewer partitions"

    @property
    def share(self) -> float:
        """The share of the objects."""
        return self.repetition / self.n_partitions

    def least(self, n_objects: int) -> int:
        """The fewest objects a partition may see."""
        return self.repetition * n_objects // self.n_partitions

    def most(self, n_objects: int) -> int:
        """The most objects a partition may see."""
        return -(-self.repetition * n_objects // self.n_partitions)

    def subset(self, n_objects: int, segment_rows: int, seed: int, stream: str, u: int) -> DealtSubset:
        """The objects of partition ``u``."""
        return DealtSubset(
            n_objects, self.n_partitions, self.repetition, segment_rows, seed, f"{stream}.subset", u
        )

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        return asdict(self)


@dataclass(frozen=True)
class AllFeatures:
    """Every feature as it is."""

    def width(self, n_features: int) -> int:
        """All of them."""
        return n_features

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:  # noqa: ARG002 - nothing is drawn
        """The same view for every partition."""
        return View()

    def parameters(self) -> dict[str, Any]:
        """Nothing to remember."""
        return {}


@dataclass(frozen=True)
class RandomFeatures:
    """``n_features`` of the features, drawn without replacement, for each partition anew."""

    n_features: int

    def width(self, n_features: int) -> int:
        """The number of features drawn."""
        if self.n_features > n_features:
            raise InvalidInputError(
                f"n_features={self.n_features} but only {n_features} features vary; ask for fewer."
            )
        return self.n_features

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:
        """The columns of partition ``u``, ascending."""
        rng = generator(seed, f"{stream}.columns", u)
        return View(columns=np.sort(rng.choice(n_features, size=self.n_features, replace=False)))

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        return asdict(self)


@dataclass(frozen=True)
class ZipfWeights:
    """A random whole weight from 1 to ``largest_weight`` for each feature, for each partition anew.

    A weight is ``v`` with probability proportional to ``v ** -alpha``, where ``alpha`` is uniform in
    ``alpha_range`` for each partition.
    """

    alpha_range: tuple[float, float]
    largest_weight: int

    def width(self, n_features: int) -> int:
        """All of them."""
        return n_features

    def view(self, n_features: int, seed: int, stream: str, u: int) -> View:
        """The weights of partition ``u``."""
        rng = generator(seed, f"{stream}.weights", u)
        return View(weights=self.draw(rng.uniform(*self.alpha_range), n_features, rng).astype(np.float32))

    def draw(self, alpha: float, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``n`` weights under ``alpha``, whole numbers."""
        values = np.arange(1, self.largest_weight + 1)
        odds = values**-alpha
        return rng.choice(values, size=n, p=odds / odds.sum())

    def parameters(self) -> dict[str, Any]:
        """What to remember of it."""
        return asdict(self)
