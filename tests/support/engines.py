"""Engines on which tasks meet what they meet on a cluster, and that count them."""

import cloudpickle

from bigcons.run.engine import SerialEngine


class RepeatedTasks(SerialEngine):
    """Sends every task through a pickle, and runs all of them out of order and then once more.

    So do workers that are lost after they have written, but before their results are collected.
    """

    shares_memory = False

    def __init__(self, most_bytes=None):
        self.most_bytes = most_bytes

    def map(self, task, items):
        items = list(items)
        results = [None] * len(items)
        for number in reversed([*range(len(items))] * 2):
            sent = cloudpickle.dumps((task, items[number]))
            assert self.most_bytes is None or len(sent) < self.most_bytes
            again, item = cloudpickle.loads(sent)
            results[number] = again(item)
        yield from results


class CountingEngine(SerialEngine):
    """Counts the tasks of each call of ``map`` as they run."""

    def __init__(self):
        self.n_tasks = []

    def map(self, task, items):
        self.n_tasks.append(0)
        for item in items:
            self.n_tasks[-1] += 1
            yield task(item)


class StopError(Exception):
    """What a task fails with that stands for a kill."""


class EngineThatStops(SerialEngine):
    """Fails after so many tasks, as a kill would."""

    def __init__(self, n_tasks, error=StopError):
        self.left, self.error = n_tasks, error

    def map(self, task, items):
        for result in super().map(task, items):
            self.left -= 1
            if self.left < 0:
                raise self.error
            yield result
