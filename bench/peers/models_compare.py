"""Compares samples per second of the models: pushpull and PyTorch on the processor. run_models.sh runs it.

All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other load affects
all alike. Ratios are taken within a round. Every process has one thread; a pushpull job has one server more. Parts:
  one      one worker, and one PyTorch process (eager)
  pair     two workers of one job; two jobs with one worker each that run at once, the limit of this machine; DDP on
           Gloo with two processes
  compile  one PyTorch process with torch.compile; needs a C++ compiler"""
import argparse
import concurrent.futures
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [f"{ROOT}/tests/e2e", f"{ROOT}/bench", HERE]
from cluster import Cluster  # noqa: E402
from figures import Failed, caption, cell, machine, markdown, positive, ratios, rounds_text, run, say, values  # noqa: E402
from model_jobs import JOBS, data_of  # noqa: E402

TITLES = {"mlp": "`mlp` 1024,1024", "convnet": "`convnet`", "gpt": "`gpt`, 4 layers of 128, 64 characters", "bert": "`bert`, 4 layers of 256, 128 tokens",
          "resnet18": "`resnet18`, 28 x 28", "resnet50": "`resnet50`, 224 x 224", "bert-base": "`bert`, 12 layers of 768, 384 tokens"}
TIMEOUT_S = 900


def torch_rate(job, steps, kind):
    return float(run([sys.executable, f"{HERE}/models_torch.py", kind, json.dumps(job), steps], TIMEOUT_S, OMP_NUM_THREADS="1"))


def pushpull_rate(bin_dir, job, steps, workers=1):
    with tempfile.TemporaryDirectory() as folder:
        out = Cluster(bin_dir, folder).run({**job, **data_of(job, folder), "threads": 1, "eval-every": 0, "steps": steps}, workers=workers, timeout_s=TIMEOUT_S)
        with open(f"{out}/summary.json") as file:
            summary = json.load(file)
        # the mean step of a worker: without the start and the evaluation, which PyTorch's side does not have
        return job["global-batch"] / sum(summary["split"].values())


def copies_rate(bin_dir, job, steps):
    """Returns the rates of two jobs that run at once, added."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda _: pushpull_rate(bin_dir, job, steps), range(2)))


def measurements(bin_dir, job, steps, parts):
    """Returns a map from name to measurement, in the order of a round."""
    out = {"torch": lambda: torch_rate(job, steps, "alone"), "pushpull": lambda: pushpull_rate(bin_dir, job, steps)}
    if "pair" in parts:
        out["copies"] = lambda: copies_rate(bin_dir, job, steps)
        out["workers"] = lambda: pushpull_rate(bin_dir, job, 2 * steps, workers=2)
        out["ddp"] = lambda: torch_rate(job, 2 * steps, "ddp")
    if "compile" in parts:
        out["compiled"] = lambda: torch_rate(job, steps, "compile")
    return out


# The columns of each part's table: a measurement, or the ratio of two measurements.
TABLES = {
    "one": ("One worker, one thread: samples/s",
            [("PyTorch", "torch"), ("pushpull", "pushpull"), ("pushpull / PyTorch", "pushpull", "torch")]),
    "pair": ("Two workers with one thread each: samples/s",
             [("two jobs at once", "copies"), ("two workers", "workers"), ("two workers / two jobs", "workers", "copies"),
              ("two workers / one", "workers", "pushpull"), ("DDP on Gloo", "ddp"), ("two workers / DDP", "workers", "ddp")]),
    "compile": ("Beside torch.compile, one thread: samples/s",
                [("torch.compile", "compiled"), ("over eager PyTorch", "compiled", "torch"), ("pushpull / torch.compile", "pushpull", "compiled")]),
}


def measure(arguments):
    """Returns model -> rounds, and (model, measurement) -> message of failures."""
    rounds, failed = {model: [] for model in arguments.models}, {}
    for number in range(arguments.rounds):
        for model in arguments.models:
            job, steps = JOBS[model]
            found = {}
            for name, rate in measurements(arguments.bin, job, steps, arguments.parts).items():
                if (model, name) in failed:
                    continue
                try:
                    found[name] = rate()
                except Failed as error:
                    failed[model, name] = str(error)
                    say(f"skipped from now on: {model}: {error}")
            rounds[model].append(found)
        say(f"round {number + 1} of {arguments.rounds} is done")
    return rounds, failed


def table(rounds, columns):
    def value(of, column):
        return cell(values(of, column[1]) if len(column) == 2 else ratios(of, *column[1:]))
    return markdown(["model", *(column[0] for column in columns)],
                    [[TITLES[model], *(value(of, column) for column in columns)] for model, of in rounds.items()])


def names(of):
    def parse(text):
        found = text.split(",")
        unknown = [name for name in found if name not in of]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {unknown[0]}; there are {', '.join(of)}")
        return found
    return parse


def main():
    parser = argparse.ArgumentParser(prog="run_models.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="folder of the programs")
    parser.add_argument("--models", type=names(JOBS), default=list(JOBS), help="names between commas")
    parser.add_argument("--parts", type=names(TABLES), default=["one"], help="one, pair, compile between commas; one is always measured")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write every measurement to this file")
    arguments = parser.parse_args()
    import torch  # only for its version: measurements run in other processes
    found = machine()
    rounds, failed = measure(arguments)
    for part, (title, columns) in TABLES.items():
        if part == "one" or part in arguments.parts:
            print(f"**{title}**\n\n{table(rounds, columns)}\n")
    command = "bench/peers/run_models.sh" + (f" --parts {','.join(arguments.parts)}" if arguments.parts != ["one"] else "")
    print(caption(command, found), f"PyTorch {torch.__version__}. {rounds_text(arguments.rounds)}")
    for (model, name), why in failed.items():
        print(f"Skipped: {model}, {name}: {why}.")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": found, "torch": torch.__version__, "jobs": JOBS, "rounds": rounds}, file, indent=2)


if __name__ == "__main__":
    main()
