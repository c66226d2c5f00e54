"""Hosts with networks of their own on one machine: a namespace for each rank, and a bridge between them. As root."""

import functools
import os
import subprocess
import threading

NETEM = {"delay": ["delay", "20ms", "5ms"], "loss": ["loss", "5%"]}
lock = threading.Lock()
taken = 0


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    def __init__(self, name, size):
        global taken
        with lock:
            taken += 1
            self.subnet = f"10.{200 + taken // 250}.{taken % 250}"
            self.tag = f"et{os.getpid() % 10000}x{taken}"
        self.size = size
        try:
            ip("netns", "add", self.space("hub"))
            ip("-n", self.space("hub"), "link", "add", "hub", "type", "bridge")
            ip("-n", self.space("hub"), "link", "set", "hub", "up")
            for rank in range(size):
                space = self.space(rank)
                ip("netns", "add", space)
                ip("-n", self.space("hub"), "link", "add", f"to{rank}", "type", "veth", "peer", "name", "eth0", "netns", space)
                ip("-n", self.space("hub"), "link", "set", f"to{rank}", "master", "hub", "up")
                ip("-n", space, "addr", "add", f"{self.address(rank)}/24", "dev", "eth0")
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    def space(self, of):
        return f"{self.tag}-{of}"

    def address(self, rank):
        return f"{self.subnet}.{rank + 1}"

    def prefix(self, rank):
        return ["ip", "netns", "exec", self.space(rank)]

    def cut(self, rank):
        ip("-n", self.space("hub"), "link", "set", f"to{rank}", "down")

    def disturb(self, rank, kind):
        subprocess.run(["ip", "netns", "exec", self.space(rank), "tc", "qdisc", "add", "dev", "eth0", "root", "netem",
                        *NETEM[kind]], check=True, capture_output=True, text=True)

    def close(self):
        for of in ["hub", *range(self.size)]:
            subprocess.run(["ip", "netns", "del", self.space(of)], capture_output=True)


@functools.lru_cache
def what_is_missing():
    """By kind of fault, why it cannot be had here; "" where it can."""
    out = dict.fromkeys(["link", *NETEM], "")
    try:
        network = Network("try", 2)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        return {kind: f"no network namespaces: {reason.strip()}" for kind in out}
    try:
        for kind in NETEM:
            try:
                network.disturb(0, kind)
                subprocess.run(["ip", "netns", "exec", network.space(0), "tc", "qdisc", "del", "dev", "eth0", "root"],
                               check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = (getattr(error, "stderr", None) or str(error)).strip()
                out[kind] = f"no tc netem: {reason}"
    finally:
        network.close()
    return out
