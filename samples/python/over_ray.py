"""Trains a job on several ranks that are actors of Ray.

    pip install . ray                                               # from the repository, in a virtual environment
    python samples/python/over_ray.py job.json --ranks 4 [--set KEY=VALUE ...]

All ranks bring what they have to one actor, who gives each of them what all have brought. That is the simplest transport that is
right, and enough for a few ranks and small models: all bytes pass through that actor.
"""

import argparse
import asyncio

import numpy as np
import ray

import echotrain as et

REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@ray.remote(num_cpus=0)
class Meeting:
    """Where the ranks of all groups meet; a meeting is known by its group's name and its number there."""

    def __init__(self):
        self._meetings, self._aborted = {}, asyncio.Event()
        self._reason = ""

    async def bring(self, name, size, rank, value):
        brought, complete = self._meetings.setdefault(name, ({}, asyncio.Event()))
        brought[rank] = value
        if len(brought) == size:
            del self._meetings[name]
            complete.set()
        ends = [asyncio.ensure_future(event.wait()) for event in (complete, self._aborted)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if not complete.is_set():
            raise ConnectionError(self._reason)
        return [brought[r] for r in range(size)]

    def abort(self, reason):
        self._reason = self._reason or reason
        self._aborted.set()


class OverRay(et.Transport):
    def __init__(self, meeting, rank, size, name="world"):
        super().__init__(rank, size)
        self._meeting, self._name, self._meetings = meeting, name, 0

    def _all(self, value):
        self._meetings += 1
        asked = self._meeting.bring.remote(f"{self._name} {self._meetings}", self.size, self.rank, value)
        return ray.get(asked, timeout=self.timeout)  # its GetTimeoutError is a TimeoutError

    def all_reduce(self, array, op):
        first, *others = self._all(array)
        array[:] = first
        for other in others:  # in the order of ranks, so that all have the same bits
            REDUCE[op](array, other, out=array)

    def all_gather(self, part, sizes, array):
        np.concatenate(self._all(part), out=array)

    def broadcast(self, array, root):
        array[:] = self._all(array if self.rank == root else None)[root]

    def barrier(self):
        self._all(None)

    def split(self, colour, key):
        chosen = self._all((colour, key))
        if colour < 0:
            return None
        ranks = sorted((k, rank) for rank, (c, k) in enumerate(chosen) if c == colour)
        place = ranks.index((key, self.rank))
        return OverRay(self._meeting, place, len(ranks), f"{self._name}/{self._meetings}.{colour}")

    def abort(self, reason):
        self._meeting.abort.remote(f"rank {self.rank} ended the group: {reason}")


@ray.remote
def train(job, settings, meeting, rank, size):
    et.prefer_wide_cpu_vectors()  # as the command does
    with et.Job(job, settings).run(transport=OverRay(meeting, rank, size), overwrite=True) as run:
        for event in run:
            pass
    return event


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    ray.init(num_cpus=arguments.ranks, include_dashboard=False, log_to_driver=False)
    meeting = Meeting.remote()
    ranks = [train.remote(arguments.job, settings, meeting, rank, arguments.ranks) for rank in range(arguments.ranks)]
    end = ray.get(ranks)[0]
    print(f"{arguments.ranks} ranks: {end.step} steps, {end.examples} examples, loss {end.loss:.4f}")


if __name__ == "__main__":
    main()
