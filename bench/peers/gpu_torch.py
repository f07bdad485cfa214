"""Plain PyTorch training on a device, for gpu_compare.py. One process of this program, or two under
DistributedDataParallel on Gloo that share the device. The processes stay alive, idle, between the rounds.
  gpu_torch.py DEVICE alone
  gpu_torch.py DEVICE ddp RANK PROCESSES PORT
Reads requests on stdin, a line of JSON each, and answers each with a line: "ok VALUE" or "error TEXT".
  {"do": "prepare", "case": CASE, "compiled": bool}   makes the model, and runs it until it is warm
  {"do": "run", "seconds": S}                         samples per second of all processes together
A CASE is {"job": keys of a job file, "precision"}; under DDP each process computes its share of the batch. Models and
optimizers are those of models_torch.py. Weights are fp32; `bf16` is autocast. Batches are in pinned memory and are copied
to the device in each step. No call waits for the device within a step."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import models_torch

WARM_UP_STEPS = 5
BATCHES = 4
PRECISIONS = ("fp32", "tf32", "bf16")


class Training:
    """A model with its optimizer and batches on a device."""

    def __init__(self, case, device, compiled, processes):
        if case["precision"] not in PRECISIONS:
            raise ValueError(f"precision {case['precision']} is none of {PRECISIONS}")
        tf32 = case["precision"] == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True  # shapes are the same in all steps
        torch.manual_seed(0)
        self.device = device
        self.job = case["job"]
        self.samples = self.job["global-batch"] // processes
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=case["precision"] == "bf16")
        model = models_torch.Losses(models_torch.NETWORKS[self.job["model"]](self.job)).to(device)
        self.optimizer = models_torch.make_optimizer(self.job, model)
        if processes > 1:
            model = torch.nn.parallel.DistributedDataParallel(model)
        if compiled:
            if not hasattr(torch, "compile"):
                raise RuntimeError(f"PyTorch {torch.__version__} has no torch.compile")
            model = torch.compile(model)
        self.model = model
        self.batches = [self.batch() for _ in range(BATCHES)]

    def batch(self):
        tensors = models_torch.batch(self.job, self.samples)
        return [t.pin_memory() for t in tensors] if self.is_gpu() else tensors

    def is_gpu(self):
        return self.device.type == "cuda"

    def step(self, index):
        samples = tuple(t.to(self.device, non_blocking=True) for t in self.batches[index % BATCHES])
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = self.model(samples)
        loss.backward()
        models_torch.clip(self.job, self.model)
        self.optimizer.step()

    def seconds(self, steps):
        """Returns the seconds of `steps` steps, until the device has finished them."""
        self.synchronize()
        began = time.perf_counter()
        for index in range(steps):
            self.step(index)
        self.synchronize()
        return time.perf_counter() - began

    def synchronize(self):
        if self.is_gpu():
            torch.cuda.synchronize(self.device)


class Alone:
    processes = 1

    def barrier(self):
        pass

    def same(self, value):
        return value


class Together:
    """Several processes; the values of rank 0 count."""

    def __init__(self, rank, processes, port):
        self.processes = processes
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                world_size=processes)

    def barrier(self):
        dist.barrier()

    def same(self, value):
        tensor = torch.tensor([float(value)], dtype=torch.float64)
        dist.broadcast(tensor, 0)
        return float(tensor)


def run(training, team, seconds):
    team.barrier()
    steps = int(team.same(max(2, seconds / training.one_step_s)))
    team.barrier()
    took = team.same(training.seconds(steps))
    training.one_step_s = took / steps
    return steps * training.samples * team.processes / took


def answer(question, device, team, trainings):
    if question["do"] == "run":
        return run(trainings[0], team, question["seconds"])
    trainings.clear()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    training = Training(question["case"], device, question["compiled"], team.processes)
    training.seconds(WARM_UP_STEPS)
    training.one_step_s = training.seconds(2) / 2
    trainings.append(training)
    return 1


def main():
    device = torch.device(sys.argv[1])
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    team = Alone() if sys.argv[2] == "alone" else Together(*map(int, sys.argv[3:6]))
    answers = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not be taken for an answer
    trainings = []
    for line in sys.stdin:
        try:
            text = f"ok {answer(json.loads(line), device, team, trainings)}"
        except Exception as error:  # pylint: disable=broad-except
            text = f"error {type(error).__name__}: {error}".replace("\n", " ")[:300]
        os.write(answers, (text + "\n").encode())


if __name__ == "__main__":
    main()
