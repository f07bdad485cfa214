"""Tests all-reduce: workers sum gradients and update weights without servers; `tree` has the bits of `sync`."""
import os
import signal
import time

import lab as base
from lab import LONG, MLP, Skipped, expect, first

KINDS = ("tree", "ring", "gloo")
ADAMW = {**MLP, "optimizer": "adamw", "weight-decay": 0.01, "lr": 0.003, "clip-norm": 0.5,
         "lr-schedule": "cosine", "lr-min": 1e-4, "warmup-steps": 5, "eval-every": 7,
         "checkpoint-every": 9, "global-batch": 48}
CONVNET = {**MLP, "model": "convnet", "lr": 0.05, "steps": 12}
SMALL, LARGE = 2048, 1 << 20
NOT_BUILT = "built without Gloo"


def reduced(keys, kind="tree"):
    return {**keys, "strategy": f"allreduce:{kind}"}


def built(lab, kinds=KINDS):
    """Returns the algorithms that this build has."""
    run = lab.run(lab.job(reduced({**MLP, "steps": 1}, "gloo")))
    if run.code == 0:
        return kinds
    expect(run.code == 2 and NOT_BUILT in run.text, f"exit code {run.code}: {run.text[-600:]}")
    return kinds[:2]


def same_as_sync(lab, keys, shapes):
    sync = lab.train(lab.job(keys), 1, 2)
    job = lab.job(reduced(keys))
    for servers, workers, size in shapes:
        tree = lab.train(job, servers, workers, slice_bytes=size)
        for key in ("weights_sha256", "test_correct", "test_loss", "samples", "train_loss"):
            expect(tree[key] == sync[key], f"{workers} workers, {servers} servers: {key} is "
                                           f"{tree[key]}, {sync[key]} in sync")
    return tree


@first("P1: allreduce:tree has the bits of sync")
def tree_has_the_bits_of_sync(lab):
    last = same_as_sync(lab, MLP, [(1, 1, LARGE), (3, 5, SMALL), (2, 9, SMALL)])
    # 8 micro-batches: the ninth worker is a spare
    expect(sorted(last["samples_per_worker"]) == [0] + [320] * 8, f"{last['samples_per_worker']}")
    expect(last["bytes_pushed"] > 0 and last["bytes_pulled"] == last["bytes_pushed"],
           f"{last['bytes_pushed']} bytes pushed, {last['bytes_pulled']} pulled")


def tree_clips_schedules_saves_and_sums_batch_statistics_like_sync(lab):
    # 6 micro-batches: 4 workers have different shares, and the seventh is a spare
    same_as_sync(lab, {**ADAMW, "model": "convnet", "steps": 20}, [(3, 2, SMALL), (1, 4, LARGE), (2, 7, SMALL)])


@first("strategies allreduce:ring and gloo")
def ring_and_gloo_are_close_to_tree_and_ring_has_the_same_bits_again(lab):
    kinds = built(lab)[1:]
    for keys, shapes in ((MLP, ((1, 1), (2, 2), (1, 5))), (CONVNET, ((1, 5),))):
        tree = lab.train(lab.job(reduced(keys)), 1, 3)
        for kind in kinds:
            for servers, workers in shapes:
                other = lab.train(lab.job(reduced(keys, kind)), servers, workers)
                gap = abs(other["test_loss"] - tree["test_loss"])
                expect(gap < 1e-3, f"{kind}, {workers} workers: test loss {other['test_loss']}, "
                                   f"tree {tree['test_loss']}")
                if kind == "ring":
                    ring = other
    again = lab.train(lab.job(reduced(CONVNET, "ring")), 1, 5)
    expect(again["weights_sha256"] == ring["weights_sha256"], "two runs of ring have different bits")


