"""Tests models in stages: the bits of the undivided model, what the summary and `pushpull plan` say, and wrong numbers of stages."""
import json
import os
import signal

import lab as base
from all_reduce_test import built
from lab import MLP, expect, first, free_port
from models_test import BERT, RESNET
from replay_test import record_of, replays
from stuck_test import compute_thread_stopped
from text_test import keys_in

USAGE = 2


def keys_of(folder, **more):
    return {**keys_in(folder), "layers": 3, "tie-embeddings": "true", **more}


@first("P1: a model in stages")
def stages_have_the_bits_of_the_undivided_model(lab):
    job = lab.job(keys_of(lab.folder))
    whole = lab.train(job, 1, 2)
    expect(whole["stages"] == [], whole["stages"])
    for servers, stages, keys in ((1, (2, 3), {}), (2, (4,), {"schedule": "gpipe", "balance": "parameters"})):
        cluster = lab.cluster(job, servers, 0, workers=len(stages), **keys)
        for count in stages:  # of each worker
            cluster.add_worker("--stages", count)
        run = cluster.ends_well()
        expect(run["weights_sha256"] == whole["weights_sha256"], f"{stages}: other bits")
        expect(run["heads"] == whole["heads"], f"{stages}: {run['heads']}, {whole['heads']}")
        found = run["stages"]
        expect(len(found) == max(stages), found)
        expect(all(s["busy_seconds"] > 0 and 0 <= s["bubble"] < 1 and s["layers"] > 0 for s in found), found)
        expect(sum(s["bytes_in"] for s in found) == sum(s["bytes_out"] for s in found) > 0, found)
        slots = [s["slots_max"] for s in found]
        expect(slots == sorted(slots, reverse=True) and slots[0] > 1, slots)


def every_strategy_trains_in_stages(lab):
    job = lab.job(keys_of(lab.folder))
    for strategy in ("async", "ssp:2", "local:4", "backup:1", "buffered:2", "allreduce:tree"):
        keys = {"strategy": strategy}
        cluster = lab.cluster(job, 1, 0, workers=2, **keys)
        for _ in range(2):
            cluster.add_worker("--stages", 2)
        run = cluster.ends_well()
        expect(len(run["stages"]) == 2, f"{strategy}: {run['stages']}")


def one_group_has_the_bits_of_one_worker(lab):
    job = lab.job(keys_of(lab.folder))
    for strategy, servers in (("async", 2), ("buffered:2", 1), ("ssp:2", 2), ("local:5", 2)):
        whole = lab.train(job, 1, 1, strategy=strategy)
        group = lab.train(job, servers, 2, strategy=strategy, stages=2)
        expect(group["weights_sha256"] == whole["weights_sha256"], f"{strategy}: other bits")
        expect(group["staleness"]["max"] == 0, f"{strategy}: {group['staleness']}: a group sees its own pushes")


def backup_goes_on_without_a_slow_group(lab):
    job = lab.job(keys_of(lab.folder, steps=200, **{"on-worker-loss": "wait", "heartbeat-timeout": 2, "strategy": "backup:1", "eval-every": 20}))
    slow = lab.train(job, 2, 6, stages=2, straggler="3:20")  # worker 3 has stage 1 of the second group
    expect(slow["pushes_dropped"] > 0 and slow["pushes_applied"] == 2 * 200, f"{slow['pushes_dropped']} dropped, {slow['pushes_applied']} applied")
    expect(len(slow["stages"]) == 2, slow["stages"])
    cluster = lab.cluster(job, 2, 6, stages=2)
    cluster.reaches(5)
    os.kill(cluster.workers[3].pid, signal.SIGKILL)
    cluster.add_worker()
    run = cluster.ends_well(but=(cluster.workers[3],))
    expect(run["pushes_applied"] == 2 * 200, run["pushes_applied"])


