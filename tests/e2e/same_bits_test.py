"""Tests P1: in sync, the weights depend on the job only."""
import os

import lab as base
from lab import MLP, expect, first

ADAMW = {**MLP, "optimizer": "adamw", "weight-decay": 0.01, "lr": 0.003, "clip-norm": 0.5,
         "lr-schedule": "cosine", "lr-min": 1e-4, "warmup-steps": 5, "eval-every": 7,
         "checkpoint-every": 9}
CONVNET = {**MLP, "model": "convnet", "lr": 0.05, "steps": 12}
SMALL, MIDDLE, LARGE = 2048, 16384, 1 << 20


def same(lab, keys, shapes):
    """Trains once for each (servers, workers, slice-bytes). Returns the common hash and the summaries."""
    job = lab.job(keys)
    summaries = [lab.train(job, servers, workers, slice_bytes=size)
                 for servers, workers, size in shapes]
    hashes = [summary["weights_sha256"] for summary in summaries]
    expect(len(set(hashes)) == 1, f"hashes differ: {dict(zip(shapes, hashes))}")
    counts = {(summary["test_correct"], summary["test_total"]) for summary in summaries}
    expect(len(counts) == 1, f"evaluations differ: {counts}")
    return hashes[0], summaries


@first("P1: sync has the same bits on any cluster")
def any_cluster_gives_the_same_bits(lab):
    shapes = [(1, 1, LARGE), (1, 2, SMALL), (2, 3, MIDDLE), (3, 5, SMALL), (2, 9, SMALL)]
    digest, summaries = same(lab, MLP, shapes)
    for (servers, workers, size), summary in zip(shapes, summaries):
        shares = summary["samples_per_worker"]
        expect(len(shares) == workers and sum(shares) == summary["samples"] == 40 * 64,
               f"{workers} workers: samples_per_worker {shares} of {summary['samples']}")
        busy = [n for n in shares if n > 0]
        expect(len(busy) == min(workers, 8), f"{workers} workers: samples_per_worker {shares}")
        slices = summary["slices_per_server"]
        expect(len(slices) == servers and min(slices) > 0 and max(slices) - min(slices) <= 1,
               f"{servers} servers: slices {slices}")
        expect(size != SMALL or sum(slices) == 7, f"6,570 parameters in slices of 1,024: {slices}")
    other = lab.train(lab.job({**MLP, "seed": 8}))["weights_sha256"]
    expect(other != digest, "another seed gives the same weights")


@first("P1: the same bits, with clipping, a schedule and checkpoints")
def clipping_schedule_and_snapshots_give_the_same_bits(lab):
    # 6 micro-batches: not a power of two
    keys = {**ADAMW, "global-batch": 48}
    digest, _ = same(lab, keys, [(1, 1, LARGE), (1, 4, MIDDLE), (3, 2, SMALL), (2, 7, SMALL)])
    plain = lab.train(lab.job({**keys, "eval-every": 0, "checkpoint-every": 0}), 1, 2)
    expect(plain["weights_sha256"] == digest, "evaluations and checkpoints change the weights")
    other = lab.train(lab.job({**keys, "clip-norm": 0}))["weights_sha256"]
    expect(other != digest, "clip-norm changes nothing: it was not tested")


@first("P1: the same bits with lamb, whose tensors lie on several servers")
def trust_ratios_give_the_same_bits(lab):
    keys = {**MLP, "optimizer": "lamb", "lr": 0.01, "weight-decay": 0.01, "steps": 12, "no-decay": "*.bias"}
    shapes = [(servers, workers, SMALL if servers + workers > 3 else LARGE) for servers in (1, 2, 3) for workers in (1, 2, 3)]
    digest, _ = same(lab, keys, shapes)
    tree = lab.train(lab.job({**keys, "strategy": "allreduce:tree"}), 1, 2)
    expect(tree["weights_sha256"] == digest, "allreduce:tree: other bits")
    job = lab.job({**keys, "stop-after": 5})
    lab.train(job, 2, 2, slice_bytes=SMALL, out=lab.folder / "stopped")
    resumed = lab.train(job, 3, 1, slice_bytes=SMALL, out=lab.folder / "stopped", resume="true", stop_after=0)
    expect(resumed["weights_sha256"] == digest, "resumed in the middle: other bits")
    clipped, _ = same(lab, {**keys, "clip-norm": 0.2}, [(1, 1, LARGE), (2, 3, SMALL)])
    expect(clipped != digest, "clip-norm changes nothing")
    plain = lab.train(lab.job({**keys, "no-decay": "*"}))["weights_sha256"]
    expect(plain != digest, "the ratios change nothing: they were not tested")


def connections_and_sockets_change_no_bits(lab):
    digest, _ = same(lab, MLP, [(1, 2, SMALL)])
    # a folder for this test only, to detect files that are left in it
    runtime = lab.folder / "runtime"
    runtime.mkdir()
    lab.environment["XDG_RUNTIME_DIR"] = str(runtime)
    for transport in ("tcp", "ipc"):
        for connections in (1, 4):
            summary = lab.train(lab.job({**MLP, "transport": transport, "connections": connections}), 2, 3,
                                slice_bytes=SMALL)
            expect(summary["weights_sha256"] == digest, f"{transport} over {connections} connections: other bits")
            expect(summary["rejected_frames"] == 0, f"{transport}: {summary['rejected_frames']} frames rejected")
    expect([folder.name for folder in runtime.iterdir()] == [f"pushpull-{os.getuid()}"], "no sockets were made")
    left = [str(path) for path in runtime.glob("*/*")]
    expect(not left, f"left behind: {left}")


@first("P1: the same bits, with convolutions and BatchNorm")
def convnet_gives_the_same_bits(lab):
    same(lab, CONVNET, [(1, 1, LARGE), (2, 3, MIDDLE), (1, 4, SMALL)])


@first("P1: an evaluation counts each sample once")
def every_test_sample_counts_once(lab):
    job = lab.job({**MLP, "test-samples": 351})
    counts = {}
    for workers in (1, 3, 7):
        summary = lab.train(job, 1, workers)
        counts[workers] = (summary["test_correct"], summary["test_total"], summary["test_loss"])
    expect(len(set(counts.values())) == 1 and counts[1][1] == 351, f"counts: {counts}")


if __name__ == "__main__":
    base.main(globals())
