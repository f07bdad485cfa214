#!/usr/bin/env python3
"""pushpull.torch with a fake library: gradients and statistics as plain PyTorch computes them, and users' mistakes."""
import contextlib
import copy
import io
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import time
import unittest
import warnings

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

import torch.nn.functional as F
from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset, WeightedRandomSampler

import pushpull.torch as pp
from pushpull._library import NO_LOSS

torch.set_num_threads(1)


def images(count=40):
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randn(count, 1, 8, 8, generator=generator), torch.randint(0, 3, (count,), generator=generator))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
                         nn.Linear(4 * 64, 3))


def training(*places, size=5):
    return [(TRAIN, step, micro_batch, list(range(5 * micro_batch, 5 * micro_batch + size))) for step, micro_batch in places]


def run(library, model, **options):
    """Trains with the tasks of the library. Returns the job."""
    library.install()
    job = pp.join()
    data = images()
    job.attach(model, train=data, **{"test": data, **options})
    for task in job.tasks():
        x, y = task.batch
        out = model(x)
        loss = F.cross_entropy(out, y)
        if task.training:
            task.backward(loss)
        else:
            task.report(loss=loss, correct=(out.argmax(1) == y).sum())
    return job


class Gradients(unittest.TestCase):
    def test_are_those_of_autograd_and_statistics_are_those_of_the_batch(self):
        model, library = network(), FakeLibrary(training((0, 1)))
        run(library, model)
        names = [tensor[0] for tensor in library.tensors]
        self.assertEqual(names, ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var", "5.weight", "5.bias"])
        plain = network()
        plain[1].momentum = 1.0
        x, y = zip(*(images()[i] for i in range(5, 10)))
        from pushpull._seeds import COMPUTE, seed_all
        seed_all(7, COMPUTE, 0, 1)
        loss = F.cross_entropy(plain(torch.stack(x)), torch.stack(y))
        loss.backward()
        want = {name: parameter.grad for name, parameter in plain.named_parameters()}
        want.update({f"1.{key}": getattr(plain[1], key) for key in ("running_mean", "running_var")})
        for index, name in enumerate(names):
            self.assertTrue(torch.equal(torch.tensor(library.given[0][index]), want[name].flatten()), name)
        self.assertEqual(library.losses, [loss.item()])
        self.assertEqual(model[1].momentum, 0.1, "the module has its momentum back after the loop")

    def test_depend_on_step_and_micro_batch_but_not_on_what_was_drawn_before(self):
        first, again = FakeLibrary(training((0, 1), (1, 1), (0, 1))), FakeLibrary(training((0, 1)))
        run(first, network())
        random.random()
        torch.rand(3)
        run(again, network())
        self.assertEqual(first.given[0], again.given[0])
        self.assertEqual(first.given[0], first.given[2])
        self.assertNotEqual(first.given[0], first.given[1])

    def test_of_several_losses_are_added(self):
        data = images()
        grads = []
        for parts in (1, 2):
            library = FakeLibrary(training((0, 0))).install()
            torch.manual_seed(3)
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
            job = pp.join()
            job.attach(model, train=data)
            for task in job.tasks():
                x, y = task.batch
                out = model(x)
                for part in range(parts - 1):
                    task.backward(out.square().mean(), last=False, retain_graph=True)
                rest = F.cross_entropy(out, y)
                task.backward(rest if parts == 2 else rest + out.square().mean())
            grads.append((torch.tensor(library.given[0][0]), library.losses[0]))
        self.assertTrue(torch.allclose(grads[0][0], grads[1][0], atol=1e-6))
        self.assertAlmostEqual(grads[0][1], grads[1][1], places=5)

    def test_of_unused_frozen_and_tied_parameters(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(64, 3)
                self.tied = self.first
                self.unused = nn.Linear(4, 4)
                self.frozen = nn.Linear(3, 3)
                self.frozen.requires_grad_(False)

            def forward(self, x):
                return self.frozen(self.first(x.flatten(1)))

        library = FakeLibrary(training((0, 0)))
        run(library, Net())
        self.assertEqual([tensor[0] for tensor in library.tensors], ["first.weight", "first.bias", "unused.weight", "unused.bias"])
        self.assertEqual(set(library.given[0]), {0, 1}, "an unused parameter has no gradient, which counts as zeros")
        self.assertNotIn("local tensors none", library.data[2])

    def test_with_autocast_are_float32(self):
        library = FakeLibrary(training((0, 0)))
        library.install()
        model, data = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), images()
        job = pp.join()
        job.attach(model, train=data)
        for task in job.tasks():
            x, y = task.batch
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(x)
                self.assertEqual(out.dtype, torch.bfloat16)
                loss = F.cross_entropy(out.float(), y)
            task.backward(loss)
        self.assertEqual(set(library.given[0]), {0, 1})

    def test_of_a_compiled_model(self):
        if not hasattr(torch, "compile"):
            self.skipTest(f"torch {torch.__version__} has no compile")
        library, want = FakeLibrary(training((0, 0), (0, 1))), FakeLibrary(training((0, 0), (0, 1)))
        model = lambda: (torch.manual_seed(2), nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))[1]  # noqa: E731
        run(library, torch.compile(model(), backend="aot_eager"))
        run(want, model())
        self.assertEqual([tensor[0] for tensor in library.tensors], ["1.weight", "1.bias"])
        for ours, theirs in zip(library.given, want.given):
            self.assertTrue(torch.allclose(torch.tensor(ours[0]), torch.tensor(theirs[0]), atol=1e-6))

    def test_of_tensors_that_are_not_contiguous(self):
        library, want = FakeLibrary(training((0, 0))), FakeLibrary(training((0, 0)))
        run(library, network().to(memory_format=torch.channels_last))
        run(want, network())
        self.assertEqual(library.weights, want.weights)
        self.assertTrue(torch.allclose(torch.tensor(library.given[0][0]), torch.tensor(want.given[0][0]), atol=1e-5))

    def test_weights_of_a_task_are_in_the_model(self):
        model, library = network(), FakeLibrary(training((0, 0)))
        library.install()
        job = pp.join()
        job.attach(model, train=images())
        library.on_attach = lambda: library.weights.__setitem__(0, [2.0] * len(library.weights[0]))
        for task in job.tasks():
            self.assertTrue(bool((model[0].weight == 2).all()))
            task.backward(model(task.batch[0]).mean())


