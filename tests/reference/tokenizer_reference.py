#!/usr/bin/env python3
"""Compares `trefoil tokenize` with the tiktoken package on random texts, in both modes.

    pip install tiktoken==0.14.0
    tests/reference/tokenizer_reference.py --trefoil build/dev/src/cli/trefoil [--model models/tiny-k3] [--texts 300]

tiktoken gets the model's own ranks, special tokens and Kimi-K3's split pattern; the two caps, which lie outside tiktoken,
are applied here. Exits 1 on the first difference, and prints the text.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tiktoken

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "tokenizer"))
from make_split_golden import PATTERN, POOLS  # noqa: E402

MAX_SLICE, MAX_RUN, NUM_SPECIAL = 400_000, 25_000, 256


def load_reference(model: pathlib.Path) -> tiktoken.Encoding:
    ranks = {}
    for line in (model / "tiktoken.model").read_bytes().split(b"\n"):
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    named = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))["added_tokens_decoder"]
    specials = {}
    for token_id in range(len(ranks), len(ranks) + NUM_SPECIAL):
        entry = named.get(str(token_id))
        specials[entry["content"] if entry else f"<|reserved_token_{token_id}|>"] = token_id
    return tiktoken.Encoding("model", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials)


def capped(text: str):
    """The parts the release encodes on their own: slices, and in them runs of one kind up to MAX_RUN."""
    for start in range(0, len(text), MAX_SLICE):
        part = text[start:start + MAX_SLICE]
        begin = run = 0
        for i, char in enumerate(part):
            same = i > 0 and char.isspace() == part[i - 1].isspace()
            run = run + 1 if same else 1
            if run > MAX_RUN:
                yield part[begin:i]
                begin, run = i, 1
        yield part[begin:]


def reference_ids(encoding: tiktoken.Encoding, text: str, mode: str) -> list:
    ids = []
    for part in capped(text):
        ids += encoding.encode(part, allowed_special="all") if mode == "markup" else encoding.encode_ordinary(part)
    return ids


def trefoil_ids(trefoil: str, model: pathlib.Path, text: str, mode: str) -> list:
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        command = [trefoil, "tokenize", str(model), "--file", file.name, "--mode", mode]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def texts(encoding: tiktoken.Encoding, count: int):
    rng = random.Random(20240612)
    markers = sorted(encoding.special_tokens_set)
    words = (ROOT / "text" / "evaluation.jsonl").read_text(encoding="utf-8").split()
    for i in range(count):
        parts = [lambda: rng.choice(rng.choice(POOLS)), lambda: " " + rng.choice(words), lambda: rng.choice(markers),
                 lambda: chr(rng.choice([rng.randrange(1, 0xD800), rng.randrange(0xE000, 0x110000)]))]
        used = parts if i % 2 else parts[:2]
        yield "".join(rng.choice(used)() for _ in range(rng.randint(1, 400)))
    for unit, times in (("ab ", 150_000), ("x", 60_001), (" ", 25_001), ("\x1c", 30_000), ("你好", 30_000), ("a1\n", 140_000)):
        yield unit * times


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trefoil", required=True)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "tiny-k3")
    parser.add_argument("--texts", type=int, default=300)
    args = parser.parse_args()
    encoding = load_reference(args.model)
    compared = 0
    for text in texts(encoding, args.texts):
        for mode in ("text", "markup"):
            ours, theirs = trefoil_ids(args.trefoil, args.model, text, mode), reference_ids(encoding, text, mode)
            compared += len(theirs)
            if ours != theirs:
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
                print(f"{mode} mode differs at id {at}: {ours[at:at + 8]}, expected {theirs[at:at + 8]}\n{ascii(text)[:2000]}")
                return 1
    print(f"tokenizer: {compared} ids equal to tiktoken {tiktoken.__version__}'s, {args.texts} random texts and 6 long ones, both modes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
