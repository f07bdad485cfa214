"""Compares the optimizers and schedules with PyTorch's, and those that it lacks with their definitions:
optimizer_torch_test.py OPTIMIZER_STEPS

Exit code 77 (skipped) without PyTorch.
"""

import math
import subprocess
import sys

try:
    import torch
except ImportError:
    print("PyTorch is absent: skipped")
    sys.exit(77)

PROGRAM = sys.argv[1]
STEPS = 20
SIZE = 1003
LR = 0.01


def torch_optimizers(params, decay):
    """Returns PyTorch's optimizers, in the order of OptimizerKind. params: tensors, or groups of them."""
    sgd, optim = torch.optim.SGD, torch.optim
    return {
        "sgd": lambda: sgd(params, lr=LR, weight_decay=decay),
        "momentum": lambda: sgd(params, lr=LR, weight_decay=decay, momentum=0.9),
        "nesterov": lambda: sgd(params, lr=LR, weight_decay=decay, momentum=0.9, nesterov=True),
        "adam": lambda: optim.Adam(params, lr=LR, weight_decay=decay),
        "adamw": lambda: optim.AdamW(params, lr=LR, weight_decay=decay),
        "rmsprop": lambda: optim.RMSprop(params, lr=LR, weight_decay=decay),
        "adagrad": lambda: optim.Adagrad(params, lr=LR, weight_decay=decay),
        "lion": lambda: Lion(params, lr=LR, weight_decay=decay),
        "lamb": lambda: Lamb(params, lr=LR, weight_decay=decay),
    }


class Lion(torch.optim.Optimizer):
    """Program 1 of Chen et al., arXiv 2302.06675, which PyTorch lacks."""

    def __init__(self, params, lr, weight_decay, beta1=0.9, beta2=0.99):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, beta1=beta1, beta2=beta2))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                m = self.state[w].setdefault("exp_avg", torch.zeros_like(w))
                update = torch.sign(group["beta1"] * m + (1 - group["beta1"]) * w.grad)
                w.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * update)
                m.mul_(group["beta2"]).add_(w.grad, alpha=1 - group["beta2"])


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al., arXiv 1904.00962, in double, with the identity as phi. A group may leave tensors out of the
    scaling, as the authors' code does with those that weight decay leaves out."""

    def __init__(self, params, lr, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-6):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon, scaled=True))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for x in group["params"]:
                state, g = self.state[x], x.grad.double()
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = group["beta1"] * state.get("m", torch.zeros_like(g)) + (1 - group["beta1"]) * g
                v = state["v"] = group["beta2"] * state.get("v", torch.zeros_like(g)) + (1 - group["beta2"]) * g ** 2
                r = m / (1 - group["beta1"] ** t) / ((v / (1 - group["beta2"] ** t)).sqrt() + group["epsilon"])
                direction = r + group["weight_decay"] * x.double()
                ratio = x.double().norm() / direction.norm() if group["scaled"] else 1.0
                x.copy_(x.double() - group["lr"] * ratio * direction)


def floats(data):
    return torch.frombuffer(bytearray(data), dtype=torch.float32)


def raw(tensor):
    return tensor.contiguous().numpy().tobytes()


def worst_update_error(kind, name, decay):
    torch.manual_seed(kind)
    w = torch.randn(SIZE)
    gradients = torch.randn(STEPS, SIZE)
    stdin = raw(w) + raw(gradients * 4)  # the sum over four micro-batches; * 4 is exact
    command = [PROGRAM, "update", str(kind), str(decay), str(LR), str(STEPS), str(SIZE)]
    ours = floats(subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout)
    ours = ours.reshape(STEPS, SIZE)
    return worst_error(torch_optimizers([w], decay)[name](), [w], gradients, ours)


