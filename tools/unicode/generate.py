#!/usr/bin/env python3
"""Writes the Unicode tables of src/tokenizer: unicode_table.inc, one class byte for every code point, and
unicode_scripts.inc, the ranges of the Script property.

    python3 -m venv .venv && .venv/bin/pip install -r tools/unicode/requirements.txt
    .venv/bin/python tools/unicode/generate.py

The split pattern of the tokenizer (src/tokenizer/split.h) asks about the General_Category, White_Space and Script=Han
of a code point, and about nothing else; the classes below are the cells that these questions cut Unicode into. The
categories come from unicodedata2 and the scripts from fontTools, both pinned to Unicode 16.0.0 because that is the
version the reference's engine carries: tools/unicode/check_tiktoken.py asks tiktoken about every code point and finds
no difference. White_Space is the list below; it has not changed since Unicode 6.3.

The scripts serve estimates of languages (src/text/script_shares.h), not the tokenizer. Common, Inherited and Unknown
are left out.
"""
import pathlib

import unicodedata2
from fontTools.unicodedata import Scripts, script, script_name

UNICODE = "16.0.0"
BLOCK = 128
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "src" / "tokenizer"
OUT = FOLDER / "unicode_table.inc"
SCRIPTS_OUT = FOLDER / "unicode_scripts.inc"

WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}

# In the order of enum CharClass in src/tokenizer/unicode_class.h.
OTHER, SPACE, NEWLINE, BLANK, UPPER, LOWER, LETTER, MARK, NUMBER, HAN_LETTER, HAN_NUMBER, HAN_OTHER = range(12)


def char_class(code_point: int) -> int:
    if code_point in WHITE_SPACE:
        return NEWLINE if code_point in (0x0A, 0x0D) else SPACE if code_point == 0x20 else BLANK
    char = chr(code_point)
    category = unicodedata2.category(char)
    if script(char) == "Hani":  # the Script property itself, not Script_Extensions
        if category[0] == "L":
            assert category in ("Lo", "Lm"), hex(code_point)
            return HAN_LETTER
        return HAN_NUMBER if category[0] == "N" else HAN_OTHER
    if category in ("Lu", "Lt"):
        return UPPER
    return {"Ll": LOWER, "Lm": LETTER, "Lo": LETTER}.get(category, {"M": MARK, "N": NUMBER}.get(category[0], OTHER))


def check_versions() -> None:
    assert unicodedata2.unidata_version == UNICODE, unicodedata2.unidata_version
    scripts = pathlib.Path(Scripts.__file__).read_text(encoding="utf-8")
    assert f"Scripts-{UNICODE}.txt" in scripts, "fontTools carries another Unicode version"
    # kBlank and its neighbours plus U+001C..U+001F are what Python calls space; src/tokenizer/encode_caps.cpp relies on it.
    spaces = {c for c in range(0x110000) if chr(c).isspace()}
    assert spaces == WHITE_SPACE | set(range(0x1C, 0x20))


def rows(values, per_line: int) -> str:
    lines = [",".join(map(str, values[i:i + per_line])) for i in range(0, len(values), per_line)]
    return ",\n".join("    " + line for line in lines)


def script_ranges():
    """(first, last, script) of the maximal runs of code points with one script."""
    ranges = []
    for code_point in range(0x110000):
        name = script(chr(code_point))
        if name in ("Zyyy", "Zinh", "Zzzz"):
            continue
        if ranges and ranges[-1][2] == name and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point, name])
    return ranges


def write_scripts() -> None:
    ranges = script_ranges()
    scripts = sorted({name for _, _, name in ranges}, key=script_name)
    number = {name: i for i, name in enumerate(scripts)}
    names = rows([f'"{script_name(name)}"' for name in scripts], 6)
    entries = rows([f"{{0x{first:04X},0x{last:04X},{number[name]}}}" for first, last, name in ranges], 5)
    SCRIPTS_OUT.write_text(f"""\
// Made by tools/unicode/generate.py from Unicode {UNICODE}; do not edit. Ranges of code points with a script, ascending.
inline constexpr std::string_view kScriptNames[{len(scripts)}] = {{
{names}}};
inline constexpr ScriptRange kScriptRanges[{len(ranges)}] = {{
{entries}}};
""", encoding="ascii")
    print(f"{SCRIPTS_OUT}: {len(ranges)} ranges of {len(scripts)} scripts")


def main() -> None:
    check_versions()
    write_scripts()
    classes = [char_class(c) for c in range(0x110000)]
    blocks, index, seen = [], [], {}
    for start in range(0, len(classes), BLOCK):
        block = tuple(classes[start:start + BLOCK])
        if block not in seen:
            seen[block] = len(blocks)
            blocks.append(block)
        index.append(seen[block])
    assert len(blocks) <= 256
    flat = [value for block in blocks for value in block]
    OUT.write_text(f"""\
// Made by tools/unicode/generate.py from Unicode {UNICODE}; do not edit. Class of code point c, as enum CharClass:
//   kClassBlocks[kClassIndex[c / {BLOCK}] * {BLOCK} + c % {BLOCK}]
// {len(index)} + {len(flat)} bytes.
inline constexpr uint32_t kClassBlockSize = {BLOCK};
inline constexpr uint8_t kClassIndex[{len(index)}] = {{
{rows(index, 32)}}};
inline constexpr uint8_t kClassBlocks[{len(flat)}] = {{
{rows(flat, BLOCK // 2)}}};
""", encoding="ascii")
    print(f"{OUT}: {len(index) + len(flat)} bytes of tables")


if __name__ == "__main__":
    main()