def scaler_that_scales():
    """Returns a GradScaler that claims to scale, which those of PyTorch 1.13 do on a GPU only."""
    class Scaler(torch.cuda.amp.GradScaler):
        def is_enabled(self):
            return True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Scaler()


class Declarations(unittest.TestCase):
    def test_groups_set_rate_and_decay(self):
        library = FakeLibrary()
        run(library, network(), groups=[pp.group("*.bias", weight_decay=0), pp.group("5.*", lr=0.5)])
        found = {name: (rate, decay) for name, _, rate, decay, _ in library.tensors}
        self.assertEqual(found["1.bias"], (None, 0.0))
        self.assertEqual(found["5.bias"], (None, 0.0))
        self.assertEqual(found["5.weight"], (0.5, None))
        self.assertEqual(found["0.weight"], (None, None))
        self.assertEqual(library.undecayed, [], "groups say which tensors decay")
        library = FakeLibrary()
        run(library, network(), groups=[pp.group("5.*", lr=0.5)])
        averages = {"1.running_mean", "1.running_var"}
        self.assertEqual(set(library.undecayed) - averages, {"1.weight", "1.bias", "5.bias"}, "biases and norms")

    def test_initial_weights_are_the_modules(self):
        model, library = network(), FakeLibrary()
        run(library, model)
        self.assertEqual(library.weights[0], model[0].weight.flatten().tolist())
        self.assertEqual(library.weights[4], [1.0] * 4)

    def test_digest_differs_if_the_data_differ(self):
        digests = []
        for change in (0, 0, 1):
            library, data = FakeLibrary().install(), images()
            data.tensors[0][0] += change
            job = pp.join()
            job.attach(network(), train=data)
            list(job.tasks())
            digests.append(library.data[2])
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_numerics_name_version_and_threads(self):
        library = FakeLibrary()
        run(library, network())
        self.assertIn(f"torch {torch.__version__}", library.data[3])
        self.assertIn("1 threads", library.data[3])


class Evaluations(unittest.TestCase):
    def test_run_without_gradients_and_give_sums(self):
        library = FakeLibrary([(EVALUATE, -1, 0, [0, 1, 2]), *training((0, 0))]).install()
        model, data, modes = network(), images(), []
        job = pp.join()
        job.attach(model, train=data, test=data)
        for task in job.tasks():
            out, part = model(task.batch[0]), model[0](task.batch[0])
            modes.append((model[1].training, out.requires_grad, part.requires_grad))
            loss = F.cross_entropy(out, task.batch[1])
            if task.training:
                task.backward(loss)
            else:
                task.report(loss=loss, correct=torch.tensor(2))
                want = float(loss) * 3
        self.assertEqual(modes, [(False, False, False), (True, True, True)])
        self.assertEqual(library.reports, [[(want, 3, 2.0)]])
        self.assertTrue(torch.is_grad_enabled())

    def test_leave_autograd_on_however_a_loop_is_left(self):
        class Fails(nn.Module):
            def forward(self, x):
                if x is None:
                    raise KeyboardInterrupt
                return x

        data, model = images(), nn.Sequential(Fails(), nn.Flatten(), nn.Linear(64, 3))
        FakeLibrary([(EVALUATE, -1, 0, [0, 1]), *training((0, 0))]).install()
        job = pp.join()
        job.attach(model, train=data, test=data)
        kept = job.tasks()  # as a traceback keeps it
        for task in kept:
            self.assertFalse(model(task.batch[0]).requires_grad)
            for copy_of_it in (copy.deepcopy(model), pickle.loads(pickle.dumps(nn.Sequential(*model[1:])))):
                self.assertTrue(copy_of_it(task.batch[0]).requires_grad)
            break
        self.assertTrue(torch.is_grad_enabled())
        model.train()
        self.assertTrue(model(data[:2][0]).requires_grad)
        model.eval()
        with contextlib.suppress(KeyboardInterrupt):
            model(None)
        for task in job.tasks():
            self.assertTrue(torch.is_grad_enabled())
            if task.training:
                task.backward(model(task.batch[0]).mean())
            else:
                task.report(loss=1, correct=0)

    def test_of_several_heads(self):
        library = FakeLibrary([(EVALUATE, -1, 0, [0, 1])]).install()
        job, data = pp.join(), images()
        job.attach(network(), train=data, test=data, metric={"start": "accuracy", "rest": "mean squared error"})
        for task in job.tasks():
            with self.assertRaisesRegex(pp.Error, "the heads are start, rest"):
                task.report(loss=1)
            task.report(start={"loss": 0.5, "correct": 1}, rest={"loss": 2.0, "squared_error": 8, "count": 4})
        self.assertEqual(library.heads, [("start", 0), ("rest", 1)])
        self.assertEqual(library.reports, [[(1.0, 2, 1.0), (8.0, 4, 8.0)]])

    def test_a_part_in_evaluation_mode_stays_so(self):
        model, library = network(), FakeLibrary([(EVALUATE, -1, 0, [0]), *training((0, 0))])
        model[1].eval()
        run(library, model)
        self.assertFalse(model[1].training)
        self.assertNotIn("1.running_mean", [tensor[0] for tensor in library.tensors])


