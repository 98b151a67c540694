"""Clusters of Dask on this machine, whose workers start fast."""

import multiprocessing
import os
from contextlib import contextmanager

import dask
import distributed
from distributed.utils import get_mp_context

IMPORTED = (
    *("distributed.nanny", "distributed.worker", "pandas", "pyarrow.parquet", "scipy.sparse.linalg"),
    *("sklearn.cluster", "bigcons.methods", "bigcons.generate", "bigcons.federated"),
)


@contextmanager
def local_client(n_workers=1, threads_per_worker=1, **options):
    """Run a cluster and yield a client that is no default.

    Its workers are forks of a process that has imported what they need, each import of which takes them 2 s,
    and know where the buckets of this process are. (A script of the documentation starts its workers afresh.)
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        get_mp_context().set_forkserver_preload(list(IMPORTED))
    if options.get("processes", True):
        options["env"] = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=threads_per_worker, dashboard_address=":0", **options
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
