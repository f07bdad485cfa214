#!/usr/bin/env python3
"""Compares samples per second of a gpt in stages with the undivided model: one server, one thread for each stage.

  bench/pipeline.py [--stages 1,2] [--micro-batches 16] [--across] [--peer COMMAND]

The stages are those of one worker and, with --across, also those of a group of workers. The undivided model computes on one thread. All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other
load affects all alike. Ratios are taken within a round. COMMAND computes the same elsewhere and prints samples per second as the last number of its
output, such as that of torch.distributed.pipelining."""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE]
from figures import Failed, caption, cell, environment, free_port, machine, markdown, positive, ratios, rounds_text, run, spread, values  # noqa: E402

WORDS = "the quick brown fox jumps over the lazy dog and runs away from all that it sees in this wide green land"
JOB = {"model": "gpt", "dataset": "text", "tokenizer": "char", "layers": 6, "heads": 6, "embed": 384, "sequence": 256, "dropout": 0,
       "tie-embeddings": "false", "micro-batch": 1, "optimizer": "sgd", "lr": 0.01, "test-samples": 1, "seed": 3}


def rate(bin_dir, stages, across, micro_batches, steps, schedule):
    """Returns samples per second, and the mean bubble of the stages (0 for one). across: they are workers."""
    workers = stages if across else 1
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_text(" ".join(WORDS.split() * 600))
        job = {**JOB, "data-dir": folder / "text.txt", "global-batch": micro_batches, "steps": steps, "schedule": schedule, "stages": workers}
        (folder / "job.ini").write_text("".join(f"{key} = {value}\n" for key, value in job.items()))
        address = f"tcp://127.0.0.1:{free_port()}"
        server = subprocess.Popen([f"{bin_dir}/pushpull-server", "--job", folder / "job.ini", "--listen", address, "--workers", str(workers), "--out",
                                   folder / "out"], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        worker = [f"{bin_dir}/pushpull-worker", "--join", address] + ([] if across else ["--stages", str(stages)])
        others = [subprocess.Popen(worker, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(workers - 1)]
        try:
            run(worker)
            if server.wait(timeout=60) != 0:
                raise Failed(f"[bench] the server ended with {server.returncode}")
        finally:
            for process in [server] + others:
                process.kill()
        summary = json.loads((folder / "out" / "summary.json").read_text())
        bubbles = [stage["bubble"] for stage in summary["stages"]]
        return summary["samples_per_second"], sum(bubbles) / len(bubbles) if bubbles else 0.0


def peer_rate(command):
    numbers = re.findall(r"[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?", run(shlex.split(command)))
    if not numbers:
        raise Failed("[bench] the peer has printed no number")
    return float(numbers[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="folder of the programs")
    parser.add_argument("--stages", default="1,2", help="numbers between commas; the first one is the base of the ratios")
    parser.add_argument("--micro-batches", type=positive, default=16, help="of a step")
    parser.add_argument("--steps", type=positive, default=6)
    parser.add_argument("--schedule", default="1f1b", choices=("1f1b", "gpipe"))
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--across", action="store_true", help="measure each number of stages also as a group of workers")
    parser.add_argument("--peer", metavar="COMMAND", help="measure this command in each round, too")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.stages.split(",")]
    kinds = {str(count): (count, False) for count in counts}
    if arguments.across:
        kinds |= {f"{count} across workers": (count, True) for count in counts if count > 1}
    found = machine()
    rounds, bubbles = [], {}
    for number in range(arguments.rounds):
        one = {}
        for name, (stages, across) in kinds.items():
            one[name], bubble = rate(arguments.bin, stages, across, arguments.micro_batches, arguments.steps, arguments.schedule)
            bubbles.setdefault(name, []).append(bubble)
        if arguments.peer:
            one["peer"] = peer_rate(arguments.peer)
        rounds.append(one)
        print(f"round {number + 1} of {arguments.rounds} is done", file=sys.stderr)
    base = str(counts[0])
    rows = []
    for name, (stages, _) in kinds.items():
        ideal = (stages - 1) / (arguments.micro_batches + stages - 1)
        rows.append([name, cell(values(rounds, name)), cell(ratios(rounds, name, base)), cell(spread(bubbles[name])), f"{ideal:.3f}"])
    if arguments.peer:
        rows.append(["peer", cell(values(rounds, "peer")), cell(ratios(rounds, "peer", base)), "-", "-"])
    print(caption("bench/pipeline.py", found), f"{rounds_text(arguments.rounds)}\n")
    print(markdown(["stages", "samples/s", f"over {base}", "bubble", "(p - 1) / (m + p - 1)"], rows))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