def worst_error(optimizer, tensors, gradients, ours):
    worst = 0.0
    for step in range(STEPS):
        before = torch.cat(tensors).clone()
        for w, g in zip(tensors, gradients[step].split(SIZE)):
            w.grad = g.clone()
        optimizer.step()
        # A weight near 0 is the difference of larger ones, so the error is relative to the larger of the two.
        after = torch.cat(tensors)
        scale = torch.maximum(after.abs(), before.abs()).clamp(min=LR)
        worst = max(worst, ((ours[step] - after).abs() / scale).max().item())
    return worst


def worst_group_error(kind, name, decay, lr_scale, own_decay):
    """Returns the worst error of two tensors, of which the second has a rate and a weight decay of its own."""
    torch.manual_seed(kind)
    tensors = [torch.randn(SIZE), torch.randn(SIZE)]
    gradients = torch.randn(STEPS, 2 * SIZE)
    command = [PROGRAM, "groups"] + [str(x) for x in (kind, decay, LR, lr_scale, own_decay, STEPS, SIZE)]
    stdin = raw(torch.cat(tensors)) + raw(gradients * 4)
    ours = floats(subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout)
    groups = [dict(params=[tensors[0]]), dict(params=[tensors[1]], lr=LR * lr_scale, weight_decay=own_decay)]
    if name == "lamb":
        groups[1]["scaled"] = own_decay != 0
    optimizer = torch_optimizers(groups, decay)[name]()
    return worst_error(optimizer, tensors, gradients, ours.reshape(STEPS, 2 * SIZE))


