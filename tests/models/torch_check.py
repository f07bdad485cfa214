"""Compares one micro-batch of each model with PyTorch: loss, gradients, BatchNorm's statistics,
evaluation.  torch_check.py TORCH_DUMP.  Exits with 77 (skipped) without PyTorch."""
import copy
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Largest difference over largest value of a tensor. f32 sums of about 1e4 terms keep five digits.
TOLERANCE = 1e-5
# If the values of a ReLU or a pooling window are closer to a tie than f32's rounding, implementations take
# different sides, which moves the gradients before it by about 1 / sqrt(terms). Among 2 million values some
# always are: PyTorch in f32 then differs from PyTorch in f64 as much as our result does from either.
TIE_TOLERANCE = 5e-2
TRIES = 30  # images tried, to find some without a near tie


def mlp(shape, classes, hidden):
    widths = [shape[0] * shape[1] * shape[2], *hidden, classes]

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))

        def forward(self, x):
            x = x.flatten(1)
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return self.layers[-1](x)

    return Mlp()


def convnet(shape, classes, _hidden):
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs),
                             nn.ReLU(), nn.MaxPool2d(2))

    class Convnet(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = block(shape[0], 16)
            self.layer2 = block(16, 32)
            self.fc = nn.Linear(32 * (shape[1] // 2 // 2) * (shape[2] // 2 // 2), classes)

        def forward(self, x):
            return self.fc(self.layer2(self.layer1(x)).flatten(1))

    return Convnet()


def reported(module):
    """Makes BatchNorm report its batch: PyTorch's running statistics with momentum 1."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0


def randomise(module):
    """Randomises BatchNorm's parameters and statistics too, which start as zeros and ones."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.5, 0.5)
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 1.5)


def margin(module, images):
    """Returns how close the nearest ReLU or pooling window is to a tie, computed in f64."""
    module = copy.deepcopy(module).double().train()
    margins = [1.0]

    def relu_input(_module, _inputs, output):
        margins.append(output.abs().min().item())

    def pool_input(_module, inputs):
        windows = nn.functional.unfold(inputs[0].flatten(0, 1)[:, None], 2, stride=2)
        best, second = windows.topk(2, dim=1).values.unbind(1)
        if (best > 0).any():
            margins.append((best - second)[best > 0].min().item())

    for name, part in module.named_modules():
        hidden = isinstance(part, nn.Linear) and name != "fc"
        if isinstance(part, nn.BatchNorm2d) or (hidden and part is not module.layers[-1]):
            part.register_forward_hook(relu_input)
        if isinstance(part, nn.MaxPool2d):
            part.register_forward_pre_hook(pool_input)
    with torch.no_grad():
        module(torch.from_numpy(images).double())
    return min(margins)


def difference(got, want):
    scale = max(numpy.abs(want).max(), 1e-6)
    return float(numpy.abs(got.reshape(want.shape) - want).max() / scale)


def run_dump(dump, model, shape, classes, hidden, weights, images, labels):
    """Returns the lines (tensors) and floats that our program yields."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = folder + "/in", folder + "/out"
        with open(source, "wb") as file:
            for array in (*weights, images, labels):
                file.write(array.astype(numpy.float32).tobytes())
        widths = ",".join(map(str, hidden)) or "-"
        sizes = map(str, (*shape, classes, len(labels)))
        lines = subprocess.run([dump, model, *sizes, widths, source, result], check=True,
                               capture_output=True, text=True).stdout.splitlines()
        return lines, numpy.fromfile(result, dtype=numpy.float32)


def check(dump, make, shape, classes, batch, hidden, ties=False):
    torch.manual_seed(5)
    module = make(shape, classes, hidden)
    randomise(module)
    state = {n: v for n, v in module.state_dict().items() if not n.endswith("num_batches_tracked")}
    draws = (numpy.random.default_rng(seed).random((batch, *shape), dtype=numpy.float32)
             for seed in range(1 if ties else TRIES))
    images = max(draws, key=lambda draw: margin(module, draw))
    labels = numpy.random.default_rng(7).integers(0, classes, batch)

    lines, values = run_dump(dump, make.__name__, shape, classes, hidden,
                             [v.numpy() for v in state.values()], images, labels)
    want_lines = [" ".join(map(str, (n, *v.shape))) for n, v in state.items()]
    assert lines == want_lines, f"names, order or shapes differ: {lines} {want_lines}"
    sizes = [v.numel() for v in state.values()]
    loss, eval_loss, eval_correct = values[:3]
    gradients = numpy.split(values[3:], numpy.cumsum(sizes)[:-1])

    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    module.eval()
    with torch.no_grad():
        logits = module(x)
        want_eval = nn.functional.cross_entropy(logits, y, reduction="sum").item()
        want_correct = (logits.argmax(1) == y).sum().item()
    module.train()
    reported(module)
    want_loss = nn.functional.cross_entropy(module(x), y)
    want_loss.backward()

    want = {n: p.grad.numpy() for n, p in module.named_parameters()}
    want.update({n: b.numpy() for n, b in module.named_buffers() if "running" in n})
    worst = {"loss": abs(loss - want_loss.item()) / want_loss.item(),
             "evaluated loss": abs(eval_loss - want_eval) / want_eval,
             "correct": abs(eval_correct - want_correct)}
    for name, got in zip(state, gradients):
        # a bias before BatchNorm has gradient 0: both results are rounding errors
        if make is convnet and name in ("layer1.0.bias", "layer2.0.bias"):
            assert numpy.abs(got).max() < 1e-4, name
            continue
        worst[name] = difference(got, want[name])
    tied = [name for name in worst if ties and name.startswith("layer")]
    good = True
    for names, tolerance in ((tied, TIE_TOLERANCE), (worst.keys() - tied, TOLERANCE)):
        if not names:
            continue
        name = max(names, key=worst.get)
        good = good and worst[name] <= tolerance
        print(f"{make.__name__} {shape} classes {classes} batch {batch} hidden {hidden}: "
              f"worst {name} {worst[name]:.1e} of {tolerance:.0e}"
              f"{'' if worst[name] <= tolerance else ' TOO FAR'}")
    return good


def main():
    torch.set_num_threads(1)
    dump = sys.argv[1]
    results = [
        check(dump, mlp, (1, 8, 8), 10, 8, [64, 32]),
        check(dump, mlp, (1, 28, 28), 10, 64, [128]),
        check(dump, mlp, (3, 7, 5), 3, 5, []),
        check(dump, mlp, (784, 1, 1), 100, 33, [200, 100, 50]),
        check(dump, convnet, (1, 28, 28), 10, 100, [], ties=True),
        check(dump, convnet, (1, 28, 28), 10, 8, []),
        check(dump, convnet, (3, 32, 32), 10, 16, []),
        check(dump, convnet, (1, 8, 8), 10, 1, []),
        check(dump, convnet, (3, 13, 11), 7, 6, []),
        check(dump, convnet, (5, 4, 9), 4, 7, []),
    ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
