"""Lightning's Trainer as a worker of a pushpull job: Trainer(strategy=PushPullStrategy()).

The job chooses batches, optimizer, rate, clipping and the end, and evaluates; LightningModule, callbacks, loggers and the
progress bar are the script's. A script needs no other change (docs/pytorch.md#lightning).
"""
import os

import torch
from torch.utils.data import DataLoader

import pushpull.torch as pp
from pushpull._error import USAGE, Error
from pushpull._torch_loop import rates_of, say_what_counts

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.utilities import rank_zero_only
except ImportError:  # the older name of the package
    from pytorch_lightning import Callback
    from pytorch_lightning.strategies import SingleDeviceStrategy
    from pytorch_lightning.utilities import rank_zero_only

__all__ = ["PushPullStrategy"]


class PushPullStrategy(SingleDeviceStrategy):
    """A strategy of Lightning. It joins the job when it is made.

    evaluation: takes the LightningModule and a batch of the validation data, and returns the arguments of Task.report as a
        dict, such as {"loss": ..., "correct": ...}. The job calls it, and its results are logged at the end of each epoch as
        val_loss and val_ with the name of the metric. None: Lightning's validation loop is left out, and nothing is evaluated.
    metric, metrics, groups: as those of pushpull.torch.Job.evaluation and Job.optimizer.
    options: those of pushpull.torch.join.
    """

    strategy_name = "pushpull"

    def __init__(self, evaluation=None, metric="accuracy", groups=(), metrics=None, **options):
        super().__init__()
        self.job = pp.join(**options)
        self.global_rank, self.world_size = self.job.rank, self.job.world_size
        self.local_rank = int(os.environ.get("PUSHPULL_LOCAL_RANK", 0))
        rank_zero_only.rank = self.job.rank
        self._evaluation, self._metric, self._metrics, self._groups = evaluation, metric, metrics, groups
        self._schedules = []  # of the module, if the job has lr-schedule = external
        self._loss = None  # sum over the pieces of the open micro-batch
        self._told_validation = False

    @property
    def root_device(self):
        if self.accelerator is not None and type(self.accelerator).__name__ == "CUDAAccelerator":
            return torch.device("cuda", self.local_rank % torch.cuda.device_count())
        return torch.device("cpu")

    @property
    def is_global_zero(self):
        return self.job.rank == 0

    @property
    def lightning_restore_optimizer(self):
        return False  # servers have its state

    def setup_optimizers(self, trainer):
        super().setup_optimizers(trainer)
        theirs = self.optimizers
        if len(theirs) > 1:
            raise Error(f"[lightning] configure_optimizers returns {len(theirs)} optimizers: a job has one", USAGE)
        facts, loop = self.job._session.facts, trainer.fit_loop
        self._schedules = self.lr_scheduler_configs if facts.says_rate else []
        if any(one.reduce_on_plateau for one in self._schedules):
            raise Error("[lightning] a ReduceLROnPlateau with lr-schedule = external: expected a scheduler whose rates depend on the "
                        "step alone", USAGE)
        limit = trainer.limit_train_batches
        say_what_counts(self.job, "Lightning", {
            **rates_of(self.job, theirs),
            "max_epochs": (loop.max_epochs if (loop.max_epochs or 0) > 0 else None, facts.epochs or "the key steps"),
            "max_steps": (loop.max_steps if (loop.max_steps or 0) > 0 else None, facts.steps or "the key epochs"),
            "gradient_clip_val": (trainer.gradient_clip_val or None, "the key clip-norm"),
            "fast_dev_run": (trainer.fast_dev_run or None, "the flag --steps"),
            "limit_train_batches": (None if limit == 1.0 or trainer.fast_dev_run else limit, "the keys steps and epochs"),
            "schedulers": (" and ".join(type(one.scheduler).__name__ for one in self.lr_scheduler_configs
                                        if not facts.says_rate) or None, "the key lr-schedule")})
        loop.max_epochs = loop.epoch_loop.max_steps = -1
        trainer.limit_train_batches = 1.0
        loop.min_epochs = loop.epoch_loop.min_steps = None
        trainer.gradient_clip_val = None
        trainer.callbacks.insert(0, _UntilTheEnd(self.job))
        self.optimizers = [self.job.optimizer(self.lightning_module, self._groups)]
        self.lr_scheduler_configs = []

    def begin_schedules(self):
        """Lets the job step the module's schedulers: in the steps or epochs of the job, whichever worker computes them."""
        steps = self.job._loader.source.samples // self.job.global_batch
        for one in self._schedules:
            self.job._optimizer.schedule(one.scheduler, one.frequency * (1 if one.interval == "step" else max(steps, 1)))
        self._schedules = []

    def process_dataloader(self, dataloader):
        trainer = self.lightning_module.trainer
        if not (trainer.training or trainer.validating or trainer.sanity_checking) or trainer.state.fn != "fit":
            return dataloader  # trainer.test and others are this process's own
        if not isinstance(dataloader, DataLoader):
            raise Error(f"[lightning] a {type(dataloader).__name__} as data: a job samples by index: expected a DataLoader",
                        USAGE)
        if trainer.training:
            return self.job.loader(dataloader, accumulate=trainer.accumulate_grad_batches)
        self._evaluate_by_the_job(dataloader)
        return []

    def _evaluate_by_the_job(self, dataloader):
        if self._evaluation is None and not self._told_validation:
            self._told_validation = True
            self.job._session.say("the job evaluates nothing, and Lightning's validation is left out: call "
                                  "PushPullStrategy(evaluation=function)")
        if self._evaluation is not None and self.job._evaluation is None:
            self.job.evaluation(dataloader, self._evaluate, self._metric, metrics=self._metrics)

    def _evaluate(self, batch):
        return self._evaluation(self.lightning_module, self.batch_to_device(batch))

    def backward(self, closure_loss, optimizer, *arguments, **options):
        loss = closure_loss.detach()
        self._loss = loss if self._loss is None else self._loss + loss
        self.job.log(loss=self._loss)
        return super().backward(closure_loss, optimizer, *arguments, **options)

    def optimizer_step(self, *arguments, **options):
        result = super().optimizer_step(*arguments, **options)
        self._loss = None
        return result


class _UntilTheEnd(Callback):
    """Ends the training with the job, and logs what its evaluations find."""

    def __init__(self, job):
        self._job = job
        self._strict = None  # instances of EarlyStopping that need a result in each epoch

    def on_train_start(self, trainer, pl_module):
        trainer.strategy.begin_schedules()

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop |= not self._job._next_training()
        found = self._job.evaluated()
        if self._strict is None:
            self._strict = [one for one in trainer.early_stopping_callbacks if one.strict]
        for callback in self._strict:  # the first epochs may end before the job's first evaluation
            callback.strict = found is not None or self._job._evaluation is None
        for name, value in (found or {}).items():
            if isinstance(value, float):
                pl_module.log(f"val_{name}", value, prog_bar=True)
