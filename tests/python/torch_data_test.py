#!/usr/bin/env python3
"""pushpull.torch with a fake library: data sets of many kinds, processes that read them, and groups."""
import concurrent.futures
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import pushpull.torch as pp

torch.set_num_threads(1)
FOLDER = pathlib.Path(__file__).resolve().parent
DATA = TensorDataset(torch.arange(40.0).reshape(40, 1), torch.arange(40) % 3)


def digest_of(data):
    library = FakeLibrary().install()
    job = pp.join()
    job.attach(nn.Linear(1, 3), train=data)
    list(job.tasks())
    return library.data[2]


def batches_of(data, tasks=((TRAIN, 0, 0, [0, 1, 5]),), announces=False, **options):
    FakeLibrary(tasks, announces=announces).install()
    job, model, found = pp.join(), nn.Linear(1, 3), []
    job.attach(model, train=data, **{"test": data, **options})
    try:
        for task in job.tasks():
            found.append(task.batch)
            if task.training:
                task.backward(model(torch.ones(2, 1)).mean())
            else:
                task.report(loss=0, correct=0)
    finally:
        job.leave()
    return found


class OpensLate(Dataset):
    """Opens its file at the first sample, as data sets of one large file do."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        self.file.seek(8 * index)
        time.sleep(0.001)
        return int.from_bytes(self.file.read(8), "little")


class Fails(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return lambda: index  # cannot be pickled


def as_script(method, in_loop):
    """Returns the output of a script whose data are read by a process that is started by this method, or its errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "script.py"
        path.write_text(f"""
import os, sys, time
sys.path.insert(0, {str(FOLDER)!r})
import torch
from fake_library import TRAIN, FakeLibrary
import pushpull.torch as pp
if __name__ == "__main__":
    torch.multiprocessing.set_start_method({method!r})
    FakeLibrary([(TRAIN, step, 0, [step]) for step in range(4)], announces=True).install()
    job, model = pp.join(), torch.nn.Linear(1, 3)
    job.attach(model, train=torch.utils.data.TensorDataset(torch.arange(40.0).reshape(40, 1)), num_workers=1)
    for task in job.tasks():{in_loop}
        print(task.batch[0].item(), flush=True)
        task.backward(model(task.batch[0]).mean())
""")
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=100)
        return done.stdout + done.stderr


class DataSets(unittest.TestCase):
    def test_of_many_kinds_give_their_batches(self):
        both = ConcatDataset([Subset(DATA, [3, 4, 5]), DATA])
        self.assertEqual(batches_of(both)[0][0].flatten().tolist(), [3, 4, 2])
        words = [{"text": f"word {i}", "length": i, "image": numpy.full((2, 2), i)} for i in range(9)]
        for processes in (0, 1):
            batch = batches_of(words, num_workers=processes)[0]
            self.assertEqual((batch["text"], batch["length"].tolist()), (["word 0", "word 1", "word 5"], [0, 1, 5]))
            self.assertEqual(batches_of(words, num_workers=processes, collate_fn=lambda samples: None), [None])

    def test_without_indices_are_refused(self):
        for name, data in (("train", DataLoader(DATA)), ("train", iter([1])), ("test", iter([1]))):
            with self.assertRaisesRegex(pp.Error, f"{name} data set .{type(data).__name__}. has no indices"):
                batches_of(data if name == "train" else DATA, test=data)

    def test_have_weights(self):
        for weights in (torch.arange(40), numpy.arange(40.0), range(40)):
            library = FakeLibrary(((TRAIN, 0, 0, [0, 1, 5]),)).install()
            job = pp.join()
            job.attach(nn.Linear(1, 3), train=DATA, weights=weights)
            found = []
            library.on_attach = lambda: found.append(library.model.sample_weights[:40])
            next(job.tasks())
            self.assertEqual((found, library.model.in_order), ([list(map(float, range(40)))], 0))
        for weights, line in ((range(39), "39 weights, and 40 training samples"), (5, "weights is a int"),
                              (["a"] * 40, "weights is a list: expected a number for each")):
            with self.assertRaisesRegex(pp.Error, line):
                batches_of(DATA, weights=weights)
        with self.assertRaisesRegex(pp.Error, "weights of data without indices"):
            batches_of(pp.Shards("a", open=iter, lengths=40), weights=range(40), test=None)

    def test_with_objects_have_a_digest_of_their_values(self):
        def objects():
            return [(numpy.array(["".join(["long", "text"] * 9), i], dtype=object), 1) for i in range(5)]

        first, second = objects(), objects()
        self.assertEqual(digest_of(first), digest_of(second))
        self.assertNotEqual(digest_of(first), digest_of(first[1:] + first[:1]))
        self.assertIn("train 4-", digest_of([(torch.eye(3).to_sparse(), 0)] * 4))


