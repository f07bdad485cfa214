"""Tests the replay of recorded runs of async, buffered and ssp in one process."""
import os
import random
import signal
import time

import lab as base
from lab import LONG, MLP, expect, first, summary_of

CONV = {"model": "convnet", "dataset": "digits", "train-samples": 512, "test-samples": 64,
        "global-batch": 32, "micro-batch": 8, "optimizer": "adam", "lr": 0.01, "steps": 30, "seed": 3}


def record_of(lab, stem="run"):
    return lab.folder / f"{lab.name(stem)}.rec"


def replay(lab, record, *words, code=0, **options):
    """Replays a record. Returns the replay's summary and its output."""
    out = lab.folder / lab.name("replay")
    got, text = lab.call("pushpull", "replay", record, "--out", out, *words, **options)
    expect(got == code, f"replay ended with {got}, not {code}: {text[-800:]}")
    expect(text.count("\n") > 0, "no output")
    return (summary_of(out) if (out / "summary.json").exists() else None), text


def replays(lab, record, live, *words):
    again, text = replay(lab, record, *words)
    expect(again["weights_sha256"] == live["weights_sha256"], f"other weights: {text}")
    expect(again["verified"] is True and again["incomplete"] is None, f"{again}")
    return again


def disturb(processes, until):
    """Stops and continues one random process after the other, for random times."""
    while not until():
        victim = random.choice(processes)
        if victim.poll() is None:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(random.random() * 0.03)
            os.kill(victim.pid, signal.SIGCONT)
        time.sleep(random.random() * 0.02)


@first("P4: async and ssp are replayed")
def disturbed_runs_replay_to_the_same_bits(lab):
    for strategy in ("async", "buffered:4", "ssp:3"):
        record = record_of(lab)
        job = lab.job({**MLP, "steps": 100, "strategy": strategy, "eval-every": 40})
        cluster = lab.cluster(job, 3, 3, record=record, slice_bytes=4096)
        disturb(cluster.workers + cluster.servers[1:],
                lambda: any(p.poll() is not None for p in cluster.all()))
        live = cluster.ends_well()
        expect(live["staleness"]["max"] > 0, f"nothing was stale: {live['staleness']}")
        for _ in range(2):
            again = replays(lab, record, live, "--job", job)
        expect(again["updates"] == sum(live["staleness"]["histogram"].values()), f"{again}")