class Batches(unittest.TestCase):
    class Noisy(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.full((1, 8, 8), float(index)) + torch.rand(1) + random.random(), index % 3

    def batches(self, workers, announces):
        library = FakeLibrary(training(*((step, part) for step in range(6) for part in range(2))), announces=announces).install()
        job = pp.join()
        job.attach(network(), train=self.Noisy(), num_workers=workers)
        seen = []
        for task in job.tasks():
            seen.append(task.batch[0].clone())
            task.backward(job._tensors.module(task.batch[0]).mean())
        job.leave()
        self.assertTrue(library.freed)
        return seen

    def test_are_the_same_with_any_number_of_processes(self):
        want = self.batches(0, False)
        for workers, announces in ((0, True), (1, True), (3, True), (2, False)):
            got = self.batches(workers, announces)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(want, got)), f"{workers} processes")

    def test_are_read_once_if_the_first_of_them_are_not_announced(self):
        tasks, read = training((0, 0), (0, 2), (1, 0), (1, 3)), []

        class Recorded(Dataset):
            def __len__(self):
                return 40

            def __getitem__(self, index):
                return images()[index]

            def __getitems__(self, indices):
                read.append(indices)
                return [self[index] for index in indices]

        library = FakeLibrary(tasks, announces=True).install()
        library.announced.pop(0)
        job, model = pp.join(), network()
        job.attach(model, train=Recorded())
        for task in job.tasks():
            task.backward(model(task.batch[0]).mean())
        self.assertEqual(sorted(read), sorted(task[3] for task in tasks))

    def test_of_a_task_that_another_worker_gets_are_not_used(self):
        library = FakeLibrary(training((0, 0), (0, 1))).install()
        library.announced = [(TRAIN, 0, 3, 0, [15, 16]), (TRAIN, 0, 1, 0, [5, 6, 7, 8, 9])]
        job, model = pp.join(), network()
        job.attach(model, train=images())
        for task in job.tasks():
            self.assertTrue(torch.equal(task.batch[1], images().tensors[1][task.indices]))
            task.backward(model(task.batch[0]).mean())

    def test_a_hang_of_the_data_set_is_named_while_it_is_read_ahead(self):
        class Slow(self.Noisy):
            def __getitem__(self, index):
                time.sleep(20 if index == 5 else 0)
                return super().__getitem__(index)

        FakeLibrary(training((0, 0), (0, 1)), announces=True, task_timeout=0.3).install()
        job = pp.join()
        job.attach(network(), train=Slow(), data_digest="slow")
        with self.assertRaises(KeyboardInterrupt):
            for task in job.tasks():
                task.backward(job._tensors.module(task.batch[0]).mean())
        self.assertRegex(str(job._session.failure), "task-timeout.*step 0, micro-batch 1 .*torch_job_test.py, line")

    def test_a_mistake_in_the_data_set_is_named(self):
        class Broken(self.Noisy):
            def __getitem__(self, index):
                if index == 7:
                    raise ValueError("no such picture")
                return super().__getitem__(index)

        FakeLibrary(training((0, 0), (0, 1)), announces=True).install()
        job = pp.join()
        job.attach(network(), train=Broken(), num_workers=1, data_digest="broken")
        with self.assertRaisesRegex(pp.Error, "ValueError: no such picture .*torch_job_test.py, line"):
            for task in job.tasks():
                task.backward(job._tensors.module(task.batch[0]).mean())
        job.leave()

    def test_a_killed_process_is_named(self):
        class Deadly(self.Noisy):
            def __getitem__(self, index):
                os.kill(os.getpid(), 9)

        FakeLibrary(training((0, 0))).install()
        job = pp.join()
        job.attach(network(), train=Deadly(), num_workers=2, data_digest="deadly")
        with self.assertRaisesRegex(pp.Error, "which reads samples, was killed by signal 9"):
            list(job.tasks())
        job.leave()


