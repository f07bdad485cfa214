"""Tests --join auto: real processes with the variables of launchers, a whole job, and --explain."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import zipfile

import lab as base
from lab import LONG, MLP, Skipped, expect, first, free_port, summary_of
from worker_command_test import LINE

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
USAGE = 2
OFFSET = 55  # of the port from MASTER_PORT
PREFIXES = ("SLURM", "OMPI", "PMI", "RANK", "WORLD", "LOCAL_", "MASTER", "TF_", "DMLC", "PET_", "JOB_COMPLETION", "TORCHELASTIC")


def set_variables(lab, **variables):
    """Sets the launcher's variables of the processes that start from now on."""
    kept = {key: value for key, value in lab.environment.items()
            if not key.startswith(PREFIXES) and key not in ("PUSHPULL_JOIN", "PUSHPULL_PORT")}
    lab.environment = {**kept, **{key: str(value) for key, value in variables.items()}}


def torchrun(rank, size, port):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port - OFFSET}


def task_script(lab, name):
    """Returns the script of the manual; it finds our programs."""
    lab.environment["PATH"] = f"{lab.bin_dir}:{lab.environment['PATH']}"
    path = lab.folder / name
    path.write_text(re.search(r"^```sh\n(.*?)^```", (ROOT / "docs/clusters.md").read_text(), re.M | re.S)[1])
    return path


def ended_well(tasks):
    for task in tasks:
        expect(task.ends(120) == 0, f"{task.name} ended with {task.returncode}: {task.output()[-800:]}")


@first("--join auto")
def the_same_command_in_each_task_trains_to_the_usual_hash(lab):
    job = lab.job(MLP)
    want = lab.train(job, 1, 2)["weights_sha256"]
    script = task_script(lab, "task.sh")
    for servers in (1, 2):
        port, out, tasks = free_port(), lab.folder / lab.name("placed"), []
        words = ("--servers", 2, "--listen", f"tcp://127.0.0.1:{port}") if servers == 2 else ()
        for rank in (2, 1, 0):  # the first server is the last to start
            set_variables(lab, **torchrun(rank, 3, port))
            tasks.append(lab.start("/bin/sh", script, "--job", job, "--out", out, *words))
        ended_well(tasks)
        summary = summary_of(out)
        expect(summary["weights_sha256"] == want, f"other weights than with pushpull run: {summary}")
        expect(len(summary["samples_per_worker"]) == 3, f"not one worker for each task: {summary}")
        expect(len(summary["slices_per_server"]) == servers, f"not {servers} servers: {summary}")
        idle = "rank 2 of 3" in tasks[0].output() and "so this task needs none" in tasks[0].output()
        expect(idle, f"the task without a server does not say so: {tasks[0].output()}")