def recorded_groups_replay_to_the_same_bits(lab):
    job = lab.job(keys_of(lab.folder, **{"clip-norm": 0.5}))
    for strategy, stages in (("async", 2), ("buffered:2", 3), ("ssp:2", 2), ("backup:1", 2)):
        record = record_of(lab)
        live = lab.train(job, 2, 2 * stages, strategy=strategy, stages=stages, record=record)
        replays(lab, record, live)
    code, text = lab.call("pushpull", "replay", record, "--device", "cuda:0")
    expect(code != 0 and len(text.splitlines()) == 1, f"{code}, {text}")


def leases_of_a_group_survive_its_workers(lab):
    job = lab.job(keys_of(lab.folder, steps=300, **{"heartbeat-timeout": 2, "strategy": "async", "stages": 2}))
    for spares in (0, 1):  # another group takes the leases, or a new worker the stage
        cluster = lab.cluster(job, 2, 0, workers=4)
        workers = [cluster.add_worker() for _ in range(4)]
        cluster.reaches(5)
        os.kill(workers[spares].pid, signal.SIGKILL)
        for _ in range(spares):
            cluster.add_worker()
        run = cluster.ends_well(but=(workers[spares],))
        expect(run["samples"] == 300 * 8, run["samples"])


def a_killed_worker_in_stages_is_replaced(lab):
    keys = keys_of(lab.folder, steps=300, **{"on-worker-loss": "wait", "heartbeat-timeout": 2})
    job = lab.job(keys)
    calm = lab.train(job, 1, 2)["weights_sha256"]
    cluster = lab.cluster(job, 1, 0, workers=2)
    victim = cluster.add_worker("--stages", 2)
    cluster.add_worker("--stages", 3)
    cluster.reaches(5)
    os.kill(victim.pid, signal.SIGKILL)
    cluster.add_worker()
    expect(cluster.ends_well(but=(victim,))["weights_sha256"] == calm, "the weights differ")


@first("P1: stages across workers")
def groups_have_the_bits_of_the_undivided_model(lab):
    job = lab.job(keys_of(lab.folder))
    whole = lab.train(job, 1, 1)
    run = lab.run(job, 2, 4, stages=2)
    expect(run.code == 0, run.text[-800:])
    summary = run.summary()
    expect(summary["weights_sha256"] == whole["weights_sha256"], "other bits")
    expect(summary["heads"] == whole["heads"], f"{summary['heads']}, {whole['heads']}")
    expect(summary["samples"] == whole["samples"], summary["samples"])
    found = summary["stages"]
    expect(len(found) == 2 and all(s["busy_seconds"] > 0 and 0 <= s["bubble"] < 1 for s in found), found)
    expect([s["slots_max"] for s in found] == [2, 1], found)  # of a share of 2 micro-batches
    members = json.loads((run.out / "members.json").read_text())["members"]
    workers = [m for m in members if m["role"] == "worker"]
    expect([(m["group"], m["stage"]) for m in workers] == [(1, 0), (1, 1), (2, 0), (2, 1)], workers)
    half = whole["samples"] // 2
    expect([m["samples"] for m in workers] == [half] * 4, f"each has the samples of its group: {workers}")


@first("P6: a worker of a group is lost")
def a_killed_member_of_a_group_is_replaced_by_a_spare(lab):
    keys = keys_of(lab.folder, steps=300, **{"on-worker-loss": "wait", "heartbeat-timeout": 2})
    job = lab.job(keys)
    calm = lab.train(job, 1, 1)["weights_sha256"]
    cluster = lab.cluster(job, 1, 4, stages=2)
    spare = cluster.add_worker()
    cluster.servers[0].prints("joined as a spare")
    cluster.reaches(5)
    victim = cluster.workers[1]
    os.kill(victim.pid, signal.SIGKILL)
    run = cluster.ends_well(but=(victim,))
    expect(run["weights_sha256"] == calm, "the weights differ")
    document = json.loads((cluster.out / "members.json").read_text())
    taken = {m["pid"]: m["stage"] for m in document["members"] if m["role"] == "worker"}
    expect(taken[spare.pid] == 1, f"the spare has not taken stage 1: {taken}")
    # at the one who has left, and at those of one stage of each group, each sample counts once
    of_last = [m["samples"] for m in document["members"] + document["left"] if m.get("stage") == 1 or m["pid"] == victim.pid]
    expect(sum(of_last) == run["samples"], f"{of_last} are not {run['samples']}")


