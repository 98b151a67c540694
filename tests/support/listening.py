"""A listener to progress, for tests of what is announced."""

from bigcons.progress import Progress


class Recorder(Progress):
    """A progress listener that keeps what was announced and how far it came."""

    def __init__(self):
        self.work = {}

    def start(self, what, total, unit):
        self.what = what
        self.work[what] = [total, 0]

    def advance(self, n):
        self.work[self.what][1] += n

    def finish(self):
        pass
