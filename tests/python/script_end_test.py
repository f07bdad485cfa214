#!/usr/bin/env python3
"""The ways in which a script with a session ends: what the job hears of it, what the user sees, and the exit code."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
BEGIN = f"""
import atexit, sys, time
sys.path.insert(0, {str(FOLDER)!r})
from fake_library import TRAIN, FakeLibrary
library = FakeLibrary([(TRAIN, 3, 1, [0, 1])] * 2, task_timeout=TIMEOUT).install()
atexit.register(lambda: print(f"failure={{library.failure}} freed={{library.freed}}"))
from pushpull import Error
from pushpull._session import Session
session = Session("tcp://h:0")
session.next()
"""


class AScript(unittest.TestCase):
    def ends(self, text, timeout=0.0):
        """Returns exit code, standard output, standard error."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "script.py"
            path.write_text(BEGIN.replace("TIMEOUT", str(timeout)) + text)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout, done.stderr

    def test_that_joins_again_at_a_prompt_leaves_the_first_session(self):
        text = ("import os\nsession.when_closed(lambda: print('closed'))\nfor prompt in (False, True):\n"
                "    if prompt: sys.ps1 = '>>> '\n    other = Session('tcp://h:1')\n    again = Session('tcp://h:0')\n"
                "    print(session.is_open(), other.is_open())\n")
        code, out, err = self.ends(text)
        self.assertEqual((code, out), (0, "True True\nclosed\nFalse True\nfailure=None freed=True\n"))
        self.assertIn("[join] this program has joined tcp://h:0 before: that session ends now", err)

    def test_that_finds_no_server_is_told_its_own_option(self):
        code, _, err = self.ends("library.pp_join = lambda *_: 4\n"
                                 "library.failure = '[join] no answer; --join-timeout sets how long to wait'\nSession()\n")
        self.assertEqual((code, err), (4, "pushpull: error: [join] no answer; join(timeout=...) sets how long to wait\n"))

    def test_that_raises_tells_the_job_why_and_shows_its_traceback(self):
        code, out, err = self.ends("def part():\n    raise RuntimeError('my own\\nmistake')\npart()\n")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"failure=\[script\] RuntimeError: my own mistake \(\S+script.py, line 12\) freed=True")
        self.assertIn("Traceback", err)

    def test_that_meets_an_error_shows_one_line_and_has_its_code(self):
        code, out, err = self.ends("raise Error('[loss] the loss is [3], expected a scalar', 2)\n")
        self.assertEqual(code, 2)
        self.assertEqual(err, "pushpull: error: [loss] the loss is [3], expected a scalar\n")
        self.assertIn("failure=[loss] the loss is [3], expected a scalar freed=True", out)

    def test_that_ends_early_frees_the_session(self):
        for text in ("", "sys.exit(0)\n"):
            code, out, err = self.ends(text)
            self.assertEqual((code, out, err), (0, "failure=None freed=True\n", ""))

    def test_that_gets_ctrl_c_tells_the_job(self):
        code, out, _ = self.ends("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
        self.assertEqual(code, -2)
        self.assertIn("failure=[script] KeyboardInterrupt", out)

    def test_that_hangs_is_named_with_its_line_and_interrupted(self):
        code, out, err = self.ends("def slow():\n    time.sleep(50)\nslow()\n", timeout=0.3)
        self.assertEqual(code, 1)
        self.assertRegex(out, r"has not ended step 3, micro-batch 1 for 0.3 s .task-timeout = 0.3.: it is in \S+script.py, line 12, "
                              r"called from \S+script.py, line 13")
        self.assertIn("pushpull: error: [task-timeout]", err)
        self.assertIn("time.sleep(50)", err)

    def test_that_ends_its_tasks_in_time_is_left_alone(self):
        code, out, _ = self.ends("for _ in range(6):\n    time.sleep(0.2)\n    session.end(0.0)\n"
                                 "    library.tasks = [(TRAIN, 4, 0, [0])]\n    session.next()\n", timeout=0.5)
        self.assertEqual((code, out), (0, "failure=None freed=True\n"))

    def test_whose_thread_of_the_tasks_raises_tells_the_job(self):
        text = ("import threading\ndef work(hands):\n    if hands: session._holds_task = False; session.next()\n"
                "    raise RuntimeError('in a thread')\n"
                "thread = threading.Thread(target=work, args=[HANDS])\nthread.start()\nthread.join()\n")
        _, out, _ = self.ends(text.replace("HANDS", "True"))
        self.assertIn("failure=[script] RuntimeError: in a thread", out)
        _, out, _ = self.ends(text.replace("HANDS", "False"))
        self.assertIn("failure=None", out, "a thread without tasks is the program's business")

    def test_at_a_prompt_goes_on_after_a_mistake(self):
        code, out, err = self.ends("sys.ps1 = '> '\nsys.excepthook(NameError, NameError('nmae'), None)\nprint('goes on')\n")
        self.assertEqual(code, 0)
        self.assertIn("goes on\nfailure=None", out)
        self.assertIn("NameError", err)

    def test_that_is_interrupted_while_it_joins_leaves_no_session(self):
        text = ("import signal\nplain = library.pp_join\nlibrary.facts['micro_batch'] = 0\n"
                "def joins(*arguments):\n    signal.raise_signal(signal.SIGINT)\n    return plain(*arguments)\n"
                "library.pp_join = joins\ntry:\n    Session()\nexcept KeyboardInterrupt as error:\n    kept = error\n"
                "print('failure', library.failure, 'freed', library.freed)\n")
        _, out, err = self.ends(text)
        self.assertIn("failure [script] KeyboardInterrupt freed True", out, err)

    def test_that_has_closed_its_session_is_told_so(self):
        code, _, err = self.ends("session.close()\nlibrary.pp_end = lambda *_: 2\nsession.end(0.0)\n")
        self.assertEqual((code, err), (2, "pushpull: error: [client] the session is closed\n"))

    def test_imports_nothing_but_the_standard_library(self):
        code, out, err = self.ends("print(sorted(n for n in ('torch', 'numpy') if n in sys.modules))\n")
        self.assertIn("[]", out)


if __name__ == "__main__":
    unittest.main()
