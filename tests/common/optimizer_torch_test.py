"""Compares the optimizers and schedules with PyTorch's: optimizer_torch_test.py OPTIMIZER_STEPS

Exit code 77 (skipped) without PyTorch.
"""

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
    }


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


def worst_rate_error(kind, make):
    lr, step, gamma, low, total = 0.3, 7, 0.2, 0.001, 50
    command = [PROGRAM, "schedule"] + [str(x) for x in (kind, lr, step, gamma, low, total)]
    ours = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()
    rates = torch_rates(lambda o: make(o, step, gamma, low, total), lr, total)
    assert len(ours) == total
    return max(abs(float(a) - b) / b for a, b in zip(ours, rates))


def main():
    failures = 0

    def report(what, error, limit):
        nonlocal failures
        failures += not error <= limit
        print(f"{what}: largest relative error {error:.1e}, at most {limit:.0e}")

    for kind, name in enumerate(torch_optimizers([torch.zeros(1)], 0.0)):
        for decay in (0.0, 0.05):
            report(f"{name}, decay {decay}", worst_update_error(kind, name, decay), 1e-5)
            for scale, own in ((0.5, 0.0), (2.0, 0.1)):
                what = f"{name}, decay {decay}, beside it lr times {scale} and decay {own}"
                report(what, worst_group_error(kind, name, decay, scale, own), 1e-5)
    scheduler = torch.optim.lr_scheduler
    step_lr = lambda o, step, gamma, low, total: scheduler.StepLR(o, step, gamma)
    cosine = lambda o, step, gamma, low, total: scheduler.CosineAnnealingLR(o, total, low)
    linear = lambda o, step, gamma, low, total: scheduler.LinearLR(o, 1.0, low / 0.3, total)
    report("step schedule", worst_rate_error(1, step_lr), 1e-12)
    report("cosine schedule", worst_rate_error(2, cosine), 1e-12)
    report("linear schedule", worst_rate_error(3, linear), 1e-12)
    return 1 if failures else 0


sys.exit(main())
