#!/usr/bin/env python3
"""Time and loss of llm-compressor's own GPTQ on the experts that quantize_bench wrote, beside those of Trefoil's results.

usage: gptq_reference.py [--threads N] [--matrices w1 w2 ...] EXPERT.safetensors [SAME_EXPERT_OTHER_RECIPE.safetensors ...]

    quantize_bench --recipe stock --write stock.safetensors
    quantize_bench --recipe trefoil --plain --write trefoil.safetensors
    gptq_reference.py stock.safetensors trefoil.safetensors

Runs accumulate_hessian and quantize_weight of the llmcompressor package (0.12.0.1) on the CPU: int3, groups of 64, symmetric,
act order "weight" (static), memoryless_minmax, damping 0.01, tokens 2048 at a time. Every loss is tr(E H E^T) per token, with
the same float64 H for all. Needs llmcompressor, compressed-tensors, torch and safetensors in the Python that runs it.
"""
import argparse
import time

import torch
from compressed_tensors.quantization import ActivationOrdering, QuantizationArgs, QuantizationStrategy
from llmcompressor.modifiers.gptq.gptq_quantize import accumulate_hessian, make_empty_hessian, quantize_weight
from llmcompressor.observers import Observer
from safetensors import safe_open

SEQUENCE = 2048
ARGS = QuantizationArgs(num_bits=3, type="int", symmetric=True, strategy=QuantizationStrategy.GROUP, group_size=64,
                        actorder=ActivationOrdering.WEIGHT, observer="memoryless_minmax")


def load(path, name):
    with safe_open(path, "pt") as file:
        return file.get_tensor(name) if name in file.keys() else None


def timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def module_of(weight):
    module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.bfloat16)
    module.weight.data = weight.clone()
    observer = Observer.load_from_registry("memoryless_minmax", base_name="weight", args=ARGS)
    module.register_module("weight_observer", observer)
    return module


@torch.no_grad()
def hessian_of(module, inputs):
    hessian, samples = make_empty_hessian(module), torch.zeros(tuple())
    for rows in inputs.split(SEQUENCE):
        hessian, samples = accumulate_hessian(rows.unsqueeze(0), module, hessian, samples)
    return hessian / samples


@torch.no_grad()
def solve(module, hessian):
    module.weight_observer(module.weight)
    return quantize_weight(module, ARGS, hessian)[1]["weight"]


@torch.no_grad()
def loss_of(weight, quantized, hessian):
    error = weight.double() - quantized.double()
    return torch.sum(error @ hessian * error).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--matrices", nargs="+", default=["w1", "w2", "w3"])
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.matrices:
        inputs = load(options.files[0], "hidden" if name == "w2" else "latent")
        module = module_of(load(options.files[0], f"{name}.weight"))
        weight = module.weight.data.clone()
        hessian, hessian_wall, hessian_cpu = timed(lambda: hessian_of(module, inputs))
        sequences = len(inputs.split(SEQUENCE))
        judge = hessian.double() * sequences / 2 / inputs.shape[0]  # llm-compressor's is 2 / sequences of the sum
        quantized, solve_wall, solve_cpu = timed(lambda: solve(module, hessian))
        print(f"{name}: {inputs.shape[0]} tokens, {options.threads} threads: Hessian {hessian_wall:.2f} s "
              f"({hessian_cpu:.2f} s of CPU), solve {solve_wall:.2f} s ({solve_cpu:.2f} s of CPU)", flush=True)
        print(f"    llm-compressor  loss {loss_of(weight, quantized, judge):.6e}", flush=True)
        for path in options.files:
            for recipe in ["stock", "trefoil"]:
                ours = load(path, f"{name}.{recipe}")
                if ours is not None:
                    print(f"    {recipe:<15} loss {loss_of(weight, ours, judge):.6e}   ({path})", flush=True)


main()
