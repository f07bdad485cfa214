"""Tests workers on devices: they have the processor's bits, and a missing device is reported. Tests without
device code use a fake device, which runs work in any order that its events allow."""
import json
import signal

import lab as base
from lab import LONG, MLP, expect

USAGE, PROTOCOL, DEVICE, STOPPED = 2, 6, 9, 75
FAKE = "../tests/fake_device/bin/pushpull-worker"


def strategies_on_a_device_have_the_bits_of_the_processor(lab):
    for strategy, transport in (("sync", "shm"), ("sync", "tcp"), ("local:4", "shm"),
                                ("allreduce:tree", "tcp")):
        keys = {**MLP, "strategy": strategy, "transport": transport, "slice-bytes": 8192,
                "eval-every": 16}
        if transport == "tcp" and strategy == "sync":
            keys = {**keys, "model": "convnet", "lr": 0.05, "steps": 8, "clip-norm": 0.5,
                    "global-batch": 48}
        job = lab.job(keys)
        want = lab.train(job, 1, 2)
        # a micro-batch of an evaluation is smaller; weights and slices are larger, and must be in registered memory
        lab.environment["FAKE_MOST_PAGEABLE"] = "4096"
        for seed in (1, 2, 3):
            lab.fake_devices(count=3, seed=seed)
            devices = ",".join(f"cuda:{i}" for i in range(seed))
            got = lab.cluster(job, 2, 2, worker_program=FAKE,
                              worker_words=("--device", devices)).ends_well()
            for key in ("weights_sha256", "test_correct", "test_loss"):
                expect(got[key] == want[key],
                       f"{strategy} over {transport}, seed {seed}: {key} {got[key]}, on the "
                       f"processor {want[key]}")


def stages_on_devices_have_the_bits_of_the_undivided_model(lab):
    for keys in (MLP, {**MLP, "model": "convnet", "lr": 0.05, "steps": 8}):
        job = lab.job({**keys, "eval-every": 8})
        want = lab.train(job, 1, 1)
        lab.environment["FAKE_MOST_PAGEABLE"] = "4096"  # weights must be in registered memory
        for seed, (stages, devices) in enumerate(((2, "cuda:0"), (2, "cuda:0,cuda:1"), (3, "cuda:0"), (3, "cuda:0,cuda:1,cuda:2"))):
            lab.fake_devices(count=3, seed=seed)
            words = ("--stages", stages, "--device", devices)
            got = lab.cluster(job, 1, 2, worker_program=FAKE, worker_words=words).ends_well()
            expect(len(got["stages"]) == stages, f"{words}: {got['stages']}")
            for key in ("weights_sha256", "test_correct", "test_loss"):
                expect(got[key] == want[key], f"{words}: {key} {got[key]}, on the processor {want[key]}")
        del lab.environment["FAKE_MOST_PAGEABLE"]
        got = lab.cluster(job, 2, 4, stages=2, worker_program=FAKE, worker_words=("--device", "cuda:1")).ends_well()
        expect(got["weights_sha256"] == want["weights_sha256"], "groups on devices have other bits")
    job = lab.job({**MLP, "hidden": "32,24,16", "balance": "2,2", "stages": 2})
    want = lab.cluster(job, 1, 2, worker_program=FAKE, worker_words=("--device", "cuda:0")).ends_well()
    cluster = lab.cluster(job, 2, 0, workers=2)
    for words in (("--stages", 2, "--device", "cuda:0,cuda:2"), ("--stages", 2, "--device", "cuda:1")):
        cluster.add_worker(*words, program=FAKE)
    got = cluster.ends_well()
    expect(got["weights_sha256"] == want["weights_sha256"], "local stages on devices have other bits")
    expect(len(got["stages"]) == 4, got["stages"])


def a_group_may_have_members_on_devices_and_on_the_processor(lab):
    lab.fake_devices()
    keys = {**MLP, "stages": 2, "steps": 20}
    cluster = lab.cluster(lab.job({**keys, "strategy": "async"}), 1, 1, workers=2)
    cluster.add_worker("--device", "cuda:0", program=FAKE)
    cluster.ends_well()
    cluster = lab.cluster(lab.job(keys), 1, 0, workers=2)  # under sync the second of them is refused
    both = [cluster.add_worker(), cluster.add_worker("--device", "cuda:0", program=FAKE)]
    lab.until(lambda: any(worker.poll() is not None for worker in both), 20, lambda: "none is refused")
    refused = [worker for worker in both if worker.poll() is not None]
    expect(len(refused) == 1 and refused[0].ends() == PROTOCOL and "its numerics differ" in refused[0].output(), refused[0].output())
    if refused[0] is both[0]:
        cluster.add_worker("--device", "cuda:0", program=FAKE)
    else:
        cluster.add_worker()
    cluster.ends_well(but=refused)


