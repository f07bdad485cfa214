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


def torch_optimizers(w, decay):
    """Returns PyTorch's optimizers, in the order of OptimizerKind."""
    sgd, optim = torch.optim.SGD, torch.optim
    return {
        "sgd": lambda: sgd([w], lr=LR, weight_decay=decay),
        "momentum": lambda: sgd([w], lr=LR, weight_decay=decay, momentum=0.9),
        "nesterov": lambda: sgd([w], lr=LR, weight_decay=decay, momentum=0.9, nesterov=True),
        "adam": lambda: optim.Adam([w], lr=LR, weight_decay=decay),
        "adamw": lambda: optim.AdamW([w], lr=LR, weight_decay=decay),
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
    optimizer = torch_optimizers(w, decay)[name]()
    worst = 0.0
    for step in range(STEPS):
        before = w.clone()
        w.grad = gradients[step].clone()
        optimizer.step()
        # A weight near 0 is the difference of larger ones, so the error is relative to the larger of the two.
        scale = torch.maximum(w.abs(), before.abs()).clamp(min=LR)
        worst = max(worst, ((ours[step] - w).abs() / scale).max().item())
    return worst


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

    for kind, name in enumerate(torch_optimizers(torch.zeros(1), 0.0)):
        for decay in (0.0, 0.05):
            report(f"{name}, decay {decay}", worst_update_error(kind, name, decay), 1e-5)
    scheduler = torch.optim.lr_scheduler
    step_lr = lambda o, step, gamma, low, total: scheduler.StepLR(o, step, gamma)
    cosine = lambda o, step, gamma, low, total: scheduler.CosineAnnealingLR(o, total, low)
    linear = lambda o, step, gamma, low, total: scheduler.LinearLR(o, 1.0, low / 0.3, total)
    report("step schedule", worst_rate_error(1, step_lr), 1e-12)
    report("cosine schedule", worst_rate_error(2, cosine), 1e-12)
    report("linear schedule", worst_rate_error(3, linear), 1e-12)
    return 1 if failures else 0


sys.exit(main())
