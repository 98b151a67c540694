"""What scikit-learn asks of an estimator, without importing it.

Importing scikit-learn takes a second, as long as all else that a first fit waits for. So estimators have a
base of their own for parameters, copies and text, which becomes a BaseEstimator and ClusterMixin of
scikit-learn once that is imported.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections import defaultdict
from typing import Any, ClassVar, Self, cast

from bigcons.errors import InvalidInputError, nearest
from bigcons.io.select import Selection
from bigcons.run.engine import HasClient


class Estimator(HasClient):
    """Base of estimators: their parameters, copies and text, as of scikit-learn's BaseEstimator.

    Models are instances of scikit-learn's BaseEstimator and ClusterMixin as soon as, after scikit-learn was
    imported, any of them is made, unpickled, cloned or asked for its parameters or tags.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _, *parameters = inspect.signature(cls.__init__).parameters.values()
        cls.__signature__ = inspect.Signature(parameters)  # or it would be that of __new__

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Refuse parameters that there are not."""
        join_scikit_learn()
        for name in given:
            if name not in cls.__signature__.parameters:
                raise TypeError(_unknown(cls, name))
        return super().__new__(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; ``deep``: also those of estimators in them, as ``outer__inner``."""
        join_scikit_learn()
        found: dict[str, Any] = {}
        for name in self.__signature__.parameters:
            found[name] = value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{inner}": given for inner, given in value.get_params().items()}
        return found

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, ``outer__inner`` of estimators in them, and return ``self``.

        Raises InvalidInputError for a name that there is not.
        """
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, value in parameters.items():
            outer, nested, rest = name.partition("__")
            if outer not in self.__signature__.parameters:
                raise InvalidInputError(_unknown(type(self), outer), parameter=outer)
            if nested:
                inner[outer][rest] = value
            else:
                setattr(self, outer, value)
        for outer, given in inner.items():
            getattr(self, outer).set_params(**given)
        return self

    def unfitted(self) -> Self:
        """Return a copy with the same parameters and no results, as scikit-learn's ``clone`` does."""
        given = self.get_params(deep=False)
        copied = {
            name: value.unfitted() if isinstance(value, Estimator) else copy.deepcopy(value)
            for name, value in given.items()
            if name != "client"
        }
        return type(self)(**(given | copied))

    def changed_params(self) -> dict[str, Any]:
        """Return the parameters that are not at their defaults."""
        return {
            name: value
            for name, parameter in self.__signature__.parameters.items()
            if (value := getattr(self, name)) is not parameter.default
            and repr(value) != repr(parameter.default)
        }

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changed_params().items())
        return f"{type(self).__name__}({' '.join(changed.split())})"  # on one line, arrays too

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags."""
        join_scikit_learn()
        return cast("Any", super()).__sklearn_tags__()


def _unknown(cls: type[Estimator], name: str) -> str:
    known = list(cls.__signature__.parameters)
    if name in Selection.__dataclass_fields__:
        return f"{cls.__name__} has no parameter {name!r}; pass bigcons.select(x, {name}=...) in place of x."
    near = nearest(name, known)
    meant = f"it has {', '.join(known)}." if near is None else f"did you mean {near}?"
    return f"{cls.__name__} has no parameter {name!r}; {meant}"


def join_scikit_learn() -> None:
    """Give `Estimator` the bases of scikit-learn, once that is imported."""
    if len(Estimator.__bases__) > 1 or "sklearn.base" not in sys.modules:
        return
    from sklearn.base import BaseEstimator, ClusterMixin

    Estimator.__bases__ = (HasClient, ClusterMixin, BaseEstimator)  # Python adds none to `object` alone
    below: list[Any] = [Estimator]
    while below:  # what scikit-learn adds to a class when that is defined
        cls = below.pop()
        super(Estimator, cls).__init_subclass__()
        below += cls.__subclasses__()


def check_is_fitted(model: Any) -> None:
    """Raise scikit-learn's NotFittedError if the model has no ``labels_``."""
    if not hasattr(model, "labels_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit first.")
