"""PyTorch's side of comparisons: what there is on this machine, and what it calls things."""

import contextlib
import ctypes

try:
    import torch
    WHY_NOT = None
except Exception as error:  # a broken installation raises anything
    torch, WHY_NOT = None, f"PyTorch does not import: {type(error).__name__}: {error}"


class Torch:
    """`rehearsal`: take the CPU, to try the program where there is no GPU; otherwise only CUDA is measured."""

    def __init__(self, rehearsal):
        self.why_not = WHY_NOT
        self.cuda = torch is not None and torch.cuda.is_available()
        if torch is not None and not self.cuda and not rehearsal:
            self.why_not = f"PyTorch {torch.__version__} sees no CUDA device"
        self.device = "cuda" if self.cuda else "cpu"
        self.stream = None
        if self.cuda:
            torch.backends.cudnn.benchmark = True
        elif torch is not None:
            torch.set_num_threads(1)  # a rehearsal beside other tests: threads that wait for cores are slower than one

    def describe(self):
        if torch is None:
            return {"version": None, "reason": self.why_not}
        out = {"version": torch.__version__, "device": self.device, "reason": self.why_not, "threads": torch.get_num_threads()}
        if self.cuda:
            of = torch.cuda.get_device_properties(0)
            out.update(cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), name=of.name, memory_bytes=of.total_memory,
                       multiprocessors=of.multi_processor_count, capability=[of.major, of.minor],
                       uuid=str(getattr(of, "uuid", "")), devices=torch.cuda.device_count())
        return out

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def set_tf32(self, allowed):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed

    def autocast(self, precision):
        if precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision])

    @contextlib.contextmanager
    def on_stream(self):
        """On a stream of our own, where graphs are captured: backward passes run where their forward passes ran."""
        if not self.cuda:
            yield
            return
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)

    def captured(self, body):
        """`body` as a CUDA graph, after three runs of it. Raises RuntimeError where there is none."""
        if not self.cuda:
            raise RuntimeError("CUDA graphs need CUDA")
        with self.on_stream():
            for _ in range(3):
                body()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            body()
        return graph.replay


def exact_values(shape, device, seed):
    """Multiples of 1/128 in [-1, 1], as side_bench draws them: every precision holds them."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(-128, 129, tuple(shape), generator=generator).float() / 128).to(device)


def bytes_of(tensor):
    tensor = tensor.detach().contiguous().cpu()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def as_safetensors(tensors):
    """For arrays.write_safetensors: f32 and i32 tensors by name."""
    kinds = {torch.float32: "F32", torch.int32: "I32"}
    return {name: (kinds[t.dtype], t.shape, bytes_of(t)) for name, t in tensors.items() if t.dtype in kinds}
