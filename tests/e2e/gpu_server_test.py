"""Tests servers and workers that share the memory of a GPU. The GPU is a fake (tests/fake_device): it computes
with the processor's operations, in an order that only events restrict."""
import os
import signal

import lab as base
from lab import LONG, MLP, expect

NOT_FINITE, DEVICE = 7, 9
SHARED = "shared device memory with"
ON_GPU = {"device": "cuda:0", "server-device": "cuda:0"}
ADAM = {**MLP, "clip-norm": 0.5, "eval-every": 9, "checkpoint-every": 11, "optimizer": "adam", "lr": 0.003}


def train(lab, job, servers=1, workers=2, seed=1, **keys):
    """Runs a whole job on fake GPUs. Returns its run."""
    lab.fake_devices(seed=seed)
    return lab.run_with_answers(job, servers, workers, **{**ON_GPU, **keys})


def expect_same(got, want, what):
    for key in ("weights_sha256", "test_correct", "test_loss"):
        expect(got[key] == want[key], f"{what}: {key} {got[key]}, on the processor {want[key]}")


def cluster(lab, keys, workers=2, waits_for=None, **server_keys):
    """Starts a server on a fake GPU and workers that share it."""
    return lab.cluster(lab.job(keys), 1, workers, workers=waits_for, worker_words=("--device", "cuda:0"),
                       device="cuda:0", **server_keys)


def weights_have_the_bits_of_the_processor(lab):
    lab.on_fake_devices()
    for keys in (MLP, ADAM):
        job = lab.job({**keys, "slice-bytes": 4096})
        want = lab.train(job, 1, 2)
        for seed, (servers, workers) in enumerate([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4)]):
            run = train(lab, job, servers, workers, seed)
            expect(run.text.count(SHARED) == workers, f"not all share: {run.text[-800:]}")
            expect("warning" not in run.text, run.text[-800:])
            expect_same(run.summary(), want, f"{servers} servers, {workers} workers, seed {seed}")


def a_larger_network_starts_before_all_weights_arrive(lab):
    lab.on_fake_devices()
    job = lab.job({**MLP, "model": "convnet", "lr": 0.05, "steps": 8, "global-batch": 48, "slice-bytes": 8192})
    want = lab.train(job, 1, 2)
    for seed in (2, 3):
        expect_same(train(lab, job, 1, 3, seed).summary(), want, f"seed {seed}")


def a_resumed_run_has_the_bits_of_an_uninterrupted_run(lab):
    lab.on_fake_devices()
    want = lab.train(lab.job(ADAM), 1, 2)
    keys = {**ADAM, "checkpoint-dir": lab.folder / "checkpoints"}
    train(lab, lab.job({**keys, "stop-after": 17}), 2, 3, slice_bytes=4096)
    lab.train(lab.job({**keys, "stop-after": 28, "resume": "true"}), 1, 2)  # on the processor
    last = train(lab, lab.job({**keys, "resume": "true"}), 1, 1).summary()
    expect(last["resumed_from_step"] == 28, f"resumed at {last['resumed_from_step']}")
    expect_same(last, want, "resumed")


def every_strategy_trains(lab):
    lab.on_fake_devices()
    for strategy in ("async", "ssp:2", "backup:1"):
        # a clipped push needs the gradient on the host
        for more in ({}, {"clip-norm": 0.5}):
            keys = {**MLP, "strategy": strategy, "steps": 200, "lr": 0.05, "eval-every": 50, **more}
            run = train(lab, lab.job(keys), 1, 3, seed=2)
            expect(run.text.count(SHARED) == 3, f"{strategy}: {run.text[-800:]}")
            expect(run.summary()["test_accuracy"] > 0.5, f"{strategy}: {run.summary()}")


