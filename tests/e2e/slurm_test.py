"""Tests `pushpull run --over slurm` and `pushpull submit` with a Slurm of two nodes on this host. Skipped without root and
Debian's Slurm."""
import json
import os
import re
import shutil
import signal

import lab as base
from lab import MLP, Skipped, expect, step_of, summary_of
from slurm import Slurm

STOPPED = 75
JOB = {**MLP, "on-worker-loss": "wait"}


def ends_with(process, code, seconds=120):
    got = process.ends(seconds)
    expect(got == code, f"exit code {got}: {process.output()[-1500:]}")
    return process.output()


def reaches(lab, out, step, process):
    lab.until(lambda: step_of(out) >= step or process.poll() is not None, 60,
              lambda: f"no step {step}: {process.output()[-800:]}")
    expect(process.poll() is None, f"ended with {process.returncode}: {process.output()[-1500:]}")


def run_words(lab, job, out, *more):
    return [lab.bin_dir / "pushpull", "run", "--over", "slurm", "--job", lab.job(job), "--out", out, *more]


def pids_of(lab, name):
    found = []
    for pid in base.living_below(os.getpid()):
        try:
            if os.readlink(f"/proc/{pid}/exe") == str(lab.bin_dir / name):
                found.append(pid)
        except OSError:
            pass
    return sorted(found)


def one_worker_for_each_task_ends_in_the_bits_of_a_local_run(lab):
    want = lab.train(lab.job(JOB), 1, 2)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "over"
        text = ends_with(slurm.salloc(*run_words(lab, JOB, out, "--servers", 2, "--logs", lab.folder / "logs"), per_node=4), 0)
        summary = summary_of(out)
        expect(summary["weights_sha256"] == want, "other bits than the local run")
        expect(summary["workers"] == 8 and summary["servers"] == 2, f"{summary['workers']} workers, {summary['servers']} servers")
        # n0 has tasks 0 to 3: server 1 is beside the first task of n1
        expect(re.search(r"^task 4 on \S+ \| server 1: joined", text, re.M), text[:1500])
        logs = sorted(path.name for path in (lab.folder / "logs").iterdir())
        expect(logs == [f"task-{rank}.log" for rank in range(8)], f"{logs}")
    lab.nothing_is_left()


def sigterm_stops_it_with_a_checkpoint_and_it_resumes(lab):
    steps = lab.steps(20000)
    job = {**JOB, "steps": steps, "resume": "auto"}
    want = lab.train(lab.job({**job, "resume": "false"}), 1, 2)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "over"
        for turn in range(2):
            (out / "metrics.jsonl").unlink(missing_ok=True)
            # salloc passes a signal on to its command in its own way: the launcher gets it from its own shell
            script = f"{' '.join(map(str, run_words(lab, job, out)))} & run=$!; trap 'kill -TERM $run' USR1; wait $run; " \
                     f"while kill -0 $run 2>/dev/null; do wait $run; done; wait $run; exit $?"
            process = slurm.salloc("bash", "-c", "echo $$ > shell; " + script)
            reaches(lab, out, 1, process)
            os.kill(int((lab.folder / "shell").read_text()), signal.SIGUSR1)
            text = ends_with(process, STOPPED)
            expect("stops with a checkpoint at step" in text, text[-1500:])
            lab.nothing_is_left()
        ends_with(slurm.salloc(*run_words(lab, job, out)), 0)
        expect(summary_of(out)["weights_sha256"] == want, "other bits than the undisturbed run")


def a_killed_worker_is_replaced_in_its_task(lab):
    killed_worker_is_replaced(lab, {**JOB, "steps": lab.steps(20000)}, per_node=1)


def a_killed_worker_of_a_group_is_replaced_in_its_task(lab):
    # neighbours in rank are on two nodes
    killed_worker_is_replaced(lab, {**JOB, "steps": lab.steps(3000), "stages": 2}, "--over-args=--distribution=cyclic", per_node=2)


