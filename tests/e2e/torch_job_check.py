"""Trains whole jobs with real processes and with PyTorch, from the same initial weights on the same batches.
Compares the final weights, optimizer state and evaluation, and runs the Python of docs/torch-weights.md:
torch_job_check.py BIN_DIR SOURCE_DIR. Exit code 77 (skipped) without PyTorch."""
import argparse
import contextlib
import copy
import json
import os
import re
import sys
import tempfile
import time

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

import torch_reference as reference
from cluster import Cluster

# Largest ||ours - theirs|| / ||theirs|| of a tensor of weights or optimizer state. Rounding alone causes 1e-6.
# If a ReLU or a pooling window is closer to a tie than f32's rounding, f32 may decide differently. This changes
# one step's gradient by about 1e-3, and the weights by more than this in Adam's first steps, which divide each
# gradient by its own size (PyTorch in f32 then differs as much from PyTorch in f64). The initial weights are
# therefore chosen such that no step of any job comes closer to a tie than 1e-6 (mlp) or 5e-7 (convnet, and
# 1.5e-6 in Adam's first five). --verbose and every failure show the smallest distance of each step; --seed
# tries other weights.
TOLERANCE = 1e-4
SEEDS = {"mlp": 72, "convnet": 205}
# A wrong setting must change at least one tensor by this much, to exceed the tolerance.
VISIBLE = 10 * TOLERANCE
# Their gradient is 0 except for rounding noise, which differs between any two implementations.
EXEMPT = ("layer1.0.bias", "layer2.0.bias")
# 1,438 training samples make 14 steps of 100, 730 make 14 of 50: 20 steps cross the end of an epoch. Five
# micro-batches divide unevenly among 2 and 3 workers.
COMMON = {"dataset": "digits", "shuffle": "false", "steps": 20}
MLP = {"model": "mlp", "hidden": "64,32", "global-batch": 100, "micro-batch": 20, **COMMON}
CONVNET = {"model": "convnet", "train-samples": 730, "global-batch": 50, "micro-batch": 10,
           **COMMON}
WARM_COSINE = {"lr-schedule": "cosine", "lr-min": 1e-4, "warmup-steps": 5}
WARM_LINEAR = {"lr-schedule": "linear", "lr-min": 1e-4, "warmup-fraction": 0.2}
DROPS = {"lr-schedule": "step", "lr-step": 6, "lr-gamma": 0.3}
SMALL_SLICES = {"slice-bytes": 4096}  # some tensors span several slices, some slices hold several tensors

JOBS = (  # job, workers, servers
    ({**MLP, "optimizer": "sgd", "lr": 0.3, "weight-decay": 0.01, "clip-norm": 0.1}, 1, 1),
    ({**MLP, "optimizer": "momentum", "lr": 0.1, "weight-decay": 0.003, "clip-norm": 0.1,
      "no-decay": "*.bias,layers.0.*", **WARM_COSINE, **SMALL_SLICES}, 2, 2),
    ({**MLP, "optimizer": "nesterov", "lr": 0.05, "momentum": 0.8, "weight-decay": 0.01, **DROPS,
      "warmup-steps": 3}, 2, 1),
    ({**MLP, "optimizer": "adam", "lr": 0.003, "weight-decay": 0.01, "beta1": 0.8, **DROPS,
      **SMALL_SLICES}, 3, 2),
    ({**MLP, "optimizer": "adamw", "lr": 0.003, "weight-decay": 0.3, "beta2": 0.95,
      "clip-norm": 0.1, **WARM_COSINE}, 1, 2),
    ({**MLP, "optimizer": "lamb", "lr": 0.01, "weight-decay": 0.3, "beta2": 0.95, "clip-norm": 0.1, "no-decay": "*.bias,layers.2.*",
      **WARM_COSINE, **SMALL_SLICES}, 3, 2),
    ({**CONVNET, "optimizer": "sgd", "lr": 0.02, "weight-decay": 0.05, **WARM_COSINE,
      **SMALL_SLICES}, 2, 2),
    ({**CONVNET, "optimizer": "momentum", "lr": 0.005, "weight-decay": 0.05, "clip-norm": 1.0,
      **DROPS}, 1, 1),
    ({**CONVNET, "optimizer": "nesterov", "lr": 0.005, "weight-decay": 0.05, "clip-norm": 1.0,
      **WARM_LINEAR}, 2, 1),
    ({**CONVNET, "optimizer": "adam", "lr": 5e-4, "weight-decay": 0.02}, 1, 2),
    # epsilon: otherwise Adam amplifies the noise in the exempt biases, and running_mean follows them (in the
    # adam job above, the weight decay in the gradient hides the noise)
    ({**CONVNET, "optimizer": "adamw", "lr": 5e-4, "weight-decay": 1.0, "clip-norm": 0.5,
      "epsilon": 1e-4, **WARM_COSINE, "lr-min": 1e-5, **SMALL_SLICES}, 3, 2),
)
# Keys of the optimizer, with the value that turns each off.
NEUTRAL = {"weight-decay": 0.0, "clip-norm": 0.0, "lr-schedule": "constant", "warmup-steps": 0,
           "warmup-fraction": 0.0, "no-decay": "none", "momentum": 0.9, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}


