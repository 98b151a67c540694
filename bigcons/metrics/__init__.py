"""How good a consensus is: against a known truth, against the ensemble, by features and memberships."""

from bigcons.metrics import clusterings, memberships, profiles
from bigcons.metrics.clusterings import *  # noqa: F403 - every criterion
from bigcons.metrics.memberships import *  # noqa: F403
from bigcons.metrics.profiles import *  # noqa: F403
from bigcons.trust.confidence import trust

__all__ = ["trust"]
__all__ += clusterings.__all__
__all__ += memberships.__all__
__all__ += profiles.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
