"""Compares samples per second of large networks: pushpull and single-process PyTorch on the processor.

  PYTHON bench/peers/models_compare.py    PYTHON: one with PyTorch 2, such as that of scripts/torch-env.sh

All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other load affects
all alike. Ratios are taken within a round. pushpull trains with one server and one worker of one thread."""
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
from figures import cell, machine, caption, markdown, positive, ratios, rounds_text, values  # noqa: E402

ADAMW = {"optimizer": "adamw", "lr": 0.001, "weight-decay": 0.01, "clip-norm": 1}
JOBS = {  # job, steps of a run
    "gpt": ({"model": "gpt", "dataset": "text", "layers": 4, "heads": 4, "embed": 128, "sequence": 64, "global-batch": 12, "micro-batch": 6, **ADAMW}, 60),
    "bert": ({"model": "bert", "dataset": "dummy-qa", "layers": 4, "heads": 4, "embed": 256, "sequence": 128, "vocab": 1024, "test-samples": 8,
              "global-batch": 16, "micro-batch": 8, **ADAMW}, 15),
    "resnet18": ({"model": "resnet18", "stem": "cifar", "dataset": "dummy", "input": "1x28x28", "test-samples": 8, "global-batch": 32, "micro-batch": 16,
                  "optimizer": "momentum", "lr": 0.01}, 6),
    "resnet50": ({"model": "resnet50", "dataset": "dummy", "input": "3x224x224", "test-samples": 2, "global-batch": 8, "micro-batch": 4,
                  "optimizer": "momentum", "lr": 0.01}, 3),
    "bert-base": ({"model": "bert", "dataset": "dummy-qa", "layers": 12, "heads": 12, "embed": 768, "sequence": 384, "vocab": 1024, "test-samples": 2,
                   "global-batch": 4, "micro-batch": 2, **ADAMW}, 3),
}


def torch_rate(job, steps):
    command = [sys.executable, f"{HERE}/models_torch.py", json.dumps(job), str(steps), "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, env=environment, check=True, timeout=900, stdout=subprocess.PIPE, text=True).stdout)


def pushpull_rate(bin_dir, job, steps):
    with tempfile.TemporaryDirectory() as folder:
        if job["dataset"] == "text":
            with open(f"{folder}/text.txt", "w") as file:
                file.write("".join(chr(ord("0") + i * 7 % 65) for i in range(100_000)))
            job = {**job, "data-dir": f"{folder}/text.txt"}
        out = Cluster(bin_dir, folder).run({**job, "steps": steps}, timeout_s=900)
        with open(f"{out}/summary.json") as file:
            return json.load(file)["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="folder of the programs")
    parser.add_argument("--models", default=",".join(JOBS), help="names between commas")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--json", metavar="FILE", help="also write every measurement to this file")
    arguments = parser.parse_args()
    import torch  # only for its version: measurements run in other processes
    found = machine()
    models = arguments.models.split(",")
    rounds = {model: [] for model in models}
    for number in range(arguments.rounds):
        for model in models:
            job, steps = JOBS[model]
            rounds[model].append({"torch": torch_rate(job, steps), "pushpull": pushpull_rate(arguments.bin, job, steps)})
        print(f"round {number + 1} of {arguments.rounds} is done", file=sys.stderr)
    rows = [[model, cell(values(of, "torch")), cell(values(of, "pushpull")), cell(ratios(of, "pushpull", "torch"))] for model, of in rounds.items()]
    print(caption("bench/peers/models_compare.py", found), f"PyTorch {torch.__version__}. {rounds_text(arguments.rounds)}\n")
    print(markdown(["model", "PyTorch, samples/s", "pushpull, samples/s", "pushpull over PyTorch"], rows))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": found, "torch": torch.__version__, "jobs": JOBS, "rounds": rounds}, file, indent=2)


if __name__ == "__main__":
    main()
