"""Shared by the tests of whole jobs: a folder, real processes, deadlines, and cleanup.

Each function with `lab` as its only parameter is a test; CMake finds tests by this. The name is the statement that it
tests. Every wait has a deadline, which `--scale` multiplies for slow builds and busy machines.
"""
import argparse
import concurrent.futures
import contextlib
import ctypes
import inspect
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
REPORTS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")
LIBC = ctypes.CDLL(None)
CORES = len(os.sched_getaffinity(0))

# 8 micro-batches a step, 22 steps an epoch.
MLP = {"model": "mlp", "hidden": "64,32", "dataset": "digits", "global-batch": 64, "micro-batch": 8,
       "optimizer": "momentum", "lr": 0.1, "steps": 40, "seed": 7}
LONG = {**MLP, "steps": 10_000_000}  # the test must end it


def first(promise):
    """Marks a test of the first tier (scripts/test.sh without options). promise: what no longer holds if the test fails."""
    def mark(test):
        test.promise = promise
        return test
    return mark


class Failed(Exception):
    """The expectation and the observation of a failed test."""


class Skipped(Exception):
    """The reason why a test cannot run on this machine."""


def free_port():
    """Returns a port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def expect(condition, text):
    if not condition:
        raise Failed(text)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Deadline:
    """The end of a wait, in seconds that a machine which is not busy would need. While more threads want to run than there
    are cores, time counts less: a wait of 10 s takes 40 s where four threads share each core. Look at it often."""

    def __init__(self, seconds):
        self.left = seconds
        self.last = time.monotonic()

    def passed(self):
        now = time.monotonic()
        with open("/proc/loadavg", encoding="ascii") as file:
            running = int(file.read().split()[3].split("/")[0]) - 1  # without this thread
        self.left -= (now - self.last) / max(1.0, running / CORES)
        self.last = now
        return self.left < 0


def flags_of(keys):
    return [word for key, value in keys.items() for word in (f"--{key}", str(value))]


def living_below(root):
    """Returns the pids of all processes below `root`, without zombies."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            if state not in "ZX":
                parents[int(folder.name)] = int(parent)
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {root}


def kill_all(run):
    """Sends SIGKILL to `pushpull run` and all its processes; if only the launcher dies, the job stops with a checkpoint."""
    os.kill(run.pid, signal.SIGSTOP)
    for pid in living_below(run.pid):
        os.kill(pid, signal.SIGKILL)
    run.kill()


