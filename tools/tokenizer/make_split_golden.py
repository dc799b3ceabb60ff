#!/usr/bin/env python3
"""Writes tests/golden/tokenizer-split.json: texts and the pieces tiktoken's own engine cuts them into.

    .venv/bin/pip install tiktoken==0.14.0 regex==2026.11.19
    .venv/bin/python tools/tokenizer/make_split_golden.py

tiktoken does not show the pieces, but a piece that is a token as a whole becomes that token: a vocabulary of all
substrings of a text therefore returns one id per piece. Each text is also split by Python's `regex` module, whose
Unicode is another version; where the two differ the script says so and records tiktoken's answer.
"""
import datetime
import importlib.metadata
import json
import pathlib
import random

import tiktoken

PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer-split.json"

# Every class, the neighbours that are easily confused, and code points new in Unicode 15.1 and 16.
ASCII = list("abcxyzstrevmldABCXYZSTREVMLD0123456789'\" .,!?-_/(){}<>|\t\n\r")
UPPER = list("ÀÉΩЖԱᏣẞℵ") + ["\u01C5", "\u1FAA", "\u0130", "\u212A", "\u212B", "\U0001D400", "\U00010400", "\u1C89"]
LOWER = list("àéωжաßﬁ") + ["\u017F", "\u0131", "\U0001D41A", "\U00010428", "\u1C8A", "\u0148"]
LETTER = list("ʰˈªºאعกあカ한ꀀ") + ["\u02BC", "\u0640", "\u01BB", "\u30FC", "\U00016D40", "\U0001E5D0", "\u309D", "\uFF70"]
MARK = ["\u0301", "\u0302", "\u0903", "\u20DD", "\u094D", "\u05B0", "\uFE0F", "\U000E0100", "\u0897", "\U00011F34"]
NUMBER = list("½²٣०፩Ⅷⅷ①") + ["\U0001D7CE", "\U00010D40", "\U0001CCF0", "\u09F4"]
HAN = list("你好世界々〇〡⺀⼀㐀") + ["\u3007", "\u303B", "\uF900", "\U00020000", "\U00016FE2", "\U00016FE3", "\U00016FF0",
                                 "\U0002EBF0", "\U0002FA1D", "\u3038"]
NOT_HAN = list("、。「」・〜゛") + ["\u3000", "\u302A", "\u3099", "\u32C0", "\U0001F250"]  # Han only by Script_Extensions
BLANK = ["\u0085", "\u00A0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000", "\x0B", "\x0C"]
OTHER = list("’“”…—€©»") + ["\u200B", "\u200D", "\u00AD", "\uFEFF", "\x00", "\x1C", "\x1F", "\x7F", "\u180E", "\uE000",
                          "\u0378", "\uFFFF", "\U0010FFFF", "😀", "👩", "🏽", "\u2FFC", "\u2010"]
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'Ll", "'\u017F", "'r", "'l", "'lL", "'vE", "''s", "'st"]
SEQUENCES = [" ", "  ", "   ", "\n", "\r\n", "\n\n", " \n", "\t\t", "\r", "HTTPServer", "don't", "123", "4567", "e\u0301"]
POOLS = [ASCII, UPPER, LOWER, LETTER, MARK, NUMBER, HAN, NOT_HAN, BLANK, OTHER, CONTRACTIONS, SEQUENCES]


def texts() -> list:
    rng = random.Random(20240611)
    made = []
    for _ in range(2400):  # anything beside anything
        made.append("".join(rng.choice(rng.choice(POOLS)) for _ in range(rng.randint(1, 9))))
    for _ in range(1600):  # few classes, so that runs and backtracking happen
        pools = rng.sample(POOLS, rng.randint(1, 3))
        made.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(3, 12))))
    return list(dict.fromkeys(made))


def pieces_by_tiktoken(batch: list) -> list:
    """One vocabulary for all texts of the batch: the single bytes, then every substring of every text."""
    tokens = {bytes([i]): i for i in range(256)}
    for text in batch:
        for begin in range(len(text)):
            for end in range(begin + 1, len(text) + 1):
                tokens.setdefault(text[begin:end].encode(), len(tokens))
    encoding = tiktoken.Encoding("split", pat_str=PATTERN, mergeable_ranks=tokens, special_tokens={})
    return [[encoding.decode_single_token_bytes(i).decode() for i in encoding.encode_ordinary(text)] for text in batch]


def main() -> None:
    import regex

    made = texts()
    cases = []
    for start in range(0, len(made), 200):
        batch = made[start:start + 200]
        cases += [[text, pieces] for text, pieces in zip(batch, pieces_by_tiktoken(batch))]
    differ = []
    compiled = regex.compile(PATTERN, regex.V1)
    for text, pieces in cases:
        assert "".join(pieces) == text, (text, pieces)
        if compiled.findall(text) != pieces:
            differ.append((text, pieces, compiled.findall(text)))
    versions = {name: importlib.metadata.version(name) for name in ("tiktoken", "regex")}
    print(f"{len(cases)} texts, {sum(len(p) for _, p in cases)} pieces, regex differs on {len(differ)}; {versions}")
    for text, pieces, other in differ[:10]:
        print(ascii(text), ascii(pieces), ascii(other))
    about = ("Texts and the pieces of Kimi-K3's split pattern as tiktoken's engine cuts them; "
             "made by tools/tokenizer/make_split_golden.py")
    head = {"about": about, "versions": versions, "date": datetime.date.today().isoformat(), "pattern": PATTERN}
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text(json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n]}\n", encoding="ascii")


if __name__ == "__main__":
    main()
