"""Consensus among sites that keep their labels: Bayesian cluster ensembles distributed by rows or by columns.

Wang, Shan and Banerjee (2009) distribute their model in two ways. *By rows*: the sites hold different
objects, labeled by the same partitions. *By columns*: they hold different partitions of the same objects. In
both, sites do not communicate with each other but answer a coordinator: the caller of `fit_rows`,
`fit_rows_in_turn` or `fit_columns`.

A site is an object with one method, ``answer(message)``. Messages and answers are dicts of text, numbers,
arrays, and lists and dicts of these, so that any transport can carry them: `RowSite` and `ColumnSite` answer
in this process, and your own class may send the message elsewhere, such as to an actor on a Dask worker.
Whatever is not in an answer stays at the site:

By rows, `fit_rows`, with M partitions of B base clusters in all, and K clusters:

* A site first sends the distinct labels of each partition, unless the sites were given ``values``.
* For each start it sends how many of its objects have each combination of labels in one or a few partitions
  and, for the K most frequent combinations, how many of these objects are in each base cluster.
* In every iteration it sends expected label counts (B, K), summed expectations of log theta (K,), the number
  of objects with a label, and its part of the bound.
* It receives the parameters (B, K) and (K,), which follow from the sums over all sites.
* Labels, gamma and memberships stay. No message has an entry for an object or grows with their number.

With `fit_rows_in_turn` a site sends the parameters estimated from its own objects and its part of the bound,
but no sums. Sums are exact, without noise: a sum over a single object reveals it, and each of two sites can
subtract its own part from the total. Sites trust the coordinator to ask only what it needs: one that sends
parameters of its own choice can single out objects by the sums.

By columns, `fit_columns`, with n objects and M_own partitions at a site:

* A site sends once the number of its objects and partitions. If it proposes a start, it sends one of its
  partitions, or an intersection of some, as K clusters (n,), which all sites then see.
* In every iteration it sends ``log beta`` of the label of every object in each partition (n, M_own, K).
* It receives how much each of these labels belongs to each cluster (n, M_own, K).
* The names of labels and beta stay. The coordinator keeps gamma and alpha.

By columns the coordinator learns every partition, up to the names of its clusters: all objects of a base
cluster send the same vector. The paper's exchange does not hide them, nor does this one.
"""

from bigcons.federated.coordinator import ColumnFit, RowFit, fit_columns, fit_rows, fit_rows_in_turn
from bigcons.federated.sites import ColumnSite, Message, RowSite, Site

__all__ = [
    "ColumnFit",
    "ColumnSite",
    "Message",
    "RowFit",
    "RowSite",
    "Site",
    "fit_columns",
    "fit_rows",
    "fit_rows_in_turn",
]


def __dir__() -> list[str]:
    return sorted(__all__)
