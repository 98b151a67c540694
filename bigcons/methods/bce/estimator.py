"""V-BCE, the estimator."""

from __future__ import annotations

import os
from typing import ClassVar

from bigcons.methods.bce.variational import STARTS, VariationalBCE
from bigcons.seeding import SeedLike
from bigcons.solving.estimator import MethodInfo
from bigcons.solving.pass_clusterer import SoftPassClusterer
from bigcons.solving.survey import Survey
from bigcons.stores.ensemble import Ensemble
from bigcons.validation import check_choice, check_flag, check_number


class BCE(SoftPassClusterer):
    """Bayesian cluster ensembles by variational EM.

    Every object mixes the clusters in its own proportions, drawn from a Dirichlet distribution, and every
    cluster has its own label probabilities in each partition; the EM iterations raise a lower bound of the
    likelihood of all labels. Missing labels are absent from its product (missing at random).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters; one that is no object's most probable one wins none.
    n_init : int, default=20
        Starts, of which the highest bound is kept. They run on 4,096 objects, or on all if these are no more.
        Of six planted clusters of unlike sizes between a third and a half of the starts find all, hence 20.
    init : {"partition", "random"}, default="partition"
        "partition": responsibilities are nine tenths one base partition (laid over others until there are
        enough clusters), one tenth even; alpha is 0.5. "random": alpha and beta drawn as the authors' code
        does, which needs more starts.
    update_alpha : bool, default=True
        Whether the prior of the proportions follows the data; if not it stays as it was at the start. On
        clean ensembles it runs towards 0, where every object belongs to one cluster; it is kept above 0.001.
    smoothing : float, default=1e-6
        Added to every expected count of labels, so that no probability is zero.
    max_iter : int, default=500
        Maximum number of passes.
    n_finalists : int, default=1
        Number of the best starts that continue on all objects, in the same passes.
    tol : float, default=1e-6
        Relative gain of the objective at which to stop.
    resume : bool, default=False
        Resume an interrupted solve to ``out``; the result has the same bits as an undisturbed one.
    random_state : int, RandomState, Generator or None, default=None
        Seed; one seed gives the same bits on any engine and any number of workers.
    memory : str, int or None, default=None
        Memory budget such as "2GB"; a fit that would need more is refused before it starts.
    out : path-like or None, default=None
        Path of a Consensus store to write the result to, block by block, instead of keeping it in memory.
    client : str, distributed.Client or None, default=None
        "serial", "threads", a Dask client or scheduler address; None is the active client, else threads.

    Attributes
    ----------
    labels_ : (n_objects,) int32, -1 for objects that no partition labeled
    memberships_ : (n_objects, n_clusters) float32, expected proportions of the clusters
    objective_ : lower bound of the log-likelihood, plus ``smoothing * sum log beta`` for the prior that
        ``smoothing`` stands for; no pass lowers it
    start_objectives_ : the objective of every start on its sample, when the best was chosen
    history_, n_passes_, n_clusters_, converged_

    Notes
    -----
    O(n M K) time for every step of the fixed point of the objects, up to 100 of them a pass, few once gamma
    has settled; memory O(B K), and 8 n K bytes for gamma, which is carried from pass to pass. The authors
    start gamma anew in every pass, with which the bound can fall. The M-step goes beyond its maximum where
    that is still higher than before (over-relaxed EM), which saves passes. A start that settled on the sample
    goes on to all objects with a tenth of its label probabilities spread evenly over the labels.

    References
    ----------
    Wang, Shan and Banerjee (2009), *Bayesian cluster ensembles*, section 3.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        paper="Wang, Shan and Banerjee 2009",
        needs="labels",
        soft=True,
        missing="native",
        out_of_core=True,
        distributed=True,
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 20,
        init: str = "partition",
        update_alpha: bool = True,
        smoothing: float = 1e-6,
        max_iter: int = 500,
        n_finalists: int = 1,
        tol: float = 1e-6,
        resume: bool = False,
        random_state: SeedLike = None,
        memory: str | float | None = None,
        out: str | os.PathLike[str] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_init=n_init,
            n_finalists=n_finalists,
            max_iter=max_iter,
            tol=tol,
            resume=resume,
            random_state=random_state,
            memory=memory,
            out=out,
            client=client,
        )
        self.init = init
        self.update_alpha = update_alpha
        self.smoothing = smoothing

    def _make_problem(self, ensemble: Ensemble, _survey: Survey) -> VariationalBCE:
        return VariationalBCE(
            ensemble.offsets,
            self.n_clusters,
            init=check_choice("init", self.init, tuple(STARTS)),
            smoothing=check_number("smoothing", self.smoothing, at_least=1e-12),
            update_alpha=check_flag("update_alpha", self.update_alpha),
        )
