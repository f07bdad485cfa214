"""Tests planned stops: at random times, at the end of an allocation, past their grace; and checkpoints by a signal.

PUSHPULL_STOPS is the number of stops at random times under each strategy (2), PUSHPULL_STOPS_SEED chooses the times."""
import os
import pathlib
import random
import signal
import time

import lab as base
from files_test import limited_files
from lab import LONG, MLP, expect, living_below, summary_of

STOPPED, USAGE, FILE, SIGTERM_CODE = 75, 2, 8, 128 + signal.SIGTERM
STRATEGIES = ("sync", "async", "ssp:4", "local:8", "backup:1", "allreduce:ring")


def command_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def whole(out):
    return sorted(int(path.parent.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*/DONE"))


def is_stopped(run, by="SIGTERM"):
    """The run has stopped with the checkpoint of its last step. Returns that step."""
    expect(run.returncode == STOPPED, f"exit code {run.returncode}: {run.output()[-1200:]}")
    summary = summary_of(run.out)
    expect((summary["stopped_by"] or "").startswith(by), f"stopped_by {summary['stopped_by']}")
    expect(summary["steps"] in whole(run.out), f"no checkpoint of step {summary['steps']}, only {whole(run.out)}")
    return summary["steps"]


def stops_at_random(lab, strategy, stops, rng):
    """Stops runs at random times and resumes them. Runs of `sync` go to their end, with the undisturbed bits."""
    same_bits = strategy == "sync"
    keys = {**MLP, "strategy": strategy, "resume": "auto",
            "steps": lab.steps(6000) if same_bits else 10_000_000}
    want = lab.train(lab.job(keys), 1, 2)["weights_sha256"] if same_bits else None
    done = rounds = 0
    while done < stops:
        rounds += 1
        out, before = lab.folder / f"{strategy.replace(':', '-')}-{rounds}", -1
        while True:
            run = lab.launch(lab.job(keys), 2, 2 + done % 2, out=out)
            run.prints(", strategy ")  # training starts
            if done < stops:
                time.sleep(rng.uniform(0, lab.seconds(0.6)))
                run.send_signal(signal.SIGTERM)
            if run.ends(120) == 0 and same_bits:
                break
            step = is_stopped(run)
            expect(step >= before, f"{strategy}: stopped at {step}, resumed at {before}")
            before, done = step, done + 1
            if done >= stops and not same_bits:
                break
        if same_bits:
            expect(summary_of(out)["weights_sha256"] == want, f"{strategy}: other bits after {done} stops")
    return done


def stops_at_random_times_keep_the_run(lab):
    stops = int(os.environ.get("PUSHPULL_STOPS", "2"))
    rng = random.Random(int(os.environ.get("PUSHPULL_STOPS_SEED", "1")))
    for strategy in STRATEGIES:
        done = stops_at_random(lab, strategy, stops, rng)
        expect(not lab.left_behind(), f"{strategy}: left behind: {lab.left_behind()}")
        if stops > 10:
            print(f"  {strategy}: {done} stops", flush=True)


def a_checkpoint_signal_writes_one_and_training_goes_on(lab):
    def case(strategy):
        keys = {**lab.in_parts(MLP, 8000), "strategy": strategy, "checkpoint-keep": 100}
        run = lab.launch(lab.job(keys), 2, 2)
        run.prints("strategy ")
        for pause in (0.2, 0.0, 0.02, 0.3):  # some in quick succession
            time.sleep(lab.seconds(pause))
            run.send_signal(signal.SIGUSR1)
        run.prints("is on disk")
        found = whole(run.out)
        expect(found, run.output()[-800:])
        expect(run.poll() is None, "training does not go on")
        expect(run.ends(120) == 0, run.output()[-800:])
        expect(len(whole(run.out)) > 1 and whole(run.out)[0] == found[0], f"{whole(run.out)}")
        expect(summary_of(run.out)["stopped_by"] is None, "it was stopped")
    lab.side_by_side(case, ("sync",), ("async",), ("allreduce:ring",))


def a_run_with_checkpoint_signals_has_the_same_bits(lab):
    keys = lab.in_parts(MLP, 6000)
    want = lab.train(lab.job(keys), 1, 1)["weights_sha256"]
    run = lab.launch(lab.job({**keys, "checkpoint-keep": 100}), 2, 2)
    run.prints("strategy ")
    while run.poll() is None and "is on disk" not in run.output():
        run.send_signal(signal.SIGUSR1)
        time.sleep(lab.seconds(0.1))
    expect(run.ends(120) == 0, run.output()[-800:])
    steps = whole(run.out)
    expect(len(steps) > 1, f"{steps}: {run.output()[-600:]}")
    expect(summary_of(run.out)["weights_sha256"] == want, "other bits")
    again = lab.folder / "again"
    (again / "checkpoints").mkdir(parents=True)
    (run.out / "checkpoints" / f"step-{steps[0]:08d}").rename(again / "checkpoints" / f"step-{steps[0]:08d}")
    got = lab.train(lab.job({**keys, "resume": "true"}), 1, 2, out=again)
    expect(got["resumed_from_step"] == steps[0], f"resumed at {got['resumed_from_step']}")
    expect(got["weights_sha256"] == want, "other bits after a resume from the checkpoint of a signal")


def a_checkpoint_signal_to_all_processes_ends_none(lab):
    """As Slurm sends it: also before the members join, repeatedly, and to processes that do not coordinate."""
    cluster = lab.cluster(lab.job(LONG), 2, 1, workers=2)
    for process in cluster.all():
        process.send_signal(signal.SIGUSR1)
    cluster.servers[0].prints("SIGUSR1: training has not begun")
    cluster.add_worker()
    cluster.reaches(100)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
        for process in cluster.all():
            process.send_signal(number)
    cluster.servers[0].prints("is on disk")
    cluster.servers[0].prints("ignored SIGUSR2: checkpoint-signal is SIGUSR1")
    for process in cluster.all()[1:]:
        process.prints("only the first server writes a checkpoint")
    before = cluster.step()
    cluster.reaches(before + 100)
    for process in cluster.all()[1:]:
        expect(process.output().count("ignored SIGUSR") == 1, process.output())


def a_checkpoint_signal_of_another_name_or_none(lab):
    run = lab.launch(lab.job(LONG), 1, 1, checkpoint_signal="SIGWINCH")
    run.prints("strategy ")
    run.send_signal(signal.SIGUSR1)
    run.prints("ignored SIGUSR1: it is not checkpoint-signal")
    run.send_signal(signal.SIGWINCH)
    run.prints("is on disk")
    run.send_signal(signal.SIGTERM)
    run.ends(60)
    is_stopped(run)
    alone = lab.cluster(lab.job(LONG), 1, 1, checkpoint_signal="none")
    alone.reaches(50)
    alone.servers[0].send_signal(signal.SIGUSR1)
    alone.servers[0].prints("ignored SIGUSR1: checkpoint-signal is none")
    for value, words in (("TERM", "has another meaning"), ("USR3", "is no signal")):
        code, text = lab.call("pushpull", "run", "--job", lab.job(LONG), "--checkpoint-signal", value)
        expect(code == USAGE and words in text, f"{code}: {text}")


def a_stop_past_its_grace_leaves_with_the_newest_checkpoint(lab):
    """A worker that stands still: no cut comes."""
    cluster = lab.cluster(lab.job({**LONG, "checkpoint-every": 200, "heartbeat-timeout": 3600}), 1, 2, grace=4)
    cluster.reaches(500)
    with cluster.workers[0].stopped():
        time.sleep(0.2)
        for process in cluster.all():
            process.send_signal(signal.SIGTERM)
        code = cluster.servers[0].ends(8)
        text = cluster.servers[0].output()
        expect(code == STOPPED, f"exit code {code}: {text[-800:]}")
        expect("within the grace of 4 s" in text and f"checkpoint is that of step {whole(cluster.out)[-1]}: " in text,
               text[-800:])
        expect(cluster.workers[1].ends(10) == STOPPED, cluster.workers[1].output()[-600:])
    expect(cluster.workers[0].ends(30) in (STOPPED, 5), cluster.workers[0].output()[-600:])


def a_stop_with_a_hanging_summary_ends_within_its_grace(lab):
    run = lab.launch(lab.job(LONG), 1, 2, grace=4)
    run.prints("strategy ")
    os.mkfifo(run.out / "summary.json.tmp")
    run.send_signal(signal.SIGTERM)
    code = run.ends(8)
    text = run.output()
    expect(code == STOPPED, f"exit code {code}: {text[-800:]}")
    expect("summary.json; the newest checkpoint is that of step" in text and "no step is lost" in text, text[-900:])
    expect(whole(run.out), "no checkpoint")
    expect(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def a_full_disk_at_a_stop_costs_the_checkpoint_and_says_so(lab):
    for policy in ("abort", "continue"):
        out = lab.folder / policy
        job = lab.job({**LONG, "on-checkpoint-failure": policy, "transport": "tcp"})
        run = lab.start("pushpull", "run", "--job", job, "--workers", 2, "--out", out, preexec_fn=limited_files(16_000))
        run.out = out
        run.prints("strategy ")
        run.send_signal(signal.SIGTERM)
        expect(run.ends(30) == FILE, f"exit code {run.returncode}: {run.output()[-800:]}")
        expect("the run was to stop with this checkpoint: there is no checkpoint" in run.output(), run.output()[-900:])
        expect(not whole(out) and not (out / "summary.json").exists(), "it claims a checkpoint")


def a_second_ctrl_c_says_what_is_lost(lab):
    cluster = lab.cluster(lab.job({**LONG, "checkpoint-every": 200, "heartbeat-timeout": 3600}), 1, 1)
    cluster.reaches(500)
    with cluster.workers[0].stopped():
        for _ in range(2):
            cluster.servers[0].send_signal(signal.SIGINT)
            time.sleep(0.5)
        expect(cluster.servers[0].ends(10) == 128 + signal.SIGINT, cluster.servers[0].output()[-600:])
    expect("ended at once; the newest checkpoint is that of step" in cluster.servers[0].output(),
           cluster.servers[0].output()[-600:])


def a_run_stops_by_itself_at_a_time(lab):
    run = lab.launch(lab.job(LONG), 1, 2, stop_at=int(time.time() + lab.seconds(3)) + 1)
    run.ends(60)
    is_stopped(run, "time-limit")
    expect("--stop-at 20" in run.output() and "has come" in run.output(), run.output()[-600:])


def a_first_server_that_is_lost_while_its_time_ends_stops_the_run(lab):
    at = int(time.time() + lab.seconds(4)) + 1
    run = lab.launch(lab.job({**LONG, "checkpoint-every": 200}), 1, 2, stop_at=at)
    run.prints("strategy ")
    lab.until(lambda: whole(run.out), 30, run.output)
    time.sleep(max(0, at - time.time() - 0.3))
    os.kill(next(pid for pid in living_below(run.pid) if "--job" in command_of(pid)), signal.SIGKILL)
    run.ends(60)
    is_stopped(run, "time-limit")
    expect("starting a replacement" in run.output(), run.output()[-800:])


def a_run_stops_before_its_allocation_ends(lab):
    """Slurm 22.05 says the time left, newer ones set a variable. The scheduler's SIGTERM to all comes later."""
    programs = lab.folder / "programs"
    programs.mkdir()
    (programs / "squeue").write_text("#!/bin/sh\n[ \"$3\" = --jobs=77 ] && echo 1:05\n")
    (programs / "squeue").chmod(0o755)
    lab.environment.update(PATH=f"{programs}:{os.environ['PATH']}", SLURM_JOB_ID="77")
    run = lab.launch(lab.job(LONG), 1, 2, stop_before=62)
    run.ends(60)
    is_stopped(run, "time-limit")
    expect("the allocation ends at 20" in run.output(), run.output()[-600:])
    (programs / "squeue").write_text("#!/bin/sh\necho UNLIMITED\n")
    code, text = lab.call("pushpull", "run", "--job", lab.job(LONG), "--stop-before", 60)
    expect(code == USAGE and "squeue says 'UNLIMITED'" in text, f"{code}: {text}")
    lab.environment["SLURM_JOB_END_TIME"] = str(int(time.time()) + 30)
    code, text = lab.call("pushpull", "run", "--job", lab.job(LONG), "--stop-before", 60)
    expect(code == USAGE and "nothing can be trained" in text, f"{code}: {text}")
    cluster = lab.cluster(lab.job(LONG), 1, 2, stop_before=27)
    cluster.servers[0].prints("time-limit: the run stops")
    for process in cluster.all():
        process.send_signal(signal.SIGTERM)
    for process in cluster.all():
        expect(process.ends(30) == STOPPED, f"{process.name}: {process.returncode}: {process.output()[-600:]}")


def without_an_allocation_stop_before_is_refused(lab):
    for name in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME"):
        lab.environment.pop(name, None)
    for words in (["pushpull", "run"], ["pushpull-server"]):
        code, text = lab.call(*words, "--job", lab.job(LONG), "--stop-before", 60, "--out", lab.folder / "none")
        expect(code == USAGE and "no allocation of Slurm" in text and "--stop-at" in text, f"{code}: {text}")
    expect(not (lab.folder / "none").exists(), "it has written files")
    code, text = lab.call("pushpull-server", "--join", "tcp://127.0.0.1:1", "--grace", 5)
    expect(code == USAGE and "give it to the first server" in text, f"{code}: {text}")


if __name__ == "__main__":
    base.main(globals())
