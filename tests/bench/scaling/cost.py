"""How long a training step takes on several machines, and how much memory it needs.

The formulas, with n ranks, latency a of a message and B bytes a second:

  all-reduce of b bytes   ring:                  2 (n - 1) a + 2 (n - 1) / n * b / B
                          halving and doubling:  2 log2(n) a + 2 (n - 1) / n * b / B
  data parallel           gradients go in buckets, in the order in which the backward pass finishes them. One bucket is on its way
                          at a time; what is left when the backward pass has ended is exposed
  pipeline of p stages    m micro-batches take (m + p - 1) turns (Huang et al. 2019)
  tensor over t machines  two all-reduces of a block's output in its forward pass and two in its backward pass, none of
                          them hidden (Shoeybi et al. 2019)
"""

import math
from dataclasses import dataclass, replace

GRADIENT_BYTES = 4
STATE_BYTES = {"weights": 4, "gradients": 4, "optimizer": 8}  # a parameter's; Adam has two moments


@dataclass(frozen=True)
class Machine:
    flops: float  # a second, as training sustains them
    memory: float  # bytes of the device
    host: float  # bytes a second that an exchange moves at most: between device and host, and through the sum on the host
    network: float  # bytes a second, each way
    latency: float  # seconds for a message, with what starts it
    number_bytes: int = 2  # of activations
    overlaps: bool = True  # exchanges go on beside computation; not where a CPU does both

    def bandwidth(self):
        return min(self.host, self.network)


@dataclass(frozen=True)
class Mesh:
    data: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def size(self):
        return self.data * self.pipeline * self.tensor

    def __str__(self):
        return f"{self.data} × {self.pipeline} × {self.tensor}"


@dataclass(frozen=True)
class Plan:
    mesh: Mesh = Mesh()
    micro_batches: int = 1
    bucket: float = 4e6  # bytes
    algorithm: str = "ring"  # or "halving"
    sharded: int = 0  # 1: the optimizer's state over the data-parallel ranks (ZeRO), 2: gradients, too


@dataclass(frozen=True)
class Step:
    seconds: float
    compute: float  # of it, what a machine computes
    memory: float  # bytes of a machine


def all_reduce(size, ranks, machine, algorithm="ring"):
    if ranks == 1:
        return 0.0
    messages = 2 * (ranks - 1) if algorithm == "ring" else 2 * math.ceil(math.log2(ranks))
    return messages * machine.latency + 2 * (ranks - 1) / ranks * size / machine.bandwidth()


def buckets(layers, size):
    """(parameters, share of the backward pass after which they are final) of each bucket, in that order."""
    total = sum(layer.flops for layer in layers) or 1.0
    out, waiting, done = [], 0, 0.0
    for layer in reversed(layers):
        done += layer.flops
        waiting += layer.parameters
        if waiting * GRADIENT_BYTES >= size:
            out.append((waiting, done / total))
            waiting = 0
    return out + [(waiting, 1.0)] if waiting else out


def exposed(layers, backward, plan, machine):
    """Seconds from the end of the backward pass to that of the last exchange of gradients."""
    end = 0.0
    for parameters, share in buckets(layers, plan.bucket * plan.mesh.tensor):
        ready = share * backward if machine.overlaps else backward
        size = parameters / plan.mesh.tensor * GRADIENT_BYTES
        end = max(end, ready) + all_reduce(size, plan.mesh.data, machine, plan.algorithm)
    return max(0.0, end - backward)


def stages(layers, count):
    """Contiguous parts of about the same work."""
    total, done, parts = sum(layer.flops for layer in layers), 0.0, [[] for _ in range(count)]
    for layer in layers:
        middle = (done + layer.flops / 2) / total
        parts[min(count - 1, int(middle * count))].append(layer)
        done += layer.flops
    return parts


def stage_step(layers, examples, plan, machine):
    """One stage's part of a step on `examples` of one replica."""
    mesh, micro = plan.mesh, examples / plan.micro_batches
    forward = sum(layer.flops for layer in layers) * micro / mesh.tensor / machine.flops
    compute = 3 * forward
    output = micro * machine.number_bytes * max((layer.output for layer in layers), default=0)
    # Buckets of 4 MB do not concern these: whole outputs are exchanged.
    joined = 4 * len(layers) * all_reduce(output, mesh.tensor, machine, plan.algorithm)
    passed = 0.0
    if mesh.pipeline > 1:
        passed = 2 * (machine.latency + layers[-1].output * micro * machine.number_bytes / machine.bandwidth())
    turn = max(compute + joined, passed) if machine.overlaps else compute + joined + passed
    turns = plan.micro_batches + mesh.pipeline - 1
    seconds = turns * turn + exposed(layers, 2 * forward, plan, machine)
    return Step(seconds, plan.micro_batches * compute, memory(layers, micro, plan, machine))


def memory(layers, micro, plan, machine):
    mesh = plan.mesh
    parts = {"optimizer": mesh.data if plan.sharded >= 1 else 1, "gradients": mesh.data if plan.sharded >= 2 else 1}
    state = sum(size / parts.get(kind, 1) for kind, size in STATE_BYTES.items())
    flying = min(mesh.pipeline, plan.micro_batches)  # one forward, one backward
    kept = sum(layer.kept for layer in layers) * micro * flying * machine.number_bytes
    return (sum(layer.parameters for layer in layers) * state + kept) / mesh.tensor


def step(workload, examples, plan, machine):
    """A step on `examples` in all: that of the slowest stage, and the memory of the largest."""
    own = examples / plan.mesh.data
    parts = [stage_step(part, own, plan, machine) for part in stages(workload.layers, plan.mesh.pipeline) if part]
    mean = sum(part.compute for part in parts) / plan.mesh.pipeline
    return Step(max(part.seconds for part in parts), mean, max(part.memory for part in parts))


def meshes(size, workload):
    for tensor in range(1, min(size, workload.splits) + 1):
        if size % tensor or workload.splits % tensor:
            continue
        for pipeline in range(1, min(size // tensor, len(workload.layers) // 2) + 1):
            if size // tensor % pipeline == 0:
                yield Mesh(size // tensor // pipeline, pipeline, tensor)


def best(workload, examples, size, machine, sharded=0, allowed=lambda mesh: True):
    """(Plan, Step) of the fastest mesh whose model and activations fit; None where there is none."""
    found = None
    for mesh in filter(allowed, meshes(size, workload)):
        own = examples // mesh.data
        for micro_batches in {m for m in (1, 2, 4, 8, 16, 32, 64, 128) if 0 < m <= own}:
            for bucket in (4e6, 32e6, 256e6):
                plan = Plan(mesh, micro_batches, bucket, sharded=sharded)
                plan = min((plan, replace(plan, algorithm="halving")), key=lambda p: step(workload, examples, p, machine).seconds)
                taken = step(workload, examples, plan, machine)
                if taken.memory <= machine.memory and (found is None or taken.seconds < found[1].seconds):
                    found = plan, taken
    return found


def alone(workload, machine):
    """Examples a second of one machine that need not exchange anything."""
    return machine.flops / workload.flops


def efficiency(workload, examples, size, seconds, machine):
    """Examples a second, as a share of what so many machines alone would do."""
    return examples / seconds / (size * alone(workload, machine))
