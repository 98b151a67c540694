"""Sites on the workers of a Dask cluster of processes, each of which reads labels of its own."""

import pickle

import distributed
import numpy as np

from bigcons.datasets import planted_ensemble
from bigcons.federated import RowSite, fit_rows

K = 2


class Actor:
    """A site that is an actor on a worker; messages and answers are measured on their way."""

    def __init__(self, actor):
        self.actor, self.sizes = actor, []

    def answer(self, message):
        answer = self.actor.answer(message).result()
        self.sizes.append((message["ask"], len(pickle.dumps(message)), len(pickle.dumps(answer))))
        return answer


def test_actors__fit_rows_as_local_sites_do_and_no_label_crosses(tmp_path):
    sizes = []
    with (
        distributed.LocalCluster(dashboard_address=":0", n_workers=2, threads_per_worker=1) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = sorted(client.run(int))
        for n_objects in (400, 20_000):
            ensemble, _ = planted_ensemble(n_objects, 6, n_clusters=(2, 3), shares=(0.6, 0.4), random_state=1)
            parts = np.array_split(ensemble.read(0, n_objects), 2)
            sites = []
            for number, (worker, part) in enumerate(zip(workers, parts, strict=True)):
                path = str(tmp_path / f"{number}.npy")
                np.save(path, part)
                sites.append(
                    Actor(client.submit(RowSite, path, workers=[worker], actor=True, pure=False).result())
                )
            how = {"n_init": 1, "max_iter": 25, "tol": 1e-3, "random_state": 0}
            fit = fit_rows(sites, K, **how)
            local = [RowSite(part) for part in parts]
            expected = fit_rows(local, K, **how)
            for name, values in expected.parameters.items():
                assert fit.parameters[name].tobytes() == values.tobytes()
            assert fit.history == expected.history
            np.testing.assert_array_equal(sites[0].actor.labels().result(), local[0].labels())
            sizes.append([sorted(set(site.sizes)) for site in sites])
    assert sizes[0] == sizes[1]  # whatever the number of objects
    crossed = sum(sum(size[1:]) for site in sites for size in site.sizes)
    assert crossed < sum(part.nbytes for part in parts)
