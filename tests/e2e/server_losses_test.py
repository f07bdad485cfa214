"""Tests servers, including the coordinator, that die during training and are replaced: nothing is lost."""
import json
import os
import pathlib
import shutil
import signal

import lab as base
from lab import LONG, MLP, expect, first, free_port, living_below, metrics_of, summary_of

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"
PEER_LOST, PROTOCOL = 5, 6
SAME = ("samples", "data_order_sha256", "pushes_applied", "initial_weights_sha256", "steps")


STEPS = 1200


def at(lab, step):
    return lab.at(step, STEPS)


def keys_of(lab, **more):
    # a loss after the first metrics line is in the middle of the job
    return lab.in_parts({**MLP, "clip-norm": 1, "checkpoint-every": at(lab, 150), **more}, STEPS)


def calm(lab, keys):
    return lab.train(lab.job(keys), 2, 2)


def same(calm_run, summary, *keys):
    for key in (*SAME, *keys):
        expect(summary[key] == calm_run[key], f"{key}: {summary[key]}, undisturbed {calm_run[key]}")


def server_of(run, coordinator):
    """Returns the process id of a server of `pushpull run`."""
    for pid in living_below(run.pid):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if words[0].endswith("pushpull-server") and ("--job" in words) == coordinator:
            return pid
    raise base.Failed(f"no such server: {run.output()[-600:]}")


def kill_at(lab, run, step, coordinator, number=signal.SIGKILL):
    lab.trains(run, at(lab, step))
    pid = server_of(run, coordinator)
    os.kill(pid, number)
    return pid


def a_run_replaces_a_server_that_ends_or_stops(lab):
    want = calm(lab, keys_of(lab))
    by_peers = {"recovery": "peers", "checkpoint-every": 0}

    def is_replaced(number, more, wakes_up, lines):
        run = lab.launch(lab.job(keys_of(lab, **{"heartbeat-timeout": lab.seconds(3), **more})), 2, 2)
        pid = kill_at(lab, run, 240, coordinator=False, number=number)
        if wakes_up:
            run.prints("waiting for a replacement, which continues")
            os.kill(pid, signal.SIGCONT)
        expect(run.ends(120) == 0, run.output()[-800:])
        for line in lines:
            expect(line.replace("PID", str(pid)) in run.output(), run.output()[-800:])
        got = summary_of(run.out)
        same(want, got, "weights_sha256")
        expect(wakes_up or got["recoveries"] == 1, f"recoveries {got['recoveries']}")
        expect(more != by_peers or wakes_up or got["steps_repeated"] == 0, f"{got['steps_repeated']} steps repeated")
    killed = ("server 1 (pid PID) is given up by the coordinator and has not ended; killed",
              "server 1 (pid PID) was killed by signal 9 (SIGKILL); starting")
    slow = {"straggler": "0:20"}  # the job is longer than it takes a server to leave, on any machine
    lab.side_by_side(is_replaced, (signal.SIGTERM, slow, False, ["server 1 (pid PID) ended with exit code 143; starting a replacement"]),
                     (signal.SIGSTOP, {}, False, killed), (signal.SIGSTOP, by_peers, False, killed),
                     (signal.SIGSTOP, by_peers, True, ["starting a replacement, 1 of at most 3"]))


@first("P5: a lost server is restored to the same bits")
def a_run_restarts_killed_servers(lab):
    keys = keys_of(lab)
    want = calm(lab, keys)
    run = lab.launch(lab.job(keys), 2, 2)
    kill_at(lab, run, 240, coordinator=False)
    lab.until(lambda: "training goes on" in run.output(), 60, lambda: run.output()[-800:])
    kill_at(lab, run, 600, coordinator=True)
    expect(run.ends(120) == 0, run.output()[-800:])
    got = summary_of(run.out)
    same(want, got, "weights_sha256")
    expect(got["recoveries"] == 2, f"recoveries {got['recoveries']}")
    expect(got["steps_repeated"] > 0, "nothing was repeated: were they killed in the middle?")
    losses = [line for line in metrics_of(run.out) if "lost" in line]
    expect([line["lost"] for line in losses] == [["server 1"], ["server 0"]], f"{losses}")
    expect(all(line["back_to_step"] % keys["checkpoint-every"] == 0 for line in losses), f"{losses}")
    document = json.loads((run.out / "members.json").read_text())
    by_process = [row["samples"] for row in document["members"] + document["left"]]
    expect(sum(by_process) == got["samples"], f"{document}")
    expect(not (run.out / "term.json").exists(), "the run's term is left behind")


