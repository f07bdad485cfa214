"""Tests that a resumed run has the bits of the uninterrupted run."""
import json
import shutil

import lab as base
from lab import MLP, expect, first

ADAMW = {**MLP, "optimizer": "adamw", "weight-decay": 0.01, "lr": 0.003, "clip-norm": 0.5,
         "lr-schedule": "cosine", "warmup-steps": 5}
CONVNET = {**ADAMW, "model": "convnet", "steps": 30}
# so large a rate that the loss soon rises again, and the run ends early
JUMPY = {**MLP, "lr": 0.8, "steps": 200, "eval-every": 3, "stop-when": "loss:2"}
USAGE, DATA = 2, 3


def checkpoints_in(folder):
    return sorted(path.name for path in folder.glob("step-*"))


def refused(run, code, *words):
    expect(run.code == code, f"exit code {run.code}, want {code}: {run.text[-600:]}")
    for word in words:
        expect(word in run.text, f"no '{word}' in: {run.text[-600:]}")
    expect(not (run.out / "summary.json").exists(), "a refused run has a summary")


@first("P5: exact resume on any cluster, and a checkpoint evaluates to what its run reported")
def another_cluster_resumes_with_the_same_bits(lab):
    # an epoch has 22 steps: step 17 is in the first, step 28 in the second
    whole = lab.train(lab.job(CONVNET), 1, 2)
    expect(whole["resumed_from_step"] is None, "a fresh run claims to be resumed")
    keys = {**CONVNET, "checkpoint-dir": lab.folder / "checkpoints"}
    stops = [17, 28]
    first = lab.train(lab.job({**keys, "stop-after": stops[0]}), 2, 3, slice_bytes=4096)
    expect(first["steps"] == stops[0], f"stopped after {first['steps']} steps")
    lab.train(lab.job({**keys, "stop-after": stops[1], "resume": "true"}), 1, 5)
    last = lab.train(lab.job({**keys, "resume": "true"}), 3, 1, slice_bytes=4096)
    expect(last["resumed_from_step"] == stops[1], f"resumed at {last['resumed_from_step']}")
    samples = (keys["steps"] - stops[1]) * 64
    expect(last["samples"] == samples, f"{last['samples']} samples, want {samples}")
    expect(last["weights_sha256"] == whole["weights_sha256"], "other bits")
    agrees_with_eval(lab, keys["checkpoint-dir"], last)
    code, text = lab.call("pushpull", "eval", "--checkpoint", keys["checkpoint-dir"], "--dataset", "dummy")
    expect(code == DATA and "tensor" in text, f"another shape: exit code {code}: {text}")


def agrees_with_eval(lab, checkpoints, summary):
    code, text = lab.call("pushpull", "eval", "--checkpoint", checkpoints, "--json")
    expect(code == 0, f"exit code {code}: {text}")
    result = json.loads(text)
    for key in ("test_correct", "test_total", "test_loss"):
        expect(result[key] == summary[key], f"{key}: eval {result[key]}, run {summary[key]}")


def a_folder_of_checkpoints_is_begun_resumed_and_finished(lab):
    """One run in four parts: the keys `resume` and `checkpoint-keep`, and what they refuse."""
    folder = lab.folder / "checkpoints"
    keys = {**MLP, "checkpoint-dir": folder}
    refused(lab.run(lab.job({**keys, "resume": "true"})), DATA, "checkpoints", "resume=auto")
    first = lab.train(lab.job({**keys, "resume": "auto", "stop-after": 10}))
    expect(first["resumed_from_step"] is None, f"resumed at {first['resumed_from_step']} of nothing")
    refused(lab.run(lab.job(keys)), USAGE, "checkpoint-dir", "step 10", "resume")
    for changed in ({"lr": 0.05, "momentum": 0.5}, {"model": "convnet"}, {"strategy": "async"}):  # they shape the weights
        refused(lab.run(lab.job({**keys, **changed, "resume": "true"})), USAGE, "[resume]", *changed)
    expect(checkpoints_in(folder) == ["step-00000010"], f"harmed: {checkpoints_in(folder)}")
    keys["resume"] = "auto"
    free = {"slice-bytes": 4096, "eval-every": 10, "test-samples": 100}
    second = lab.train(lab.job({**keys, **free, "checkpoint-every": 7, "checkpoint-keep": 2}), 2, 2)
    expect(second["resumed_from_step"] == 10, f"resumed at {second['resumed_from_step']}, want 10")
    expect(second["test_total"] == 100, "free keys did not change")
    expect(checkpoints_in(folder) == ["step-00000035", "step-00000040"], f"the newest are kept: {checkpoints_in(folder)}")
    run = lab.run(lab.job(keys))
    expect(run.code == 0 and "nothing is left to do" in run.text, f"{run.code}: {run.text[-600:]}")
    refused(lab.run(lab.job({**keys, "resume": "true"})), USAGE, "nothing is left to do", "40")