def cut_again(lab, job, servers, local, **keys):
    """Starts a job of len(local) workers, each of which divides its stage into so many."""
    cluster = lab.cluster(job, servers, 0, workers=len(local), **keys)
    for count in local:
        cluster.add_worker("--stages", count)
    return cluster


@first("P1: a worker of a group divides its stage again")
def local_stages_have_the_bits_of_the_undivided_model(lab):
    job = lab.job(keys_of(lab.folder, **{"eval-every": 5}))
    whole = lab.train(job, 1, 1)
    for servers, local, keys in ((1, (1, 2), {}), (2, (2, 2), {"schedule": "gpipe", "transport": "tcp"})):
        run = cut_again(lab, job, servers, local, stages=2, **keys).ends_well()
        expect(run["weights_sha256"] == whole["weights_sha256"], f"{local}: other bits")
        expect(run["heads"] == whole["heads"], f"{local}: {run['heads']}, {whole['heads']}")
        found = run["stages"]
        expect(len(found) == sum(local) and all(s["layers"] > 0 for s in found), found)
        expect(all(s["busy_seconds"] > 0 and 0 <= s["bubble"] < 1 for s in found), found)
        expect(sum(s["bytes_in"] for s in found) == sum(s["bytes_out"] for s in found) > 0, found)
        slots = [s["slots_max"] for s in found]
        expect(slots == ([3, 2, 1] if servers == 1 else [4] * 4), slots)  # of a share of 4 micro-batches


def groups_with_local_stages_train_under_every_strategy(lab):
    job = lab.job(keys_of(lab.folder))
    for strategy in ("async", "ssp:2", "local:4", "backup:1", "buffered:2", "allreduce:tree"):
        run = cut_again(lab, job, 2, (2, 1, 1, 2), stages=2, strategy=strategy).ends_well()
        expect(1 < len(run["stages"]) <= 4 and run["train_loss"] > 0, f"{strategy}: {run['stages']}")


@first("P6: a worker of a group with local stages is lost")
def a_killed_member_is_replaced_by_one_with_other_local_stages(lab):
    job = lab.job(keys_of(lab.folder, steps=300, **{"on-worker-loss": "wait", "heartbeat-timeout": 2}))
    calm = lab.train(job, 1, 1)["weights_sha256"]
    def survives(local, victim, successor):
        cluster = cut_again(lab, job, 1, local, stages=2)
        cluster.reaches(5)
        lost = cluster.workers[victim]
        os.kill(lost.pid, signal.SIGKILL)
        cluster.add_worker("--stages", successor)
        run = cluster.ends_well(but=(lost,))
        expect(run["weights_sha256"] == calm, f"{local}, {victim} by {successor}: the weights differ")
    lab.side_by_side(survives, ((2, 1), 0, 1), ((2, 1), 1, 2))


def local_stages_survive_both_servers(lab):
    keys = keys_of(lab.folder, steps=300, **{"heartbeat-timeout": 2, "checkpoint-every": 40})
    job = lab.job(keys)
    calm = lab.train(job, 1, 1)["weights_sha256"]
    cluster = cut_again(lab, job, 2, (2, 1), stages=2)
    cluster.reaches(60)
    server = cluster.servers[0]
    os.kill(cluster.servers[1].pid, signal.SIGKILL)
    cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
    server.prints("training goes on")
    step = cluster.step()
    lab.until(lambda: cluster.step() > step + 50, 60, lambda: server.output()[-800:])
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    words = ("--stages", 2, "--listen", "tcp://127.0.0.1:*", "--servers", 2, "--workers", 2, "--out", cluster.out)
    cluster.servers[0] = lab.start("pushpull-server", "--job", job, *words)
    run = cluster.ends_well()
    expect(run["weights_sha256"] == calm and run["recoveries"] == 2, f"{run['recoveries']} recoveries, or the weights differ")


