"""Tests that a reader of a job's output cannot block the job by not reading."""
import fcntl
import os
import signal
import subprocess

import lab as base
from lab import LONG, MLP, expect, first, summary_of

F_SETPIPE_SZ = 1031


class FullPipe:
    """A full pipe without a reader."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        size = fcntl.fcntl(self.writer, F_SETPIPE_SZ, 4096)
        os.write(self.writer, b"x" * size)

    def close(self):
        os.close(self.reader)
        os.close(self.writer)


def start(lab, pipe, program, *words, **options):
    process = subprocess.Popen([str(word) for word in (lab.bin_dir / program, *words)], stdout=pipe.writer, stderr=pipe.writer,
                               stdin=subprocess.DEVNULL, cwd=lab.folder, env=lab.environment,
                               preexec_fn=base.die_with_parent, **options)
    lab.processes.append(process)
    return process


def impatient(lab, timeout_s=5):
    """Returns keys of a job with a short heartbeat-timeout."""
    return {**MLP, "steps": lab.steps(4000), "heartbeat-timeout": lab.seconds(timeout_s)}


def ends_with_the_same_bits(lab, process, pipe, out, keys):
    want = lab.train(lab.job(keys), workers=2)["weights_sha256"]
    code = process.wait(lab.seconds(90))  # it waits some seconds for its last lines to be read
    pipe.close()
    expect(code == 0, f"exit code {code}")
    expect(summary_of(out)["weights_sha256"] == want, "other bits than a run with a reader")


def a_run_with_unread_output_succeeds(lab):
    pipe, out, keys = FullPipe(), lab.folder / "out", impatient(lab)
    run = start(lab, pipe, "pushpull", "run", "--job", lab.job(keys), "--workers", 2, "--out", out)
    ends_with_the_same_bits(lab, run, pipe, out, keys)


def a_coordinator_on_a_stopped_terminal_continues(lab):
    pipe, out, keys = FullPipe(), lab.folder / "out", impatient(lab)
    reader, writer = os.pipe()
    server = start(lab, pipe, "pushpull-server", "--job", lab.job(keys), "--listen", "tcp://127.0.0.1:*", "--workers", 2,
                   "--out", out, "--progress", "tty", "--announce-fd", writer, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as announced:
        address = announced.readline().strip()
    workers = [lab.start("pushpull-worker", "--join", address) for _ in range(2)]
    ends_with_the_same_bits(lab, server, pipe, out, keys)
    expect([worker.ends() for worker in workers] == [0, 0], "a worker failed")


@first("P5: a stalled terminal")
def a_signal_ends_a_run_with_unread_output(lab):
    pipe, out = FullPipe(), lab.folder / "out"
    run = start(lab, pipe, "pushpull", "run", "--job", lab.job(LONG), "--workers", 2, "--out", out)
    lab.until(lambda: len(base.metrics_of(out)) > 2, 60, lambda: "training does not begin")
    run.send_signal(signal.SIGTERM)
    code = run.wait(lab.seconds(60))
    pipe.close()
    expect(code == 75, f"exit code {code}")
    lab.until(lambda: not lab.left_behind(), 30, lambda: f"left: {lab.left_behind()}")


if __name__ == "__main__":
    base.main(globals())
