#!/usr/bin/env python3
"""The command line, as a person at a terminal and as a shell use it.

    cli_test.py ECHOTRAIN PAINTER TEXTS JOB

ECHOTRAIN is the program, PAINTER the quickstart's painter of digits, TEXTS the folder of the generated manual page and
completions, JOB the quickstart's job.
"""

import errno
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from support import packed_digits, runner

PROGRAM, PAINTER, TEXTS, JOB = map(os.path.abspath, sys.argv[1:5])
run = runner(PROGRAM)


def shell(name, text):
    return subprocess.run([name, "-c", text], capture_output=True, text=True, timeout=300, cwd=TEXTS, check=True).stdout


def commands():
    """The commands and the options of each, as the help prints them."""
    names = re.findall(r"^  ([a-z-]+) ", run("help").stdout, re.MULTILINE)
    return {name: re.findall(r"^  --([a-z-]+)", run(name, "--help").stdout, re.MULTILINE)
            for name in dict.fromkeys(names) if name != "echotrain"}


class Terminal:
    """The program on a terminal of its own, read until something appears."""

    def __init__(self, *words, columns=0):
        self.output = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if columns:
                fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execv(PROGRAM, [PROGRAM, *map(str, words)])

    def read(self):
        try:
            data = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:  # the terminal is closed
            data = ""
        self.output += data
        return data != ""

    def until(self, text):
        while text not in self.output:
            if not self.read():
                raise AssertionError(f"{text!r} did not appear in {self.output!r}")

    def interrupt(self):
        os.write(self.fd, b"\x03")

    def end(self):
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Help(unittest.TestCase):
    def test_every_command_has_it(self):
        everything = commands()
        self.assertGreater(len(everything), 15)
        for name in everything:
            for word in ("--help", "-h"):
                result = run(name, word)
                self.assertEqual((result.returncode, result.stderr), (0, ""), name)
                self.assertTrue(result.stdout.startswith(f"usage: echotrain {name}"), name)
            self.assertEqual(run("help", name).stdout, run(name, "-h").stdout)
            self.assertLessEqual(max(map(len, run(name, "-h").stdout.splitlines())), 100, name)

    def test_options_are_the_same_everywhere(self):
        manual = pathlib.Path(TEXTS, "echotrain.1").read_text().replace("\\-", "-")
        for name, options in commands().items():
            self.assertIn(f".SS {name}", manual)
            for shell_file in ("echotrain.bash", "_echotrain", "echotrain.fish"):
                text = pathlib.Path(TEXTS, shell_file).read_text()
                for option in options:
                    self.assertIn(option, text, shell_file)
            for option in options:
                self.assertIn(f"--{option}", manual)

    def test_wrong_words_are_refused_with_the_nearest_right_one(self):
        for words, expected in ((["trian", "x"], "did you mean 'train'"),
                                (["train", "x", "--resum"], "did you mean 'resume'"),
                                (["train"], "JOB.json"),
                                (["train", "a", "b"], "'b' is one word too many"),
                                (["train", "a", "--kernels", "cpus"], "did you mean 'cpu'"),
                                (["train", "a", "--set"], "needs a value"),
                                (["train", "a", "--resume=yes"], "takes no value"),
                                (["train", "a", "-r"], "unknown option -r"),
                                (["train", "a", "--epochs", "3"], "--set train.epochs=VALUE"),
                                (["train", "a", "--learning-rate=1"], "--set schedule.learning_rate=VALUE"),
                                (["list"], "unknown command 'list'; see"),
                                (["pack", "a", "b", "--level", "ten"], "--level takes a number, not 'ten'"),
                                (["pack", "a", "b", "--validation", "0.1x"], "takes a number"),
                                (["pack", "a", "b", "--validation", "nan"], "number from 0"),
                                (["completion", "tcsh"], "bash, zsh and fish")):
            result = run(*words)
            self.assertIn(expected, result.stderr, words)
            self.assertEqual(result.returncode, 2, words)

    def test_one_stage_layer_model_optimizer_or_key(self):
        for kind, name in (("stages", "echo"), ("layers", "dense"), ("models", "resnet"), ("optimizers", "adam")):
            text = run(kind, name).stdout
            self.assertTrue(text.startswith(f"{name}  – "), text)
            self.assertLess(len(text), len(run(kind).stdout) / 3)
            self.assertEqual([row["name"] for row in json.loads(run(kind, name, "--json").stdout)], [name])
        self.assertEqual(run("job", "train.steps").stdout.count("\n"), 3)
        self.assertEqual(list(json.loads(run("job", "train", "output", "--json").stdout)), ["train", "output"])
        for words, expected in ((["stages", "ehco"], "did you mean 'echo'"), (["job", "train.step"], "did you mean 'train.steps'"),
                                (["stages", "png"], "'png' among the stages; 'echotrain stages' lists them all")):
            result = run(*words)
            self.assertIn(expected, result.stderr)
            self.assertEqual(result.returncode, 1)


