"""Tests several jobs with the same workers: two_jobs_worker.py, and the example dcgan.py."""
import os
import signal

import lab as base
from lab import expect, summary_of
from torch_workers_test import HERE, JOB, ROOT, _prepare, script

NAMES = ("left", "right")


def start(lab, keys=(), workers=2, out=None, words=(), flags=()):
    """Starts both jobs."""
    out = out or lab.folder / lab.name("out")
    folder = lab.folder / lab.name("jobs")
    folder.mkdir()
    for name in NAMES:
        job = {**JOB, **dict(keys), "seed": 5 + len(name)}
        (folder / f"{name}.ini").write_text("".join(f"{key} = {value}\n" for key, value in job.items()))
    run = lab.start("pushpull", "run", *(word for name in NAMES for word in ("--job", folder / f"{name}.ini")), "--workers", workers,
                    "--out", out, "--worker", script(*words, file=HERE / "two_jobs_worker.py"), *flags)
    run.out = out
    return run


def hashes(run, code=0):
    got = run.ends(240)
    expect(got == code, f"exit code {got}, want {code}: {run.output()[-2000:]}")
    return [summary_of(run.out / name)["weights_sha256"] for name in NAMES]


def scripts_of(run):
    def words(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read()
        except OSError:
            return b""
    return [pid for pid in base.living_below(run.pid) if b"two_jobs_worker" in words(pid)]


def reaches(lab, run, step):
    for name in NAMES:
        lab.until(lambda: run.poll() is not None or base.step_of(run.out / name) >= step, 60,
                  lambda: f"no step {step}: {run.output()[-1500:]}")


def two_jobs_of_the_same_workers_have_the_same_bits_for_any_number(lab):
    _prepare(lab)
    want = hashes(start(lab, workers=1))
    run = start(lab, workers=4, flags=("--servers", 2))
    expect(hashes(run) == want and want[0] != want[1], f"{want}")
    expect("right | server 0: " in run.output(), run.output()[-1500:])
    lab.nothing_is_left()


def a_killed_worker_is_replaced_in_both_jobs(lab):
    _prepare(lab)
    keys = {"steps": 200, "on-worker-loss": "wait"}
    want = hashes(start(lab, keys))
    run = start(lab, keys, words=("--slow", 0.01))
    reaches(lab, run, 20)
    os.kill(max(scripts_of(run)), signal.SIGKILL)
    expect(hashes(run) == want, "other bits")


def ctrl_c_stops_both_jobs_with_a_checkpoint(lab):
    _prepare(lab)
    keys = {"steps": 200}
    want = hashes(start(lab, keys))
    run = start(lab, keys, words=("--slow", 0.01))
    reaches(lab, run, 20)
    run.send_signal(signal.SIGINT)
    stopped = hashes(run, code=75)
    expect(stopped != want, "the jobs have not stopped")
    lab.nothing_is_left()
    steps = [summary_of(run.out / name)["steps"] for name in NAMES]
    expect(all(20 <= step < 200 for step in steps), f"{steps}")


def failures_end_both_jobs_with_their_code(lab):
    _prepare(lab)
    run = start(lab, words=("--raise-at", 12))
    code = run.ends(120)
    expect(code == 1 and "my own mistake" in run.output(), f"{code}: {run.output()[-1500:]}")
    lab.nothing_is_left()
    run = start(lab, {"lr": -1})
    code = run.ends(60)
    expect(code == 2 and "lr = -1" in run.output(), f"{code}: {run.output()[-1500:]}")
    job = lab.job(JOB)
    for words, line in ((("--job", job, "--job", job, "--worker", "true"), "two jobs of one name"),
                        (("--job", job, "--job", "other.ini"), "2 jobs need --worker"),
                        (("--job", job, "--job", "other.ini", "--worker", "true", "--listen", "tcp://127.0.0.1:5555"), "--listen and 2 jobs")):
        code, text = lab.call("pushpull", "run", *words)
        expect(code == 2 and line in text and text.count("\n") == 1, f"{code}: {text}")
    run = lab.start("pushpull", "run", "--job", job, "--workers", 1, "--out", lab.folder / "one", "--worker",
                    script(file=HERE / "two_jobs_worker.py"))
    expect(run.ends(60) == 2 and "there is no job 'left' among several" in run.output(), run.output()[-1500:])


def the_dcgan_runs_as_it_stands(lab):
    _prepare(lab)
    examples = ROOT / "docs" / "examples"
    out = lab.folder / "dcgan"
    run = lab.start("pushpull", "run", "--job", examples / "generator.ini", "--job", examples / "discriminator.ini", "--workers", 2,
                    "--out", out, "--worker", script(file=examples / "dcgan.py"))
    code = run.ends(120)
    expect(code == 0, f"exit code {code}: {run.output()[-1500:]}")
    losses = [summary_of(out / name)["train_loss"] for name in ("generator", "discriminator")]
    expect(0.3 < losses[0] < 6 and 0.1 < losses[1] < 1.6, f"one network has won: {losses}")


if __name__ == "__main__":
    base.main(globals())