class ReadingProcesses(unittest.TestCase):
    def test_share_no_file_that_a_data_set_opens_late(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(i.to_bytes(8, "little") for i in range(400)))
            file.flush()
            tasks = [(TRAIN, step, 0, list(range(10 * step, 10 * step + 10))) for step in range(30)]
            found = batches_of(OpensLate(file.name), tasks, True, num_workers=3, test=None)
        self.assertEqual(torch.stack(found).flatten().tolist(), list(range(300)))

    def test_and_the_script_do_not_wait_for_each_other(self):
        def give_up(*_):
            raise TimeoutError("the script waits for a reading process that waits for it")

        words, indices = ["a sample that is text"] * 40, list(range(40)) * 2000
        before = signal.signal(signal.SIGALRM, give_up)
        signal.alarm(30)
        try:
            found = batches_of(words, [(TRAIN, step, 0, indices) for step in range(6)], True, num_workers=2, prefetch_factor=3,
                               test=None, collate_fn=lambda samples: [f"{i} {words}" for i, words in enumerate(samples)])
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual([len(batch) for batch in found], [80000] * 6)

    def test_name_a_batch_that_cannot_be_sent(self):
        with self.assertRaisesRegex(pp.Error, "its batch cannot be sent: .*[Pp]ickle"):
            batches_of(Fails(), num_workers=1, collate_fn=list, data_digest="lambdas")

    def test_read_ahead_after_announcements_of_tasks_that_another_worker_got(self):
        FakeLibrary([(TRAIN, 1, 0, [0])] + [(EVALUATE, -1, chunk, [chunk]) for chunk in (5, 6)], announces=True).install()
        job, model = pp.join(), nn.Linear(1, 3)
        job.attach(model, train=DATA, test=DATA, num_workers=1)
        batches = job._batches
        batches.expect(job._session)
        key, wanted = (TRAIN, 2, 0), (TRAIN, 2, 0, 0, [1])
        while len(batches._ready) < 2:
            batches._collect()
        batches.get(wanted)
        self.assertLess(len(batches._ready) + len(batches._asked), batches._most, f"no place for what follows {key}")
        job.leave()

    def test_are_left_alone_by_a_forked_process(self):
        self.assertEqual(as_script("fork", """
        if task.step == 1:
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)"""), "0.0\n1.0\n2.0\n3.0\n")

    def test_end_if_attach_fails(self):
        FakeLibrary().install()
        with self.assertRaises(pp.Error):
            pp.join().attach(nn.Linear(1, 3).half(), train=DATA, num_workers=2)
        import multiprocessing
        self.assertEqual(multiprocessing.active_children(), [])

    def test_start_in_each_of_pythons_ways(self):
        pause = """
        if task.step == 1:
            time.sleep(1.3)  # a process that reads looks for its parent each second"""
        methods = ("fork", "spawn", "forkserver")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for method, output in zip(methods, pool.map(lambda method: as_script(method, pause), methods)):
                self.assertEqual(output, "0.0\n1.0\n2.0\n3.0\n", method)


class Groups(unittest.TestCase):
    def test_may_be_a_generator_or_one_group(self):
        for groups in ((pp.group("*", lr=rate) for rate in [0.5]), pp.group("*", lr=0.5)):
            library = FakeLibrary().install()
            job = pp.join()
            job.attach(nn.Linear(1, 3), train=DATA, groups=groups)
            list(job.tasks())
            self.assertEqual([tensor[2] for tensor in library.tensors], [0.5, 0.5])

    def test_of_another_kind_are_refused(self):
        FakeLibrary().install()
        with self.assertRaisesRegex(pp.Error, "groups has a dict: expected pp.group"):
            pp.join().attach(nn.Linear(1, 3), train=DATA, groups=[{"params": [], "lr": 1}])


