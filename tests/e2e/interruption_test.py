#!/usr/bin/env python3
"""Kills, stops and starves the built program in the middle of quantizing: interruption_test.py PROGRAM TINY_K3 TEXT [CLASS]

Whatever happens, the same command must go on and end with the bytes of an undisturbed run, and nothing unfinished may
ever have its final name. TREFOIL_KILLS (default 3) is how many runs are killed.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys

import cases
from cases import TIMED, contents

PROGRAM, MODEL, TEXT = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
KILLS = int(os.environ.get("TREFOIL_KILLS", "3"))
USAGE, RESOURCES, RESUMABLE = 2, 5, 75
INDEX = "model.safetensors.index.json"


def command(output, *more):
    return [PROGRAM, "quantize", str(MODEL), "-o", str(output), "--calibration", str(TEXT), "--num-calibration-samples", "4",
            "--max-seq-length", "96", "--progress", "json", *more]


class Job(cases.QuantizeJob):
    command = staticmethod(command)

    def assert_nothing_is_half_done(self, output):
        """Before the index is there, whatever has a final name is whole already."""
        for file in output.iterdir() if output.exists() else []:
            if file.is_file() and file.name not in TIMED:
                self.assertEqual(file.read_bytes(), self.expected[file.name], file.name)

    def finish(self, output, *more):
        subprocess.run(command(output, *more), check=True, capture_output=True)
        self.assertEqual(contents(output), self.expected)


class Interruptions(Job):
    def test_killed_at_random_moments(self):
        moments = random.Random(1)
        for number in range(KILLS):
            output = self.root / f"killed-{number}"
            kills = 0
            while True:
                child = subprocess.Popen(command(output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    child.wait(timeout=moments.uniform(0, 0.9 * self.seconds))
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    kills += 1
                    self.assert_nothing_is_half_done(output)
                    continue
                # A run that was killed between its last rename and its exit has left a finished output, which is refused.
                self.assertIn(child.returncode, (0, USAGE))
                break
            with self.subTest(number=number, kills=kills):
                self.assertEqual(contents(output), self.expected)
            subprocess.run(["rm", "-r", output], check=True)

    def test_sigterm_is_75_and_resumable(self):
        output = self.root / "stopped"
        child = subprocess.Popen(command(output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for line in child.stderr:
            if b"layer 2" in line:
                break
        child.send_signal(signal.SIGTERM)
        rest = child.communicate(timeout=300)[1]
        self.assertEqual(child.returncode, RESUMABLE, rest)
        self.assertFalse((output / INDEX).exists())
        self.finish(output, "--resume")

    def test_one_two_and_three_processes(self):
        for size in 1, 2, 3:
            output = self.root / f"processes-{size}"
            children = [subprocess.Popen(command(output, "--join", "--threads", str(1 + rank % 2)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                        for rank in range(size)]
            for child in children:
                message = child.communicate(timeout=300)[1]
                self.assertEqual(child.returncode, 0, message)
            with self.subTest(size=size):
                self.assertEqual(contents(output), self.expected)

    def test_the_others_go_on_when_a_process_is_killed(self):
        output = self.root / "widowed"
        victim = subprocess.Popen(command(output, "--join"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for line in victim.stderr:
            if b"experts" in line:
                break
        survivor = subprocess.Popen(command(output, "--join"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        victim.kill()
        victim.wait()
        notes = survivor.communicate(timeout=300)[1]
        self.assertEqual(survivor.returncode, 0, notes)
        # Whether it held a unit at that moment is chance; that a dead holder is named, Crew.ADeadRankIsNamed tests.
        self.assertEqual(contents(output), self.expected)

    def test_two_without_join_are_kept_apart(self):
        output = self.root / "contended"
        first = subprocess.Popen(command(output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for line in first.stderr:
            if b"layer" in line:
                break
        second = subprocess.run(command(output), capture_output=True)
        self.assertEqual(second.returncode, 2)
        self.assertIn(b"another process is at work", second.stderr)
        first.communicate(timeout=300)
        self.assertEqual(contents(output), self.expected)


class FullDisk(Job):
    def test_full_disk(self):
        disk = self.root / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "tmpfs", disk], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no right to mount a memory file system")
        try:
            # Room is checked before the start, so the disk fills up behind the program's back.
            output = disk / "out"
            child = subprocess.Popen(command(output, "--work-dir", self.root / "work"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.assertEqual(child.wait(timeout=300), RESOURCES, "too small from the start")
            subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
            child = subprocess.Popen(command(output, "--work-dir", self.root / "work"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for line in child.stderr:
                if b"layer 2" in line:
                    break
            filler = disk / "filler"
            with open(filler, "wb", buffering=0) as file, self.assertRaises(OSError):
                while True:
                    file.write(bytes(1 << 16))
            rest = child.communicate(timeout=300)[1]
            self.assertEqual(child.returncode, RESOURCES, rest)
            self.assertIn(b"No space left", rest)
            self.assertFalse((output / INDEX).exists())
            filler.unlink()
            self.finish(output, "--work-dir", self.root / "work")
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    cases.run(*sys.argv[4:])
