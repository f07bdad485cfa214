"""A throw-away Slurm of two nodes on this host, for one test: munged, slurmctld and two slurmd with Debian's packages,
in one folder, on loopback, without systemd. Needs root. Ends only the processes that it has started."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from lab import Skipped, die_with_parent, expect

PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "squeue", "scontrol", "scancel")
NODES = 2

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10,socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
KillWait=10
MinJobAge=60
SlurmdParameters=config_overrides
PartitionName=low Nodes=ALL Default=YES MaxTime=10 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=8
PartitionName=high Nodes=ALL Default=NO MaxTime=10 State=UP PriorityTier=10 PreemptMode=OFF
"""


def free_ports(count):
    """Returns that many neighbouring ports that are free now."""
    for first in range(28000 + os.getpid() % 1000, 32000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise Skipped("no free ports for Slurm")


class Slurm:
    def __init__(self, lab, cpus=4):
        missing = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if missing or os.getuid() != 0:
            raise Skipped("needs root and Debian's munge, slurmctld, slurmd and slurm-client"
                          + (f"; missing: {', '.join(missing)}" if missing else ""))
        if not os.path.ismount("/sys/fs/cgroup"):
            raise Skipped("slurmd needs control groups, which are not mounted at /sys/fs/cgroup here")
        self.lab = lab
        self.cpus = cpus
        self.daemons = []
        # Unix sockets have short paths.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pp-slurm-", dir="/tmp"))

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self, *words):
        log = open(self.folder / f"{words[0]}-{len(self.daemons)}.out", "wb")
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                             env=self.lab.environment, preexec_fn=die_with_parent))

    def begin(self):
        os.chmod(self.folder, 0o755)
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        (self.folder / "state").mkdir()
        (munge / "key").write_bytes(os.urandom(128))
        os.chmod(munge / "key", 0o400)
        self.lab.environment["PATH"] = os.environ["PATH"] + ":/usr/sbin:/sbin"
        self.start("munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.until(lambda: self.ask("munge", f"--socket={munge}/socket", "-n")[0] == 0, "munged does not answer")
        host, port = socket.gethostname().split(".")[0], free_ports(NODES + 1)
        text = CONF.format(host=host, port=port, folder=self.folder)
        for i in range(NODES):
            (self.folder / f"spool.n{i}").mkdir()
            text += f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + 1 + i} CPUs={self.cpus} State=UNKNOWN\n"
        (self.folder / "slurm.conf").write_text(text)
        self.lab.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        self.start("slurmctld", "-D", "-c")
        for i in range(NODES):
            self.start("slurmd", "-D", "-N", f"n{i}")
        self.until(lambda: self.ask("sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D")[1].strip() == str(NODES),
                   "the nodes do not come up")

    def until(self, condition, text):
        self.lab.until(condition, 40, lambda: f"{text}: " + "".join(
            path.read_text(errors="replace")[-600:] for path in self.folder.glob("*.log")))

    def ask(self, *words, seconds=30):
        """Runs one of Slurm's commands. Returns its exit code and its output."""
        process = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 timeout=self.lab.seconds(seconds), env=self.lab.environment, stdin=subprocess.DEVNULL)
        return process.returncode, process.stdout

    def states(self):
        """Returns the state of each job that Slurm remembers, by number."""
        code, text = self.ask("squeue", "-h", "-t", "all", "-o", "%A %T")
        expect(code == 0, text)
        return dict(line.split() for line in text.splitlines())

    def salloc(self, *words, nodes=2, per_node=1, **options):
        """Starts a command in an allocation."""
        return self.lab.start("/usr/bin/salloc", "-Q", "-N", nodes, f"--ntasks-per-node={per_node}", *words, **options)

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.ask("scancel", "-u", "root")
            end = time.monotonic() + self.lab.seconds(20)
            while self.ask("squeue", "-h")[1].strip() and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
