"""Tests `pushpull run`: its processes, their output, and that none outlives it."""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import lab as base
from lab import LONG, MLP, expect, first, living_below

STOPPED = 75
COLUMNS = 80


def pids_of(process, program):
    found = []
    for pid in sorted(living_below(process.pid)):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(program.encode()):
            found.append(pid)
    return found


def shared_memory():
    return {path.name for path in pathlib.Path("/dev/shm").iterdir() if "pushpull" in path.name}


@first("pushpull run leaves no process")
def signals_leave_nothing_behind(lab):
    for number, code in ((signal.SIGINT, STOPPED), (signal.SIGTERM, STOPPED),
                         (signal.SIGKILL, -signal.SIGKILL)):
        run = lab.launch(lab.job({**LONG, "heartbeat-timeout": lab.seconds(3)}), 2, 2)
        lab.trains(run)
        pids = living_below(run.pid)
        expect(len(pids) == 4, f"{len(pids)} processes instead of 4")
        run.send_signal(number)
        expect(run.ends(30) == code, f"{number!r}: exit code {run.returncode}: {run.output()[-600:]}")
        lab.nothing_is_left()
        # the kernel signals the children of a killed launcher
        expect(base.summary_of(run.out)["stopped_by"], "the summary does not say that it was stopped")
        names = [name for name in shared_memory() if any(str(pid) in name for pid in pids)]
        expect(not names, f"left in /dev/shm: {names}")


def ctrl_c_at_a_terminal_ends_all_at_once(lab):
    # a terminal signals its whole foreground group
    run = lab.start("pushpull", "run", "--job", lab.job(LONG), "--servers", 2, "--workers", 2,
                    "--out", lab.folder / "out", start_new_session=True)
    run.out = lab.folder / "out"
    lab.trains(run)
    os.killpg(run.pid, signal.SIGINT)
    expect(run.ends(30) == STOPPED, f"exit code {run.returncode}: {run.output()[-600:]}")
    lab.nothing_is_left()
    expect(len(run.output().splitlines()) <= 30, f"too much output for one Ctrl-C: {run.output()[-3000:]}")


def a_killed_worker_is_named(lab):
    run = lab.launch(lab.job(LONG), 1, 2)
    lab.trains(run)
    lost = pids_of(run, "pushpull-worker")[1]
    before = len(run.output())
    os.kill(lost, signal.SIGKILL)
    code = run.ends(30)
    output = run.output(before)
    expect(code == 128 + signal.SIGKILL, f"exit code {code}: {output}")
    expect(f"worker 1 (pid {lost}) was killed by signal 9 (SIGKILL)" in output, output)
    expect(len(output.splitlines()) <= 12, f"too much output for one death: {output}")
    expect(not (run.out / "summary.json").exists(), "a broken run has a summary")
    lab.nothing_is_left()


@first("P5: run replaces a worker")
def a_killed_worker_is_replaced(lab):
    keys = lab.in_parts({**MLP, "on-worker-loss": "wait"}, 3000)
    calm = lab.train(lab.job(keys))["weights_sha256"]
    run = lab.launch(lab.job(keys), 1, 2)
    lab.trains(run)
    lost = pids_of(run, "pushpull-worker")[0]
    os.kill(lost, signal.SIGKILL)
    expect(run.ends(120) == 0, f"exit code {run.returncode}: {run.output()[-800:]}")
    expect("starting a replacement" in run.output() and str(lost) in run.output(), run.output()[-800:])
    expect(base.summary_of(run.out)["weights_sha256"] == calm, "the weights differ")


class Screen:
    """The screen that a user sees: a terminal that implements CR, LF and erasing, and wraps at its right edge
    unless this is turned off (ECMA-48 EL, DECAWM)."""

    def __init__(self, columns):
        self.columns, self.column, self.wraps = columns, 0, True
        self.rows = [""]

    def feed(self, text):
        for token in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|.", text, re.DOTALL):
            if token == "\r":
                self.column = 0
            elif token == "\n":
                self.rows.append("")
            elif token == "\x1b[K":
                self.rows[-1] = self.rows[-1][:self.column]
            elif token in ("\x1b[?7l", "\x1b[?7h"):
                self.wraps = token.endswith("h")
            else:
                expect(not token.startswith("\x1b"), f"unexpected control {token!r}")
                self.put(token)

    def put(self, character):
        if self.column == self.columns and self.wraps:
            self.rows.append("")
            self.column = 0
        column = min(self.column, self.columns - 1)
        row = self.rows[-1].ljust(column)
        self.rows[-1] = row[:column] + character + row[column + 1:]
        self.column = column + 1


def read_terminal(lab, master, process):
    deadline = lab.deadline(60)
    bytes_ = b""
    while not deadline.passed():
        if not select.select([master], [], [], 0.1)[0]:
            if process.poll() is not None:
                return bytes_.decode()
            continue
        try:
            bytes_ += os.read(master, 65536)
        except OSError:  # the other end is closed
            return bytes_.decode()
    raise base.Failed(f"no end at the terminal; it shows: {bytes_[-600:]}")


def a_terminal_shows_one_renewed_line(lab):
    try:
        master, slave = pty.openpty()
    except OSError as error:  # a chroot without /dev/pts
        raise base.Skipped(f"no terminal can be had: {error}")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    job = lab.job({**MLP, "steps": lab.steps(6000), "eval-every": 1000})
    process = subprocess.Popen(
        [lab.bin_dir / "pushpull", "run", "--job", job, "--servers", "1", "--workers", "2", "--out",
         lab.folder / "out"], stdin=slave, stdout=slave, stderr=slave, env=lab.environment,
        preexec_fn=base.die_with_parent)
    lab.processes.append(process)
    os.close(slave)
    text = read_terminal(lab, master, process)
    os.close(master)
    expect(process.wait(lab.seconds(30)) == 0, f"exit code {process.returncode}: {text[-600:]}")
    expect(text.count("\x1b[K") >= 2, f"the line was not renewed: {text[-600:]!r}")
    screen = Screen(COLUMNS)
    screen.feed(text)
    steps = [row for row in screen.rows if row.startswith("step ")]
    expect(all("accuracy" in row for row in steps), "a row without an evaluation stays:\n" + "\n".join(screen.rows))
    table = screen.rows[screen.rows.index(steps[-1]) + 1:]
    expect(table[0].strip() == "finished", "\n".join(screen.rows))
    words = "\n".join(table)
    for word in ("strategy", "accuracy", "samples/s", "weights"):
        expect(word in words, f"no {word} in the table:\n{words}")


def a_file_gets_plain_lines(lab):
    run = lab.run(lab.job({**MLP, "steps": lab.steps(6000)}), 1, 2)
    expect(run.code == 0 and "\r" not in run.text and "\x1b" not in run.text, f"{run.text[-800:]!r}")
    steps = [line for line in run.text.splitlines() if line.startswith("step ")]
    expect(steps, f"no progress: {run.text[-800:]}")
    for word in ("epoch", "loss", "samples/s", "staleness", "ETA"):
        expect(word in steps[-1], f"no {word} in: {steps[-1]}")


@first("help and version of every program")
def every_program_has_help_and_version(lab):
    for words in (["pushpull"], ["pushpull", "run"], ["pushpull", "eval"], ["pushpull-server"],
                  ["pushpull-worker"]):
        for flag, word in (("--help", "--"), ("--version", "0.")):
            code, text = lab.call(*words, flag)
            expect(code == 0 and word in text and "pushpull" in text, f"{words} {flag}: {code}: {text}")


if __name__ == "__main__":
    base.main(globals())