def recorded_runs_on_devices_replay_to_the_same_bits(lab):
    """A read that is too late or too early, by the server or a worker, would change the replay's weights."""
    lab.on_fake_devices()
    for seed, strategy in enumerate(("async", "ssp:2", "backup:1")):
        record = lab.folder / f"{lab.name('run')}.record"
        keys = {**MLP, "strategy": strategy, "record": record, "slice-bytes": 4096, "eval-every": 10}
        live = train(lab, lab.job(keys), 1, 3, seed).summary()
        out = lab.folder / lab.name("replay")
        code, text = lab.call("pushpull", "replay", record, "--out", out, "--device", "cuda:0")
        expect(code == 0 and "yes: the bits of the run" in text, f"{strategy}: {text[-800:]}")
        expect(base.summary_of(out)["weights_sha256"] == live["weights_sha256"], f"{strategy}: other weights")


def data_that_the_host_needs_goes_through_host_memory(lab):
    lab.on_fake_devices()
    for keys, message in (({"strategy": "local:4"}, ""), ({"codec": "int8"}, "codec = int8 is decoded there"),
                       ({"pull-codec": "bf16"}, "pull-codec = bf16 is encoded there")):
        job = lab.job({**MLP, **keys})
        want = lab.train(job, 1, 2)
        run = train(lab, job, 1, 2)
        expect(SHARED not in run.text and run.text.count("shared memory with server 0") == 2,
               f"{keys}: {run.text[-800:]}")
        expect(("not on fake:0: " + message in run.text) == bool(message), f"{keys}: {run.text[-800:]}")
        expect(run.text.count("keeps weights") == 1, f"{keys}: {run.text}")
        expect_same(run.summary(), want, str(keys))


def all_reduce_does_not_use_its_servers_device(lab):
    lab.on_fake_devices()
    job = lab.job({**MLP, "strategy": "allreduce:tree", "checkpoint-every": 15})
    want = lab.train(job, 1, 2)
    run = train(lab, job, 2, 2)
    expect(run.text.count("keeps weights in host memory, not on fake:0: strategy = allreduce:tree") == 2, run.text)
    expect(run.text.count("keeps weights") == 2, run.text)
    expect_same(run.summary(), want, "all-reduce")


def a_missing_device_is_reported_before_any_wait(lab):
    lab.on_fake_devices()
    code, text = lab.call("pushpull-server", "--job", lab.job(MLP), "--listen", "tcp://127.0.0.1:*", "--device", "cuda:5")
    expect(code == DEVICE and "cuda:5 cannot be used" in text and "listening" not in text, f"{code}: {text}")
    code, text = lab.call("pushpull-server", "--join", "tcp://127.0.0.1:1", "--device", "cuda:5")
    expect(code == DEVICE and "cuda:5 cannot be used" in text, f"{code}: {text}")
    run = train(lab, lab.job(MLP), 1, 1, server_device="auto")
    expect("keeps weights on fake:0" in run.text, run.text[-800:])


def workers_on_another_device_get_copies(lab):
    lab.on_fake_devices()
    job = lab.job({**MLP, "eval-every": 15})
    want = lab.train(job, 1, 2)
    for device, transport, message in (("cuda:1", "auto", "its weights are on another GPU, fake:0"),
                                    ("cpu", "auto", "shared memory with server 0"),
                                    ("cuda:0", "tcp", "")):
        run = train(lab, job, 1, 2, device=device, transport=transport)
        expect(SHARED not in run.text and message in run.text, f"{device}: {run.text[-800:]}")
        expect_same(run.summary(), want, f"{device} over {transport}")
    run = train(lab, job, 1, 2, device="cuda")  # one worker on each
    expect(run.text.count(SHARED) == 1 and "another GPU" in run.text, run.text[-800:])
    expect_same(run.summary(), want, "on two GPUs")


def workers_on_a_gpu_share_the_host_memory_of_servers(lab):
    lab.on_fake_devices()
    job = lab.job(MLP)
    want = lab.train(job, 1, 2)
    run = train(lab, job, 2, 2, server_device="cpu")
    expect(run.text.count("shared memory with servers 0, 1 (its weights are in host memory)") == 2,
           run.text[-800:])
    expect_same(run.summary(), want, "servers on the processor")


