"""Tests gradients that are not finite: a few training images make the first weights overflow, in any worker."""
import json
import re
import struct

import lab as base
from lab import MLP, expect, first, summary_of
from replay_test import replays

NOT_FINITE = 7
RARE_PIXEL = 8  # nonzero in seven of the 1,438 training images
HUGE = 3e38


def weights_that_overflow(lab, folder):
    """Writes the initial weights, with a path through one unit of each layer that only the rare pixel opens."""
    lab.train(lab.job({**MLP, "steps": 1, "lr": 1e-30, "checkpoint-dir": folder}))
    data = (folder / "step-00000001" / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), bytearray(data[8 + size:])

    def put(name, index, value):
        struct.pack_into("<f", body, header[name]["data_offsets"][0] + 4 * index, value)

    matrices = [name for name, entry in header.items() if name != "__metadata__" and len(entry["shape"]) == 2]
    vectors = [name for name, entry in header.items() if name != "__metadata__" and len(entry["shape"]) == 1]
    inputs, units = header[matrices[0]]["shape"][1], header[matrices[1]]["shape"][0]
    for i in range(inputs):
        put(matrices[0], i, HUGE if i == RARE_PIXEL else 0.0)
    put(vectors[0], 0, -1.0)  # closed for all other images
    for i in range(units):
        put(matrices[1], i * header[matrices[1]]["shape"][1], HUGE if i == 0 else 0.0)
    (lab.folder / "overflow.safetensors").write_bytes(data[:8 + size] + bytes(body))


def keys_of(lab, **more):
    path = lab.folder / "overflow.safetensors"
    if not path.exists():
        weights_that_overflow(lab, lab.folder / "plain")
    return {**MLP, "init-from": path, **more}


def by_default_a_bad_gradient_ends_the_job(lab):
    run = lab.run(lab.job(keys_of(lab)), 1, 2)
    expect(run.code == NOT_FINITE and "nan" in run.text, f"exit code {run.code}: {run.text[-800:]}")


@first("on-bad-gradient = skip, with the same bits")
def a_skipped_gradient_counts_as_zeros_on_any_cluster(lab):
    keys = keys_of(lab, **{"on-bad-gradient": "skip"})
    one = lab.train(lab.job(keys), 1, 1)
    expect(0 < one["bad_gradients"] < 40, f"{one['bad_gradients']} of 320")
    run = lab.run(lab.job(keys), 2, 3)
    expect(run.code == 0, run.text[-800:])
    expect("the loss of worker" in run.text and "it counts as zeros (on-bad-gradient = skip), 1 so far" in run.text,
           run.text[-2000:])
    for name, got in (("2 servers, 3 workers", summary_of(run.out)),
                      ("allreduce:tree", lab.train(lab.job({**keys, "strategy": "allreduce:tree"}), 1, 2))):
        for key in ("weights_sha256", "bad_gradients", "data_order_sha256", "samples"):
            expect(got[key] == one[key], f"{name}: {key} {got[key]}, alone {one[key]}")


def every_strategy_can_skip(lab):
    for strategy in ("ssp:2", "backup:1", "buffered:3", "local:4", "allreduce:ring"):
        got = lab.train(lab.job(keys_of(lab, **{"on-bad-gradient": "skip", "strategy": strategy})), 2, 2)
        expect(0 < got["bad_gradients"] < 40, f"{strategy}: {got['bad_gradients']}")


def a_replay_skips_the_same_gradients(lab):
    record = lab.folder / "run.rec"
    job = lab.job(keys_of(lab, **{"on-bad-gradient": "skip", "strategy": "async", "record": record}))
    live = lab.train(job, 2, 3)
    expect(live["bad_gradients"] > 0, "nothing was bad")
    replays(lab, record, live)


def a_gradient_that_is_bad_on_two_workers_ends_the_job(lab):
    run = lab.run(lab.job(keys_of(lab, **{"on-bad-gradient": "quarantine"})), 1, 3)
    expect(run.code == NOT_FINITE, f"exit code {run.code}: {run.text[-1500:]}")
    lost = [line for line in run.text.splitlines() if "another worker computes it again" in line]
    # two workers may find a bad gradient at the same time
    expect(1 <= len(lost) <= 2 and all("at step" in line for line in lost), run.text[-1500:])
    expect(re.search(r"\[run\] worker \d .*not finite", run.text), run.text[-1500:])


def quarantine_needs_a_worker_that_takes_over(lab):
    for keys, word in (({"on-worker-loss": "abort"}, "take continue or wait"),
                       ({"strategy": "allreduce:tree"}, "take abort or skip")):
        run = lab.run(lab.job({**MLP, "on-bad-gradient": "quarantine", **keys}))
        expect(run.code == 2 and word in run.text, f"exit code {run.code}: {run.text}")


if __name__ == "__main__":
    base.main(globals())
