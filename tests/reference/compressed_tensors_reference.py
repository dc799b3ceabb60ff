"""Compares Trefoil's packed formats with the installed compressed-tensors package, bit for bit and in both directions.

usage: compressed_tensors_reference.py TABLES.safetensors [CHECKPOINT DECODED.safetensors]...

TABLES and DECODED come from trefoil_reference_data (reference_data.cpp). Each line printed is one comparison and what was
compared; the exit status is 1 when any differs. A 3-bit checkpoint in the layout the package's version does not know is
left out, and said to be: no version reads the other's layout, nor notices.
"""

import json
import pathlib
import sys

import torch
from safetensors import safe_open

import compressed_tensors
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.utils.match import is_match

VERSION = compressed_tensors.__version__
LAYOUT = "dense" if tuple(map(int, VERSION.split(".")[:2])) >= (0, 18) else "padded"
ALIASES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
failures = 0


def report(what, holds, count):
    global failures
    failures += not holds
    print(f"  {'ok  ' if holds else 'FAIL'}  {what}: {count}", flush=True)


def same_bits(a, b):
    """Equality of bits, so that -0 differs from 0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    as_integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.contiguous().view(as_integers), b.contiguous().view(as_integers))


def integer_scheme(num_bits, group_size):
    return QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(num_bits=num_bits, type="int", symmetric=True, strategy="group", group_size=group_size),
    )


def mxfp4_scheme():
    return QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(
            num_bits=4, type="float", symmetric=True, strategy="group", group_size=32, scale_dtype=torch.uint8
        ),
    )


# ---- tables ----


def dequantize_integers(codes, scale, args):
    """The package's dequantization; newer versions want to be told the arguments, older ones do not know the parameter."""
    try:
        return dequantize(x_q=codes, scale=scale, args=args)
    except TypeError:
        return dequantize(x_q=codes, scale=scale)


def compare_products(tables):
    scale = tables.get_tensor("product.scale")
    expected = tables.get_tensor("product.weight")
    codes = torch.arange(-128, 128, dtype=torch.int8).repeat(scale.shape[0], 1)
    args = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="group", group_size=codes.shape[1])
    ours = dequantize_integers(codes, scale, args)
    report("bf16(code) * scale, every finite bf16 scale, 8-bit codes", same_bits(ours, expected), f"{expected.numel():,} products")


def compare_mxfp4_table(tables):
    state = {name: tables.get_tensor("mxfp4." + name) for name in ("weight_packed", "weight_scale")}
    expected = tables.get_tensor("mxfp4.weight")
    decoded = MXFP4PackedCompressor.decompress(state, mxfp4_scheme())["weight"]
    report("MXFP4, every byte under every scale that stays finite", same_bits(decoded, expected), f"{expected.numel():,} values")


def compare_rows(tables):
    packed_equal = unpacked_equal = True
    count = 0
    for name in tables.keys():
        if not name.endswith(".codes"):
            continue
        num_bits = int(name.split(".")[1])
        codes = tables.get_tensor(name)
        words = tables.get_tensor(name.replace("codes", LAYOUT))
        packed_equal &= same_bits(pack_to_int32(codes, num_bits), words)
        unpacked_equal &= same_bits(unpack_from_int32(words, num_bits, codes.shape), codes)
        count += 1
    report(f"packing 2, 3, 4, 8 bits, widths 1 to 130, {LAYOUT}", packed_equal, f"{count} matrices")
    report(f"unpacking the same, {LAYOUT}", unpacked_equal, f"{count} matrices")


# ---- checkpoints ----


class Checkpoint:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text())
        index = json.loads((self.folder / "model.safetensors.index.json").read_text())
        self.shard_of = index["weight_map"]
        self.open = {shard: safe_open(self.folder / shard, "pt") for shard in set(self.shard_of.values())}

    def tensor(self, name):
        return self.open[self.shard_of[name]].get_tensor(name)

    def shape(self, name):
        return self.open[self.shard_of[name]].get_slice(name).get_shape()

    def packed_modules(self):
        return sorted(name.removesuffix(".weight_packed") for name in self.shard_of if name.endswith(".weight_packed"))

    def quantization(self):
        return self.config.get("quantization_config") or self.config["text_config"]["quantization_config"]