def a_group_that_joins_takes_part(lab):
    job = lab.job(keys_of(lab.folder, steps=300, **{"on-worker-loss": "continue"}))
    calm = lab.train(job, 1, 1)["weights_sha256"]
    cluster = lab.cluster(job, 2, 2, stages=2)
    cluster.reaches(5)
    late = [cluster.add_worker() for _ in range(2)]
    cluster.servers[0].prints("2 groups share each step")
    run = cluster.ends_well()
    expect(run["weights_sha256"] == calm, "the weights differ")
    members = json.loads((cluster.out / "members.json").read_text())["members"]
    samples = [m["samples"] for m in members if m["pid"] in [process.pid for process in late]]
    expect(len(samples) == 2 and all(samples), f"the group that has joined has computed nothing: {members}")


def models_in_groups_have_their_bits_under_each_schedule_and_transport(lab):
    for keys in (MLP, {**MLP, "model": "convnet", "lr": 0.05, "steps": 8}, {**BERT, "layers": 3}, {**RESNET, "global-batch": 16}, keys_of(lab.folder)):
        job, name = lab.job(keys), keys["model"]
        whole = lab.train(job, 1, 1)["weights_sha256"]
        for stages, servers, workers, schedule, transport in ((2, 1, 2, "1f1b", "shm"), (2, 3, 4, "gpipe", "tcp"), (3, 2, 3, "1f1b", "tcp")):
            got = lab.train(job, servers, workers, stages=stages, schedule=schedule, transport=transport)
            expect(got["weights_sha256"] == whole, f"{name}: {stages} stages, {servers} x {workers}, {schedule}, {transport}")
            expect(len(got["stages"]) == stages, got["stages"])


def a_run_of_groups_resumes_with_other_stages(lab):
    keys = keys_of(lab.folder, steps=40)
    job = lab.job(keys)
    whole = lab.train(job, 1, 1)["weights_sha256"]
    out = lab.folder / "parts"
    lab.train(job, 1, 4, out=out, stages=2, stop_after=10)
    lab.train(job, 2, 3, out=out, stages=3, balance="parameters", stop_after=20, resume="true")
    lab.train(job, 1, 2, out=out, stop_after=30, resume="true")
    last = lab.train(job, 1, 2, out=out, stages=2, resume="true")
    expect(last["weights_sha256"] == whole, "other bits")


@first("P1: allreduce:tree in stages has the bits of sync")
def all_reduce_in_stages_has_the_bits_of_sync(lab):
    keys = keys_of(lab.folder, **{"eval-every": 5, "checkpoint-every": 4})  # clipped, with dropout and tied weights
    sync = lab.train(lab.job(keys), 1, 2)
    job = lab.job({**keys, "strategy": "allreduce:tree"})
    for servers, workers, stages, more in ((1, 4, 2, {}), (2, 4, 4, {"slice_bytes": 4096, "transport": "tcp"}), (1, 6, 2, {"schedule": "gpipe"})):
        tree = lab.train(job, servers, workers, stages=stages, **more)
        for key in ("weights_sha256", "heads", "samples", "train_loss"):
            expect(tree[key] == sync[key], f"{workers} workers, {stages} stages: {key} is {tree[key]}, {sync[key]} in sync")
        found = tree["stages"]
        expect(len(found) == stages and all(s["busy_seconds"] > 0 for s in found), found)


def a_group_without_a_share_of_an_all_reduce_waits_as_a_spare(lab):
    job = lab.job({**keys_of(lab.folder), "global-batch": 2})  # one micro-batch: one share, two groups, and a worker without
    run = lab.train(job, 1, 5, stages=2, strategy="allreduce:tree")
    expect(run["weights_sha256"] == lab.train(job, 1, 1)["weights_sha256"], "other bits")
    expect(run["samples"] == 24, run["samples"])


