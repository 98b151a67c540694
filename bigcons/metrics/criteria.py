"""The criteria that are functions of a contingency table, by name: the one list of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigcons.metrics.agreement import (
    adjusted_rand_of_table,
    greedy_accuracy_of_table,
    matching_accuracy_of_table,
    purity_of_table,
    rand_index_of_table,
    van_dongen_of_table,
)
from bigcons.metrics.information import nmi_of_table, variation_of_information_of_table

Criterion = Callable[[np.ndarray], Any]
"""Of one table ``(ka, kb)``, a number."""

OF_TWO_CLUSTERINGS: dict[str, Criterion] = {
    "adjusted_rand": adjusted_rand_of_table,
    "matching_accuracy": matching_accuracy_of_table,
    "nmi": nmi_of_table,
    "rand_index": rand_index_of_table,
    "van_dongen": van_dongen_of_table,
    "variation_of_information": variation_of_information_of_table,
}
"""Symmetric: neither clustering is the true one. They take stacks of tables ``(..., ka, kb)``, too."""

OF_TRUTH: dict[str, Criterion] = {
    **OF_TWO_CLUSTERINGS,
    "consistency_index": matching_accuracy_of_table,
    "micro_precision": greedy_accuracy_of_table,
    "purity": purity_of_table,
}
"""Of a table whose rows are the true classes."""
