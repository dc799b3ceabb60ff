#!/usr/bin/env python3
"""Runs the built program with input that a careless or hostile user gives it: refusals_test.py PROGRAM TINY_K3

Every case must end with the exit code that docs/cli.md promises and say why in one line, without control characters.
"""
import pathlib
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import cases

PROGRAM, MODEL = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
SHARD = "model-00003-of-000008.safetensors"
USAGE, CHECK_FAILED, BAD_INPUT, RESOURCES = 2, 3, 4, 5


class Refusals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def copy(self, **changed):
        """tiny-k3 by links, with some files' bytes replaced."""
        folder = self.root / "model"
        folder.mkdir()
        for file in MODEL.iterdir():
            if file.name in changed:
                (folder / file.name).write_bytes(changed[file.name])
            else:
                (folder / file.name).symlink_to(file)
        return folder

    def run_program(self, *arguments, **options):
        return subprocess.run([PROGRAM, *map(str, arguments), "--progress", "off"], capture_output=True, timeout=300, **options)

    def refused(self, code, *arguments, **options):
        done = self.run_program(*arguments, **options)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, code, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.startswith("trefoil: "), message)
        self.assertFalse(any(ord(c) < 32 for c in message[:-1]), message)
        return message

    def test_a_path_that_cannot_exist(self):
        for command in ["inspect"], ["verify"], ["tokenize", "-p", "a"], ["run", "-p", "a"]:
            self.refused(BAD_INPUT, *command, "a" * 5000)

    def test_control_characters_in_a_message_are_written_out(self):
        message = self.refused(BAD_INPUT, "inspect", "no\n\x1b[31msuch")
        self.assertIn("no\\x0a\\x1b[31msuch", message)

    def test_a_folder_where_a_file_belongs(self):
        self.assertIn("a folder", self.refused(BAD_INPUT, "run", MODEL, "-f", self.root))
        self.assertIn("a folder", self.refused(BAD_INPUT, "tokenize", MODEL, "--file", self.root))
        self.assertIn("regular file", self.refused(BAD_INPUT, "inspect", MODEL, "--config", self.root))

    def test_a_model_that_does_not_fit_its_memory(self):
        message = self.refused(RESOURCES, "run", MODEL, "-p", "a", "--memory", "20MB")
        for part in "20.0 MB", "two experts of a cache", "states", "in all":
            self.assertIn(part, message)
        # What fits runs, and says what it planned and did.
        text = "run", MODEL, "-p", "The", "-n", "3", "--temp", "0", "--stats"
        whole = self.run_program(*text)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("all routed experts fit", whole.stderr.decode())
        planned = float(re.search(r"([0-9.]+) MB planned", whole.stderr.decode())[1])
        part = f"{planned - 2:.1f}MB"
        self.assertIn("all routed experts", self.refused(RESOURCES, *text, "--memory", part, "--experts", "memory"))
        streamed = self.run_program(*text, "--memory", part)
        self.assertEqual(streamed.returncode, 0, streamed.stderr)
        self.assertIn("find room in the cache", streamed.stderr.decode())
        self.assertEqual(streamed.stdout, whole.stdout)

    def test_text_without_end(self):
        self.refused(BAD_INPUT, "tokenize", MODEL, "--file", "/dev/zero")

    def test_every_fault_of_the_tokenizer_files(self):
        faults = [
            ("tokenizer_config.json", b""),
            ("tokenizer_config.json", b"[]"),
            ("tokenizer_config.json", b'{"added_tokens_decoder":{"x":{"content":"y"}}}'),
            ("tokenizer_config.json", b'{"added_tokens_decoder":{"3841":{"content":""}}}'),
            ("tiktoken.model", b""),
            ("tiktoken.model", b"!!!! 0\n"),
        ]
        for file, content in faults:
            with self.subTest(file=file, content=content):
                folder = self.copy(**{file: content})
                for command in ["tokenize", folder, "-p", "a"], ["run", folder, "-p", "a"]:
                    self.assertIn(file, self.refused(BAD_INPUT, *command))
                subprocess.run(["rm", "-r", folder], check=True)

    def test_damaged_shards(self):
        shard = (MODEL / SHARD).read_bytes()
        for content in b"", shard[:100], shard[:-1], shard + b"x", struct.pack("<Q", 1 << 63) + shard[8:]:
            with self.subTest(size=len(content)):
                folder = self.copy(**{SHARD: content})
                self.assertIn(SHARD, self.refused(BAD_INPUT, "inspect", folder))
                self.assertIn(SHARD, self.refused(BAD_INPUT, "quantize", folder, "-o", self.root / "out", "--recipe", "rtn"))
                self.assertFalse((self.root / "out").exists())
                subprocess.run(["rm", "-r", folder], check=True)

    def test_output_in_the_source_or_around_it(self):
        folder = self.copy()
        for output in folder, folder / "out", self.root:
            self.refused(USAGE, "quantize", folder, "-o", output, "--recipe", "rtn", "--overwrite")
        self.assertEqual({file.name for file in folder.iterdir()}, {file.name for file in MODEL.iterdir()})

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "inspect", MODEL], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, RESOURCES)

    def test_help_to_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, RESOURCES)

    def test_arguments_out_of_range(self):
        self.refused(USAGE, "inspect", MODEL, "--tensors", "(")
        out = self.root / "out"
        self.assertIn("-1 is negative", self.refused(USAGE, "quantize", MODEL, "-o", out, "--recipe", "rtn", "--seed", "-1"))
        self.refused(USAGE, "quantize", MODEL, "-o", out, "--recipe", "rtn", "--scales", "positive")

    def test_a_command_or_option_that_nobody_knows_is_named(self):
        self.assertIn("'qauntize' is no command of trefoil", self.refused(USAGE, "qauntize", MODEL, "-o", "x"))
        self.assertIn("'klf' is no command of trefoil eval", self.refused(USAGE, "eval", "klf", MODEL))
        for typo in ["--recpie", "rtn"], ["--recpie=rtn"]:
            message = self.refused(USAGE, "quantize", MODEL, *typo)  # the output is missing too
            self.assertTrue(message.startswith(f"trefoil: {typo[0]}: no such option; trefoil quantize --help"), message)
        self.assertIn("--output is required", self.refused(USAGE, "quantize", MODEL))
        self.assertIn("what? Its commands: inspect, plan", self.refused(USAGE))

    def test_a_name_that_is_no_choice(self):
        choices = [("quantize", "--recipe", "gptq", "trefoil, stock, rtn"), ("quantize", "--recipe", "1", "trefoil, stock, rtn"),
                   ("quantize", "--layout", "0", "dense, padded"), ("quantize", "--scales", "Any", "any, positive"),
                   ("quantize", "--bits", "5", "2, 3, 4, 8"), ("run", "--numerics", "f16", "bf16, f32"),
                   ("recode", "--to", "w5", "w3-dense, w3-padded, w4"), ("tokenize", "--mode", "x", "text, markup")]
        for command, option, value, names in choices:
            with self.subTest(option=option, value=value):
                message = self.refused(USAGE, command, MODEL, option, value)
                self.assertEqual(message, f"trefoil: {option}: '{value}' is none of {names}\n")
        listed = subprocess.run([PROGRAM, "quantize", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("--recipe trefoil|stock|rtn", listed)
        self.assertNotIn("ENUM", listed)

    def test_a_bad_value_of_a_variable_names_the_variable(self):
        done = subprocess.run([PROGRAM, "version"], env={"TREFOIL_PROGRESS": "bogus"}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (USAGE, "trefoil: TREFOIL_PROGRESS=bogus: --progress: 'bogus' is none of auto, json, off\n"))

    def test_options_of_quantize_are_named_as_they_are_typed(self):
        text, out = self.root / "text.jsonl", self.root / "out"
        text.write_text('{"text": "a few words"}\n')
        common = ["quantize", MODEL, "-o", out, "--calibration"]
        self.assertIn("--num-calibration-samples -5", self.refused(USAGE, *common, text, "--num-calibration-samples", -5))
        self.assertIn("(--max-seq-length)", self.refused(USAGE, *common, text, "--max-seq-length", 100))
        self.assertIn("'abc' is no weight", self.refused(USAGE, *common, f"{text}=abc"))
        self.assertIn("--top-p", self.refused(USAGE, "run", MODEL, "-p", "a", "--top-p", 2))

    def test_a_file_where_a_model_belongs(self):
        self.assertIn("a model is named by its folder", self.refused(BAD_INPUT, "run", MODEL / "config.json", "-p", "a"))

    def test_an_unfinished_output_is_called_so(self):
        out = self.root / "out"
        job = out / ".trefoil-partial/.job"
        job.mkdir(parents=True)
        (job / "job.json").write_text("{}")
        for command in ["inspect", out], ["verify", out], ["run", out, "-p", "a"], ["recode", out, "-o", out / "x", "--to", "w4"], \
                ["eval", "kld", out, "--reference", MODEL, "--text", MODEL / "LICENSE"]:
            self.assertIn(f"{out}: holds an unfinished quantize and no checkpoint yet (trefoil status {out})",
                          self.refused(BAD_INPUT, *command))

    def test_synthesize_refuses_what_no_model_can_be(self):
        out = self.root / "out"
        common = ["synthesize", "-o", out, "--config", MODEL / "config.json"]
        for option, value in ("--layers", 0), ("--layers", "kda,gqa"), ("--vocab", 100), ("--experts", 2), ("--experts-per-token", 0), \
                ("--routing", "even"), ("--shard-size", "5XB"), ("--shard-size", 0), ("--seed", -1):
            with self.subTest(option=option, value=value):
                self.refused(USAGE, *common, option, value)
        self.assertIn("config.json", self.refused(BAD_INPUT, "synthesize", "-o", out, "--config", self.root / "config.json"))
        (self.root / "thesis.txt").write_text("years of work")
        self.assertNotIn("--overwrite", self.refused(USAGE, "synthesize", "-o", self.root, "--layers", 1))
        self.assertFalse(out.exists())

    def test_a_file_size_limit_ends_cleanly(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        self.refused(RESOURCES, "quantize", MODEL, "-o", self.root / "out", "--recipe", "rtn", preexec_fn=limit)
        self.assertFalse((self.root / "out").exists())

    def test_a_signal_ends_verify(self):
        child = subprocess.Popen([PROGRAM, "verify", MODEL, "--threads", "1", "--progress", "json"], stderr=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        line = child.stderr.readline()  # progress: it is at work
        child.send_signal(signal.SIGTERM)
        _, rest = child.communicate(timeout=300)
        self.assertEqual(child.returncode, 128 + signal.SIGTERM, (line + rest).decode())

    def test_a_killed_run_leaves_no_checkpoint(self):
        for attempt in range(10):
            out = self.root / f"out-{attempt}"
            child = subprocess.Popen([PROGRAM, "quantize", MODEL, "-o", out, "--recipe", "rtn", "--progress", "off"])
            while child.poll() is None and not (out / ".trefoil-partial").exists():
                time.sleep(0.001)
            child.kill()
            child.wait()
            # The index is renamed last: without it nothing takes the folder for a checkpoint.
            if not (out / "model.safetensors.index.json").exists():
                self.refused(BAD_INPUT, "inspect", out)
                return
        self.fail("every run was over before it could be killed")


if __name__ == "__main__":
    cases.run()