class Failures:
    def __init__(self):
        self.count = 0

    def expect(self, good, text):
        if not good:
            self.count += 1
            print(f"  FAILED: {text}")


def documented(source_dir):
    """Returns the Python blocks of docs/torch-weights.md."""
    with open(f"{source_dir}/docs/torch-weights.md") as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def define(blocks):
    """Returns the functions and classes of the blocks, without the blocks that work on files."""
    names = {}
    for block in blocks:
        if block.startswith(("import ", "from ", "class ", "def ")):
            exec(compile(block, "docs/torch-weights.md", "exec"), names)
    return names


def without_counters(state):
    return {n: t for n, t in state.items() if not n.endswith("num_batches_tracked")}


def initial_model(job, names, seed):
    """Returns a module with BatchNorm parameters that do not start at 1 and 0 either."""
    torch.manual_seed(SEEDS[job["model"]] if seed is None else seed)
    if job["model"] == "mlp":
        return names["Mlp"](64, [int(width) for width in job["hidden"].split(",")], 10)
    model = reference.with_micro_batch_norm(names["Convnet"](1, 8, 8, 10))
    for module in model.modules():
        if isinstance(module, reference.MicroBatchNorm):
            for tensor in (module.weight, module.running_var):
                torch.nn.init.uniform_(tensor, 0.5, 1.5)
            for tensor in (module.bias, module.running_mean):
                torch.nn.init.normal_(tensor, std=0.2)
    return model


def distance(ours, theirs):
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def distances(ours, theirs):
    return {name: distance(ours[name], tensor) for name, tensor in theirs.items()
            if name not in EXEMPT}


def optimizer_tensors(model, optimizer):
    """Returns the state, named as in optimizer.safetensors: tensor, dot, PyTorch's name of the state."""
    return {f"{name}.{kind}": value for name, parameter in model.named_parameters()
            for kind, value in optimizer.state[parameter].items()
            if kind != "step" and value is not None and name not in EXEMPT}


