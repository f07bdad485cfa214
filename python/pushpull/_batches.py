"""Batches of data sets: read by this process, or ahead of time by processes of their own."""
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import traceback
import weakref

from pushpull._digest import data_digest
from pushpull._error import DATA, Error
from pushpull._interrupts import Uninterrupted
from pushpull._seeds import DATA as DATA_SEED
from pushpull._seeds import seed_all

_POLL_S = 0.1


class Split:
    """A map-style data set with the function that makes a batch of its samples.

    pieces: more than 1: a micro-batch is read as a list of this number of equal batches.
    """

    def __init__(self, data, collate, pieces=1):
        self.data, self.collate, self._pieces = data, collate, pieces
        self.samples = 0 if data is None else len(data)

    def digest(self, seed):
        return data_digest(self.data, self.samples, seed)

    def lane_of(self, task):
        """Returns a number by which to choose the process that reads a task, or None if any may: see Stream."""

    def read(self, seed, task):
        """Returns the batch of a task, given as Session.announced gives it."""
        kind, step, micro_batch, _, indices = task
        seed_all(seed, DATA_SEED, kind, step, micro_batch)
        if self._pieces == 1:
            return self._read(indices)
        size = len(indices) // self._pieces
        return [self._read(indices[first:first + size]) for first in range(0, len(indices), size)]

    def _read(self, indices):
        many = getattr(self.data, "__getitems__", None)
        samples = many(indices) if many else [self.data[index] for index in indices]
        return self.collate(samples)


class Batches:
    """The batches of both splits.

    splits: by kind of task: Split or Stream.
    workers: number of processes that read ahead; 0: this one reads, one batch ahead.
    context: of multiprocessing, with the reductions of the framework.
    """

    def __init__(self, splits, seed, workers=0, ahead=2, context=multiprocessing):
        self._splits, self._seed = splits, seed
        self._readers = [_Reader(splits, seed, context) for _ in range(workers)]
        self._most = workers * ahead
        self._asked = {}  # key of a batch: its reader
        self._ready = {}

    def expect(self, session):
        """Reads ahead what the session announces: the processes as far as they may, else this one the next batch."""
        if not self._readers:
            self._read_next(session)
            return
        while len(self._asked) + len(self._ready) < self._most:
            task = session.announced()
            if task is None:
                return
            self._ask(task)

    def get(self, task):
        """Returns the batch of a task, given as Session.announced gives it."""
        key = task[:3]
        if not self._readers:
            batch = self._ready.pop(key) if key in self._ready else self._read(task)
            # The library announces no task that it hands out at once, so the batch of the one after it may be here.
            self._ready = {other: kept for other, kept in self._ready.items() if other[0] == key[0] and other[1:] > key[1:]}
            return batch
        if key not in self._asked and key not in self._ready:
            self._ready.clear()  # announcements of another worker's tasks, which would keep new ones out
            self._ask(task)
        while key not in self._ready:
            self._collect()
        for old in [other for other in self._ready if other[0] == key[0] and other[1:] < key[1:]]:
            del self._ready[old]  # announced, but given to another worker
        batch, failure = self._ready.pop(key)
        if failure:
            raise Error(failure, DATA)
        return batch

    def close(self):
        for reader in self._readers:
            reader.close()
        self._readers = []

    def _read_next(self, session):
        """Reads one batch while the weights of its task are on their way."""
        task = None if self._ready else session.announced()
        if task is None:
            return
        with session.watched(task):
            self._ready = {task[:3]: self._read(task)}

    def _read(self, task):
        return self._splits[task[0]].read(self._seed, task)

    def _ask(self, task):
        if task[:3] in self._asked or task[:3] in self._ready:
            return
        lane = self._splits[task[0]].lane_of(task)
        least = min(self._readers, key=lambda one: one.open)
        reader = least if lane is None else self._readers[lane % len(self._readers)]
        with Uninterrupted():
            reader.ask(task)
            self._asked[task[:3]] = reader

    def _collect(self):
        connections = {reader.connection: reader for reader in self._readers}
        for connection in multiprocessing.connection.wait(list(connections), _POLL_S):
            with Uninterrupted():  # a message is received as a whole
                key, batch, failure = connections[connection].take()
                self._asked.pop(key, None)
                self._ready[key] = (batch, failure)
        for reader in self._readers:
            reader.check()


_started = weakref.WeakSet()  # processes that read batches


def _forget_started():
    """In a forked process: multiprocessing ends its children at its exit, and these are the parent's."""
    for process in _started:
        multiprocessing.process._children.discard(process)


os.register_at_fork(after_in_child=_forget_started)


class _Reader:
    """A process that reads batches."""

    def __init__(self, splits, seed, context):
        self.connection, theirs = context.Pipe(duplex=False)
        # A queue has a thread that writes: the script never waits for a reader that waits for the script.
        self._asked = context.Queue()
        self.open = 0  # batches asked for and not taken
        self._process = context.Process(target=_serve, args=(self._asked, theirs, splits, seed), daemon=True)
        self._process.start()
        _started.add(self._process)
        theirs.close()

    def ask(self, task):
        self.open += 1
        self._asked.put(task)

    def take(self):
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            self.check()
            raise
        self.open -= 1
        return answer

    def check(self):
        code = self._process.exitcode
        if code is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            raise Error(f"[data] process {self._process.pid}, which reads samples, {how}", DATA)

    def close(self):
        self._asked.put(None)
        self._asked.close()
        self._asked.cancel_join_thread()
        self.connection.close()  # a reader that waits for the script ends now
        self._process.join(1)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _serve(asked, connection, splits, seed):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and ends this process
    _use_one_thread()
    first_parent = os.getppid()  # of a forked process; of others the server that forks ends with the parent
    while True:
        try:
            task = asked.get(timeout=1)
        except queue.Empty:
            if os.getppid() != first_parent or not multiprocessing.parent_process().is_alive():
                return
            continue
        if task is None:
            return
        batch, failure = None, None
        try:
            batch = splits[task[0]].read(seed, task)
        except Error as error:
            failure = str(error)
        except Exception as error:  # told to the parent, whatever the data set raises
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = _failed(f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})")
        try:
            connection.send((task[:3], batch, failure))
        except OSError:
            return
        except Exception as error:  # the batch cannot be pickled; nothing has been sent
            connection.send((task[:3], None, _failed(f"its batch cannot be sent: {type(error).__name__}: {error}")))


def _failed(text):
    return f"[data] a process that reads samples failed: {text}"


def _use_one_thread():
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
