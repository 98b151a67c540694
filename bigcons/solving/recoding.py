"""Labels of new objects in the codes of a fitted ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError
from bigcons.stores.ensemble import Ensemble, as_ensemble


class Recoding:
    """Turns the codes of one ensemble into those of another: the same original labels, the same codes.

    Labels that the fitted ensemble never saw become missing.
    """

    def __init__(self, fitted: Ensemble) -> None:
        self.values = original_values(fitted)
        self.names = list(fitted.names)
        self.offsets = fitted.offsets

    def ensemble(self, x: Any) -> Ensemble:
        """Return new labels as an ensemble; a partition that saw none of these objects may be all missing."""
        return as_ensemble(x, self.values)

    def tables(self, new: Ensemble) -> list[np.ndarray]:
        """Return for each partition the fitted code of each code of ``new``, -1 where there is none."""
        if new.n_partitions != len(self.values):
            raise InvalidInputError(
                f"the new labels have n_partitions={new.n_partitions} but {len(self.values)} were fitted; "
                "give the same partitions in the same order."
            )
        if new.names != self.names and sorted(new.names) == sorted(self.names):
            u = next(u for u, name in enumerate(self.names) if new.names[u] != name)
            raise InvalidInputError(
                f"the new labels have partition {new.names[u]!r} where {self.names[u]!r} was fitted; "
                "give the same partitions in the same order."
            )
        return [
            _codes_in(known, values) for known, values in zip(self.values, original_values(new), strict=True)
        ]


def recode(labels: np.ndarray, tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return a block of labels (rows, M) in the fitted codes, int32."""
    recoded = np.empty(labels.shape, np.int32)
    for u, table in enumerate(tables):
        recoded[:, u] = table[labels[:, u]]  # code -1 takes the last entry of the table, which is -1
    return recoded


def original_values(ensemble: Ensemble) -> list[np.ndarray]:
    """Return the original label of every dense label of every partition."""
    pairs = zip(ensemble.categories, ensemble.n_clusters, strict=True)
    return [np.arange(k) if values is None else np.asarray(values) for values, k in pairs]


def _codes_in(known: np.ndarray, values: Any) -> np.ndarray:
    code = {value: number for number, value in enumerate(known.tolist())}
    return np.array([*(code.get(value, -1) for value in values.tolist()), -1], np.int32)
