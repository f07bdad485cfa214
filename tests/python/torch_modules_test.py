#!/usr/bin/env python3
"""pushpull.torch with a fake library: modules of many kinds against plain PyTorch, and the state in which a loop leaves them."""
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

import torch.nn.functional as F
from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

import pushpull.torch as pp
from pushpull._seeds import COMPUTE, mixed, seed_all

torch.set_num_threads(1)
X = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, torch.arange(40) % 3)
BATCH = [0, 1, 2, 3, 4]


class Net(nn.Module):
    """parts: modules and parameters, by name."""

    def __init__(self, compute, **parts):
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.compute(self, x)


def tied():
    net = Net(lambda net, x: net.c(net.b(net.a(x))), a=nn.Linear(6, 6), b=nn.Linear(6, 6), c=nn.Linear(6, 3))
    net.b.weight = net.a.weight
    return net


def checkpointed(reentrant):
    part = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.5))
    return Net(lambda net, x: net.b(checkpoint(net.a, x.clone().requires_grad_(), use_reentrant=reentrant)), a=part,
               b=nn.Linear(6, 3))


def checkpointed_twice():
    part = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    return Net(lambda net, x: net.b(checkpoint(net.a, checkpoint(net.a, x, use_reentrant=False), use_reentrant=False)), a=part,
               b=nn.Linear(6, 3))


NETWORKS = {
    "reentrant checkpoints": lambda: checkpointed(True),
    "checkpoints": lambda: checkpointed(False),
    "checkpoints of one part twice": checkpointed_twice,
    "weight norm": lambda: nn.utils.weight_norm(nn.Linear(6, 3)),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(6, 3)),
    "tied": tied,
    "a normalisation twice": lambda: Net(lambda net, x: net.a(net.norm(net.norm(x))), norm=nn.BatchNorm1d(6), a=nn.Linear(6, 3)),
    "attention": lambda: Net(lambda net, x: net.b(net.a(*[x[:, None, :]] * 3)[0][:, 0]), a=nn.MultiheadAttention(6, 2),
                             b=nn.Linear(6, 3)),
    "lstm": lambda: Net(lambda net, x: net.b(net.a(x[:, :, None])[0][:, -1]), b=nn.Linear(5, 3),
                        a=nn.LSTM(1, 5, batch_first=True, num_layers=2, dropout=0.2)),
    "a scalar": lambda: Net(lambda net, x: net.a(x) * net.t, t=nn.Parameter(torch.tensor(2.0)), a=nn.Linear(6, 3)),
    "a transposed parameter": lambda: Net(lambda net, x: x @ net.t, t=nn.Parameter(torch.randn(3, 6).t())),
    "a part called module": lambda: Net(lambda net, x: net.module(net.a(x)), module=nn.Linear(6, 3), a=nn.Linear(6, 6)),
}


def penalty(model, x, y):
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(model(x), y)
    return loss + torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def begun(model, tasks=((TRAIN, 0, 0, BATCH),), **options):
    """Returns the fake library and the job."""
    library = FakeLibrary(tasks).install()
    job = pp.join()
    job.attach(model, train=DATA, **options)
    return library, job


class Gradients(unittest.TestCase):
    def expect_those_of_autograd(self, make, loss_of, **options):
        torch.manual_seed(0)
        model = make()
        torch.manual_seed(0)
        plain = make()
        library, job = begun(model)
        for task in job.tasks():
            task.backward(loss_of(model, *task.batch), **options)
        seed_all(7, COMPUTE, 0, 0)
        loss_of(plain, *DATA[:5]).backward(**options)
        parameters = dict(plain.named_parameters())
        trained = [(index, name) for index, (name, *_, momentum) in enumerate(library.tensors) if momentum is None]
        self.assertEqual([name for _, name in trained], list(parameters))
        for index, name in trained:
            want = parameters[name].grad.flatten()
            self.assertTrue(torch.allclose(torch.tensor(library.given[0][index]), want, atol=1e-6), name)

    def test_are_those_of_autograd_for_each_network(self):
        for name, make in NETWORKS.items():
            with self.subTest(name):
                self.expect_those_of_autograd(make, cross_entropy)

    def test_are_those_of_autograd_with_a_gradient_in_the_loss_and_with_options(self):
        self.expect_those_of_autograd(lambda: nn.Linear(6, 3), penalty)
        self.expect_those_of_autograd(lambda: nn.Linear(6, 3), cross_entropy, retain_graph=True)

    def test_that_come_twice_in_one_backward_name_the_checkpoints(self):
        part = nn.Linear(6, 6)
        model = Net(lambda net, x: checkpoint(net.a, checkpoint(net.a, x.requires_grad_(), use_reentrant=True),
                                              use_reentrant=True), a=part)
        _, job = begun(model)
        with self.assertRaisesRegex(pp.Error, "second one of a.bias .*use_reentrant=False"):
            for task in job.tasks():
                task.backward(model(task.batch[0]).mean())


