"""Training data without indices: shards, each read from its beginning on, in lanes that depend on the job alone."""
import bisect
import hashlib
import itertools
import operator
import os

from pushpull import _digest
from pushpull._error import DATA, USAGE, Error
from pushpull._library import TRAIN
from pushpull._seeds import DATA as DATA_SEED
from pushpull._seeds import DIGEST, SHARDS, mixed, seed_all


class Shards:
    """Data in parts, such as files: for Job.loader, Job.evaluation and Job.attach (docs/pytorch.md#streams).

    shards: the parts: addresses, or anything else that `open` takes.
    open: returns an iterator over the samples of a part, which begins anew at each call.
    lengths: numbers of samples of the parts, or one number for each of them. A part may have more: they are not read.
    shuffle: whether each epoch of training has the parts in an order of its own, by the job's seed.
    """

    def __init__(self, shards, open, lengths, shuffle=True):
        self.shards, self._open, self.shuffle = list(shards), open, shuffle
        try:
            given = [operator.index(lengths)] * len(self.shards)
        except TypeError:
            given = [operator.index(one) for one in lengths]
        if len(given) != len(self.shards):
            raise Error(f"[shards] {len(self.shards)} shards, and {len(given)} lengths: expected one for each, or a number for all",
                        USAGE)
        if not given or min(given) < 0 or sum(given) == 0:
            raise Error(f"[shards] {len(self.shards)} shards with {sum(given)} samples, the fewest in one {min(given, default=0)}: "
                        f"expected samples, and no negative number", USAGE)
        self.lengths = given

    def open(self, shard, epoch):
        return iter(self._open(self.shards[shard]))

    def too_short(self, shard, found):
        """Returns the error for a shard that ends after `found` samples."""
        return Error(f"[data] shard {self.shards[shard]!s:.200} ends after {found} samples, and has {self.lengths[shard]} by "
                     f"lengths: give the number that it has", DATA)


