#!/usr/bin/env python3
"""Checks the house rules that clang-tidy does not know. Prints every violation and exits 1 when there is one.

  layering   a folder of src/ includes only what src/README.md allows, src/cli only include/trefoil
  printing   only src/cli writes to stdout or stderr (base/check.h, which reports and aborts, aside)
  files      only src/checkpoint and src/stream open files (base and plan read /sys and /proc for the machine's own
             facts, cli reads a prompt and the hub cache's reference)
  one type   no two types of the same name in namespace trefoil: the linker keeps one destructor of the two without a word
  isa        *_avx2.cpp and *_avx512*.cpp include their family's headers (x.h, x_impl.h, x_avx512.h) and nothing else
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "checkpoint": {"base", "tensor"},
    "stream": {"base", "tensor", "checkpoint"},
    "plan": {"base", "tensor", "checkpoint"},
    "kernels": {"base", "tensor"},
    "tokenizer": {"base", "tensor", "checkpoint"},
    "chat": {"base", "tensor", "checkpoint", "tokenizer"},
    "text": {"base", "tensor", "checkpoint", "tokenizer", "chat"},
    "model": {"base", "tensor", "checkpoint", "plan", "stream", "kernels", "tokenizer"},
    "conversation": {"base", "tensor", "checkpoint", "kernels", "tokenizer", "chat", "model"},
    "quantize": {"base", "tensor", "checkpoint", "plan", "kernels", "tokenizer", "chat", "text", "model"},
    "eval": {"base", "tensor", "checkpoint", "kernels", "tokenizer", "chat", "text", "model"},
    # Writes with checkpoint alone; its tests run what it wrote.
    "synthetic": {"base", "tensor", "checkpoint", "kernels", "tokenizer", "model"},
    "bench": {"base", "tensor", "checkpoint", "plan", "stream", "kernels", "tokenizer", "model"},
    # Its module sees one header of C types, and the MPI's.
    "mpi": {"base"},
    "cli": set(),
}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)
PRINTS = re.compile(r"\bstd::(cout|cerr|clog)\b|\b(?:std::)?(?:printf|fprintf|puts|fputs)\s*\(|\bfmt::print\b")
OPENS = re.compile(r"\bstd::[io]?fstream\b|\b(?:std::)?fopen\s*\(|(?<!\w)::open\s*\(")
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)\s*(?:final\s*)?(?:\{|:(?!:))", re.M)
ANONYMOUS = re.compile(r"^namespace \{.*?^\}  // namespace$", re.M | re.S)


def types_defined_twice():
    places = {}
    for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "include").rglob("*.h")]):
        if path.suffix in {".h", ".cpp"}:
            for type_name in TYPE.findall(ANONYMOUS.sub("", path.read_text())):
                places.setdefault(type_name, []).append(str(path.relative_to(ROOT)))
    for type_name, paths in places.items():
        if len(paths) > 1:
            yield f"{type_name} is defined in {' and in '.join(paths)}"


def violations():
    yield from types_defined_twice()
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        folder = path.relative_to(ROOT / "src").parts[0]
        name, text = path.relative_to(ROOT), path.read_text()
        for include in INCLUDE.findall(text):
            layer = include.split("/")[0]
            if layer in ALLOWED and layer != folder and layer not in ALLOWED[folder]:
                yield f"{name}: {folder} may not include {include}"
        if path.stem.endswith("_test"):
            continue
        if folder != "cli" and path.name != "check.h" and PRINTS.search(text):
            yield f"{name}: prints"
        if folder not in {"checkpoint", "stream", "base", "plan", "cli"} and OPENS.search(text):
            yield f"{name}: opens a file"
        isa = re.search(r"_(avx2|avx512)(vnni|bf16|)$", path.stem)
        if isa:
            family = path.stem[: isa.start()]
            for include in INCLUDE.findall(text):
                if pathlib.Path(include).stem not in {family, family + "_impl", f"{family}_{isa[1]}"}:
                    yield f"{name}: includes {include}"


found = list(violations())
print("\n".join(found) if found else "rules: clean")
sys.exit(1 if found else 0)