class Completion(unittest.TestCase):
    """What each shell offers for a line."""

    LINES = {"tra": "train", "pack --over": "--overwrite", "train --kernels ti": "tiled", "stages ech": "echo",
             "job schedule.po": "schedule.power", "completion f": "fish", "eval echotrain.f": "echotrain.fish",
             "train --tuning echotrain.f": "echotrain.fish"}

    def test_bash(self):
        for line, expected in self.LINES.items():
            text = shell("bash", f"""source ./echotrain.bash; COMP_WORDS=(echotrain {line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
                                     _echotrain; echo "${{COMPREPLY[@]}}" """)
            self.assertEqual(text.strip(), expected, line)

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish(self):
        for line, expected in self.LINES.items():
            text = shell("fish", f"source ./echotrain.fish; complete -C 'echotrain {line}'")
            self.assertIn(expected, [row.split("\t")[0] for row in text.splitlines()], line)

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh(self):
        # What _arguments and _describe are handed; they read the line in an editor only.
        text = shell("zsh", """_describe() { print -r -- commands $names }; _arguments() { print -rl -- "$@" }; compdef() { : }
                               source ./_echotrain; CURRENT=2; words=(echotrain tra); _echotrain
                               CURRENT=3; words=(echotrain pack --over); _echotrain""")
        self.assertIn("train:trains", text)
        self.assertIn("--overwrite[", text)
        self.assertIn("--format[", text)
        self.assertNotIn("--kernels[", text)

    @unittest.skipUnless(shutil.which("mandoc"), "there is no mandoc")
    def test_manual_page(self):
        lint = subprocess.run(["mandoc", "-Tlint", "-Werror", "echotrain.1"], cwd=TEXTS, capture_output=True, text=True)
        self.assertEqual(lint.returncode, 0, lint.stdout)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = packed_digits(run, PAINTER, 200, 120)
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def words(self, name, **keys):
        """Operands and options for the quickstart's job, small, into a folder `name`."""
        settings = {"data": self.root / "data", "out": self.root / name, "train.seconds": 0, "train.steps": 4,
                    "pipeline.stages.2.milliseconds": 0, "output.checkpoint_every_steps": 10**6, "train.progress_every": 0.05, "model": json.dumps(
                        {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]})}
        settings.update({key.replace("__", "."): value for key, value in keys.items()})
        out = [JOB]
        for key, value in settings.items():
            out += ["--set", f"{key}={value}"]
        return out

    def endless(self, name, **keys):
        return self.words(name, train__steps=10**9, evaluation__every_steps=0, evaluation__every_epochs=0, **keys)

    def test_each_line_is_printed_once(self):
        result = run("train", *self.words("once", evaluation__every_steps=2))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), len(set(lines)), result.stdout)
        self.assertRegex(result.stdout, r"step 4 of 4")
        self.assertRegex(result.stdout, r"\n4 steps, 256 examples")

    def test_progress_says_what_is_left(self):
        run_ = Terminal("train", *self.words("left", train__steps=2000, evaluation__every_steps=1000))
        run_.until(" left")
        run_.until("evaluating")
        self.assertEqual(run_.end(), 0)
        self.assertRegex(run_.output, r"step \d+ of 2000, \d+ s, \d+ .*left")

    def test_ctrl_c_is_told_saves_and_gives_130(self):
        run_ = Terminal("train", *self.endless("interrupted"))
        run_.until("step ")
        run_.interrupt()
        self.assertEqual(run_.end(), 130)
        step = re.search(r"interrupted: at step (\d+), saved in '.*interrupted/checkpoints'", run_.output)
        self.assertIsNotNone(step, run_.output)
        # As promised: the run goes on from there.
        more = int(step[1]) + 3
        result = run("train", *self.words("interrupted", train__steps=more), "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"{more} steps", result.stdout)

    def test_ctrl_c_ends_an_evaluation_at_once(self):
        slow = {"evaluation.pipeline.stages": json.dumps(
            [{"stage": "webdataset", "pattern": f"{self.root}/data/test-*.tar.zst"}, {"stage": "label", "classes": 10},
             {"stage": "decode"}, {"stage": "repeat", "count": 10**6}, {"stage": "batch", "size": 8}, {"stage": "normalize"}])}
        for command in ("train", "eval"):
            run_ = Terminal(command, *self.words("evaluated", evaluation__every_steps=2,
                                                 **{k.replace(".", "__"): v for k, v in slow.items()}))
            run_.until("evaluating")
            run_.interrupt()
            self.assertEqual(run_.end(), 130, run_.output)
            self.assertIn("interrupted", run_.output)

    def test_looking_at_a_pipeline_leaves_the_files_of_its_run_alone(self):
        log, bad, pipeline = (self.root / name for name in ("echo.jsonl", "bad.jsonl", "pipeline.json"))
        decisions = '{"epoch":0,"after":3,"echoes":2}\n'
        log.write_text(decisions)
        pipeline.write_text(json.dumps({
            "stages": [{"stage": "webdataset", "pattern": f"{self.root}/data/train-*.tar.zst"}, {"stage": "label", "classes": 5},
                       {"stage": "decode"}, {"stage": "echo", "mode": "on_demand", "factor": 2, "log": str(log)},
                       {"stage": "keep", "fields": "image,label"}, {"stage": "batch", "size": 8}],
            "on_error": "quarantine", "quarantine_dir": str(self.root / "quarantined"), "bad_records_file": str(bad)}))
        for words in (["explain", pipeline, "--seconds", "3"],
                      ["tune-pipeline", pipeline, "--seconds", "0.1", "--out", self.root / "tuned.json"]):
            result = run(*words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(log.read_text(), decisions, words)
            self.assertFalse(bad.exists() or (self.root / "quarantined").exists(), words)

    def test_sigterm_ends_in_order_too(self):
        run_ = Terminal("train", *self.endless("terminated"))
        run_.until("step ")
        os.kill(run_.pid, signal.SIGTERM)
        self.assertEqual(run_.end(), 143)
        self.assertIn("checkpoints'; continue with", run_.output)

    def test_one_signal_ends_a_wait_for_data(self):
        data = self.root / "silent"
        shutil.copytree(self.root / "data", data)
        pipe = next(data.glob("train-*.tar.zst")).with_name("train-999999.tar.zst")
        os.mkfifo(pipe)
        self.assertEqual(run("train", *self.words("waits")).returncode, 0)
        training, evaluation = {"pipeline__stages__0__pattern": pipe}, {"evaluation__pipeline__stages__0__pattern": pipe}
        for number in signal.SIGINT, signal.SIGTERM:
            for words in (["train", *self.words(f"waits-{number}", **training)],
                          ["train", *self.words(f"evaluation-waits-{number}", evaluation__every_steps=2, **evaluation)],
                          ["eval", *self.words("waits", **evaluation)],
                          ["explain", *self.words("waits", **training), "--seconds", "1000"],
                          ["tune-pipeline", *self.words("waits", **training)], ["init", data, self.root / "waits.json"]):
                with self.subTest(command=words[0], signal=number):
                    self.ends_by_one_signal(words, pipe, number)

    def writer_of(self, pipe, process):
        """The pipe for writing, once the program reads it."""
        while True:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)
                self.assertIsNone(process.poll(), "it has ended")
            time.sleep(0.01)

    def ends_by_one_signal(self, words, pipe, number):
        with subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                writer = self.writer_of(pipe, process)
                self.addCleanup(os.close, writer)
                process.send_signal(number)
                message = process.communicate(timeout=120)[1]
                self.assertEqual(process.returncode, 128 + number, message)
                self.assertIn("interrupted", message)
            finally:
                process.kill()

    def test_what_needs_a_trained_model_says_that_there_is_none(self):
        image = next((self.root / "png" / "test").rglob("*.png"))
        for command, more in (("eval", []), ("export", [self.root / "m.onnx"]), ("predict", [image])):
            words = self.words("nothing-here")
            result = run(command, words[0], *more, *words[1:])
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "there is no checkpoint in '.*nothing-here/checkpoints' yet; train first")
            self.assertNotIn("accuracy", result.stdout)
            words = self.words("")
            words[words.index(f"out={self.root}")] = "out="
            result = run(command, words[0], *more, *words[1:])
            self.assertIn("output.dir is empty", result.stderr)

    def test_a_finished_run_says_that_it_is_complete(self):
        words = self.words("complete")
        self.assertEqual(run("train", *words).returncode, 0)
        result = run("train", *words, "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("complete, at step 4 (train.steps is 4); to continue training: --resume --set train.steps=8", result.stdout)
        self.assertNotIn("loss 0.000", result.stdout)
        for steps in (8, 9):  # also a single one
            self.assertIn(f"{steps} steps", run("train", *words, "--resume", "--set", f"train.steps={steps}").stdout)

    def test_an_accuracy_of_nothing_is_printed(self):
        # Trained on two images, and tested on them with each other's labels.
        images = [next((self.root / "png/train" / digit).iterdir()) for digit in "01"]
        for part, of_class in (("train", images), ("test", images[::-1])):
            for name, image in zip("ab", of_class):
                folder = self.root / "swapped" / part / name
                folder.mkdir(parents=True)
                for i in range(16):
                    shutil.copy(image, folder / f"{i}.png")
            self.assertEqual(run("pack", self.root / "swapped" / part, self.root / "swapped/data" / part).returncode, 0)
        words = self.words("of-nothing", data=self.root / "swapped/data", train__steps=40, evaluation__every_steps=40, pipeline__stages__8__size=16,
                           output__checkpoint_every_steps=40)
        self.assertIn("test accuracy 0.00 %, test loss", run("train", *words).stdout)
        self.assertIn("32 samples: accuracy 0.00 %, loss", run("eval", *words).stdout)

    def test_a_demo_whose_folder_cannot_be_made_names_it(self):
        self.assertIn(f"cannot create '{JOB}/demo/data' (Not a directory); name a folder that can be written", run("demo", f"{JOB}/demo").stderr)

    def test_a_model_without_classes_has_no_accuracy(self):
        model = {"layers": [{"layer": "conv2d", "filters": 1}], "loss": {"loss": "mse", "target": "image"}}
        words = self.words("no-classes", model=json.dumps(model), evaluation__every_steps=4, output__checkpoint_every_steps=4)
        self.assertRegex(run("train", *words).stdout, r"(?m)^test loss \d")
        self.assertRegex(run("eval", *words).stdout, r"samples: loss \d")

    def test_a_run_that_reached_its_target_says_so(self):
        aimed = {"evaluation.every_steps": 2, "evaluation.target_accuracy": 0.001, "train.steps": 8}
        words = self.words("aimed", **aimed)
        self.assertEqual(run("train", *words).returncode, 0)
        result = run("train", *words, "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("complete, at step 2 (evaluation.target_accuracy of 0.001 is reached); to continue training: "
                      "--resume --set evaluation.target_accuracy=0\n", result.stdout)
        self.assertIn("8 steps", run("train", *words, "--resume", "--set", "evaluation.target_accuracy=0").stdout)
        aimed = {"evaluation.every_steps": 2, "evaluation.target_loss": 1000, "train.steps": 8}
        words = self.words("aimed-at-loss", **aimed)
        self.assertEqual(run("train", *words).returncode, 0)
        self.assertIn("complete, at step 2 (evaluation.target_loss of 1000 is reached); to continue training: "
                      "--resume --set evaluation.target_loss=0\n", run("train", *words, "--resume").stdout)
        counted = self.words("counted", train__steps=0, train__fresh=9)
        self.assertEqual(run("train", *counted).returncode, 0)
        self.assertIn("(train.fresh is 9); to continue training: --resume --set train.fresh=18\n",
                      run("train", *counted, "--resume").stdout)
        self.assertEqual(run("train", *self.words("timed")).returncode, 0)
        timed = self.words("timed", train__steps=0, train__seconds=0.000001)
        self.assertRegex(run("train", *timed, "--resume").stdout,
                         r"\(train\.seconds are over\); to continue training: --resume --set train\.seconds=[1-9]")

    def test_a_run_without_a_step_says_why(self):
        result = run("train", *self.words("short", train__steps=0, train__seconds=0.000001, **{"pipeline.stages.2.milliseconds": 50}))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("0 steps", result.stdout)
        self.assertIn("train.seconds (1e-06) were over before the first batch came: nothing was trained or saved", result.stderr)

    def test_missing_data_is_no_missing_checkpoint(self):
        words = self.words("moved-data")
        self.assertEqual(run("train", *words).returncode, 0)
        result = run("train", *words, "--resume", "--set", f"data={self.root}/nowhere", "--set", "train.steps=8")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nowhere", result.stderr)
        self.assertNotIn("no checkpoint", result.stderr)

    def test_progress_fits_a_terminal_and_knows_what_it_says(self):
        run_ = Terminal("train", *self.words("narrow", train__steps=2000, evaluation__every_steps=1000), columns=80)
        self.assertEqual(run_.end(), 0)
        lines = [re.sub(r"\x1b\[K", "", line) for line in re.split(r"[\r\n]+", run_.output)]
        progress = [line for line in lines if " step " in line]
        self.assertLess(max(map(len, progress)), 80)
        self.assertTrue(any(" left" in line and "loss" in line for line in progress), progress)
        for line in progress:
            if "of 2000, 0 s" in line:
                self.assertNotRegex(line, "ex/s|device waits|left")
        self.assertLess(re.search(r"device: .*", run_.output)[0].count("llvmpipe"), 2)

    def test_reports_of_folders_and_files(self):
        self.assertEqual(run("train", *self.words("reported", train__steps=8)).returncode, 0)
        folder = self.root / "reported"
        for words, names in (([folder], ["reported"]), ([f"{folder}/", f"b={folder}/metrics.jsonl"], ["reported", "b"]),
                             ([folder / "metrics.jsonl"], ["reported"])):
            result = run("report", *words, "--out", self.root / "r.html")
            self.assertEqual(result.returncode, 0, result.stderr)
            for name in names:
                self.assertIn(f"</svg>{name}</th>", (self.root / "r.html").read_text())
        broken = self.root / "broken.jsonl"
        broken.write_text('{"kind": "step", "step": 1, "loss": 2}\n{"kind": "step", "step": }\n')
        result = run("report", broken)
        self.assertIn("broken.jsonl' line 2", result.stderr)
        self.assertIn("column 26", result.stderr)
        self.assertNotIn("json.exception", result.stderr)
        self.assertIn("nothing-there", run("report", self.root / "nothing-there").stderr)

    def test_output_that_is_lost_is_an_error(self):
        for words in (("version",), ("stages",), ("job", "train"), ("--help",), ("manual",)):
            with open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
            self.assertEqual(result.returncode, 1, words)
            self.assertRegex(result.stderr, r"\Aechotrain: cannot write standard output: .+\n\Z")

    def test_a_write_beyond_the_limit_is_an_error(self):
        result = subprocess.run(["sh", "-c", f"ulimit -f 0; exec '{PROGRAM}' init '{self.root}/png/train' '{self.root}/limited.json'"],
                                capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, "cannot write '.*limited.json': File too large")

    def test_lines_of_classes_may_end_as_on_windows(self):
        data = self.root / "windows"
        shutil.copytree(self.root / "data", data)
        (data / "classes.txt").write_bytes((data / "classes.txt").read_bytes().replace(b"\n", b"\r\n"))
        path = self.root / "a b$c!'d\".json"
        result = run("init", data, path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(shlex.split(re.search("next: (.*)", result.stdout)[1]), ["echotrain", "train", str(path)])
        job = json.loads(path.read_text())
        self.assertEqual(job["classes"], [str(digit) for digit in range(10)])

    def test_predictions(self):
        words = self.words("predicted", train__steps=300)
        self.assertEqual(run("train", *words).returncode, 0)
        digits = sorted((self.root / "png" / "test" / "3").glob("*.png"))
        broken, missing = self.root / "broken [1].png", self.root / "missing.png"
        broken.write_bytes(digits[0].read_bytes()[:60])
        result = run("predict", words[0], broken, *digits[:2], missing, *words[1:], "--json", "--top", "2")
        self.assertEqual(result.returncode, 1, "two files gave nothing")
        self.assertRegex(result.stderr, r"broken \[1\].png': ")
        self.assertRegex(result.stderr, r"missing.png': cannot be read")
        rows = json.loads(result.stdout)
        self.assertEqual([row["file"] for row in rows], [str(digit) for digit in digits[:2]])
        for row in rows:
            first, second = row["classes"]
            self.assertGreaterEqual(first["probability"], second["probability"])
            self.assertLessEqual(first["probability"] + second["probability"], 1 + 1e-9)
        everything = run("predict", words[0], self.root / "png" / "test", *words[1:], "--top", "10",
                         "--set", "evaluation.pipeline.stages.3.drop_remainder=true")
        self.assertEqual(everything.returncode, 0, everything.stderr)
        lines = [line for line in everything.stdout.splitlines() if ".png: " in line]
        self.assertEqual(len(lines), 120)
        right = sum(line.split(": ")[1].split(" ")[0] == line.split("/")[-2] for line in lines)
        accuracy = float(re.search(r"accuracy ([\d.]+) %", run("eval", *words).stdout)[1])
        self.assertAlmostEqual(100 * right / 120, accuracy, delta=0.01, msg="as the evaluation counts")
        self.assertAlmostEqual(sum(map(float, re.findall(r"([\d.]+) %", lines[0].split(": ")[1]))), 100, delta=0.6)
        self.assertEqual(run("predict", words[0], self.root / "data", *words[1:]).returncode, 1, "no images there")


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def test_it_compares_and_writes_a_report(self):  # within ten seconds, without echo, no run reaches the target
        result = run("demo", "--seconds", 10, cwd=self.root)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"a training step takes \d+\.\d ms; reading one example is made to take \d+\.\d\d ms")
        rows = re.findall(r"^(without|with) echo +(>? ?\d+\.\d) s", result.stdout, re.MULTILINE)
        self.assertEqual([name for name, _ in rows], ["without", "with"])
        self.assertIn("report: echotrain-demo/report.html", result.stdout)
        demo = self.root / "echotrain-demo"
        self.assertEqual(sorted(path.name for path in demo.iterdir()),
                         ["data", "report.html", "with-echo-1", "without-echo-1"])
        self.assertIn("Data echoing on a slow upstream", (demo / "report.html").read_text())

    def test_a_folder_of_other_files_is_left_alone(self):
        (self.root / "thesis.tex").write_text("important")
        result = run("demo", self.root)
        self.assertEqual(result.returncode, 1)
        self.assertIn("holds other files; name a new folder", result.stderr)
        result = run("demo", self.root / "thesis.tex")
        self.assertEqual(result.returncode, 1)
        self.assertIn("thesis.tex' is not a folder", result.stderr)
        self.assertEqual([path.name for path in self.root.iterdir()], ["thesis.tex"])

    def test_numbers_are_checked(self):
        for words, message in ((("--seeds", 0), "--seeds must be 1 to 100"), (("--seconds", 0), "--seconds must be at least 1")):
            result = run("demo", self.root / "new", *words)
            self.assertEqual(result.returncode, 2)
            self.assertIn(message, result.stderr)
        self.assertFalse((self.root / "new").exists())


class Words(unittest.TestCase):
    def test_one_is_singular(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run([PAINTER, root / "png", "10", "1"], check=True)
            for digit in range(1, 10):
                shutil.rmtree(root / "png" / str(digit))
            for path in list((root / "png" / "0").iterdir())[1:]:
                path.unlink()
            text = run("pack", root / "png", root / "one").stdout
            self.assertIn("1 sample of 1 class in 1 shard,", text)
            self.assertIn("one class only", run("init", root, root / "job.json").stderr)

    def test_empty_classes_are_not_counted_as_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run([PAINTER, root / "png", "20", "1"], check=True)
            for name in ("nothing", "none"):
                (root / "png" / name).mkdir()
            (root / "png" / "0" / "notes.txt").write_text("mine")
            text = run("pack", root / "png", root / "packed").stdout
            self.assertIn("20 samples of 12 classes in 1 shard,", text)
            self.assertRegex(text, r"left out 1 file: .*\(0/notes.txt\)\n")
            self.assertEqual(text.count("left out"), 1, text)
            self.assertIn("note: no image is of class 'none', 'nothing', which keeps its number", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
