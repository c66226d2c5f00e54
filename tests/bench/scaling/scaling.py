#!/usr/bin/env python3
"""Tables and plots of docs/scaling.md.

    scaling.py tables                       Markdown
    scaling.py plots FOLDER [MEASURED.json]  what measure.py --json wrote; needs matplotlib
"""

import functools
import sys
from dataclasses import replace

import cost
import workloads

NETWORKS = (10, 100, 400)  # Gbit/s
SIZES = (8, 64, 1000)
# An accelerator that sustains 100 TFLOP/s, of 80 GB, behind PCIe 4.0 x16: assumed.
ACCELERATOR = cost.Machine(flops=100e12, memory=80e9, host=24e9, network=0, latency=30e-6)
RESNET, TRANSFORMER = workloads.resnet50(), workloads.transformer()
BY_MACHINE = {RESNET.name: 256, TRANSFORMER.name: 8}  # examples of a step
GLOBAL = {RESNET.name: 8192, TRANSFORMER.name: 512}
KINDS = {
    "data": lambda mesh: mesh.pipeline == mesh.tensor == 1,
    "data × pipeline": lambda mesh: mesh.tensor == 1,
    "data × tensor": lambda mesh: mesh.pipeline == 1,
    "all three": lambda mesh: True,
}


def machine(gigabits):
    return replace(ACCELERATOR, network=gigabits * 1e9 / 8)


@functools.lru_cache(None)
def default(workload, examples, size, gigabits):
    """Efficiency of data parallelism as it comes: 4 MB buckets, a ring."""
    plan = cost.Plan(cost.Mesh(size))
    return cost.efficiency(workload, examples, size, cost.step(workload, examples, plan, machine(gigabits)).seconds, machine(gigabits))


@functools.lru_cache(None)
def tuned(workload, examples, size, gigabits, kind, sharded=0):
    """(Plan, efficiency) of the best mesh of a kind; None where nothing fits."""
    found = cost.best(workload, examples, size, machine(gigabits), sharded, KINDS[kind])
    return found and (found[0], cost.efficiency(workload, examples, size, found[1].seconds, machine(gigabits)))


def percent(share):
    return f"{100 * share:.0f} %"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def weak_table(workload):
    examples = BY_MACHINE[workload.name]
    rows = [[f"{size:,}"] + [f"{percent(default(workload, examples * size, size, g))}, "
                             f"{percent(tuned(workload, examples * size, size, g, 'data')[1])}" for g in NETWORKS]
            for size in SIZES]
    table(["machines", *(f"{g} Gbit/s" for g in NETWORKS)], rows)


def mesh_cell(workload, size, gigabits):
    found = tuned(workload, GLOBAL[workload.name], size, gigabits, "all three")
    return f"{percent(found[1])} ({found[0].mesh})"


def strong_table(workload):
    rows = []
    for size in SIZES:
        row = [f"{size:,}"]
        for g in NETWORKS:
            data = tuned(workload, GLOBAL[workload.name], size, g, "data")
            row.append(f"{percent(data[1]) if data else 'none'}; {mesh_cell(workload, size, g)}")
        rows.append(row)
    table(["machines", *(f"{g} Gbit/s" for g in NETWORKS)], rows)


def last_that_pays(workload, gigabits, kind, least=0.5):
    """The most machines, a power of two, up to which each doubling kept at least half of the ideal speed."""
    paying = 1
    for size in (2**n for n in range(1, 13)):
        found = tuned(workload, GLOBAL[workload.name], size, gigabits, kind)
        if not found or found[1] < least:
            break
        paying = size
    return paying


def paying_table(workload):
    rows = [[kind, *(f"{last_that_pays(workload, g, kind):,}" for g in NETWORKS)] for kind in KINDS]
    table(["parallelism", *(f"{g} Gbit/s" for g in NETWORKS)], rows)


def tables():
    for workload in (RESNET, TRANSFORMER):
        print(f"### {workload.name}\n\nData parallel, {BY_MACHINE[workload.name]} examples a machine: as it comes, and tuned\n")
        weak_table(workload)
        print(f"{GLOBAL[workload.name]:,} examples in all: data parallel; the best mesh (data × pipeline × tensor)\n")
        strong_table(workload)
        print("The most machines that are at least half used\n")
        paying_table(workload)


if __name__ == "__main__":
    if sys.argv[1:2] == ["tables"]:
        tables()
    elif sys.argv[1:2] == ["plots"] and len(sys.argv) in (3, 4):
        import plots

        plots.draw(*sys.argv[2:])
    else:
        sys.exit(__doc__)
