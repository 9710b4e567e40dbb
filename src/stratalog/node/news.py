"""The news of commits: which partitions have grown, passed on to all that may wait for it.

A commit of this process wakes its own readers and goes to the other workers of the broker and, as a
hint, to other brokers. A commit of another worker goes to all but that worker. A hint of another
broker goes to the readers of all workers, each of which looks for itself.
"""

from stratalog.cluster.hints import Advanced, Hints
from stratalog.node.workers.team import Workers
from stratalog.topic.watermarks import Watermarks


class News:
    def __init__(self, watermarks: Watermarks) -> None:
        self._watermarks = watermarks
        self._brokers: Hints | None = None
        self._workers: Workers | None = None

    def reach_brokers(self, hints: Hints) -> None:
        self._brokers = hints

    def reach_workers(self, workers: Workers) -> None:
        self._workers = workers

    def committed(self, advanced: Advanced) -> None:
        if self._workers is not None:
            self._workers.committed(advanced)
        self.committed_by_worker(advanced)

    def committed_by_worker(self, advanced: Advanced) -> None:
        self._watermarks.advanced(advanced)
        if self._brokers is not None:
            self._brokers.send(advanced)

    def hinted(self, advanced: Advanced) -> None:
        self._watermarks.hinted(advanced)
        if self._workers is not None:
            self._workers.hinted(advanced)