@first("P5: a resume of all-reduce")
def another_cluster_resumes_with_the_same_bits(lab):
    whole = lab.train(lab.job(ADAMW), 1, 2)
    keys = {**reduced(ADAMW), "checkpoint-dir": lab.folder / "checkpoints"}
    lab.train(lab.job({**keys, "stop-after": 17}), 2, 3, slice_bytes=4096)
    lab.train(lab.job({**keys, "stop-after": 28, "resume": "true"}), 1, 5)
    last = lab.train(lab.job({**keys, "resume": "true"}), 3, 1, slice_bytes=4096)
    expect(last["resumed_from_step"] == 28, f"resumed at {last['resumed_from_step']}")
    expect(last["weights_sha256"] == whole["weights_sha256"], "other bits")


@first("P6: all-reduce names a lost worker")
def a_lost_worker_ends_the_job_and_is_named(lab):
    def ends(kind, number):
        keys = reduced({**LONG, "heartbeat-timeout": lab.seconds(3)}, kind)
        cluster = lab.cluster(lab.job(keys), 1, 3)
        cluster.reaches(5)
        lost = cluster.workers[1]
        os.kill(lost.pid, number)
        for process in cluster.all():
            if process is lost:
                continue
            code = process.ends(30)
            last = process.output().splitlines()[-1]
            expect(code == 5, f"{process.name} ended with {code}: {last}")
            for word in ("worker 1", f"pid {lost.pid}", "on-worker-loss=abort"):
                expect(word in last, f"{process.name} does not say {word}: {last}")
        os.kill(lost.pid, signal.SIGKILL)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        lab.side_by_side(ends, *((kind, number) for kind in built(lab)))


def a_lost_server_ends_the_job_and_is_named(lab):
    def ends(rank, number):
        keys = reduced({**LONG, "heartbeat-timeout": lab.seconds(3), "on-server-loss": "abort"}, "ring")
        cluster = lab.cluster(lab.job(keys), 2, 2, slice_bytes=4096)
        cluster.reaches(5)
        lost = cluster.servers[rank]
        os.kill(lost.pid, number)
        for process in cluster.all():
            if process is lost:
                continue
            code = process.ends(30)
            last = process.output().splitlines()[-1]
            expect(code in (4, 5), f"{process.name} ended with {code}: {last}")
            expect(f"server {rank}" in last, f"{process.name} does not name it: {last}")
        os.kill(lost.pid, signal.SIGKILL)
    for rank in (0, 1):
        lab.side_by_side(ends, (rank, signal.SIGKILL), (rank, signal.SIGSTOP))


def ctrl_c_stops_the_job_within_a_few_steps(lab):
    for kind in built(lab):
        cluster = lab.cluster(lab.job(reduced(LONG, kind)), 1, 2)
        cluster.reaches(5)
        os.kill(cluster.servers[0].pid, signal.SIGINT)
        expect(cluster.servers[0].ends(60) == 75, f"exit code {cluster.servers[0].returncode}")
        summary = base.summary_of(cluster.out)
        expect(summary["samples"] == summary["steps"] * 64, f"{summary}")
        expect((cluster.out / "checkpoints" / f"step-{summary['steps']:08d}" / "DONE").exists(), "no checkpoint")
        for worker in cluster.workers:
            expect(worker.ends(30) == 75 and "SIGINT" in worker.output(), worker.output()[-600:])


def a_stopped_job_resumes(lab):
    keys = lab.in_parts(reduced({**MLP, "heartbeat-timeout": lab.seconds(2)}, "ring"), 2000)
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.reaches(1)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in cluster.all():
            os.kill(process.pid, number)
        if number == signal.SIGSTOP:
            time.sleep(lab.seconds(4))
    cluster.ends_well()


def gloo_listens_beyond_loopback_only_if_insecure(lab):
    if "gloo" not in built(lab):
        raise Skipped("this build has no Gloo")
    cluster = lab.cluster(lab.job(reduced(LONG, "gloo")), 1, 0, workers=1)
    refused = cluster.add_worker("--listen", "tcp://0.0.0.0:*")
    expect(refused.ends(30) == 2 and "Gloo" in refused.output() and "--insecure" in refused.output(), refused.output()[-600:])


if __name__ == "__main__":
    base.main(globals())