def a_run_that_lacks_only_its_summary_gets_it(lab):
    # as after a failure between the last checkpoint and the summary
    for keys in (MLP, {**CONVNET, "strategy": "async"}, {**MLP, "strategy": "allreduce:tree"}, JUMPY):
        out = lab.folder / lab.name("out")
        whole = lab.train(lab.job(keys), 2, 2, out=out)
        agrees_with_eval(lab, out / "checkpoints", whole)
        (out / "summary.json").unlink()
        run = lab.run(lab.job(keys), 1, 1, out=out, resume="auto")
        expect(run.code == 0 and "nothing is left to train" in run.text, f"{run.code}: {run.text[-600:]}")
        summary = run.summary()
        for key in ("steps", "weights_sha256", "test_correct", "test_loss", "stopped_early", "best_evaluation"):
            expect(summary[key] == whole[key], f"{key}: {summary[key]}, want {whole[key]}")
        expect(summary["samples"] == 0, f"it has trained {summary['samples']} samples")
    run = lab.run(lab.job(keys), out=out, resume="auto")
    expect(run.code == 0 and "nothing is left to do" in run.text, f"{run.code}: {run.text[-600:]}")


@first("P5: a checkpoint is whole or absent")
def damaged_checkpoints_are_skipped(lab):
    folder = lab.folder / "checkpoints"
    whole = lab.train(lab.job(MLP))["weights_sha256"]
    keys = {**MLP, "checkpoint-dir": folder, "resume": "true"}
    lab.train(lab.job({**keys, "resume": "false", "checkpoint-every": 6, "stop-after": 18}), 2, 2)
    expect(checkpoints_in(folder) == [f"step-{n:08}" for n in (6, 12, 18)], checkpoints_in(folder))
    newest = folder / "step-00000018" / "model.safetensors"
    bytes_ = bytearray(newest.read_bytes())
    bytes_[-100] ^= 1
    newest.write_bytes(bytes_)
    older = folder / "step-00000012" / "optimizer.safetensors"
    older.write_bytes(older.read_bytes()[:-1000])
    run = lab.run(lab.job({**keys, "checkpoint-dir": shutil.copytree(folder, lab.folder / "copy")}))
    expect(run.code == 0, f"exit code {run.code}: {run.text[-600:]}")
    for name in ("step-00000018", "step-00000012"):
        expect(name in run.text, f"{name} was skipped in silence: {run.text[-800:]}")
    expect(run.summary()["resumed_from_step"] == 6, f"resumed at {run.summary()['resumed_from_step']}")
    expect(run.summary()["weights_sha256"] == whole, "other bits from the older checkpoint")
    state = folder / "step-00000006" / "state.json"
    state.write_text(state.read_text()[:-20])
    refused(lab.run(lab.job(keys)), DATA, "checkpoints", "step-000000", "damaged")


def strategies_resume_at_their_step(lab):
    """Those of which a resume has no bits to compare. async: replay_test.py; local: strategies_test.py."""
    for strategy, workers in (("buffered:3", 2), ("ssp:2", 2), ("backup:1", 4)):
        keys = {**MLP, "steps": 60, "lr": 0.05, "strategy": strategy, "eval-every": 7, "checkpoint-dir": lab.folder / strategy[:3]}
        first = lab.train(lab.job({**keys, "stop-after": 25}), 2, 3, slice_bytes=4096)
        expect(first["steps"] == 25, f"{strategy}: {first}")
        rest = lab.train(lab.job({**keys, "resume": "true"}), 1, workers)
        expect(rest["resumed_from_step"] == 25, f"{strategy}: {rest}")
        expect(rest["train_loss"] < first["train_loss"], f"{strategy}: the loss has not fallen")
        if strategy == "backup:1":  # each step takes the pushes of all workers but one
            pushes = first["pushes_applied"], rest["pushes_applied"]
            expect(pushes == (2 * 25, 3 * 35), f"{pushes} applied")
        else:
            expect((first["samples"], rest["samples"]) == (25 * 64, 35 * 64), f"{strategy}: {first}, {rest}")


if __name__ == "__main__":
    base.main(globals())
