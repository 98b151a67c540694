"""An object that lives on one Dask worker, where it was made, and is reached by calls alone.

Imported only when a client is used, like the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import distributed

from bigcons.errors import ExecutionError, InvalidInputError
from bigcons.execution.dask_workers import Workers

_binding = threading.Lock()


class Pinned:
    """An object made on a worker by ``make(*args, **kwargs)``, which stays there (a Dask actor).

    Dask neither moves nor copies it; if its worker is lost, so is the object. Its calls run one at a time.
    """

    def __init__(
        self, client: distributed.Client, worker: str, make: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        if client.asynchronous:
            raise InvalidInputError("client= is asynchronous; pass a distributed.Client(asynchronous=False).")
        self._client, self._worker = client, worker
        known = self._known_workers()
        if worker not in known:  # Dask would wait for it forever
            raise InvalidInputError(
                f"worker={worker!r} is not among the {len(known)} workers of the client "
                f"({', '.join(known[:3])}{', ...' if len(known) > 3 else ''}); give the address of one.",
                parameter="worker",
            )
        Workers(client).refresh()
        made = client.submit(
            Held, make, args, kwargs, workers=[worker], allow_other_workers=False, actor=True, pure=False
        )
        # an actor looks for the current client when it is first used; that changes a setting of all threads
        with _binding, client.as_current():
            self._held: Any = self._wait(made)
            self._held.call  # noqa: B018 - looked up, not called

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(thing, *args)``, run on the worker; raise its error, or that it was lost."""
        try:
            result, error = self._wait(self._held.call(function, *args))
        except (OSError, RuntimeError) as lost:  # not the function's own, which are returned
            raise self._lost() from lost
        if error is not None:
            raise error
        return result

    def _wait(self, future: Any) -> Any:
        """Return the result of a future once it is there, unless its worker is lost."""
        while True:
            try:
                return future.result(timeout=2.0)  # a lost worker is noticed after this long
            except TimeoutError:
                if self._worker not in self._known_workers():
                    raise self._lost() from None

    def _known_workers(self) -> list[str]:
        # scheduler_info() may return what a heartbeat of the client has just set, which names no worker
        scheduler = self._client.scheduler
        if scheduler is None or self._client.status != "running":
            return []
        try:
            return list(self._client.sync(scheduler.identity, n_workers=-1)["workers"])
        except OSError:
            return []

    def _lost(self) -> ExecutionError:
        return ExecutionError(
            f"Dask worker {self._worker} was lost, and with it the object it held; restart the worker and "
            "make the object anew."
        )


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