class Check:
    def __init__(self, bin_dir, source_dir, verbose, seed):
        self.bin_dir = bin_dir
        self.verbose = verbose
        self.seed = seed
        self.failures = Failures()
        self.blocks = documented(source_dir)
        self.names = define(self.blocks)
        self.train = reference.read_digits(f"{source_dir}/datasets/digits", "train")
        self.test = reference.read_digits(f"{source_dir}/datasets/digits", "t10k")

    def job(self, job, workers, servers):
        label = f"{job['model']} {job['optimizer']}, workers {workers}, servers {servers}"
        start = initial_model(job, self.names, self.seed)
        with tempfile.TemporaryDirectory() as folder:
            self.names["write_safetensors"](f"{folder}/start.safetensors",
                                            without_counters(start.state_dict()))
            began = time.monotonic()
            out = Cluster(self.bin_dir, folder).run({**job, "init-from": "start.safetensors"},
                                                    servers, workers)
            seconds = time.monotonic() - began
            checkpoint = f"{out}/checkpoints/step-{job['steps']:08d}"
            ours = self.names["read_safetensors"](f"{checkpoint}/model.safetensors")
            ours_state = self.names["read_safetensors"](f"{checkpoint}/optimizer.safetensors")
            with open(f"{out}/summary.json") as file:
                summary = json.load(file)
        theirs = copy.deepcopy(start)
        losses, margins, optimizer = reference.train(theirs, job, *self.train)
        self.compare(label, seconds, ours, without_counters(theirs.state_dict()), margins)
        self.compare_state(label, ours_state, optimizer_tensors(theirs, optimizer))
        self.compare_summary(label, job, summary, ours, theirs, losses)
        self.settings_matter(label, job, start, theirs)

    def compare(self, label, seconds, ours, theirs, margins):
        expect = self.failures.expect
        shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
        expect({n: tuple(t.shape) for n, t in ours.items()} == shapes,
               f"{label}: names or shapes are not those of state_dict")
        far = distances(ours, theirs)
        worst = max(far, key=far.get)
        good = all(d <= TOLERANCE for d in far.values())
        print(f"{label}: worst {worst} {far[worst]:.1e} of {TOLERANCE:.0e}, {seconds:.1f} s")
        expect(good, f"{label}: relative norms of the difference")
        if self.verbose or not good:
            print("    nearest ties, step by step:", *(f"{margin:.0e}" for margin in margins))
            for name, value in far.items():
                print(f"    {name:24} {value:.1e}{'' if value <= TOLERANCE else ' TOO FAR'}")

    def compare_state(self, label, ours, theirs):
        ours = {n: t for n, t in ours.items() if not n.startswith(EXEMPT)}
        self.failures.expect(ours.keys() == theirs.keys(), f"{label}: names of optimizer state")
        for name, value in distances(ours, theirs).items():
            if self.verbose:
                print(f"    {name:36} {value:.1e}")
            self.failures.expect(value <= TOLERANCE, f"{label}: {name} {value:.1e}")

    def compare_summary(self, label, job, summary, ours, theirs, losses):
        """Compares the evaluation of our weights: equal counts, unless two classes are too close to call.
        train_loss is the mean over the last steps, as many as an epoch has."""
        expect = self.failures.expect
        loaded = copy.deepcopy(theirs)  # our weights are exact in double precision
        loaded.load_state_dict(ours, strict=False)
        loss, correct, close = reference.evaluate(loaded, *self.test)
        expect(summary["test_total"] == len(self.test[1]),
               f"{label}: test_total {summary['test_total']}")
        expect(abs(summary["test_correct"] - correct) <= close,
               f"{label}: test_correct {summary['test_correct']}, PyTorch {correct}")
        expect(abs(summary["test_loss"] - loss) <= 1e-5 * loss,
               f"{label}: test_loss {summary['test_loss']}, PyTorch {loss}")
        epoch = losses[-reference.steps_per_epoch(job, self.train[1]):]
        mean = sum(epoch) / len(epoch)
        expect(abs(summary["train_loss"] - mean) <= TOLERANCE * mean,
               f"{label}: train_loss {summary['train_loss']}, PyTorch {mean}")
        if self.verbose:
            print(f"    test loss {loss:.6f}, {correct} correct, {close} too close to call")

    def settings_matter(self, label, job, start, theirs):
        """Checks that the comparison can fail: without any one of these settings PyTorch's result differs."""
        for key, value in NEUTRAL.items():
            if job.get(key, value) == value:
                continue
            other = copy.deepcopy(start)
            reference.train(other, {**job, key: value}, *self.train)
            moved = max(distances(without_counters(other.state_dict()),
                                  without_counters(theirs.state_dict())).values())
            if self.verbose:
                print(f"    without {key}: {moved:.1e}")
            self.failures.expect(moved > VISIBLE, f"{label}: {key} moves no tensor ({moved:.1e})")

    def documentation(self):
        """Runs docs/torch-weights.md from top to bottom, then trains from the weights that it writes."""
        with tempfile.TemporaryDirectory() as folder, working_directory(folder):
            Cluster(self.bin_dir, folder).run(
                {"model": "convnet", "dataset": "digits", "steps": 20})
            names = {}
            for block in self.blocks:
                exec(compile(block, "docs/torch-weights.md", "exec"), names)
            again = names["read_safetensors"]("start.safetensors")
            weights = names["weights"]
            self.failures.expect(again.keys() == weights.keys() and
                                 all(torch.equal(again[name], weights[name]) for name in weights),
                                 "docs/torch-weights.md: weights differ after a round trip")
            Cluster(self.bin_dir, folder).run(
                {"model": "convnet", "dataset": "digits", "steps": 1,
                 "init-from": "start.safetensors"}, out="second")
        print("docs/torch-weights.md: its Python runs")


@contextlib.contextmanager
def working_directory(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=os.path.abspath)
    parser.add_argument("source_dir", type=os.path.abspath)
    parser.add_argument("-v", "--verbose", action="store_true", help="every tensor's distance")
    parser.add_argument("--seed", type=int, help="other initial weights")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    check = Check(arguments.bin_dir, arguments.source_dir, arguments.verbose, arguments.seed)
    for job, workers, servers in JOBS:
        check.job(job, workers, servers)
    check.documentation()
    sys.exit(1 if check.failures.count else 0)


if __name__ == "__main__":
    main()