def memory_of_devices_is_shown(lab):
    lab.on_fake_devices()
    cluster = lab.cluster(lab.job({**LONG, "strategy": "async"}), 1, 0, workers=2)
    worker, other = cluster.add_worker("--device", "cuda:0,cuda:1"), cluster.add_worker()
    members = lambda: {m["pid"]: m for m in json.loads(lab.call("pushpull", "status", "--join", cluster.address, "--json")[1])["members"]}
    lab.until(lambda: members().get(worker.pid, {}).get("device_mib"), 60, lambda: str(members()))
    found = members()
    expect(found[worker.pid]["device_mib"] == 2048 and found[worker.pid]["device_used_mib"] == 512, found)
    expect(found[other.pid]["device_mib"] is None and found[other.pid]["device_used_mib"] is None, found)
    cluster.servers[0].send_signal(signal.SIGTERM)
    expect(cluster.servers[0].ends() == STOPPED, cluster.servers[0].output()[-600:])


def stages_and_devices_that_do_not_fit_are_refused_in_one_line(lab):
    lab.fake_devices(count=3)
    code, text = lab.call(FAKE, "--join", "tcp://127.0.0.1:1", "--join-timeout", 1, "--stages", 3, "--device", "cuda:0,cuda:1")
    refused = [line for line in text.splitlines() if "[usage]" in line]
    expect(code == USAGE and len(refused) == 1, f"{code}: {text}")
    expect("--stages 3: --device names 2 devices: name 1 for all stages, or 3, one for each" in refused[0], text)
    for keys, words, part in (({}, "cuda:0,cuda:1", "--device names 2 devices, but a worker of a job with stages = 2 computes one stage: name 1 device"),
                              ({"algorithms": "timed"}, "cuda:0", "algorithms = timed: with stages = 2"),
                              ({"model": "convnet", "strategy": "async"}, "cuda:0", "pass images in the layout of their device")):
        cluster = lab.cluster(lab.job({**MLP, **keys, "steps": 8, "stages": 2}), 1, 0, workers=2)
        wrong = cluster.add_worker("--device", words, program=FAKE)
        expect(wrong.ends(20) == USAGE and part in wrong.output(), wrong.output())
        for _ in range(2):
            cluster.add_worker()
        cluster.ends_well(but=(wrong,))


def a_lost_device_ends_its_worker_but_not_the_job(lab):
    # under ssp, unlike async, its share of the work does not depend on its speed
    job = lab.job({**MLP, "strategy": "ssp:3", "steps": 400})
    cluster = lab.cluster(job, 1, 1, workers=2)
    lab.fake_devices(lost_after=3000)
    lost = cluster.add_worker("--device", "cuda:0", program=FAKE)
    expect(lost.ends() == DEVICE, f"ended with {lost.returncode}: {lost.output()}")
    expect("fake:0 is lost" in lost.output(), lost.output())
    summary = cluster.ends_well(but=[lost])
    expect(summary["steps"] == 400, f"{summary['steps']} steps")


def a_missing_gpu_is_named_with_the_remedy(lab):
    for device, code, words in (("cuda", DEVICE, ("cuda:0 cannot be used", "--device cpu")),
                                ("cuda:7", DEVICE, ("cuda:7 cannot be used",)),
                                ("cuda:0,cuda:9", DEVICE, ("cannot be used",)),
                                ("gpu", USAGE, ("gpu is unknown", "cuda:N")),
                                ("cuda:0,cuda:0", USAGE, ("cuda:0 is named twice",)),
                                ("cpu,cuda", USAGE, ("cpu stands alone",))):
        got, text = lab.call("pushpull-worker", "--join", "tcp://127.0.0.1:1", "--join-timeout", 1,
                             "--device", device)
        if device == "cuda" and got != code:
            raise base.Skipped("there is a GPU")
        expect(got == code, f"--device {device}: exit code {got}: {text}")
        expect(len(text.splitlines()) == 1 and all(word in text for word in words),
               f"--device {device}: {text}")
        run = lab.run(lab.job(MLP), 1, 2, device=device)
        expect(run.code == code, f"run --device {device}: exit code {run.code}: {run.text}")
        expect(words[0] in run.text, f"run --device {device}: {run.text}")
        expect(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def auto_names_its_device(lab):
    run = lab.run(lab.job(MLP), 1, 1, device="auto")
    expect(run.code == 0, run.text)
    expect("computes on" in run.text, run.text)
    if "computes on the processor" in run.text:
        expect(run.summary()["weights_sha256"] == lab.train(lab.job(MLP))["weights_sha256"],
               "auto on the processor has other bits")


def other_precisions_need_a_gpu(lab):
    for precision in ("tf32", "fp16"):
        run = lab.run(lab.job({**MLP, "precision": precision}), 1, 2)
        expect(run.code == USAGE, f"exit code {run.code}: {run.text}")
        expect(f"precision = {precision} needs a GPU" in run.text, run.text)


if __name__ == "__main__":
    base.main(globals())
