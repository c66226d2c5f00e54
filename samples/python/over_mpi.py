"""Trains a job on several ranks over mpi4py.

    pip install . mpi4py                                            # from the repository, in a virtual environment
    mpirun -n 2 python -m mpi4py samples/python/over_mpi.py job.json [KEY=VALUE ...]

The engine 'mpi' does the same without Python. This is for programs that have mpi4py already, and shows what a transport of one's
own is: a class with a handful of functions. `python -m mpi4py` ends all ranks where one fails.
"""

import sys
import time

import numpy as np
from mpi4py import MPI

import echotrain as et

OPS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}


class Mpi(et.Transport):
    def __init__(self, comm):
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._comm, self._aborted = comm, ""

    def _wait(self, request):
        """MPI knows no time-outs: a request that nobody else joins would wait for ever."""
        deadline = time.monotonic() + self.timeout
        while not request.Test():
            if self._aborted:
                raise et.errors.RankLostError(self._aborted)
            if time.monotonic() > deadline:
                raise TimeoutError(f"a rank did not come within {self.timeout:g} s")
            time.sleep(2e-5)

    def all_reduce(self, array, op):
        self._wait(self._comm.Iallreduce(MPI.IN_PLACE, array, OPS[op]))

    def reduce_scatter(self, array, counts, part, op):
        self._wait(self._comm.Ireduce_scatter(array, part, counts, OPS[op]))

    def all_gather(self, part, sizes, array):
        begins = np.cumsum([0, *sizes[:-1]])
        self._wait(self._comm.Iallgatherv(part, [array, sizes, begins, MPI.BYTE]))

    def broadcast(self, array, root):
        self._wait(self._comm.Ibcast(array, root))

    def barrier(self):
        self._wait(self._comm.Ibarrier())

    def send(self, array, to, tag):
        self._wait(self._comm.Isend(array, to, tag))

    def receive(self, array, source, tag):
        self._wait(self._comm.Irecv(array, source, tag))

    def split(self, colour, key):
        part = self._comm.Split(colour if colour >= 0 else MPI.UNDEFINED, key)
        return None if part == MPI.COMM_NULL else Mpi(part)

    def abort(self, reason):
        self._aborted = reason  # of this rank; the others end with this process


def main():
    et.prefer_wide_cpu_vectors()  # as the command does
    job = et.Job(sys.argv[1], dict(setting.split("=", 1) for setting in sys.argv[2:]))
    transport = Mpi(MPI.COMM_WORLD.Dup())
    with job.run(transport=transport, overwrite=True) as run:
        for event in run:
            if event.kind == "end" and transport.rank == 0:
                print(f"{transport.size} ranks: {event.step} steps, {event.examples} examples, loss {event.loss:.4f}")


if __name__ == "__main__":
    main()