def all_reduce_in_stages_sums_batch_statistics_like_sync(lab):
    for keys in ({**RESNET, "global-batch": 16}, {**MLP, "model": "convnet", "lr": 0.05, "steps": 8, "optimizer": "adamw"}, {**BERT, "layers": 3}):
        job = lab.job(keys)
        whole = lab.train(job, 1, 1)["weights_sha256"]
        for workers, stages in ((4, 2), (3, 3)):
            tree = lab.train(job, 2, workers, stages=stages, strategy="allreduce:tree")
            expect(tree["weights_sha256"] == whole, f"{keys['model']}: {workers} workers, {stages} stages")


def ring_and_gloo_train_in_stages(lab):
    job = lab.job(keys_of(lab.folder))
    sync = lab.train(job, 1, 1)
    for kind in built(lab)[1:]:
        run = lab.train(job, 1, 6, stages=2, strategy=f"allreduce:{kind}")
        expect(len(run["stages"]) == 2 and run["samples"] == sync["samples"], run["stages"])
        gap = abs(run["train_loss"] - sync["train_loss"])
        expect(gap < 1e-3, f"{kind}: loss {run['train_loss']}, {sync['train_loss']} in sync")


@first("P6: all-reduce in stages names a lost worker")
def a_lost_member_ends_an_all_reduce_in_one_line(lab):
    def ends(kind, victim, number):
        keys = keys_of(lab.folder, steps=10_000_000, **{"heartbeat-timeout": lab.seconds(2), "strategy": f"allreduce:{kind}"})
        cluster = lab.cluster(lab.job(keys), 1, 4, stages=2)
        cluster.reaches(3)
        lost = cluster.workers[victim]
        os.kill(lost.pid, number)
        for process in cluster.all():
            if process is lost:
                continue
            code = process.ends(30)
            errors = [line for line in process.output().splitlines() if "error" in line]
            expect(code == 5 and len(errors) == 1, f"{process.name} ended with {code}: {errors}")
            for word in (f"lost worker {victim} ", f"pid {lost.pid}", "on-worker-loss=abort"):
                expect(word in errors[0], f"{process.name} does not say {word}: {errors[0]}")
        os.kill(lost.pid, signal.SIGKILL)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        lab.side_by_side(ends, *((kind, victim, number) for kind in built(lab)[:2] for victim in (0, 3)))


def an_all_reduce_resumes_with_other_stages(lab):
    keys = keys_of(lab.folder, steps=40)
    whole = lab.train(lab.job(keys), 1, 1)["weights_sha256"]
    job = lab.job({**keys, "strategy": "allreduce:tree"})
    out = lab.folder / "parts"
    lab.train(job, 1, 4, out=out, stages=2, stop_after=10)
    lab.train(job, 2, 3, out=out, stages=3, balance="parameters", stop_after=20, resume="true")
    lab.train(job, 1, 2, out=out, stop_after=30, resume="true")
    last = lab.train(job, 1, 4, out=out, stages=2, resume="true")
    expect(last["weights_sha256"] == whole, "other bits")
    # a run of one strategy goes on from the weights of another one
    starts = []
    for strategy, from_, stages in (("sync", "allreduce:tree", 1), ("allreduce:tree", "sync", 2)):
        first_run = lab.folder / f"from-{stages}"
        lab.train(lab.job({**keys, "strategy": from_}), 1, 4, out=first_run, stages=3 - stages, stop_after=8)
        weights = first_run / "checkpoints" / "step-00000008" / "model.safetensors"
        run = lab.train(lab.job({**keys, "strategy": strategy}), 1, 4, stages=stages, init_from=weights)
        starts.append((run["initial_weights_sha256"], run["weights_sha256"]))
    expect(starts[0] == starts[1], f"other bits: {starts}")


