"""Tests processes that die, stop or are terminated: the detection, the messages, and the end of the job."""
import os
import signal
import socket

import lab as base
from lab import LONG, MLP, expect, first

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
        expect(code in codes, f"{process.name} ended with {code}, want {codes}: {process.output()[-600:]}")
        last = process.output().splitlines()[-1]
        for word in words:
            expect(word in last, f"{process.name} does not name {word} in its last line: {last}")
    expect(not (cluster.out / "summary.json").exists(), "a broken run has a summary")


@first("P6: a lost worker is named")
def sync_aborts_and_names_the_killed_worker(lab):
    cluster = lab.cluster(lab.job(LONG), 2, 3, slice_bytes=4096)
    cluster.reaches(5)
    lost = kill(cluster.workers[1])
    survivors_name(cluster, lost, ("worker 1", f"pid {lost.pid}", "on-worker-loss=abort"))


@first("P6: a silent worker is named")
def sync_aborts_when_a_worker_is_stopped(lab):
    cluster = lab.cluster(lab.job(silent(lab, LONG)), 1, 2)
    cluster.reaches(5)
    lost = kill(cluster.workers[0], signal.SIGSTOP)
    survivors_name(cluster, lost, ("worker 0", f"pid {lost.pid}", "no heartbeat"))
    # a process that continues is refused and exits
    kill(lost, signal.SIGCONT)
    expect(lost.ends(30) != 0, f"the stopped worker succeeded: {lost.output()[-300:]}")


def a_terminated_worker_is_named(lab):
    cluster = lab.cluster(lab.job(LONG), 1, 2)
    cluster.reaches(5)
    gone = kill(cluster.workers[1], signal.SIGTERM)
    expect(gone.ends(30) == 128 + signal.SIGTERM, f"exit code {gone.returncode}")
    survivors_name(cluster, gone, (f"pid {gone.pid}", "SIGTERM"))


def calm_hash(lab, keys):
    return lab.train(lab.job(keys), 1, 2)["weights_sha256"]


def hurt_keys(lab, **more):
    # a kill after the first metrics line is in the middle of the job
    return lab.in_parts({**MLP, "clip-norm": 1, **more}, 2000)


