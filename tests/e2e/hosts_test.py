"""Tests what programs do with the host that they run on: `pushpull doctor` before a job, --bind, shares of cores, and local
ranks for --device auto."""
import os
import re
import shutil
import signal
import subprocess

import lab as base
from lab import MLP, Skipped, expect, first, living_below
from status_test import lines_of, members_of

CHECKS = ("launcher", "cores", "memory", "processes", "gpu", "/dev/shm", "files", "memlock")


def cpus_of(pid):
    """Returns the CPUs of each thread of a process."""
    found = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        status = open(f"/proc/{pid}/task/{thread}/status").read()
        found.add(re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.M)[1])
    return found


def step_variables(rank, size, node=0, local=0, tasks="1(x2)"):
    return {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size),
            "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local), "SLURM_STEP_TASKS_PER_NODE": tasks,
            "SLURM_STEP_NODELIST": "n[0-1]"}


def no_launcher(lab, also=()):
    prefixes = ("SLURM", "OMPI", "PMI", "RANK", "WORLD", "LOCAL_", "MASTER", "MPI_", "JOB_COMPLETION", "TF_", "DMLC", "PET_")
    lab.environment = {key: value for key, value in lab.environment.items() if not key.startswith((*prefixes, *also))}


def the_doctor_examines_this_host_without_a_job(lab):
    no_launcher(lab)
    code, text = lab.call("pushpull", "doctor")
    found = lines_of(text)
    expect(code == 0 and "0 errors" in text, f"exit code {code}: {text}")
    for check in CHECKS:
        expect(check in found, f"no line for {check}: {text}")
    cores = len(os.sched_getaffinity(0))
    expect(re.search(rf"\b{cores} CPUs? \(", found["cores"][1]), f"{cores} CPUs: {text}")
    for verdict, line in found.values():
        expect(verdict == "ok" or ":" in line, f"no remedy: {line}")


