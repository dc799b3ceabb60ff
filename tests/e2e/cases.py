"""What the test programs of this folder share: running cases, saying that they were skipped, and comparing outputs."""
import sys
import unittest

SKIPPED = 77  # what CMakeLists.txt tells ctest
# Files of an output that hold times, or the hash of a file that does.
TIMED = {"quantization_report.json", "quantization_report.html", "SHA256SUMS"}


def contents(folder):
    """Name -> bytes of all files of an output that two runs must agree on."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name not in TIMED}


def run(*classes):
    """Runs the test classes of the program (all, when none is named). A skip is no pass: it says why and exits with 77."""
    result = unittest.main(argv=[sys.argv[0], *classes], exit=False).result
    for case, reason in result.skipped:
        print(f"skipped: {case}: {reason}")
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
