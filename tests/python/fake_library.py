"""A library for the package's tests that hands out given tasks and keeps what it gets, in the place of libpushpull.so.0."""
import ctypes
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from pushpull import _library  # noqa: E402

TRAIN, EVALUATE = _library.TRAIN, _library.EVALUATE


class FakeLibrary:
    """tasks: (kind, step, micro-batch, indices[, epoch]) in order. All are announced at first if `announces`.

    stages: of the model; groups: the numbers that pp_next_group returns one after the other, the last one for ever. A task that is
    "regroup" makes pp_next ask for the next group.
    """

    def __init__(self, tasks=(), announces=False, seed=7, micro_batch=5, task_timeout=0.0, workers=4, stages=1, place=-1,
                 groups=(), steps=6, epochs=0, says_rate=False):
        self.process = os.getpid()
        self.tasks = list(tasks)
        self.facts = dict(seed=seed, global_batch=4 * micro_batch, micro_batch=micro_batch, learning_rate=0.1,
                          weight_decay=0.0, task_timeout=task_timeout, same_bits=1, workers=workers, stages=stages,
                          place=place, loss_timeout=0.2, rank=0, steps=steps, epochs=epochs, strategy=b"sync", checkpoint_keep=3,
                          says_rate=int(says_rate))
        self.points = {}  # by step: term, its start, and checkpoint of its tasks; None: those of the end
        self.groups = list(groups)
        self.port = 0  # of the script with stage 0, if it is another one
        self.announced = [(*task[:3], 0, task[3]) for task in tasks] if announces else []
        self.tensors = []  # (name, shape, lr, weight_decay, momentum or None)
        self.undecayed = []  # names of tensors without weight decay
        self.heads = []
        self.weights = []  # flat lists, by tensor
        self.model = None
        self.on_attach = lambda: None  # called when a model has been declared
        self.weights_asked = 0
        self.copied = {}  # by tensor: the weights that were copied last
        self.given = []  # by task: {tensor: list}
        self.lent = []  # (tensor, address) of the open task
        self.losses = []
        self.reports = []
        self.failure = None
        self.freed = False
        self.same_weights = 0
        self.final = None  # weights of the job's end
        self.found = -1, []  # step and results of the newest evaluation
        self.progress = 0, float("nan"), float("nan")
        self.rates = []  # that the script has said
        self.sums = {}  # of all chunks, by name
        self.values = []  # of the heads with a formula, by evaluation

    def install(self):
        _library._loaded = self
        return self

    def pp_open(self, options, handle):
        handle._obj.value = 1
        return 0

    def pp_join(self, handle, timeout, facts):
        for key, value in self.facts.items():
            setattr(facts._obj, key, value)
        return 0

    def pp_attach(self, handle, model):
        model = self.model = model._obj
        flat = ctypes.cast(model.weights, ctypes.POINTER(ctypes.c_float))
        place = 0
        for tensor in model.tensors[:model.tensor_count]:
            shape = tensor.shape[:tensor.dimensions]
            elements = 1
            for size in shape:
                elements *= size
            self.tensors.append((tensor.name.decode(), shape, tensor.lr[0] if tensor.lr else None,
                                 tensor.weight_decay[0] if tensor.weight_decay else None,
                                 tensor.average_momentum if tensor.is_average else None))
            self.undecayed += [tensor.name.decode()] * tensor.no_decay
            self.weights.append(flat[place:place + elements])
            place += elements
        self.heads = [(head.name.decode(), head.metric) for head in model.heads[:model.head_count]]
        self.stage = model.stage, model.stages, model.port, model.stage_digest.decode()
        self.data = model.train_samples, model.test_samples, model.data_digest.decode(), model.numerics.decode()
        self.on_attach()
        return 0

    def _fill(self, task, kind, step, micro_batch, epoch, indices):
        task.kind, task.step, task.micro_batch, task.epoch = kind, step, micro_batch, epoch
        self.kept = (ctypes.c_int64 * len(indices))(*indices)
        task.indices, task.samples, task.same_weights = self.kept, len(indices), self.same_weights

    def pp_next(self, handle, timeout, task):
        if self.failure:
            return 1
        if not self.tasks:
            task._obj.kind, task._obj.same_weights = _library.END, int(self.final is None)
            task._obj.term, task._obj.term_start, task._obj.checkpoint = self.points.get(None, (1, 0, 0))
            self.weights = self.final or self.weights
            return 0
        if self.tasks[0] == "regroup":
            task._obj.kind = _library.REGROUP
            return 0
        if self.tasks[0] == "values":
            self.tasks.pop(0)
            task._obj.kind = _library.VALUES
            return 0
        kind, step, micro_batch, indices, *epoch = self.tasks.pop(0)
        self._fill(task._obj, kind, step, micro_batch, epoch[0] if epoch else 0, indices)
        task._obj.learning_rate = 0.1 / (2 + step)
        task._obj.term, task._obj.term_start, task._obj.checkpoint = self.points.get(step, (1, 0, 0))
        self.given.append({})
        return 0

    def pp_next_group(self, handle, timeout, group):
        """With a new group, pp_next has tasks again."""
        number = self.groups[0]
        if len(self.groups) > 1:
            self.groups.pop(0)
        if self.tasks and self.tasks[0] == "regroup" and number != group._obj.number and number != 0:
            self.tasks.pop(0)
        group._obj.number, group._obj.host, group._obj.port, group._obj.over = number, b"localhost", self.port or self.stage[2], int(not self.tasks)
        return 0

    def pp_announced(self, handle, task):
        task._obj.kind = _library.NOTHING_YET
        if self.announced:
            self._fill(task._obj, *self.announced.pop(0))
        return 0

    def pp_all_weights(self, handle, timeout, to, tensors, missing):
        """Each second call finds all weights; the others find all but those of tensor 0. A forked process has none."""
        if os.getpid() != self.process:
            return 2
        assert tensors == len(self.weights)
        self.weights_asked += 1
        late = to[0] is not None and self.weights_asked % 2 == 1
        for tensor in range(int(late), tensors):
            if to[tensor] is not None:
                values = self.weights[tensor]
                self.copied[tensor] = list(values)
                ctypes.memmove(to[tensor], (ctypes.c_float * len(values))(*values), 4 * len(values))
                to[tensor] = None
        missing._obj.value = int(late)
        return 0

    def pp_changed_weights(self, handle, at, tensors, changed):
        same = [at[tensor] is None or
                ctypes.cast(at[tensor], ctypes.POINTER(ctypes.c_float))[:len(values)] == values
                for tensor, values in ((one, self.copied[one]) for one in range(tensors))]
        changed._obj.value = (same + [False]).index(False)
        return 0

    def pp_gradient(self, handle, tensor, address, elements):
        assert elements == len(self.weights[tensor]) and tensor not in self.given[-1]
        self.given[-1][tensor] = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[:elements]
        return 0

    def pp_lend_gradient(self, handle, tensor, address, elements):
        """Reads it only when the task ends, or is waited for."""
        assert elements == len(self.weights[tensor]) and tensor not in self.given[-1]
        self.given[-1][tensor] = None
        self.lent.append((tensor, address))
        return 0

    def pp_await_lent(self, handle):
        for tensor, address in self.lent:
            self.given[-1][tensor] = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[:len(self.weights[tensor])]
        self.lent.clear()
        return 0

    def pp_end(self, handle, loss):
        self.losses.append(loss)
        return self.pp_await_lent(handle)

    def pp_set_lr(self, handle, rate):
        self.rates.append(rate)
        return 0

    def pp_get_progress(self, handle, progress):
        progress._obj.steps, progress._obj.loss, progress._obj.learning_rate = self.progress
        return 0

    def pp_add_sum(self, handle, name, value):
        self.sums[name.decode()] = self.sums.get(name.decode(), 0.0) + value
        return 0

    def pp_totals(self, handle, totals, count):
        self.told = (_library.Total * len(self.sums))(*(_library.Total(name.encode(), value) for name, value in sorted(self.sums.items())))
        totals._obj.contents = self.told[0]
        count._obj.value = len(self.sums)
        return 0

    def pp_report_values(self, handle, values, count):
        self.values.append(list(values[:count]))
        return 0

    def pp_evaluated(self, handle, step, results, heads):
        step._obj.value = self.found[0]
        for one, (loss, metric) in zip(results, self.found[1]):
            one.loss, one.metric = loss, metric
        return 0

    def pp_report(self, handle, sums, heads):
        self.reports.append([(one.loss, one.counted, one.metric) for one in sums[:heads]])
        return 0

    def pp_fail(self, handle, why):
        self.failure = self.failure or why.decode()
        return 0

    def pp_error(self, handle):
        return (self.failure or "").encode()

    def pp_free(self, handle):
        self.freed = True
