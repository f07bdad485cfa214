#!/usr/bin/env python3
"""Scripts with a stage of a model, with a fake library: groups, changes of the group, and users' mistakes."""
import contextlib
import io
import socket
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

import torch.nn.functional as F
from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import distributed, nn
from torch.utils.data import TensorDataset

import pushpull.torch as pp
from pushpull._library import NO_LOSS
from pushpull._torch_stages import Meeting

torch.set_num_threads(1)

DATA = TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40) % 3)


def training(*micro_batches):
    return [(TRAIN, 0, m, list(range(5 * m, 5 * m + 5))) for m in micro_batches]


def joined(tasks, stage=0, stages=2, groups=(1,), **options):
    """Returns the library, a job with a stage, and its module."""
    library = FakeLibrary(tasks, stages=stages, place=stage, groups=groups, **options).install()
    job = pp.join()
    torch.manual_seed(job.seed)
    model = nn.Sequential(nn.Linear(2, 3))
    job.attach(model, train=DATA, test=DATA, stage=(job.stage, job.stages))
    return library, job, model


class Groups(unittest.TestCase):
    def test_the_stage_is_declared_and_the_first_one_listens(self):
        library, job, model = joined(["regroup", *training(0)], stage=4)
        self.assertEqual((job.stage, job.stages), (0, 2), "the place modulo the stages")
        for group in job.groups():
            with group:
                self.assertEqual((group.stage, group.stages, group.number), (0, 2, 1))
                other = distributed.PrefixStore("1", distributed.TCPStore("localhost", group.port, is_master=False))
                other.add("here", 1)
                group.store.set("key", "value")
                self.assertEqual(other.get("key"), b"value")
                for task in job.tasks():
                    out = model(task.batch[0])
                    task.backward(out, gradient=torch.ones_like(out))
        self.assertEqual(library.stage[:2], (0, 2))
        self.assertEqual(library.stage[3], "local tensors none")
        self.assertGreater(library.stage[2], 0)
        self.assertEqual(library.losses, [NO_LOSS])
        self.assertEqual(library.given[0][1], [5.0] * 3, "the gradient of the bias")

    def test_the_last_stage_knows_losses_and_results(self):
        library, job, model = joined(["regroup", *training(0), (EVALUATE, -1, 0, list(range(5)))], stage=1)
        for group in job.groups():
            with group:
                for task in job.tasks():
                    x, y = task.batch
                    loss = F.cross_entropy(model(x), y)
                    task.backward(loss) if task.training else task.report(loss=loss, correct=2)
        self.assertEqual(library.stage[2], 0, "it does not listen")
        self.assertGreater(library.losses[0], 0)
        self.assertEqual(library.reports[0][0][1:], (5, 2))

    def test_a_change_leads_to_the_next_group(self):
        library, job, model = joined(["regroup", *training(0), "regroup", *training(0, 1)], groups=(1, 0, 0, 2))
        numbers = []
        for group in job.groups():
            numbers.append(group.number)
            with group:
                for task in job.tasks():
                    task.backward(model(task.batch[0]), gradient=torch.ones(5, 3))
        self.assertEqual(numbers, [1, 2])
        self.assertEqual(len(library.losses), 3)

    def test_an_error_of_the_process_group_is_a_change_if_the_group_has_changed(self):
        library, job, model = joined(["regroup", *training(0, 1), "regroup", *training(1)], groups=(1, 1, 2))
        tries = []
        for group in job.groups():
            with group:
                for task in job.tasks():
                    tries.append((group.number, task.micro_batch))
                    if len(tries) == 2:
                        library.tasks = ["regroup", *training(1)]
                        raise RuntimeError("Connection closed by peer")
                    out = model(task.batch[0])
                    self.assertIsNone(model[0].weight.grad)
                    task.backward(out, gradient=torch.ones_like(out))
        self.assertEqual(tries, [(1, 0), (1, 1), (2, 1)])
        self.assertEqual(len(library.losses), 2, "the task that was open is computed again")

    def test_the_store_waits_for_all_scripts_of_the_group_alone(self):
        for stage in (0, 1):
            listener = Meeting(0)  # that of another script with stage 0
            library, job, _ = joined(["regroup", *training(0)], stage=stage, groups=(1, 1, 1, 2))
            library.port = listener.port
            numbers = []
            for group in job.groups():
                with group:
                    numbers.append(group.number)
                    if group.number == 1:
                        library.tasks = ["regroup", *library.tasks]
                    else:
                        library.tasks.clear()
                        break
                    group.store.get("no other script has come")
            self.assertEqual(numbers, [1, 2])

    def test_a_store_that_cannot_be_reached_is_given_up_once_the_group_changes(self):
        library, job, _ = joined(["regroup", *training(0)], stage=1, groups=(1, 1, 1, 2))
        with socket.socket() as closed:
            closed.bind(("localhost", 0))
            library.port = closed.getsockname()[1]
            numbers = []
            for group in job.groups():
                with group:
                    numbers.append(group.number)
                    library.tasks = ["regroup", *library.tasks] if group.number == 1 else []
                    if group.number == 1:
                        group.store.get("nothing listens")
        self.assertEqual(numbers, [1, 2])

    def test_other_errors_are_the_scripts(self):
        for error in (RuntimeError("shapes"), ValueError("my own"), pp.Error("[x] y")):
            _, job, _ = joined(["regroup", *training(0)])
            with self.assertRaises(type(error)) as caught, contextlib.redirect_stderr(io.StringIO()):
                for group in job.groups():
                    with group:
                        raise error
            self.assertIs(caught.exception, error)

    def test_the_end_of_a_group_destroys_its_process_group(self):
        _, job, _ = joined(["regroup", *training(0)])
        with self.assertRaisesRegex(pp.Error, "was not ended"):
            for group in job.groups():
                with group:
                    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
                    for _ in job.tasks():
                        pass
        self.assertFalse(distributed.is_initialized())

    def test_a_script_with_the_whole_model_has_one_group(self):
        library, job, model = joined(training(0), stages=1)
        for group in job.groups():
            with group:
                self.assertEqual((group.stage, group.stages), (0, 1))
                for task in job.tasks():
                    x, y = task.batch
                    task.backward(F.cross_entropy(model(x), y))
        self.assertEqual(library.stage, (0, 1, 0, ""))
        self.assertGreater(library.losses[0], 0)

    def test_a_backward_of_the_scripts_own_ends_by_end(self):
        library, job, model = joined(["regroup", *training(0, 1)], stage=1)
        for group in job.groups():
            with group:
                for task in job.tasks():
                    x, y = task.batch
                    for part in range(5):  # as a schedule of torch.distributed.pipelining
                        (F.cross_entropy(model(x[part:part + 1]), y[part:part + 1]) / 5).backward()
                    want = model[0].bias.grad.tolist()
                    task.end(0.5)
                    self.assertEqual(library.given[-1][1], want)
        self.assertEqual(library.losses, [0.5, 0.5])


    def test_groups_of_parameters_may_be_of_other_stages(self):
        library = FakeLibrary(["regroup", *training(0)], stages=2, place=0, groups=(1,)).install()
        job = pp.join()
        job.attach(nn.Linear(2, 3), train=DATA, stage=(0, 2), groups=[pp.group("head.*", lr=0.5, weight_decay=0.1)])
        next(job.groups())
        self.assertEqual(library.undecayed, [], "as in the whole model, in which that group decides what decays")