def a_non_finite_gradient_on_the_gpu_is_named(lab):
    lab.on_fake_devices()
    run = lab.run(lab.job({**MLP, "lr": 1e30}), 1, 1, **ON_GPU)
    expect(run.code == NOT_FINITE, f"exit code {run.code}: {run.text[-800:]}")
    expect(SHARED in run.text and "is not finite in tensor" in run.text, run.text[-800:])


def a_killed_worker_changes_no_bits(lab):
    lab.on_fake_devices()
    keys = lab.in_parts({**MLP, "on-worker-loss": "continue", "slice-bytes": 4096}, 600)
    want = lab.train(lab.job(keys), 1, 2)
    started = cluster(lab, keys, 3)
    started.reaches(5)
    lost = started.workers[1]
    os.kill(lost.pid, signal.SIGKILL)
    got = started.ends_well(but=[lost])
    expect(lost.returncode == -signal.SIGKILL, "it had ended before")
    expect(got["weights_sha256"] == want["weights_sha256"], "other weights")


def a_worker_that_ends_while_its_push_waits_changes_no_bits(lab):
    """The worker's memory is freed while the server waits for the gradient of a slower worker."""
    lab.on_fake_devices()
    keys = lab.in_parts({**MLP, "on-worker-loss": "continue", "slice-bytes": 4096}, 300)
    want = lab.train(lab.job(keys), 1, 2)
    started = cluster(lab, {**keys, "straggler": "0:10"}, 3)
    started.reaches(5)
    ended = next(w for w in started.workers if "worker 0" not in w.output())
    os.kill(ended.pid, signal.SIGTERM)
    got = started.ends_well(but=[ended])
    expect(ended.returncode == 128 + signal.SIGTERM, f"{ended.returncode}: {ended.output()[-600:]}")
    expect("answers of servers" not in ended.output(), ended.output()[-600:])
    expect(got["weights_sha256"] == want["weights_sha256"], "other weights")


def a_worker_that_loses_its_device_does_not_end_the_job(lab):
    lab.on_fake_devices()
    # under ssp, unlike async, its share of the work does not depend on its speed
    started = cluster(lab, {**MLP, "strategy": "ssp:3", "steps": 400}, 1, waits_for=2)
    lab.fake_devices(lost_after=3000)
    lost = started.add_worker("--device", "cuda:0")
    expect(lost.ends() == DEVICE, f"ended with {lost.returncode}: {lost.output()}")
    expect("fake:0 is lost" in lost.output(), lost.output())
    summary = started.ends_well(but=[lost])
    expect(summary["steps"] == 400, f"{summary['steps']} steps")


def a_server_reports_a_lost_device(lab):
    lab.on_fake_devices(lost_after=2000)
    started = lab.cluster(lab.job(LONG), 1, 0, workers=2, device="cuda:0")
    lab.fake_devices()
    for _ in range(2):
        started.add_worker("--device", "cuda:0")
    for process in started.all():
        expect(process.ends() == DEVICE, f"{process.name} ended with {process.returncode}: {process.output()[-600:]}")
        last = process.output().splitlines()[-1]
        expect("lost server 0 (" in last and "fake:0 is lost; its weights are gone" in last, process.output()[-600:])


def a_run_names_the_server_that_lost_its_device(lab):
    lab.on_fake_devices(lost_after=2000)
    for servers in (1, 2):
        run = lab.run(lab.job({**LONG, "slice-bytes": 4096}), servers, 2, server_device="cuda:1", device="cpu")
        expect(run.code == DEVICE, f"exit code {run.code}: {run.text[-800:]}")
        last = run.text.splitlines()[-1]
        expect(last.startswith("[run] server ") and "fake:1 is lost" in last, run.text[-800:])
        workers = [line for line in run.text.splitlines() if line.startswith("worker ") and "error" in line]
        expect(all("lost server " in line for line in workers), run.text[-800:])
        expect(not lab.left_behind(), f"left behind: {lab.left_behind()}")


if __name__ == "__main__":
    base.main(globals())