def is_other_layout(checkpoint, weights):
    if weights["type"] != "int" or weights["num_bits"] != 3:
        return False
    module = checkpoint.packed_modules()[0]
    columns = int(checkpoint.tensor(module + ".weight_shape")[1])
    words = checkpoint.shape(module + ".weight_packed")[1]
    layout = "padded" if words == -(-columns // 10) else "dense"
    return layout != LAYOUT


def compare_integer_linears(checkpoint, decoded, weights):
    scheme = integer_scheme(weights["num_bits"], weights["group_size"])
    decompressed = compressed = packed = True
    num_bits = weights["num_bits"]
    for module in checkpoint.packed_modules():
        names = ("weight_packed", "weight_scale", "weight_shape")
        state = {name: checkpoint.tensor(f"{module}.{name}") for name in names}
        weight = PackedQuantizationCompressor.decompress(state, scheme)["weight"]
        decompressed &= same_bits(weight, decoded.get_tensor(module + ".weight"))
        codes = unpack_from_int32(state["weight_packed"], num_bits, torch.Size(state["weight_shape"]))
        packed &= same_bits(pack_to_int32(codes, num_bits), state["weight_packed"])
        again = PackedQuantizationCompressor.compress({"weight": weight, "weight_scale": state["weight_scale"]}, scheme)
        compressed &= all(same_bits(again[name], state[name]) for name in names)
    count = f"{len(checkpoint.packed_modules())} Linears"
    report("the package decompresses what we wrote to our bits", decompressed, count)
    report("the package packs those codes to our words", packed, count)
    if num_bits <= 4:  # an 8-bit code times a scale, rounded to bf16, does not always give the code back
        report("the package compresses those weights to our bytes", compressed, count)


def compare_mxfp4_linears(checkpoint, decoded):
    equal = True
    for module in checkpoint.packed_modules():
        state = {name: checkpoint.tensor(f"{module}.{name}") for name in ("weight_packed", "weight_scale")}
        weight = MXFP4PackedCompressor.decompress(state, mxfp4_scheme())["weight"]
        equal &= same_bits(weight, decoded.get_tensor(module + ".weight"))
    report("the package decompresses MXFP4 to our bits", equal, f"{len(checkpoint.packed_modules())} Linears")


def aliases_of(module):
    parent, _, name = module.rpartition(".")
    return [module, f"{parent}.{ALIASES[name]}"] if name in ALIASES else [module]


def compare_matching(checkpoint, config):
    """Every Linear with packed weights is matched and not ignored, every other one is not, by the package's own rule."""
    linear = torch.nn.Linear(1, 1, device="meta")
    targets = [target for scheme in config.config_groups.values() for target in scheme.targets]
    wrong, count = [], 0
    for name in checkpoint.shard_of:
        is_packed = name.endswith(".weight_packed")
        is_plain = name.endswith(".weight") and not name.endswith("embed_tokens.weight") and len(checkpoint.shape(name)) == 2
        if not is_packed and not is_plain:
            continue
        for module in aliases_of(name.rpartition(".")[0]):
            count += 1
            if is_match(module, linear, targets, config.ignore) != is_packed:
                wrong.append(module)
    report("the package's matching agrees with the tensors, aliases included", not wrong, f"{count} names {wrong[:3] or ''}")


def compare_config(checkpoint):
    quantization = checkpoint.quantization()
    try:
        config = QuantizationConfig.model_validate(quantization)
        report("compressed_tensors.QuantizationConfig accepts the config", True, f"version {quantization.get('version')}")
    except Exception as error:  # whatever the package raises is the finding
        report("compressed_tensors.QuantizationConfig accepts the config", False, error)
        return
    if checkpoint.config.get("quantization_config"):  # the release's own ignore list is known to be incomplete
        compare_matching(checkpoint, config)
    try:
        from transformers.utils.quantization_config import CompressedTensorsConfig
    except ImportError as error:
        print(f"  skip  transformers.CompressedTensorsConfig: {error}")
        return
    try:
        CompressedTensorsConfig.from_dict(dict(quantization))
        report("transformers.CompressedTensorsConfig accepts the config", True, quantization["format"])
    except Exception as error:
        report("transformers.CompressedTensorsConfig accepts the config", False, error)


def compare_checkpoint(folder, decoded_file):
    checkpoint = Checkpoint(folder)
    weights = next(iter(checkpoint.quantization()["config_groups"].values()))["weights"]
    print(f" {pathlib.Path(folder).name}: {weights['type']}{weights['num_bits']} group {weights['group_size']}")
    compare_config(checkpoint)
    if is_other_layout(checkpoint, weights):
        print(f"  skip  the bytes: compressed-tensors {VERSION} knows 3 bits in the {LAYOUT} layout only")
        return
    with safe_open(decoded_file, "pt") as decoded:
        if weights["type"] == "float":
            compare_mxfp4_linears(checkpoint, decoded)
        else:
            compare_integer_linears(checkpoint, decoded, weights)


def main():
    torch.set_num_threads(1)  # the matrices are small: threads would only wait for each other
    print(f"compressed-tensors {VERSION}, torch {torch.__version__}")
    with safe_open(sys.argv[1], "pt") as tables:
        print(" codecs")
        compare_products(tables)
        compare_mxfp4_table(tables)
        compare_rows(tables)
    rest = sys.argv[2:]
    for folder, decoded in zip(rest[::2], rest[1::2]):
        compare_checkpoint(folder, decoded)
    print(f" {'FAILED: ' + str(failures) + ' comparisons differ' if failures else 'all equal'}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
