"""Compares PyTorch workers of pushpull with plain PyTorch: one worker with a loop of one process, two workers with DDP on
Gloo. One thread a process, plain SGD, data in memory. Also prints what a parameter's gradient costs on its way.

  PYTHON bench/peers/torch_workers_compare.py    PYTHON: one with PyTorch 2, such as that of scripts/torch-env.sh

All runs of one round follow each other on the same cores, and the rounds are interleaved, so that other load affects
all alike. Ratios are taken within a round."""
import argparse
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from ddp_train import MODELS  # noqa: E402
from figures import BIN, caption, cell, machine, markdown, positive, ratios, rounds_text, run, say, values  # noqa: E402

SECONDS = {"mlp": 6, "mlp-wide": 10, "convnet": 5, "gpt": 5, "many": 3}  # of a run of PyTorch
STEPS = {"mlp": 400, "mlp-wide": 40, "convnet": 150, "gpt": 300, "many": 600}
TITLES = {"mlp": "mlp 1024,1024", "mlp-wide": "mlp 4096,4096", "convnet": "convnet",
          "gpt": "GPT, 4 × 128"}
MANY = "many"  # small tensors: shows the cost of each


def plain(kind, model, processes):
    return float(run([sys.executable, HERE / "ddp_train.py", kind, model, processes, SECONDS[model]]))


def pushpull(bin_dir, model, workers, way="tasks"):
    batch = MODELS[model][1]
    keys = {"model": "external", "global-batch": batch * workers, "micro-batch": batch, "optimizer": "sgd", "lr": 0.01,
            "seed": 1, "steps": STEPS[model]}
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.ini"
        job.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        run([bin_dir / "pushpull", "run", "--job", job, "--workers", workers, "--out", f"{folder}/out", "--worker",
             f"'{sys.executable}' '{HERE / 'torch_worker.py'}' {model} {way}"], OMP_NUM_THREADS="1", PUSHPULL_LIBRARY=str(bin_dir.parent / "lib" / "libpushpull.so.0"))
        return json.loads(pathlib.Path(f"{folder}/out/summary.json").read_text())["samples_per_second"]


def one_round(bin_dir, names):
    found = {}
    for name in names:
        found["plain", name] = plain("alone", name, 1)
        found["one", name] = pushpull(bin_dir, name, 1)
        if name != MANY:
            found["ddp", name] = plain("ddp", name, 2)
            found["two", name] = pushpull(bin_dir, name, 2)
            found["loop", name] = pushpull(bin_dir, name, 1, "loop")
    return found


def tensor_costs(rounds):
    """Returns µs that a step takes longer than in plain PyTorch, for each tensor of the model with small ones."""
    make, batch, _ = MODELS[MANY]
    tensors = len(list(make().parameters()))
    return [{"cost": (batch / r["one", MANY] - batch / r["plain", MANY]) / tensors * 1e6} for r in rounds], tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--models", default=",".join([*TITLES, MANY]), help="names between commas")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--json", metavar="FILE", help="also write every measurement to this file")
    arguments = parser.parse_args()
    import torch  # only for its version: measurements run in other processes
    found, names, rounds = machine(), arguments.models.split(","), []
    for number in range(arguments.rounds):
        rounds.append(one_round(arguments.bin, names))
        say(f"round {number + 1} of {arguments.rounds} is done")
    rows = [[TITLES[name], *(cell(values(rounds, (kind, name))) for kind in ("plain", "one", "ddp", "two")),
             *(cell(ratios(rounds, (over, name), (under, name))) for over, under in (("one", "plain"), ("two", "ddp"), ("loop", "one")))]
            for name in names if name != MANY]
    print(caption("bench/peers/torch_workers_compare.py", found), f"PyTorch {torch.__version__}. {rounds_text(arguments.rounds)}\n")
    print(markdown(["samples/s", "PyTorch", "one worker", "DDP, 2", "two workers", "one worker over PyTorch", "two over DDP", "its own loop over `tasks()`"], rows))
    if MANY in names:
        costs, tensors = tensor_costs(rounds)
        print(f"\nA step with {tensors} small tensors takes {cell(values(costs, 'cost'))} µs longer for each than in plain PyTorch.")
    if arguments.json:
        shown = [{" ".join(key): value for key, value in r.items()} for r in rounds]
        pathlib.Path(arguments.json).write_text(json.dumps({"machine": found, "torch": torch.__version__, "rounds": shown}, indent=2))


if __name__ == "__main__":
    main()
