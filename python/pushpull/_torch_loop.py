"""The loader and the optimizer of a loop that the script owns: they hand out the job's micro-batches, and end them."""
import copy
import math
import warnings

import torch
from torch.utils.data import DistributedSampler, IterableDataset, RandomSampler, SequentialSampler, WeightedRandomSampler

from pushpull._error import USAGE, Error
from pushpull._job import Group, find_group


class Loader:
    """This worker's micro-batches: an iteration has those of one epoch, in as many pieces each as `accumulate` says.

    It has a length, `dataset` and `batch_size`, which other libraries read. `len` counts the share that the worker begins with,
    at least one micro-batch: a worker that is faster than others, or takes over a lost one's work, gets more, and another one
    fewer, or none.

    dataset: the training data.
    batch_size: samples of a piece.
    source: the training data as a Split or a Stream.
    others: as Job.loader has them.
    """

    def __init__(self, job, dataset, source, num_workers, collate_fn, prefetch_factor, accumulate, data_digest, weights):
        if accumulate < 1 or job.micro_batch % accumulate != 0:
            raise Error(f"[loader] accumulate is {accumulate}: expected a divisor of micro-batch = {job.micro_batch}, whose "
                        f"pieces are equal", USAGE)
        self._job = job
        self.dataset, self.source, self.batch_size = dataset, source, job.micro_batch // accumulate
        self.num_workers, self.collate_fn, self.prefetch_factor = num_workers, collate_fn, prefetch_factor
        self.accumulate, self.data_digest, self.weights = accumulate, data_digest, weights

    def __len__(self):
        job = self._job
        micro_batches, place = job.global_batch // job.micro_batch, job.rank % job.world_size
        share = (place + 1) * micro_batches // job.world_size - place * micro_batches // job.world_size  # as common/layout has it
        return max(self.source.samples // job.global_batch * share, 1) * self.accumulate

    def __iter__(self):
        return self._job._epoch_batches()


class Optimizer(torch.optim.Optimizer):
    """The job's optimizer, in the servers: `step` ends a micro-batch. `param_groups` show the rates of the job's schedule.

    A script that sets rates changes nothing, unless the job has lr-schedule = external, nor does `load_state_dict`: servers
    have the state.
    """

    def __init__(self, job, model, groups, trained):
        self._job, self.model, self.groups = job, model, groups
        facts = job._session.facts
        mine = {group: [] for group in (None, *groups)}
        for entry in trained:
            mine[find_group(groups, entry.name)].append(entry.tensor)
        shown = []
        for group, parameters in mine.items():
            rate = facts.learning_rate if group is None or group.lr is None else group.lr
            decay = facts.weight_decay if group is None or group.weight_decay is None else group.weight_decay
            if parameters:
                shown.append({"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay})
        super().__init__(shown, {"lr": facts.learning_rate})
        self._bases = [group["lr"] for group in self.param_groups]
        self._rates = list(self._bases)
        self._told = False
        self._schedulers = []  # with their state and rates at the beginning, their steps until now, and the job's steps for each
        self._begun = False

    def schedule(self, scheduler, every=1):
        """Lets `begin` step it. If it is a scheduler of another optimizer, the rate of that one's first group is the job's.

        every: steps of the job for a step of it.
        """
        rates = [group["lr"] for group in self._groups_of(scheduler)]
        self._schedulers.append([scheduler, copy.deepcopy(scheduler.state_dict()), rates, 0, every])
        return scheduler

    def _groups_of(self, scheduler):
        return getattr(scheduler, "optimizer", self).param_groups

    def begin(self, step, kept):
        """Sets the rates of a script that has rates of its own: those of its schedulers for this step.

        kept: rate of the step before, or None. A script that has set none goes on with it after a resume.
        """
        if not self._begun and not self._schedulers and kept is not None and self._shown() == self._rates:
            self.set_rate(kept)
        self._begun = True
        for one in self._schedulers:
            scheduler, state, rates, steps, every = one
            shown = self._groups_of(scheduler)
            if steps > step // every:  # the job has gone back to a checkpoint
                scheduler.load_state_dict(copy.deepcopy(state))
                for group, rate in zip(shown, rates):
                    group["lr"] = rate
                steps = 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is stepped without an update, by a worker that begins later
                for _ in range(step // every - steps):
                    scheduler.step()
            one[3] = step // every
            if shown is not self.param_groups:
                self.set_rate(float(shown[0]["lr"]))

    def rate(self):
        """Returns the job's rate that the groups show. Raises Error if it differs between them."""
        lr = self._job._session.facts.learning_rate
        factors = [float(group["lr"]) / base for group, base in zip(self.param_groups, self._bases) if base > 0]
        if any(not math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors if math.isfinite(factors[0])):
            raise Error(f"[optimizer] the rates of param_groups are {self._shown()}, and were {self._bases} at first: a job has "
                        f"one rate, which multiplies those of groups, so change all by the same factor", USAGE)
        if self._bases[0] == lr or not factors:
            return float(self.param_groups[0]["lr"])
        return factors[0] * lr

    def set_rate(self, rate):
        """Shows the job's rate in all groups."""
        lr = self._job._session.facts.learning_rate
        for group, base in zip(self.param_groups, self._bases):
            group["lr"] = rate if base == lr else base * (rate / lr)

    def _shown(self):
        return [group["lr"] for group in self.param_groups]

    def step(self, closure=None, loss=None):
        """Ends the open micro-batch after its backward, in the place of an update. Returns what the closure does.

        loss: mean over the micro-batch, for the job's figures; None: that of job.log or of the closure, or not known.
        """
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        self._job._end_batch(loss, result)
        return result

    def show_rate(self, factor):
        """Sets the rates of `param_groups`. Says once if the script has set them.

        factor: of the job's schedule.
        """
        if not self._told and [group["lr"] for group in self.param_groups] != self._rates:
            self._told = True
            self._job._session.say("[optimizer] the script has changed lr of param_groups, which changes nothing: the job's "
                                   "keys lr, lr-schedule and warmup-steps count")
        self._rates = [base * factor for base in self._bases]
        for group, rate in zip(self.param_groups, self._rates):
            group["lr"] = rate


def say_what_counts(job, library, given):
    """Says in one line which settings of another library differ from the job's, which count.

    given: by name: the library's value, and the job's, or a text that says which keys count.
    """
    different = [f"{name} {value} ({counts if isinstance(counts, str) else f'the job has {counts}'})"
                 for name, (value, counts) in given.items() if value not in (None, counts)]
    if different:
        job._session.say(f"the job's keys count, not these of {library}: {', '.join(different)}")


def rates_of(job, optimizers):
    """Returns what say_what_counts takes of optimizers of torch.optim that do not count."""
    facts = job._session.facts
    found = {"optimizer": (" and ".join(type(one).__name__ for one in optimizers) or None, "the key optimizer")}
    for one in optimizers[:1]:
        found["lr"] = one.defaults.get("lr"), facts.learning_rate  # not that of a warm-up
        found["weight_decay"] = one.param_groups[0].get("weight_decay"), facts.weight_decay
    return found


_REPLACED = {RandomSampler, SequentialSampler, DistributedSampler, WeightedRandomSampler}  # by the job's sampling, or its weights


def settings_of(loader, batch_size):
    """Returns what say_what_counts takes of a DataLoader. Raises Error if it makes no batches of samples.

    batch_size: of the job's loader.
    """
    if loader.batch_sampler is None:
        raise Error("[loader] the DataLoader has batch_size=None, so its data set yields batches: a job makes its own, so give "
                    "job.loader a data set of samples", USAGE)
    own = loader.sampler if loader.batch_size is not None else loader.batch_sampler
    return {"batch_size": (loader.batch_size, batch_size),
            "sampler": (None if type(own) in _REPLACED or isinstance(loader.dataset, IterableDataset) else type(own).__name__,
                        "the key sampler"),
            "worker_init_fn": (loader.worker_init_fn and "of the script", "the job seeds each micro-batch")}


class _Members(Group):
    """The parameters of a group of torch.optim, by their names."""

    def __init__(self, number, names, lr, weight_decay):
        super().__init__(f"param_groups[{number}]", lr, weight_decay)
        self._names = names

    def fits(self, name):
        return name in self._names


def groups_of(job, optimizer, trained):
    """Returns the groups of an optimizer of torch.optim: with its weight decays, and the job's rate times the ratio of theirs."""
    names = {id(entry.tensor): entry.name for entry in trained}
    base, groups = optimizer.defaults.get("lr"), []
    for number, group in enumerate(optimizer.param_groups):
        members = {names.pop(id(one)) for one in group["params"] if id(one) in names}
        ratio = float(group.get("initial_lr", group["lr"])) / float(base) if base else 1.0
        if members:
            groups.append(_Members(number, members, None if ratio == 1.0 else ratio * job._session.facts.learning_rate,
                                   group.get("weight_decay")))
    if names:
        raise Error(f"[optimizer] {type(optimizer).__name__} has no group with {', '.join(list(names.values())[:8])}: a job trains "
                    f"all parameters that are not frozen, so set requires_grad=False", USAGE)
    return groups
