"""The same training in plain PyTorch: one process, one loop over the micro-batches of a step. In double
precision, so that differences are our rounding and not PyTorch's."""
import fnmatch
import struct
import warnings

import numpy
import torch
from torch import nn
from torch.optim import lr_scheduler

AVERAGE_MOMENTUM = 0.1  # PyTorch's default


class MicroBatchNorm(nn.BatchNorm2d):
    """Normalises by the batch, and collects its statistics until `update_running`: a step moves the running
    statistics once, by the mean of its micro-batches' statistics."""

    def __init__(self, channels):
        super().__init__(channels)
        self.reports = []

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            self.reports.append((x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=True)))
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    def update_running(self):
        for running, values in zip((self.running_mean, self.running_var), zip(*self.reports)):
            running.lerp_(torch.stack(values).mean(0), AVERAGE_MOMENTUM)
        self.reports = []


def with_micro_batch_norm(module):
    """Replaces every nn.BatchNorm2d by MicroBatchNorm; names stay."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, MicroBatchNorm(child.num_features))
        else:
            with_micro_batch_norm(child)
    return module


class Ties:
    """Measures how close a step's decisions come to a tie: the smallest distance of a ReLU's input from 0, or
    of the two largest values in a pooling window from each other. If it is within f32's rounding, another
    implementation may decide differently and get another gradient."""

    def __init__(self, model):
        self.margins = []  # one per step
        self.nearest = float("inf")
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_pre_hook(lambda _, x: self.see(x[0].abs()))
            if isinstance(module, nn.MaxPool2d):
                module.register_forward_pre_hook(lambda _, x: self.see_windows(x[0]))
        for layer in getattr(model, "layers", [])[:-1]:  # mlp's ReLU is a function, so its layers get the hook
            layer.register_forward_hook(lambda _layer, _x, y: self.see(y.abs()))

    def see(self, distances):
        self.nearest = min(self.nearest, distances.min().item())

    def see_windows(self, x):
        windows = nn.functional.unfold(x.flatten(0, 1).unsqueeze(1), 2, stride=2)
        best = windows.topk(2, 1).values
        gaps = (best[:, 0] - best[:, 1])[best[:, 0] > 0]
        # equal values come from equal patches of the image, which have equal gradients too
        self.see(gaps[gaps > 1e-12])

    def end_step(self):
        self.margins.append(self.nearest)
        self.nearest = float("inf")


def read_idx(path):
    with open(path, "rb") as file:
        data = file.read()
    dimensions = data[3]
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_digits(folder, split):
    """Returns images [N, 1, 8, 8] in 0..1 and labels [N]."""
    images = read_idx(f"{folder}/{split}-images.idx3-ubyte").astype(numpy.float32) / 16
    labels = read_idx(f"{folder}/{split}-labels.idx1-ubyte").astype(numpy.int64)
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


def decay_groups(job, model):
    """Returns PyTorch's parameter groups; the patterns in no-decay name those without weight decay."""
    patterns = [p for p in job.get("no-decay", "none").split(",") if p != "none"]
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[not any(fnmatch.fnmatchcase(name, p) for p in patterns)].append(parameter)
    return [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}]


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al., arXiv 1904.00962, with the identity as phi. Tensors without weight decay have the ratio 1, as in
    the authors' code."""

    def __init__(self, groups, lr, betas, eps, weight_decay):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.left_out = self.param_groups[1]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for x in group["params"]:
                state = self.state[x]
                t = state["step"] = state.get("step", 0) + 1
                m = state["exp_avg"] = beta1 * state.get("exp_avg", 0.0) + (1 - beta1) * x.grad
                v = state["exp_avg_sq"] = beta2 * state.get("exp_avg_sq", 0.0) + (1 - beta2) * x.grad ** 2
                u = m / (1 - beta1 ** t) / ((v / (1 - beta2 ** t)).sqrt() + group["eps"]) + group["weight_decay"] * x
                norms = x.norm(), u.norm()
                scaled = group is not self.left_out and min(norms) > 0
                x -= group["lr"] * (norms[0] / norms[1] if scaled else 1.0) * u


