"""PyTorch workers of a pushpull job: any `nn.Module` trains through the job's servers (docs/pytorch.md).

    job = pp.join()
    torch.manual_seed(job.seed); model = Net()
    loader = job.loader(train_set)
    optimizer = job.optimizer(model)
    for epoch in job.epochs():
        for x, y in loader:
            optimizer.zero_grad(); loss = F.cross_entropy(model(x), y); loss.backward(); optimizer.step(loss=loss)
"""
import sys

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler, default_collate

from pushpull import Error, cost, group
from pushpull._batches import Batches, Split
from pushpull._checkpoint import optimizer_state, read_checkpoint
from pushpull._error import STOPPED, USAGE, GroupChanged
from pushpull._job import BaseJob, check_groups, checked_weights, find_group, named_sums, no_indices, size_of
from pushpull._library import EVALUATE, NO_LOSS, TRAIN
from pushpull._script_state import ScriptState
from pushpull._seeds import COMPUTE, seed_all
from pushpull._session import Session
from pushpull._streams import Shards, Stream, shards_of
from pushpull._torch_exchange import BACKWARD, STEP, Exchange
from pushpull._torch_loop import Loader, Optimizer, groups_of, rates_of, say_what_counts, settings_of
from pushpull._torch_model import ModelTensors
from pushpull._torch_numerics import numerics
from pushpull._torch_stages import Meeting, StageGroup, may_be_lost_member, wait_for_change

__all__ = ["Error", "GroupChanged", "Job", "Loader", "Optimizer", "Shards", "Task", "cost", "group", "join", "optimizer_state",
           "read_checkpoint"]


def join(address=None, **options):
    """Joins a job with model = external and returns it.

    address: tcp://HOST:PORT of the first server, or "auto": from the variables of the launcher (docs/clusters.md).
        None: the variable PUSHPULL_JOIN, which `pushpull run --worker` sets.
    options: those of Session: job (one of several), timeout (seconds), key (file), insecure, listen and advertise for all-reduce, and keys of the
        job that the script means, such as global_batch=256, optimizer="adamw", lr=3e-4.
    """
    return Job(Session(address, **options))


