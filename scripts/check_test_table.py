#!/usr/bin/env python3
"""Checks that every test that a page of docs/ names (`Suite.Name`) exists in some *_test.cpp, and that the numbered
table of docs/testing.md has no gap. Prints every violation and exits 1 when there is one."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINED = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
NAMED = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
NUMBERED = re.compile(r"^\| (\d+) \|", re.M)
NUMBERS = 54  # items of the last table


def violations():
    tests = {match for path in (ROOT / "src").rglob("*_test.cpp") for match in DEFINED.findall(path.read_text())}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for suite, name in NAMED.findall(line):
                if (suite, name) not in tests:
                    yield f"{page.relative_to(ROOT)}:{number}: no test {suite}.{name}"
    items = [int(number) for number in NUMBERED.findall((ROOT / "docs/testing.md").read_text())]
    if items != list(range(1, NUMBERS + 1)):
        yield f"docs/testing.md: the numbered table holds {items}"


found = list(violations())
print("\n".join(found) if found else "test table: clean")
sys.exit(1 if found else 0)