def an_all_reduce_in_stages_stops_and_survives_a_server(lab):
    keys = keys_of(lab.folder, steps=lab.steps(400), **{"heartbeat-timeout": lab.seconds(2), "checkpoint-every": 20, "strategy": "allreduce:tree"})
    whole = lab.train(lab.job({**keys, "strategy": "sync"}), 1, 2)["weights_sha256"]
    job = lab.job(keys)
    cluster = lab.cluster(job, 2, 0, workers=4, stages=2, slice_bytes=4096)
    for _ in range(4):
        ports = sorted({free_port() for _ in range(3)})
        cluster.add_worker("--listen", f"tcp://127.0.0.1:{ports[0]}-{ports[0] + 20}")
    cluster.reaches(30)
    os.kill(cluster.servers[1].pid, signal.SIGKILL)
    cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
    cluster.servers[0].prints("training goes on")
    step = cluster.step()
    lab.until(lambda: cluster.step() > step + 5, 60, lambda: f"no step beyond {step}")
    os.kill(cluster.servers[0].pid, signal.SIGINT)
    expect(cluster.servers[0].ends(60) == 75, cluster.servers[0].output()[-600:])
    for worker in cluster.workers:
        expect(worker.ends(30) == 75, worker.output()[-600:])
    last = lab.train(job, 1, 6, out=cluster.out, stages=3, slice_bytes=4096, resume="true")
    expect(last["weights_sha256"] == whole, "other bits")


def one_port_is_too_few_for_an_all_reduce_in_stages(lab):
    cluster = lab.cluster(lab.job(keys_of(lab.folder, strategy="allreduce:ring")), 1, 0, workers=2, stages=2)
    few = cluster.add_worker("--listen", f"tcp://127.0.0.1:{free_port()}")
    expect(few.ends(20) == USAGE and "a worker needs two ports" in few.output(), few.output())
    for _ in range(2):
        cluster.add_worker()
    cluster.ends_well(but=(few,))


def compare_sweeps_stages(lab):
    job = lab.job(keys_of(lab.folder))
    out = lab.folder / "compared"
    words = ("compare", "--job", job, "--strategies", "sync,allreduce:tree", "--workers", "1,4", "--seeds", 1, "--stages")
    code, text = lab.call("pushpull", *words, "1,2,4", "--out", out, seconds=240)
    expect(code == 0, f"{code}: {text[-1500:]}")
    runs = json.loads((out / "compare.json").read_text())["runs"]
    cells = {(run["strategy"], run["workers"], run["stages"]) for run in runs}
    expect(cells == {(s, w, n) for s in ("sync", "allreduce:tree") for w, n in ((1, 1), (4, 1), (4, 2), (4, 4))}, cells)
    expect(len({run["weights_sha256"] for run in runs}) == 1 and not any(run["failure"] for run in runs), runs)
    header = (out / "compare.csv").read_text().splitlines()[0]
    for where, text_of in (("table", text), ("report", (out / "report.html").read_text()), ("csv", header)):
        expect("stages" in text_of, f"the {where} does not name stages")
    expect("sync, 2 stages with 1 worker is left out" in text and "sync, 4 stages" in text, text)
    for stages, part in (("9", "a group needs as many workers"), ("1,1", "is given twice"), ("0", "from 1 to")):
        code, text = lab.call("pushpull", *words, stages, "--out", lab.folder / "refused")
        expect(code == USAGE and part in text and len(text.splitlines()) == 1, (stages, code, text))
    code, text = lab.call("pushpull", *words[:-3], "--seeds", 1, "--workers", 9, "--stages", "1,9", "--out", lab.folder / "refused")
    expect(code == USAGE and "this model has 5 pieces" in text and len(text.splitlines()) == 1, (code, text))


