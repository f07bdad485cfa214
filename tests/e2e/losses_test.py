"""A process that dies, stands still or is told to go: who notices, what is said, how the job ends."""
import os
import signal
import socket

import lab as base
from lab import LONG, MLP, expect

PEER_LOST, STOPPED = 5, 75
SILENCE = 3  # heartbeat-timeout, seconds before scaling


def silent(lab, keys):
    return {**keys, "heartbeat-timeout": lab.seconds(SILENCE), "on-server-loss": "abort"}


def kill(process, number=signal.SIGKILL):
    os.kill(process.pid, number)
    return process


def survivors_name(cluster, lost, words, codes=(PEER_LOST,), but=()):
    for process in cluster.all():
        if process in (lost, *but):
            continue
        code = process.ends(30)
        expect(code in codes, f"{process.name} ended with {code}, want {codes}: {process.said()[-600:]}")
        last = process.said().splitlines()[-1]
        for word in words:
            expect(word in last, f"{process.name} does not name {word} in its last line: {last}")
    expect(not (cluster.out / "summary.json").exists(), "a broken run has a summary")


def sync_aborts_and_names_the_killed_worker(lab):
    cluster = lab.cluster(lab.job(LONG), 2, 3, slice_bytes=4096)
    cluster.reaches(5)
    lost = kill(cluster.workers[1])
    survivors_name(cluster, lost, ("worker 1", f"pid {lost.pid}", "on-worker-loss=abort"))


def sync_aborts_when_a_worker_stands_still(lab):
    cluster = lab.cluster(lab.job(silent(lab, LONG)), 1, 2)
    cluster.reaches(5)
    lost = kill(cluster.workers[0], signal.SIGSTOP)
    survivors_name(cluster, lost, ("worker 0", f"pid {lost.pid}", "no heartbeat"))
    # who wakes up again is told, and goes
    kill(lost, signal.SIGCONT)
    expect(lost.ends(30) != 0, f"the sleeper ended well: {lost.said()[-300:]}")


def a_worker_that_is_told_to_go_is_named(lab):
    cluster = lab.cluster(lab.job(LONG), 1, 2)
    cluster.reaches(5)
    gone = kill(cluster.workers[1], signal.SIGTERM)
    expect(gone.ends(30) == 128 + signal.SIGTERM, f"exit code {gone.returncode}")
    survivors_name(cluster, gone, (f"pid {gone.pid}", "SIGTERM"))


def calm_hash(lab, keys):
    return lab.train(lab.job(keys), 1, 2)["weights_sha256"]


def hurt_keys(lab, **more):
    # a kill after the first metrics line comes in the middle
    return lab.in_parts({**MLP, "clip-norm": 1, **more}, 3000)


def a_replacement_by_hand_keeps_the_bits(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "wait"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 2, slice_bytes=4096)
    cluster.reaches(1)
    lost = kill(cluster.workers[1])
    cluster.servers[0].says("waiting for a replacement")
    expect(f"pid {lost.pid}" in cluster.servers[0].said(), "the lost worker is not named")
    cluster.add_worker()
    summary = cluster.ends_well(but=(lost,))
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
    expect(summary["samples"] == keys["steps"] * 64, f"{summary['samples']} samples")