@first("P2: each micro-batch counts once after a server's loss")
def every_micro_batch_counts_once_in_other_strategies(lab):
    sync = calm(lab, keys_of(lab))  # with the data, first weights and pushes of the others; local:2 pushes every other step

    def outlives_a_server(strategy):
        run = lab.launch(lab.job(keys_of(lab, strategy=strategy)), 2, 2)
        kill_at(lab, run, 360, coordinator=strategy == "ssp:2")
        expect(run.ends(120) == 0, run.output()[-800:])
        got = summary_of(run.out)
        same({**sync, "pushes_applied": sync["pushes_applied"] // (2 if strategy == "local:2" else 1)}, got)
        expect(got["recoveries"] == 1, f"recoveries {got['recoveries']}")
    lab.side_by_side(outlives_a_server, ("async",), ("ssp:2",), ("buffered:3",), ("local:2",))


def all_reduce_continues_after_a_server_loss(lab):
    keys = keys_of(lab, strategy="allreduce:tree")
    want = calm(lab, keys)

    def outlives_a_server(coordinator):
        run = lab.launch(lab.job(keys), 2, 2)
        kill_at(lab, run, 360, coordinator)
        expect(run.ends(120) == 0, run.output()[-800:])
        same(want, summary_of(run.out), "weights_sha256")
    lab.side_by_side(outlives_a_server, (False,), (True,))


def all_reduce_workers_listen_again_on_their_ports(lab):
    keys = keys_of(lab, strategy="allreduce:tree")
    want = calm(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 0, workers=2)
    for _ in range(2):
        cluster.add_worker("--listen", f"tcp://127.0.0.1:{free_port()}")
    for step in (240, 600):
        cluster.reaches(at(lab, step))
        os.kill(cluster.servers[1].pid, signal.SIGKILL)
        cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
        cluster.servers[0].prints("training goes on")
    same(want, cluster.ends_well(), "weights_sha256")


def workers_on_devices_continue_after_a_server_loss(lab):
    """Nothing that a device holds for the step that was interrupted is used in the next term."""
    keys = keys_of(lab)
    want = calm(lab, keys)
    lab.on_fake_devices()

    def outlives_a_server(more, flags):
        run = lab.launch(lab.job({**keys, **more}), 2, 2, device="cuda", **flags)
        kill_at(lab, run, 240, coordinator=False)
        expect(run.ends(120) == 0, run.output()[-800:])
        same(want, summary_of(run.out), "weights_sha256")
    by_peers = {"recovery": "peers", "checkpoint-every": 0}
    lab.side_by_side(outlives_a_server, ({}, {}), (by_peers, {}), ({}, {"trace": lab.folder / "trace"}))


@first("P5: a lost server 0 is restored")
def the_same_command_restarts_a_coordinator(lab):
    keys = keys_of(lab)
    want = calm(lab, keys)
    job = lab.job(keys)
    cluster = lab.cluster(job, 2, 2)
    cluster.reaches(at(lab, 240))
    first, joined = cluster.servers
    os.kill(joined.pid, signal.SIGKILL)
    cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
    first.prints("training goes on")
    lab.until(lambda: cluster.step() >= at(lab, 600), 60, lambda: first.output()[-800:])
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    again = lab.start("pushpull-server", "--job", job, "--listen", "tcp://127.0.0.1:*", "--servers", 2,
                      "--workers", 2, "--out", cluster.out)
    cluster.servers[0] = again
    got = cluster.ends_well()
    expect(f"listening on {cluster.address}" in again.output(), "not where the others look for it")
    same(want, got, "weights_sha256")
    expect(got["recoveries"] == 2, f"recoveries {got['recoveries']}")


def other_data_do_not_lock_the_runs_own_workers_out_of_a_later_term(lab):
    keys = keys_of(lab, dataset="idx", **{"data-dir": DIGITS})
    want = calm(lab, keys)
    job = lab.job(keys)
    cluster = lab.cluster(job, 1, 2)
    cluster.reaches(at(lab, 240))
    first, gone = cluster.servers[0], cluster.workers[1]
    for process in (first, gone):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    other = lab.folder / "other"
    shutil.copytree(DIGITS, other)
    images = next(other.glob("train-images*"))
    images.write_bytes(images.read_bytes()[:-1] + b"\x07")
    os.kill(cluster.workers[0].pid, signal.SIGSTOP)  # the wrong one declares first
    wrong = cluster.add_worker("--data-dir", other)
    again = lab.start("pushpull-server", "--job", job, "--listen", cluster.address, "--servers", 1,
                      "--workers", 2, "--out", cluster.out)
    expect(wrong.ends(60) == PROTOCOL, f"exit code {wrong.returncode}: {wrong.output()}")
    expect("its data differ" in wrong.output() and "an earlier term" in wrong.output(), wrong.output())
    os.kill(cluster.workers[0].pid, signal.SIGCONT)
    cluster.servers[0] = again
    cluster.add_worker()
    got = cluster.ends_well(but=(gone, wrong))
    same(want, got, "weights_sha256")


@first("P5: recovery = peers repeats no step")
def peers_bring_a_server_back_without_a_repeated_step(lab):
    def outlives_two_servers(keys, more):
        keys = keys_of(lab, recovery="peers", **{"checkpoint-every": 0, **keys})
        run = lab.launch(lab.job({**keys, **more}), 3, 2)
        for step in (240, 600):
            kill_at(lab, run, step, coordinator=False)
        want = calm(lab, keys)
        expect(run.ends(120) == 0, run.output()[-800:])
        got = summary_of(run.out)
        same(want, got, "weights_sha256")
        expect(got["recoveries"] == 2, f"recoveries {got['recoveries']}")
        expect(got["steps_repeated"] == 0, f"{got['steps_repeated']} steps repeated")
        steps = [line["step"] for line in base.metrics_of(run.out) if line.get("step")]
        expect(steps == sorted(steps), "metrics.jsonl goes back")
    lab.side_by_side(outlives_two_servers, ({}, {}), ({"strategy": "local:2"}, {"transport": "tcp"}),
                     ({"codec": "int8", "pull-codec": "bf16"}, {"connections": 2}))


def a_server_that_continues_after_its_replacement_is_refused(lab):
    want = calm(lab, keys_of(lab))

    def is_refused(more, words):
        cluster = lab.cluster(lab.job(keys_of(lab, **{"heartbeat-timeout": lab.seconds(3), **more})), 2, 2)
        cluster.reaches(at(lab, 240))
        stopped = cluster.servers[1]
        os.kill(stopped.pid, signal.SIGSTOP)
        if more:  # else it is lost when the new server takes its place
            cluster.servers[0].prints("waiting for a replacement, which continues")
        cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
        cluster.servers[0].prints(words)
        os.kill(stopped.pid, signal.SIGCONT)
        code = stopped.ends(60)
        expect(code == PEER_LOST or (code != 0 and not more), f"the one that woke up: {code}: {stopped.output()[-300:]}")
        got = cluster.ends_well()
        same(want, got, "weights_sha256")
        expect(not more or got["steps_repeated"] == 0, f"{got['steps_repeated']} steps repeated")
    lab.side_by_side(is_refused, ({}, "training goes on"), ({"recovery": "peers", "checkpoint-every": 0}, "has the weights of step"))


def without_enough_peers_all_return_to_the_checkpoint(lab):
    keys = keys_of(lab, recovery="peers", **{"on-worker-loss": "continue", "heartbeat-timeout": lab.seconds(4)})
    want = calm(lab, keys)
    run = lab.launch(lab.job(keys), 2, 2)
    kill_at(lab, run, 360, coordinator=True)
    cluster = lab.cluster(lab.job(keys), 2, 2)
    cluster.reaches(at(lab, 240))
    os.kill(cluster.servers[1].pid, signal.SIGKILL)
    cluster.servers[0].prints("waiting for a replacement, which continues")
    os.kill(cluster.workers[1].pid, signal.SIGKILL)  # it pushed gradients that the new server lacks
    cluster.servers[0].prints("lacks its pushes")
    cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
    del cluster.workers[1]
    got = cluster.ends_well()
    same(want, got, "weights_sha256")
    expect(got["recoveries"] >= 1, f"recoveries {got['recoveries']}")
    expect(run.ends(120) == 0, run.output()[-800:])
    same(want, summary_of(run.out), "weights_sha256")


def a_server_that_does_not_return_is_awaited_and_named(lab):
    keys = {**LONG, "replacement-timeout": lab.seconds(2), "heartbeat-timeout": lab.seconds(3)}
    headless, cluster = (lab.cluster(lab.job(keys), 2, 2) for _ in range(2))
    for rank, job in enumerate((headless, cluster)):
        job.reaches(5)
        os.kill(job.servers[rank].pid, signal.SIGKILL)
    for process in (cluster.servers[0], *cluster.workers):
        expect(process.ends(60) == PEER_LOST, f"exit code {process.returncode}")
        expect("1 of 2 servers" in process.output().splitlines()[-1], process.output()[-400:])
    for process in (headless.servers[1], *headless.workers):
        expect(process.ends(60) == PEER_LOST, f"exit code {process.returncode}")
        last = process.output().splitlines()[-1]
        expect("server 0" in last and "silent" in last, last)


if __name__ == "__main__":
    base.main(globals())