def what_passes_between_stages_is_what_the_plan_says(lab):
    keys = keys_of(lab.folder, **{"tie-embeddings": "false"})
    job = lab.job(keys)
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 3, "--json")
    expect(code == 0, text)
    plan = json.loads(text)["stages"]
    times = keys["steps"] * keys["global-batch"] // keys["micro-batch"]
    forward = [times * stage["bytes_out"] for stage in plan]  # and as many bytes of gradients come back
    both = [forward[s] + (forward[s - 1] if s > 0 else 0) for s in range(3)]
    most = times * 4096  # across workers the gradients of a block that two stages share go to its owner
    cluster = lab.cluster(job, 1, 1, worker_words=("--stages", 3))
    for way, more, run in (("one worker", 0, cluster.ends_well()), ("three workers", most, lab.train(job, 1, 3, stages=3)),
                           ("two groups", most, lab.train(job, 2, 6, stages=3))):
        found = run["stages"]
        beyond = [[s[name] - b for s, b in zip(found, both)] for name in ("bytes_out", "bytes_in")]
        expect(all(0 <= b <= more * cuts for b, cuts in zip(beyond[0], (0, 1, 1))), f"{way}: {found}, not {both}")
        expect(all(0 <= b <= more * cuts for b, cuts in zip(beyond[1], (1, 1, 0))), f"{way}: {found}, not {both}")
        expect(sum(beyond[0]) == sum(beyond[1]), f"{way}: {found}")
        expect([s["layers"] for s in found] == [s["layers"] for s in plan], f"{way}: layers {found}, {plan}")
        expect(all(s["slots_max"] <= p["slots"] for s, p in zip(found, plan)), f"{way}: {found}, {plan}")


def the_plan_says_what_stages_have(lab):
    job = lab.job(keys_of(lab.folder))
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 3, "--json")
    expect(code == 0, text)
    stages = json.loads(text)["stages"]
    whole = json.loads(lab.call("pushpull", "models", "--job", job, "--json")[1])
    expect(len(stages) == 3 and sum(s["parameters"] for s in stages) == whole["parameters"], (stages, whole["parameters"]))
    expect([s["slots"] for s in stages] == [3, 2, 1] and stages[2]["bytes_out"] == 0 < stages[0]["bytes_out"], stages)
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 2)
    expect(code == 0 and "parameters" in text and len(text.splitlines()) == 3, text)
    code, text = lab.call("pushpull", "plan", "--job", lab.job(keys_of(lab.folder, stages=4)))
    expect(code == 0 and len(text.splitlines()) == 5, f"not the job's number of stages: {text}")


def the_plan_measures_what_stages_take(lab):
    job = lab.job(keys_of(lab.folder))
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 2, "--measure", "--json")
    expect(code == 0, text)
    plan = json.loads(text)
    by_flop, by_time = plan["measured"]["predicted"], plan["measured"]["balanced"]
    expect(by_flop["balance"] == ",".join(str(s["pieces"]) for s in plan["stages"]), plan)
    expect(by_time["slowest_seconds"] <= by_flop["slowest_seconds"], plan)
    for found in (by_flop, by_time):
        expect(len(found["stages"]) == 2, found)
        expect(all(s["forward_seconds"] > 0 and s["backward_seconds"] > 0 and 0 <= s["bubble"] < 1 for s in found["stages"]), found)
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 2, "--balance", by_time["balance"], "--measure")
    expect(code == 0 and f"balance = {by_time['balance']}" in text and "by FLOP" not in text, text)
    whole = lab.train(job, 1, 1)["weights_sha256"]
    expect(lab.train(job, 1, 2, stages=2, balance=by_time["balance"])["weights_sha256"] == whole, "other bits")


