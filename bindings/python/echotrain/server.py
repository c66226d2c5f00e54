"""Parameter servers."""

from __future__ import annotations

import time
from typing import NamedTuple, Optional

from . import native
from .pipeline import _POLL_SECONDS, _NotPicklable
from .job import Job


class ServerStatus(NamedTuple):
    workers: int  # who are here
    joined: int  # since the start
    finished: int  # of those who left, the ones that had come to their end
    updates: int  # that were applied


class Server(_NotPicklable):
    """One shard of a job's parameter server: holds its part of the parameters, and serves the workers, which are runs of the job,
    on threads of its own. ``with et.Server(job, shard=0) as server: server.wait()`` serves until the last worker has finished.
    The job's section ``parallel`` has the algorithm ``downpour`` or ``easgd``, and ``servers`` such shards. Used by one thread at a
    time, but for `stop` and `close`."""

    def __init__(self, job: Job, shard: int = 0):
        self._handle = native.ServerHandle(job._handle, shard)
        self._shown = f"Server({job!r}, shard={shard})"

    def __repr__(self) -> str:
        return self._shown

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the last worker has finished, or the server is stopped, for ``timeout`` seconds at most. Whether that has
        happened. A RankLostError where no worker has come within ``parallel.timeout``, or none after the last one was lost."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:  # in short waits: Ctrl-C ends it
            left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, max(end - time.monotonic(), 0.0))
            if self._handle.ended_within(left):
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def status(self) -> ServerStatus:
        s = self._handle.status()
        return ServerStatus(s.workers, s.joined, s.finished, s.updates)

    def stop(self) -> None:
        """Ends it: workers see that the shard is lost."""
        self._handle.stop()

    def close(self) -> None:
        """Stops it and lets go of its part of the parameters."""
        self._handle.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self.close()
