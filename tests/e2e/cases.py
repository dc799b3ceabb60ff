"""What the test programs of this folder share: running cases, saying that they were skipped, and comparing outputs."""
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77  # what CMakeLists.txt tells ctest
# Files of an output that hold times, or the hash of a file that does.
TIMED = {"quantization_report.json", "quantization_report.html", "SHA256SUMS"}


def contents(folder):
    """Name -> bytes of all files of an output that two runs must agree on."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name not in TIMED}


class QuantizeJob(unittest.TestCase):
    """Has a folder of its own (`root`), what an undisturbed run of `command(OUTPUT)` wrote there (`expected`), and how long
    that took (`seconds`). Every class of tests sets `command`, a staticmethod."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        start = time.monotonic()
        subprocess.run(cls.command(cls.root / "undisturbed"), check=True, capture_output=True)
        cls.seconds = time.monotonic() - start
        cls.expected = contents(cls.root / "undisturbed")


def run(*classes):
    """Runs the test classes of the program (all, when none is named). A skip is no pass: it says why and exits with 77."""
    result = unittest.main(argv=[sys.argv[0], *classes], exit=False).result
    for case, reason in result.skipped:
        print(f"skipped: {case}: {reason}")
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
