"""A rank of PyTorch's DistributedDataParallel on Gloo, or a process that trains alone, for parallel_bench.py and golden/ddp.py.

A line of JSON each way: {"case", "batch_of" (a rank), "rate", "weights" (a file to write), "parallel": {"rank", "size", "rendezvous"}} makes it
ready, {"run": 20} trains so many steps and gives {"seconds", "losses"}, {"save": FILE} writes the state_dict.
"""

import datetime
import json
import sys
import time

import torch
from torch.nn.functional import cross_entropy

import torch_models
from arrays import write_safetensors
from parallel_cases import CASES
from torch_side import as_safetensors


class Side:
    def __init__(self, request):
        torch.manual_seed(1)
        _, (make, arguments), batch = CASES[request["case"]]
        self.model = getattr(torch_models, make)(*arguments).train()
        if "weights" in request:
            self.save(request["weights"])
        self.trained = self._parallel(request["parallel"]) if "parallel" in request else self.model
        self.x, self.target = self._batch(batch(request["batch_of"]))
        self.optimizer = torch.optim.SGD(self.model.parameters(), request["rate"], momentum=0.9, nesterov=True)

    def _parallel(self, of):
        file = of["rendezvous"].removeprefix("file:")
        torch.distributed.init_process_group("gloo", init_method="file://" + file, rank=of["rank"], world_size=of["size"],
                                             timeout=datetime.timedelta(seconds=60))
        return torch.nn.parallel.DistributedDataParallel(self.model)

    @staticmethod
    def _batch(fields):
        kinds = {"F32": torch.float32, "I32": torch.int32}
        tensors = {name: torch.frombuffer(bytearray(data), dtype=kinds[kind]).reshape(shape)
                   for name, (kind, shape, data) in fields.items()}
        if "input" in tensors:
            return tensors["input"].long(), tensors["target"].long()
        return tensors["image"].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last), tensors["label"].long()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        output = self.trained(self.x)
        loss = cross_entropy(output.reshape(-1, output.shape[-1]), self.target.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def run(self, count):
        begin = time.perf_counter()
        losses = [self.step() for _ in range(count)]
        return {"seconds": time.perf_counter() - begin, "losses": losses}

    def save(self, path):
        write_safetensors(path, as_safetensors(self.model.state_dict()))


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    side = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"version": torch.__version__}
        if "case" in request:
            side = Side(request)
        elif "run" in request:
            answer = side.run(request["run"])
        else:
            side.save(request["save"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
