"""Adapts a small language model to another kind of text with low-rank adapters (LoRA, Hu et al. 2021).

    pip install . && python samples/python/lora.py     # from the repository, in a virtual environment

A decoder of the Llama family learns the documentation of Python's standard library, character by character. Then its weights
stay as they are, and adapters of its attention learn the library's source code. Both texts come with Python.

With `--peft`, the same adapters are also trained by PyTorch with Hugging Face's PEFT, from the same weights on the same batches,
and the losses and the adapters are compared (`pip install torch transformers peft`). `--quantize 4` keeps the weights that are not
trained in 4 bits; PEFT then gets the rounded ones.
"""

import argparse
import importlib
import inspect
import pathlib
import tempfile

import numpy as np

import echotrain as et

MODULES = ("argparse", "ast", "asyncio.tasks", "collections", "csv", "datetime", "decimal", "difflib", "email.message", "heapq",
           "inspect", "json", "logging", "pathlib", "random", "shutil", "statistics", "string", "subprocess", "tarfile", "textwrap",
           "threading", "typing", "unittest.case", "zipfile")
SYMBOLS, CONTEXT, BATCH = 96, 64, 16  # printable ASCII, and a line's end
SHAPE = {"vocab_size": SYMBOLS, "blocks": 2, "width": 64, "heads": 4, "kv_heads": 2, "ffn_width": 128}
LORA = {"layers": ["*.query", "*.value"], "rank": 8, "alpha": 16}


def encoded(text):
    """Returns symbols 0 to 94 for printable characters, 95 for the end of a line; drops others."""
    numbers = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int32) - 32
    numbers[numbers == ord("\n") - 32] = 95
    return numbers[(numbers >= 0) & (numbers < SYMBOLS)]


def texts():
    """Returns the documentation and the source code of some modules."""
    modules = [importlib.import_module(name) for name in MODULES]
    members = [member for module in modules for _, member in inspect.getmembers(module) if inspect.isclass(member)]
    documents = [inspect.getdoc(each) or "" for each in modules + members]
    documents += [inspect.getdoc(each) or "" for member in members for _, each in inspect.getmembers(member, inspect.isroutine)]
    return encoded("\n".join(dict.fromkeys(documents))), encoded("\n".join(inspect.getsource(module) for module in modules))


