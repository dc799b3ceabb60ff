#!/usr/bin/env python3
"""Checks that documents and the references to them hold. Prints every violation and exits 1 when there is one.

  pages      every page below docs/ that source, scripts or documents name exists
  sections   the title quoted behind such a page's name and a comma is a heading of that page
  links      a relative link of a Markdown file leads to a file, and its #anchor to a heading

Run on the files git knows, tracked or new.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cpp", ".inc", ".py", ".sh", ".txt", ".cmake", ".yaml", ""}
PAGE = re.compile(r"docs/[\w/.-]+\.md")
# The title may stand on the next line, behind a comment's marker.
SECTION = re.compile(r'(docs/[\w/.-]+\.md)(?:\]\([^)]*\))?,\s*(?://|#|\*)?\s*"([^"\n]+(?:\n\s*(?://|#|\*)\s*[^"\n]+)?)"')
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.M)
FENCE = re.compile(r"^```.*?^```\s*$", re.M | re.S)


def files():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.splitlines()
    for name in names:
        path = ROOT / name
        if path.is_file() and not name.startswith("tests/fuzz/corpus/"):
            yield path


def titles(page):
    """Headings as written, without backticks and link targets; indented code and fences hold none."""
    text = FENCE.sub("", page.read_text())
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in HEADING.findall(text)]


def anchor(title):
    """As GitHub makes it: lower case, punctuation dropped, blanks to hyphens."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def one_line(text):
    return re.sub(r"\s*\n\s*(?://|#|\*)?\s*", " ", text).strip()


def reference_violations(path, text):
    for page in sorted(set(PAGE.findall(text))):
        if not (ROOT / page).is_file():
            yield f"{page}: no such page"
    for page, quoted in SECTION.findall(text):
        wanted = one_line(quoted)
        if (ROOT / page).is_file() and wanted not in titles(ROOT / page):
            yield f'{page} has no section "{wanted}"'


def link_violations(path, text):
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists():
            yield f"dead link {target}"
        elif fragment and fragment not in map(anchor, titles(page)):
            yield f"{target}: no such heading"


def violations():
    for path in files():
        if path.suffix not in SOURCES | {".md"}:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found = list(reference_violations(path, text))
        if path.suffix == ".md":
            found += link_violations(path, text)
        for message in found:
            yield f"{path.relative_to(ROOT)}: {message}"


found = list(violations())
print("\n".join(found) if found else "docs: clean")
sys.exit(1 if found else 0)
