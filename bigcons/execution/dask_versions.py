"""Whether the workers of a Dask cluster run this bigcons, asked once of each that a client meets.

Imported only when a client is in play, like the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import distributed

from bigcons.errors import ExecutionError
from bigcons.version import __version__

ANSWER_SECONDS = 5.0

# As text, for a worker without our code ends when it gets a task of it. What Dask's get_versions tells is
# read from the package's metadata, which need not be of the code that is imported.
VERSION = "__import__('bigcons').__version__"
TASKS = "__import__('bigcons.execution.dask_tasks', fromlist=['run_task']).run_task.__name__"

_met: WeakKeyDictionary[distributed.Client, set[str]] = WeakKeyDictionary()
"""The workers that need not be asked again."""


def check_versions(client: distributed.Client, addresses: Iterable[str]) -> None:
    """Raise ExecutionError if a worker not asked before has no bigcons, another version or other code of it.

    A worker that does not answer within ANSWER_SECONDS is taken as good: waits for it have an end too. The
    cost is some 5 ms a worker, once, and its import of bigcons.
    """
    met = _met.setdefault(client, set())
    for address, refusal in _asked(client, [address for address in addresses if address not in met]).items():
        if refusal:
            raise ExecutionError(
                f"Dask worker {address} {refusal}; install bigcons {__version__}, which runs here, "
                "in the environment of every worker and restart them."
            )
        met.add(address)


def one_line(error: Exception) -> str:
    """Return what an error says, without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def _asked(client: distributed.Client, addresses: list[str]) -> dict[str, str]:
    """Return for each worker what is wrong with its bigcons, or an empty string."""

    async def ask_all() -> list[str]:
        return await asyncio.gather(*(_ask(client, address) for address in addresses))

    return dict(zip(addresses, client.sync(ask_all), strict=True)) if addresses else {}


async def _ask(client: distributed.Client, address: str) -> str:
    version = ""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            version = (await client.run(eval, VERSION, workers=[address]))[address]
            if version == __version__:
                await client.run(eval, TASKS, workers=[address])
    except (ImportError, AttributeError) as error:
        code = f"runs other code of bigcons {version} than this process" if version else "cannot load bigcons"
        return f"{code} ({one_line(error)})"
    except Exception:  # lost, silent or closed, which is for the waits to say
        return ""
    return "" if version == __version__ else f"has bigcons {version}"