class Process(subprocess.Popen):
    """A program. Its output goes to a file, from which `output` reads."""

    def __init__(self, lab, name, words, **options):
        self.lab = lab
        self.name = name
        self.log = lab.folder / f"{name}.log"
        with open(self.log, "wb") as log:
            super().__init__([str(word) for word in words], stdout=log, stderr=log, cwd=lab.folder,
                             env=lab.environment,
                             **{"stdin": subprocess.DEVNULL, "preexec_fn": die_with_parent, **options})

    def output(self, since=0):
        return self.log.read_text(errors="replace")[since:]

    def ends(self, seconds=60):
        """Waits for the end and returns the exit code. Fails at the deadline."""
        deadline = self.lab.deadline(seconds)
        while self.poll() is None:
            expect(not deadline.passed(), f"{self.name} (pid {self.pid}) has not ended within {self.lab.seconds(seconds):.0f} s; "
                                          f"its output: {self.output()[-600:]}")
            time.sleep(0.01)
        return self.returncode

    @contextlib.contextmanager
    def stopped(self):
        """Stops the process until the block ends."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def prints(self, word, seconds=60, since=0):
        """Waits until the output contains the word."""
        self.lab.until(lambda: word in self.output(since), seconds,
                       lambda: f"{self.name} has not printed '{word}', but: {self.output(since)[-600:]}")


class Run:
    """A finished `pushpull run`."""

    def __init__(self, code, text, out):
        self.code, self.text, self.out = code, text, out

    def summary(self):
        return summary_of(self.out)


def summary_of(out):
    path = out / "summary.json"
    expect(path.exists(), f"no summary.json in {sorted(p.name for p in out.glob('*'))}")
    return json.loads(path.read_text())


def metrics_of(out):
    """Returns the complete lines; the last one may be unfinished."""
    path = out / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def step_of(out):
    """Returns the newest step in metrics.jsonl, or -1."""
    return max([line["step"] for line in metrics_of(out)], default=-1)


class Cluster:
    """A job with programs that were started one by one."""

    def __init__(self, lab, job, servers, started, workers, keys, worker_words, worker_program, key_words):
        self.lab = lab
        self.key_words = key_words
        self.out = lab.folder / lab.name("out")
        reader, writer = os.pipe()
        words = ["--job", job, "--listen", "tcp://127.0.0.1:*", "--servers", servers, "--workers",
                 workers, "--out", self.out, "--announce-fd", writer, *key_words, *flags_of(keys)]
        self.servers = [lab.start("pushpull-server", *words, pass_fds=[writer])]
        os.close(writer)
        with os.fdopen(reader) as announced:
            ready, _, _ = select.select([announced], [], [], lab.seconds(300))
            self.address = announced.readline().strip() if ready else ""
        expect(self.address, f"no address was announced: {self.servers[0].output()}")
        for _ in range(servers - 1):  # ranks in the order of this list
            self.servers.append(lab.start("pushpull-server", "--join", self.address, *key_words))
            self.servers[-1].prints("joined, listening on ")
        self.workers = []
        for rank in range(started):  # the same
            self.add_worker(*worker_words, program=worker_program)
            self.servers[0].prints(f"joined, {rank + 1} of {workers}")

    def add_worker(self, *words, program="pushpull-worker"):
        self.workers.append(self.lab.start(program, "--join", self.address, *self.key_words, *words))
        return self.workers[-1]

    def all(self):
        return self.servers + self.workers

    def step(self):
        return step_of(self.out)

    def reaches(self, step, seconds=60):
        def reached():
            ended = [p for p in self.all() if p.poll() is not None]
            if self.step() >= step:
                return True
            expect(not ended, "".join(f"{p.name} ended with {p.returncode} before step {step}: "
                                      f"{p.output()[-600:]}\n" for p in ended))
            return False
        self.lab.until(reached, seconds, lambda: f"no step {step}, only {self.step()}: "
                                                 f"{self.servers[0].output()[-600:]}")

    def ends_well(self, seconds=120, but=()):
        for process in self.all():
            code = process.ends(seconds)
            expect(code == 0 or process in but,
                   f"{process.name} ended with {code}: {process.output()[-600:]}")
        return summary_of(self.out)


class Lab:
    """The folder and the processes of one test."""

    def __init__(self, bin_dir, scale):
        self.bin_dir = bin_dir
        self.scale = scale
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-e2e-"))
        self.processes = []
        self.names = {}
        self.naming = threading.Lock()
        # the caller's PUSHPULL_ variables would become part of the job
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith("PUSHPULL_")}
        # programs make the user's key there: a test does not use the home folder
        self.environment["XDG_CONFIG_HOME"] = str(self.folder / "config")

    def on_fake_devices(self, count=2, seed=1, lost_after=-1):
        """Gives programs started from now on `cuda` devices that need no hardware (tests/fake_device)."""
        self.bin_dir = (self.bin_dir / "../tests/fake_device/bin").resolve()
        self.fake_devices(count, seed, lost_after)

    def on_host_cuda(self):
        """Makes programs started from now on run their CUDA code on the processor (tests/cuda_on_host)."""
        folder = (self.bin_dir / "../tests/cuda_on_host").resolve()
        self.bin_dir = folder / "bin"
        self.environment["PUSHPULL_CUDA_LIBS"] = str(folder / "libs")

    def fake_devices(self, count=2, seed=1, lost_after=-1):
        """Sets the devices of programs started from now on. lost_after: pieces of work, or -1 for never."""
        self.environment.update(FAKE_DEVICES=str(count), FAKE_SEED=str(seed),
                                FAKE_LOST_AFTER=str(lost_after))

    def seconds(self, seconds):
        return seconds * self.scale

    def deadline(self, seconds):
        return Deadline(self.seconds(seconds))

    def steps(self, steps):
        """Returns the number of steps that a slow build does in about the same time."""
        return max(200, int(steps / self.scale))

    def at(self, step, steps):
        """Returns the corresponding step in a slow build, for a job of so many steps."""
        return step * self.steps(steps) // steps

    def in_parts(self, keys, steps):
        """Returns keys of a job that reports its progress after each twelfth of its steps, also on a machine that does all
        steps within one interval of reports. A test that waits for the first report is then early in the job."""
        steps = self.steps(steps)
        return {**keys, "steps": steps, "eval-every": steps // 12}

    def name(self, stem):
        with self.naming:
            self.names[stem] = self.names.get(stem, -1) + 1
            return f"{stem}-{self.names[stem]}"

    def side_by_side(self, function, *cases):
        """Calls function(*case) for all cases at once, each in a thread of its own: for jobs that mostly wait, for
        a deadline or a lost member. Raises the first failure, after all cases have ended. Processes that are left
        then are killed, as their parent is the thread that started them (PR_SET_PDEATHSIG)."""
        def one(case):
            try:
                function(*case)
            except Failed as failure:
                raise Failed(f"{case}: {failure}") from None
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            for done in [pool.submit(one, case) for case in cases]:
                done.result()

    def until(self, condition, seconds, text):
        deadline = self.deadline(seconds)
        while not condition():
            expect(not deadline.passed(), f"after {self.seconds(seconds):.0f} s: {text()}")
            time.sleep(0.02)

    def job(self, keys):
        path = self.folder / f"{self.name('job')}.ini"
        # a busy machine must not count as silent; tests of silence set their own
        keys = {"heartbeat-timeout": self.seconds(30), **keys}
        path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        return path

    def start(self, program, *words, **options):
        process = Process(self, self.name(pathlib.Path(program).name), [self.bin_dir / program, *words], **options)
        self.processes.append(process)
        return process

    def call(self, program, *words, seconds=60, **options):
        """Runs a program to its end. Returns its exit code and its output."""
        process = self.start(program, *words, **options)
        return process.ends(seconds), process.output()

    def launch(self, job, servers=1, workers=1, out=None, **keys):
        """Starts `pushpull run`. Keys are written with _ for -."""
        out = out or self.folder / self.name("out")
        keys = {key.replace("_", "-"): value for key, value in keys.items()}
        process = self.start("pushpull", "run", "--job", job, "--servers", servers, "--workers",
                             workers, "--out", out, *flags_of(keys))
        process.out = out
        return process

    def trains(self, run, step=1):
        """Waits until a launched run has reported the step."""
        def reached():
            expect(run.poll() is None, f"ended with {run.returncode} before step {step}: {run.output()[-1200:]}")
            return step_of(run.out) >= step
        self.until(reached, 60, lambda: f"no step {step}: {run.output()[-800:]}")

    def run(self, job, servers=1, workers=1, seconds=120, **keys):
        """Runs `pushpull run` to its end."""
        process = self.launch(job, servers, workers, **keys)
        return Run(process.ends(seconds), process.output(), process.out)

    def run_with_answers(self, *words, **keys):
        """Repeats a run until all servers answer in time. On a busy machine, training may begin over the socket of a late
        server, and its memory is shared a little later."""
        for _ in range(8):
            run = self.run(*words, **keys)
            expect(run.code == 0, f"exit code {run.code}: {run.text[-800:]}")
            if "(no answer yet)" not in run.text:
                return run
        raise Failed(f"a server is silent every time: {run.text[:3000]}")

    def train(self, job, servers=1, workers=1, **keys):
        """Runs `pushpull run`, which must succeed. Returns the summary."""
        run = self.run(job, servers, workers, **keys)
        expect(run.code == 0, f"exit code {run.code}: {run.text[-800:]}")
        return run.summary()

    def cluster(self, job, servers=1, started=2, worker_words=(), workers=None,
                worker_program="pushpull-worker", key_words=(), **keys):
        """started: number of workers to start; workers: number that the job waits for.
        key_words: for all programs; with ("--insecure",) messages of strangers reach the protocol."""
        keys = {key.replace("_", "-"): value for key, value in keys.items()}
        return Cluster(self, job, servers, started, started if workers is None else workers, keys,
                       worker_words, worker_program, key_words)

    def left_behind(self):
        """Returns the command lines of our programs that still run, including orphans."""
        found = []
        for pid in living_below(os.getpid()):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe").startswith(str(self.bin_dir)):
                    line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                    found.append(f"{pid}: {line.decode(errors='replace')[:200]}")
        return found

    def nothing_is_left(self, seconds=30):
        """Waits until none of our programs runs."""
        self.until(lambda: not self.left_behind(), seconds, lambda: f"left behind: {self.left_behind()}")

    def close(self):
        """Ends all processes, and looks for reports of sanitizers."""
        for pid in living_below(os.getpid()):
            for number in (signal.SIGCONT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        for process in self.processes:
            process.wait(30)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        reports = [log.read_text(errors="replace")[:4000] for log in self.folder.glob("*.log")
                   if any(word in log.read_text(errors="replace") for word in REPORTS)]
        shutil.rmtree(self.folder, ignore_errors=True)
        expect(not reports, "a sanitizer spoke:\n" + "\n".join(reports))


def tests_in(module):
    return {name: function for name, function in module.items() if inspect.isfunction(function)
            and function.__module__ == module["__name__"] and not name.startswith("_")
            and list(inspect.signature(function).parameters) == ["lab"]}


def arguments_of(doc, tests):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all deadlines")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="all where none is named")
    arguments = parser.parse_args()
    for name in arguments.tests:
        if name not in tests:
            parser.error(f"no test {name}; there are {', '.join(tests)}")
    return arguments


def main(module):
    """module: globals() of the file with the tests."""
    tests = tests_in(module)
    arguments = arguments_of(module["__doc__"], tests)
    scale = arguments.scale * float(os.environ.get("PUSHPULL_TEST_SCALE", "1"))
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # a shell's background jobs ignore Ctrl-C, and the programs started here would inherit this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    codes = set()
    for name in arguments.tests or tests:
        begin = time.monotonic()
        code, text = run_one(tests[name], arguments.bin.resolve(), scale)
        codes.add(code)
        print(f"{name}: {text} ({time.monotonic() - begin:.1f} s)", flush=True)
    sys.exit(1 if 1 in codes else max(codes))


def run_one(test, bin_dir, scale):
    lab = Lab(bin_dir, scale)
    try:
        try:
            test(lab)
        finally:
            lab.close()
    except Failed as failure:
        return 1, f"FAILED: {failure}"
    except Skipped as reason:
        return SKIPPED, f"skipped: {reason}"
    return 0, "passed"