def tasks_of_mpirun_train(lab):
    if not shutil.which("mpirun"):
        raise Skipped("mpirun is not installed")
    job, out, script = lab.job(MLP), lab.folder / "out", task_script(lab, "task.sh")
    want = lab.train(job, 1, 2)["weights_sha256"]
    set_variables(lab, OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    local = [word for kind in ("oob", "btl") for word in ("--mca", f"{kind}_tcp_if_include", "lo")]
    code, text = lab.call(shutil.which("mpirun"), "--oversubscribe", *local, "-np", 3, "/bin/sh", script, "--job", job,
                          "--out", out, seconds=120)
    expect(code == 0, f"exit code {code}: {text[-800:]}")
    summary = summary_of(out)
    expect(summary["weights_sha256"] == want and len(summary["samples_per_worker"]) == 3, f"{summary}")
    expect("--join auto: Open MPI, rank 2 of 3, first server at tcp://127.0.0.1:" in text, text)


LOOP = """import torch, torch.nn.functional as F
from torch.utils.data import TensorDataset
import pushpull.torch as pp
torch.set_num_threads(1)
job = pp.join("auto")
torch.manual_seed(job.seed)
model = torch.nn.Linear(20, 2)
x = torch.randn(480, 20, generator=torch.Generator().manual_seed(1))
loader = job.loader(TensorDataset(x, (x.sum(1) > 0).long()))
optimizer = job.optimizer(model)
for epoch in job.epochs():
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step(loss=loss)
if job.rank == 0:
    torch.save(model.state_dict(), "saved.pt")
"""


def _torchrun():
    """Returns a torchrun that works, and the Python beside it, or skips the test. Debian's does not."""
    found = os.environ.get("PUSHPULL_TORCHRUN") or shutil.which("torchrun")
    words = [found, "--standalone", "--nproc-per-node", "1", "--no-python", "true"]
    if not found or subprocess.run(words, capture_output=True, timeout=120).returncode != 0:
        raise Skipped(f"{found or 'torchrun'} does not run; PUSHPULL_TORCHRUN names that of another PyTorch")
    return found, pathlib.Path(found).with_name("python3")


def tasks_of_torchrun_train_with_the_wheel(lab):
    """With the wheel in dist/ if there is one, else with this build's library."""
    command, python = _torchrun()
    package = lab.folder / "package"
    wheels = sorted((ROOT / "dist").glob("pushpull-*.whl"))
    if wheels:
        zipfile.ZipFile(wheels[0]).extractall(package)
    else:
        package = ROOT / "python"
        lab.environment["PUSHPULL_LIBRARY"] = str(lab.bin_dir.parent / "lib" / "libpushpull.so.0")
    lab.environment.update(PYTHONPATH=str(package), OMP_NUM_THREADS="1")
    loop, out = lab.folder / "loop.py", lab.folder / "out"
    loop.write_text(LOOP)
    script = task_script(lab, "task.sh")
    script.write_text(script.read_text().replace("pushpull-worker --join auto", f"cd {lab.folder}; {python} {loop}"))
    job = lab.job({"model": "external", "global-batch": 48, "micro-batch": 24, "steps": 45, "lr": 0.5})
    set_variables(lab)
    code, text = lab.call(command, "--standalone", "--nproc-per-node", 2, "--no-python", "/bin/sh", script, "--job", job, "--out",
                          out, seconds=120)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    expect("--join auto: torchrun, rank 1 of 2" in text, text)
    summary = summary_of(out)
    expect(len(summary["samples_per_worker"]) == 2 and summary["samples"] == 45 * 48, f"{summary}")
    compare = """import sys, torch, pushpull.torch as pp
saved, job = torch.load(sys.argv[1]), pp.read_checkpoint(sys.argv[2])
sys.exit(0 if saved.keys() == job.keys() and all(torch.equal(saved[key], job[key]) for key in job) else 9)"""
    code, text = lab.call(python, "-c", compare, lab.folder / "saved.pt", out / "checkpoints")
    expect(code == 0, f"what the script saves is not the job's result: {code} {text[-600:]}")


def tasks_of_tf_config_train(lab):
    job, port, out = lab.job(MLP), free_port(), lab.folder / "out"
    cluster = {"ps": [f"127.0.0.1:{port}"], "chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    tasks = []
    for kind, program, words in (("worker", "pushpull-worker", ()), ("chief", "pushpull-worker", ()),
                                 ("ps", "pushpull-server", ("--job", job, "--out", out))):
        set_variables(lab, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}))
        tasks.append(lab.start(program, "--join", "auto", *words))
    ended_well(tasks)
    expect(len(summary_of(out)["samples_per_worker"]) == 2, "not two workers")


