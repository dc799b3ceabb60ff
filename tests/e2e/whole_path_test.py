"""The built program from end to end on the bundled model, as a user runs it: every command, in order, in seconds.

    whole_path_test.py TREFOIL MODEL CALIBRATION EVALUATION
"""
import filecmp
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cases

TREFOIL, MODEL, CALIBRATION, EVALUATION = sys.argv[1:5]


def trefoil(*arguments, expect=0):
    result = subprocess.run([TREFOIL, "--progress", "off", *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert result.returncode == expect, f"{arguments}: exit {result.returncode}, expected {expect}\n{result.stdout}{result.stderr}"
    return result.stdout


def same_files(one, other):
    names = sorted(p.name for p in pathlib.Path(one).iterdir())
    assert names == sorted(p.name for p in pathlib.Path(other).iterdir()), (one, other)
    return all(filecmp.cmp(pathlib.Path(one) / n, pathlib.Path(other) / n, shallow=False) for n in names)


class WholePath(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        calibration = ["--calibration", CALIBRATION, "--num-calibration-samples", 8, "--max-seq-length", 128]
        trefoil("quantize", MODEL, "-o", cls.out / "rtn", "--recipe", "rtn")
        trefoil("quantize", MODEL, "-o", cls.out / "stock", "--recipe", "stock", "--stock-zero-mask", *calibration)
        trefoil("quantize", MODEL, "-o", cls.out / "trefoil", *calibration)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_inspect_and_plan_answer_in_text_and_json(self):
        facts = json.loads(trefoil("inspect", MODEL, "--json"))
        self.assertIn("components", facts)
        self.assertIn("routed experts", trefoil("inspect", MODEL))
        self.assertIn("quantize", json.loads(trefoil("plan", MODEL, "--task", "quantize", "--json")))

    def test_verify_passes_and_finds_a_flipped_bit(self):
        report = json.loads(trefoil("verify", self.out / "trefoil", "--against", MODEL, "--json"))
        self.assertTrue(report["passed"])
        damaged = self.out / "damaged"
        subprocess.run(["cp", "-r", self.out / "trefoil", damaged], check=True)
        shard = damaged / "model-00003-of-000008.safetensors"
        data = bytearray(shard.read_bytes())
        data[len(data) // 3] ^= 1
        shard.write_bytes(data)
        trefoil("verify", damaged, "--against", MODEL, expect=3)

    def test_a_mixed_calibration_is_frozen_and_used_again(self):
        text = self.out / "mixed.jsonl.gz"
        text.write_bytes(gzip.compress(b'{"messages": [{"role": "user", "content": "How?"}]}\n' * 200))
        frozen, rows = self.out / "frozen.safetensors", ["--num-calibration-samples", 4, "--max-seq-length", 64]
        common = ["quantize", MODEL, "--recipe", "stock", *rows]
        summary = trefoil(*common, "-o", self.out / "mix", "--calibration", f"{CALIBRATION}=3", text, "--seed", 2,
                          "--save-calibration", frozen, "--held-out", EVALUATION)
        self.assertRegex(summary, r"\| mixed.jsonl.gz \| \d of 200 \| 64 \| 25.0 % \| 25.0 % \|")
        self.assertIn(f"wrote {self.out / 'mix'}; next: trefoil verify", summary)
        trefoil(*common, "-o", self.out / "again", "--calibration", frozen)
        for shard in (self.out / "mix").glob("*.safetensors"):
            self.assertTrue(filecmp.cmp(shard, self.out / "again" / shard.name, shallow=False), shard.name)
        trefoil(*common, "-o", self.out / "no", "--calibration", CALIBRATION, "--held-out", CALIBRATION,
                "--refuse-overlap", expect=2)
        self.assertFalse((self.out / "no").exists())

    def test_eval_finds_what_quantize_found_of_held_out_text(self):
        summary = trefoil("quantize", MODEL, "-o", self.out / "seen", "--recipe", "stock", "--calibration", CALIBRATION, "--seed", 2,
                          "--num-calibration-samples", 16, "--max-seq-length", 256, "--held-out", EVALUATION)
        self.assertIn("evaluation.jsonl: 5 of 38 documents share a passage of 64 tokens with the calibration, 0 of them as a whole; "
                      "550 of its 50,770 tokens.", summary)
        text = trefoil("eval", "ppl", self.out / "seen", self.out / "rtn", "--text", EVALUATION, "--ctx-size", 128, "--max-rows", 1,
                       "--reference", MODEL)
        self.assertRegex(text, "seen  +partly: 5 of 38 documents share a passage of 64 tokens with the calibration; 550 of 50,770 tokens")
        self.assertRegex(text, "rtn  +no: it was not calibrated")

    def test_recode_there_and_back_is_byte_identical(self):
        for form in ("w3-padded", "w4"):
            trefoil("recode", self.out / "trefoil", "-o", self.out / form, "--to", form)
            trefoil("recode", self.out / form, "-o", self.out / f"from-{form}", "--to", "w3-dense")
            self.assertTrue(same_files(self.out / "trefoil", self.out / f"from-{form}"))

    def test_trefoil_loses_less_than_stock_in_the_same_bytes(self):
        report = json.loads(trefoil("eval", "kld", f"stock={self.out / 'stock'}", f"trefoil={self.out / 'trefoil'}",
                                    "--reference", MODEL, "--text", EVALUATION, "--ctx-size", 256, "--max-rows", 12,
                                    "--noise-rows", 0, "--json", "--report", self.out / "report"))
        pair = report["pairs"]["trefoil/stock"]
        self.assertLess(pair["kld_ratio"] + 3 * pair["kld_ratio_se"], 0.8)
        for name in ("kld.json", "kld.md", "kld.html"):
            self.assertGreater((self.out / "report" / name).stat().st_size, 1000)
        trefoil("eval", "kld", self.out / "rtn", "--reference", MODEL, "--text", EVALUATION, "--ctx-size", 256, "--max-rows", 2,
                "--noise-rows", 0, "--fail-if", "kld.mean>0", expect=3)

    def test_every_storage_writes_the_same_text(self):
        ask = ["--temp", 0, "-n", 12, "-p", "The function returns"]
        text = trefoil("run", self.out / "trefoil", *ask)
        self.assertGreater(len(text), 10)
        trefoil("recode", self.out / "trefoil", "-o", self.out / "run-w4", "--to", "w4")
        self.assertEqual(text, trefoil("run", self.out / "run-w4", *ask))
        self.assertEqual(text, trefoil("run", self.out / "trefoil", *ask, "--threads", 1, "--prefill-chunk", 1))

    def test_tokenize_there_and_back(self):
        ids = trefoil("tokenize", MODEL, "-p", "Hello, world! \u4f60\u597d")
        decoded = subprocess.run([TREFOIL, "tokenize", MODEL, "--decode"], input=ids, capture_output=True, text=True, check=True)
        self.assertEqual(decoded.stdout, "Hello, world! \u4f60\u597d")

    def test_doctor_and_version(self):
        self.assertIn("passed", trefoil("doctor", self.out))
        self.assertRegex(trefoil("version"), r"^trefoil \d+\.\d+\.\d+\n$")


cases.run()
