"""What both distributions share: sites and how they are asked, on Dask workers too, and the runs of EM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bigcons.errors import ConvergenceWarning, InvalidInputError, warn_user
from bigcons.solving.passes import History, Record, State, Stats, add_stats, as_history
from bigcons.validation import check_choice, check_flag, check_int

if TYPE_CHECKING:
    import distributed

    from bigcons.execution.dask_pinned import Pinned

METHODS = ("bce", "mixture")

Message = dict[str, Any]
"""A question, under "ask", with its arguments; or an answer."""


class Site(Protocol):
    """Whatever answers messages: a site itself, or a stub that sends them to one.

    Examples
    --------
    >>> from bigcons.distributed import RowSite, Site
    >>> class Stub:  # sends messages to where the labels are
    ...     def __init__(self, send):
    ...         self.send = send
    ...     def answer(self, message):
    ...         return self.send(message)
    >>> site: Site = Stub(RowSite([[0, 1], [0, 1], [1, 0]]).answer)
    """

    def answer(self, message: Message) -> Message:
        """Return the answer of the site, which counts every message: deliver each one once."""
        ...


def dispatch(questions: Mapping[str, Callable[..., Message]], message: Message) -> Message:
    """Return what the function of a question returns for the arguments in the message."""
    arguments = {name: value for name, value in message.items() if name != "ask"}
    if message.get("ask") not in questions:
        raise InvalidInputError(
            f"a message asks {message.get('ask')!r}, which is no question to this site; it answers "
            f"{', '.join(questions)}."
        )
    return questions[message["ask"]](**arguments)


class Team:
    """The sites, asked at the same time; as a context manager."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites: list[Site] = list(sites)
        if not self.sites:
            raise InvalidInputError("sites is empty; pass at least one.", parameter="sites")

    def __enter__(self) -> Team:
        self._threads = ThreadPoolExecutor(min(len(self.sites), 64))  # a thread waits for each site
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def ask(self, message: Message) -> list[Message]:
        """Return the answers of all sites to one message, in their order."""
        return self.tell([message] * len(self.sites))

    def tell(self, messages: Sequence[Message]) -> list[Message]:
        """Return the answer of each site to its own message, in their order."""
        sent = [
            self._threads.submit(site.answer, message)
            for site, message in zip(self.sites, messages, strict=True)
        ]
        return [answer.result() for answer in sent]


class Run:
    """One start: the state that the last record judges and the next one, the records, whether it settled."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.following = state
        self.records: list[Record] = []
        self.settled: bool = False

    def add(self, record: Record, settled: bool) -> None:
        """Add the record of an iteration."""
        self.records.append(record)
        self.settled = settled

    @property
    def objective(self) -> float:
        """The last objective."""
        return self.records[-1]["objective"]

    @property
    def history(self) -> History:
        """One list for each quantity of the records."""
        return as_history([{"pass": float(n), **record} for n, record in enumerate(self.records, 1)])


def check_model(method: str, n_clusters: int, update_alpha: bool) -> None:
    """Refuse a method, number of clusters or ``update_alpha`` that the functions of this package lack."""
    check_choice("method", method, METHODS)
    check_int("n_clusters", n_clusters)
    if not check_flag("update_alpha", update_alpha) and method == "mixture":
        raise InvalidInputError(
            "update_alpha=False, but the mixture has no alpha; leave it out.", parameter="update_alpha"
        )


def added(parts: Sequence[Mapping[str, Any]]) -> Stats:
    """Return the sum of named arrays, in their order."""
    total: Stats = {name: np.array(values) for name, values in parts[0].items()}
    for part in parts[1:]:
        add_stats(total, part)
    return total


def warn_unless_settled(run: Run) -> None:
    """Warn that a run stopped at its limit."""
    if not run.settled:
        warn_user(
            f"the sites stopped after {len(run.records)} iterations or cycles, before the fit settled; raise "
            "max_iter, max_cycles or tol if the labels still change.",
            ConvergenceWarning,
        )


# On Dask workers


class WorkerSite:
    """A site on a Dask worker, where `at_worker` made it.

    Examples
    --------
    >>> import distributed
    >>> from bigcons.distributed import RowSite, at_worker
    >>> client = distributed.Client(n_workers=1, processes=False, dashboard_address=":0")
    >>> worker = next(iter(client.scheduler_info()["workers"]))
    >>> site = at_worker(client, worker, RowSite, [[0, 1], [0, 1], [1, 0]])
    >>> site.run(lambda own: type(own).__name__)
    'RowSite'
    >>> client.shutdown()
    """

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned

    def answer(self, message: Message) -> Message:
        """Return the site's answer: only the message and the answer cross the network."""
        answer: Message = self._pinned.call(_answer, message)
        return answer

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(site, *args)``, called on the worker; what it returns leaves the site."""
        return self._pinned.call(function, *args)


def at_worker(
    client: distributed.Client, worker: str, make: Callable[..., Site], *args: Any, **kwargs: Any
) -> WorkerSite:
    """Make a site on a Dask worker, where it and its labels stay.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    worker : str
        Address of the worker, such as "tcp://10.0.0.7:40331". The site is never moved to another; if the
        worker is lost, calls raise an ExecutionError.
    make : callable
        Called on the worker; returns the site: `RowSite`, `ColumnSite`, or a function that reads the labels.
    *args, **kwargs
        Its arguments, which are sent to the worker, such as the path of labels that the worker reads.

    Returns
    -------
    WorkerSite
        For `fit_rows` and the others; ``site.run(function)`` calls a function on the worker, so that
        ``site.run(lambda own: numpy.save(path, own.memberships()))`` leaves the memberships there.

    Notes
    -----
    Messages pass through the scheduler. This limits what is sent, not what could be: whoever has a client of
    a Dask cluster can run any code on its workers.

    Examples
    --------
    >>> import distributed
    >>> from bigcons.distributed import RowSite, at_worker
    >>> client = distributed.Client(n_workers=1, processes=False, dashboard_address=":0")
    >>> worker = next(iter(client.scheduler_info()["workers"]))
    >>> site = at_worker(client, worker, RowSite, [[0, 1], [0, 1], [1, 0]])
    >>> sorted(site.answer({"ask": "values"}))
    ['values']
    >>> client.shutdown()
    """
    from bigcons.execution.dask_pinned import Pinned

    return WorkerSite(Pinned(client, worker, make, *args, **kwargs))


def _answer(site: Site, message: Message) -> Message:
    return site.answer(message)