def killed_worker_is_replaced(lab, job, *more, per_node):
    want = lab.train(lab.job({**job, "stages": 1}), 1, 1)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "over"
        process = slurm.salloc(*run_words(lab, job, out, *more), per_node=per_node)
        reaches(lab, out, 1, process)
        os.kill(pids_of(lab, "pushpull-worker")[0], signal.SIGKILL)
        text = ends_with(process, 0)
        expect("was killed by signal 9 (SIGKILL); starting a replacement, 1 of at most 3" in text, text[-1500:])
        expect(summary_of(out)["weights_sha256"] == want, "other bits than the undisturbed run of one worker")


def a_lost_worker_or_step_is_one_line_with_its_code(lab):
    job = {**JOB, "on-worker-loss": "abort", "steps": 10_000_000}
    with Slurm(lab) as slurm:
        out = lab.folder / "worker"
        process = slurm.salloc(*run_words(lab, job, out))
        reaches(lab, out, 1, process)
        os.kill(pids_of(lab, "pushpull-worker")[0], signal.SIGKILL)
        text = ends_with(process, 137)
        expect(re.search(r"^\[run\] srun \(pid \d+\) ended with exit code 137", text, re.M), text[-1500:])
        lab.nothing_is_left()
        out = lab.folder / "step"
        process = slurm.salloc(*run_words(lab, job, out))
        reaches(lab, out, 1, process)
        for pid in base.living_below(os.getpid()):
            if os.path.exists(f"/proc/{pid}/exe") and os.readlink(f"/proc/{pid}/exe").endswith("/srun"):
                os.kill(pid, signal.SIGKILL)
        text = ends_with(process, 137)
        expect(re.search(r"^\[run\] srun \(pid \d+\) was killed by signal 9", text, re.M), text[-1500:])
        lab.nothing_is_left()
        text = ends_with(slurm.salloc(*run_words(lab, job, lab.folder / "many", "--workers", 99)), 1)
        expect("the allocation has fewer CPUs than its tasks need" in text, text[-1500:])
        lab.nothing_is_left()


def compare_words(lab, job, out, *more):
    return [lab.bin_dir / "pushpull", "compare", "--over", "slurm", "--job", lab.job(job), "--out", out, *more]


def a_comparison_runs_each_cell_as_a_step(lab):
    want = lab.train(lab.job(JOB), 1, 2)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "compared"
        words = compare_words(lab, JOB, out, "--strategies", "sync,async", "--workers", "1,4,99", "--seeds", 1, "--servers", 2)
        text = ends_with(slurm.salloc(*words, per_node=2), 0)
        found = json.loads((out / "compare.json").read_text())
        expect([(run["workers"], run["failure"]) for run in found["runs"]] == [(1, None)] * 2 + [(4, None)] * 2, f"{found['runs']}")
        expect({run["weights_sha256"] for run in found["runs"] if run["strategy"] == "sync"} == {want}, "other bits than the local run")
        expect(any(re.match(r"99 workers: the allocation has fewer CPUs .*; left out", note) for note in found["notes"]), f"{found['notes']}")
        expect(found["over"] == "slurm" and re.match(r"2 nodes \(n0, n1\), each: .* cores usable", found["machine"]), found["machine"])
        expect(all(run["other_cores"] is None for run in found["runs"]), "the load of other nodes is not known")
        log = (out / found["runs"][2]["out"] / "log.txt").read_text()
        expect(re.search(r"^task 2 on \S+ \| server 1: joined", log, re.M), log[:1500])
        expect(found["machine"] in text and (out / "report.html").exists(), text[:1500])
        text = ends_with(slurm.salloc(*compare_words(lab, JOB, lab.folder / "none", "--workers", "99,98")), 2)
        expect("[compare] --over slurm: 98 workers: the allocation has fewer CPUs" in text and not (lab.folder / "none").exists(), text)
    lab.nothing_is_left()
    code, text = lab.call(*compare_words(lab, JOB, lab.folder / "outside"))
    expect(code == 2 and "SLURM_JOB_ID is not set" in text, f"{code}: {text}")


