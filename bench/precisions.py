"""Compares samples per second of bf16 and fp32 on the processor: pushpull with one server and one worker of one thread.

  bench/precisions.py    needs a processor with AVX512_BF16 or AMX-BF16

All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other load affects
all alike. Ratios are taken within a round."""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [f"{ROOT}/tests/e2e", f"{HERE}/peers", HERE]
from figures import caption, cell, machine, markdown, positive, ratios, rounds_text, values  # noqa: E402
from models_compare import JOBS, TITLES, names, pushpull_rate  # noqa: E402

MODELS = "mlp,gpt,bert,resnet18"
PRECISIONS = ("fp32", "bf16")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="folder of the programs")
    parser.add_argument("--models", type=names(JOBS), default=MODELS, help="names between commas")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write every measurement to this file")
    arguments = parser.parse_args()
    found = machine()
    models = arguments.models
    rounds = {model: [] for model in models}
    for number in range(arguments.rounds):
        for model in models:
            job, steps = JOBS[model]
            rounds[model].append({name: pushpull_rate(arguments.bin, {**job, "precision": name}, steps) for name in PRECISIONS})
        print(f"round {number + 1} of {arguments.rounds} is done", file=sys.stderr)
    rows = [[TITLES[model], cell(values(of, "fp32")), cell(values(of, "bf16")), cell(ratios(of, "bf16", "fp32"))] for model, of in rounds.items()]
    print(caption("bench/precisions.py", found), f"{rounds_text(arguments.rounds)}\n")
    print(markdown(["model", "fp32, samples/s", "bf16, samples/s", "bf16 over fp32"], rows))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": found, "jobs": {model: JOBS[model] for model in models}, "rounds": rounds}, file, indent=2)


if __name__ == "__main__":
    main()
