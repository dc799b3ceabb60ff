#!/usr/bin/env python3
"""Talks with the built program as a script and as an impatient person do: chat_test.py PROGRAM TINY_K3

Conversations and the states of sequences, across processes and signals.
"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import cases

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
USAGE, BAD_INPUT = 2, 4
ENDLESS = ["-n", "1000000"]


def command(verb, *arguments):
    return [PROGRAM, verb, MODEL, "--progress", "off", *map(str, arguments)]


class Talk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def done(self, arguments, expect=0, text=""):
        result = subprocess.run(arguments, input=text.encode(), capture_output=True, timeout=300)
        self.assertEqual(result.returncode, expect, result.stderr.decode())
        return result

    def chat(self, *lines, options=(), expect=0):
        """The replies of a scripted conversation."""
        result = self.done(command("chat", "-n", 16, *options), expect, "".join(line + "\n" for line in lines))
        return result.stdout.decode().split("[reasoning]\n")[1:]

    def start(self, arguments):
        child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def say(self, child, line):
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()

    def end(self, child, code):
        rest = child.communicate(timeout=300)
        self.assertEqual(child.returncode, code, rest[1].decode())
        return rest


class Conversations(Talk):
    def test_a_script_is_the_same_every_time(self):
        lines = ["How does it work?", "", "And why?"]
        replies = self.chat(*lines, options=["--seed", 5])
        self.assertEqual(len(replies), 2)
        self.assertEqual(self.chat(*lines, options=["--seed", 5, "--threads", 1, "--prefill-chunk", 7, "--state-memory", 0]), replies)
        self.assertNotEqual(self.chat(*lines, options=["--seed", 6]), replies)
        self.assertNotEqual(self.chat(*lines, options=["--seed", 5, "--system", "Be brief."]), replies)
        self.assertNotEqual(self.chat(*lines, options=["--seed", 5, "--think", "low"]), replies)

    def test_a_reset_begins_again(self):
        replies = self.chat("How does it work?", "/reset", "How does it work?")
        self.assertEqual(replies[0], replies[1])

    def test_without_reasoning_and_with_it_hidden(self):
        talk = command("chat", "-n", 16)
        self.assertRegex(self.done([*talk, "--think", "off"], text="Hello.").stdout, rb"^\[answer\]\n[\s\S]")
        self.assertEqual(self.done([*talk, "--hide-reasoning"], text="Hello.").stdout, b"")  # it has only begun to reason

    def test_saved_and_loaded_equals_gone_on(self):
        for options in ["--temp", 0], ["--seed", 3], ["--numerics", "f32"]:
            with self.subTest(options=options):
                file = self.root / "talk"
                whole = self.chat("How does it work?", f"/save {file}", "And why?", "When?", options=options)
                self.assertEqual(self.chat("And why?", "When?", options=[*options, "--load-state", file]), whole[1:])
                self.assertEqual(self.chat("Else?", f"/load {file}", "And why?", options=options)[1], whole[1])
        self.chat("Hello.", options=["--load-state", file], expect=USAGE)  # that one is f32's
        self.chat("Hello.", options=["--load-state", file, "--numerics", "f32", "--think", "off"], expect=USAGE)

    def test_a_script_ends_at_its_first_error(self):
        for line, code in ("/nope", USAGE), ("/save", USAGE), (f"/load {self.root}/none", BAD_INPUT), ("\udcff", USAGE):
            with self.subTest(line=line):
                text = (line + "\nHello.\n").encode(errors="surrogateescape")
                result = subprocess.run(command("chat", "-n", 4), input=text, capture_output=True, timeout=300)
                self.assertEqual(result.returncode, code)
                self.assertEqual(result.stdout, b"")
                self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)
        self.done(command("chat", "--think", "medium"), USAGE)


class Interrupts(Talk):
    def reply_has_begun(self, child):
        self.assertEqual(child.stdout.readline(), b"[reasoning]\n")
        self.assertNotEqual(child.stdout.read(8), b"")

    def until(self, child, wanted):
        for line in child.stderr:
            if wanted in line:
                return line.decode()
        self.fail(f"no {wanted}")

    def test_ctrl_c_stops_the_reply_and_keeps_the_session(self):
        child = self.start(command("chat", *ENDLESS))
        self.say(child, "How does it work?")
        self.reply_has_begun(child)
        child.send_signal(signal.SIGINT)
        self.until(child, b"the conversation goes on")
        self.say(child, "/stats")
        tokens, read, written = map(int, re.search(r"(\d+) tokens, room .* turn: (\d+) tokens read, .* (\d+) written", self.until(child, b"room for")).groups())
        self.assertGreater(tokens, read + written - 1)
        time.sleep(1.1)  # a second one within a second would leave
        self.say(child, "And why?")
        self.reply_has_begun_again(child)
        child.send_signal(signal.SIGINT)
        self.until(child, b"the conversation goes on")
        self.say(child, "/stats")
        again, read_again = map(int, re.search(r"(\d+) tokens, room .* turn: (\d+) tokens read", self.until(child, b"room for")).groups())
        self.assertGreater(again, tokens)
        self.assertLess(read_again, read)  # the new message and the end of the reply, not the conversation
        self.say(child, "/exit")
        self.end(child, 0)

    def reply_has_begun_again(self, child):
        for line in child.stdout:
            if line == b"[reasoning]\n":
                return
        self.fail("no second reply")

    def test_what_was_stopped_can_be_saved_and_gone_on_with(self):
        file = self.root / "talk"
        child = self.start(command("chat", *ENDLESS, "--temp", 0))
        self.say(child, "How does it work?")
        self.reply_has_begun(child)
        child.send_signal(signal.SIGINT)
        self.until(child, b"the conversation goes on")
        self.say(child, f"/save {file}")
        self.say(child, "/exit")
        self.end(child, 0)
        self.assertEqual(len(self.chat("And why?", options=["--load-state", file])), 1)

    def test_twice_within_a_second_leaves(self):
        child = self.start([PROGRAM, "chat", MODEL, "--progress", "json", "--prefill-chunk", "30000"])
        self.say(child, "word " * 30000)  # one chunk, in which nothing looks at signals
        self.until(child, b"prefill")
        time.sleep(0.5)  # the chunk has begun by then
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, message = self.end(child, 130)
        self.assertNotIn(b"stopped before the reply", message)

    def test_at_the_prompt_it_leaves(self):
        child = self.start(command("chat"))
        self.say(child, "/stats")
        self.until(child, b"room for")
        while child.poll() is None:  # it may not wait yet when the first one comes
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.end(child, 130)

    def test_sigterm_ends_a_reply_and_the_program(self):
        child = self.start(command("chat", *ENDLESS))
        self.say(child, "How does it work?")
        self.reply_has_begun(child)
        child.send_signal(signal.SIGTERM)
        self.end(child, 143)


class States(Talk):
    PROMPT = "The function returns the number of"

    def test_a_text_goes_on_across_processes(self):
        for options in ["--temp", 0], ["--seed", 4], ["--temp", 0, "--numerics", "f32"]:
            with self.subTest(options=options):
                state = self.root / "state"
                whole = self.done(command("run", "-p", self.PROMPT, "-n", 24, *options)).stdout
                first = self.done(command("run", "-p", self.PROMPT, "-n", 9, "--save-state", state, *options)).stdout
                rest = self.done(command("run", "--load-state", state, "-n", 15, *options)).stdout
                self.assertEqual(first.removesuffix(b"\n") + rest, whole)

    def test_an_interrupted_text_goes_on(self):
        state = self.root / "state"
        run = ["-p", self.PROMPT, "--temp", 0, "--save-state", state]
        child = self.start(command("run", *run, *ENDLESS))
        begun = child.stdout.read(40)
        child.send_signal(signal.SIGINT)
        out, _ = self.end(child, 130)
        begun = (begun + out).removesuffix(b"\n")
        rest = self.done(command("run", "--load-state", state, "--temp", 0, "-n", 8)).stdout
        tokens = len(json.loads(self.done([PROGRAM, "tokenize", MODEL, "-p", begun.decode()]).stdout))
        whole = self.done(command("run", *run, "-n", tokens + 20)).stdout
        self.assertTrue(whole.startswith(begun + rest.removesuffix(b"\n")), (begun, rest, whole))

    def test_stopped_within_the_prompt_nothing_is_saved(self):
        state = self.root / "state"
        child = self.start([PROGRAM, "run", MODEL, "--progress", "json", "-p", "word " * 20000, "--prefill-chunk", "2", "--save-state", state])
        for line in child.stderr:
            if json.loads(line)["done"] >= 4:
                break
        child.send_signal(signal.SIGINT)
        _, message = self.end(child, 130)
        self.assertIn(b"no state is saved", message)
        self.assertFalse(state.exists())

    def test_refusals(self):
        state, letter = self.root / "state", self.root / "letter"
        self.done(command("run", "-p", "a", "-n", 2, "--save-state", state))
        letter.write_text("Dear reader")
        load = command("run", "-n", 2, "--load-state", state)
        self.done(load)
        self.assertIn(b"other numerics", self.done([*load, "--numerics", "f32"], USAGE).stderr)
        self.assertIn(b"no conversation", self.done(command("chat", "--load-state", state), USAGE).stderr)
        whole = state.read_bytes()
        for damaged in whole[:-1], whole + b"\0", whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:], b"":
            state.write_bytes(damaged)
            message = self.done(load, BAD_INPUT).stderr
            self.assertEqual(message.count(b"\n"), 1)
            self.assertIn(str(state).encode(), message)
        self.done(command("run", "-n", 2, "--load-state", self.root / "none"), BAD_INPUT)
        self.done(command("run", "-p", "a", "--save-state", letter), USAGE)
        self.assertEqual(letter.read_text(), "Dear reader")
        self.done(command("run", "-p", "a", "--save-state", self.root / "no" / "state"), BAD_INPUT)
        self.done(command("run"), USAGE)


if __name__ == "__main__":
    cases.run(*sys.argv[3:])
