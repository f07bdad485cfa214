"""Tests backup:B, which drops late pushes and names their workers; local:H, which trains in rounds; and
buffered:K, which collects pushes. They survive the loss of a worker and resume from a checkpoint."""
import array
import json
import os
import signal
import struct

import lab as base
from lab import MLP, expect, first

USAGE = 2
SGD = {**MLP, "optimizer": "sgd"}
BACKUP = {**MLP, "strategy": "backup:1"}
LOCAL = {**SGD, "strategy": "local:8"}


def weights_in(folder):
    """Returns all floats of the only checkpoint below the folder, by tensor."""
    tensors = {}
    for path in folder.rglob("model.safetensors"):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, tensor in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + at for at in tensor["data_offsets"])
                tensors[name] = array.array("f", raw[begin:end])
    expect(tensors, f"no weights below {folder}")
    return tensors


@first("strategy backup")
def backup_leaves_a_straggler_behind_and_counts_what_it_drops(lab):
    keys = {**BACKUP, "steps": 100, "straggler": "1:100", "eval-every": 30}
    summary = lab.train(lab.job(keys), 2, 3, slice_bytes=4096)
    expect(summary["pushes_applied"] == 2 * keys["steps"], f"{summary['pushes_applied']} applied")
    expect(0 < summary["pushes_dropped"] <= keys["steps"], f"{summary['pushes_dropped']} dropped")
    expect(sum(summary["pushes_dropped_per_worker"]) == summary["pushes_dropped"], str(summary))
    samples = summary["samples_per_worker"]
    expect(sum(samples) == summary["samples"], str(summary))
    expect(samples[1] < min(samples[0], samples[2]), f"samples by worker: {samples}")


def backup_continues_without_a_stopped_worker_and_accepts_a_replacement(lab):
    keys = lab.in_parts({**BACKUP, "lr": 0.02}, 6000)
    cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
    server = cluster.servers[0]
    cluster.reaches(1)
    with cluster.workers[1].stopped():
        cluster.reaches(cluster.step() + 100)
    lost = cluster.workers[2]
    os.kill(lost.pid, signal.SIGKILL)
    server.prints("the others go on")
    with cluster.workers[0].stopped():  # a step needs two: the job does not end before the new worker joins
        cluster.add_worker()
        server.prints("takes the free place")
    summary = cluster.ends_well(but=(lost,))
    expect(summary["pushes_applied"] == 2 * keys["steps"], f"{summary['pushes_applied']} applied")
    # the push that it was computing when it was stopped arrived too late
    expect(summary["pushes_dropped_per_worker"][1] >= 1, f"{summary['pushes_dropped_per_worker']}")
    expect("dropped " in server.output() and "of worker 1" in server.output(), f"the drop was not reported: {server.output()[-600:]}")
    expect(summary["test_correct"] > 0.8 * summary["test_total"], f"{summary['test_correct']} right")


@first("P5: backup goes on without lost workers")
def backup_continues_without_lost_workers(lab):
    keys = {**BACKUP, "steps": 4000, "lr": 0.02, "eval-every": 200}
    cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
    cluster.reaches(1)
    lost = [cluster.workers[1]]
    os.kill(lost[0].pid, signal.SIGKILL)
    cluster.servers[0].prints("the others go on")
    # another worker evaluates its chunks now
    goal = cluster.step() + 500
    lab.until(lambda: cluster.step() >= goal, 60, lambda: f"no step {goal}, only {cluster.step()}")
    expect("go to" not in cluster.servers[0].output(), "its share is computed, though a step needs two")
    lost.append(cluster.workers[2])
    os.kill(lost[1].pid, signal.SIGKILL)
    cluster.servers[0].prints("go to worker 0")
    summary = cluster.ends_well(but=lost)
    expect(summary["pushes_applied"] == 2 * keys["steps"], f"{summary['pushes_applied']} applied")
    expect(summary["test_correct"] > 0.8 * summary["test_total"], f"{summary['test_correct']} right")


@first("strategy buffered")
def buffered_counts_and_applies_every_push(lab):
    for buffer in (3, 1000):
        keys = {**MLP, "strategy": f"buffered:{buffer}", "steps": 60, "eval-every": 7}
        summary = lab.train(lab.job(keys), 2, 3, slice_bytes=4096)
        expect(summary["pushes_applied"] == 3 * 60, f"{buffer}: {summary['pushes_applied']} applied")
        expect(summary["samples"] == 60 * 64, f"{buffer}: {summary['samples']} samples")
        histogram = summary["staleness"]["histogram"]
        expect(sum(histogram.values()) == 2 * 3 * 60, f"{buffer}: every push at both servers: {histogram}")
        expect(buffer < 1000 or histogram == {"0": 360}, f"one update from barrier to barrier: {histogram}")