def torch_rates(make, lr, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    schedule = make(optimizer)
    rates = []
    for _ in range(total):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def our_rates(total, **keys):
    """Returns the rates of a job with these keys; an underscore stands for a dash."""
    command = [PROGRAM, "schedule", str(total)] + [f"{key.replace('_', '-')}={value}" for key, value in keys.items()]
    return [float(rate) for rate in subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()]


def worst_rate_error(expected, total=50, **keys):
    """Returns the largest relative error of all rates, where a rate of 0 must be 0. expected: rates, or a function that makes
    PyTorch's scheduler of an optimizer."""
    ours = our_rates(total, **keys)
    rates = torch_rates(expected, keys["lr"], total) if callable(expected) else expected
    assert len(ours) == len(rates) == total
    return max(abs(a - b) / (b or 1e-300) if a != b else 0.0 for a, b in zip(ours, rates))


def deepspeed_rates(scheduler, total, lr, warmup, low=0.0, length=0, cos_min_ratio=0.0, log=True):
    """Returns the rates that the optimizer has in each step with a scheduler of DeepSpeed: deepspeed/runtime/lr_schedules.py,
    whose step() follows the optimizer's. The first is that of its constructor, where the iteration is -1."""
    warmup = max(2, warmup)

    def rate(iteration):
        if iteration < 0:
            return 0.0 if scheduler == "WarmupCosineLR" else low
        if iteration < warmup:
            part = math.log(iteration + 1) / math.log(warmup) if log else iteration / warmup
        elif scheduler == "WarmupLR":
            part = 1.0
        elif scheduler == "WarmupDecayLR":
            part = max(0.0, (length - iteration) / max(1, length - warmup))
        else:
            progress = min(1.0, (iteration - warmup + 1) / max(1, length - warmup))
            return lr * (cos_min_ratio + (1 - cos_min_ratio) * (1 + math.cos(math.pi * progress)) / 2)
        return low + (lr - low) * part

    return [rate(iteration) for iteration in range(-1, total - 1)]


def report_deepspeed(report):
    for log in (True, False):
        shape = dict(lr=0.3, warmup_shape="deepspeed-log" if log else "deepspeed-linear")
        for warmup in (1, 7):
            of = dict(warmup_steps=warmup, **shape)
            what = f"{shape['warmup_shape']}, {warmup} steps"
            report(f"WarmupLR, {what}", worst_rate_error(deepspeed_rates("WarmupLR", 50, 0.3, warmup, 0.01, log=log), warmup_from=0.01, **of), 1e-12)
            for length in (30, 60):  # shorter and longer than the job
                rates = deepspeed_rates("WarmupDecayLR", 50, 0.3, warmup, 0.01, length, log=log)
                report(f"WarmupDecayLR of {length}, {what}",
                       worst_rate_error(rates, warmup_from=0.01, lr_min=0.01, lr_schedule="linear", lr_horizon=length, **of), 1e-12)
                rates = deepspeed_rates("WarmupCosineLR", 50, 0.3, warmup, 0.3 * 0.1, length, 0.001, log=log)
                report(f"WarmupCosineLR of {length}, {what}",
                       worst_rate_error(rates, warmup_from=0.3 * 0.1, lr_min=0.3 * 0.001, lr_schedule="cosine", lr_horizon=length, **of), 1e-12)


def report_schedules(report):
    scheduler = torch.optim.lr_scheduler
    lr = dict(lr=0.3)
    step = dict(lr_schedule="step", lr_step=7, lr_gamma=0.2, **lr)
    report("step schedule", worst_rate_error(lambda o: scheduler.StepLR(o, 7, 0.2), **step), 1e-12)
    multistep = dict(lr_schedule="multistep", lr_milestones="5,6,40", lr_gamma=0.2, **lr)
    report("multistep schedule", worst_rate_error(lambda o: scheduler.MultiStepLR(o, [5, 6, 40], 0.2), **multistep), 1e-12)
    cosine = dict(lr_schedule="cosine", lr_min=0.001, **lr)
    report("cosine schedule", worst_rate_error(lambda o: scheduler.CosineAnnealingLR(o, 50, 0.001), **cosine), 1e-12)
    linear = dict(lr_schedule="linear", lr_min=0.001, **lr)
    report("linear schedule", worst_rate_error(lambda o: scheduler.LinearLR(o, 1.0, 0.001 / 0.3, 50), **linear), 1e-12)
    for rise, key in ((0.3, {}), (0.17, dict(warmup_fraction=0.17)), (0.2, dict(warmup_steps=10))):
        one = lambda o: scheduler.OneCycleLR(o, 0.3, 50, pct_start=rise, div_factor=10, final_div_factor=100, cycle_momentum=False)
        keys = dict(lr_schedule="onecycle", warmup_from=0.03, lr_min=0.0003, **key, **lr)
        report(f"onecycle schedule, {rise}", worst_rate_error(one, **keys), 1e-12)
    for warmup in (0, 8):
        scale = warmup or 10000
        want = [0.3 * (t + 1) / warmup if t < warmup else 0.3 / math.sqrt((t - warmup + scale) / scale) for t in range(50)]
        report(f"inverse-sqrt schedule, {warmup}", worst_rate_error(want, lr_schedule="inverse-sqrt", warmup_steps=warmup, **lr), 1e-12)
    want = [0.1] * 5 + [0.1 + 0.2 * i / 10 for i in range(10)] + [0.3 - 0.3 * i / 20 for i in range(20)] + [0.0] * 15
    report("points", worst_rate_error(want, lr_schedule="points", lr_points="4:0.1,5:0.1,15:0.3,35:0", **lr), 1e-12)


def main():
    failures = 0

    def report(what, error, limit):
        nonlocal failures
        failures += not error <= limit
        print(f"{what}: largest relative error {error:.1e}, at most {limit:.0e}")

    for kind, name in enumerate(torch_optimizers([torch.zeros(1)], 0.0)):
        # PyTorch's own compute in float, as ours; Lamb above in double, from which 20 steps of float differ by more
        limit = 5e-5 if name == "lamb" else 1e-5
        for decay in (0.0, 0.05):
            report(f"{name}, decay {decay}", worst_update_error(kind, name, decay), limit)
            for scale, own in ((0.5, 0.0), (2.0, 0.1)):
                what = f"{name}, decay {decay}, beside it lr times {scale} and decay {own}"
                report(what, worst_group_error(kind, name, decay, scale, own), limit)
    report_schedules(report)
    report_deepspeed(report)
    return 1 if failures else 0


sys.exit(main())