class Mistakes(unittest.TestCase):
    def refused(self, text, **options):
        FakeLibrary().install()
        with self.assertRaisesRegex(pp.Error, text) as caught:
            pp.join().attach(**{"model": network(), "train": images(), **options})
        self.assertEqual(caught.exception.code, 2)

    def test_at_attach_name_the_thing(self):
        class Endless(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter([])

        self.refused("0.weight is torch.float16", model=network().half())
        self.refused("train data set .Endless. has neither indices nor a length", train=Endless())
        self.refused("test data set", test=iter([]))
        self.refused("sparse gradients", model=nn.Embedding(5, 5, sparse=True))
        self.refused("SyncBatchNorm", model=nn.Sequential(nn.SyncBatchNorm(3)))
        self.refused("momentum=None", model=nn.Sequential(nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 3)))
        self.refused("has no parameter", model=nn.ReLU())
        self.refused("'\\*.bais' fits no parameter", groups=[pp.group("*.bais")])
        self.refused("lr or weight_decay is -1", groups=[pp.group("*", lr=-1)])
        self.refused("metric 'f1'", metric="f1", test=images())

    def test_a_scaled_loss_and_a_clipped_gradient_are_named(self):
        def scaled(model, task):
            task.backward(scaler_that_scales().scale(model(task.batch[0]).mean()))

        def clipped(model, task):
            task.backward(model(task.batch[0]).mean())
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

        for ends, words in ((scaled, r"GradScaler has scaled the loss.*call task.backward\(loss\) without scaler.scale"),
                            (clipped, "changed the gradient of .* after backward.* the job's key clip-norm")):
            FakeLibrary(training((0, 0), (0, 1))).install()
            job, model = pp.join(), network()
            job.attach(model, train=images())
            with self.assertRaisesRegex(pp.Error, words) as caught:
                for task in job.tasks():
                    ends(model, task)
            self.assertEqual(caught.exception.code, 2)

    def test_attach_twice(self):
        FakeLibrary().install()
        job = pp.join()
        job.attach(network(), train=images())
        with self.assertRaisesRegex(pp.Error, "can be called once"):
            job.attach(network(), train=images())

    def test_a_model_that_changes_after_attach_is_named(self):
        for change, words in (
                (lambda model: model.half(), "1.running_mean is another object since the first task"),
                (lambda model: model[0].half(), "0.weight is torch.float16 with 36 elements now, and was float32 with 36"),
                (lambda model: setattr(model[5].weight, "data", torch.zeros(2, 2)), "5.weight is torch.float32 with 4 elements now")):
            FakeLibrary(training((0, 0), (0, 1))).install()
            job, model = pp.join(), network()
            job.attach(model, train=images())
            with self.assertRaisesRegex(pp.Error, words):
                for task in job.tasks():
                    task.backward(model(task.batch[0]).mean())
                    change(model)

    def test_in_a_task_name_the_thing(self):
        FakeLibrary([*training((0, 0)), (EVALUATE, -1, 0, [0])]).install()
        job, model, data = pp.join(), network(), images()
        with self.assertRaisesRegex(pp.Error, "call job.attach first"):
            next(job.tasks())
        job.attach(model, train=data, test=data)
        tasks = job.tasks()
        task = next(tasks)
        out = model(task.batch[0])
        with self.assertRaisesRegex(pp.Error, r"step 0, micro-batch 0: the loss is \[5, 3\], expected a scalar"):
            task.backward(out)
        with self.assertRaisesRegex(pp.Error, "expected a scalar"):
            task.backward(3.0)
        with self.assertRaisesRegex(pp.Error, "ends with task.backward"):
            task.report(loss=1)
        task.backward(out.mean())
        with self.assertRaisesRegex(pp.Error, "has ended"):
            task.backward(out.mean())
        task = next(tasks)
        with self.assertRaisesRegex(pp.Error, "lacks correct="):
            task.report(loss=1)
        with self.assertRaisesRegex(pp.Error, "was not ended: call task.backward"):
            next(tasks)

    def test_a_loop_that_was_left_goes_on_with_its_task(self):
        library = FakeLibrary(training((0, 0), (0, 1))).install()
        job, model = pp.join(), network()
        job.attach(model, train=images())
        for task in job.tasks():
            break
        seen = []
        for task in job.tasks():
            seen.append(task.micro_batch)
            task.backward(model(task.batch[0]).mean())
        self.assertEqual(seen, [0, 1])
        self.assertEqual(len(library.given), 2)

    def test_a_forked_process_has_no_session(self):
        FakeLibrary(training((0, 0))).install()
        job = pp.join()
        job.attach(network(), train=images())
        child = os.fork()
        if child == 0:
            try:
                next(job.tasks())
            except pp.Error as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_process_forked_in_the_loop_ends_without_a_traceback(self):
        script = (f"import os, sys\nsys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
                  "from torch_job_test import FakeLibrary, images, network, pp, training\n"
                  "FakeLibrary(training((0, 0))).install()\njob = pp.join()\n"
                  "job.attach(network(), train=images(), num_workers=1)\n"
                  "for task in job.tasks():\n"
                  "    child = os.fork()\n    if child == 0: sys.exit(3)\n"
                  "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n    task.backward(job_loss(task))\n")
        script = script.replace("job_loss(task)", "job._tensors.module(task.batch[0]).mean()")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("3\n", "", 0))