def a_tf_config_without_ps_trains_with_a_server_beside_the_chief(lab):
    job, port, out = lab.job(MLP), free_port(), lab.folder / "out"
    want = lab.train(job, 1, 2)["weights_sha256"]
    cluster = {"chief": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    script, tasks = task_script(lab, "task.sh"), []
    for kind, index in (("worker", 1), ("worker", 0), ("chief", 0)):
        set_variables(lab, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
        tasks.append(lab.start("/bin/sh", script, "--job", job, "--out", out))
    ended_well(tasks)
    summary = summary_of(out)
    expect(summary["weights_sha256"] == want and len(summary["samples_per_worker"]) == 3, f"{summary}")
    expect("TF_CONFIG, rank 2 of 3, first server at tcp://127.0.0.1:" in tasks[0].output(), tasks[0].output())


def a_program_in_c_joins_by_the_variable(lab):
    """PUSHPULL_JOIN=auto in a Slurm step of two tasks on this host."""
    job, port, out = lab.job(LINE), free_port(), lab.folder / "out"
    step = {"SLURM_JOB_ID": 77, "SLURM_STEP_ID": 0, "SLURM_NTASKS": 2, "SLURM_STEP_NODELIST": "localhost",
            "PUSHPULL_PORT": port}
    set_variables(lab, SLURM_PROCID=0, **step)
    tasks = [lab.start("pushpull-server", "--join", "auto", "--job", job, "--out", out)]
    for rank in range(2):
        set_variables(lab, SLURM_PROCID=rank, PUSHPULL_JOIN="auto", **step)
        tasks.append(lab.start("../tests/linear_regression"))
    ended_well(tasks)
    expect(len(summary_of(out)["samples_per_worker"]) == 2, "not two workers")
    named = f"--join auto: Slurm, rank 1 of 2, first server at tcp://localhost:{port}"
    expect(named in tasks[2].output(), f"the log does not say what was found: {tasks[2].output()}")


def explain_prints_the_sources_and_joins_nothing(lab):
    cases = (
        ("pushpull-worker", {"RANK": 3, "WORLD_SIZE": 4, "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": 29500}, 0,
         ("torchrun", "3 of 4 (RANK, WORLD_SIZE)", "tcp://10.1.2.3:29555", "MASTER_PORT + 55")),
        ("pushpull-server", {"RANK": 0, "WORLD_SIZE": 4, "MASTER_ADDR": "10.1.2.3"}, 0,
         ("first server (pushpull-server, rank 0)", "workers       4")),
        ("pushpull-worker", {"RANK": 1, "MASTER_ADDR": "x"}, USAGE, ("WORLD_SIZE is missing",)),
        ("pushpull-server", {"TF_CONFIG": "{oops"}, USAGE, ("TF_CONFIG is no JSON",)),
        ("pushpull-worker", {"SLURM_JOB_ID": 1, "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": "n[0-[1-2]]"}, USAGE,
         ("SLURM_STEP_NODELIST", "a bracket inside a bracket")),
        ("pushpull-worker", {}, USAGE, ("--join auto finds no launcher's variables",)))
    for program, variables, code, words in cases:
        set_variables(lab, **variables)
        got, text = lab.call(program, "--join", "auto", "--explain", seconds=20)
        expect(got == code and all(word in text for word in words), f"{variables}: exit code {got}: {text}")


def a_first_server_refuses_what_contradicts_its_place(lab):
    job = lab.job(MLP)
    set_variables(lab, **torchrun(0, 1, 29555))
    for words, named in ((("--job", job, "--listen", "tcp://127.0.0.1:6000"), "contradicts port 29555"),
                         ((), "give --job FILE")):
        code, text = lab.call("pushpull-server", "--join", "auto", *words)
        expect(code == USAGE and named in text, f"{words}: exit code {code}: {text}")
    set_variables(lab, JOB_COMPLETION_INDEX=0, MASTER_ADDR="127.0.0.1")
    code, text = lab.call("pushpull-server", "--join", "auto", "--job", job)
    expect(code == USAGE and "give --workers" in text, f"exit code {code}: {text}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        set_variables(lab, **torchrun(0, 1, port))
        code, text = lab.call("pushpull-server", "--join", "auto", "--job", job)
        expect(code == USAGE and str(port) in text, f"exit code {code}: {text}")


def two_jobs_with_one_derived_port_both_finish(lab):
    """Jobs 70 and 695 of Slurm derive one port. The second server takes the next one, and tasks pass over the other's."""
    want = lab.train(lab.job(MLP), 1, 2)["weights_sha256"]
    job, script, tasks = lab.job({**MLP, "eval-every": 10}), task_script(lab, "task.sh"), []
    outs = {number: lab.folder / f"out-{number}" for number in (70, 695)}
    for rank in (1, 0):
        for number, out in outs.items():
            set_variables(lab, SLURM_JOB_ID=number, SLURM_STEP_ID=3, SLURM_PROCID=rank, SLURM_NTASKS=2, SLURM_LOCALID=rank,
                          SLURM_STEP_NODELIST="localhost")
            tasks.append(lab.start("/bin/sh", script, "--job", job, "--out", out))
    ended_well(tasks)
    for out in outs.values():
        summary = summary_of(out)
        expect(summary["weights_sha256"] == want and len(summary["samples_per_worker"]) == 2, f"{out}: {summary}")


def a_server_of_another_job_refuses_in_one_line(lab):
    cluster = lab.cluster(lab.job(LONG), started=1)  # without a token it admits all
    lab.environment["PUSHPULL_JOB_TOKEN"] = "job A"
    other = lab.cluster(lab.job(LONG), started=1)
    for program in ("worker", "server"):
        lab.environment["PUSHPULL_JOB_TOKEN"] = "job B"
        code, text = lab.call(f"pushpull-{program}", "--join", other.address)
        lines = [line for line in text.splitlines() if "another job" in line]
        expect(code == 77 and len(lines) == 1 and "job A" in lines[0] and "job B" in lines[0], f"{code}: {text}")
    for running in (cluster, other):
        running.servers[0].terminate()
        expect(running.servers[0].ends(60) == 75, running.servers[0].output()[-600:])


if __name__ == "__main__":
    base.main(globals())
