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
            library, job = begun(model, ())
            list(job.tasks())
            self.assertEqual([tensor[0] for tensor in library.tensors], ["weight", "bias"])

    def test_are_those_of_state_dict_if_a_part_is_called_module(self):
        model = NETWORKS["a part called module"]()
        library, job = begun(model, ())
        list(job.tasks())
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
        library.on_attach = lambda: library.weights.__setitem__(0, [2.0] * 18)
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
        library = FakeLibrary([(TRAIN, 0, 0, [0, 1, 2, 3, 4])]).install()
        job, model = pp.join(), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
        loader, optimizer = job.loader(TensorDataset(X)), job.optimizer(model)
        for x, in loader:
            model(x).mean().backward()
            self.assertEqual(model[0].momentum, 1.0)
            optimizer.step(loss=1)
        self.assertEqual(model[0].running_mean.tolist(), library.weights[2])
        self.assertEqual(model[0].momentum, 0.1)

    def test_that_is_scripted_or_has_no_memory_is_refused(self):
        for model, words in ((torch.jit.script(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))), "scripted module"),
                             (nn.Linear(6, 3, device="meta"), "weight is on the device meta")):
            with self.assertRaisesRegex(pp.Error, words):
                begun(model)


class Changes(unittest.TestCase):
    """Of a model, before the first task and after it."""

    def test_before_the_first_task_count(self):
        model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        library, job = begun(model)
        model.load_state_dict({name: torch.full_like(value, 3) for name, value in model.state_dict().items()})
        model.double().float()
        model.eval()
        model[0] = nn.Linear(6, 6)
        model.append(nn.Linear(6, 3))
        for task in job.tasks():
            self.assertTrue(all(part.training for part in model.modules()), "modes are those of attach")
            task.backward(F.cross_entropy(model(task.batch[0]), task.batch[1]))
        self.assertEqual([tensor[0] for tensor in library.tensors],
                         ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "2.weight", "2.bias"])
        self.assertEqual(library.weights[2], [3.0] * 6)
        self.assertEqual(sorted(library.given[0]), list(range(8)))

    def after_a_task(self, change, model=None, kinds=(TRAIN, TRAIN, TRAIN), same_weights=0):
        """Changes the model after each task. Returns the model."""
        model = model or nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        library, job = begun(model, [(kind, step, 0, BATCH) for step, kind in enumerate(kinds)], test=DATA)
        library.same_weights = same_weights
        for task in job.tasks():
            if task.training:
                task.backward(model(task.batch[0]).square().mean())
            else:
                task.report(loss=0, correct=0)
            change(model)
        self.assertEqual(library.tasks, [])
        return model

    def test_after_it_are_refused(self):
        def replaced(model):
            model[2] = nn.Linear(6, 3)

        def assigned(model):
            if "assign" in nn.Module.load_state_dict.__doc__:  # PyTorch 2.1
                model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
            else:
                model[0].weight = nn.Parameter(model[0].weight.detach().clone())

        def cleared(model):
            with torch.no_grad():
                model[2].bias[0] += 1

        frozen = nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 3))
        for change, words in (
                (lambda model: model.double().float(), "1.running_mean is another object since the first task"),
                (replaced, "2.weight is another object since the first task"),
                (assigned, "0.weight is another object since the first task"),
                (lambda model: model.append(nn.Linear(3, 3)), "parameter 3.weight was added after the first task"),
                (cleared, "changed 2.bias after the first task"),
                (lambda model: nn.utils.vector_to_parameters(torch.zeros(81), model.parameters()), "changed 0.weight after the first"),
                (lambda model: [p.data.clamp_(-0.01, 0.01) for p in model.parameters()], "changed 0.weight after the first task")):
            for same_weights in (0, 1):
                with self.subTest(words), self.assertRaisesRegex(pp.Error, words) as caught:
                    self.after_a_task(change, same_weights=same_weights)
                self.assertEqual(caught.exception.code, 2)
        with self.assertRaisesRegex(pp.Error, "parameter 0.weight requires a gradient, but was frozen at the first task"):
            self.after_a_task(lambda model: model.requires_grad_(True), frozen)

    def test_between_the_micro_batches_of_a_step_are_refused_at_once(self):
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
        library, job = begun(model, [(TRAIN, 0, part, BATCH) for part in range(3)])
        library.same_weights = 1
        with self.assertRaisesRegex(pp.Error, "changed 1.bias after the first task"):
            for task in job.tasks():
                task.backward(model(task.batch[0]).square().mean())
                model[1].bias.data.clamp_(-0.01, 0.01)  # no version counts it
        self.assertEqual(len(library.losses), 1)

    def test_that_are_undone_are_none(self):
        def swapped(model):
            kept = [parameter.detach().clone() for parameter in model.parameters()]
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
                for parameter, value in zip(model.parameters(), kept):
                    parameter.copy_(value)

        def moved(model):
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()

        self.after_a_task(swapped, kinds=(TRAIN, EVALUATE, TRAIN))
        self.after_a_task(moved)
        self.after_a_task(lambda model: setattr(model, "extra", nn.ReLU()))

    def test_of_weights_by_the_servers_are_seen_by_autograd(self):
        model = nn.Linear(6, 3)
        _, job = begun(model, [(TRAIN, 0, 0, BATCH), (TRAIN, 1, 0, BATCH)])
        tasks = job.tasks()
        task = next(tasks)
        x = task.batch[0].requires_grad_()
        stale = model(x).square().mean()
        task.backward(stale, retain_graph=True)
        next(tasks)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            stale.backward()

    def test_two_parameters_in_one_memory_are_refused(self):
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        model[1].weight.data = model[0].weight.data
        with self.assertRaisesRegex(pp.Error, "0.weight and 1.weight share memory"):
            begun(model)
        flat = torch.zeros(12)
        parts = Net(lambda net, x: x, a=nn.Parameter(flat[:6]), b=nn.Parameter(flat[6:]))
        begun(parts)


class Threads(unittest.TestCase):
    def test_of_another_number_after_the_first_task_are_refused(self):
        model = nn.Linear(6, 3)
        _, job = begun(model, [(TRAIN, 0, 0, BATCH), (TRAIN, 1, 0, BATCH)])
        try:
            with self.assertRaisesRegex(pp.Error, "2 threads now, and had 1 at the first task"):
                for task in job.tasks():
                    task.backward(model(task.batch[0]).mean())
                    torch.set_num_threads(2)
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
