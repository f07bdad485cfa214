"""Compares training on one device: pushpull, with every weight pushed and pulled in every step, plain PyTorch without a
server, eager and, for some cases, compiled, and DistributedDataParallel on Gloo. scripts/gpu-check.sh runs it; by hand:
  gpu_compare.py --bin build/release/bin [--device cuda:0] [--seconds 120] [--cases NAME,...]
A round measures all competitors one after the other, for about a second each. Values are medians over rounds, ratios
are medians of the ratios within a round. Prints rows as in bench/gpu_rows.h, those of a case when it is done. When the
time is over, the remaining cases and runs are reported as skipped. --device cpu: small cases, to test the program itself."""
import argparse
import json
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from model_jobs import JOBS, MOMENTUM, data_of

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = 2000       # generated once and kept
WARM_UP_S = 0.5      # unmeasured start of a pushpull run: algorithm choices, graphs
PREPARE_S = 90       # deadline
LEAST_S = 15         # a run of pushpull or a case with less time before the end is skipped: it would hardly start
MOST_ROUNDS = 7
EAGER, COMPILED, DDP = "PyTorch, eager", "PyTorch, compiled", "DDP on Gloo, 2 processes"


def case(job, batch, precision, bar="", alone=False, share=2, **keys):
    """job, keys: of the job file. alone: one worker beside the eager loop, and nothing else. share: of the time."""
    # dummy data beyond 64 MiB would be drawn anew for every batch, and the host would set the speed
    samples = {"train-samples": max(SAMPLES, batch), "test-samples": 100} if job["dataset"] != "text" else {}
    return {"job": {**job, **samples, "global-batch": batch, **keys}, "precision": precision, "bar": bar, "alone": alone, "share": share}


CONVNET = {**MOMENTUM, "model": "convnet", "input": "1x28x28"}
MLP = {**MOMENTUM, "model": "mlp", "input": "4096", "hidden": "4096,4096,4096"}
GPT = {**JOBS["gpt"][0], "layers": 6, "heads": 6, "embed": 384, "sequence": 256}
SMALL = {"layers": 2, "heads": 2, "embed": 32, "sequence": 16}
GPU_CASES = {  # the most important first
    "gpt": case(GPT, 64, "bf16", alone=True, share=1),
    "bert-base": case(JOBS["bert-base"][0], 32, "bf16", alone=True, share=1),
    "resnet18": case(JOBS["resnet18"][0], 256, "bf16", alone=True, share=1),
    "resnet50": case(JOBS["resnet50"][0], 64, "bf16", alone=True, share=1, **{"train-samples": 64, "test-samples": 2}),
    "convnet-100": case(CONVNET, 100, "tf32", ">=1"),
    "mlp-bf16": case(MLP, 512, "bf16", ">=0.9"),
    "convnet-1000": case(CONVNET, 1000, "tf32", ">=1"),
    "mlp-tf32": case(MLP, 512, "tf32", ">=0.9"),
}
CPU_CASES = {
    "convnet-20": case(CONVNET, 20, "fp32"),
    "mlp-32": case({**MLP, "input": "64", "hidden": "64,64"}, 32, "fp32"),
    "gpt-8": case({**JOBS["gpt"][0], **SMALL}, 8, "fp32", alone=True),
    "bert-8": case({**JOBS["bert"][0], **SMALL}, 8, "fp32", alone=True),
}


class Failed(Exception):
    """A measurement failed. The message is one line."""


class NotRun(Failed):
    """There was no time for a measurement."""


def say(*fields):
    print("\t".join(str(field).replace("\t", " ") if field != "" else "-" for field in fields), flush=True)


def number(value):
    return f"{value:.4g}"


class Child:
    """A process that a round measures. It ends with this one."""

    def __init__(self, words, **options):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("PUSHPULL_") or k.startswith(("PUSHPULL_CUDA_LIBS", "PUSHPULL_TEST_"))}
        self.process = subprocess.Popen([str(word) for word in words], env=environment, start_new_session=True,
                                        **options)

    def end(self, signals=((signal.SIGTERM, 5), (signal.SIGKILL, 5))):
        """signals: each with the seconds to wait for the end."""
        for how, seconds in signals:
            try:
                os.killpg(self.process.pid, how)
                self.process.wait(seconds)
                break
            except ProcessLookupError:
                self.process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        for file in (self.process.stdin, self.process.stdout):
            if file:
                file.close()


