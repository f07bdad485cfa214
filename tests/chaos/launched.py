"""A job of chaos that `pushpull run` starts. Faults are aimed at its children, and the launcher replaces them."""
import contextlib
import os
import pathlib
import re
import signal

from job import END_S, SERVERS, Job, base, expect, workers_of

FATE = r"^\[run\] (?:worker|server) \d+ \(pid (\d+)\) (ended|was killed|did not end|is given up)"


def words_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def role_of(pid):
    """Returns the role of a child, or "" if the process is none or has ended."""
    words = words_of(pid)
    if words and words[0].endswith("pushpull-worker"):
        return "worker"
    if words and words[0].endswith("pushpull-server"):
        return "coordinator" if "--job" in words else "server"
    return ""


class Child:
    """A process that `pushpull run` has started. Has the methods of lab.Process that faults use."""

    def __init__(self, lab, launcher, pid):
        self.lab, self.launcher, self.pid = lab, launcher, pid
        self.name = f"{role_of(pid)} (pid {pid})"

    def lives(self):
        return self.pid in base.living_below(os.getpid())

    def poll(self):
        """Returns None as long as the process lives, and then its exit code as the launcher has printed it. It prints
        no good end, and only the first one of a job that fails: then the code is the launcher's, once that has ended."""
        if self.lives():
            return None
        found = re.search(rf"\(pid {self.pid}\) (?:ended with exit code|was killed by signal) (\d+)", self.output())
        if found:
            return -int(found[1]) if "was killed" in found[0] else int(found[1])
        if re.search(rf"\(pid {self.pid}\) (is given up|did not end).*; killed", self.output()):
            return -signal.SIGKILL
        return self.launcher.poll()

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self):
        self.ends(END_S)

    def ends(self, seconds):
        self.lab.until(lambda: self.poll() is not None, seconds,
                       lambda: f"{self.name} has not ended: {self.output()[-700:]}")
        return self.poll()

    def output(self, since=0):
        return self.launcher.output(since)


class LaunchedJob(Job):
    """The processes of one `pushpull run`."""
    launched = True

    def __init__(self, lab, keys):
        super().__init__(lab, keys)
        self.first = set()

    def start_all(self):
        self.coordinator = self.lab.launch(self.file, SERVERS, workers_of(self.keys["strategy"]), out=self.out)
        self.coordinator.prints("listening on ")

    def address(self, linked):
        del linked
        return re.search(r"listening on (tcp://\S+)", self.coordinator.output())[1]

    def members(self):
        """The children come and go; the launcher's code stands for theirs."""
        return [self.coordinator]

    def children(self, role=""):
        found = [pid for pid in sorted(base.living_below(self.coordinator.pid)) if role_of(pid)]
        gone = {process.pid for process in self.gone}
        return [Child(self.lab, self.coordinator, pid) for pid in found
                if pid not in gone and role in ("", role_of(pid))]

    def of(self, role, rng):
        if role == "launcher":
            return self.coordinator
        self.lab.until(lambda: self.children(role) or self.coordinator.poll() is not None, END_S,
                       lambda: f"there is no {role}: {self.coordinator.output()[-700:]}")
        children = self.children(role)
        if not children:
            raise base.Skipped("the job was over before the fault")
        return rng.choice(children)

    def again(self, process):
        """The launcher replaces it."""
        self.gone.append(process)

    def without(self, process):
        self.gone.append(process)

    def second_start(self, rng):
        del rng
        return self.lab.call("pushpull", "run", "--job", self.file, "--servers", SERVERS, "--workers",
                             workers_of(self.keys["strategy"]), "--out", self.out)

    def fates(self):
        """Returns {pid: line} of the children whose end the launcher has reported."""
        lines = self.coordinator.output().splitlines()
        return {int(found[1]): line for line in lines if (found := re.match(FATE, line))}

    def joined_again(self, process):
        """Returns true for a process that was lost, and then joined the next term before the launcher killed it."""
        lines = re.findall(rf"^server 0: (.*)\(.*\bpid {process.pid}\)(?: at step| joined)", self.coordinator.output(), re.M)
        return len(lines) > 2 and "lost" in lines[1]

    def joined(self, pid):
        """Returns false for a replacement that the coordinator has not met: the job was done before."""
        return re.search(rf"^server 0: .*\bpid {pid}\)", self.coordinator.output(), re.M)

    def ends_well(self):
        summary = super().ends_well()
        gone = {process.pid for process in self.gone}
        others = [line for pid, line in self.fates().items() if pid not in gone and self.joined(pid)]
        expect(not others, f"a process ended that no fault has ended: {others}: {self.coordinator.output()[-1500:]}")
        return summary

    def ends_named(self, codes, more=()):
        """more: codes of the process that a fault has ended, which the launcher ends with."""
        code = self.coordinator.ends(END_S)
        expect(code in (*codes, *more), f"{self.coordinator.name} ended with {code}, want {(*codes, *more)}: "
                                        f"{self.coordinator.output()[-1500:]}")
        last = [line for line in self.coordinator.output().splitlines() if re.match(FATE, line)]
        expect(last, f"the launcher names no process: {self.coordinator.output()[-700:]}")

    def members_end_named(self, codes, word):
        """All children but server 0 end, although it may not yet; their lines name the file or disk."""
        children = [child for child in self.children() if role_of(child.pid) != "coordinator"]
        self.lab.until(lambda: not any(child.lives() for child in children), END_S,
                       lambda: f"not all of {[child.name for child in children]} have ended: "
                               f"{self.coordinator.output()[-700:]}")
        self.coordinator.prints(word, END_S)
        del codes

    def ends_without_launcher(self):
        """Kills the launcher. Returns the exit codes of its children, which are this process's children from then on."""
        children = {child.name: child.pid for child in self.children()}
        self.coordinator.kill()
        self.coordinator.wait()
        codes = {}

        def all_ended():
            for name, pid in children.items():
                if name not in codes and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    codes[name] = os.waitstatus_to_exitcode(ended[1])
            return len(codes) == len(children)
        self.lab.until(all_ended, END_S, lambda: f"only {codes} have ended: {self.coordinator.output()[-700:]}")
        return codes