class _Iterable(Shards):
    """An iterable of samples, as one shard. Its set_epoch, if it has one, is called before each epoch."""

    def __init__(self, data, length, split):
        self._split = split
        try:
            length = operator.index(len(data) if length is None else length)
        except (TypeError, NotImplementedError):
            raise Error(f"[attach] the {split} data set ({type(data).__name__}) has neither indices nor a length: give length=, the "
                        f"number of samples of an epoch", USAGE) from None
        super().__init__([data], iter, length)

    def open(self, shard, epoch):
        set_epoch = getattr(self.shards[shard], "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        return super().open(shard, epoch)

    def too_short(self, shard, found):
        return Error(f"[data] the {self._split} data set ({type(self.shards[shard]).__name__}) ends after {found} samples, and its length "
                     f"is {self.lengths[shard]}: give the number of samples that each epoch has", DATA)


def shards_of(data, length, split):
    """Returns data without indices as Shards.

    length: samples of an epoch; None: its own.
    """
    if not isinstance(data, Shards):
        if hasattr(data, "__next__") or not hasattr(data, "__iter__"):
            raise Error(f"[attach] the {split} data set ({type(data).__name__}) can be read once at most: give an iterable that begins "
                        f"anew at each iter(), such as an IterableDataset", USAGE)
        return _Iterable(data, length, split)
    if length is not None and length != sum(data.lengths):
        raise Error(f"[attach] length is {length}, and the shards have {sum(data.lengths)} samples by their lengths: leave out "
                    f"length", USAGE)
    return data


class Stream:
    """Data of a job as shards, with the function that makes a batch of samples: a split, as Split.

    An epoch is a row of all shards, one after the other. It is divided into lanes, as many as there are shards, but at most
    one for each micro-batch of a step. The micro-batches of a step are divided among the lanes in order, and a lane is read from its
    beginning on. So where a micro-batch lies depends on its number alone, and a worker opens the shards of its own lanes, as far as
    lanes and shares allow.

    Test data have one lane, of samples (global_batch = micro_batch = 1), and the order of epoch 0 in each evaluation.
    pieces: as in Split.
    """

    def __init__(self, shards, collate, global_batch, micro_batch, pieces=1):
        self.data, self.collate, self._pieces = shards, collate, pieces
        self._global_batch, self._micro_batch = global_batch, micro_batch
        self._micro_batches = global_batch // micro_batch
        self._lanes = min(self._micro_batches, len(shards.shards))
        self._cursors = {}  # by lane; of one epoch
        self._row = None  # of that epoch

    @property
    def samples(self):
        return sum(self.data.lengths)

    def digest(self, seed):
        """Hashes the lengths, the last parts of the names, and the first sample."""
        shards = self.data
        digest = hashlib.sha256()
        names = [os.path.basename(os.fspath(one)) for one in shards.shards if isinstance(one, (str, os.PathLike))]
        _digest.add(digest, [shards.lengths, names, shards.shuffle])
        first = next(shard for shard, length in enumerate(shards.lengths) if length)
        seed_all(seed, DIGEST, first)
        for sample in shards.open(first, 0):
            _digest.add(digest, sample)
            break
        return f"stream {self.samples}-{digest.hexdigest()[:16]}"

    def lane_of(self, task):
        """Returns the lane of a task, or None if it makes no difference which process reads it."""
        return self._place_of(task[4][0])[0] if self._lanes > 1 else None

    def read(self, seed, task):
        """Returns the batch of a task, whose indices are places in its epoch."""
        kind, step, micro_batch, epoch, indices = task
        epoch = epoch if kind == TRAIN else 0
        lane, place = self._place_of(indices[0])
        if self._row is None or self._row.epoch != epoch:
            self._row, self._cursors = _Row(self.data, seed, epoch), {}
        cursor = self._cursors.setdefault(lane, _Cursor(self._row))
        samples = cursor.read(place, len(indices))
        seed_all(seed, DATA_SEED, kind, step, micro_batch)
        return self._collated(samples)

    def _collated(self, samples):
        if self._pieces == 1:
            return self.collate(samples)
        size = len(samples) // self._pieces
        return [self.collate(samples[first:first + size]) for first in range(0, len(samples), size)]

    def _place_of(self, index):
        """Returns the lane and the place in the row of the micro-batch that begins at this place of the epoch."""
        step, behind = divmod(index, self._global_batch)
        number, of_all, lanes = behind // self._micro_batch, self._micro_batches, self._lanes
        lane = ((number + 1) * lanes - 1) // of_all
        first, end = lane * of_all // lanes, (lane + 1) * of_all // lanes  # its micro-batches of a step
        begin = self.samples * first // of_all
        return lane, begin + (step * (end - first) + number - first) * self._micro_batch


class _Row:
    """The shards of an epoch, one after the other."""

    def __init__(self, shards, seed, epoch):
        self.shards, self.seed, self.epoch = shards, seed, epoch
        self.order = list(range(len(shards.shards)))
        if shards.shuffle:
            self.order.sort(key=lambda shard: mixed(seed, SHARDS, epoch, shard))
        self.ends = list(itertools.accumulate(shards.lengths[shard] for shard in self.order))


class _Cursor:
    """Reads a row from places that usually rise. It passes over samples of the shard that it needs, and opens no other one.

    Each sample has a seed of its own, also one that is passed over: a shard that draws at random is the same whoever reads it.
    """

    def __init__(self, row):
        self._row = row
        self._open = None  # position in the row of the shard that is open
        self._samples = None  # its iterator
        self._read = 0  # samples of it

    def read(self, place, count):
        """Returns `count` samples from this place on."""
        row, samples = self._row, []
        try:
            while count > 0:
                position = bisect.bisect_right(row.ends, place)
                length = row.shards.lengths[row.order[position]]
                behind = place - (row.ends[position] - length)  # samples of the shard before this place
                if position != self._open or behind < self._read:
                    self._begin(position)
                while self._read < behind:
                    self._next()
                here = min(count, length - behind)
                samples += [self._next() for _ in range(here)]
                place, count = place + here, count - here
        except BaseException:  # the iterator has ended, also by Ctrl-C
            self._open = None
            raise
        return samples

    def _begin(self, position):
        self._samples = None  # closes the former one first
        self._open, self._read = position, 0
        self._seed()
        self._samples = self._row.shards.open(self._row.order[position], self._row.epoch)

    def _next(self):
        self._seed()
        try:
            sample = next(self._samples)
        except StopIteration:
            raise self._row.shards.too_short(self._row.order[self._open], self._read) from None
        self._read += 1
        return sample

    def _seed(self):
        row = self._row
        seed_all(row.seed, SHARDS, row.epoch, row.order[self._open], self._read)