class Torch:
    """Processes of gpu_torch.py that are measured together. After a failure new ones serve the next case."""

    def __init__(self, name, device, processes=1, compiled=False):
        self.name, self.device, self.processes, self.compiled = name, device, processes, compiled
        self.children = []
        self.start()

    def start(self):
        words = [sys.executable, HERE / "gpu_torch.py", self.device]
        if self.processes == 1:
            each = [[*words, "alone"]]
        else:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            each = [[*words, "ddp", rank, self.processes, port] for rank in range(self.processes)]
        self.children = [Child(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for one in each]

    def ask(self, **question):
        for child in self.children:
            try:
                child.process.stdin.write((json.dumps(question) + "\n").encode())
                child.process.stdin.flush()
            except OSError:
                self.end()
                raise Failed("it has ended before") from None

    def answer(self, deadline):
        """Returns the answer of the first process. All must answer. The first that fails ends all of them, since the
        others wait for it; so does a missing answer, which must not be taken for that of a later question."""
        waiting = [child.process.stdout for child in self.children]
        first, value = waiting[0], None
        while waiting:
            ready, _, _ = select.select(waiting, [], [], max(0, deadline - time.monotonic()))
            if not ready:
                self.end()
                raise Failed("no answer in time")
            for file in ready:
                line = file.readline().decode(errors="replace").strip()
                if not line.startswith("ok "):
                    if not line or self.processes > 1:
                        self.end()
                    raise Failed(line or "it has ended")
                value = float(line[3:]) if file is first else value
                waiting.remove(file)
        return value

    def prepare(self, settings):
        if not self.children:
            self.start()
        self.ask(do="prepare", case={key: settings[key] for key in ("job", "precision")}, compiled=self.compiled)

    def measure(self, seconds, deadline):
        self.ask(do="run", seconds=seconds)
        return self.answer(deadline)

    def end(self):
        for child in self.children:
            child.end()
        self.children = []


class Ours:
    """`pushpull run` with one server, from its start until it has trained for long enough."""

    def __init__(self, name, arguments, workers, server_device=None):
        self.name, self.workers = name, workers
        self.pushpull, self.device, self.scratch = arguments.bin / "pushpull", arguments.device, arguments.scratch
        self.server_device = server_device

    def prepare(self, settings):
        self.job = {**settings["job"], "micro-batch": settings["job"]["global-batch"] // self.workers,
                    "precision": settings["precision"], "steps": 1_000_000_000}
        if self.server_device:
            self.job["server-device"] = self.server_device

    def measure(self, seconds, deadline):
        if deadline - time.monotonic() < LEAST_S:
            raise NotRun("out of time")
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            log = pathlib.Path(folder) / "log"
            words = [word for key, value in {**self.job, **data_of(self.job, folder)}.items() for word in (f"--{key}", value)]
            with open(log, "wb") as out:
                child = Child([self.pushpull, "run", "--servers", 1, "--workers", self.workers, "--device",
                               self.device, *words, "--out", folder],
                              stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            try:
                return self.rate(child.process, pathlib.Path(folder) / "metrics.jsonl", log, seconds, deadline)
            finally:
                # a second Ctrl-C ends a job without a checkpoint, which would take longer than the measurement
                child.end(((signal.SIGINT, 0.5), (signal.SIGINT, 5), (signal.SIGKILL, 5)))

    @staticmethod
    def rate(process, metrics, log, seconds, deadline):
        """Returns samples per second between two lines of metrics.jsonl. Raises Failed with the first error of the job's
        processes: the job then ends, which may take longer than the measurement."""
        while True:
            lines = log.read_text(errors="replace").splitlines()
            cause = next((line for line in lines if "error: " in line), None)
            if cause:
                raise Failed(cause[:300])
            text = metrics.read_text() if metrics.exists() else ""
            seen = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
            seen = [line for line in seen if line["seconds"] >= WARM_UP_S and line["samples"] > 0]
            if seen and seen[-1]["seconds"] - seen[0]["seconds"] >= seconds:
                samples = seen[-1]["samples"] - seen[0]["samples"]
                if samples > 0:
                    return samples / (seen[-1]["seconds"] - seen[0]["seconds"])
            if process.poll() is not None:
                raise Failed(f"it ended with {process.returncode}: {''.join(lines[-1:])[:300]}")
            if time.monotonic() > deadline:
                raise Failed("it did not train for long enough before the deadline")
            time.sleep(0.02)

    def end(self):
        pass


def competitors(arguments):
    """Returns the competitors in the order of a round, and [(name, why it is skipped)]."""
    device = arguments.device
    found = [Torch(EAGER, device), Ours("1 worker, server on the host", arguments, 1)]
    skipped = []
    if device == "cpu":
        skipped.append(("server on the device", "there is no GPU in this comparison"))
    else:
        for workers in (1, 2):
            found.append(Ours(f"{workers} worker{'s' * (workers > 1)}, server on {device}", arguments, workers, device))
    found += [Torch(COMPILED, device, compiled=True), Torch(DDP, device, processes=2),
              Ours("2 workers, server on the host", arguments, 2)]
    return found, skipped


def takes_part(one, settings):
    """Returns whether a competitor is measured in a case."""
    return not settings["alone"] or one.name == EAGER or (isinstance(one, Ours) and one.workers == 1)


class Comparison:
    """One case. values[name] is a list with a value per round, or None if it failed."""

    def __init__(self, name, settings, all_of_them):
        self.name, self.settings, self.them = name, settings, all_of_them
        self.values = {one.name: [] for one in all_of_them}
        self.out = {}  # name -> the Failed for which it does not take part

    def prepare(self, deadline, half):
        """half: when half of the case's time is over. The eager loop may take until `deadline`."""
        for one in self.them:
            self.attempt(one, lambda one=one: one.prepare(self.settings))
        for one in self.them:  # all at once, since a compilation takes long
            if isinstance(one, Torch) and one.name not in self.out:
                self.attempt(one, lambda one=one: one.answer(deadline if one.name == EAGER else min(deadline, half)))

    def attempt(self, one, action):
        try:
            return action()
        except (Failed, ValueError, OSError) as error:
            self.out[one.name] = error
            return None

    def round(self, seconds, deadline):
        for one in self.them:
            value = None
            if one.name not in self.out:
                value = self.attempt(one, lambda one=one: one.measure(seconds, deadline))
            self.values[one.name].append(value)

    def median(self, name):
        values = [v for v in self.values.get(name, []) if v]
        return statistics.median(values) if values else None

    def ratio(self, over, under):
        pairs = zip(self.values.get(over, []), self.values.get(under, []))
        values = [a / b for a, b in pairs if a and b]
        return statistics.median(values) if values else None

    def row(self, name, over=None, what=None, bar=""):
        value, ratio = self.median(name), self.ratio(name, over) if over else None
        if value is None or (over and ratio is None):
            return
        say("row", f"{self.name}: {what or name}", number(value), "samples/s",
            number(self.median(over)) if over else "", number(ratio) if over else "", bar)

    def rows(self):
        for one in self.them:
            error = self.out.get(one.name)
            if isinstance(error, NotRun) and self.median(one.name):
                continue  # the earlier rounds count
            if error:
                is_ours = isinstance(one, Ours) and not isinstance(error, NotRun)
                say("fail" if is_ours else "skip", f"{self.name}: {one.name}", error)
        alone = [one.name for one in self.them if isinstance(one, Ours) and one.workers == 1]
        pairs = [one.name for one in self.them if isinstance(one, Ours) and one.workers == 2]
        self.row(EAGER)
        self.row(COMPILED, EAGER)
        self.row(DDP)
        for name in alone:
            self.row(name, EAGER, f"{name}, over {EAGER}")
            self.row(name, COMPILED, f"{name}, over {COMPILED}")
        for name in pairs:
            self.row(name, DDP, f"{name}, over {DDP}")
        for names in (alone, pairs):
            if len(names) == 2:  # the host's first
                host, device = sorted(names, key=lambda n: not n.endswith("host"))
                self.row(device, host, f"{device}, over {host}")
        best = max((n for n in alone if self.ratio(n, EAGER)), key=lambda n: self.ratio(n, EAGER), default=None)
        if best and self.settings["bar"]:
            self.row(best, EAGER, f"the better server ({best}) over {EAGER}", self.settings["bar"])
        if best:
            say("row", f"{self.name}: rounds", sum(bool(v) for v in self.values[best]), "rounds", "", "", "")


def compare(arguments, cases):
    deadline = time.monotonic() + arguments.seconds
    all_of_them, skipped = competitors(arguments)
    try:
        for index, (name, settings) in enumerate(cases.items()):
            begin = time.monotonic()
            if deadline - begin < LEAST_S:
                say("skip", name, "out of time")
                continue
            part = settings["share"] / sum(other["share"] for other in list(cases.values())[index:])
            share = max(LEAST_S, (deadline - begin) * part)
            comparison = Comparison(name, settings, [one for one in all_of_them if takes_part(one, settings)])
            comparison.prepare(min(deadline, begin + PREPARE_S), begin + share / 2)
            took = 0.0
            for _ in range(arguments.rounds):
                now = time.monotonic()
                if took and now + took > begin + share:
                    break
                comparison.round(arguments.round_seconds, deadline)
                took = time.monotonic() - now
            comparison.rows()
        for name, why in skipped:
            say("skip", name, why)
    finally:
        for one in all_of_them:
            one.end()


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=120, help="limit of all cases together")
    parser.add_argument("--round-seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, help="at most")
    parser.add_argument("--scratch", type=pathlib.Path, help="folder for temporary files of the runs")
    parser.add_argument("--cases", help="of " + ", ".join([*GPU_CASES, *CPU_CASES]))
    arguments = parser.parse_args()
    if not (arguments.bin / "pushpull").exists():
        parser.error(f"no {arguments.bin}/pushpull; build it")
    cases = CPU_CASES if arguments.device == "cpu" else GPU_CASES
    wanted = arguments.cases.split(",") if arguments.cases else list(cases)
    for name in wanted:
        if name not in cases:
            parser.error(f"no case {name}; there are {', '.join(cases)}")
    return arguments, {name: cases[name] for name in wanted}


def main():
    arguments, cases = parsed()
    if arguments.scratch:
        arguments.scratch.mkdir(parents=True, exist_ok=True)
    # A signal to this process must end its children, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A background job of a shell ignores Ctrl-C, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    compare(arguments, cases)


if __name__ == "__main__":
    main()
