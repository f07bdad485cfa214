"""Compares samples per second of `convnet`: pushpull and single-process PyTorch. run_convnet.sh runs it.

All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other load affects
all alike. Compare the ratios: they are taken within a round."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [f"{ROOT}/tests/e2e", f"{ROOT}/bench"]
from cluster import Cluster  # noqa: E402
from figures import processor, spread  # noqa: E402

JOB = {"model": "convnet", "dataset": "dummy", "input": "1x28x28", "global-batch": 200,
       "micro-batch": 100, "threads": 1, "optimizer": "momentum", "lr": 0.01, "test-samples": 100}
BASE = "PyTorch, 1 thread"


def torch_rate(steps, threads, parts):
    command = [sys.executable, f"{HERE}/convnet_torch.py", *map(str, (steps, threads, parts))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return float(subprocess.run(command, env=environment, check=True, timeout=600,
                                stdout=subprocess.PIPE, text=True).stdout)


def pushpull_rate(bin_dir, steps, workers):
    with tempfile.TemporaryDirectory() as folder:
        out = Cluster(bin_dir, folder).run({**JOB, "steps": steps}, servers=1, workers=workers,
                                           timeout_s=600)
        with open(f"{out}/summary.json") as file:
            return json.load(file)["samples_per_second"]


def configurations(bin_dir, steps, cores):
    """Returns a map from name to measurement, in the order of a round."""
    out = {BASE: lambda: torch_rate(steps, 1, 1),
           "pushpull, 1 worker": lambda: pushpull_rate(bin_dir, steps, 1),
           "PyTorch, 1 thread, 2 x 100": lambda: torch_rate(steps, 1, 2),
           "pushpull, 2 workers": lambda: pushpull_rate(bin_dir, steps, 2)}
    if cores > 1:
        out["PyTorch, 2 threads"] = lambda: torch_rate(steps, 2, 1)
    return out


def summarise(rates, steps):
    import torch  # only for its version: measurements run in other processes
    rows = {}
    for name, values in rates.items():
        ratios = [value / base for value, base in zip(values, rates[BASE])]
        rows[name] = {"samples_per_s": spread(values), "ratio": spread(ratios), "rounds": values}
    return {"processor": processor(), "cores": sorted(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0], "torch": torch.__version__, "steps": steps,
            "base": BASE, "job": JOB, "rows": rows}


def print_table(result):
    rounds = len(result["rows"][BASE]["rounds"])
    print("convnet 1x28x28, global batch 200, micro-batch 100, SGD with momentum; "
          f"{result['steps']} steps, {rounds} rounds\n{result['processor']}, cores "
          f"{result['cores']}, PyTorch {result['torch']}, load average at the end "
          f"{result['load_average']:.1f}\n")
    print(f"| {'':26} | samples/s |   min |   max | over {BASE} |  min |  max |")
    print(f"|{'-' * 28}|----------:|------:|------:|{'-' * (len(BASE) + 6)}:|-----:|-----:|")
    for name, row in result["rows"].items():
        rate, ratio = row["samples_per_s"], row["ratio"]
        print(f"| {name:26} | {rate['median']:9.0f} | {rate['min']:5.0f} | {rate['max']:5.0f} | "
              f"{ratio['median']:{len(BASE) + 5}.2f} | {ratio['min']:4.2f} | {ratio['max']:4.2f} |")


def main():
    parser = argparse.ArgumentParser(prog="run_convnet.sh", description=__doc__)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="folder of the programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="timed steps of each run")
    parser.add_argument("--cores", help="pin all processes to these, such as 0,1; default: all cores")
    parser.add_argument("--json", metavar="FILE", help="also write every measurement to this file")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, map(int, arguments.cores.split(",")))  # children inherit it
    measure = configurations(arguments.bin, arguments.steps, len(os.sched_getaffinity(0)))
    rates = {name: [] for name in measure}
    for number in range(arguments.rounds):
        for name, run in measure.items():
            rates[name].append(run())
        print(f"round {number + 1} of {arguments.rounds} is done", file=sys.stderr)
    result = summarise(rates, arguments.steps)
    print_table(result)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