def batches(text, count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        windows = np.stack([text[at:at + CONTEXT + 1] for at in rng.integers(0, len(text) - CONTEXT - 1, BATCH)])
        yield {"input": windows[:, :-1].copy(), "target": windows[:, 1:].copy()}


def train(trainer, text, steps, seed):
    """Returns the losses of the steps."""
    losses = []
    for batch in batches(text, steps, seed):
        trainer.step(batch)
        losses += [result.loss for result in trainer.results()]
    return losses + [result.loss for result in trainer.results(wait=True)]


def loss_of(trainer, text):
    """Returns the mean loss, in nats per character, on windows of the text that are always the same."""
    losses = []
    for batch in batches(text, 20, seed=99):
        logits = trainer.predict({"input": batch["input"]}).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        chosen = np.take_along_axis(logits, batch["target"][..., None], -1)[..., 0]
        losses.append(np.mean(np.log(np.exp(logits).sum(-1)) - chosen))
    return float(np.mean(losses))


def bytes_below(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("weights.safetensors"))


def peft_side(weights, text, steps):
    """Trains the same adapters with PEFT; returns its losses and adapters, in our layout and by our names."""
    import peft
    import torch
    import transformers

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=SYMBOLS, hidden_size=SHAPE["width"], intermediate_size=SHAPE["ffn_width"], num_hidden_layers=SHAPE["blocks"],
        num_attention_heads=SHAPE["heads"], num_key_value_heads=SHAPE["kv_heads"], rms_norm_eps=1e-5, rope_theta=10000.0,
        max_position_embeddings=CONTEXT, tie_word_embeddings=False, attention_dropout=0.0))
    theirs = {"embedding.weight": "model.embed_tokens.weight", "norm.gamma": "model.norm.weight", "output.weight": "lm_head.weight"}
    parts = {"attend.norm.gamma": "input_layernorm.weight", "feed.norm.gamma": "post_attention_layernorm.weight",
             **{f"attend.attention.{ours}.weight": f"self_attn.{name}_proj.weight"
                for ours, name in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))},
             **{f"feed.{name}.weight": f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}}
    for block in range(SHAPE["blocks"]):
        theirs |= {f"layers.{block}.{ours}": f"model.layers.{block}.{name}" for ours, name in parts.items()}
    state = {name: torch.tensor(weights[ours].T if weights[ours].ndim == 2 and ours != "embedding.weight" else weights[ours])
             for ours, name in theirs.items()}
    model.load_state_dict(state)
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=LORA["rank"], lora_alpha=LORA["alpha"], lora_dropout=0.0, target_modules=["q_proj", "v_proj"]))
    adapters = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:  # base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight
            block = name.split(".layers.")[1].split(".")[0]
            part = "query" if ".q_proj." in name else "value"
            ours = f"layers.{block}.attend.attention.{part}.lora_{'a' if '.lora_A.' in name else 'b'}"
            adapters[ours] = parameter
            with torch.no_grad():
                parameter.copy_(torch.tensor(weights[ours].T))
    optimizer = torch.optim.AdamW(adapters.values(), 1e-3, weight_decay=0.01)
    losses = []
    for batch in batches(text, steps, seed=2):
        logits = model(input_ids=torch.tensor(batch["input"]).long()).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(batch["target"]).long().flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: parameter.detach().numpy().T for name, parameter in adapters.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="of the base; its adapters get a third of them")
    parser.add_argument("--quantize", type=int, choices=(0, 4, 8), default=0, help="bits of the weights that stay as they are; 0: 32")
    parser.add_argument("--peft", action="store_true", help="compare with PyTorch and PEFT")
    parser.add_argument("--device", default=None, help="the device's number or a part of its name")
    arguments = parser.parse_args()
    et.prefer_wide_cpu_vectors()
    documentation, code = texts()
    device, few = arguments.device, max(1, arguments.steps // 3)

    base = et.Trainer(et.Model(et.models.llama(**SHAPE)), et.optimizers.adamw(), 3e-3, seed=1, device=device)
    train(base, documentation, arguments.steps, seed=1)
    print(f"the base:      {loss_of(base, documentation):.3f} nats per character of documentation, {loss_of(base, code):.3f} of code")

    adapted = et.Trainer(et.Model(et.models.llama(**SHAPE), lora=LORA, quantize=arguments.quantize),
                         et.optimizers.adamw(weight_decay=0.01), 1e-3, device=device)
    adapted.predict({"input": np.zeros((1, CONTEXT), np.int32)})  # makes its weights
    adapted.set_weights(base.weights())
    start = adapted.weights()
    losses = train(adapted, code, few, seed=2)
    print(f"with adapters: {loss_of(adapted, documentation):.3f} nats per character of documentation, {loss_of(adapted, code):.3f} of code")
    with tempfile.TemporaryDirectory() as folder:
        for name, trainer in (("base", base), ("adapters", adapted)):
            trainer.save(f"{folder}/{name}")
        print(f"weights in a checkpoint: {bytes_below(folder + '/base'):,} bytes of the base, "
              f"{bytes_below(folder + '/adapters'):,} of the adapters")

    if arguments.peft:
        theirs, adapters = peft_side(start, code, few)
        ours = adapted.weights()
        by_loss = max(abs(a - b) / b for a, b in zip(losses, theirs))
        by_weight = max(np.abs(ours[name] - value).max() / np.abs(value).max() for name, value in adapters.items())
        print(f"beside PEFT, {few} steps: losses differ by at most {by_loss:.1e} of themselves, adapters by {by_weight:.1e} of "
              "their largest value")
        if not (by_loss < 1e-4 and by_weight < 1e-2):
            raise SystemExit("lora.py: EchoTrain and PEFT disagree")


if __name__ == "__main__":
    main()