class Checkpoints(unittest.TestCase):
    def test_that_are_no_floats_or_no_file_of_tensors_are_refused(self):
        header = b'{"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}'
        for text, words in ((len(header).to_bytes(8, "little") + header + bytes(4), "a in .* is F16: expected F32"),
                            (b"PK of torch.save", "no safetensors file"), (b"", "no safetensors file")):
            with tempfile.NamedTemporaryFile() as file:
                file.write(text)
                file.flush()
                with self.assertRaisesRegex(pp.Error, words):
                    pp.read_checkpoint(file.name)


    def test_give_a_state_to_the_optimizer_that_fits_alone(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "step-00000007"
            folder.mkdir()
            model = nn.Linear(2, 1)
            header = {f"{tensor}.{slot}": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * size]}
                      for tensor, shape, size in (("weight", [1, 2], 2), ("bias", [1], 1)) for slot in ("exp_avg", "exp_avg_sq")}
            text = json.dumps(header).encode()
            (folder / "optimizer.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + numpy.float32([3, 4]).tobytes())
            facts = {"updates": 7, "slots": ["exp_avg", "exp_avg_sq"], "job": "optimizer = adamw\nstrategy = sync\n"}
            (folder / "state.json").write_text(json.dumps(facts))
            (folder / "DONE").touch()
            adamw = torch.optim.AdamW([{"params": [model.bias], "lr": 0.5}, {"params": [model.weight]}])
            adamw.load_state_dict(pp.optimizer_state(name, adamw, model))
            found = adamw.state[model.weight]
            self.assertEqual((found["exp_avg"].tolist(), float(found["step"]), adamw.param_groups[0]["lr"]), ([[3, 4]], 7, 0.5))
            for optimizer, net, words in (
                    (torch.optim.SGD(model.parameters(), lr=1), model, r"optimizer = adamw with .* SGD as it is set has no state"),
                    (torch.optim.Adam(model.parameters(), amsgrad=True), model, "a Adam with amsgrad"),
                    (torch.optim.Adadelta(model.parameters()), model, "a Adadelta: expected SGD"),
                    (adamw, nn.Linear(2, 1), "no exp_avg of a parameter that the model lacks"),
                    (torch.optim.Adam(nn.Sequential(model).parameters()), nn.Sequential(model), "no exp_avg of 0.weight")):
                with self.assertRaisesRegex(pp.Error, words):
                    pp.optimizer_state(folder, optimizer, net)
            (folder / "state.json").write_text(json.dumps({**facts, "job": "strategy = local:4"}))
            with self.assertRaisesRegex(pp.Error, "is of strategy = local:4"):
                pp.optimizer_state(folder, adamw, model)


class AnInterrupt(unittest.TestCase):
    """Of a notebook: the loop that begins again goes on with the task that was open, exactly once."""

    def setUp(self):
        self.library = FakeLibrary([(TRAIN, step, 0, [step, step + 1]) for step in range(4)]).install()
        self.job, self.model = pp.join(), nn.Linear(1, 3)
        self.seen = []

    def loop(self):
        for task in self.job.tasks():
            self.seen.append((task.step, task.batch[0].flatten().tolist()))
            task.backward(self.model(task.batch[0]).mean())

    def interrupted_in(self, holder, name, when="before"):
        """Runs the loop, which is interrupted in the first call of a function, and runs it again."""
        plain = getattr(holder, name)

        def function(*arguments):
            setattr(holder, name, plain)
            if when == "before":
                signal.raise_signal(signal.SIGINT)
            result = plain(*arguments)
            if when == "after":
                signal.raise_signal(signal.SIGINT)
            return result

        setattr(holder, name, function)
        with self.assertRaises(KeyboardInterrupt):
            self.loop()
        self.loop()
        steps = [step for step, _ in self.seen]
        self.assertEqual(sorted(set(steps)), [0, 1, 2, 3])
        self.assertEqual(self.seen[-1], (3, [3.0, 4.0]))
        self.assertEqual(len(self.library.losses), 4)
        self.assertTrue(all(set(given) == {0, 1} for given in self.library.given), self.library.given)

    def test_at_each_place_loses_nothing(self):
        for name in ("pp_next", "pp_all_weights", "pp_lend_gradient", "pp_end"):
            for when in ("before", "after"):
                with self.subTest(f"{when} {name}"):
                    self.setUp()
                    self.job.attach(self.model, train=DATA)
                    self.interrupted_in(self.library, name, when)

    def test_while_a_sample_is_read_loses_nothing(self):
        self.job.attach(self.model, train=DATA)
        self.interrupted_in(self.job._batches._splits[TRAIN], "read")

    def test_while_processes_read_loses_nothing(self):
        self.job.attach(self.model, train=DATA, num_workers=1)
        self.interrupted_in(self.job._batches._readers[0], "take")
        self.job.leave()


if __name__ == "__main__":
    unittest.main()
