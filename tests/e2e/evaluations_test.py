"""Tests jobs that follow their evaluations: early stopping, and the checkpoint of the best evaluation."""
import json

import lab as base
from lab import MLP, expect, first

# so large a rate that the loss soon rises again
JUMPY = {**MLP, "lr": 0.8, "steps": 200, "eval-every": 3, "stop-when": "loss:2"}
USAGE, DATA = 2, 3


def evaluations_of(out):
    """Returns the loss of each evaluation, by step."""
    return {line["test_step"]: line["test_loss"] for line in base.metrics_of(out) if "test_step" in line}


@first("early stopping, at the same step on any cluster")
def stops_at_the_same_step_on_any_cluster(lab):
    out = lab.folder / "first"
    first = lab.train(lab.job(JUMPY), 1, 1, out=out)
    expect(first["stopped_early"] and 6 < first["steps"] < 200, first)
    losses = evaluations_of(out)
    best = min(losses, key=lambda step: (losses[step], step))
    expect(best == first["steps"] - 6, f"stopped at {first['steps']}: {losses}")
    expect(first["best_evaluation"] == {"measure": "loss", "step": best, "value": losses[best], "evaluations_since": 2}, first)
    expect(losses[first["steps"]] == first["test_loss"], "the newest evaluation is not of the final weights")
    after = lab.train(lab.job({**JUMPY, "stop-when": "none", "stop-after": first["steps"]}), 1, 2)
    expect(after["weights_sha256"] == first["weights_sha256"] and not after["stopped_early"], after)
    for servers, workers, more in ((2, 3, {}), (1, 2, {"transport": "tcp"}), (1, 2, {"strategy": "allreduce:tree"})):
        run = lab.train(lab.job(JUMPY), servers, workers, **more)
        expect((run["steps"], run["weights_sha256"]) == (first["steps"], first["weights_sha256"]), (more, run))
        expect(run["samples"] == first["steps"] * 64, run)


def a_resumed_run_counts_the_evaluations_before(lab):
    whole = lab.train(lab.job(JUMPY), 1, 2)
    keys = {**JUMPY, "checkpoint-dir": lab.folder / "checkpoints", "resume": "auto"}
    for stop in (whole["steps"] - 4, whole["steps"] - 3, whole["steps"] - 1):
        part = lab.train(lab.job({**keys, "stop-after": stop}), 2, 1)
        expect(part["steps"] == stop and not part["stopped_early"], part)
    rest = lab.train(lab.job(keys), 1, 3)
    expect(rest["weights_sha256"] == whole["weights_sha256"] and rest["stopped_early"], (rest, whole))
    expect(rest["best_evaluation"] == whole["best_evaluation"], (rest, whole))
    run = lab.run(lab.job(keys))
    expect(run.code == 0 and "nothing is left to do" in run.text and "stopped early" in run.text, run.text)
    more = lab.train(lab.job({**keys, "stop-when": "loss:1000", "stop-after": whole["steps"] + 2}))
    expect(more["steps"] == whole["steps"] + 2, more)


def every_strategy_ends_early(lab):
    for strategy in ("async", "ssp:2", "backup:1", "local:4", "buffered:2"):
        run = lab.train(lab.job({**JUMPY, "strategy": strategy, "stop-when": "loss:1", "steps": 400}), 2, 3)
        expect(run["stopped_early"] and run["steps"] < 400, (strategy, run["steps"]))


def a_recorded_run_that_ends_early_is_replayed(lab):
    record = lab.folder / "run.rec"
    run = lab.train(lab.job({**JUMPY, "strategy": "async", "stop-when": "loss:1", "steps": 400, "record": record}), 2, 2)
    expect(run["stopped_early"], run["steps"])
    code, text = lab.call("pushpull", "replay", record, "--out", lab.folder / "again")
    expect(code == 0, text[-600:])
    again = json.loads((lab.folder / "again" / "summary.json").read_text())
    expect(again["weights_sha256"] == run["weights_sha256"], "other bits in the replay")


@first("checkpoint-best")
def the_best_checkpoint_stays(lab):
    out = lab.folder / "out"
    keys = {**JUMPY, "checkpoint-best": "true", "stop-when": "loss:4", "checkpoint-every": 2, "checkpoint-keep": 1}
    run = lab.train(lab.job(keys), 2, 2, out=out)
    losses = evaluations_of(out)
    best = min(losses, key=lambda step: (losses[step], step))
    expect(run["best_evaluation"]["step"] == best, (run["best_evaluation"], losses))
    folder = out / "checkpoints"
    expect(sorted(p.name for p in folder.glob("step-*")) == [f"step-{run['steps']:08}"], "not only the newest one is kept")
    expect([p.name for p in (folder / "best").iterdir()] == [f"step-{best:08}"], list((folder / "best").iterdir()))
    code, text = lab.call("pushpull", "eval", "--checkpoint", folder / "best", "--json")
    expect(code == 0 and json.loads(text)["test_loss"] == losses[best], (text, losses[best]))
    again = lab.train(lab.job({**MLP, "steps": 1, "lr": 0.001, "init-from": folder / "best" / f"step-{best:08}" / "model.safetensors"}))
    same = lab.train(lab.job({**JUMPY, "stop-when": "none", "stop-after": best}))
    expect(again["initial_weights_sha256"] == same["weights_sha256"], "other weights than those of that step")


def a_lost_worker_changes_nothing(lab):
    keys = {**JUMPY, "on-worker-loss": "wait", "checkpoint-best": "true", "stop-when": "loss:30", "steps": 400}
    whole = lab.train(lab.job(keys), 1, 2)
    cluster = lab.cluster(lab.job({**keys, "straggler": "0:20"}), 1, 2)
    cluster.reaches(10)
    lost = cluster.workers[1]
    lost.kill()
    cluster.add_worker()
    cluster.ends_well(but=(lost,))
    run = base.summary_of(cluster.out)
    for key in ("steps", "weights_sha256", "stopped_early", "best_evaluation"):
        expect(run[key] == whole[key], f"{key}: {run[key]}, want {whole[key]}")


def what_cannot_be_followed_is_refused(lab):
    for keys, words in (({"stop-when": "f1:2"}, ("stop-when = f1:2", "perplexity")),
                        ({"stop-when": "loss:2", "eval-every": 0}, ("stop-when = loss:2", "eval-every")),
                        ({"stop-when": "perplexity:2"}, ("label/loss, label/accuracy",)),
                        ({"stop-when": "start/loss:2"}, ("start/loss:2", "label/loss"))):
        run = lab.run(lab.job({**JUMPY, **keys}))
        expect(run.code == USAGE, (keys, run.code, run.text[-500:]))
        for word in words:
            expect(word in run.text, f"no '{word}' in {run.text[-500:]}")


if __name__ == "__main__":
    base.main(globals())
