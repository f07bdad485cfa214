"""Tests checkpoint-every = auto: the coordinator chooses the steps, and no bits change."""
import hashlib
import os
import re

import lab as base
from lab import MLP, expect
from replay_test import replays

AUTO = {**MLP, "checkpoint-every": "auto", "steps": 10_000_000}
LINE = re.compile(r"the checkpoint of step (\d+) took .* a loss repeats at most (\d+) steps \(([0-9.]+) s\)")


def weights_of(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def chosen_steps(run):
    return [int(found[1]) for found in LINE.finditer(run.output())]


def runs_until_they_have_chosen(lab, all_keys, servers, workers):
    """Runs the jobs side by side, since the first checkpoint comes after 10 s."""
    runs = [lab.launch(lab.job(keys), servers, workers) for keys in all_keys]
    for run in runs:
        lab.until(lambda: chosen_steps(run) or run.poll() is not None, 60, run.output)
        expect(run.poll() is None, run.output()[-900:])
        members = base.living_below(run.pid)
        base.kill_all(run)
        run.ends(30)
        lab.until(lambda: not members & base.living_below(os.getpid()), 30, lambda: f"left: {lab.left_behind()}")
    return runs


def a_chosen_checkpoint_has_the_bits_of_its_step(lab):
    """Compares with a run that ends at this step, with other servers and workers; and a run resumes from it."""
    all_keys = [{**AUTO, "strategy": strategy, "optimizer": "sgd", "straggler": "0:60"}
                for strategy in ("sync", "local:5", "allreduce:tree")]
    for keys, run in zip(all_keys, runs_until_they_have_chosen(lab, all_keys, 2, 2)):
        strategy = keys["strategy"]
        step = chosen_steps(run)[0]
        folder = run.out / "checkpoints" / f"step-{step:08}"
        expect((folder / "DONE").exists(), f"{strategy}: no checkpoint of step {step}: {run.output()[-900:]}")
        found = LINE.search(run.output())
        expect(int(found[2]) > 0 and float(found[3]) > 0, found[0])
        same = {**keys, "steps": 10_000_000, "stop-after": step, "checkpoint-every": 0, "straggler": "none"}
        want = lab.run(lab.job(same), 1, 2)
        expect(want.code == 0, want.text[-900:])
        expect(weights_of(folder) == weights_of(want.out / "checkpoints" / folder.name),
               f"{strategy}: other weights at step {step}")
        on = lab.run(lab.job({**same, "stop-after": step + 5, "checkpoint-dir": run.out / "checkpoints",
                              "resume": "true", "checkpoint-every": "auto"}), 1, 2)
        expect(on.code == 0, on.text[-900:])
        expect(on.summary()["resumed_from_step"] == step, f"{on.summary()['resumed_from_step']}")


def other_strategies_choose_steps_too_and_a_record_replays(lab):
    record = lab.folder / "run.rec"
    live = lab.cluster(lab.job({**AUTO, "strategy": "async", "steps": lab.steps(4000), "record": record,
                                "heartbeat-timeout": lab.seconds(120)}), 2, 1)
    strategies = ("ssp:2", "backup:1", "buffered:3")
    with live.workers[0].stopped():  # until the 10 s are over for this job too
        runs = runs_until_they_have_chosen(lab, [{**AUTO, "strategy": strategy} for strategy in strategies], 2, 3)
    summary = live.ends_well()
    expect(LINE.search(live.servers[0].output()), f"no checkpoint in {summary['seconds']} s")
    replays(lab, record, summary)
    for strategy, run in zip(strategies, runs):
        newest = chosen_steps(run)[-1]
        on = lab.run(lab.job({**AUTO, "strategy": strategy, "stop-after": newest + 5, "resume": "true",
                              "checkpoint-dir": run.out / "checkpoints"}), 1, 2)
        expect(on.code == 0, f"{strategy}: {on.text[-900:]}")


if __name__ == "__main__":
    base.main(globals())