def ctrl_c_ends_the_running_step_of_a_comparison(lab):
    job, out = {**JOB, "steps": lab.steps(10000)}, lab.folder / "compared"
    with Slurm(lab) as slurm:
        words = " ".join(map(str, compare_words(lab, job, out, "--strategies", "sync", "--workers", 2, "--seeds", 2)))
        process = slurm.salloc("bash", "-c", f"echo $$ > shell; exec {words}")
        second = out / "runs" / "sync-w2-s8"
        lab.until(lambda: process.poll() is not None or step_of(second) >= 1, 120, process.output)
        expect(process.poll() is None, process.output()[-1500:])
        os.kill(int((lab.folder / "shell").read_text()), signal.SIGINT)
        text = ends_with(process, 130)
        expect("INTERRUPTED by SIGINT after 1 of 2 runs" in text, text[-1500:])
        expect(len(json.loads((out / "compare.json").read_text())["runs"]) == 1, "not the one complete run")
        lab.nothing_is_left()


def tasks_get_the_key_without_a_shared_home(lab):
    with Slurm(lab) as slurm:
        key = lab.folder / "job.key"
        expect(lab.call("pushpull", "keygen", key)[0] == 0, "keygen")
        # the tasks look for the user's own key in a folder where they would make another one
        script = lab.folder / "elsewhere.sh"
        script.write_text(f"#!/bin/sh\nexport XDG_CONFIG_HOME={lab.folder}/elsewhere\nunset PUSHPULL_KEY_FILE\nexec \"$@\"\n")
        script.chmod(0o755)
        words = run_words(lab, JOB, lab.folder / "out", "--key", key, "--over-args", str(script))
        ends_with(slurm.salloc(*words), 0)
        expect(not (lab.folder / "elsewhere").exists(), "a task has made a key of its own")


def a_step_inside_a_step_shares_its_cpus(lab):
    with Slurm(lab) as slurm:
        words = " ".join(map(str, run_words(lab, JOB, lab.folder / "out", "--workers", 2)))
        ends_with(slurm.salloc("srun", "-N1", "-n1", "bash", "-c", words), 0)
        expect(summary_of(lab.folder / "out")["workers"] == 2, "workers")


def a_requeued_job_ends_in_the_undisturbed_hash(lab):
    job = {**JOB, "steps": lab.steps(40000), "checkpoint-every": lab.steps(4000)}
    want = lab.train(lab.job(job), 1, 2, seconds=300)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "submitted"
        code, text = lab.call("pushpull", "submit", "--job", lab.job(job), "--nodes", 2, "--workers", 2, "--out", out, "--go")
        expect(code == 0 and "Submitted batch job" in text, f"{code}: {text}")
        number = text.split()[-1]
        lab.until(lambda: step_of(out) >= 1, 90,
                  lambda: f"no step: {[path.read_text() for path in out.glob('slurm-*.log')]}")
        code, text = slurm.ask("scontrol", "requeue", number)
        expect(code == 0, text)
        lab.until(lambda: slurm.states().get(number) in ("COMPLETED", "FAILED"), 300, lambda: f"{slurm.states()}")
        log = (out / f"slurm-{number}.log").read_text()
        expect(slurm.states()[number] == "COMPLETED", f"{slurm.states()}: {log[-1500:]}")
        summary = summary_of(out)
        expect(summary["resumed_from_step"], f"never resumed: {log[-1500:]}")
        expect(summary["weights_sha256"] == want, "other bits than the undisturbed run")
        expect(summary["servers"] == 2, "one server on each node")


def a_notice_before_the_time_limit_requeues_the_job(lab):
    """Slurm's own notice takes a minute: scancel sends the same signal to the batch shell alone."""
    job = {**JOB, "steps": lab.steps(40000)}
    want = lab.train(lab.job(job), 1, 2, seconds=300)["weights_sha256"]
    with Slurm(lab) as slurm:
        out = lab.folder / "array"
        code, text = lab.call("pushpull", "submit", "--job", lab.job(job), "--nodes", 2, "--out", out, "--time", 5, "--go",
                              "--sbatch-args=--array=7")
        expect(code == 0, f"{code}: {text}")
        number, out = text.split()[-1], out / "task-7"  # an array task has a folder of its own
        lab.until(lambda: step_of(out) >= 1, 90, lambda: f"{list(out.glob('*'))}")
        code, text = slurm.ask("scancel", "--batch", "--signal=USR1", f"{number}_7")
        expect(code == 0, text)
        lab.until(lambda: set(slurm.states().values()) <= {"COMPLETED", "FAILED"}, 300, lambda: f"{slurm.states()}")
        log = "".join(path.read_text() for path in out.parent.glob("slurm-*.log"))
        expect("back into the queue" in log, log[-1500:])
        summary = summary_of(out)
        expect(summary["resumed_from_step"] and summary["weights_sha256"] == want, f"{summary.get('resumed_from_step')}: {log[-1500:]}")


