"""Tests `pushpull run --over mpi` with Open MPI: on this host, where it refuses, and over three hosts without a shared folder,
which are namespaces. Skipped without mpirun; the last one without root and ip."""
import json
import os
import re
import shutil
import signal

import lab as base
from lab import MLP, Skipped, expect, metrics_of, summary_of

STOPPED = 75
JOB = {**MLP, "on-worker-loss": "wait"}
HOSTS = 3


def with_mpirun(lab, root=True, slots=True):
    if not shutil.which("mpirun"):
        raise Skipped("mpirun is not installed")
    if "Open MPI" not in lab.call(shutil.which("mpirun"), "--version")[1]:
        raise Skipped("mpirun is not Open MPI's")
    for name in [name for name in lab.environment if name.startswith("OMPI_")]:
        del lab.environment[name]
    if root:
        lab.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if slots:
        lab.environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1"


def run_words(lab, job, out, *more):
    return [lab.bin_dir / "pushpull", "run", "--over", "mpi", "--job", lab.job(job), "--out", out, *more]


def tasks_of_mpirun_end_in_the_bits_of_a_local_run(lab):
    with_mpirun(lab)
    want = lab.train(lab.job(JOB), 1, 2)["weights_sha256"]
    out = lab.folder / "out"
    code, text = lab.call(*run_words(lab, JOB, out, "--workers", 3, "--servers", 2), seconds=120)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    summary = summary_of(out)
    expect(summary["weights_sha256"] == want and summary["servers"] == 2 and summary["workers"] == 3, f"{summary}")
    lab.nothing_is_left()


def a_comparison_runs_each_cell_by_mpirun(lab):
    with_mpirun(lab)
    want = lab.train(lab.job(JOB), 1, 2)["weights_sha256"]
    out = lab.folder / "compared"
    code, text = lab.call("pushpull", "compare", "--over", "mpi", "--job", lab.job(JOB), "--strategies", "sync,allreduce:tree", "--workers",
                          "1,3", "--seeds", 1, "--out", out, seconds=240)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    found = json.loads((out / "compare.json").read_text())
    expect([run["failure"] for run in found["runs"]] == [None] * 4, f"{found['runs']}")
    expect({run["weights_sha256"] for run in found["runs"]} == {want}, "other bits than the local run")
    expect(found["over"] == "mpi" and found["machine"].startswith("1 node ("), found["machine"])
    lab.nothing_is_left()


def a_signal_stops_it_with_a_checkpoint(lab):
    with_mpirun(lab)
    out = lab.folder / "out"
    job = {**JOB, "steps": 10_000_000, "resume": "auto"}
    for number in (signal.SIGTERM, signal.SIGINT):
        (out / "metrics.jsonl").unlink(missing_ok=True)
        process = lab.start(*run_words(lab, job, out, "--workers", 2))
        lab.until(lambda: metrics_of(out) or process.poll() is not None, 60, process.output)
        process.send_signal(number)
        expect(process.ends(60) == STOPPED, f"exit code {process.returncode}: {process.output()[-1500:]}")
        expect("non-zero" not in process.output(), f"mpirun takes the stop for a failure: {process.output()[-1500:]}")
        lab.nothing_is_left()


def what_mpirun_refuses_is_one_line(lab):
    with_mpirun(lab, root=False)
    if os.getuid() == 0:
        code, text = lab.call(*run_words(lab, JOB, lab.folder / "root", "--workers", 2))
        expect(code == 1 and re.search(r"^\[run\] mpirun \(pid \d+\) ended with .*refuses to run as root: .*OMPI_ALLOW", text, re.M), text)
        expect("catastrophic" not in text, f"the launcher's page is in the way: {text}")
    with_mpirun(lab, slots=False)
    code, text = lab.call(*run_words(lab, JOB, lab.folder / "slots", "--workers", 999))
    expect(code == 1 and re.search(r"^\[run\] mpirun \(pid \d+\) ended with .*fewer slots than --workers", text, re.M), text)
    code, text = lab.call(*run_words(lab, JOB, lab.folder / "count"))
    expect(code == 2 and "give --workers" in text, f"{code}: {text}")
    lab.environment["PATH"] = str(lab.folder)
    code, text = lab.call(*run_words(lab, JOB, lab.folder / "absent", "--workers", 2))
    expect(code == 2 and "there is no mpirun in PATH" in text, f"{code}: {text}")
    code, text = lab.call(lab.bin_dir / "pushpull", "run", "--over", "slurm", "--job", lab.job(JOB))
    expect(code == 2 and "there is no srun in PATH" in text, f"{code}: {text}")
    lab.nothing_is_left()


