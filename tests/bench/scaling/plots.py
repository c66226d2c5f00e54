"""The figures of docs/scaling.md."""

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot

import cost
import scaling
import workloads

COLORS = {10: "#d1495b", 100: "#2a6fbb", 400: "#3a7d44"}
GREY = "#666666"


def style(axis, x, y):
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def save(figure, folder, name):
    figure.tight_layout()
    figure.savefig(pathlib.Path(folder) / name, dpi=130)


def doublings(axis, sizes):
    axis.set_xscale("log", base=2)
    axis.set_xticks([n for n in sizes if n in (1, 4, 16, 64, 256, 1024)])
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axis.minorticks_off()


def efficiency(folder):
    sizes = [2**n for n in range(11)]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axis, workload in zip(axes, (scaling.RESNET, scaling.TRANSFORMER)):
        examples = scaling.GLOBAL[workload.name]
        for g in scaling.NETWORKS:
            for kind, line in (("data", ":"), ("all three", "-")):
                found = [(n, scaling.tuned(workload, examples, n, g, kind)) for n in sizes]
                points = [(n, 100 * best[1]) for n, best in found if best]
                axis.plot(*zip(*points), line, color=COLORS[g], linewidth=2, label=f"{g} Gbit/s" if line == "-" else None)
        doublings(axis, sizes)
        axis.set_title(f"{workload.name}\n{examples:,} examples a step", fontsize=10)
        style(axis, "machines", "")
        axis.set_ylim(0, 103)
    axes[0].set_ylabel("of ideal speed, %")
    axes[0].plot([], [], ":", color=GREY, label="data parallel only")
    axes[0].plot([], [], "-", color=GREY, label="the best mesh")
    axes[0].legend(frameon=False, fontsize=9)
    save(figure, folder, "scaling_efficiency.png")


def traffic(folder):
    """What a machine sends in a step, by the model's size: 64 machines, 512 sequences."""
    widths = (512, 1024, 2048, 3072, 4096, 6144)
    models = [workloads.transformer(depth=18, width=width, heads=16) for width in widths]
    own, size = 512 // 64, 64
    data = [2 * 63 / 64 * m.parameters * cost.GRADIENT_BYTES for m in models]
    pipeline = [2 * 512 * m.layers[1].output * 2 for m in models]  # all examples pass each cut, there and back
    # All machines take part in all of a layer's products, of all examples.
    tensor = [2 * 63 / 64 * 4 * 18 * 512 * m.layers[1].output * 2 for m in models]
    figure, axis = pyplot.subplots(figsize=(6, 3.8))
    billions = [m.parameters / 1e9 for m in models]
    for values, label, color in ((tensor, "tensor", COLORS[400]), (pipeline, "pipeline", COLORS[100]), (data, "data parallel", COLORS[10])):
        axis.loglog(billions, [v / 1e9 for v in values], "o-", color=color, linewidth=2, markersize=4)
        axis.annotate(label, (billions[-1], values[-1] / 1e9), xytext=(6, -3), textcoords="offset points", color=color)
    axis.set_xlim(right=billions[-1] * 2.6)
    axis.set_title("64 machines in one way each, 512 sequences a step", fontsize=10)
    style(axis, "parameters, billions", "GB that a machine sends in a step")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    save(figure, folder, "scaling_traffic.png")


def fit(folder):
    """Speed by the model's size, with and without model parallelism: 64 machines, 100 Gbit/s, 512 sequences."""
    sizes = ((12, 768), (24, 1024), (18, 2048), (24, 2560), (32, 2560), (32, 3072), (32, 4096), (40, 5120), (60, 6144))
    models = [workloads.transformer(depth, width, heads=16) for depth, width in sizes]
    figure, axis = pyplot.subplots(figsize=(6, 3.8))
    lines = (("data", 0, "data parallel", COLORS[10], "o"), ("data", 2, "data parallel, sharded state", "#e6a23c", "s"),
             ("all three", 0, "data × pipeline × tensor", COLORS[100], "^"))
    for kind, sharded, label, color, mark in lines:
        points = []
        for model in models:
            found = cost.best(model, 512, 64, scaling.machine(100), sharded, scaling.KINDS[kind])
            if found:
                points.append((model.parameters / 1e9, 100 * cost.efficiency(model, 512, 64, found[1].seconds, scaling.machine(100))))
        axis.semilogx(*zip(*points), mark + "-", color=color, linewidth=2, markersize=5, label=label)
        if points[-1][0] < models[-1].parameters / 1e9:
            axis.annotate("larger ones\ndo not fit", points[-1], xytext=(0, -28), textcoords="offset points", color=color,
                          fontsize=8, ha="center")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_ylim(0, 103)
    axis.set_title("64 machines of 80 GB, 100 Gbit/s, 512 sequences a step", fontsize=10)
    style(axis, "parameters, billions", "of ideal speed, %")
    axis.legend(frameon=False, fontsize=9, loc="lower left")
    save(figure, folder, "scaling_fit.png")


def measured(folder, path):
    steps = json.loads(pathlib.Path(path).read_text())["steps"]
    sizes = sorted({step["parameters"] for step in steps})
    figure, axes = pyplot.subplots(1, len(sizes), figsize=(2.5 * len(sizes), 3))
    for axis, size in zip(axes, sizes):
        of = [step for step in steps if step["parameters"] == size]
        ranks = [step["ranks"] for step in of]
        axis.plot(ranks, [1e3 * step["alone"] for step in of], "--", color="#6b7280", linewidth=1.5, label="computation alone")
        axis.plot(ranks, [1e3 * step["model"] for step in of], color=COLORS[100], linewidth=2, label="model")
        axis.plot(ranks, [1e3 * step["measured"] for step in of], "o", color=COLORS[10], label="measured")
        axis.set_title(f"{size / 1e6:.1f} million parameters", fontsize=9)
        axis.set_xticks(ranks)
        axis.set_ylim(0, 1.08e3 * max(step["measured"] for step in of))
        style(axis, "ranks", "")
    axes[0].set_ylabel("ms a step")
    axes[-1].legend(frameon=False, fontsize=9, loc="lower right")
    save(figure, folder, "scaling_measured.png")


def draw(folder, path=None):
    efficiency(folder)
    traffic(folder)
    fit(folder)
    if path:
        measured(folder, path)
