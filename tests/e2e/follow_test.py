"""Tests `pushpull eval --follow`: it evaluates the checkpoints of a job while the job runs."""
import json
import shutil

import lab as base
from lab import LONG, MLP, expect, first, metrics_of


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@first("eval --follow")
def each_checkpoint_is_evaluated_until_the_run_has_ended(lab):
    job = lab.job({**MLP, "steps": 200, "checkpoint-every": 50, "checkpoint-keep": 100})
    out = lab.folder / "out"
    follower = lab.start("pushpull", "eval", "--follow", "--checkpoint", out / "checkpoints")
    summary = lab.train(job, 1, 2, out=out)
    expect(follower.ends(60) == 0, f"{follower.returncode}: {follower.output()}")
    lines = lines_of(out / "eval.jsonl")
    expect([line["step"] for line in lines] == [50, 100, 150, 200], f"{lines}")
    expect(lines[-1]["test_correct"] == summary["test_correct"], f"{lines[-1]} {summary['test_correct']}")
    # after the end: the checkpoints that are there, and nothing to wait for
    code, text = lab.call("pushpull", "eval", "--follow", "--checkpoint", out / "checkpoints", "--metrics", lab.folder / "again")
    expect(code == 0 and len(lines_of(lab.folder / "again")) == 4, f"{code}: {text}")


def it_follows_a_running_job_and_ends_with_it(lab):
    job = lab.job({**LONG, "checkpoint-every": lab.steps(2000)})
    run = lab.launch(job, 1, 1)
    follower = lab.start("pushpull", "eval", "--follow", "--checkpoint", run.out / "checkpoints")
    lab.until(lambda: len(lines_of(run.out / "eval.jsonl")) >= 2, 90, lambda: f"{follower.output()} {metrics_of(run.out)[-2:]}")
    expect(follower.poll() is None, f"it has ended before the run: {follower.output()}")
    run.terminate()
    expect(run.ends(60) == 75, run.output()[-800:])
    expect(follower.ends(60) == 0, f"{follower.returncode}: {follower.output()}")
    last = max(int(path.name[5:]) for path in (run.out / "checkpoints").glob("step-*"))
    expect(lines_of(run.out / "eval.jsonl")[-1]["step"] == last, f"{lines_of(run.out / 'eval.jsonl')[-1]}, not step {last}")


def it_gives_up_without_a_run(lab):
    code, text = lab.call("pushpull", "eval", "--follow", "--checkpoint", lab.folder / "none/checkpoints", "--follow-timeout", 1)
    expect(code == 4 and "its run has not begun" in text, f"{code}: {text}")
    code, text = lab.call("pushpull", "eval", "--checkpoint", lab.folder, "--metrics", "x")
    expect(code == 2 and "--metrics belongs to --follow" in text, f"{code}: {text}")


def a_damaged_checkpoint_is_an_error(lab):
    out = lab.folder / "out"
    lab.train(lab.job({**MLP, "steps": 20}), 1, 1, out=out)
    broken = out / "checkpoints" / "step-00000020"
    shutil.copy(broken / "state.json", broken / "model.safetensors")
    code, text = lab.call("pushpull", "eval", "--follow", "--checkpoint", out / "checkpoints")
    expect(code == 3 and "model.safetensors" in text, f"{code}: {text}")


if __name__ == "__main__":
    base.main(globals())
