"""Parameter servers."""

from __future__ import annotations

import time
from typing import NamedTuple, Optional

from . import _log, native
from .pipeline import _POLL_SECONDS, _NotPicklable
from .job import Job

__all__ = ["Server", "ServerStatus"]


class ServerStatus(NamedTuple):
    """The workers of a shard, and the updates that it applied for them."""

    workers: int  # present now
    joined: int  # since the start
    finished: int  # of those that left: how many had finished
    updates: int  # applied so far


class Server(_NotPicklable):
    """One shard of a job's parameter server. It holds its part of the parameters, and serves the
    workers, which are runs of the job, on its own threads. ``with et.Server(job, shard=0) as
    server: server.wait()`` serves until the last worker has finished. In the job's section
    ``parallel`` the algorithm is ``downpour`` or ``easgd``, and ``servers`` is the number of
    shards. A server serves one thread at a time, except for `stop` and `close`."""

    def __init__(self, job: Job, shard: int = 0) -> None:
        _log.start()
        self._handle = native.ServerHandle(job._handle, shard)
        self._shown = f"Server({job!r}, shard={shard})"

    def __repr__(self) -> str:
        return self._shown

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the last worker has finished or the server is stopped, for at most
        ``timeout`` seconds. Returns whether that has happened. Raises RankLostError if no worker
        came within ``parallel.timeout``, or none after the last one was lost."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:  # in short waits: Ctrl-C ends it
            left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, max(end - time.monotonic(), 0.0))
            if self._handle.ended_within(left):
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def status(self) -> ServerStatus:
        """Returns how many workers there are and were, and the number of updates."""
        s = self._handle.status()
        return ServerStatus(s.workers, s.joined, s.finished, s.updates)

    def stop(self) -> None:
        """Stops the shard; to workers it is lost."""
        self._handle.stop()

    def close(self) -> None:
        """Stops the shard and releases its part of the parameters."""
        self._handle.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
