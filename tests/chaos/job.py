"""One job of chaos: its processes on this host, their replacements, and the expected result."""
import pathlib
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import lab as base  # noqa: E402
from lab import MLP, Failed, expect, flags_of, metrics_of, summary_of  # noqa: E402
from proxy_test import Proxy  # noqa: E402

STEPS = 1200  # of strategies with slow steps; see keys_of
HEARTBEAT_S = 3
END_S = 90  # until all processes have ended, after the last fault
SERVERS = 2
UNREACHABLE = 4
SILENCE_S = 15  # a wait is reported after 10 s
NAMED = re.compile(r"wait(s|ed|ing) |has computed nothing|has been silent|no messages from")  # lines that report a wait
STRATEGIES = ("sync", "async", "ssp:2", "buffered:3", "backup:1", "local:2", "allreduce:tree")
ORDERED = ("sync", "local:2", "allreduce:tree")  # the weights are determined by the job
RECORDED = ("async", "ssp:2", "buffered:3", "backup:1")  # `pushpull replay` recomputes them


def workers_of(strategy):
    return 3 if strategy.startswith("backup") else 2


def keys_of(lab, strategy, times=1, **more):
    """Returns the job of a strategy, with as many times the usual steps. `local` uses an optimizer without state at
    workers, which a loss would reset."""
    steps = STEPS * times * (3 if strategy.startswith("allreduce") else 2 if strategy in ORDERED else 1)
    keys = {**MLP, "hidden": "24", "steps": steps, "eval-every": steps // 12, "checkpoint-every": steps // 10,
            "checkpoint-keep": 20, "strategy": strategy, "heartbeat-timeout": lab.seconds(HEARTBEAT_S), "lr": 0.02}
    if strategy.startswith("local"):
        keys["optimizer"] = "sgd"
    if strategy in RECORDED:
        keys["record"] = "run.rec"
    return {**keys, **more}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """The programs of one job, started by hand. link: role of the processes that reach the coordinator through a
    proxy: "worker", "server" or "coordinator" (all); or "data": all reach the joined server's data through one."""
    launched = False  # by `pushpull run`

    def __init__(self, lab, keys, link=""):
        self.lab = lab
        self.keys = keys
        self.out = lab.folder / "out"
        self.file = lab.job(keys)
        self.link = link
        self.proxy = None
        self.gone = []  # processes that a fault has ended, or may have
        self.port, self.data_port = free_port(), free_port()
        self.silence = Silence(self)
        self.start_all()
        self.first = {process.name for process in self.members()}  # others may join after the job is done
        self.silence.start()

    def start_all(self):
        self.coordinator = self.start_coordinator()
        self.coordinator.prints("listening on ")
        if self.link:
            ends = {"to": f"127.0.0.2:{self.data_port}", "listen": f"127.0.0.3:{self.data_port}"}
            self.proxy = Proxy(self.lab, **(ends if self.link == "data" else {"to": f"127.0.0.1:{self.port}"}))
        self.servers = [self.start_server() for _ in range(SERVERS - 1)]
        self.workers = [self.start_worker(rank) for rank in range(workers_of(self.keys["strategy"]))]

    def coordinator_words(self):
        return ["--job", self.file, "--listen", f"tcp://127.0.0.1:{self.port}", "--servers", SERVERS, "--workers",
                workers_of(self.keys["strategy"]), "--out", self.out]

    def start_coordinator(self):
        return self.lab.start("pushpull-server", *self.coordinator_words())

    def address(self, linked):
        return f"tcp://127.0.0.1:{self.proxy.port if linked and self.proxy else self.port}"

    def start_server(self):
        words = ["--join", self.address(self.link in ("server", "coordinator"))]
        if self.link == "data":
            words += ["--listen", f"tcp://127.0.0.2:{self.data_port}", "--advertise", "127.0.0.3"]
        return self.lab.start("pushpull-server", *words)

    def start_worker(self, rank=0):
        linked = self.link == "coordinator" or self.link == "worker" and rank == 0
        return self.lab.start("pushpull-worker", "--join", self.address(linked))

    def members(self):
        members = [self.coordinator, *self.servers, *self.workers]
        return [process for process in members if process not in self.gone]

    def of(self, role, rng):
        if role == "coordinator":
            return self.coordinator
        return rng.choice(self.servers if role == "server" else self.workers)

    def again(self, process):
        """Repeats the command of this process, to replace it."""
        self.gone.append(process)
        if process is self.coordinator:
            self.coordinator = self.start_coordinator()
        elif process in self.servers:
            self.servers[self.servers.index(process)] = self.start_server()
        else:
            self.workers[self.workers.index(process)] = self.start_worker(1)

    def without(self, process):
        """The job continues, or ends, without this process."""
        self.gone.append(process)
        for processes in (self.servers, self.workers):
            if process in processes:
                processes.remove(process)

    def step(self):
        return max([line["step"] for line in metrics_of(self.out)], default=-1)

    def reaches(self, step):
        """Waits for a line of metrics at this step or later. Fails if a process ends before. Returns false if the job
        is over."""
        def there():
            if self.over():
                return True
            for process in self.members():
                expect(process.poll() is None, f"{process.name} ended with {process.returncode} before step {step}: "
                                               f"{process.output()[-500:]}")
            return self.step() >= step
        self.lab.until(there, END_S, lambda: f"no step {step}, only {self.step()}: {self.coordinator.output()[-500:]}")
        return not self.over()

    def over(self):
        """Returns whether a process has ended well; then the others do so now."""
        return any(process.poll() == 0 for process in self.members())

    def end_codes(self, processes=None):
        """Waits until all processes have ended. Returns {name: exit code}."""
        return {process.name: process.ends(END_S) for process in processes or self.members()}

    def ends_well(self):
        for process in self.members():
            code = process.ends(END_S)
            late = code == UNREACHABLE and process.name not in self.first and self.over()
            expect(code == 0 or late, f"{process.name} ended with {code}: {process.output()[-700:]}")
        for process in self.gone:
            process.ends(END_S)
        return summary_of(self.out)

    def ends_named(self, codes, more=()):
        """All processes must end, with one of these codes and a reason. more: for jobs of `pushpull run`."""
        del more
        for process in self.members():
            code = process.ends(END_S)
            expect(code in codes, f"{process.name} ended with {code}, want {codes}: {process.output()[-700:]}")
            output = process.output()
            expect("error: [" in output or "ended by" in output, f"{process.name} gives no reason: {output[-500:]}")
        for process in self.gone:
            process.ends(END_S)

    def members_end_named(self, codes, word):
        """All members but server 0, and a server that has no place yet, end with one of these codes and a line with
        this word."""
        for process in self.servers + self.workers:
            code = process.ends(END_S)
            expect(code in codes and word in process.output(),
                   f"{process.name} ended with {code}, want {codes} and '{word}': {process.output()[-700:]}")

    def second_start(self, rng):
        """Repeats the command of the coordinator. Returns its exit code and its output."""
        words = self.coordinator_words()
        if rng.random() < 0.5:
            words[words.index("--listen") + 1] = "tcp://127.0.0.1:*"
        return self.lab.call("pushpull-server", *words)

    def close_link(self):
        if self.proxy and self.proxy.process.poll() is None:
            self.proxy.counters()


