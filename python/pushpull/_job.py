"""The common part of the jobs of all frameworks: heads, groups, declarations, sums of an evaluation. One thread uses a job."""
import ctypes
import fnmatch
import math

from pushpull import _library
from pushpull._error import USAGE, Error


class Group:
    """Settings of the tensors whose names fit a pattern. Of several groups the first that fits decides."""

    def __init__(self, pattern, lr=None, weight_decay=None):
        self.pattern, self.lr, self.weight_decay = pattern, lr, weight_decay

    def fits(self, name):
        return fnmatch.fnmatchcase(name, self.pattern)


def group(pattern, lr=None, weight_decay=None):
    """Returns a group for `attach`.

    pattern: of names, with * and ?, such as "*.bias".
    lr: learning rate in place of the job's; the job's schedule multiplies it.
    weight_decay: in place of the job's weight-decay and no-decay.
    """
    return Group(pattern, lr, weight_decay)


class Cost:
    """A formula of an evaluation whose value is better if it is less."""

    def __init__(self, function):
        self.function = function


def cost(function):
    """Marks a formula of `metrics` whose value is better if it is less: metrics={"wer": pp.cost(lambda s: ...)}."""
    return Cost(function)


class BaseJob:
    """A job that this process works for. `join` of the framework's module makes it."""

    def __init__(self, session):
        self._session = session
        self._heads = {}  # by name: metric
        self._formulas = {}  # by name
        self._loss = None  # of the newest step in the weights
        self._kept_rate = None  # of that step, if scripts say rates
        self._rate = session.facts.learning_rate
        self._train_samples = None
        self._strategy = session.facts.strategy.decode()  # the library frees its own with the session

    @property
    def seed(self):
        """Returns the job's seed. Seed the model's initial weights with it: it is equal in all workers."""
        return self._session.facts.seed

    @property
    def global_batch(self):
        return self._session.facts.global_batch

    @property
    def micro_batch(self):
        return self._session.facts.micro_batch

    @property
    def stages(self):
        """Returns the number of stages of the model, each of which one worker of a group computes; 1: it is not divided."""
        return self._session.facts.stages

    @property
    def world_size(self):
        """Returns the number of workers that the job was started for."""
        return self._session.facts.workers

    @property
    def rank(self):
        """Returns this worker's number, from 0. No other worker that lives has it, and it stays as it is."""
        return self._session.facts.rank

    @property
    def strategy(self):
        """Returns the strategy as in the job file, such as "ssp:2"."""
        return self._strategy

    @property
    def steps(self):
        """Returns the number of steps of the job. Raises Error if it has epochs, and no data yet."""
        facts = self._session.facts
        if facts.steps == 0 and self._train_samples is None:
            raise Error("[job] steps are known once the job has its data: epochs = " + str(facts.epochs), USAGE)
        return self._steps_of(self._train_samples)

    def _steps_of(self, train_samples):
        facts = self._session.facts
        return facts.steps or facts.epochs * (train_samples // facts.global_batch)

    @property
    def loss(self):
        """Returns the mean loss over all workers of the newest step whose update the weights contain, or None if it is not
        known. In sync all workers see the same."""
        return self._loss

    @property
    def lr(self):
        """The rate of the newest micro-batch's step. With lr-schedule = external a script may set it: it holds from the open
        step on, until another one is set, and that of the worker with micro-batch 0 counts."""
        return self._rate

    @lr.setter
    def lr(self, rate):
        self._show_rate(float(rate))
        self._say_rate(float(rate))

    def _say_rate(self, rate):
        self._session.set_lr(rate)
        self._rate = rate

    def _show_rate(self, rate):
        """Shows a rate that the script has set, where the framework has a place for it."""

    def _take_progress(self):
        """Call when all weights of a task are here."""
        steps, loss, rate = self._session.progress()
        self._loss = None if math.isnan(loss) else loss
        self._kept_rate = None if math.isnan(rate) or steps == 0 else rate

    def evaluated(self):
        """Returns what the job's newest evaluation has found, over all workers, as far as this one knows: a dict of the step,
        "loss" and the metric, such as "accuracy", or, if there are several heads, with such a dict for each; and the values of
        `metrics` by name. None: nothing yet.
        """
        if not self._heads:
            return None
        step, results = self._session.evaluated(len(self._heads) + len(self._formulas))
        if step < 0:
            return None
        found = {name: {"loss": loss, metric.replace(" ", "_"): value}
                 for (name, metric), (loss, value) in zip(self._heads.items(), results)}
        values = {name: value for name, (_, value) in zip(self._formulas, results[len(self._heads):])}
        return {"step": step, **(found if len(found) > 1 else next(iter(found.values()))), **values}

    def leave(self):
        """Ends the session. The job loses this worker if it is not over."""
        self._session.close()

    def _set_heads(self, metrics, formulas=None):
        """formulas: by name: function of the named sums of an evaluation."""
        self._formulas = dict(formulas or {})
        for name, formula in self._formulas.items():
            if not callable(getattr(formula, "function", formula)):
                raise Error(f"[attach] metrics has {formula!r} for {name}: expected a function of the named sums", USAGE)
        self._session.compute_values(self._values)
        self._heads = {"output": metrics} if isinstance(metrics, str) else dict(metrics)
        for name, metric in self._heads.items():
            if metric not in _library.METRICS:
                raise Error(f"[attach] metric '{metric}' of head {name}: expected one of {', '.join(_library.METRICS)}", USAGE)

    def _values(self, sums):
        """Returns the values of all formulas; NaN: a value cannot be computed from these sums."""
        return [_value_of(name, getattr(formula, "function", formula), sums) for name, formula in self._formulas.items()]

    def _declare(self, entries, weights, train_samples, test_samples, digest, numerics, stage=(0, 1, 0, ""),
                 groups=(), in_order=False, sample_weights=None):
        """Declares the model.

        entries: (name, shape, group or None, average momentum or None) of each tensor.
        weights: address of the initial weights.
        stage: as in Session.attach. groups: of the model, if it is a stage; some may be of other stages' tensors.
        in_order, sample_weights: as in pp_model; the latter an array of c_double, or None.
        """
        self._train_samples = train_samples
        tensors = (_library.Tensor * len(entries))()
        keep = []  # memory that the array points to
        used = list(groups) + [group for _, _, group, _ in entries if group]
        groups_decide = any(group.weight_decay is not None for group in used)
        for tensor, (name, shape, group, momentum) in zip(tensors, entries):
            sizes = (ctypes.c_int64 * len(shape))(*shape)
            keep.append(sizes)
            tensor.name, tensor.shape, tensor.dimensions = name.encode(), sizes, len(shape)
            tensor.no_decay = int(len(shape) < 2 and not groups_decide)  # biases and norms
            tensor.lr = _pointer_to(group and group.lr, keep)
            tensor.weight_decay = _pointer_to(group and group.weight_decay, keep)
            tensor.is_average, tensor.average_momentum = int(momentum is not None), momentum or 0.0
        metrics = {name: _library.METRICS.index(metric) for name, metric in self._heads.items()}
        twice = set(metrics) & set(self._formulas)
        if twice:
            raise Error(f"[attach] {', '.join(sorted(twice))} is a head and one of metrics: give them two names", USAGE)
        metrics.update((name, _library.COST if isinstance(formula, Cost) else _library.VALUE)
                       for name, formula in self._formulas.items())
        heads = (_library.Head * len(metrics))(*(_library.Head(name.encode(), metric) for name, metric in metrics.items()))
        self._session.attach(tensors, heads, weights, train_samples, test_samples, digest, numerics, stage, in_order,
                             sample_weights)

    def _sums(self, samples, results):
        """Returns the sums of an evaluation.

        results: the arguments of `report`, by head, or by None for the only head.
        """
        unknown = [name for name in results if name is not None and name not in self._heads]
        if unknown or (None in results and len(self._heads) > 1):
            raise Error(f"[report] results of {unknown or 'no head'}: the heads are {', '.join(self._heads)}", USAGE)
        sums = []
        for name, metric in self._heads.items():
            given = results.get(name, results.get(None))
            if not isinstance(given, (dict, type(None))) or set(given or ()) - _FIGURES:
                raise Error(f"[report] head {name} has {given}: expected a dict of {', '.join(sorted(_FIGURES))}", USAGE)
            if given is None or given.get("loss") is None:
                raise Error(f"[report] head {name} lacks its loss", USAGE)
            sums.append(_head_sums(name, metric, samples, **given))
        return sums + [(0.0, 0, 0.0)] * len(self._formulas)


_FIGURES = {"loss", "correct", "squared_error", "count"}  # of a report


def _number(name, figure, value):
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        shape = list(value.shape) if hasattr(value, "shape") else repr(value)
        raise Error(f"[report] {figure} of head {name} is {shape}: expected a scalar", USAGE) from None


def _whole(name, figure, value):
    """Returns a count. The library knows how large it may be."""
    number = _number(name, figure, value)
    if math.isfinite(number) and number == int(number):
        return int(number)
    raise Error(f"[report] {figure} of head {name} is {number:g}: expected a whole number", USAGE)


def named_sums(given):
    """Returns the argument `sums` of a report, as numbers."""
    return {name: _number(name, "a sum", value) for name, value in (given or {}).items()}


def _value_of(name, formula, sums):
    try:
        return float(formula(sums))
    except ZeroDivisionError:
        return math.nan
    except KeyError as error:
        raise Error(f"[report] the formula of {name} needs the sum {error}: task.report(sums=...) has given "
                    f"{', '.join(sums) or 'none'}", USAGE) from None


def _head_sums(name, metric, samples, loss, correct=None, squared_error=None, count=None):
    counted = samples if count is None else _whole(name, "count", count)
    total = _number(name, "loss", loss) * counted if counted else 0.0
    if metric == "perplexity":
        return total, counted, total
    if metric == "mean squared error":
        return total, counted, total if squared_error is None else _number(name, "squared_error", squared_error)
    if correct is None:
        raise Error(f"[report] head {name} lacks correct=, the number of its correct targets", USAGE)
    return total, counted, _whole(name, "correct", correct)


def _pointer_to(value, keep):
    if value is None:
        return None
    keep.append(ctypes.c_double(value))
    return ctypes.pointer(keep[-1])


def size_of(data, split):
    """Returns the number of samples. Raises Error if the data set has no length."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        raise Error(f"[attach] the {split} data set ({type(data).__name__}) has no length: a job needs one whose samples "
                    f"have indices, with __len__ and __getitem__", USAGE) from None


def no_indices(data, split):
    return Error(f"[attach] the {split} data set ({type(data).__name__}) has no indices: a job draws samples by index, so "
                 f"give it a data set with __len__ and __getitem__, not a loader, or an iterable of samples with length=", USAGE)


def checked_weights(weights, samples):
    """Returns weights of samples as an array of c_double. Raises Error if they are no weights of so many."""
    try:
        numbers = [float(one) for one in (weights.tolist() if hasattr(weights, "tolist") else weights)]
    except (TypeError, ValueError):
        raise Error(f"[attach] weights is a {type(weights).__name__}: expected a number for each training sample", USAGE) from None
    if len(numbers) != samples:
        raise Error(f"[attach] {len(numbers)} weights, and {samples} training samples: expected a number for each", USAGE)
    return (ctypes.c_double * samples)(*numbers)


def find_group(groups, name):
    return next((group for group in groups if group.fits(name)), None)


def check_groups(groups, names, whole=True):
    """Returns the groups as a list. Raises Error for one that is none, or fits no name.

    whole: the names are those of the whole model; otherwise a group may be of others.
    """
    groups = [groups] if isinstance(groups, Group) else list(groups)
    for group in groups:
        if not isinstance(group, Group):
            raise Error(f"[attach] groups has a {type(group).__name__}: expected pp.group(PATTERN, lr=, weight_decay=)", USAGE)
        for value in (group.lr, group.weight_decay):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise Error(f"[attach] a group's lr or weight_decay is {value}: expected a number from 0", USAGE)
        if whole and not any(group.fits(name) for name in names):
            raise Error(f"[attach] group '{group.pattern}' fits no parameter, of: {', '.join(list(names)[:8])}", USAGE)
    return groups