class Mistakes(unittest.TestCase):
    def refused(self, pattern, action):
        with self.assertRaisesRegex(pp.Error, pattern) as caught:
            action()
        self.assertEqual(caught.exception.code, 2)

    def test_the_stage_must_be_one_of_the_jobs(self):
        FakeLibrary(stages=2, place=0).install()
        job = pp.join()
        model = nn.Linear(2, 3)
        for stage, pattern in (((0, 3), "the script has 3 stages, and the job has stages = 2"), ((2, 2), "stage 2 of 2: expected 0 to 1"),
                               (1, "stage is 1: expected .number, stages.")):
            self.refused(pattern, lambda stage=stage: job.attach(model, train=DATA, stage=stage))

    def test_a_script_without_a_number_is_told_the_variable(self):
        FakeLibrary(stages=2).install()
        job = pp.join()
        self.refused("set PUSHPULL_RANK", lambda: job.stage)

    def test_groups_need_a_stage(self):
        FakeLibrary(training(0), stages=1).install()
        job = pp.join()
        job.attach(nn.Linear(2, 3), train=DATA)
        self.refused("has no stage", lambda: next(job.groups()))

    def test_only_the_last_stage_reports(self):
        _, job, _ = joined(["regroup", (EVALUATE, -1, 0, [0, 1])])
        group = next(job.groups())
        task = next(job.tasks())
        self.refused("which alone reports them", lambda: task.report(loss=1.0, correct=1))
        task.report()
        self.assertEqual(group.number, 1)

    def test_tasks_need_a_group(self):
        _, job, _ = joined(["regroup", *training(0)])
        with self.assertRaises(pp.GroupChanged):
            next(job.tasks())

    def test_a_loop_that_is_left_is_named(self):
        _, job, _ = joined(["regroup", *training(0)])

        def leave():
            for _ in job.groups():
                pass

        self.refused("the loop over job.tasks.. was left, and group 1 goes on", leave)


if __name__ == "__main__":
    unittest.main()
