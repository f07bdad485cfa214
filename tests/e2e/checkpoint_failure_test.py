"""Tests jobs that continue although a checkpoint cannot be written."""
import os
import re

import lab as base
from files_test import limited_files
from lab import LONG, MLP, expect, first, summary_of
from server_losses_test import kill_at

FILE = 8
CONTINUE = {"on-checkpoint-failure": "continue", "checkpoint-every": 50}


def whole_steps(folder):
    return sorted(int(path.parent.name.removeprefix("step-")) for path in folder.glob("step-*/DONE"))


@first("P5: a checkpoint that cannot be written costs no training")
def a_run_without_checkpoints_has_the_right_weights(lab):
    keys = {**MLP, **CONTINUE, "steps": 200, "transport": "tcp"}
    want = lab.train(lab.job(keys), 1, 2)
    out = lab.folder / "out"
    code, text = lab.call("pushpull", "run", "--job", lab.job(keys), "--out", out, "--workers", 2,
                          preexec_fn=limited_files(16_000))
    expect(code == FILE, f"exit code {code}: {text[-900:]}")
    got = summary_of(out)
    expect(got["weights_sha256"] == want["weights_sha256"], "other weights")
    expect((got["checkpoints_failed"], want["checkpoints_failed"]) == (4, 0), f"{got['checkpoints_failed']}")
    for step in (50, 100, 150):
        expect(text.count(f"the checkpoint of step {step} is lost, training goes on") == 1, text)
    expect("[run] server 0" in text and "step 200 is lost, the last one" in text, text[-900:])
    left = [str(path) for path in (out / "checkpoints").iterdir()]
    expect(not left, f"torn files: {left}")


def a_folder_that_returns_gets_the_later_checkpoints(lab):
    """The job continues without it, keeps the complete checkpoints, and writes again once the folder is
    back."""
    folder, away = lab.folder / "ckpt", lab.folder / "away"
    keys = {**lab.in_parts({**MLP, **CONTINUE}, 3000), "checkpoint-dir": folder, "checkpoint-keep": 2}
    want = lab.train(lab.job({**keys, "checkpoint-dir": lab.folder / "calm"}), 2, 2)
    run = lab.launch(lab.job(keys), 2, 2)
    lab.until(lambda: len(whole_steps(folder)) == 2, 60, run.output)
    os.rename(folder, away)
    kept = whole_steps(away)
    lab.until(lambda: "is lost, training goes on" in run.output(), 60, run.output)
    os.rename(away, folder)
    expect(run.ends(120) == 0, run.output()[-900:])
    got = summary_of(run.out)
    expect(got["weights_sha256"] == want["weights_sha256"], "other weights")
    expect(got["checkpoints_failed"] >= 1, "no checkpoint has failed")
    expect(whole_steps(folder) == whole_steps(lab.folder / "calm"), f"{whole_steps(folder)}")
    found = re.search("the newest checkpoint on disk is that of step ([0-9]+)", run.output())
    expect(found and int(found[1]) in kept, f"{kept}: {run.output()[-900:]}")


def after_a_server_loss_all_resume_from_the_newest_complete_checkpoint(lab):
    folder, away = lab.folder / "ckpt", lab.folder / "away"
    keys = {**lab.in_parts({**MLP, **CONTINUE}, 3000), "checkpoint-dir": folder}
    want = lab.train(lab.job({**keys, "checkpoint-dir": lab.folder / "calm"}), 2, 2)
    run = lab.launch(lab.job(keys), 2, 2)
    lab.until(lambda: whole_steps(folder), 60, run.output)
    os.rename(folder, away)
    lab.until(lambda: "is lost, training goes on" in run.output(), 60, run.output)
    os.rename(away, folder)
    kill_at(lab, run, 0, coordinator=False)
    expect(run.ends(120) == 0, run.output()[-900:])
    again = re.search("training goes on: .* steps ([0-9]+) to", run.output())
    expect(again and int(again[1]) > 0, run.output()[-900:])
    got = summary_of(run.out)
    expect(got["weights_sha256"] == want["weights_sha256"] and got["recoveries"] == 1, "other weights")
    expect(got["checkpoints_failed"] >= 1, f"{got['checkpoints_failed']}")


def without_the_key_a_failed_checkpoint_ends_the_job(lab):
    folder = lab.folder / "ckpt"
    run = lab.launch(lab.job({**LONG, "checkpoint-every": 50, "checkpoint-dir": folder}), 1, 1)
    lab.until(lambda: whole_steps(folder), 60, run.output)
    os.rename(folder, lab.folder / "away")
    expect(run.ends(60) == FILE, run.output()[-900:])
    expect(not (run.out / "summary.json").exists(), "a summary of a job that has failed")


if __name__ == "__main__":
    base.main(globals())