@first("P5: a spare takes over")
def a_spare_takes_over_and_keeps_the_bits(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "wait"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.add_worker()
    cluster.servers[0].prints("spare")
    cluster.reaches(1)
    lost = kill(cluster.workers[0])
    summary = cluster.ends_well(but=(lost,))
    expect("was a spare and takes the free place" in cluster.servers[0].output(),
           cluster.servers[0].output()[-600:])
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def the_wait_for_a_replacement_ends(lab):
    def ends(keys, words):
        cluster = lab.cluster(lab.job({**LONG, "replacement-timeout": 2, **keys}), 1, 2)
        cluster.reaches(5)
        survivors_name(cluster, kill(cluster.workers[1]), ("replacement-timeout = 2", *words))
    lab.side_by_side(ends, ({"on-worker-loss": "wait"}, ()),
                     ({"on-worker-loss": "continue", "min-workers": 2}, ("min-workers = 2",)))


@first("P2, P5: a lost worker costs nothing")
def sync_continues_without_a_worker_to_the_same_bits(lab):
    keys = hurt_keys(lab, **{"on-worker-loss": "continue"})
    calm = calm_hash(lab, keys)
    cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
    cluster.reaches(1)
    lost = kill(cluster.workers[2])
    summary = cluster.ends_well(but=(lost,))
    expect("the others go on" in cluster.servers[0].output(), cluster.servers[0].output()[-600:])
    expect(summary["workers_lost"] == 1 and "workers lost  1" in cluster.servers[0].output(), f"{summary}")
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def new_workers_take_over_with_the_same_bits(lab):
    def is_replaced_by_hand(cluster):
        server, lost = cluster.servers[0], kill(cluster.workers[1])
        server.prints("waiting for a replacement")
        expect(f"pid {lost.pid}" in server.output(), "the lost worker is not named")
        cluster.add_worker()
        expect(cluster.ends_well(but=(lost,))["weights_sha256"] == calm, "the weights differ from the undisturbed run")

    def is_followed_by_one_that_takes_over_a_share(cluster):
        server, lost = cluster.servers[0], [kill(cluster.workers[0])]
        server.prints("micro-batches 0 to 3 go to worker 1")
        late = cluster.add_worker()
        server.prints(f"pid {late.pid}) takes the free place")
        server.prints(f"go to worker 0 ({socket.gethostname()}, pid {late.pid})")
        lost.append(kill(cluster.workers[1]))
        expect(cluster.ends_well(but=lost)["weights_sha256"] == calm, "the weights differ from the undisturbed run")

    def shares_its_steps_with_new_workers(cluster):
        server = cluster.servers[0]
        for workers in (3, 4):
            cluster.add_worker()
            server.prints(f"{workers} workers share each step")
        lost = kill(cluster.workers[0])
        server.prints("the others go on")
        late = cluster.add_worker()
        server.prints(f"go to worker 0 ({socket.gethostname()}, pid {late.pid})")
        summary = cluster.ends_well(but=(lost,))
        expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
        drawn = summary["samples_per_worker"]
        expect(len(drawn) == 4 and min(drawn) > 0 and sum(drawn) == keys["steps"] * 64, f"samples {drawn}")

    def is_paused_below_min_workers(cluster):
        server, lost = cluster.servers[0], kill(cluster.workers[1])
        server.prints("training is paused with 1 worker, fewer than min-workers = 2")
        cluster.add_worker()
        server.prints("training goes on with 2 workers")
        expect(cluster.ends_well(but=(lost,))["weights_sha256"] == calm, "the weights differ from the undisturbed run")

    def case(keys, hurts):
        cluster = lab.cluster(lab.job(keys), 2, 2, slice_bytes=4096)
        cluster.reaches(1)
        hurts(cluster)
    keys = hurt_keys(lab)
    calm = calm_hash(lab, keys)
    goes_on = {**keys, "on-worker-loss": "continue"}
    lab.side_by_side(case, ({**keys, "on-worker-loss": "wait"}, is_replaced_by_hand),
                     (goes_on, is_followed_by_one_that_takes_over_a_share),
                     ({**goes_on, "max-workers": 4}, shares_its_steps_with_new_workers),
                     ({**goes_on, "min-workers": 2}, is_paused_below_min_workers))


@first("P5: async and ssp go on without a worker")
def async_and_ssp_continue_without_a_worker(lab):
    def completes(strategy):
        keys = hurt_keys(lab, strategy=strategy, lr=0.02)
        cluster = lab.cluster(lab.job(keys), 2, 3, slice_bytes=4096)
        cluster.reaches(1)
        lost = kill(cluster.workers[1])
        summary = cluster.ends_well(but=(lost,))
        output = cluster.servers[0].output()
        expect(f"pid {lost.pid}" in output, output[-600:])
        expect(summary["samples"] >= keys["steps"] * 64, f"{summary['samples']} samples")
        expect(summary["test_correct"] > 0.8 * summary["test_total"],
               f"{summary['test_correct']} of {summary['test_total']}")
    lab.side_by_side(completes, ("async",), ("buffered:3",), ("ssp:3",))


@first("P6: a lost coordinator is named")
def the_coordinators_death_is_named(lab):
    def is_named(number, words):
        cluster = lab.cluster(lab.job(silent(lab, LONG)), 2, 2, slice_bytes=4096)
        cluster.reaches(5)
        lost = kill(cluster.servers[0], number)
        survivors_name(cluster, lost, (f"pid {lost.pid}", *words), codes=(PEER_LOST,))
        kill(lost)
    lab.side_by_side(is_named, (signal.SIGKILL, ("server 0",)), (signal.SIGSTOP, ("server 0", "silent")))


def another_servers_death_is_named(lab):
    def is_named(number):
        cluster = lab.cluster(lab.job(silent(lab, LONG)), 2, 2, slice_bytes=4096)
        cluster.reaches(5)
        lost = kill(cluster.servers[1], number)
        survivors_name(cluster, lost, ("server 1",), codes=(4, PEER_LOST))
        kill(lost)
    lab.side_by_side(is_named, (signal.SIGKILL,), (signal.SIGSTOP,))


def ending_the_coordinator_stops_the_job(lab):
    cluster = lab.cluster(lab.job(LONG), 2, 2, slice_bytes=4096)
    cluster.reaches(5)
    ended = kill(cluster.servers[0], signal.SIGTERM)
    expect(ended.ends(30) == STOPPED, f"exit code {ended.returncode}")
    for process in cluster.all():
        expect(process.ends(30) == STOPPED, f"{process.name} ended with {process.returncode}: {process.output()[-600:]}")
        last = process.output().splitlines()[-1]
        expect("SIGTERM" in last and "server 0" in last, f"{process.name} does not name it: {last}")
    expect("SIGTERM" in base.summary_of(cluster.out)["stopped_by"], "no signal named")


if __name__ == "__main__":
    base.main(globals())
