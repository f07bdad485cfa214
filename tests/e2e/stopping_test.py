"""Tests jobs that are stopped: a checkpoint at the next cut, code 75, no process left, and the same command resumes."""
import contextlib
import os
import pathlib
import signal
import time

import lab as base
from lab import LONG, MLP, expect, first, living_below, summary_of

STOPPED, SIGINT_CODE, SIGTERM_CODE = 75, 128 + signal.SIGINT, 128 + signal.SIGTERM


def stopped(lab, run, by, alone=True):
    expect(run.ends(60) == STOPPED, f"exit code {run.returncode}: {run.output()[-1200:]}")
    expect(not alone or not lab.left_behind(), f"left behind: {lab.left_behind()}")
    summary = summary_of(run.out)
    expect(summary["stopped_by"] and by in summary["stopped_by"], f"stopped_by {summary['stopped_by']}")
    step = summary["steps"]
    expect((run.out / "checkpoints" / f"step-{step:08d}" / "DONE").exists(), f"no checkpoint of step {step}")
    return summary


def servers_of(run, coordinator):
    for pid in living_below(run.pid):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if words[0].endswith("pushpull-server") and ("--job" in words) == coordinator:
            yield pid


@first("P5: Ctrl-C stops with a checkpoint")
def a_stopped_run_resumes_to_the_same_bits(lab):
    keys = {**lab.in_parts(MLP, 3000), "resume": "auto"}
    want = lab.train(lab.job(keys), 1, 1)
    expect(want["stopped_by"] is None, f"stopped_by {want['stopped_by']}")
    out = lab.folder / "stopped"
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
        run = lab.launch(lab.job(keys), 2, 2, out=out)
        lab.trains(run, 1 if number == signal.SIGTERM else keys["steps"] // 2)
        run.send_signal(number)
        part = stopped(lab, run, name)
        expect(part["steps"] < want["steps"], "it was not stopped in the middle")
        expect(part["samples"] == part["steps"] * 64 or part["resumed_from_step"], f"{part['samples']} samples")
    got = lab.train(lab.job(keys), 1, 3, out=out)
    expect(got["resumed_from_step"] == part["steps"], f"resumed at {got['resumed_from_step']}")
    expect(got["weights_sha256"] == want["weights_sha256"], "other bits than the run that was never stopped")


def every_strategy_stops(lab):
    def stops(strategy):
        keys = {**LONG, "strategy": strategy, "resume": "auto"}
        out = lab.folder / strategy.replace(":", "-")
        begun = 0
        for _ in range(2):
            # lines of the earlier run beyond its cut would be taken for this run's
            (out / "metrics.jsonl").unlink(missing_ok=True)
            run = lab.launch(lab.job(keys), 2, 3, out=out)
            lab.trains(run, begun + 50)
            run.send_signal(signal.SIGTERM)
            begun = stopped(lab, run, "SIGTERM", alone=False)["steps"]
        expect(summary_of(out)["resumed_from_step"], "the second run was no resume")
    lab.side_by_side(stops, ("async",), ("ssp:2",), ("buffered:3",), ("backup:1",), ("local:7",), ("allreduce:tree",))
    expect(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def a_repeated_signal_to_all_processes_stops_the_job(lab):
    for number in (signal.SIGTERM, signal.SIGINT):
        cluster = lab.cluster(lab.job(LONG), 2, 2)
        cluster.reaches(5)
        for turn in range(2):
            for process in reversed(cluster.all()):  # the coordinator last
                process.send_signal(number)
            if turn == 0:
                time.sleep(0.05)
        for process in cluster.all():
            expect(process.ends(60) == STOPPED, f"{process.name}: {process.returncode}: {process.output()[-600:]}")
        expect(signal.Signals(number).name in summary_of(cluster.out)["stopped_by"], "no signal named")


def signals_in_any_order_stop_the_run(lab):
    for first in ("launcher", "servers", "coordinator"):
        run = lab.launch(lab.job({**LONG, "on-worker-loss": "wait"}), 2, 2)
        lab.trains(run)
        below = sorted(living_below(run.pid), reverse=first == "servers")
        pids = [run.pid, *below] if first == "launcher" else [*below, run.pid]
        for turn in range(2):  # schedulers repeat it
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                time.sleep(0.01)
            time.sleep(0.1)
        stopped(lab, run, "SIGTERM")
        expect("replacement" not in run.output(), run.output()[-800:])


def nohup_is_respected(lab):
    keys = lab.in_parts(MLP, 3000)
    run = lab.start("pushpull", "run", "--job", lab.job(keys), "--servers", 2, "--workers", 2, "--out",
                    lab.folder / "nohup", preexec_fn=ignore_hangup)
    run.out = lab.folder / "nohup"
    lab.trains(run)
    for pid in [run.pid, *living_below(run.pid)]:
        os.kill(pid, signal.SIGHUP)
    expect(run.ends(120) == 0, f"exit code {run.returncode}: {run.output()[-800:]}")
    expect(summary_of(run.out)["stopped_by"] is None, "it was stopped")


def ignore_hangup():
    base.die_with_parent()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def a_signalled_worker_leaves_the_job(lab):
    cluster = lab.cluster(lab.job({**LONG, "on-worker-loss": "continue"}), 1, 2)
    cluster.reaches(5)
    gone = cluster.workers[1]
    gone.send_signal(signal.SIGTERM)
    expect(gone.ends(10) == SIGTERM_CODE, f"exit code {gone.returncode}: {gone.output()[-600:]}")
    cluster.servers[0].prints("ended by SIGTERM")
    before = cluster.step()
    lab.until(lambda: cluster.step() > before + 50, 60, lambda: cluster.servers[0].output()[-600:])


@first("Ctrl-C twice")
def only_a_second_ctrl_c_ends_at_once(lab):
    run = lab.launch(lab.job(LONG), 1, 2)
    lab.trains(run)
    os.mkfifo(run.out / "summary.json.tmp")  # the stop waits for it until the grace is over
    for _ in range(3):
        run.send_signal(signal.SIGTERM)
        time.sleep(0.4)
    run.prints("stops with a checkpoint at step")
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)
    expect(run.poll() is None, f"it has not waited: {run.output()[-600:]}")
    run.send_signal(signal.SIGINT)
    expect(run.ends(10) == SIGINT_CODE, f"exit code {run.returncode}: {run.output()[-600:]}")
    expect(not lab.left_behind(), f"left behind: {lab.left_behind()}")
    expect(not (run.out / "summary.json").exists(), "a run that was killed has a summary")


def a_stop_before_the_first_step_changes_no_files(lab):
    job = lab.job(MLP)
    out = lab.folder / "out"
    lab.train(job, 1, 1, out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    expect(len(before) > 6, f"{before}")
    for number, code in ((signal.SIGTERM, SIGTERM_CODE), (signal.SIGINT, SIGINT_CODE)):
        alone = lab.start("pushpull-server", "--job", job, "--listen", "tcp://127.0.0.1:*", "--workers", 2, "--out", out)
        alone.prints("listening on ")
        alone.send_signal(number)
        expect(alone.ends(20) == code, f"exit code {alone.returncode}: {alone.output()[-600:]}")
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    expect(before == after, f"was touched: {set(before.items()) ^ set(after.items())}")


def a_job_stops_during_the_restart_of_a_server(lab):
    for coordinator in (False, True):
        keys = {**LONG, "checkpoint-every": 100, "on-server-loss": "restart"}
        run = lab.launch(lab.job(keys), 2, 2)
        lab.trains(run, 150)
        os.kill(next(servers_of(run, coordinator)), signal.SIGKILL)
        run.prints("starting a replacement")
        run.send_signal(signal.SIGTERM)
        stopped(lab, run, "SIGTERM")


if __name__ == "__main__":
    base.main(globals())