def make_optimizer(job, parameters):
    kind, rate = job["optimizer"], job["lr"]
    decay = job.get("weight-decay", 0.0)
    if kind in ("adam", "adamw"):
        make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
        return make(parameters, lr=rate, betas=(job.get("beta1", 0.9), job.get("beta2", 0.999)),
                    eps=job.get("epsilon", 1e-8), weight_decay=decay)
    if kind == "lamb":
        return Lamb(parameters, lr=rate, betas=(job.get("beta1", 0.9), job.get("beta2", 0.999)), eps=job.get("epsilon", 1e-6),
                    weight_decay=decay)
    momentum = 0.0 if kind == "sgd" else job.get("momentum", 0.9)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay,
                           nesterov=kind == "nesterov")


def make_schedule(job, optimizer):
    warmup = job.get("warmup-steps", 0) or int(job["steps"] * job.get("warmup-fraction", 0.0))
    kind = job.get("lr-schedule", "constant")
    if kind == "cosine":
        main = lr_scheduler.CosineAnnealingLR(optimizer, job["steps"] - warmup,
                                              job.get("lr-min", 0.0))
    elif kind == "linear":
        main = lr_scheduler.LinearLR(optimizer, 1.0, job.get("lr-min", 0.0) / job["lr"], job["steps"] - warmup)
    elif kind == "step":
        main = lr_scheduler.StepLR(optimizer, job["lr-step"], job.get("lr-gamma", 0.1))
    else:
        main = lr_scheduler.ConstantLR(optimizer, 1.0)
    if warmup == 0:
        return main
    # PyTorch's own SequentialLR triggers this warning
    warnings.filterwarnings("ignore", message="The epoch parameter")
    rise = lr_scheduler.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rise, main], [warmup])


def steps_per_epoch(job, labels):
    return job.get("train-samples", len(labels)) // job["global-batch"]


def micro_batches(job, step, images, labels):
    """Returns micro-batches in the order of the file, without shuffling; drops the last incomplete batch."""
    batch, micro = job["global-batch"], job["micro-batch"]
    first = step % steps_per_epoch(job, labels) * batch
    for lo in range(first, first + batch, micro):
        yield images[lo:lo + micro], labels[lo:lo + micro]


def train(model, job, images, labels):
    """Trains a model. job: keys of the job file, numbers as numbers. model: changed in place, in double
    precision. Returns the mean loss of each step, its distance from a tie, and the optimizer."""
    model.double()
    ties = Ties(model)
    images = images.double()
    optimizer = make_optimizer(job, decay_groups(job, model))
    schedule = make_schedule(job, optimizer)
    count = job["global-batch"] // job["micro-batch"]
    losses = []
    model.train()
    for step in range(job["steps"]):
        optimizer.zero_grad()
        losses.append(0.0)
        for x, y in micro_batches(job, step, images, labels):
            loss = nn.functional.cross_entropy(model(x), y) / count
            loss.backward()
            losses[-1] += loss.item()
        if job.get("clip-norm", 0) > 0:
            nn.utils.clip_grad_norm_(model.parameters(), job["clip-norm"])
        optimizer.step()
        schedule.step()
        ties.end_step()
        for module in model.modules():
            if isinstance(module, MicroBatchNorm):
                module.update_running()
    return losses, ties.margins, optimizer


def evaluate(model, images, labels):
    """Returns the mean loss, the number of correct answers, and the number of answers too close to call in
    f32."""
    model.eval()
    with torch.no_grad():
        logits = model(images.double())
    best = logits.topk(2).values
    close = (best[:, 0] - best[:, 1] < 1e-4).sum().item()
    loss = nn.functional.cross_entropy(logits, labels).item()
    return loss, (logits.argmax(1) == labels).sum().item(), close
