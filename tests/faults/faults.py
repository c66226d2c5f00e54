#!/usr/bin/env python3
"""Hurts ranks of small runs at random moments, and looks at what is left.

    faults.py ECHOTRAIN [--faults 200] [--jobs 2] [--seed 1] [--timeout 2] [--within 3]

After each fault: every rank that is left ends with an error that names the missing rank, or one that knew of it and has
left, within the time-out and --within seconds; no process and no temporary file is left; and the run, resumed, gives the losses of one
that nobody hurt, to the bit. Strangers' connections do a run no harm at all.

As root, the ranks of some runs are hosts with a network of their own (ip netns), whose link goes down, or delays and loses
packets (tc netem). What this machine does not allow is skipped, and said.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

from networks import Network, what_is_missing
from ranks import SAMPLES, Cluster, job, scratch, write_data

EPOCHS = 3  # long after the fault a run would end, also where this program gets no time between looking and hurting
PASSING = ("stray", "delay", "loss")  # no run ends by these


class Fault:
    def __init__(self, number, options, kinds):
        self.number, self.options = number, options
        self.random = random.Random(options.seed * 100_000 + number)
        self.kind = kinds[number % len(kinds)]
        self.size = self.random.randint(2, 4)
        self.victim = self.random.randrange(self.size)
        self.step = self.random.randint(1, SAMPLES // (8 * self.size))  # in the first half of the first epoch
        self.wait = self.random.random() * 0.05
        self.latency = 0.0

    def __str__(self):
        return f"fault {self.number}: {self.kind} of rank {self.victim} of {self.size} at step {self.step}"

    def run(self, root, references):
        name = f"fault{self.number}"
        network = Network(name, self.size) if self.kind in ("link", "delay", "loss") else None
        timeout = 30 if self.kind in PASSING else self.options.timeout
        cluster = Cluster(self.options.program, root, name,
                          job(root, root / name, epochs=EPOCHS, milliseconds=20, timeout=timeout), self.size)
        try:
            self.start(cluster, network)
            cluster.wait_for_step(self.step)
            time.sleep(self.wait)
            began = time.time()
            self.hurt(cluster, network)
            if self.kind in PASSING:
                for rank in range(self.size):
                    assert cluster.wait(rank) == 0, cluster.report()
            else:
                self.expect_errors(cluster, began)
            self.expect_nothing_left(cluster)
            if self.kind not in PASSING:
                resumed = Cluster(self.options.program, root, name + "-resumed",
                                  job(root, root / name, epochs=EPOCHS, milliseconds=20, timeout=30), self.size)
                try:
                    resumed.start_all("--resume" if cluster.has_checkpoint() else "--overwrite")
                    for rank in range(self.size):
                        assert resumed.wait(rank) == 0, resumed.report()
                    self.expect_nothing_left(resumed)
                finally:
                    resumed.close()
            losses = [(row["step"], row["loss"]) for row in cluster.rows()]
            assert losses == references[self.size], f"the losses differ: {losses}"
        finally:
            cluster.close()
            if network:
                network.close()

    def start(self, cluster, network):
        for rank in range(self.size):
            if network:
                cluster.start(rank, "--set", f"parallel.host={network.address(rank)}", prefix=network.prefix(rank))
            else:
                cluster.start(rank)

    def hurt(self, cluster, network):
        victim = cluster.processes[self.victim]
        if self.kind == "kill":
            victim.kill()
        elif self.kind == "freeze":
            os.kill(victim.pid, signal.SIGSTOP)
        elif self.kind == "freeze all":  # as a machine that is gone
            cluster.signal(self.victim, signal.SIGSTOP)
        elif self.kind == "stray":
            connect_to_all(cluster.processes_of(self.victim), self.random)
        elif self.kind == "link":
            network.cut(self.victim)
        else:
            network.disturb(self.victim, self.kind)

    def expect_errors(self, cluster, began):
        told = {}
        for rank in range(self.size):
            cut = self.kind == "link" and rank == self.victim
            if rank == self.victim and not cut:
                continue
            assert cluster.wait(rank, 60) == 1, cluster.report()
            said = cluster.said(rank)
            if self.kind == "link":
                named = set(range(self.size)) - {rank} if cut else {self.victim}
                assert names(said) & named, f"rank {rank} does not name {named}; {cluster.report()}"
            else:
                told[rank] = names(said)
            self.latency = max(self.latency, cluster.errors[rank].stat().st_mtime - began)
        # Ranks meet in two groups. Who learns of the loss in one of them leaves the other, where it may be named instead.
        knows = {rank for rank in told if self.victim in told[rank]}
        assert not told or knows and all(told[rank] & (knows | {self.victim}) for rank in told), f"named: {told}; {cluster.report()}"
        limit = self.options.timeout + self.options.within
        assert self.latency <= limit, f"an error came after {self.latency:.1f} s, not {limit} s; {cluster.report()}"
        cluster.signal(self.victim, signal.SIGKILL)
        cluster.wait(self.victim)

    def expect_nothing_left(self, cluster):
        cluster.wait_for(lambda: not cluster.helpers_left(), "processes are left")
        assert not list(cluster.temporary.iterdir()), f"left: {list(cluster.temporary.iterdir())}"
        for entry in (cluster.out / "checkpoints").glob("*"):
            # A rank that was killed while it wrote leaves a folder that the next one removes.
            assert (entry / "manifest.json").exists() or self.kind not in PASSING, f"{entry} is no checkpoint"


def names(said):
    """Ranks that are named in what a rank said: "rank 3 is lost", "ranks 0 and 2 did not come"."""
    found = set()
    words = said.replace(",", " ").split()
    for at, word in enumerate(words):
        if word in ("rank", "ranks"):
            for other in words[at + 1:]:
                if other.isdigit():
                    found.add(int(other))
                elif other != "and":
                    break
    return found


def listening_ports(pids):
    inodes = set()
    for pid in pids:
        try:
            targets = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError):  # it has ended, or closed one of them
            continue
        inodes.update(target[8:-1] for target in targets if target.startswith("socket:["))
    ports = []
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def connect_to_all(pids, drawn):
    for port in listening_ports(pids):
        for _ in range(3):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as stranger:
                    stranger.sendall(drawn.randbytes(drawn.randrange(200)))
            except OSError:
                pass


def references_of(program, root):
    """The losses of runs that nobody hurts, by their number of ranks."""
    out = {}
    for size in (2, 3, 4):
        cluster = Cluster(program, root, f"whole{size}",
                          job(root, root / f"whole{size}", epochs=EPOCHS, milliseconds=0, timeout=30), size).start_all()
        try:
            for rank in range(size):
                assert cluster.wait(rank) == 0, cluster.report()
            out[size] = [(row["step"], row["loss"]) for row in cluster.rows()]
        finally:
            cluster.close()
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=2, help="of the ranks, also when they begin")
    parser.add_argument("--within", type=float, default=3, help="seconds beyond the time-out")
    options = parser.parse_args()
    kinds = ["kill", "freeze", "stray", "kill", "freeze all"]
    for kind, missing in what_is_missing().items():
        if missing:
            print(f"SKIPPED: {kind}: {missing}", flush=True)
        else:
            kinds.append(kind)
    failed, latencies = 0, {}
    with scratch() as folder:
        root = pathlib.Path(folder)
        write_data(root)
        references = references_of(options.program, root)
        faults = [Fault(number, options, kinds) for number in range(options.faults)]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = {pool.submit(fault.run, root, references): fault for fault in faults}
            for done in concurrent.futures.as_completed(runs):
                fault = runs[done]
                if done.exception():
                    failed += 1
                    print(f"FAILED: {fault}: {done.exception()!r}", flush=True)
                elif fault.kind not in PASSING:
                    latencies.setdefault(fault.kind, []).append(fault.latency)
    for kind, seconds in sorted(latencies.items()):
        print(f"{kind}: {len(seconds)} faults, told after {max(seconds):.2f} s at most (time-out {options.timeout:g} s)")
    print(f"{options.faults - failed} of {options.faults} faults passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
