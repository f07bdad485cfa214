#!/usr/bin/env python3
"""pushpull.torch with a fake library: training data without indices, as shards and as iterables."""
import collections
import random
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pushpull.torch as pp
from pushpull._streams import Stream

torch.set_num_threads(1)
SEED = 7


class Opened:
    """Opens shards of pairs (shard, sample), and counts how often."""

    def __init__(self, lengths, extra=0, **options):
        self.counts, self.lengths, self.extra = collections.Counter(), lengths, extra
        self.shards = pp.Shards(range(len(lengths)), open=self._open, lengths=lengths, **options)

    def _open(self, shard):
        self.counts[shard] += 1
        for sample in range(self.lengths[shard] + self.extra):
            yield shard, sample


def stream_of(shards, global_batch, micro_batch):
    return Stream(shards, list, global_batch, micro_batch)


def tasks_of(samples, global_batch, micro_batch, epoch=0):
    """Returns all tasks of an epoch, with their places as indices, as a job without `shuffle` has them."""
    steps = samples // global_batch
    return [(TRAIN, epoch * steps + place // global_batch, place % global_batch // micro_batch, epoch,
             list(range(place, place + micro_batch))) for place in range(0, steps * global_batch, micro_batch)]


def share_of(tasks, worker, workers):
    """Returns those of a worker in a job under `sync`."""
    most = 1 + max(task[2] for task in tasks)
    return [task for task in tasks if worker * most // workers <= task[2] < (worker + 1) * most // workers]


CASES = (  # lengths, global batch, micro-batch
    ([100], 12, 3), ([30] * 4, 24, 6), ([30] * 8, 24, 6), ([30] * 7, 24, 6), ([1, 0, 55, 3, 20, 20, 0], 16, 2), ([9, 9, 9], 16, 1),
    ([7] * 30, 4, 4), ([0, 12], 12, 12))


class Streams(unittest.TestCase):
    def test_have_each_sample_once_but_for_less_than_a_global_batch(self):
        for lengths, global_batch, micro_batch in CASES:
            stream = stream_of(Opened(lengths).shards, global_batch, micro_batch)
            for epoch in range(2):
                tasks = tasks_of(sum(lengths), global_batch, micro_batch, epoch)
                samples = [sample for task in tasks for sample in stream.read(SEED, task)]
                self.assertEqual(len(set(samples)), len(samples))
                self.assertEqual(len(samples), sum(lengths) // global_batch * global_batch)
                self.assertLessEqual(set(samples), {(shard, i) for shard, length in enumerate(lengths) for i in range(length)})

    def test_have_the_same_batches_whoever_reads_them(self):
        for lengths, global_batch, micro_batch in CASES:
            alone = stream_of(Opened(lengths).shards, global_batch, micro_batch)
            for epoch in range(2):
                tasks = tasks_of(sum(lengths), global_batch, micro_batch, epoch)
                want = {task[:3]: alone.read(SEED, task) for task in tasks}
                for workers in (2, 3):
                    for worker in range(workers):
                        one = stream_of(Opened(lengths).shards, global_batch, micro_batch)
                        for task in share_of(tasks, worker, workers):
                            self.assertEqual(one.read(SEED, task), want[task[:3]])
                in_disorder = random.Random(epoch).sample(tasks, len(tasks))
                one = stream_of(Opened(lengths).shards, global_batch, micro_batch)
                self.assertEqual({task[:3]: one.read(SEED, task) for task in in_disorder}, want)

    def test_open_the_shards_of_their_lanes_alone(self):
        for shards, micro_batches in ((8, 4), (4, 4), (4, 8)):
            tasks = tasks_of(64 * shards, 4 * micro_batches, 4)
            seen = collections.Counter()
            for worker in range(2):
                opened = Opened([64] * shards)
                stream = stream_of(opened.shards, 4 * micro_batches, 4)
                for task in share_of(tasks, worker, 2):
                    stream.read(SEED, task)
                seen += opened.counts
            self.assertEqual(seen, {shard: 1 for shard in range(shards)})

    def test_open_one_shard_for_each_lane_in_the_middle_of_an_epoch(self):
        opened = Opened([10] * 40)
        stream = stream_of(opened.shards, 8, 2)
        tasks = tasks_of(400, 8, 2)
        for task in tasks[100:104]:
            stream.read(SEED, task)
        self.assertEqual(len(opened.counts), 4)
        self.assertEqual(sum(opened.counts.values()), 4)

    def test_have_another_order_of_shards_in_each_epoch_unless_it_is_kept(self):
        def orders(shards, seed=SEED):
            stream = stream_of(shards, 4, 4)
            return [[stream.read(seed, task)[0][0] for task in tasks_of(40, 4, 4, epoch)] for epoch in range(3)]

        first, second, _ = orders(Opened([4] * 10).shards)
        self.assertEqual(sorted(first), list(range(10)))
        self.assertNotEqual(first, second)
        self.assertNotEqual(first, orders(Opened([4] * 10).shards, seed=8)[0])
        self.assertEqual(orders(Opened([4] * 10, shuffle=False).shards), [list(range(10))] * 3)

    def test_draw_the_same_numbers_for_a_sample_that_another_worker_passes_over(self):
        def draws(_):
            buffer = []
            for sample in range(50):  # with a buffer, as shuffles of streams have
                buffer.append(sample)
                if len(buffer) == 10:
                    yield buffer.pop(random.randrange(10)), torch.rand(1).item()
            while buffer:
                yield buffer.pop(random.randrange(len(buffer))), torch.rand(1).item()

        shards = pp.Shards("ab", open=draws, lengths=50)
        tasks = tasks_of(100, 20, 5)
        one = stream_of(shards, 20, 5)
        want = {task[:3]: one.read(SEED, task) for task in tasks}
        self.assertEqual(len({sample for batch in want.values() for sample in batch}), 100)
        for worker in range(4):
            one = stream_of(shards, 20, 5)
            for task in share_of(tasks, worker, 4):
                self.assertEqual(one.read(SEED, task), want[task[:3]])

    def test_that_were_interrupted_go_on_where_they_were(self):
        stops = [KeyboardInterrupt(), KeyboardInterrupt()]

        def interrupted(shard):
            for sample in range(30):
                if sample in (4, 17) and stops:
                    raise stops.pop()
                yield sample

        stream, tasks = stream_of(pp.Shards("a", open=interrupted, lengths=30), 6, 3), tasks_of(30, 6, 3)
        found = []
        while tasks:
            try:
                found += stream.read(SEED, tasks[0])
                tasks.pop(0)
            except KeyboardInterrupt:
                pass
        self.assertEqual((found, stops), (list(range(30)), []))

    def test_end_where_their_length_says(self):
        stream = stream_of(Opened([20, 20], extra=5).shards, 8, 4)
        self.assertEqual(len({sample for task in tasks_of(40, 8, 4) for sample in stream.read(SEED, task)}), 40)
        short = Opened([20, 20], extra=-3)
        with self.assertRaisesRegex(pp.Error, "shard [01] ends after 17 samples, and has 20 by lengths"):
            stream = stream_of(short.shards, 8, 4)
            for task in tasks_of(40, 8, 4):
                stream.read(SEED, task)


class Words(IterableDataset):
    """An iterable of numbers. It keeps the epochs that it was told."""

    def __init__(self, samples=60):
        self.samples, self.told = samples, []

    def set_epoch(self, epoch):
        self.told.append(epoch)

    def __iter__(self):
        return iter([torch.tensor([float(i)]) for i in range(self.samples)])


class Sized(Words):
    def __len__(self):
        return self.samples


def loop(data, tasks, micro_batch=5, announces=False, **options):
    """Returns the batches of a loop of the script's own, and the library."""
    library = FakeLibrary([(*task[:3], task[4], task[3]) for task in tasks], announces=announces, micro_batch=micro_batch).install()
    job, model, found = pp.join(), nn.Linear(1, 3), []
    loader = job.loader(data, **options)
    optimizer = job.optimizer(model)
    pieces = options.get("accumulate", 1)
    for _ in job.epochs():
        for batch in loader:
            found.append(batch)
            model(torch.ones(2, 1)).mean().backward()
            if len(found) % pieces == 0:
                optimizer.step(loss=0.0)
    return found, library


class Loaders(unittest.TestCase):
    def test_take_any_iterable_with_a_length(self):
        tasks = tasks_of(60, 20, 5, 0) + tasks_of(60, 20, 5, 1)
        for data, options in ((Words(), {"length": 60}), (Sized(), {}), (Words(), {"length": 60, "num_workers": 2}),
                              (pp.Shards([Words()], open=iter, lengths=60), {"num_workers": 1})):
            found, library = loop(data, tasks, announces="num_workers" in options, **options)
            self.assertEqual(torch.cat(found).flatten().tolist(), 2 * list(map(float, range(60))))
            self.assertEqual((library.data[0], library.model.in_order), (60, 1))
        data = Words()
        found, _ = loop(data, tasks, length=60, accumulate=5, collate_fn=lambda samples: [one.item() for one in samples])
        self.assertEqual(found, 2 * [[float(i)] for i in range(60)])
        self.assertEqual(sorted(set(data.told)), [0, 1])

    def test_evaluate_streams(self):
        def evaluated(test, **options):
            chunks = [(EVALUATE, -1, chunk, list(range(7 * chunk, min(7 * chunk + 7, 24)))) for chunk in (0, 1, 3, 0, 2, 3)]
            training = [(TRAIN, 0, 0, [0, 1, 2, 3, 4]), *chunks[:3], (TRAIN, 4, 0, [0, 1, 2, 3, 4], 1), *chunks[3:]]
            library = FakeLibrary(training, announces="num_workers" in options).install()
            job, model, seen = pp.join(), nn.Linear(1, 3), []
            loader = job.loader(TensorDataset(torch.ones(40, 1)), num_workers=options.pop("num_workers", 0))
            optimizer = job.optimizer(model)
            job.evaluation(test, lambda batch: seen.append(batch.flatten().tolist()) or {"loss": 0.0, "correct": 0}, **options)
            for _ in job.epochs():
                for x, in loader:
                    model(x).mean().backward()
                    optimizer.step(loss=0.0)
            job.leave()
            self.assertEqual(library.data[:2], (40, 24))
            return seen

        want = [list(map(float, range(7 * chunk, min(7 * chunk + 7, 24)))) for chunk in (0, 1, 3, 0, 2, 3)]
        for test, options in ((Words(), {"length": 24}), (Sized(24), {}), (Sized(24), {"num_workers": 2}),
                              (DataLoader(Sized(24)), {})):
            self.assertEqual(evaluated(test, **options), want)
        parts = pp.Shards((0, 10, 20), open=lambda first: (torch.tensor([float(first + i)]) for i in range(10)),
                          lengths=(10, 10, 4))
        found = evaluated(parts)
        self.assertEqual((found[0], found[2]), (found[3], found[5]), "each evaluation has the same chunks")
        self.assertEqual(sorted(sum((found[0], found[1], found[2], found[4]), [])), list(map(float, range(24))))
        with self.assertRaisesRegex(pp.Error, "the test data set .Words. has neither indices nor a length"):
            evaluated(Words())
        with self.assertRaisesRegex(pp.Error, "the test data set .Words. ends after 20 samples, and its length is 24"):
            evaluated(Words(20), length=24)

    def test_name_what_is_missing_or_too_much(self):
        for data, options, line in (
                (Words(), {}, "train data set .Words. has neither indices nor a length: give length="),
                (iter([1]), {"length": 5}, "can be read once at most"),
                ([1, 2, 3], {"length": 5}, "length is 5, and the train data set .list. has indices"),
                (DataLoader(Words()), {}, "train data set .Words. has neither indices nor a length: give length="),
                (pp.Shards("ab", open=iter, lengths=3), {"length": 5}, "length is 5, and the shards have 6"),
                (Words(7), {"length": 20}, "ends after 7 samples, and its length is 20")):
            with self.assertRaisesRegex(pp.Error, line):
                loop(data, tasks_of(20, 20, 5), **options)
        for lengths, line in (([1, 2, 3], "2 shards, and 3 lengths"), ([0, 0], "2 shards with 0 samples"),
                              ([4, -1], "the fewest in one -1")):
            with self.assertRaisesRegex(pp.Error, line):
                pp.Shards("ab", open=iter, lengths=lengths)

    def test_name_a_short_iterable_that_a_process_reads(self):
        with self.assertRaisesRegex(pp.Error, r"^\[data\] the train data set .Words. ends after 7 samples"):
            loop(Words(7), tasks_of(20, 20, 5), length=20, num_workers=2)

    def test_declare_a_digest_of_lengths_names_and_the_first_sample(self):
        def digest(shards, lengths=4, first=1, **options):
            data = pp.Shards(shards, open=lambda _: iter([first, 2, 3, 4]), lengths=lengths, **options)
            library = FakeLibrary(micro_batch=1).install()
            job = pp.join()
            job.attach(nn.Linear(1, 3), train=data)
            list(job.tasks())
            return library.data[2]

        same = digest(["/one/a", "/one/b"])
        self.assertEqual(same, digest(["/two/a", "/two/b"]))
        others = [digest(["b", "a"]), digest(["a", "b"], [4, 3]), digest(["a", "b"], first=5), digest(["a", "b"], shuffle=False)]
        self.assertEqual(len({same, *others}), 5)

    def test_read_a_lane_in_one_process(self):
        opened = Opened([20] * 4)
        tasks = tasks_of(80, 20, 5)
        found, _ = loop(opened.shards, tasks, announces=True, num_workers=2, collate_fn=list)
        self.assertEqual(len({sample for batch in found for sample in batch}), 80)
        alone, _ = loop(Opened([20] * 4).shards, tasks, collate_fn=list)
        self.assertEqual(found, alone)


if __name__ == "__main__":
    unittest.main()