class Silence(threading.Thread):
    """Watches that a job which makes no progress and prints nothing has reported what it waits for."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job = job
        self.over = threading.Event()
        self.found = ""

    def state(self):
        return self.job.step(), sum(process.log.stat().st_size for process in self.job.lab.processes)

    def run(self):
        last, since = None, time.monotonic()
        while not self.over.wait(0.5) and not self.found:
            now = self.state()
            alive = [process for process in self.job.lab.processes if process.poll() is None]
            if now != last or not alive:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > self.job.lab.seconds(SILENCE_S):
                lines = {process.name: process.output().splitlines()[-4:] for process in alive}
                if not any(NAMED.search(line) for tail in lines.values() for line in tail):
                    self.found = f"a wait without a named cause at step {now[0]}: {lines}"

    def end(self):
        """Returns the wait that was not named, or ""."""
        self.over.set()
        if self.is_alive():
            self.join()
        return self.found


class Verdicts:
    """The expected results: those of a run without a fault, trained once per strategy and number of steps."""

    def __init__(self):
        self.calm_runs = {}

    def calm(self, lab, job):
        strategy, steps = job.keys["strategy"], job.keys["steps"]
        if (strategy, steps) not in self.calm_runs:
            keys = keys_of(lab, strategy, steps // keys_of(lab, strategy)["steps"])
            keys.pop("record", None)
            run = lab.run(lab.job(keys), SERVERS, workers_of(strategy))
            expect(run.code == 0, f"the calm run failed: {run.text[-500:]}")
            self.calm_runs[strategy, steps] = (run.summary(), {path.name for path in run.out.iterdir()})
        return self.calm_runs[strategy, steps]

    def nothing_more(self, job, files):
        more = {path.name for path in job.out.iterdir()} - files
        expect(not more, f"left in the output: {sorted(more)}")

    def resumed(self, lab, job):
        """The same command with resume = auto continues a run that has ended before its last step. Returns the verdict."""
        strategy = job.keys["strategy"]
        calm, files = self.calm(lab, job)
        run = lab.launch(job.file, SERVERS, workers_of(strategy), out=job.out, resume="auto")
        code = run.ends(END_S)
        expect(code == 0, f"the resumed run ended with {code}: {run.output()[-1500:]}")
        got = summary_of(job.out)
        for key in ("steps", *(("weights_sha256",) if strategy in ORDERED else ())):
            expect(got[key] == calm[key], f"{key} of the resumed run: {got[key]}, undisturbed {calm[key]}")
        self.nothing_more(job, files)
        return "resumed, same bits" if strategy in ORDERED else "resumed"

    def judge(self, lab, job):
        """Compares the finished job with the calm one. Returns the verdict as text."""
        strategy = job.keys["strategy"]
        calm, files = self.calm(lab, job)
        got = summary_of(job.out)
        words = []
        same = ["steps", "initial_weights_sha256"]
        if strategy in ORDERED:
            same.append("weights_sha256")
            words.append("same bits")
        if not strategy.startswith("backup"):
            same += ["samples", "data_order_sha256"]
            words.append("same data")
        for key in same:
            expect(got[key] == calm[key], f"{key}: {got[key]}, undisturbed {calm[key]}")
        if strategy in RECORDED:
            code, output = replayed(lab, job)
            expect(code == 0 and re.search(r"verified\s+yes", output), f"replay ended with {code}: {output[-500:]}")
            words.append("replayed")
        self.nothing_more(job, files)
        return ", ".join(words)


def replayed(lab, job):
    """Runs `pushpull replay`, from the checkpoint that the last term began with if there was more than one term."""
    words = ["replay", lab.folder / "run.rec"]
    code, output = lab.call("pushpull", *words, "--out", lab.folder / "replayed")
    resumed = re.search(r"was resumed at step (\d+)", output)
    if resumed:
        words += ["--checkpoint", job.out / "checkpoints" / f"step-{int(resumed[1]):08}"]
        code, output = lab.call("pushpull", *words, "--out", lab.folder / "replayed")
    return code, output


def stopped(process):
    """Stops the process until it is woken."""
    process.send_signal(signal.SIGSTOP)


def woken(process):
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)


__all__ = ["Failed", "Job", "Verdicts", "base", "expect", "flags_of", "keys_of", "stopped", "woken"]