class Job(BaseJob):
    """A job of this process. Used by one thread."""

    def __init__(self, session):
        super().__init__(session)
        self._tensors = None  # of the model
        self._declaration = None  # what the first task declares, until then
        self._exchange = None
        self._batches = None
        self._open = None  # the task that is not ended
        self._over = False  # no task follows
        self._generation = 0  # of tasks()
        self._loader = None  # of a loop of the script's own, as the next three
        self._optimizer = None
        self._evaluation = None  # Split or Stream, function, metric, collate_fn, metrics
        self._last_epoch = None  # that the loop over epochs() is in
        self._epoch = 0
        self._handed = 0  # micro-batches
        self._logged = None  # loss of the open one
        self._told_loss = False  # that there is none
        self._evaluated = False  # the newest weights of the model are those of an evaluation
        self._state = None  # of the script: ScriptState
        self._stage = None  # number and stages, if the script has one
        self._meeting = None
        self._group = None  # the last one
        self._group_ended = False

    # ---- the model and the data ----

    @property
    def stage(self):
        """Returns the stage that this script computes: its number at its launcher, modulo the job's stages."""
        if self.stages == 1:
            return 0
        if self._session.facts.place < 0:
            raise Error("[stages] this script has no number: set PUSHPULL_RANK to 0, 1, ..., as pushpull run does, or choose the "
                        "stages yourself", USAGE)
        return self._session.facts.place % self.stages

    def attach(self, model, train, test=None, num_workers=0, groups=(), metric="accuracy", collate_fn=default_collate,
               prefetch_factor=2, data_digest=None, stage=None, length=None, weights=None, metrics=None):
        """Gives the job its model and data; call it once. They must be the same in all workers.

        model: the job trains what it has at the first task. The weights that it has then are the job's initial ones if this
            is the worker with the lowest rank.
        train, test: data sets with __len__ and __getitem__, Shards, or iterables of samples with a length, such as an
            IterableDataset; test=None: nothing is evaluated.
        length: the number of samples of an epoch, if train is an iterable without a length.
        num_workers, prefetch_factor: processes that read samples ahead, and batches ahead for each.
        groups: of `group`: rate and decay of some parameters.
        metric: accuracy, mean squared error, exact match or perplexity; or a dict of head names and their metrics.
        data_digest: text that differs if the data differ; None: a hash of some samples.
        weights: for a job with sampler = weighted: numbers from 0 by which each training sample is drawn, with replacement, as
            with WeightedRandomSampler.
        stage: (number from 0, stages) if the model is one stage of the job's, with the names of the whole one's tensors; the
            job's is the stages' tensors one after the other. The loop is that of `groups` then.
        metrics: by name: a formula, which gets the named sums of an evaluation over all workers (Task.report) as a dict, and
            returns a number that is better if it is larger, or, of `cost`, less. A division by zero: there is none.
        """
        self._check_new()
        if self._loader is not None or self._optimizer is not None:
            raise Error("[attach] the script has job.loader or job.optimizer: attach is for a loop over job.tasks()", USAGE)
        self._stage = None if stage is None else _checked_stage(stage, self.stages)
        source = self._source(train, length, weights, collate_fn)
        splits = {TRAIN: source, EVALUATE: self._test_source(test, None, collate_fn)}
        self._attach(model, splits, groups, metric, metrics, num_workers, prefetch_factor, data_digest, weights)

    def _source(self, train, length, weights, collate_fn, pieces=1):
        """Returns the training data as a Split or a Stream."""
        if not _is_stream(train, length, "train"):
            return Split(train, collate_fn, pieces)
        if weights is not None:
            raise Error("[attach] weights of data without indices, which are read in their order: give a data set with __len__ "
                        "and __getitem__", USAGE)
        return Stream(shards_of(train, length, "train"), collate_fn, self.global_batch, self.micro_batch, pieces)

    def _test_source(self, test, length, collate_fn):
        """Returns the test data as a Split or a Stream, which has one lane: a chunk begins at the place of its first index."""
        if test is None or not _is_stream(test, length, "test"):
            return Split(test, collate_fn)
        return Stream(shards_of(test, length, "test"), collate_fn, 1, 1)

    def _attach(self, model, splits, groups, metric, metrics, num_workers, prefetch_factor, data_digest, weights):
        train, test = splits[TRAIN], splits[EVALUATE]
        weights = None if weights is None else checked_weights(weights, train.samples)
        # before the digest: a file that a data set opens at its first sample is then each process's own
        batches = Batches(splits, self.seed, num_workers, prefetch_factor, _context())
        try:
            digest = data_digest or f"train {train.digest(self.seed)}, test {test.digest(self.seed)}"
            data = train.samples, test.samples, digest, isinstance(train, Stream), weights
            self._prepare(model, groups, (metric, metrics) if test.data is not None else ({}, None), data)
        except BaseException:
            batches.close()
            raise
        self._batches = batches
        self._session.when_closed(batches.close)

    def state(self, folder, get, set):
        """Saves what the script keeps itself with each checkpoint, and restores it when the job goes on from one. Call it before
        the first batch.

        folder: for files, seen by all workers' scripts; of one job.
        get: returns the state, for torch.save: worker 0's is saved, as it is after its last micro-batch before the checkpoint.
        set: takes it, in each worker, before the first micro-batch after the checkpoint.
        """
        self._session.check_process()
        if self._exchange is not None:
            raise Error("[state] the script has had a batch already: call job.state before the first one", USAGE)
        self._state = ScriptState(folder, get, set, self.rank, self._session.facts.checkpoint_keep)

    def groups(self):
        """Yields the groups that this script computes its stage in, one after the other, until the job ends.

        Another one begins after a member was lost or the group's work has changed: see StageGroup.
        """
        if self._stage is None:
            raise Error("[stages] the script has no stage: call job.attach(..., stage=(number, stages)) first", USAGE)
        self._declare_once()
        while self._next_group():
            self._group_ended = False
            yield self._group
            if not (self._over or self._group_ended or self._group_changes()):
                raise Error(f"[stages] the loop over job.tasks() was left, and group {self._group.number} goes on: its scripts "
                            f"wait for this one", USAGE)

    def _group_changes(self):
        """Returns whether the last group has ended."""
        if self.stages == 1 or self._session.poll_group() and self._session.group.number == self._group.number:
            return False
        self._drop_task()
        return True

    def _next_group(self):
        """Waits for the next group. Returns False at the end of the job."""
        if self._over:
            return False
        number, stages = self._stage
        facts = self._session.group
        if stages == 1:
            self._group = StageGroup(self, self._meeting, number, stages, 1, "localhost", self._meeting.port)
            return True
        last = self._group.number if self._group else 0
        while facts.number in (0, last):
            if not self._session.poll_group():
                self._begin()  # takes the end
                return False
        self._group = StageGroup(self, self._meeting, number, stages, facts.number, facts.host.decode(), facts.port)
        return True

    def _leaves_group(self, error):
        """Returns whether an error ends a loop because the group has changed. Drops the open task then."""
        if self.stages == 1 or not may_be_lost_member(error):
            return False
        if not isinstance(error, GroupChanged) and not wait_for_change(self._session, self._group.number, error):
            return False
        self._drop_task()
        self._group_ended = True
        return True

    def _drop_task(self):
        """Forgets a task that the session has dropped."""
        if self._open is not None:
            self._open = None
            self._exchange.abandon()

    def tasks(self):
        """Yields the tasks of this worker until the job ends: micro-batches to train, chunks of the test data to evaluate.

        The weights of a task are in the model, which is in training or evaluation mode; in an evaluation it and its parts
        record no gradients when they are called. If a loop was left before its task had ended, the next loop begins with this task.
        """
        if self._batches is None:
            raise Error("[tasks] the job has no model and data: call job.attach first", USAGE)
        generation = self._enter()
        try:
            while self._begin():
                yield self._open
                if self._open is not None:
                    raise Error(f"[task] {self._open} was not ended: call task.backward(loss), or task.report in an evaluation",
                                USAGE)
        finally:
            self._exit(generation)

    # ---- a loop of the script's own ----

    def loader(self, train, num_workers=None, collate_fn=None, prefetch_factor=None, accumulate=1, data_digest=None,
               length=None, weights=None):
        """Returns an iterable over this worker's micro-batches, an epoch in each iteration: see Loader.

        train: as that of attach, or a DataLoader: its data set is read then, with its collate_fn, processes and weights unless
            others are given.
        accumulate: hands out each micro-batch in this number of equal pieces: the script calls backward for each, and step()
            after the last one. The gradients are added, so divide each loss by it.
        others: as those of attach.
        """
        self._check_new()
        if self._loader is not None:
            raise Error("[loader] the job has a loader already", USAGE)
        if self.stages > 1:
            raise Error("[loader] the job has stages, whose scripts loop over job.tasks(): call job.attach(..., stage=...)",
                        USAGE)
        if isinstance(train, DataLoader):
            theirs, train = train, train.dataset
            say_what_counts(self, "the DataLoader", settings_of(theirs, self.micro_batch // max(accumulate, 1)))
            num_workers = theirs.num_workers if num_workers is None else num_workers
            collate_fn, prefetch_factor = collate_fn or theirs.collate_fn, prefetch_factor or theirs.prefetch_factor
            if weights is None and isinstance(theirs.sampler, WeightedRandomSampler):
                weights = theirs.sampler.weights
        num_workers, collate_fn, prefetch_factor = num_workers or 0, collate_fn or default_collate, prefetch_factor or 2
        source = self._source(train, length, weights, collate_fn, accumulate)
        self._loader = Loader(self, train, source, num_workers, collate_fn, prefetch_factor, accumulate, data_digest, weights)
        return self._loader

    def optimizer(self, model, groups=()):
        """Returns an optimizer whose `step` ends a micro-batch: see Optimizer.

        model: as that of attach. One in evaluation mode is put into training mode at the first batch; the script may put parts of
            it into evaluation mode then, which they keep.
        groups: as those of attach, or an optimizer of torch.optim, of which the weight decays and the ratios of the groups' rates
            count. The rest of it is the job's.
        """
        self._check_new()
        if self._optimizer is not None:
            raise Error("[optimizer] the job has an optimizer already", USAGE)
        trained = ModelTensors(model).trained()
        if isinstance(groups, torch.optim.Optimizer):
            theirs = rates_of(self, [groups])
            del theirs["weight_decay"]  # that counts
            say_what_counts(self, "the script", theirs)
            groups = groups_of(self, groups, trained)
        self._optimizer = Optimizer(self, model, check_groups(groups, [entry.name for entry in trained]), trained)
        return self._optimizer

    def evaluation(self, test, function, metric="accuracy", collate_fn=None, metrics=None, length=None):
        """Lets the loader evaluate: when a chunk of the test data comes to this worker, it runs `function`.

        test: as that of attach, or a DataLoader, whose data set and collate_fn are taken.
        function: takes a batch and returns the arguments of Task.report as a dict, {"loss": ..., "correct": ...}. It runs with
            the model in evaluation mode and without gradients.
        metric, metrics: as those of attach. collate_fn: None: that of the loader.
        length: the number of test samples, if test is an iterable without a length.
        """
        self._check_new()
        if isinstance(test, DataLoader):
            test, collate_fn = test.dataset, collate_fn or test.collate_fn
        source = self._test_source(test, length, collate_fn)
        self._evaluation = source, function, metric, collate_fn, metrics

    def epochs(self):
        """Yields the job's epochs that are left, by number, until the job is over.

        A worker may have no batch in an epoch. An epoch whose batches the script has not taken to their end comes again.
        """
        epoch, handed = None, -1
        while self._next_training():
            found = self._open.epoch
            if epoch is None:
                epoch = found
            elif found > epoch:
                epoch += 1
            elif handed == self._handed:
                raise Error(f"[epochs] the script has taken no batch in epoch {epoch}: loop over job.loader(...) in that over "
                            f"job.epochs()", USAGE)
            handed = self._handed
            self._epoch = self._last_epoch = epoch
            try:
                yield epoch
            finally:
                self._last_epoch = None

    @property
    def epoch(self):
        """Returns the epoch that the script is in, from 0."""
        return self._epoch

    def scheduler(self, scheduler):
        """Steps a scheduler of torch.optim.lr_scheduler, once for each step of the job, whichever worker computes it and
        after a resume too. Returns it. Needs lr-schedule = external. Its steps are those of the job: total_steps=job.steps.
        The rate is that of the first group of its optimizer, or each group's own if that is job.optimizer(model).
        """
        if not self._session.facts.says_rate:
            raise Error("[scheduler] the job has rates of its own: take lr-schedule = external", USAGE)
        if self._optimizer is None:
            raise Error("[scheduler] a scheduler of another optimizer: make it of job.optimizer(model)", USAGE)
        return self._optimizer.schedule(scheduler)

    def log(self, loss=None, **values):
        """Gives the job figures of the script.

        loss: mean of the open micro-batch, if the script's call of optimizer.step cannot give it.
        values: numbers by name. The job shows the mean over all workers since its last line of metrics, and at its end over
            the run. One that is not finite is left out. At most 64 names, of letters, digits, _ - . /
        """
        if loss is not None:
            self._logged = loss
        for name, value in values.items():
            self._session.log(name, value)

    def _start(self):
        """Declares what loader, optimizer and evaluation have, unless that is done."""
        if self._batches is not None:
            return
        if self._loader is None or self._optimizer is None:
            lacking = "job.loader(train_set)" if self._loader is None else "job.optimizer(model)"
            raise Error(f"[loader] call {lacking} before the first batch", USAGE)
        loader = self._loader
        test, _, metric, collate, metrics = self._evaluation or (Split(None, None), None, "accuracy", None, None)
        test.collate = collate or loader.collate_fn
        splits = {TRAIN: loader.source, EVALUATE: test}
        if not self._optimizer.model.training:
            self._optimizer.model.train()  # as from_pretrained gives it; the script may freeze parts in its loop
        self._attach(self._optimizer.model, splits, self._optimizer.groups, metric, metrics, loader.num_workers,
                     loader.prefetch_factor, loader.data_digest, loader.weights)
        self._enter()

    def _next_training(self):
        """Waits for the next micro-batch, and evaluates until then. Returns False at the end of the job."""
        self._start()
        while self._take():
            if self._open.training:
                return True
            self._tensors.keep_modes()
            self._ready()
            self._evaluate()
        return False

    def _evaluate(self):
        task, function = self._open, self._evaluation[1]
        with torch.no_grad():
            results = function(task.batch)
        if not isinstance(results, dict):
            raise Error(f"[report] the function of job.evaluation has returned {type(results).__name__}: expected a dict of "
                        f"what task.report takes, as loss and correct", USAGE)
        task.report(**results)

    def _epoch_batches(self):
        """Yields the batches of an epoch: that of the loop over epochs(), or of the next micro-batch. Those of an earlier one
        that another worker has lost belong to it."""
        last = self._last_epoch
        while self._next_training():
            task = self._open
            last = task.epoch if last is None else last
            if task.epoch > last:
                return
            self._epoch = last
            self._ready()
            self._handed += 1
            pieces = task.batch if self._loader.accumulate > 1 else [task.batch]
            self._exchange.take(True, len(pieces))
            yield from pieces
            if self._open is task:
                raise Error(f"[loader] {task} was not ended: call optimizer.step() after {_pieces_text(self._loader)}; a "
                            f"wrapper that fetches batches ahead of the loop cannot be used", USAGE)

    def _end_batch(self, loss, otherwise):
        """Ends a micro-batch of a loop of the script's own.

        otherwise: loss if neither `loss` nor job.log has told one.
        """
        if self._open is None or not self._open.begun:
            raise Error("[step] no batch is open: take one from job.loader(...) before each step()", USAGE)
        left, pieces = self._exchange.backwards, self._loader.accumulate
        if left > 0 and pieces > 1:
            raise Error(f"[step] {self._open} has {pieces} pieces, and the script has called backward for {pieces - left}: "
                        f"call optimizer.step() after the last one", USAGE)
        loss = next((one for one in (loss, self._logged, otherwise) if one is not None), None)
        self._logged = None
        if loss is None and not self._told_loss:
            self._told_loss = True
            self._session.say("the script tells no loss, so the job's figures have none: call optimizer.step(loss=loss) or "
                              "job.log(loss=loss)")
        self._end_training(NO_LOSS if loss is None else float(loss.detach() if isinstance(loss, torch.Tensor) else loss))

    # ---- tasks ----

    def _check_new(self):
        self._session.check_process()
        if self._tensors is not None:
            raise Error("[attach] the job has a model already: attach can be called once", USAGE)

    def _prepare(self, model, groups, metrics, data):
        """Keeps what the first task declares, and checks what can be checked by now."""
        self._set_heads(*metrics)
        tensors = ModelTensors(model)
        groups = check_groups(groups, [entry.name for entry in tensors.trained()], self.stages == 1)
        self._tensors, self._declaration = tensors, (groups, data)

    def _declare_model(self):
        groups, (train_samples, test_samples, digest, in_order, sample_weights) = self._declaration
        tensors = self._tensors = ModelTensors(self._tensors.module, self._tensors)
        groups = check_groups(groups, [entry.name for entry in tensors.trained()], self.stages == 1)
        entries = [(entry.name, entry.tensor.shape, None if entry.is_average else find_group(groups, entry.name),
                    entry.momentum) for entry in tensors.entries]
        self._threads = torch.get_num_threads()
        weights = tensors.flat_weights()
        local = tensors.local_digest()
        stage = 0, 1, 0, ""
        if self._stage is not None:
            self._meeting = Meeting(self._stage[0])
            if self.stages > 1:
                stage = *self._stage, self._meeting.port, f"local tensors {local}"
                local = "none"
        self._declare(entries, weights.data_ptr(), train_samples, test_samples, f"{digest}, local tensors {local}",
                      numerics(tensors.devices()), stage, groups if self.stages > 1 else (), in_order, sample_weights)
        self._exchange = Exchange(self._session, tensors.entries, BACKWARD if self._loader is None else STEP)
        self._session.when_closed(self._exchange.close)
        self._declaration = None

    def _declare_once(self):
        if self._declaration is not None:
            self._declare_model()

    def _enter(self):
        self._declare_once()
        self._generation += 1
        self._first = True
        self._tensors.enter()
        return self._generation

    def _exit(self, generation):
        if generation != self._generation or self._session.is_forked():
            return  # another loop goes on, or this one in the process that has joined
        if self._open is not None:
            self._exchange.restore_averages()
        self._tensors.leave()

    def _begin(self):
        """Begins the next task, or begins the open one again. Returns False at the end of the job."""
        if not self._take():
            return False
        self._ready()
        return True

    def _take(self):
        """Waits for the next task, unless one is open. Returns False at the end of the job."""
        if self._over:
            return False
        self._tensors.check_structure()
        if self._open is None:
            self._exchange.check()
            try:
                goes_on = self._session.next(self._read_ahead)
            except Error as error:
                if error.code == STOPPED:
                    self._keep_state(True)
                raise
            if not goes_on or self._session.task.kind == TRAIN:
                self._keep_state(not goes_on)
            if not goes_on:
                self._finish()
                return False
            self._open = Task(self, self._session)
        return True

    def _keep_state(self, is_end):
        task = self._session.task
        if self._state and task.term != 0:  # 0: the session has ended before the job
            self._state.reached(task.term, task.term_start, task.checkpoint, is_end)

    def _show_rate(self, rate):
        if self._optimizer:
            self._optimizer.set_rate(rate)

    def _ready(self):
        """Begins the open task, or begins it again: its weights, mode, seeds and batch."""
        self._check_threads()
        task = self._open
        again, task.begun = task.begun, True
        if self._loader is None or not task.training or not self._tensors.module.training:
            self._tensors.set_mode(task.training)
        task.batch = self._batches.get(task.key)
        same_weights = bool(self._session.task.same_weights) and not self._first
        self._first = False
        if same_weights:
            self._exchange.check(every=True)  # else the step would have two sets of weights
        self._exchange.begin(same_weights, again)
        self._take_progress()
        if task.training:
            self._tensors.check_frozen()
            self._rate = self._session.task.learning_rate
            if self._optimizer and self._session.facts.says_rate:
                self._optimizer.begin(task.step, self._kept_rate)
                self._rate = self._optimizer.rate()
            elif self._optimizer:
                self._optimizer.show_rate(self._rate / self._session.facts.learning_rate if self._rate else 0.0)
            seed_all(self.seed, COMPUTE, task.step, task.micro_batch)
        self._evaluated = not task.training

    def _finish(self):
        """Gives the model the job's final weights, if this worker has them."""
        self._over = True
        if not self._session.task.same_weights:
            self._exchange.begin(False)
            self._exchange.abandon()
            self._take_progress()
        self._batches.close()
        self._exit(self._generation)
        if self._loader and self._session.task.same_weights and not self._evaluated:
            print("pushpull: the job is over; the model has the weights of its last task, without the updates since then, which "
                  "are in the job's last checkpoint (pp.read_checkpoint)", file=sys.stderr, flush=True)

    def _check_threads(self):
        threads = torch.get_num_threads()
        if self._session.facts.same_bits and threads != self._threads:
            raise Error(f"[numerics] PyTorch has {threads} threads now, and had {self._threads} at the first task, which the "
                        f"job was told: call torch.set_num_threads before it", USAGE)

    def _read_ahead(self):
        self._batches.expect(self._session)

    def _end_training(self, loss):
        if self._optimizer and self._session.facts.says_rate:
            self._say_rate(self._optimizer.rate())
        with self._session.uninterrupted():
            self._exchange.finish()
            self._open = None
            self._session.end(loss)
            self._exchange.ended()

    def _is_inner(self):
        """Returns whether the script has a stage that is not the last one: it knows no loss."""
        return self._stage is not None and self._stage[0] + 1 < self._stage[1]

    def _end_evaluation(self, task, results, named):
        sums = [] if self._is_inner() else self._sums(len(task.indices), results)
        with self._session.uninterrupted():
            self._open = None
            self._session.report(sums, named)


def _is_stream(data, length, split):
    """Returns whether data have no indices, so that they are read in their order. Raises Error if they cannot be read at all."""
    if isinstance(data, DataLoader):
        raise no_indices(data, split)
    if length is None and not isinstance(data, (Shards, IterableDataset)):
        if not hasattr(data, "__getitem__"):
            raise no_indices(data, split)
        size_of(data, split)
        return False
    if hasattr(data, "__getitem__") and not isinstance(data, IterableDataset):
        raise Error(f"[attach] length is {length}, and the {split} data set ({type(data).__name__}) has indices: leave out "
                    f"length", USAGE)
    return True


def _checked_stage(stage, stages):
    """Returns the stage of attach. Raises Error unless it is one of the job's."""
    try:
        number, given = (int(one) for one in stage)
    except (TypeError, ValueError):
        raise Error(f"[attach] stage is {stage!r}: expected (number, stages), as (0, 2)", USAGE) from None
    if given != stages:
        raise Error(f"[attach] the script has {given} stages, and the job has stages = {stages}: they must be equal", USAGE)
    if not 0 <= number < stages:
        raise Error(f"[attach] stage {number} of {stages}: expected 0 to {stages - 1}", USAGE)
    return number, stages


def _pieces_text(loader):
    return "each batch" if loader.accumulate == 1 else f"{loader.accumulate} batches, the pieces of a micro-batch"


def _context():
    """Returns the program's way to start processes; the default is fork, with which a script needs no guard of its main."""
    return torch.multiprocessing.get_context(torch.multiprocessing.get_start_method(allow_none=True) or "fork")


class Task:
    """A micro-batch of this worker's share, or a chunk of the test data.

    training: whether it is a micro-batch to train.
    batch: of its samples, as collate_fn makes it.
    step, micro_batch, epoch: its place in the job; in an evaluation micro_batch is the chunk, and step is -1.
    indices: of the samples in their data set; of a stream: their places in the epoch.
    """

    def __init__(self, job, session):
        facts = session.task
        self._job = job
        self._loss = 0.0
        self.training = facts.kind == TRAIN
        self.step, self.micro_batch, self.epoch = facts.step, facts.micro_batch, facts.epoch
        self.indices = session.indices()
        self.key = (facts.kind, facts.step, facts.micro_batch, facts.epoch, self.indices)
        self.batch = None
        self.begun = False  # its weights have been copied

    def __str__(self):
        if self.training:
            return f"the task of step {self.step}, micro-batch {self.micro_batch}"
        return f"the evaluation of chunk {self.micro_batch}"

    def backward(self, loss, last=True, **options):
        """Computes gradients, which go to the servers while backward goes on, and ends the task.

        loss: scalar, the mean over the micro-batch; in a stage that is not the last one, what it has passed on, with
            gradient=, what has come back.
        last: False: another backward of this micro-batch follows; gradients are added until the last one.
        options: of torch.Tensor.backward.
        """
        self._check(True, "backward")
        inner = self._job._is_inner()
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 and not inner:
            shape = list(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise Error(f"[loss] {self}: the loss is {shape}, expected a scalar: take its mean", USAGE)
        with self._job._session.uninterrupted():  # a gradient counts as given if and only if it is
            self._job._exchange.take(last)
            loss.backward(**options)
            if not inner:
                self._loss = self._loss + loss.detach()
            if last:
                self._job._end_training(NO_LOSS if inner else float(self._loss))

    def end(self, loss=None):
        """Ends a micro-batch whose gradients are in the parameters: the script has called backward itself.

        loss: mean over the micro-batch; None: not known, or of another stage.
        """
        self._check(True, "end")
        with self._job._session.uninterrupted():
            self._job._exchange.take(True)
            self._job._end_training(NO_LOSS if loss is None or self._job._is_inner() else float(loss))

    def report(self, loss=None, correct=None, squared_error=None, count=None, sums=None, **heads):
        """Ends an evaluation's task. A stage that is not the last one calls it without arguments.

        loss: mean over the counted targets.
        correct: number of correct targets; not for the metrics mean squared error and perplexity.
        squared_error: sum over the targets, for mean squared error; None: loss times count.
        count: number of targets that count; None: that of the samples.
        sums: numbers of this chunk by name, which are added over the chunks of all workers, for the formulas of `metrics`.
        heads: a dict of these for each head, if the model has several.
        """
        self._check(False, "report")
        if self._job._is_inner() and (heads or any(one is not None for one in (loss, correct, squared_error, count, sums))):
            raise Error(f"[report] {self} has results in a stage that is not the last one, which alone reports them: call "
                        f"task.report()", USAGE)
        results = heads or {None: {"loss": loss, "correct": correct, "squared_error": squared_error, "count": count}}
        self._job._end_evaluation(self, results, named_sums(sums))

    def _check(self, training, what):
        if self._job._open is not self:
            raise Error(f"[task] {self} has ended: task.{what} was called again", USAGE)
        if self.training != training:
            other = "task.report" if training else "task.backward"
            raise Error(f"[task] {self} ends with {other}, not with task.{what}", USAGE)
