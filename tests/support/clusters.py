"""Clusters of Dask on this machine, whose workers start fast."""

import os
from contextlib import contextmanager

import distributed

from tests.support.forks import forking


@contextmanager
def local_client(n_workers=1, threads_per_worker=1, **options):
    """Run a cluster and yield a client that is no default.

    Its workers are forks, and know where the buckets of this process are. (A script of the documentation
    starts its workers afresh.)
    """
    forking()
    if options.get("processes", True):
        options["env"] = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=threads_per_worker, dashboard_address=":0", **options
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