def more_backups_than_workers_are_refused(lab):
    for strategy, workers, words in (("backup:2", 2, ("backup:2", "2", "B must be below")),
                                     ("backup:8", 20, ("backup:8", "20", "B must be below"))):  # 8 micro-batches
        run = lab.run(lab.job({**MLP, "strategy": strategy}), 1, workers)
        expect(run.code == USAGE and all(word in run.text for word in words), f"{run.code}: {run.text[-300:]}")
    code, text = lab.call("pushpull-server", "--job", lab.job({**MLP, "strategy": "backup:9"}), "--workers", 3)
    expect(code == USAGE and "backup:9" in text and "3 workers" in text, f"{code}: {text[-300:]}")


@first("strategy local: local:1 is sync")
def local_one_is_sync(lab):
    outer = {"outer-lr": 1, "outer-momentum": 0}
    keys = {**SGD, "model": "convnet", "steps": 10, "lr": 0.05}  # it has running statistics too
    folders = [lab.folder / name for name in ("sync", "local")]
    sync = lab.train(lab.job({**keys, "checkpoint-dir": folders[0]}), 1, 2)
    expect(sync["pushes_applied"] == 2 * keys["steps"] and sync["pushes_dropped"] == 0, str(sync))
    lab.train(lab.job({**keys, **outer, "strategy": "local:1", "checkpoint-dir": folders[1]}), 2, 2)
    one, other = (weights_in(folder) for folder in folders)
    worst = max(abs(a - b) for name in one for a, b in zip(one[name], other[name]))
    expect(worst < 1e-5, f"largest difference {worst}")


@first("P1: local pushes little, and has the same bits on any servers")
def local_pushes_little_and_has_the_same_bits_on_any_servers(lab):
    keys = {**MLP, "steps": 320}
    few = lab.train(lab.job({**keys, "strategy": "local:16"}), 1, 3)
    many = lab.train(lab.job(keys), 1, 3)
    expect(few["bytes_pushed"] * 10 < many["bytes_pushed"], f"{few['bytes_pushed']} bytes")
    expect(few["samples"] == many["samples"] == 320 * 64, f"{few['samples']} samples")
    expect(few["pushes_applied"] == 3 * 20 and few["pushes_dropped"] == 0, f"{few['pushes_applied']}")
    expect(few["test_correct"] > 0.8 * few["test_total"], f"{few['test_correct']} right")
    watched = {**keys, "strategy": "local:16", "eval-every": 5, "checkpoint-every": 7}
    other = lab.train(lab.job(watched), 3, 3, slice_bytes=4096)["weights_sha256"]
    expect(other == few["weights_sha256"], "the weights differ")


def local_survives_a_lost_worker_with_the_same_bits(lab):
    # plain SGD keeps no state that is lost with a worker
    keys = lab.in_parts({**LOCAL, "lr": 0.02, "on-worker-loss": "continue"}, 6000)
    calm = lab.train(lab.job(keys), 1, 3)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
    cluster.reaches(1)
    lost = cluster.workers[2]
    os.kill(lost.pid, signal.SIGKILL)
    summary = cluster.ends_well(but=(lost,))
    expect("the others go on" in cluster.servers[0].output(), cluster.servers[0].output()[-600:])
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def local_resumes_from_a_checkpoint(lab):
    whole = lab.train(lab.job(LOCAL), 1, 2)["weights_sha256"]
    keys = {**LOCAL, "checkpoint-dir": lab.folder / "checkpoints"}
    lab.train(lab.job({**keys, "stop-after": 16}), 2, 2, slice_bytes=4096)
    last = lab.train(lab.job({**keys, "resume": "true"}), 1, 2)
    expect(last["resumed_from_step"] == 16, f"resumed at {last['resumed_from_step']}")
    expect(last["weights_sha256"] == whole, "the weights differ from the uninterrupted run")
    # a checkpoint does not contain the state of the workers' optimizers, and the run says so
    keys = {**keys, "optimizer": "momentum", "checkpoint-dir": lab.folder / "more"}
    lab.train(lab.job({**keys, "stop-after": 13}), 1, 2)
    run = lab.run(lab.job({**keys, "resume": "true"}), 1, 2)
    expect(run.code == 0 and "restart at zero" in run.text, f"{run.code}: {run.text[-600:]}")


if __name__ == "__main__":
    base.main(globals())
