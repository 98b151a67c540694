"""Networks with planted communities, and many runs of a community detection on each.

The generator follows Lancichinetti, Fortunato and Radicchi, *Benchmark graphs for testing community detection
algorithms*, 2008 (LFR): degrees and sizes of communities by power laws with exponents 2 and 1, and a share of
the links of each node, the mixing, leaves its community. Stubs are paired at random; those that would make a
loop or a link twice are paired again. The detection is that of Louvain (Blondel et al., *Fast unfolding of
communities in large networks*, 2008): nodes move to the neighboring community of largest gain in modularity,
communities become nodes, and again. Its runs differ by the order of nodes and by the resolution, drawn from
1/2 to 2 on a logarithmic scale. Degrees, sizes and resolutions are such that single runs find most of the
communities, and each joins others of them.

Run as a script, this prints what the networks and single runs of the detection are like.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numba
import numpy as np
from scipy import sparse

from bigcons.metrics import adjusted_rand
from bigcons.seeding import generator

DEGREES, SIZES = (5, 30), (10, 50)
N_RUNS = 20


def power_law(low: int, high: int, exponent: int, size: int, draw: np.random.Generator) -> np.ndarray:
    """Return integers from ``low`` to ``high`` drawn with probabilities that fall as a power."""
    values = np.arange(low, high + 1)
    p = values ** -float(exponent)
    return draw.choice(values, size, p=p / p.sum())


def communities(n_nodes: int, inner: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the community of each node: larger than its number of links inside, ``inner`` (n_nodes,)."""
    sizes = power_law(*SIZES, 1, n_nodes // SIZES[0] + 1, draw)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n_nodes)) + 1]
    sizes[-1] -= sizes.sum() - n_nodes
    if sizes[-1] < SIZES[0] and sizes.size > 1:  # the rest of the nodes, one each to the others
        n_rest, sizes = sizes[-1], sizes[:-1]
        sizes += np.bincount(np.arange(n_rest) % sizes.size, minlength=sizes.size)
    free = sizes.copy()
    labels = np.empty(n_nodes, int)
    for node in np.argsort(-inner, kind="stable"):  # the most demanding first
        p = np.where(sizes > inner[node], free, 0)
        p = p if p.any() else free
        labels[node] = draw.choice(sizes.size, p=p / p.sum())
        free[labels[node]] -= 1
    return labels


def paired(stubs: np.ndarray, community: np.ndarray, inside: bool, draw: np.random.Generator) -> np.ndarray:
    """Return links (l, 2) that pair the nodes of ``stubs`` at random, inside communities or across them.

    Loops, repeated links and links of the wrong kind are paired again, 50 times; the rest is dropped.
    """
    n_nodes, codes = community.size, np.empty(0, int)
    for _ in range(50):
        order = np.lexsort((draw.random(stubs.size), community[stubs] * inside))
        stubs = stubs[order][: stubs.size // 2 * 2]
        a, b = np.sort(stubs.reshape(-1, 2), axis=1).T
        code = a * n_nodes + b
        first = np.zeros(code.size, bool)
        first[np.unique(code, return_index=True)[1]] = True
        is_link = first & (a != b) & ((community[a] == community[b]) == inside) & ~np.isin(code, codes)
        codes = np.concatenate([codes, code[is_link]])
        stubs = stubs[~np.repeat(is_link, 2)]
    return np.column_stack(np.divmod(codes, n_nodes))


def network(n_nodes: int, mixing: float, seed: int) -> tuple[Any, np.ndarray]:
    """Return the adjacency matrix (CSR, n_nodes x n_nodes) and the communities (n_nodes,) of a network."""
    draw = generator(seed, "accuracy.network", n_nodes, round(1000 * mixing))
    degrees = power_law(*DEGREES, 2, n_nodes, draw)
    inner = ((1 - mixing) * degrees + draw.random(n_nodes)).astype(int)
    community = communities(n_nodes, inner, draw)
    nodes = np.arange(n_nodes)
    links = np.concatenate(
        [
            paired(np.repeat(nodes, inner), community, True, draw),
            paired(np.repeat(nodes, degrees - inner), community, False, draw),
        ]
    )
    half = sparse.coo_matrix((np.ones(len(links)), links.T), shape=(n_nodes, n_nodes))
    return (half + half.T).tocsr(), community


# ------------------------------------------------------------------------------------------ detection


@numba.njit(cache=True)
def moved(indptr, indices, links, degrees, resolution, order):
    """Return the communities (n,) after nodes moved, one by one in ``order``, until none gains."""
    n = degrees.size
    labels, totals, shared = np.arange(n), degrees.copy(), np.zeros(n)
    scale = resolution / degrees.sum()
    has_moved = True
    while has_moved:
        has_moved = False
        for node in order:
            current = labels[node]
            totals[current] -= degrees[node]
            for at in range(indptr[node], indptr[node + 1]):
                if indices[at] != node:
                    shared[labels[indices[at]]] += links[at]
            best, most = current, shared[current] - scale * degrees[node] * totals[current]
            for at in range(indptr[node], indptr[node + 1]):
                other = labels[indices[at]]
                gain = shared[other] - scale * degrees[node] * totals[other]
                if gain > most + 1e-9:
                    best, most = other, gain
            for at in range(indptr[node], indptr[node + 1]):
                shared[labels[indices[at]]] = 0.0
            labels[node] = best
            totals[best] += degrees[node]
            has_moved |= best != current
    return labels


def louvain(graph: Any, resolution: float, draw: np.random.Generator) -> np.ndarray:
    """Return communities (n,) of a graph (CSR, symmetric) by Louvain's method."""
    labels = np.arange(graph.shape[0])
    while True:
        degrees = np.asarray(graph.sum(axis=1)).ravel()
        order = draw.permutation(degrees.size)
        groups = moved(graph.indptr, graph.indices, graph.data, degrees, resolution, order)
        groups = np.unique(groups, return_inverse=True)[1]
        labels = groups[labels]
        joins = sparse.csr_matrix((np.ones(groups.size), (np.arange(groups.size), groups)))
        if joins.shape[1] == groups.size:
            return labels
        graph = (joins.T @ graph @ joins).tocsr()


def detections(graph: Any, seed: int) -> np.ndarray:
    """Return the labels (n, N_RUNS) of runs at different resolutions."""
    draw = generator(seed, "accuracy.louvain")
    return np.column_stack([louvain(graph, 2.0 ** draw.uniform(-1, 1), draw) for _ in range(N_RUNS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="one network of 1,000 nodes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2000, 10_000])
    arguments = parser.parse_args()
    for n_nodes in [1000] if arguments.smallest else arguments.nodes:
        for mixing in (0.1,) if arguments.smallest else (0.1, 0.3, 0.5):
            graph, community = network(n_nodes, mixing, 0)
            links = graph.tocoo()
            across = float((community[links.row] != community[links.col]).mean())
            sizes, began = np.bincount(community), time.perf_counter()
            labels = detections(graph, 0)
            seconds = time.perf_counter() - began
            ari = [float(adjusted_rand(community, labels[:, u])) for u in range(N_RUNS)]
            print(
                f"{n_nodes} nodes, mixing {mixing}: {graph.nnz // 2} links, {across:.3f} across, "
                f"{sizes.size} communities of {sizes.min()} to {sizes.max()}; "
                f"{N_RUNS} runs in {seconds:.1f} s: {labels.max(axis=0).min() + 1} to {labels.max() + 1}, "
                f"ARI {min(ari):.3f} to {max(ari):.3f}, mean {np.mean(ari):.3f}"
            )


if __name__ == "__main__":
    main()
