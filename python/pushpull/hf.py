"""The Trainer of Hugging Face as a worker of a pushpull job: PushPullTrainer in the place of transformers.Trainer.

The job chooses batches, optimizer, rate, clipping and the end, and evaluates; the model, the collator, logs, callbacks and
saved checkpoints are the Trainer's (docs/pytorch.md#hugging-face).
"""
import sys

import torch
from transformers import Trainer, TrainerCallback

import pushpull.torch as pp
from pushpull._torch_loop import say_what_counts

__all__ = ["PushPullTrainer"]


class PushPullTrainer(Trainer):
    """A Trainer. It joins the job when it is made. Worker 0 alone saves.

    evaluation: takes the model and a batch of eval_dataset, and returns the arguments of Task.report as a dict; None: the loss,
        and the correct labels of a classification. The job calls it; `evaluate` returns the newest result.
    metric, metrics, groups: as those of pushpull.torch.Job.evaluation and Job.optimizer.
    job: as pushpull.torch.join returns it, if the script has joined.
    others: those of Trainer.
    """

    def __init__(self, *arguments, evaluation=None, metric="accuracy", groups=(), job=None, metrics=None, **options):
        self.job = job or pp.join()
        super().__init__(*arguments, **options)
        # Else the Trainer expects the model to divide its loss by the number of targets of all pieces, which models that
        # only pass keywords on do not: a gradient would be as many times too large as there are pieces.
        self.model_accepts_loss_kwargs = False
        self._evaluation, self._metric, self._metrics, self._groups = evaluation or _classify, metric, metrics, groups
        self.add_callback(_UntilTheEnd(self.job))
        state = getattr(self.args, "distributed_state", None)
        if state is not None:
            state.process_index = self.job.rank  # that of worker 0 saves; the number of processes stays 1: nothing is gathered

    def is_world_process_zero(self):
        return self.job.rank == 0

    is_local_process_zero = is_world_process_zero  # of a job it is enough that one prints

    def get_train_dataloader(self):
        args, job = self.args, self.job
        job_pieces = args.gradient_accumulation_steps
        facts = job._session.facts
        schedule = None if facts.says_rate else str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
        say_what_counts(job, "Hugging Face", {
            "optim": (str(getattr(args.optim, "value", args.optim)), "the key optimizer"),
            "learning_rate": (args.learning_rate, facts.learning_rate),
            "weight_decay": (args.weight_decay, facts.weight_decay),
            "lr_scheduler_type": (schedule, "the key lr-schedule"),
            "max_grad_norm": (args.max_grad_norm or None, "the key clip-norm"),
            "per_device_train_batch_size": (args.per_device_train_batch_size, job.micro_batch // job_pieces),
            "num_train_epochs": (args.num_train_epochs if args.max_steps <= 0 else None, facts.epochs or "the key steps"),
            "max_steps": (args.max_steps if args.max_steps > 0 else None, facts.steps or "the key epochs"),
            "compute_metrics": (self.compute_metrics and getattr(self.compute_metrics, "__name__", "given"),
                                "the job evaluates while it trains: evaluation= and metrics= of PushPullTrainer")})
        args.max_grad_norm = 0.0
        data, collate = self._columns(self.train_dataset, "training")
        loader = job.loader(data, num_workers=args.dataloader_num_workers, collate_fn=collate, accumulate=job_pieces,
                            prefetch_factor=args.dataloader_prefetch_factor or 2)
        if self.eval_dataset is not None:
            data, collate = self._columns(self.eval_dataset, "evaluation")
            job.evaluation(data, self._evaluate_batch, self._metric, collate, self._metrics)
        return loader

    def _columns(self, data, description):
        """Returns a data set, and the function that makes a batch of columns that the model takes."""
        if hasattr(data, "column_names"):  # of the package datasets
            return self._remove_unused_columns(data, description=description), self.data_collator
        return data, self._get_collator_with_removed_columns(self.data_collator, description=description)

    def _evaluate_batch(self, batch):
        with self.compute_loss_context_manager():
            return self._evaluation(self.model, self._prepare_inputs(batch))

    def create_optimizer(self, *_):
        if self.optimizer is None:
            self.optimizer = self.job.optimizer(self.model, self._groups)
        return self.optimizer

    def create_scheduler(self, num_training_steps=None, optimizer=None):
        if self.job._session.facts.says_rate:  # the Trainer's own schedule counts, over the steps of the job
            self.job.scheduler(super().create_scheduler(self.job._steps_of(len(self.train_dataset)), optimizer or self.optimizer))
        self.lr_scheduler = _JobRate(self.job)
        return self.lr_scheduler

    def set_initial_training_values(self, *arguments, **options):
        values = list(super().set_initial_training_values(*arguments, **options))
        loader = arguments[1] if len(arguments) > 1 else options["dataloader"]
        job = self.job
        micro_batches = job.global_batch // job.micro_batch
        values[0] = sys.maxsize  # epochs: until the job is over
        values[6] = -(-job._steps_of(loader.source.samples) * micro_batches // job.world_size)  # steps, for the progress bar
        return tuple(values)

    def training_step(self, *arguments, **options):
        loss = super().training_step(*arguments, **options)
        self.job.log(loss=loss if self.job._logged is None else self.job._logged + loss)
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
        return torch.stack(norms).norm().item() if norms else 0.0

    def _save_checkpoint(self, *arguments, **options):
        if self.is_world_process_zero():  # else other workers make folders of their own steps, without a model
            super()._save_checkpoint(*arguments, **options)

    def _determine_best_metric(self, metrics, *arguments, **options):
        # without metrics until the job's first evaluation
        return bool(metrics) and super()._determine_best_metric(metrics, *arguments, **options)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        """Returns what the job's newest evaluation has found. Other data than eval_dataset are evaluated by this process."""
        if eval_dataset is not None or self.job._evaluation is None:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        found = {f"{metric_key_prefix}_{name}": value for name, value in (self.job.evaluated() or {}).items()}
        if found:
            self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class _UntilTheEnd(TrainerCallback):
    """Ends the training with the job, however many steps the Trainer expects."""

    def __init__(self, job):
        self._job = job

    def on_step_end(self, args, state, control, **_):
        if not self._job._next_training():
            control.should_training_stop = True
        elif state.global_step >= state.max_steps:
            control.should_training_stop = False


class _JobRate:
    """A schedule of rates for logs: the job's."""

    def __init__(self, job):
        self._job = job

    def step(self):
        """The job has set the rate."""

    def get_last_lr(self):
        return [self._job.lr]

    def state_dict(self):
        return {}

    def load_state_dict(self, _):
        """The job has the state."""


def _classify(model, inputs):
    outputs = model(**inputs)
    labels = inputs["labels"]
    return {"loss": outputs.loss, "correct": (outputs.logits.argmax(-1) == labels).sum(), "count": labels.numel()}