class Hosts:
    """Namespaces with a network, a name and a /tmp of their own, joined by a bridge: 10.77.0.1 to 10.77.0.3."""

    def __init__(self, lab):
        self.lab = lab
        self.names = [f"pp-mpi-{os.getpid()}-{i}" for i in range(HOSTS)]

    def ip(self, *words):
        code, text = self.lab.call(shutil.which("ip"), *words)
        if "make-rslave" in text:
            raise Skipped(f"ip netns cannot change mounts here: {text.strip()}")
        expect(code == 0, f"ip {' '.join(map(str, words))}: {text}")

    def __enter__(self):
        for name in self.names:
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        first = self.names[0]
        self.ip("-n", first, "link", "add", "bridge0", "type", "bridge")
        self.ip("-n", first, "link", "set", "bridge0", "up")
        self.ip("-n", first, "address", "add", "10.77.0.1/24", "dev", "bridge0")
        for i, name in enumerate(self.names[1:], 2):
            self.ip("-n", first, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("-n", first, "link", "set", f"port{i}", "master", "bridge0", "up")
            self.ip("-n", name, "address", "add", f"10.77.0.{i}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
        clone = self.lab.bin_dir.resolve().parents[2]
        hide = "mount -t tmpfs none /tmp"
        if clone.is_relative_to("/tmp"):  # the programs stay
            hide = (f"mount -t tmpfs none /mnt; mkdir /mnt/clone; mount --bind {clone} /mnt/clone; {hide}; mkdir -p {clone}; "
                    f"mount --move /mnt/clone {clone}")
        # in the place of ssh: AGENT HOST COMMAND
        self.agent = self.lab.folder / "agent"
        self.agent.write_text(f"""#!/bin/sh
number=${{1##*.}}; shift
exec ip netns exec pp-mpi-{os.getpid()}-$((number - 1)) unshare -m -u \\
  sh -c "hostname host$number; {hide}; mkdir -p {self.lab.folder}; cp /bin/true {self.agent}; \
         export HOME=/tmp; unset XDG_CONFIG_HOME PUSHPULL_KEY; $*"
""")
        self.agent.chmod(0o755)
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.lab.call(shutil.which("ip"), "netns", "delete", name)


def three_hosts_need_no_shared_folder(lab):
    with_mpirun(lab)
    if os.getuid() != 0 or not shutil.which("ip"):
        raise Skipped("needs root and ip for hosts of its own")
    want = lab.train(lab.job(JOB), 1, 2)["weights_sha256"]
    with Hosts(lab) as hosts:
        out = lab.folder / "out"
        where = f"--host 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1 --mca plm_rsh_agent {hosts.agent} --mca oob_tcp_if_include 10.77.0.0/24"
        code, text = lab.call(shutil.which("ip"), "netns", "exec", hosts.names[0],
                              *run_words(lab, JOB, out, "--workers", 3, "--servers", 3, f"--over-args={where}"), seconds=120)
        expect(code == 0, f"exit code {code}: {text[-2000:]}")
        expect("listening on tcp://10.77.0.1:" in text, text[:400])
        for task, host in ((1, "host2"), (2, "host3")):
            # servers are numbered as they come
            expect(re.search(f"task {task} on {host} \\| server [12]: joined", text), f"task {task} is not on {host}: {text[:2500]}")
        expect(summary_of(out)["weights_sha256"] == want, "other bits")
    lab.nothing_is_left()


if __name__ == "__main__":
    base.main(globals())