def numbers_that_do_not_fit_are_refused_in_one_line(lab):
    job = lab.job(keys_of(lab.folder))
    for words, part in ((("--stages", 9), "this model has 5 pieces"), (("--stages", 0), "from 1 on"), (("--stages", 2, "--balance", "1,1"), "the sum 5"),
                        (("--balance", "fast"), "balance")):
        code, text = lab.call("pushpull", "plan", "--job", job, *words)
        expect(code == USAGE and part in text and len(text.splitlines()) == 1, (words, code, text))
    cluster = lab.cluster(job, 1, 0, workers=1)
    wrong = cluster.add_worker("--stages", 9)
    expect(wrong.ends(20) == USAGE and "this model has 5 pieces" in wrong.output(), wrong.output())
    odd = cluster.add_worker("--stages", "two")
    expect(odd.ends(20) == USAGE and "--stages two: must be a whole number from 1 on" in odd.output(), odd.output())
    cluster.add_worker("--stages", 5)  # more than cores, perhaps: stages with one thread each may take turns
    cluster.ends_well(but=(wrong, odd))


def groups_that_cannot_be_are_refused_in_one_line(lab):
    keys = keys_of(lab.folder)
    job = lab.job(keys)
    for words, part in (({"stages": 5}, "stages = 5 needs as many workers, but there are 4 workers"),
                        ({"stages": 2, "strategy": "backup:2"}, "backup:2"), ({"stages": 0}, "stages")):
        run = lab.run(job, 1, 4, **words)
        said = [line for line in run.text.splitlines() if part in line]
        expect(run.code == USAGE and said, f"{words}: {run.code}, {run.text[-600:]}")
    for words, part in (({"stages": 9}, "this model has 5 pieces"), ({"stages": 2, "balance": "1,1"}, "the sum 5")):
        run = lab.run(job, 1, 9, **words)
        said = [line for line in run.text.splitlines() if part in line]
        expect(run.code == USAGE and said, f"{words}: {run.code}, {run.text[-900:]}")
    cluster = lab.cluster(job, 1, 1, workers=2, stages=2)
    wrong = cluster.add_worker("--stages", 4)
    expect(wrong.ends(20) == USAGE, wrong.output())
    expect("[stages] --stages 4: stage " in wrong.output() and "has 2 pieces" in wrong.output(), wrong.output())
    cluster.add_worker()
    cluster.ends_well(but=(wrong,))


def a_group_that_stays_incomplete_names_its_stage(lab):
    keys = keys_of(lab.folder, steps=10_000_000, **{"on-worker-loss": "wait", "heartbeat-timeout": 2,
                                                   "replacement-timeout": lab.seconds(2)})
    cluster = lab.cluster(lab.job(keys), 1, 2, stages=2)
    cluster.reaches(2)
    os.kill(cluster.workers[1].pid, signal.SIGKILL)
    cluster.servers[0].ends(60)
    said = cluster.servers[0].output()
    expect("no worker has taken over micro-batches 0 to 3 within replacement-timeout" in said
           and "its group lacks stage 1" in said, said[-600:])


def a_stopped_member_of_a_group_is_named(lab):
    keys = keys_of(lab.folder, steps=10_000_000, **{"on-worker-loss": "wait", "progress-timeout": lab.seconds(3)})
    cluster = cut_again(lab, lab.job(keys), 1, (1, 1, 1, 2), stages=2)
    cluster.reaches(2)
    for stage in (0, 1):
        victim = cluster.workers[2 + stage]  # the second one computes on threads of its own
        since = len(cluster.servers[0].output())
        with compute_thread_stopped(victim.pid):
            cluster.servers[0].prints("lost worker", 40, since)
            lost = [line for line in cluster.servers[0].output(since).splitlines() if "lost worker" in line]
            expect(len(lost) == 1 and f"pid {victim.pid})" in lost[0] and "computed nothing" in lost[0], f"not the stopped one: {lost}")
            expect(victim.ends(30) == 5, victim.output()[-300:])
        step = cluster.step()
        cluster.workers[2 + stage] = cluster.add_worker()
        cluster.workers.pop()
        lab.until(lambda: cluster.step() > step, 60, lambda: f"no step beyond {step}: {cluster.servers[0].output()[-600:]}")


if __name__ == "__main__":
    base.main(globals())
