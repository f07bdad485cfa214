"""Tests the measurements that a comparison of strategies needs: hashes of data and initial weights, and the
split of time and memory."""
import time

import lab as base
from lab import MLP, expect, first, metrics_of

STRATEGIES = ("sync", "async", "ssp:2")
SPLIT = {"compute", "push", "wait", "pull"}


def one(summaries, key):
    """Returns the value that all summaries have for the key."""
    values = {summary[key] for summary in summaries}
    expect(len(values) == 1 and len(min(values)) == 64, f"{key}: {values}")
    return values.pop()


def every_strategy_and_cluster_draws_the_same_data(lab):
    runs = (("sync", 1, 1), ("sync", 2, 2), ("async", 2, 2), ("async", 1, 3), ("ssp:2", 1, 3))
    summaries = [lab.train(lab.job({**MLP, "strategy": strategy}), servers, workers, slice_bytes=4096)
                 for strategy, servers, workers in runs]
    order, start = one(summaries, "data_order_sha256"), one(summaries, "initial_weights_sha256")
    for keys in ({"seed": 8}, {"steps": 39}, {"shuffle": "false"}):
        other = lab.train(lab.job({**MLP, **keys}), 1, 2)
        expect(other["data_order_sha256"] != order, f"{keys}: the same data")
        expect((other["initial_weights_sha256"] != start) == ("seed" in keys), f"{keys}: weights")


def the_initial_weights_are_those_of_the_file(lab):
    first = lab.train(lab.job({**MLP, "stop-after": 10, "checkpoint-dir": lab.folder / "first"}), 1, 2)
    file = lab.folder / "first" / "step-00000010" / "model.safetensors"
    expect(first["initial_weights_sha256"] != first["weights_sha256"], "training did not change the weights")
    trained = {}
    for strategy in (*STRATEGIES, "allreduce:tree"):
        started = lab.train(lab.job({**MLP, "seed": 11, "init-from": file, "strategy": strategy}), 2, 2,
                            slice_bytes=4096)
        expect(started["initial_weights_sha256"] == first["weights_sha256"], f"{strategy}: others")
        trained[strategy] = started["weights_sha256"]
    expect(trained["allreduce:tree"] == trained["sync"], "allreduce:tree has other bits than sync")
    resumed = lab.train(lab.job({**MLP, "resume": "true", "checkpoint-dir": lab.folder / "first"}), 2, 1)
    expect(resumed["initial_weights_sha256"] == first["weights_sha256"], "resumed with other weights")


def evaluations_have_the_time_and_samples_of_their_weights(lab):
    keys = {**MLP, "checkpoint-dir": lab.folder / "checkpoints", "eval-every": 10}
    lab.train(lab.job({**keys, "stop-after": 15}), 1, 2)
    for strategy, extra, start in (("sync", {"resume": "true"}, 15),
                                   ("async", {"checkpoint-dir": ""}, 0)):
        run = lab.run(lab.job({**keys, **extra, "strategy": strategy}), 2, 2)
        lines = [line for line in metrics_of(run.out) if "test_step" in line]
        expect([line["test_step"] for line in lines] == [s for s in (10, 20, 30, 40) if s > start],
               f"{strategy}: {lines}")
        for line in lines:
            expect(line["test_samples"] == (line["test_step"] - start) * 64, f"{strategy}: {line}")
            expect(0 <= line["test_seconds"] <= line["seconds"], f"{strategy}: {line}")
        expect(lines[-1]["test_seconds"] == run.summary()["seconds"], f"{lines[-1]} at the end")


@first("the figures of the summary")
def time_is_split_by_activity(lab):
    for strategy, tasks in (("sync", 40), ("async", None)):
        begin = time.monotonic()
        summary = lab.train(lab.job({**MLP, "strategy": strategy}), 2, 2, slice_bytes=4096)
        wall = time.monotonic() - begin
        split = summary["split"]
        expect(set(split) == SPLIT and min(split.values()) >= 0, f"{strategy}: {split}")
        expect(split["compute"] > 0 and split["push"] > 0 and split["pull"] > 0, f"{strategy}: {split}")
        # a worker does one thing at a time
        expect(tasks is None or sum(split.values()) * tasks <= wall, f"{split} in {wall} s")
        cpu = summary["cpu_seconds"]
        expect(set(cpu) == {"server", "worker"} and min(cpu.values()) > 0, f"{strategy}: {cpu}")


def a_straggler_is_slow_and_changes_no_bits(lab):
    plain = lab.train(lab.job(MLP), 1, 2)
    slow = lab.train(lab.job({**MLP, "straggler": "1:5"}), 1, 2)
    expect(slow["weights_sha256"] == plain["weights_sha256"], "other bits")
    free = lab.train(lab.job({**MLP, "hidden": "512,512", "strategy": "async", "straggler": "1:20",
                              "steps": 200}), 1, 2)
    drawn = free["samples_per_worker"]
    expect(drawn[1] < drawn[0], f"20 times slower, and has computed {drawn}")


def a_large_parent_does_not_inflate_its_childrens_peak(lab):
    if lab.scale > 1:
        raise base.Skipped("a sanitizer's own memory is larger")
    ballast = bytearray(400 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    peak = lab.train(lab.job({**MLP, "steps": 5}), 2, 1)["peak_rss_mib"]
    expect(len(ballast) >> 20 == 400 and 1 < min(peak.values()) and max(peak.values()) < 400, f"{peak}")


if __name__ == "__main__":
    base.main(globals())