class OwnLoop(unittest.TestCase):
    def begun(self, tasks, model=None, loader=(), **options):
        library = FakeLibrary(tasks, **options).install()
        job, model = pp.join(), model or network()
        return library, job, model, job.loader(images(), **dict(loader)), job.optimizer(model)

    def train(self, model, optimizer, batch, **options):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step(**options)
        return loss

    def test_gives_the_gradients_of_a_loop_over_tasks(self):
        places = (0, 1), (1, 0), (1, 2)
        want = FakeLibrary(training(*places))
        run(want, network())
        library, job, model, loader, optimizer = self.begun(training(*places))
        self.assertEqual((job.rank, job.world_size, job.strategy, job.steps), (0, 4, "sync", 6))
        self.assertEqual((len(loader), loader.batch_size, len(loader.dataset)), (2, 5, 40))
        rates = []
        for epoch in job.epochs():
            for batch in loader:
                random.random()  # as a script that draws numbers of its own
                self.train(model, optimizer, batch, loss=0.25)
                rates.append((job.lr, optimizer.param_groups[0]["lr"]))
        self.assertEqual(library.given, want.given)
        self.assertEqual(library.losses, [0.25] * 3)
        self.assertTrue(all(abs(shown - rate) < 1e-9 for rate, shown in rates) and rates[0][0] > rates[1][0], rates)
        self.assertEqual((job.rank, job.world_size, model[1].momentum), (0, 4, 0.1))

    def test_has_the_length_of_its_share(self):
        library = FakeLibrary(workers=3).install()  # 40 samples are two steps of four micro-batches
        lengths = []
        for library.facts["rank"] in (0, 1, 2, 3):
            lengths.append(len(pp.join().loader(images())))
        library.facts.update(rank=0, workers=5)
        self.assertEqual((lengths, len(pp.join().loader(images()))), ([2, 2, 4, 2], 1))

    def test_reads_what_a_data_loader_has(self):
        def pair(samples):
            return torch.stack([sample[0] for sample in samples]), torch.tensor([int(sample[1]) for sample in samples])

        def loader_of(weights=None, **options):
            library = FakeLibrary([*training((0, 0), (1, 2)), (EVALUATE, -1, 0, [0, 1, 2])]).install()
            job, model, said, seen = pp.join(), network(), io.StringIO(), []
            with contextlib.redirect_stderr(said):
                loader = job.loader(DataLoader(images(), **options))
                optimizer = job.optimizer(model)
                job.evaluation(DataLoader(images(), collate_fn=pair), lambda batch: seen.append(batch) or {"loss": 0, "correct": 0})
                library.on_attach = lambda: weights and self.assertEqual(library.model.sample_weights[:40], weights)
                for batch in loader:
                    self.train(model, optimizer, batch, loss=0.5)
                    seen.append(batch)
            job.leave()
            return loader, [y.tolist() for x, y in seen], said.getvalue()

        labels = images().tensors[1].tolist()
        for options in ({"batch_size": 5, "shuffle": True, "num_workers": 1}, {"batch_size": 5}):
            loader, seen, said = loader_of(collate_fn=pair, **options)
            self.assertEqual((loader.collate_fn, loader.num_workers, said), (pair, options.get("num_workers", 0), ""))
            self.assertEqual(seen, [labels[:5], labels[10:15], labels[:3]])
        weights = [1.0 + i for i in range(40)]
        self.assertEqual(loader_of(weights, batch_size=5, sampler=WeightedRandomSampler(weights, 40))[2], "")
        for options, line in (({"batch_size": 8}, r"not these of the DataLoader: batch_size 8 \(the job has 5\)$"),
                              ({"batch_sampler": BatchSampler(range(40), 5, False)}, r"sampler BatchSampler \(the key sampler\)$"),
                              ({"batch_size": 5, "worker_init_fn": print}, "worker_init_fn of the script")):
            self.assertRegex(loader_of(**options)[2].strip(), line)
        with self.assertRaisesRegex(pp.Error, "batch_size=None, so its data set yields batches"):
            loader_of(batch_size=None, sampler=SequentialSampler(images()))

    def test_takes_the_groups_of_an_optimizer_of_torch(self):
        def declared(groups_of, **keys):
            library = FakeLibrary(training((0, 0))).install()
            library.facts.update(keys)
            job, model, said = pp.join(), network(), io.StringIO()
            with contextlib.redirect_stderr(said):
                loader, optimizer = job.loader(images()), job.optimizer(model, groups_of(model))
                self.train(model, optimizer, next(iter(loader)), loss=0.5)
            return {name: (rate, decay) for name, _, rate, decay, momentum in library.tensors if momentum is None}, said.getvalue()

        def three(model):
            return torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.01}, {"params": [model[5].weight]},
                                      {"params": [*model[1].parameters(), model[5].bias], "weight_decay": 0.0}], 0.02, weight_decay=0.3)

        found, said = declared(three)
        self.assertEqual(found, {"0.weight": (0.05, 0.3), "1.weight": (None, 0.0), "1.bias": (None, 0.0), "5.weight": (None, 0.3),
                                 "5.bias": (None, 0.0)})
        self.assertIn("optimizer AdamW (the key optimizer), lr 0.02 (the job has 0.1)", said)
        found, said = declared(lambda model: torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.2))
        self.assertEqual(set(found.values()), {(None, 0.2)})
        with self.assertRaisesRegex(pp.Error, "SGD has no group with 0.weight, 1.weight, 1.bias: a job trains all parameters"):
            declared(lambda model: torch.optim.SGD(model[5].parameters(), 0.1))

    def test_has_epochs_and_each_loop_may_be_left(self):
        tasks = [(TRAIN, step, 0, [0, 1, 2, 3, 4], epoch) for step, epoch in enumerate((0, 0, 2, 2, 1, 3))]
        library, job, model, loader, optimizer = self.begun(tasks)
        seen, broken = [], False
        for epoch in job.epochs():
            for batch in loader:
                if epoch == 2 and not broken:
                    broken = True  # the batch is not ended: it comes again
                    break
                self.train(model, optimizer, batch)
                seen.append((epoch, job.epoch, job._epoch))
            else:
                seen.append(epoch)
        self.assertEqual(seen, [(0, 0, 0), (0, 0, 0), 0, 1, (2, 2, 2), (2, 2, 2), (2, 2, 2), 2, (3, 3, 3), 3])
        self.assertEqual(len(library.losses), 6)
        self.assertEqual(list(loader), [], "after the end")

    def test_evaluates_where_the_job_does(self):
        tasks = [*training((0, 0)), (EVALUATE, -1, 0, [0, 1, 2]), *training((1, 0))]
        library, job, model, loader, optimizer = self.begun(tasks)
        modes = []

        def evaluate(batch):
            out = model(batch[0])
            modes.append((model.training, out.requires_grad))
            return {"loss": 0.5, "correct": (out.argmax(1) == batch[1]).sum() * 0 + 2}

        job.evaluation(images(), evaluate)
        for batch in loader:
            modes.append(model.training)
            self.train(model, optimizer, batch)
        self.assertEqual(modes, [True, (False, False), True])
        self.assertEqual(library.reports, [[(1.5, 3, 2.0)]])
        self.assertIsNone(job.evaluated())
        library.found = 2, [(0.5, 0.75)]
        self.assertEqual(job.evaluated(), {"step": 2, "loss": 0.5, "accuracy": 0.75})

    def test_of_a_script_that_returns_no_dict_is_named(self):
        _, job, model, loader, _ = self.begun([(EVALUATE, -1, 0, [0])])
        job.evaluation(images(), lambda batch: 3)
        with self.assertRaisesRegex(pp.Error, "function of job.evaluation has returned int: expected a dict"):
            list(loader)

    def test_accumulates_pieces_of_a_micro_batch(self):
        places = (0, 0), (0, 1)
        tasks = [(TRAIN, 0, part, [4 * part + i for i in range(4)]) for part in (0, 1)]
        plain = lambda: (torch.manual_seed(2), nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))[1]  # noqa: E731
        want = FakeLibrary(tasks)
        run(want, plain())
        library, job, model, loader, optimizer = self.begun(tasks, plain(), {"accumulate": 2}, micro_batch=4)
        self.assertEqual((loader.batch_size, len(loader)), (2, 2 * 2))
        sizes = []
        for number, (x, y) in enumerate(loader, 1):
            sizes.append(len(x))
            (F.cross_entropy(model(x), y) / 2).backward()
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        self.assertEqual((sizes, len(places)), ([2] * 4, len(library.given)))
        for ours, theirs in zip(library.given, want.given):
            self.assertTrue(torch.allclose(torch.tensor(ours[0]), torch.tensor(theirs[0]), atol=1e-6))
        _, job, model, loader, optimizer = self.begun(tasks, plain(), {"accumulate": 2}, micro_batch=4)
        with self.assertRaisesRegex(pp.Error, "step 0, micro-batch 0 has 2 pieces, and the script has called backward for 1"):
            self.train(model, optimizer, next(iter(loader)))
        with self.assertRaisesRegex(pp.Error, "accumulate is 3: expected a divisor of micro-batch = 5"):
            self.begun([], loader={"accumulate": 3})

    def test_leaves_the_final_weights_in_the_model(self):
        for final in (True, False):
            library, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0)))
            if final:
                library.on_attach = lambda: setattr(library, "final", [[0.5] * len(one) for one in library.weights])
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                for batch in loader:
                    self.train(model, optimizer, batch, loss=1)
            self.assertEqual("without the updates since then" in said.getvalue(), not final)
            tensors = (*model.parameters(), model[1].running_mean, model[1].running_var)
            self.assertEqual(final, all(bool((tensor == 0.5).all()) for tensor in tensors))

    def test_says_once_that_the_script_tells_no_loss_and_changes_nothing(self):
        library, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0), (2, 0), (3, 0)))
        want = FakeLibrary(training((0, 0), (1, 0), (2, 0), (3, 0)))
        run(want, network())
        said, norms = io.StringIO(), []
        with contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("error")
            for number, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e-3)))
                optimizer.param_groups[0]["lr"] = 3.0
                if number == 1:
                    job.log(loss=loss)
                optimizer.step(loss=loss if number == 2 else None)
        self.assertEqual([loss == NO_LOSS for loss in library.losses], [True, False, False, True])
        squares = sum(value * value for index in (0, 1, 2, 5, 6) for value in library.given[0][index])
        self.assertAlmostEqual(norms[0], squares ** 0.5, places=4)
        self.assertEqual(library.given, want.given, "gradients as backward has made them")
        for line in ("tells no loss", "has changed the gradient of .* the job's key clip-norm",
                     "has changed lr of param_groups"):
            self.assertEqual(len(re.findall(line, said.getvalue())), 1, (line, said.getvalue()))

    def test_shows_the_jobs_rates_beside_a_schedule_of_the_script(self):
        _, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0), (2, 0)))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5.0, total_steps=9, cycle_momentum=False)  # sets initial_lr
        with contextlib.redirect_stderr(io.StringIO()):
            for batch in loader:
                self.assertAlmostEqual(optimizer.param_groups[0]["lr"], job.lr)
                self.train(model, optimizer, batch, loss=0.0)
                schedule.step()

    def test_says_the_rate_that_a_scheduler_sets(self):
        tasks = training((0, 0), (0, 1), (2, 0), (5, 3))  # with steps of other workers in between
        library, job, model, loader, optimizer = self.begun(tasks, says_rate=True, steps=8)
        job.scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in loader:
                self.train(model, optimizer, batch, loss=1)
        self.assertEqual(library.rates, [0.1 * 0.5 ** step for step in (0, 0, 2, 5)])
        library, job, model, loader, optimizer = self.begun(training((3, 0), (1, 0)), says_rate=True)
        job.scheduler(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)))
        for batch in loader:
            self.train(model, optimizer, batch, loss=1)
        self.assertEqual(library.rates, [0.1 / 4, 0.1 / 2], "the job has gone back to a checkpoint")

    def test_steps_a_scheduler_of_another_optimizer(self):
        for every in (1, 2):
            library, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0), (2, 0), (1, 1), (3, 0)), says_rate=True)
            theirs = torch.optim.SGD(model.parameters(), 0.4)
            optimizer.schedule(torch.optim.lr_scheduler.LambdaLR(theirs, lambda step: 1 / (1 + step)), every)
            for batch in loader:
                self.train(model, optimizer, batch, loss=0.0)
            want = [0.4 / (1 + step // every) for step in (0, 1, 2, 1, 3)]
            self.assertTrue(all(abs(rate - one) < 1e-9 for rate, one in zip(library.rates, want)), library.rates)
            self.assertEqual(len(library.rates), len(want))

    def test_a_script_goes_on_with_the_rate_and_the_loss_of_the_step_before(self):
        library, job, model, loader, optimizer = self.begun(training((7, 0), (8, 0)), says_rate=True)
        self.assertEqual((job.lr, job.loss), (0.1, None))
        library.progress = 7, 1.5, 0.025
        for batch in loader:
            self.assertEqual((job.loss, job.lr), (1.5, optimizer.param_groups[0]["lr"]))
            self.train(model, optimizer, batch, loss=1)
            job.lr = 0.5
        self.assertEqual(library.rates, [0.025, 0.5, 0.5, 0.5])

    def test_groups_of_a_script_keep_their_ratio(self):
        library, job, model, loader, _ = self.begun(training((0, 0), (1, 0), (2, 0)), says_rate=True)
        job._optimizer = None
        optimizer = job.optimizer(model, groups=[pp.group("*bias", lr=0.3)])
        with self.assertRaisesRegex(pp.Error, r"a job has one rate, which multiplies those of groups"):
            for number, batch in enumerate(loader):
                self.train(model, optimizer, batch, loss=1)
                optimizer.param_groups[0]["lr"] *= 0.5
                optimizer.param_groups[1]["lr"] *= 0.5 + number
        self.assertEqual(library.rates[:2], [0.1, 0.05])
        library, job, *_ = self.begun([])
        with self.assertRaisesRegex(pp.Error, "the job has rates of its own: take lr-schedule = external"):
            job.scheduler(None)

    def test_computes_metrics_of_named_sums(self):
        tasks = [(EVALUATE, -1, 0, [0, 1, 2]), (EVALUATE, -1, 1, [3, 4]), "values", *training((0, 0))]
        library, job, model, loader, optimizer = self.begun(tasks)
        job.evaluation(images(), lambda batch: {"loss": 1.0, "correct": 1, "sums": {"all": len(batch[1]), "one": torch.tensor(1)}},
                       metrics={"F_1": lambda s: s["one"] / s["all"], "wer": pp.cost(lambda s: 1 / (s["one"] - 2))})
        for batch in loader:
            self.train(model, optimizer, batch, loss=1)
        self.assertEqual(library.heads, [("output", 0), ("F_1", 4), ("wer", 5)])
        self.assertEqual(library.reports[1], [(2.0, 2, 1.0), (0.0, 0, 0.0), (0.0, 0, 0.0)])
        self.assertEqual(library.sums, {"all": 5.0, "one": 2.0})
        self.assertEqual(len(library.values), 1)
        self.assertEqual(library.values[0][0], 2 / 5)
        self.assertTrue(library.values[0][1] != library.values[0][1], "a division by zero has no value")
        library.found = 9, [(0.5, 0.75), (float("nan"), 0.4), (float("nan"), 0.1)]
        self.assertEqual(job.evaluated(), {"step": 9, "loss": 0.5, "accuracy": 0.75, "F_1": 0.4, "wer": 0.1})
        tasks = [(EVALUATE, -1, 0, [0, 1, 2]), "values"]
        for metrics, line in (({"f": lambda s: s["tp"]}, "the formula of f needs the sum 'tp': task.report.* has given all, one"),
                              ({"f": 3}, "metrics has 3 for f: expected a function"),
                              ({"output": lambda s: 1}, "output is a head and one of metrics: give them two names")):
            library, job, model, loader, optimizer = self.begun(list(tasks))
            job.evaluation(images(), lambda batch: {"loss": 1.0, "correct": 1, "sums": {"all": 3, "one": 1}}, metrics=metrics)
            with self.assertRaisesRegex(pp.Error, line):
                list(loader)

    def test_a_closure_is_called(self):
        library, job, model, loader, optimizer = self.begun(training((0, 0)))
        for x, y in loader:
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss
            loss = optimizer.step(closure)
        self.assertEqual(library.losses, [loss.item()])

    def test_names_mistakes(self):
        _, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0)))
        with self.assertRaisesRegex(pp.Error, "no batch is open"):
            optimizer.step()
        with self.assertRaisesRegex(pp.Error, "step 0, micro-batch 0 was not ended: call optimizer.step.. after each batch"):
            list(loader)
        with self.assertRaisesRegex(pp.Error, "the script has taken no batch in epoch 0"):
            list(job.epochs())
        _, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0)))
        batch = next(iter(loader))
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        with self.assertRaisesRegex(pp.Error, "a second one of .* call optimizer.step.. after each backward"):
            F.cross_entropy(model(batch[0]), batch[1]).backward()
        with self.assertRaisesRegex(pp.Error, "has a model already"):
            job.loader(images())
        _, job, model, loader, optimizer = self.begun([])
        with self.assertRaisesRegex(pp.Error, "attach is for a loop over job.tasks"):
            job.attach(model, train=images())
        FakeLibrary().install()
        with self.assertRaisesRegex(pp.Error, r"call job.optimizer\(model\) before the first batch"):
            list(pp.join().loader(images()))

    def test_refuses_a_scaled_loss(self):
        scaler = scaler_that_scales()
        _, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0)))
        x, y = next(iter(loader))
        words = r"GradScaler has scaled the loss.*call loss.backward\(\), optimizer.step\(loss=loss\) without"
        with self.assertRaisesRegex(pp.Error, words):
            scaler.scale(F.cross_entropy(model(x), y)).backward()
        _, job, model, loader, optimizer = self.begun(training((0, 0), (1, 0)))
        for x, y in loader:
            other = nn.Linear(2, 2)
            out = model(x)
            scaler.scale(other(torch.ones(2)).sum()).backward()
            F.cross_entropy(out, y).backward()
            optimizer.step(loss=1)  # another model may have a scaler

    def test_reads_ahead_in_processes(self):
        tasks = training((0, 0), (1, 0), (2, 1))
        library, job, model, loader, optimizer = self.begun(tasks, loader={"num_workers": 2}, announces=True)
        seen = []
        for x, y in loader:
            seen.append(y)
            self.train(model, optimizer, (x, y), loss=1)
        job.leave()
        self.assertTrue(all(torch.equal(y, images().tensors[1][task[3]]) for y, task in zip(seen, tasks)))


if __name__ == "__main__":
    unittest.main()
