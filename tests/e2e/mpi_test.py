#!/usr/bin/env python3
"""Quantizes with the ranks of every MPI that is installed: mpi_test.py PROGRAM TINY_K3 TEXT [CLASS]

Any number of ranks and threads ends with the bytes of a run without MPI, and so does a job that lost a rank and was
started again. Skipped where there is no MPI.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import cases
from cases import contents

PROGRAM, MODEL, TEXT = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
USAGE, RESUMABLE = 2, 75
REPORT = "quantization_report.json"
# Two or three ranks on one or two CPUs. MPIs keep what they allocated until they exit, which is no leak of ours.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ASAN_OPTIONS": "detect_leaks=0"}
LAUNCHERS = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"], "mpich": ["mpirun.mpich"]}
MPIS = [mpi for mpi, launcher in LAUNCHERS.items()
        if shutil.which(launcher[0]) and (pathlib.Path(PROGRAM).parent / f"trefoil_mpi_{mpi}.so").exists()]


def command(output, *more):
    return [PROGRAM, "quantize", str(MODEL), "-o", str(output), "--calibration", str(TEXT), "--num-calibration-samples", "4",
            "--max-seq-length", "64", "--layers", "1:3", "--progress", "json", *more]


def launch(mpi, *contexts):
    """Starts each (ranks, command) under one launcher."""
    line = []
    for ranks, rank_command in contexts:
        line += [*([":"] if line else []), "-n", str(ranks), *rank_command]
    return subprocess.Popen([*LAUNCHERS[mpi], *line], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def for_each_mpi(test):
    """One sub-test for each MPI that is installed."""
    def tests(self):
        for mpi in MPIS:
            with self.subTest(mpi=mpi):
                test(self, mpi)
    return tests


class Job(cases.QuantizeJob):
    command = staticmethod(command)

    def run_job(self, mpi, *contexts, code=0):
        job = launch(mpi, *contexts)
        printed, notes = job.communicate(timeout=600)
        self.assertEqual(job.returncode, code, notes)
        return printed, notes

    def finish(self, mpi, ranks, output, *more):
        """The same command again."""
        notes = self.run_job(mpi, (ranks, command(output, "--mpi", mpi, "--threads", "1", *more)))[1]
        self.assertEqual(contents(output), self.expected)
        return notes


class Ranks(Job):
    @for_each_mpi
    def test_ranks_and_threads_change_no_byte(self, mpi):
        for ranks in 1, 2, 3:
            for threads in 1, 2:
                output = self.root / f"{mpi}-{ranks}-{threads}"
                printed, notes = self.run_job(mpi, (ranks, command(output, "--mpi", "auto", "--threads", str(threads))))
                self.assertEqual(contents(output), self.expected, (ranks, threads))
                self.assertEqual(printed.count("| matrices |"), 1, "rank 0 reports, and nobody else")
                self.assertNotIn("another process", printed)
                self.assertIn('"left_s"', notes, "rank 0 says how fast it is, as one process does")
                self.assertNotIn("is gone", notes)

    @for_each_mpi
    def test_a_killed_rank_ends_the_job_and_the_next_run_finishes_it(self, mpi):
        output = self.root / f"{mpi}-killed"
        job = launch(mpi, (3, command(output, "--mpi", mpi, "--threads", "1")))
        victim = self.stop_inside_a_unit(job, output, rank=1)
        os.kill(victim, signal.SIGKILL)
        job.communicate(timeout=600)
        self.assertNotEqual(job.returncode, 0)
        self.assertFalse((output / REPORT).exists())
        self.finish(mpi, 3, output)  # that a dead holder is named, Crew.ADeadRankIsNamed tests: whether it held one is chance

    def stop_inside_a_unit(self, job, output, rank):
        """Suspends the rank where it holds a claim to experts without having finished them; the process."""
        ledger = output / ".trefoil-partial/.job/ledger"
        while job.poll() is None:
            for claim in ledger.glob("L*.experts.*.claim"):
                holder = re.search(rf"process (\d+), rank {rank} of", claim.read_text())
                if holder is None or claim.with_suffix(".json").exists():
                    continue
                process = int(holder[1])
                os.kill(process, signal.SIGSTOP)
                if not claim.with_suffix(".json").exists():
                    return process
                os.kill(process, signal.SIGCONT)
            time.sleep(0.002)
        self.fail(f"rank {rank} never held a claim: {job.communicate()[1]}")

    @for_each_mpi
    def test_a_failing_rank_is_named_and_ends_the_job_with_its_code(self, mpi):
        output = self.root / f"{mpi}-unlike"
        notes = self.run_job(mpi, (1, command(output, "--mpi", mpi)), (1, command(output, "--mpi", mpi, "--dampening-frac", "0.02")), code=USAGE)[1]
        self.assertRegex(notes, r"trefoil: rank [01] of 2: output .*: the processes at work on it have dampening-frac 0.0[12], this one has 0.0[12]")

    @for_each_mpi
    def test_one_rank_that_is_told_to_stop_stops_all(self, mpi):
        output = self.root / f"{mpi}-stopped"
        job = launch(mpi, (2, command(output, "--mpi", mpi, "--threads", "1")))
        process = self.stop_inside_a_unit(job, output, rank=1)
        os.kill(process, signal.SIGTERM)
        os.kill(process, signal.SIGCONT)
        notes = job.communicate(timeout=600)[1]
        self.assertEqual(job.returncode, RESUMABLE, notes)
        self.assertIn("trefoil: rank 1 of 2: stopped as asked", notes)
        self.finish(mpi, 2, output, "--resume")


class OtherMpi(Job):
    def setUp(self):
        if len(MPIS) < 2:
            self.skipTest("one MPI alone is installed")

    @for_each_mpi
    def test_the_launcher_of_another_mpi_is_refused(self, mpi):
        others = [other for other in MPIS if other != mpi]
        notes = self.run_job(mpi, (2, command(self.root / "none", "--mpi", others[0])), code=USAGE)[1]
        self.assertIn("the launcher started 2 processes", notes)


if __name__ == "__main__":
    if not MPIS:
        print("skipped: no MPI is installed, or the program was built without one (scripts/setup mpi)")
        sys.exit(cases.SKIPPED)
    cases.run(*sys.argv[4:])
