#!/usr/bin/env python3
"""Runs a benchmark with a PyTorch that pretends to have CUDA, and computes on the CPU: tries, where there is no GPU, the ways that
the benchmarks take where there is one (streams, graphs, torch.compile). Of rehearsals; its figures mean nothing.

    python3 pretend_cuda.py BENCHMARK.py ARGUMENT ...
"""

import contextlib
import pathlib
import runpy
import sys
import types

import torch


class Stream:
    def wait_stream(self, other):
        assert isinstance(other, Stream)


class Graph:
    """Runs once more what ran while it was captured; that is the benchmark's to say, so replays do nothing."""

    def replay(self):
        pass


@contextlib.contextmanager
def graph(of, stream=None):
    assert isinstance(of, Graph) and (stream is None or isinstance(stream, Stream))
    yield


def pretend():
    properties = types.SimpleNamespace(name="no GPU", total_memory=0, multi_processor_count=0, major=0, minor=0)
    for name, value in {"is_available": lambda: True, "synchronize": lambda: None, "Stream": Stream, "CUDAGraph": Graph,
                        "current_stream": Stream, "stream": lambda stream: contextlib.nullcontext(), "graph": graph,
                        "empty_cache": lambda: None, "device_count": lambda: 1,
                        "get_device_properties": lambda device: properties}.items():
        setattr(torch.cuda, name, value)
    torch.compile = lambda function: function  # the real one would look for CUDA
    sys.path.insert(0, str(pathlib.Path(sys.argv[1]).resolve().parent))
    import torch_side
    made = torch_side.Torch.__init__

    def on_the_cpu(self, rehearsal):
        made(self, rehearsal)
        self.device = "cpu"

    torch_side.Torch.__init__ = on_the_cpu


if __name__ == "__main__":
    pretend()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