def a_run_that_lost_workers_replays_to_the_same_bits(lab):
    record = record_of(lab)
    steps = lab.steps(1500)
    job = lab.job({**MLP, "steps": steps, "strategy": "async"})
    cluster = lab.cluster(job, 2, 3, record=record, slice_bytes=4096)
    cluster.reaches(steps // 10)
    cluster.workers[0].kill()
    lab.until(lambda: cluster.step() > steps // 4, 60, lambda: cluster.servers[0].output()[-400:])
    late = cluster.add_worker()  # possibly too late
    lab.until(lambda: cluster.step() > steps // 3, 60, lambda: cluster.servers[0].output()[-400:])
    cluster.workers[1].kill()
    live = cluster.ends_well(but=[*cluster.workers[:2], late])
    replays(lab, record, live)


def every_option_of_async_replays_to_the_same_bits(lab):
    cases = [{"staleness-aware": "true"}, {"delay-compensation": 0.5},
             {"staleness-aware": "true", "delay-compensation": 0.1, "clip-norm": 0.5,
              "lr-schedule": "cosine", "weight-decay": 0.01}]
    for keys in cases:
        record = record_of(lab)
        job = lab.job({**CONV, **keys, "strategy": "async"})
        live = lab.train(job, 2, 3, record=record, slice_bytes=4096)
        replays(lab, record, live, "--job", job)
    plain = lab.train(lab.job({**MLP, "strategy": "ssp:2", "staleness-aware": "true"}), 1, 1)
    expect(plain["staleness"]["max"] == 0, f"one worker alone: {plain['staleness']}")


@first("P4: buffered is replayed")
def buffered_replays_to_the_same_bits(lab):
    for buffer, keys in ((2, {"clip-norm": 0.2, "optimizer": "adam", "lr": 0.01, "eval-every": 7}),
                         (1000, {"pull-codec": "bf16", "lr-schedule": "cosine", "checkpoint-every": 3})):
        record = record_of(lab)
        job = lab.job({**CONV, **keys, "strategy": f"buffered:{buffer}"})
        live = lab.train(job, 2, 3, record=record, slice_bytes=4096)
        again = replays(lab, record, live, "--job", job)
        expect(again["updates"] == 2 * live["pushes_applied"], f"{again}, {live['pushes_applied']}")


@first("P4: backup is replayed")
def backup_replays_to_the_same_bits(lab):
    for keys in ({}, {"clip-norm": 0.2, "optimizer": "adam", "lr": 0.01}, {"optimizer": "lamb", "lr": 0.01, "clip-norm": 0.2}):
        record = record_of(lab)
        job = lab.job({**MLP, **keys, "strategy": "backup:1"})
        live = lab.train(job, 2, 3, record=record, slice_bytes=4096)
        again = replays(lab, record, live, "--job", job)
        expect(again["updates"] == 2 * live["pushes_applied"], f"{again}, {live['pushes_applied']}")


def a_resumed_run_needs_its_checkpoint(lab):
    keys = {**MLP, "strategy": "async", "optimizer": "adam", "lr": 0.01,
            "checkpoint-dir": lab.folder / "kept", "checkpoint-every": 10}
    job = lab.job(keys)
    record = record_of(lab)
    lab.train(job, 2, 2, slice_bytes=4096, stop_after=20)
    live = lab.train(job, 2, 2, slice_bytes=4096, resume="true", record=record, checkpoint_keep=9)
    _, text = replay(lab, record, code=2)
    expect("--checkpoint" in text and "step 20" in text, text)
    replays(lab, record, live, "--checkpoint", lab.folder / "kept")
    replays(lab, record, live, "--checkpoint", lab.folder / "kept" / "step-00000020")
    _, text = replay(lab, record, "--checkpoint", lab.folder / "kept" / "step-00000030", code=3)
    expect("not what the run began with" in text, text)


def a_replay_starts_from_init_from(lab):
    first = lab.train(lab.job({**MLP, "checkpoint-dir": lab.folder / "first"}), 1, 1)
    weights = lab.folder / "first" / "step-00000040" / "model.safetensors"
    job = lab.job({**MLP, "strategy": "async", "init-from": weights})
    record = record_of(lab)
    live = lab.train(job, 1, 2, record=record)
    expect(live["weights_sha256"] != first["weights_sha256"], "nothing was trained")
    replays(lab, record, live)


def a_replay_stops_at_any_update(lab):
    record = record_of(lab)
    job = lab.job({**MLP, "strategy": "async"})
    live = lab.train(job, 2, 2, record=record, slice_bytes=4096)
    whole = replays(lab, record, live)
    hashes = set()
    for number in (0, 1, whole["updates"] // 2, whole["updates"] - 1):
        stopped, _ = replay(lab, record, "--stop-at", number)
        expect(stopped["updates"] == number and stopped["verified"] is None, f"{stopped}")
        hashes.add(stopped["weights_sha256"])
    expect(len(hashes) == 4 and live["weights_sha256"] not in hashes, f"{hashes}")
    start, _ = replay(lab, record, "--stop-at", 0)
    expect(start["weights_sha256"] == start["start_weights_sha256"], "update 0 is the start")
    end, _ = replay(lab, record, "--stop-at", whole["updates"])
    expect(end["verified"] is True, f"{end}")
    _, text = replay(lab, record, "--stop-at", whole["updates"] + 1, code=2)
    expect("--stop-at" in text, text)


def an_interrupted_run_has_a_record_of_its_updates(lab):
    record = record_of(lab)
    job = lab.job({**MLP, "steps": 10_000_000, "strategy": "async"})
    cluster = lab.cluster(job, 2, 2, record=record, slice_bytes=4096)
    cluster.reaches(50)
    cluster.servers[0].send_signal(signal.SIGTERM)
    for process in cluster.all():
        process.ends()
    again, text = replay(lab, record, "--job", job)
    expect(again["updates"] >= 50 * 2 * 2, f"{again}")
    expect(again["verified"] is None and "SIGTERM" in again["incomplete"], f"{again}")
    expect("SIGTERM" in text, text)


def the_update_with_the_first_non_finite_value_is_named(lab):
    """With a rate that is far too high, a loss or gradient is not finite, and the job ends."""
    for lr in (1e10, 1e30):
        record = record_of(lab)
        job = lab.job({**MLP, "steps": 400, "strategy": "async", "optimizer": "sgd", "lr": lr})
        run = lab.run(job, 2, 2, record=record, slice_bytes=4096)
        expect(run.code == 7, f"lr {lr}: exit code {run.code}: {run.text[-500:]}")
        again, text = replay(lab, record)
        first = again["first_not_finite"]
        expect(first is not None, f"lr {lr}: no update was found: {text}")
        expect("not finite" in text and first["text"] in text, text)
        if first["update"] == 0:
            continue
        expect(first["push"]["step"] >= 0 and first["server"] in (0, 1), f"{first}")
        # all earlier values are finite, so a replay that stops one update earlier finds none
        before, _ = replay(lab, record, "--stop-at", first["update"] - 1)
        expect(before["first_not_finite"] is None, f"{before}")


def wrong_input_is_refused(lab):
    record = record_of(lab)
    job = lab.job({**MLP, "strategy": "async"})
    lab.train(job, 1, 2, record=record)
    data = record.read_bytes()
    broken = lab.folder / "broken"
    for at in (0, 17, 21, 40, len(data) // 2, len(data) - 3):
        broken.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
        _, text = replay(lab, broken, "--job", job, code=3)
        expect("broken" in text and text.count("\n") == 1, text)
    for size in (0, 10, 30, 90, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:size])
        _, text = replay(lab, broken, code=3)
        expect("broken" in text and text.count("\n") == 1, text)
    broken.write_bytes(data + b"more")
    replay(lab, broken, code=3)
    _, text = replay(lab, lab.folder / "nowhere", code=3)
    expect("nowhere" in text, text)
    other = lab.job({**MLP, "strategy": "async", "lr": 0.2, "seed": 8})
    _, text = replay(lab, record, "--job", other, code=2)
    expect(all(word in text for word in ("lr", "seed")) and "momentum" not in text, text)
    for words in ([], [record, record]):
        code, text = lab.call("pushpull", "replay", *words)
        expect(code == 2 and "one record" in text, f"{code}: {text}")
    # a record that cannot be written is an error before training starts
    run = lab.run(job, 1, 1, record=lab.folder / "no" / "such" / "folder")
    expect(run.code == 8 and "such" in run.text, f"{run.code}: {run.text[-300:]}")


def a_recorded_job_that_loses_a_server_for_good_says_so(lab):
    keys = {**LONG, "strategy": "async", "record": "run.rec", "replacement-timeout": lab.seconds(1)}
    cluster = lab.cluster(lab.job(keys), 2, 1)
    cluster.reaches(5)
    cluster.servers[1].kill()
    first = cluster.servers[0]
    expect(first.ends(60) == 5, f"exit code {first.returncode}: {first.output()[-400:]}")
    expect("1 of 2 servers" in first.output(), first.output()[-400:])
    _, text = replay(lab, lab.folder / "run.rec")
    expect("0 of 0 updates" in text and "1 of 2 servers" in text, f"the record does not give the reason: {text}")


if __name__ == "__main__":
    base.main(globals())