class Names(unittest.TestCase):
    def test_are_those_of_the_module_inside_a_wrapper(self):
        wrapped = [nn.DataParallel(nn.Linear(6, 3))]
        if hasattr(torch, "compile"):
            wrapped.append(torch.compile(nn.Linear(6, 3), backend="eager"))
        for model in wrapped:
            library, _ = begun(model)
            self.assertEqual([tensor[0] for tensor in library.tensors], ["weight", "bias"])

    def test_are_those_of_state_dict_if_a_part_is_called_module(self):
        model = NETWORKS["a part called module"]()
        library, _ = begun(model)
        self.assertEqual({tensor[0] for tensor in library.tensors}, set(model.state_dict()))


class Seeds(unittest.TestCase):
    def test_draw_what_manual_seed_draws(self):
        seed_all(1, 2, 3)
        ours = torch.rand(3)
        torch.manual_seed(mixed(1, 2, 3))
        self.assertTrue(torch.equal(ours, torch.rand(3)))


class TheModule(unittest.TestCase):
    def test_gets_its_weights_whatever_the_default_type_is(self):
        model = NETWORKS["a transposed parameter"]()
        library, job = begun(model)
        library.weights[0] = [2.0] * 18
        torch.set_default_dtype(torch.float64)
        try:
            for task in job.tasks():
                self.assertTrue(bool((model.t == 2).all()))
                task.backward(model(task.batch[0].float()).mean())
        finally:
            torch.set_default_dtype(torch.float32)

    def test_has_the_jobs_statistics_after_the_loop(self):
        for leave in (False, True):
            model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
            library, job = begun(model)
            for task in job.tasks():
                loss = model(task.batch[0]).mean()
                if leave:
                    break
                task.backward(loss)
            self.assertEqual(model[0].running_mean.tolist(), library.weights[2])
            self.assertEqual(model[0].momentum, 0.1)

    def test_has_its_momentum_and_statistics_after_a_loop_of_its_own(self):
        library = FakeLibrary([(TRAIN, 0, 0, [0])], micro_batch=1).install()
        job, inner = pp.join(), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
        model = pp.DistributedModel(inner, job)
        model(X[:5]).mean().backward()
        self.assertFalse(job.step())
        self.assertEqual(inner[0].running_mean.tolist(), library.weights[2])
        self.assertEqual(inner[0].momentum, 0.1)

    def test_that_thaws_after_attach_is_refused(self):
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
        model[0].requires_grad_(False)
        _, job = begun(model)
        model[0].requires_grad_(True)
        with self.assertRaisesRegex(pp.Error, "parameter 0.weight requires a gradient, but was frozen at attach"):
            next(job.tasks())

    def test_that_is_scripted_or_has_no_memory_is_refused(self):
        for model, words in ((torch.jit.script(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))), "scripted module"),
                             (nn.Linear(6, 3, device="meta"), "weight is on the device meta")):
            with self.assertRaisesRegex(pp.Error, words):
                begun(model)


class Threads(unittest.TestCase):
    def test_of_another_number_after_attach_are_refused(self):
        _, job = begun(nn.Linear(6, 3))
        torch.set_num_threads(2)
        try:
            with self.assertRaisesRegex(pp.Error, "2 threads now, and had 1 at attach"):
                next(job.tasks())
        finally:
            torch.set_num_threads(1)


class Reports(unittest.TestCase):
    def refused(self, text, **figures):
        _, job = begun(nn.Linear(6, 3), [(EVALUATE, -1, 0, [0, 1])], test=DATA)
        with self.assertRaisesRegex(pp.Error, text):
            next(job.tasks()).report(**figures)

    def test_that_cannot_be_right_name_the_figure(self):
        self.refused(r"loss of head output is \[3\]: expected a scalar", loss=torch.ones(3), correct=1)
        self.refused(r"correct of head output is \[2\]: expected a scalar", loss=1, correct=torch.ones(2))
        self.refused("head output has .*'acc': 2.*: expected a dict", output={"loss": 1, "acc": 2})
        for wrong in (0.5, float("nan")):
            self.refused("correct of head output is .*: expected a whole number", loss=1, correct=wrong)
            self.refused("count of head output is .*: expected a whole number", loss=1, correct=0, count=wrong)
        self.refused("head output has 3: expected a dict", output=3)


if __name__ == "__main__":
    unittest.main()
