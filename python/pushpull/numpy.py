"""Workers in any framework whose arrays NumPy can read (JAX): the loop gets weights, and gives gradients, as arrays.

    job = pp.join()
    job.attach({"weight": numpy.zeros((3, 2), "float32")}, train_samples=1000, test_samples=100, data_digest="v1")
    for task in job.tasks():
        loss, gradients = compute(task.weights, task.indices)
        if task.training: task.end(loss, gradients)
        else: task.report(loss=loss, correct=...)

docs/examples has a script for JAX (jax_mlp.py) and one for Keras (keras_mnist.py).
"""
import contextlib
import ctypes
import io
import re
import sys

import numpy

from pushpull import Error, cost, group
from pushpull._error import USAGE
from pushpull._job import BaseJob, check_groups, find_group, named_sums
from pushpull._library import TRAIN
from pushpull._processor import cores, processor, variables
from pushpull._seeds import COMPUTE, seed_all
from pushpull._session import Session

__all__ = ["Error", "Job", "Task", "cost", "group", "join"]


def join(address=None, **options):
    """Joins a job with model = external and returns it. The arguments are those of pushpull.torch.join."""
    return Job(Session(address, **options))


class Job(BaseJob):
    """A job of this process. Used by one thread."""

    def __init__(self, session):
        super().__init__(session)
        self._weights = None  # of the task, by name
        self._averages = frozenset()
        self._open = None

    def attach(self, weights, train_samples, test_samples=0, data_digest="", groups=(), metric="accuracy", numerics=None,
               averages=(), metrics=None):
        """Declares the model and the data; call it once. They must be the same in all workers.

        weights: float32 arrays by name; the initial ones of the job if this is the worker with the lowest rank.
        data_digest: text that differs if the data differ.
        numerics: text that differs if the arithmetic may differ in a bit; None: the versions of NumPy and, if it is loaded,
            JAX, the processor, the BLAS, and the variables that choose their kernels and threads.
        averages: names of weights that are not trained but computed in forward, such as the moving mean of a batch
            normalization. `task.end` gets the value after the micro-batch in the place of a gradient; the servers keep the
            mean over the micro-batches of a step.
        metrics: as that of pushpull.torch.Job.attach.
        """
        self._session.check_process()
        if self._weights is not None:
            raise Error("[attach] the job has a model already: attach can be called once", USAGE)
        for name, array in weights.items():
            if array.dtype != numpy.float32:
                raise Error(f"[attach] {name} is {array.dtype}: servers hold float32", USAGE)
        groups = check_groups(groups, weights)
        averages = frozenset(averages)
        if averages - set(weights):
            raise Error(f"[attach] averages names {', '.join(sorted(averages - set(weights)))}: the model has "
                        f"{', '.join(weights)}", USAGE)
        self._set_heads(metric if test_samples else {}, metrics if test_samples else None)
        flat = numpy.concatenate([numpy.ascontiguousarray(array).reshape(-1) for array in weights.values()])
        # the new value replaces the old one: the script has mixed them already
        entries = [(name, array.shape, None if name in averages else find_group(groups, name), 1.0 if name in averages else None)
                   for name, array in weights.items()]
        self._declare(entries, flat.ctypes.data, train_samples, test_samples, data_digest,
                      numerics or _numerics())
        self._averages = averages
        self._weights = {name: numpy.empty(array.shape, numpy.float32) for name, array in weights.items()}

    def tasks(self):
        """Yields the tasks of this worker until the job ends."""
        if self._weights is None:
            raise Error("[tasks] the job has no model: call job.attach first", USAGE)
        while self._open is not None or self._session.next():
            self._open = self._open or Task(self, self._session)
            addresses = (array.ctypes.data for array in self._weights.values())
            self._session.weights((ctypes.c_void_p * len(self._weights))(*addresses))
            self._take_progress()
            if self._open.training:
                self._rate = self._session.task.learning_rate
            seed_all(self.seed, COMPUTE, self._open.step, self._open.micro_batch)
            yield self._open
            if self._open is not None:
                raise Error("[task] it was not ended: call task.end, or task.report in an evaluation", USAGE)

    def _end(self, loss, gradients):
        unknown = set(gradients) - set(self._weights)
        if unknown:
            raise Error(f"[gradient] of {', '.join(sorted(unknown))}: the model has {', '.join(self._weights)}", USAGE)
        for name, gradient in gradients.items():
            if numpy.shape(gradient) != self._weights[name].shape:
                raise Error(f"[gradient] of {name} has shape {list(numpy.shape(gradient))}, expected "
                            f"{list(self._weights[name].shape)}, that of its weights", USAGE)
        missing = self._averages - set(gradients)
        if missing:
            raise Error(f"[gradient] the new value of {', '.join(sorted(missing))} is missing: it is one of averages", USAGE)
        arrays = {name: numpy.ascontiguousarray(gradients[name], numpy.float32) for name in self._weights if name in gradients}
        with self._session.uninterrupted():
            for index, name in enumerate(self._weights):
                if name in arrays:
                    give = self._session.gradient if name in self._averages else self._session.lend_gradient
                    give(index, arrays[name].ctypes.data, arrays[name].size)
            self._open = None
            self._session.end(float(loss))


def _numerics():
    threads = variables("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") or [f"{cores()} cores"]
    parts = [f"NumPy {numpy.__version__}", processor(), _blas(), *threads, *variables(),
             *variables("JAX_DEFAULT_MATMUL_PRECISION")]
    parts += [f"{name} {sys.modules[name].__version__}" for name in ("jax", "jaxlib") if name in sys.modules]
    return ", ".join(parts)


def _blas():
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        numpy.show_config()
    found = re.search(r"(?:name: |libraries = \['?)(\w*(?:blas|mkl|blis)\w*)", shown.getvalue())
    return f"BLAS {found.group(1)}" if found else "BLAS unknown"


class Task:
    """A micro-batch of this worker's share, or a chunk of the test data.

    weights: arrays by name, valid until the task ends. indices: of the samples in their split. training, step,
    micro_batch, epoch: as those of pushpull.torch.Task.
    """

    def __init__(self, job, session):
        facts = session.task
        self._job = job
        self.training = facts.kind == TRAIN
        self.step, self.micro_batch, self.epoch = facts.step, facts.micro_batch, facts.epoch
        self.indices = numpy.array(session.indices(), numpy.int64)

    @property
    def weights(self):
        return self._job._weights

    def end(self, loss, gradients):
        """Ends a micro-batch with its mean loss and its gradients by name. A missing gradient counts as zeros.

        gradients: also has the new values of `averages`.
        """
        self._job._end(loss, gradients)

    def report(self, loss=None, correct=None, squared_error=None, count=None, sums=None, **heads):
        """Ends an evaluation's task. The arguments are those of pushpull.torch.Task.report."""
        results = heads or {None: {"loss": loss, "correct": correct, "squared_error": squared_error, "count": count}}
        results, named = self._job._sums(len(self.indices), results), named_sums(sums)
        with self._job._session.uninterrupted():
            self._job._open = None
            self._job._session.report(results, named)