def a_spare_takes_over_and_keeps_the_bits(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "wait"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.add_worker()
    cluster.servers[0].says("spare")
    cluster.reaches(1)
    lost = kill(cluster.workers[0])
    summary = cluster.ends_well(but=(lost,))
    expect("was a spare and takes the free place" in cluster.servers[0].said(),
           cluster.servers[0].said()[-600:])
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def waiting_for_a_replacement_has_an_end(lab):
    keys = {**LONG, "on-worker-loss": "wait", "replacement-timeout": 2}
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.reaches(5)
    lost = kill(cluster.workers[1])
    survivors_name(cluster, lost, ("replacement-timeout = 2",))


def sync_goes_on_without_a_worker_to_the_same_bits(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "continue"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
    cluster.reaches(1)
    lost = kill(cluster.workers[2])
    summary = cluster.ends_well(but=(lost,))
    expect("the others go on" in cluster.servers[0].said(), cluster.servers[0].said()[-600:])
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def who_comes_later_computes_in_the_place_of_the_others(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "continue"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 2, slice_bytes=4096)
    server = cluster.servers[0]
    cluster.reaches(1)
    lost = [kill(cluster.workers[0])]
    server.says("micro-batches 0 to 3 go to worker 1")
    late = cluster.add_worker()
    server.says(f"pid {late.pid}) takes the free place")
    server.says(f"go to worker 0 ({socket.gethostname()}, pid {late.pid})")
    lost.append(kill(cluster.workers[1]))
    summary = cluster.ends_well(but=lost)
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def steps_are_cut_anew_for_whoever_comes(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "continue", "max-workers": 4})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 1, slice_bytes=4096)
    cluster.reaches(1)
    for workers in (2, 3):
        cluster.add_worker()
        cluster.servers[0].says(f"{workers} workers share each step")
    lost = kill(cluster.workers[0])
    cluster.servers[0].says("the others go on")
    cluster.add_worker()
    cluster.servers[0].says(f"go to worker 0 ({socket.gethostname()}, pid {cluster.workers[3].pid})")
    summary = cluster.ends_well(but=(lost,))
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
    drawn = summary["samples_per_worker"]
    expect(len(drawn) == 3 and min(drawn) > 0 and sum(drawn) == keys["steps"] * 64, f"samples {drawn}")


def with_fewer_than_min_workers_training_stands(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "continue", "min-workers": 2})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.reaches(1)
    lost = kill(cluster.workers[1])
    cluster.servers[0].says("training is paused with 1 worker, fewer than min-workers = 2")
    cluster.add_worker()
    cluster.servers[0].says("training goes on with 2 workers")
    summary = cluster.ends_well(but=(lost,))
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def training_does_not_stand_for_ever(lab):
    keys = {**LONG, "on-worker-loss": "continue", "min-workers": 2, "replacement-timeout": 2}
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.reaches(5)
    lost = kill(cluster.workers[1])
    survivors_name(cluster, lost, ("min-workers = 2", "replacement-timeout = 2"))


def async_and_ssp_go_on_without_a_worker(lab):
    for strategy in ("async", "buffered:3", "ssp:3"):
        keys = hurt_keys(lab, strategy=strategy, lr=0.02)
        cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
        cluster.reaches(1)
        lost = kill(cluster.workers[1])
        summary = cluster.ends_well(but=(lost,))
        said = cluster.servers[0].said()
        expect(f"pid {lost.pid}" in said, f"{strategy}: {said[-600:]}")
        expect(summary["samples"] >= keys["steps"] * 64, f"{strategy}: {summary['samples']} samples")
        expect(summary["test_correct"] > 0.8 * summary["test_total"],
               f"{strategy}: {summary['test_correct']} of {summary['test_total']}")


def the_coordinators_death_is_named(lab):
    for number, words in ((signal.SIGKILL, ("server 0",)), (signal.SIGSTOP, ("server 0", "silent"))):
        cluster = lab.cluster(lab.job(silent(lab, LONG)), 2, 2, slice_bytes=4096)
        cluster.reaches(5)
        lost = kill(cluster.servers[0], number)
        survivors_name(cluster, lost, (f"pid {lost.pid}", *words), codes=(PEER_LOST,))
        kill(lost)


def another_servers_death_is_named(lab):
    for number in (signal.SIGKILL, signal.SIGSTOP):
        cluster = lab.cluster(lab.job(silent(lab, LONG)), 2, 2, slice_bytes=4096)
        cluster.reaches(5)
        lost = kill(cluster.servers[1], number)
        survivors_name(cluster, lost, ("server 1",), codes=(4, PEER_LOST))
        kill(lost)


def ending_the_coordinator_stops_the_job(lab):
    cluster = lab.cluster(lab.job(LONG), 2, 2, slice_bytes=4096)
    cluster.reaches(5)
    ended = kill(cluster.servers[0], signal.SIGTERM)
    expect(ended.ends(30) == STOPPED, f"exit code {ended.returncode}")
    for process in cluster.all():
        expect(process.ends(30) == STOPPED, f"{process.name} ended with {process.returncode}: {process.said()[-600:]}")
        last = process.said().splitlines()[-1]
        expect("SIGTERM" in last and "server 0" in last, f"{process.name} does not name it: {last}")
    expect("SIGTERM" in base.summary_of(cluster.out)["stopped_by"], "not said by what")


if __name__ == "__main__":
    base.main(globals())
