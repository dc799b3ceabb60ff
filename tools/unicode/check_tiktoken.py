#!/usr/bin/env python3
"""Asks tiktoken's own regex engine about every code point and compares with generate.py's classes.

    .venv/bin/pip install -r tools/unicode/requirements.txt tiktoken==0.14.0
    .venv/bin/python tools/unicode/check_tiktoken.py

An Encoding whose vocabulary is the 256 bytes returns exactly the bytes its pattern matched, so encoding all of Unicode
with the pattern `\\p{Lu}` lists the upper-case letters as that engine knows them.
"""
import sys

import tiktoken

import generate as g

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ALL = "".join(map(chr, CODE_POINTS))
BYTES = {bytes([i]): i for i in range(256)}

EXPECTED = {
    r"\p{Han}": {g.HAN_LETTER, g.HAN_NUMBER, g.HAN_OTHER},
    r"[\p{Lu}\p{Lt}&&[^\p{Han}]]": {g.UPPER},
    r"[\p{Ll}&&[^\p{Han}]]": {g.LOWER},
    r"[\p{Lm}\p{Lo}&&[^\p{Han}]]": {g.LETTER},
    r"[\p{M}&&[^\p{Han}]]": {g.MARK},
    r"\p{L}": {g.UPPER, g.LOWER, g.LETTER, g.HAN_LETTER},
    r"\p{N}": {g.NUMBER, g.HAN_NUMBER},
    r"\s": {g.SPACE, g.NEWLINE, g.BLANK},
    r"[\r\n]": {g.NEWLINE},
}
FOLDED = {letter: {ord(letter), ord(letter.upper())} | ({0x17F} if letter == "s" else set()) for letter in "strevmld"}


def matched(pattern: str) -> set:
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
    return set(map(ord, bytes(encoding.encode_ordinary(ALL)).decode()))


def main() -> int:
    differences = 0
    for pattern, classes in EXPECTED.items():
        ours = {c for c in CODE_POINTS if g.char_class(c) in classes}
        wrong = sorted(matched(pattern) ^ ours)
        print(f"{pattern}: {len(ours)} code points, {len(wrong)} differ {[hex(c) for c in wrong[:8]]}")
        differences += len(wrong)
    for letter, ours in FOLDED.items():
        wrong = matched(f"(?i:{letter})") ^ ours
        print(f"(?i:{letter}): {len(wrong)} differ")
        differences += len(wrong)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
