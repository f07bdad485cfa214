"""Tests the same command twice, during the first run and after it: no trained weights are lost."""
import os
import shutil
import signal

import lab as base
from lab import LONG, MLP, expect, first, living_below, summary_of

USAGE = 2
UNREACHABLE = 4
CANNOT_WRITE = 8
SIGTERM_CODE = 128 + signal.SIGTERM


def whole(folder):
    return sorted(path.parent.name for path in folder.glob("step-*/DONE"))


def command(lab, job, out, address="tcp://127.0.0.1:*"):
    return ["pushpull-server", "--job", job, "--listen", address, "--workers", 2, "--out", out]


def refused(lab, words, *parts):
    code, text = lab.call(*words, seconds=30)
    lines = text.splitlines()
    expect(code == USAGE and len(lines) == 1 and all(str(part) in lines[0] for part in parts),
           f"exit code {code}, want {USAGE} and one line with {parts}: {text[-600:]}")


@first("P5: starting something twice costs nothing")
def a_second_start_is_refused_and_the_first_run_continues(lab):
    checkpoints = lab.folder / "ckpt"
    keys = {**lab.in_parts(MLP, 1800), "checkpoint-dir": checkpoints, "checkpoint-every": 100}
    want = lab.train(lab.job({**keys, "checkpoint-dir": ""}), workers=2)["weights_sha256"]
    job = lab.job(keys)
    first = lab.cluster(job, workers=2)
    first.reaches(300)
    with first.workers[0].stopped():  # so that the job does not end meanwhile
        pid = first.servers[0].pid
        lab.until(lambda: whole(checkpoints), 30, lambda: "no checkpoint")
        before = whole(checkpoints)
        refused(lab, command(lab, job, first.out, first.address), first.address)
        refused(lab, command(lab, job, first.out), f"{first.out} is in use by process {pid} on host ", "--out")
        refused(lab, command(lab, lab.job({**keys, "resume": "auto"}), lab.folder / "other"), checkpoints, f"process {pid} ",
                "checkpoint-dir")
        expect(set(before) <= set(whole(checkpoints)), "the running job's checkpoints are gone")
    summary = first.ends_well()
    expect(summary["weights_sha256"] == want, "other bits than the undisturbed run")
    expect(not (first.out / ".lock").exists(), "the lock file is left behind")


def after_a_kill_before_the_first_step_the_command_starts_anew(lab):
    job, out = lab.job(MLP), lab.folder / "out"
    words = [*command(lab, job, out), "--join-timeout", lab.seconds(3)]
    first = lab.start(*words)
    first.prints("listening on")
    first.kill()
    first.wait()
    expect((out / "term.json").exists(), "no term.json: this tests nothing")
    code, text = lab.call(*words, seconds=30)
    expect(code == UNREACHABLE and "not all members joined within --join-timeout" in text, f"{code}: {text[-600:]}")
    first = lab.start(*words)
    first.prints("listening on")
    first.kill()
    first.wait()
    again = lab.start(*words)
    again.prints("listening on")
    again.send_signal(signal.SIGTERM)  # it does not wait for a cut of a run that has not begun
    expect(again.ends(10) == SIGTERM_CODE, f"exit code {again.returncode}: {again.output()[-600:]}")


def an_earlier_runs_checkpoints_stay_until_the_first_new_one(lab):
    """The later run ends before it begins, is killed, and comes to its end; and one cannot write checkpoints at all."""
    out = lab.folder / "out"
    checkpoints = out / "checkpoints"
    lab.train(lab.job(MLP), out=out)
    before = whole(checkpoints)
    alone = lab.start(*command(lab, lab.job(MLP), out))
    alone.prints("listening on")
    alone.send_signal(signal.SIGTERM)
    alone.ends(30)
    expect(whole(checkpoints) == before, f"{before} became {sorted(out.rglob('*'))}")

    fresh = lab.launch(lab.job({**LONG, "seed": 8}), out=out)
    fresh.prints(f"the checkpoints of an earlier run are in {out / 'checkpoints.1'}")
    fresh.prints("training starts")
    expect(whole(out / "checkpoints.1") == before, f"{sorted(out.rglob('*'))}")
    fresh.send_signal(signal.SIGSTOP)
    for pid in living_below(fresh.pid):  # on SIGTERM they would write a checkpoint
        os.kill(pid, signal.SIGKILL)
    fresh.kill()
    lab.nothing_is_left()
    expect(whole(out / "checkpoints.1") == before, f"{sorted(out.rglob('*'))}")
    job = lab.job({**MLP, "steps": 50, "seed": 8})
    lab.train(job, out=out)
    expect(summary_of(out)["steps"] == 50 and whole(checkpoints) == ["step-00000050"], f"{sorted(out.rglob('*'))}")
    expect(whole(out / "checkpoints.1") == before, "the last run's checkpoints are gone")
    lab.train(lab.job({**MLP, "steps": 50, "seed": 9, "keep-runs": 0}), out=out)
    expect(not (out / "checkpoints.1").exists(), "the earlier runs' checkpoints still exist")

    shutil.rmtree(checkpoints)
    checkpoints.symlink_to("nowhere/checkpoints")
    files = {name: (out / name).read_bytes() for name in ("metrics.jsonl", "summary.json", "job.ini")}
    run = lab.run(job, out=out)
    expect(run.code == CANNOT_WRITE, f"exit code {run.code}: {run.text[-600:]}")
    for name, text in files.items():
        expect((out / name).exists() and (out / name).read_bytes() == text, f"{name} of the earlier run is gone")


if __name__ == "__main__":
    base.main(globals())