def the_selftest_says_what_works(lab):
    code, text = lab.call("pushpull", "selftest", seconds=120)
    lines = text.splitlines()
    expect(code == 0 and lines[-1] == "selftest: OK" and len(lines) > 9, f"exit code {code}: {text}")
    expect(all(line.startswith("OK ") for line in lines[:-1]), text)
    broken = lab.folder / "programs"
    shutil.copytree(lab.bin_dir, broken)
    (broken / "pushpull-worker").write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run([broken / "pushpull", "selftest", "--out", lab.folder / "kept"], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 1 and "FAILED  sync: the same bits" in done.stdout and "kept/sync-1.log says why" in done.stdout,
           f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    expect("exit code 3" in (lab.folder / "kept" / "sync-1.log").read_text(), "the log does not say why")


def the_doctor_sees_a_narrow_affinity_and_a_low_limit(lab):
    no_launcher(lab)
    first = min(os.sched_getaffinity(0))
    lab.environment["PATH"] = os.environ["PATH"]
    script = lab.folder / "narrow.sh"
    script.write_text(f"#!/bin/sh\nulimit -n 100\nexec taskset -c {first} {lab.bin_dir}/pushpull doctor\n")
    script.chmod(0o755)
    code, text = lab.call(script)
    found = lines_of(text)
    expect(code == 0 and f"1 CPU ({first})" in found["cores"][1], f"exit code {code}: {text}")
    expect(found["files"][0] == "warning" and "ulimit -Hn" in found["files"][1], text)


def several_tasks_print_one_row_for_each_host(lab):
    """Four tasks on two hosts, of which this one plays both: a row from the first task of each."""
    no_launcher(lab)
    plain, text = dict(lab.environment), ""
    for rank, node, local in ((0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)):
        lab.environment = {**plain, **step_variables(rank, 4, node, local, "2(x2)")}
        code, output = lab.call("pushpull", "doctor")
        expect(code == 0, f"exit code {code}: {output}")
        expect(bool(output) == (local == 0), f"task {rank} printed {output!r}")
        text += output
    rows = [line for line in text.splitlines() if "  warning  " not in line]
    expect(len(rows) == 3 and rows[0].startswith("host ") and rows[1] == rows[2], text)
    expect(rows[1].startswith(os.uname().nodename), text)


def driver_library(lab, name, body):
    """Makes a library in the place of the driver's, whose cuDriverGetVersion has this body."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skipped("no C compiler")
    folder = lab.folder / name
    folder.mkdir()
    (folder / "driver.c").write_text("#include <unistd.h>\nint cuDriverGetVersion(int *version) { " + body + " }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.c"], check=True)
    lab.environment["LD_LIBRARY_PATH"] = str(folder)


def the_doctor_asks_the_drivers_library(lab):
    no_launcher(lab)
    driver_library(lab, "good", "*version = 12020; return 0;")
    code, text = lab.call("pushpull", "doctor")
    expect(code == 0 and "CUDA 12.2" in lines_of(text)["gpu"][1], f"exit code {code}: {text}")
    driver_library(lab, "failing", "return 999;")
    code, text = lab.call("pushpull", "doctor")
    expect(code == 0 and "does not tell its version" in lines_of(text)["gpu"][1], f"exit code {code}: {text}")


def a_driver_that_hangs_costs_one_line(lab):
    no_launcher(lab)
    driver_library(lab, "hanging", "sleep(1000); return 0;")
    code, text = lab.call("pushpull", "doctor", seconds=30)
    expect(code == 0 and "has not answered within 5 s" in lines_of(text)["gpu"][1], f"exit code {code}: {text}")
    expect("memlock" in lines_of(text), text)


def processes(run):
    """Returns the pids of servers and workers below `pushpull run`."""
    found = {}
    for pid in living_below(run.pid):
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        found.setdefault(name, []).append(pid)
    return found


def bound_processes_keep_the_bits(lab):
    job = lab.job({**MLP, "steps": lab.steps(300)})
    hashes = {bind: lab.train(job, workers=2, bind=bind)["weights_sha256"] for bind in ("none", "cores", "numa")}
    expect(len(set(hashes.values())) == 1, f"other bits: {hashes}")


@first("--bind")
def processes_are_bound_to_their_cores(lab):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skipped("one core")
    run = lab.launch(lab.job({**MLP, "steps": 10**7}), workers=2, bind="cores")
    run.prints("training starts")
    found = processes(run)
    expect(len(found.get("pushpull-worker", [])) == 2, f"{found}")
    seen = [cpus_of(pid) for pid in found["pushpull-worker"]]
    expect(all(len(one) == 1 for one in seen), f"threads of one worker differ: {seen}")
    environment = open(f"/proc/{found['pushpull-worker'][0]}/environ").read()
    for name in ("PUSHPULL_LOCAL_RANK=", "PUSHPULL_LOCAL_WORLD_SIZE=2", "PUSHPULL_CORES="):
        expect(name in environment, f"no {name} in a worker's environment")
    run.send_signal(signal.SIGTERM)
    expect(run.ends(60) == 75, run.output()[-600:])


def a_task_of_a_launcher_binds_itself(lab):
    no_launcher(lab)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skipped("one core")
    plain = dict(lab.environment)
    cluster = lab.cluster(lab.job({**MLP, "steps": 10**7}), started=0, workers=2)
    for rank in range(2):
        lab.environment = {**plain, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        cluster.add_worker("--bind", "cores")
    cluster.reaches(5)
    for rank, worker in enumerate(cluster.workers):
        bound = re.search(r"bound to CPUs (\S+): local rank (\d) of 2", worker.output())
        if bound is None and "the launcher has bound this task" in worker.output():
            raise Skipped("this test itself is bound")
        expect(bound and bound[2] == str(rank), worker.output())
        expect(bound[1] in cpus_of(worker.pid), f"{bound[1]}: {cpus_of(worker.pid)}")
    lab.environment = plain


def a_task_without_a_local_rank_cannot_bind_itself(lab):
    no_launcher(lab)
    code, text = lab.call("pushpull-worker", "--join", "tcp://127.0.0.1:1", "--bind", "cores")
    expect(code == 2 and "PUSHPULL_LOCAL_RANK" in text, f"exit code {code}: {text}")
    lab.environment.update(LOCAL_RANK="0")
    code, text = lab.call("pushpull-worker", "--join", "tcp://127.0.0.1:1", "--bind", "numa")
    expect(code == 2 and "LOCAL_RANK has no size" in text, f"exit code {code}: {text}")
    code, text = lab.call("pushpull", "run", "--job", lab.job(MLP), "--bind", "core")
    expect(code == 2 and "none, cores or numa" in text, f"exit code {code}: {text}")


def more_threads_than_cores_is_said_once(lab):
    cores = len(os.sched_getaffinity(0))
    run = lab.run(lab.job({**MLP, "threads": cores}), workers=2)
    if cores > 1:
        expect(run.code == 2 and "[threads]" in run.text and "--oversubscribe" in run.text, run.text[-1500:])
    code, text = lab.call("pushpull", "run", "--job", lab.job({**MLP, "threads": cores}), "--workers", 2, "--oversubscribe",
                          "--out", lab.folder / "oversubscribed")
    run = base.Run(code, text, lab.folder / "oversubscribed")
    said = [line for line in run.text.splitlines() if "more threads than cores" in line]
    expect(run.code == 0 and len(said) == 1 and "2 workers" in said[0], run.text[-1500:])
    run = lab.run(lab.job(MLP), workers=1)
    expect(run.code == 0 and "more threads than cores" not in run.text, run.text[-1500:])


def tasks_of_a_launcher_say_it_once_per_host(lab):
    no_launcher(lab)
    plain, cores = dict(lab.environment), len(os.sched_getaffinity(0))
    cluster = lab.cluster(lab.job({**MLP, "threads": cores}), started=0, workers=2)
    for rank in range(2):
        lab.environment = {**plain, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        cluster.add_worker("--oversubscribe")
    cluster.ends_well()
    if "1 worker with" in cluster.workers[0].output():
        raise Skipped("this test itself is bound to a part of the cores")
    said = [worker.output().count("more threads than cores") for worker in cluster.workers]
    expect(said == [1, 0], f"{said}: {cluster.workers[0].output()}")


def each_task_takes_the_gpu_of_its_local_rank(lab):
    """Four tasks share three GPUs (without hardware); `pushpull run` gives its workers their local ranks."""
    lab.on_fake_devices(count=3)
    run = lab.run(lab.job({**MLP, "steps": 40, "micro-batch": 8}), workers=4, device="auto")
    expect(run.code == 0, run.text[-1500:])
    taken = sorted(member["device"] for member in members_of(run.out)["members"] if member["role"] == "worker")
    expect(taken == ["cuda:0", "cuda:0", "cuda:1", "cuda:2"], f"{taken}: {run.text[-1500:]}")
    said = run.text.count("4 tasks on this host and 3 GPUs: they share them round robin")
    expect(said == 1, f"said {said} times: {run.text[-1500:]}")


if __name__ == "__main__":
    base.main(globals())
