"""An object that lives on one Dask worker, where it was made, and is reached by calls alone.

Imported only when a client is used, like the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distributed

from bigcons.errors import ExecutionError, InvalidInputError
from bigcons.execution.dask_workers import Workers


class Pinned:
    """An object made on a worker by ``make(*args, **kwargs)``, which stays there (a Dask actor).

    Dask neither moves nor copies it; if its worker is lost, so is the object. Its calls run one at a time.
    """

    def __init__(
        self, client: distributed.Client, worker: str, make: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        if client.asynchronous:
            raise InvalidInputError("client= is asynchronous; pass a distributed.Client(asynchronous=False).")
        known = list(client.scheduler_info(n_workers=-1)["workers"])
        if worker not in known:  # Dask would wait for it forever
            raise InvalidInputError(
                f"worker={worker!r} is not among the {len(known)} workers of the client "
                f"({', '.join(known[:3])}{', ...' if len(known) > 3 else ''}); give the address of one.",
                parameter="worker",
            )
        Workers(client).refresh()
        self.worker = worker
        made = client.submit(
            Held, make, args, kwargs, workers=[worker], allow_other_workers=False, actor=True, pure=False
        )
        self._held: Any = made.result()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(thing, *args)``, run on the worker; raise its error, or that it was lost."""
        try:
            result, error = self._held.call(function, *args).result()
        except (OSError, RuntimeError, ValueError) as lost:  # not the function's own, which are returned
            raise ExecutionError(
                f"Dask worker {self.worker} was lost, and with it the object it held; restart the worker "
                "and make the object anew."
            ) from lost
        if error is not None:
            raise error
        return result


class Held:
    """The object, on the worker."""

    def __init__(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._thing = make(*args, **kwargs)

    def call(self, function: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
        """Return the function's result and no error, or its error."""
        try:
            return function(self._thing, *args), None
        except Exception as error:
            return None, error