def submitted(lab, slurm, job, *words):
    """Submits a job, and waits for its first step. Returns its number and its folder."""
    out = lab.folder / lab.name("submitted")
    code, text = lab.call("pushpull", "submit", "--job", lab.job(job), "--nodes", 2, "--out", out, "--go", *words)
    expect(code == 0, f"{code}: {text}")
    number = text.split()[-1]
    lab.until(lambda: step_of(out) >= 1, 90,
              lambda: f"no step: {slurm.states()} {[path.read_text()[-800:] for path in out.glob('slurm-*.log')]}")
    return number, out


def ends_as(lab, slurm, number, out, state, seconds=300):
    lab.until(lambda: slurm.states().get(number) in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL"), seconds, slurm.states)
    log = (out / f"slurm-{number}.log").read_text()
    expect(slurm.states()[number] == state, f"{slurm.states()}: {log[-1500:]}")
    return log


def a_preempted_job_ends_in_the_undisturbed_hash(lab):
    job = {**JOB, "steps": lab.steps(40000), "checkpoint-every": lab.steps(4000)}
    want = lab.train(lab.job(job), 1, 2, seconds=300)["weights_sha256"]
    with Slurm(lab) as slurm:
        number, out = submitted(lab, slurm, job)
        code, text = slurm.ask("srun", "-p", "high", "-N2", "-n2", "--exclusive", "true", seconds=120)
        expect(code == 0, text)
        log = ends_as(lab, slurm, number, out, "COMPLETED")
        summary = summary_of(out)
        expect(summary["weights_sha256"] == want, f"other bits: {log[-1500:]}")
        expect(summary["resumed_from_step"] and "stops with a checkpoint at step" in log, f"{summary['resumed_from_step']}: {log[:3000]}")


def a_cancelled_job_stops_with_a_checkpoint_and_stays_away(lab):
    with Slurm(lab) as slurm:
        number, out = submitted(lab, slurm, {**JOB, "steps": 10_000_000})
        expect(slurm.ask("scancel", number)[0] == 0, "scancel")
        ends_as(lab, slurm, number, out, "CANCELLED")
        lab.until(lambda: (out / "summary.json").exists(), 30, lambda: (out / f"slurm-{number}.log").read_text()[-1500:])
        expect(summary_of(out)["stopped_by"], "stopped_by")
        expect(not slurm.ask("squeue", "-h")[1].strip(), "it is back in the queue")
    lab.nothing_is_left()


def mpirun_starts_tasks_on_the_nodes_of_an_allocation(lab):
    if not shutil.which("mpirun"):
        raise Skipped("mpirun is not installed")
    lab.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with Slurm(lab) as slurm:
        out = lab.folder / "out"
        words = [lab.bin_dir / "pushpull", "run", "--over", "mpi", "--job", lab.job(JOB), "--out", out]
        ends_with(slurm.salloc(*words, per_node=2), 0)
        expect(summary_of(out)["workers"] == 4, "one worker for each task of the allocation")


def a_node_that_fails_ends_the_run_in_one_line(lab):
    with Slurm(lab) as slurm:
        out = lab.folder / "out"
        job = {**JOB, "steps": 10_000_000, "on-worker-loss": "abort"}
        words = [lab.bin_dir / "pushpull", "run", "--over", "slurm", "--job", lab.job(job), "--out", out]
        process = slurm.salloc("--no-kill", *words)
        reaches(lab, out, 1, process)
        expect(slurm.ask("scontrol", "update", "nodename=n1", "state=down", "reason=test")[0] == 0, "scontrol")
        code = process.ends(90)
        text = process.output()
        expect(code != 0 and re.search(r"^\[run\] srun \(pid \d+\) ", text, re.M), f"{code}: {text[-1500:]}")
        lab.nothing_is_left()


if __name__ == "__main__":
    base.main(globals())
