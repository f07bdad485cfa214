"""Tests whole jobs of scripts that keep their loop: torch_loop_worker.py, and the examples with Lightning and Hugging Face."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import lab as base
from lab import Skipped, expect, first, flags_of, summary_of
from torch_workers_test import HERE, JOB, ROOT, _prepare, hash_of, launch, script, start_script, trained, write_idx, write_mnist


def loop(*words):
    return script(*words, file=HERE / "torch_loop_worker.py")


def ends_of(run):
    """Returns by rank what the scripts say at their end: world size, batches, sum of weights, step and accuracy of the
    evaluation."""
    lines = re.findall(r"END (\d+) (\d+) (\d+) (\S+) (\S+) (\S+)", run.output())
    return {int(rank): (int(world), int(batches), float(bias), *found) for rank, world, batches, bias, *found in lines}


def looped(lab, keys, workers, *words, **options):
    """Runs a job, which must end with 0. Returns its summary and the scripts' ends."""
    run = launch(lab, keys, 1, workers, loop(*words), **options)
    code = run.ends(240)
    expect(code == 0, f"exit code {code}: {run.output()[-1500:]}")
    return summary_of(run.out), ends_of(run)


@first("a loop that stays the script's own has the bits of one over tasks, and ends with the job's weights")
def it_has_the_bits_of_a_loop_over_tasks(lab):
    torch = _prepare(lab)
    import pushpull.torch as pp
    want = trained(lab, {}, 1, 1)
    for workers, words in ((2, ()), (1, ("--epochs", 9))):
        out = lab.folder / f"out-{workers}"
        summary, ends = looped(lab, {}, workers, *words, out=out)
        expect(summary["weights_sha256"] == want["weights_sha256"], f"{workers} workers: other weights")
        expect(summary["train_loss"] == want["train_loss"] and summary["test_accuracy"] == want["test_accuracy"], f"{summary}")
        expect(summary["logged"] == {"rank": (workers - 1) / 2, "samples": 5.0}, f"{summary['logged']}")
        logged = [line["logged"]["samples"] for line in base.metrics_of(out) if "logged" in line]
        expect(logged and set(logged) == {5.0}, f"{logged}")
        bias = float(pp.read_checkpoint(out / "checkpoints")["8.bias"].sum(dtype=torch.float32))
        for rank, (world, batches, mine, step, accuracy) in ends.items():
            expect((world, batches, step) == (workers, 240 // workers, "30"), f"{workers} workers, {rank}: {ends}")
            expect(abs(mine - bias) < 1e-6, f"the script's model ends with {mine}, the checkpoint has {bias}")
            expect(abs(float(accuracy) - want["test_accuracy"]) < 1e-9, f"{accuracy}, {want['test_accuracy']}")
        expect(sorted(ends) == list(range(workers)), f"{ends}")


def it_ends_with_the_jobs_weights_after_evaluations_of_the_average(lab):
    torch = _prepare(lab)
    import pushpull.torch as pp
    keys = {"ema": 0.8, "eval-every": 10}
    want = trained(lab, keys, 1, 1)
    for workers, more in ((2, {}), (1, {"steps": 400, "lr": 0.05, "stop-when": "loss:1"}), (2, {"strategy": "backup:1"})):
        out = lab.folder / f"out-{workers}-{len(more)}-{more.get('strategy')}"
        summary, ends = looped(lab, {**keys, "eval-weights": "ema", **more}, workers, out=out)
        expect(more or summary["weights_sha256"] == want["weights_sha256"] and summary["test_loss"] != want["test_loss"], f"{summary}")
        expect(summary["stopped_early"] == ("stop-when" in more), f"{summary}")
        bias = float(pp.read_checkpoint(out / "checkpoints")["8.bias"].sum(dtype=torch.float32))
        for rank, found in ends.items():
            expect(abs(found[2] - bias) < 1e-6, f"{more}, {rank}: the script's model ends with {found[2]}, the checkpoint has {bias}")


def pieces_and_processes_that_read_keep_the_samples(lab):
    _prepare(lab)
    summaries = [looped(lab, {"micro-batch": 10}, workers, "--accumulate", 2, "--loaders", loaders)[0]
                 for workers, loaders in ((1, 0), (2, 2))]
    expect(len({one["weights_sha256"] for one in summaries}) == 1 and summaries[0]["samples"] == 1200, f"{summaries}")


def a_kill_and_a_resume_keep_the_bits(lab):
    _prepare(lab)
    keys = {"steps": 100, "on-worker-loss": "wait", "eval-every": 40}
    want = hash_of(lab, keys, 1, 1)
    cluster = lab.cluster(lab.job({**JOB, **keys}), 1, 0, workers=2)
    lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
    scripts = [start_script(lab, "--slow", 0.005, file="torch_loop_worker.py") for _ in range(2)]
    cluster.reaches(30)
    scripts[0].kill()
    scripts.append(start_script(lab, file="torch_loop_worker.py"))
    for process in scripts[1:]:
        expect(process.ends(120) == 0, process.output()[-600:])
    expect(cluster.ends_well()["weights_sha256"] == want, "a kill has changed the weights")
    del lab.environment["PUSHPULL_JOIN"]
    out = lab.folder / "resumed"
    looped(lab, keys, 3, out=out, stop_after=31)
    summary, _ = looped(lab, keys, 2, out=out, resume="true")
    expect(summary["weights_sha256"] == want, "a resume has changed the weights")


def the_state_of_a_script_goes_on_with_the_job(lab):
    _prepare(lab)
    keys = {"steps": 100, "checkpoint-every": 10, "eval-every": 20}

    def state_of(name, *disturbances, **options):
        """Runs a job, disturbs it so often and resumes it. Returns the line of the script's state at its end."""
        out, words = lab.folder / name, ("--state", lab.folder / f"{name}-state")
        for number, disturb in enumerate(disturbances, 1):
            run = launch(lab, keys, 1, 1, loop(*words, "--slow", 0.002), out=out, resume="auto")
            lab.trains(run, 33 * number)
            disturb(run)
        run = launch(lab, keys, 1, 1, loop(*words), out=out, resume="auto", **options)
        expect(run.ends(240) == 0, run.output()[-1500:])
        return re.findall(r"STATE .*", run.output())[-1]

    def stop(run):
        run.terminate()
        expect(run.ends(120) == 75, run.output()[-1500:])

    def kill(run):
        base.kill_all(run)
        run.ends(60)

    want = state_of("undisturbed")
    expect(want.startswith("STATE 0 800 "), want)
    for name, disturbances in (("stopped", (stop, stop)), ("killed", (kill,))):
        found = state_of(name, *disturbances)
        expect(found == want, f"{name}: {found}, undisturbed {want}")
    run = launch(lab, keys, 1, 1, loop("--state", lab.folder / "lost-state", "--slow", 0.002))
    lab.trains(run, 33)
    servers = [pid for pid in base.living_below(run.pid) if os.readlink(f"/proc/{pid}/exe").endswith("/pushpull-server")]
    os.kill(servers[0], signal.SIGKILL)
    expect(run.ends(240) == 0, run.output()[-1500:])
    expect(want in run.output(), f"after a lost server: {run.output()[-600:]}, undisturbed {want}")


def a_resume_without_the_scripts_state_is_refused(lab):
    _prepare(lab)
    out, words = lab.folder / "out", ("--state", lab.folder / "state")
    looped(lab, {"steps": 20, "checkpoint-every": 5}, 1, *words, out=out, stop_after=10)
    (lab.folder / "state" / "step-00000010.pt").unlink()
    run = launch(lab, {"steps": 20, "checkpoint-every": 5}, 1, 1, loop(*words), out=out, resume="true")
    expect(run.ends(120) != 0, run.output()[-1500:])
    expect("[state] the job goes on at step 10, and " in run.output() and "at steps 0, 5: resume" in run.output(), run.output()[-1500:])


def a_script_that_ends_early_leaves_and_the_last_one_stops_the_job(lab):
    _prepare(lab)
    want = hash_of(lab, {}, 1, 1)
    run = launch(lab, {}, 1, 2, loop("--leave", 20, 1))
    expect(run.ends(120) == 0, run.output()[-1500:])
    expect("has left at step" in run.output() and "the others go on" in run.output(), run.output()[-1500:])
    expect(summary_of(run.out)["weights_sha256"] == want, "a script that left has changed the weights")
    out = lab.folder / "left"
    run = launch(lab, {}, 1, 2, loop("--leave", 20, -1), out=out)
    expect(run.ends(120) == 75, run.output()[-1500:])
    expect("no worker is left" in run.output() and summary_of(out)["stopped_by"] == "the end of the last worker's program",
           run.output()[-1500:])
    summary, _ = looped(lab, {}, 2, out=out, resume="true")
    expect(summary["weights_sha256"] == want, "a resume after the scripts left has changed the weights")


def each_strategy_trains(lab):
    _prepare(lab)
    for strategy in ("async", "ssp:2", "buffered:2", "local:4", "backup:1", "allreduce:ring"):
        summary, ends = looped(lab, {"strategy": strategy, "steps": 60, "eval-every": 20}, 2)
        expect(summary["test_total"] == 100 and len(ends) == 2, f"{strategy}: {summary['test_total']} test samples, {ends}")


# ---- Lightning and Hugging Face ----

def _prepare_with(lab, *packages):
    """Like _prepare. Returns a Python that has the packages: this one, or that of PUSHPULL_TORCH_PYTHON."""
    _prepare(lab)
    for python in filter(None, (sys.executable, os.environ.get("PUSHPULL_TORCH_PYTHON"))):
        if subprocess.run([python, "-c", f"import {', '.join(packages)}"], capture_output=True, timeout=120).returncode == 0:
            return python
    raise Skipped(f"no {', '.join(packages)}: scripts/torch-env.sh DIR installs them, and PUSHPULL_TORCH_PYTHON=DIR/bin/python "
                  f"names their Python")


def example(lab, python, name, words, workers, keys=(), epochs=2):
    """Runs an example. Returns its summary and output."""
    out = lab.folder / f"{name}-{workers}"
    examples = ROOT / "docs" / "examples"
    run = lab.start("pushpull", "run", "--job", examples / f"{name}.ini", "--workers", workers, "--out", out, *keys,
                    *flags_of({"epochs": epochs}), "--worker", " ".join(map(str, (python, examples / f"{name}.py", *words))))
    expect(run.ends(240) == 0, f"{name}: {run.output()[-1500:]}")
    return summary_of(out), run.output()


def the_trainer_of_lightning_is_kept(lab):
    python = _prepare_with(lab, "lightning", "torchvision")
    folder = lab.folder / "data"
    write_mnist(folder / "MNIST" / "raw")
    done = [example(lab, python, "mnist_lightning", [folder, lab.folder / f"lightning-{workers}"], workers)
            for workers in (1, 2)]
    hashes = {summary["weights_sha256"] for summary, _ in done}
    expect(len(hashes) == 1, f"{hashes}")
    summary, text = done[1]
    expect("the job's keys count, not these of Lightning: optimizer Adam" in text, text)
    expect("max_epochs 5 (the job has 2)" in text, text)
    expect(f"val_accuracy {summary['test_accuracy']:.4f}" in text, f"{summary['test_accuracy']}: {text[-1500:]}")


STOPS = """
import lightning as L, torch
from pushpull.lightning import PushPullStrategy
torch.set_num_threads(1)
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return (self.layer(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()
    def validation_step(self, batch, index):
        raise RuntimeError("the job evaluates")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
def evaluate(module, batch):
    return {"loss": (module.layer(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()}
torch.manual_seed(3)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 4)), batch_size=8)
stop = L.pytorch.callbacks.EarlyStopping("val_loss", patience=9)
trainer = L.Trainer(strategy=PushPullStrategy(evaluate, metric="mean squared error"), callbacks=[stop], accelerator="cpu",
                    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Net(), data, data)
print("SCORE", stop.best_score.item(), stop.strict)
"""


def an_early_stopping_of_lightning_waits_for_the_first_evaluation(lab):
    python = _prepare_with(lab, "lightning")
    file = lab.folder / "stops.py"
    file.write_text(STOPS)
    keys = {"model": "external", "lr": 0.1, "global-batch": 16, "micro-batch": 8, "epochs": 4, "eval-every": 8}  # an epoch: 5
    run = lab.launch(lab.job(keys), 1, 1, worker=f"{python} {file}")
    expect(run.ends(200) == 0, run.output()[-1500:])
    found = re.search(r"SCORE ([0-9.]+) (\w+)", run.output())
    expect(found and float(found[1]) < 4.0 and found[2] == "True", run.output()[-1500:])


RATES = """
import lightning as L, sys, torch
from pushpull.lightning import PushPullStrategy
torch.set_num_threads(1)
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        print(f"RATE {self.trainer.strategy.job.lr:.6g}")
        return (self.layer(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        if sys.argv[1] == "step":
            return [optimizer], [{"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
                                  "interval": "step"}]
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]
torch.manual_seed(3)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 4)), batch_size=8)
given = {"limit_train_batches": 2, "max_steps": 3} if sys.argv[1] == "step" else {"fast_dev_run": True}
L.Trainer(strategy=PushPullStrategy(), accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
          enable_model_summary=False, **given).fit(Net(), data)
"""


def schedulers_of_lightning_say_the_rate(lab):
    python = _prepare_with(lab, "lightning")
    file = lab.folder / "rates.py"
    file.write_text(RATES)
    keys = {"model": "external", "lr": 0.1, "global-batch": 16, "micro-batch": 8, "epochs": 3, "lr-schedule": "external"}
    steps = range(15)  # of two micro-batches
    for kind, rates, lines in (("step", [0.1 / (1 + step) for step in steps],
                                ("max_steps 3 (the key epochs)", "limit_train_batches 2 (the keys steps and epochs)")),
                               ("epoch", [0.1 * 0.5 ** (step // 5) for step in steps], ("fast_dev_run True (the flag --steps)",))):
        hashes = set()
        for workers in (1, 2):
            run = lab.launch(lab.job(keys), 1, workers, worker=f"{python} -u {file} {kind}")
            expect(run.ends(200) == 0, run.output()[-1500:])
            found = sorted(re.findall(r"RATE (\S+)", run.output()))
            expect(found == sorted(2 * [f"{rate:.6g}" for rate in rates]), f"{kind}: {found}")
            expect(all(line in run.output() for line in lines), run.output())
            hashes.add(base.summary_of(run.out)["weights_sha256"])
        expect(len(hashes) == 1, f"{kind}: {hashes}")


def the_trainer_of_hugging_face_is_kept(lab):
    python = _prepare_with(lab, "transformers", "accelerate")
    done = [example(lab, python, "sentences_hf", [lab.folder / f"hf-{workers}"], workers) for workers in (1, 2)]
    hashes = {summary["weights_sha256"] for summary, _ in done}
    expect(len(hashes) == 1, f"{hashes}")
    summary, text = done[1]
    expect("the job's keys count, not these of Hugging Face" in text and "max_grad_norm 1.0" in text, text)
    found = re.findall(r"'eval_accuracy': '?([0-9.]+)", text)
    expect(found and abs(float(found[-1]) - summary["test_accuracy"]) < 1e-3, f"{summary['test_accuracy']}: {text[-1500:]}")
    expect(list(pathlib.Path(lab.folder / "hf-2").glob("model.safetensors")), "worker 0 has saved no model")


TRAINER = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
from pushpull.hf import PushPullTrainer
torch.set_num_threads(1)
torch.manual_seed(5)
model = BertForSequenceClassification(BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2,
    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
words = torch.randint(0, 50, (320, 12))
rows = [{"input_ids": row, "labels": int(row[0] < 25)} for row in words]
pieces = int(sys.argv[2])
PushPullTrainer(model=model, train_dataset=rows, args=TrainingArguments(
    sys.argv[1], per_device_train_batch_size=8 // pieces, gradient_accumulation_steps=pieces, report_to=[], use_cpu=True,
    save_strategy="no")).train()
"""


def pieces_of_the_trainer_of_hugging_face_have_the_gradient_of_the_whole(lab):
    python = _prepare_with(lab, "transformers", "accelerate")
    file = lab.folder / "trainer.py"
    file.write_text(TRAINER)
    keys = {"model": "external", "optimizer": "sgd", "lr": 0.05, "global-batch": 32, "micro-batch": 8, "epochs": 3, "seed": 5}
    losses = []
    for pieces in (1, 2, 4):
        run = lab.launch(lab.job(keys), 1, 1, worker=f"{python} {file} {lab.folder / f'hf-{pieces}'} {pieces}")
        expect(run.ends(200) == 0, run.output()[-1500:])
        losses.append(base.summary_of(run.out)["train_loss"])
    expect(max(losses) - min(losses) < 1e-4, f"{losses}")


def the_schedule_of_the_trainer_of_hugging_face_says_the_rate(lab):
    python = _prepare_with(lab, "transformers", "accelerate")
    file = lab.folder / "trainer.py"
    file.write_text(TRAINER)
    keys = {"model": "external", "optimizer": "sgd", "lr": 0.05, "global-batch": 32, "micro-batch": 8, "epochs": 3, "seed": 5,
            "lr-schedule": "external"}
    for workers in (1, 2):
        run = lab.launch(lab.job(keys), 1, workers, worker=f"{python} {file} {lab.folder / 'hf'} 1")
        expect(run.ends(200) == 0, run.output()[-1500:])
        expect("learning_rate 5e-05 (the job has 0.05)" in run.output() and "lr_scheduler_type" not in run.output(), run.output())
        rates = [line["learning_rate"] for line in base.metrics_of(run.out) if "learning_rate" in line]
        expect(abs(rates[-1] - 0.05 / 30) < 1e-9, f"the last of 30 steps of a linear schedule: {rates}")


BEST = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, EarlyStoppingCallback, TrainingArguments
from pushpull.hf import PushPullTrainer
torch.set_num_threads(1)
torch.manual_seed(5)
model = BertForSequenceClassification(BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2,
    max_position_embeddings=16))
words = torch.randint(0, 50, (320, 12))
rows = [{"input_ids": row, "labels": int(row[0] < 25)} for row in words]
def results(model, batch):
    out = model(**batch)
    right = (out.logits.argmax(-1) == batch["labels"])
    return {"loss": out.loss, "correct": right.sum(), "sums": {"right": right.sum(), "all": len(right)}}
def share(prediction):
    raise RuntimeError("the job evaluates")
trainer = PushPullTrainer(model=model, train_dataset=rows, eval_dataset=rows[:40], evaluation=results, compute_metrics=share,
    metrics={"share": lambda sums: sums["right"] / sums["all"]}, args=TrainingArguments(
    sys.argv[1], report_to=[], use_cpu=True, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
    metric_for_best_model="accuracy"), callbacks=[EarlyStoppingCallback(9)])
trainer.train()
if trainer.is_world_process_zero():
    print("BEST", trainer.state.best_metric, trainer.state.best_model_checkpoint)
    print("SHARE", trainer.evaluate()["eval_share"])
"""


def the_trainer_of_hugging_face_saves_in_worker_0_alone_and_loads_its_best_checkpoint(lab):
    python = _prepare_with(lab, "transformers", "accelerate")
    file, folder = lab.folder / "best.py", lab.folder / "hf"
    file.write_text(BEST)
    # One worker has two of a step's three micro-batches, so its steps have other numbers. The first evaluation comes
    # after the first of the three epochs, each of 13 steps.
    keys = {"model": "external", "optimizer": "adamw", "lr": 0.005, "global-batch": 24, "micro-batch": 8, "epochs": 3,
            "eval-every": 20}
    run = lab.launch(lab.job(keys), 1, 2, worker=f"{python} {file} {folder}")
    expect(run.ends(200) == 0, run.output()[-1500:])
    found = re.search(r"BEST ([0-9.]+) (\S+)", run.output())
    expect(found and float(found[1]) > 0.4 and pathlib.Path(found[2]).parent == folder, run.output()[-1500:])
    expect("compute_metrics share (the job evaluates while it trains: evaluation= and metrics=" in run.output(), run.output())
    expect(re.search(rf"SHARE {base.summary_of(run.out)['test_accuracy']}", run.output()), run.output()[-1500:])
    checkpoints = sorted(folder.glob("checkpoint-*"))
    expect(len(checkpoints) == 3 and all((one / "model.safetensors").exists() for one in checkpoints), f"{checkpoints}")


# ---- JAX and Keras ----

def write_bars(folder):
    """Writes images as MNIST's files: each digit is a bright bar at another height. Returns the folder."""
    folder.mkdir()
    for split, count in (("train", 400), ("t10k", 100)):
        labels = [i * 7 % 10 for i in range(count)]
        write_idx(folder / f"{split}-labels-idx1-ubyte", [count], labels)
        write_idx(folder / f"{split}-images-idx3-ubyte", [count, 28, 28],
                  [250 if y // 2 == label else 10 for label in labels for y in range(28) for _ in range(28)])
    return folder


def scripts_in_jax_and_keras_train(lab):
    os.environ["KERAS_BACKEND"] = "jax"  # without it `import keras` asks for TensorFlow
    python = _prepare_with(lab, "jax", "keras")
    import pushpull.torch as pp
    folder = write_bars(lab.folder / "bars")
    keys = flags_of({"global-batch": 40, "micro-batch": 10, "eval-every": 20})
    for name, averages in (("jax_mlp", 0), ("keras_mnist", 4)):
        done = [example(lab, python, name, [folder], workers, keys, epochs=6)[0] for workers in (1, 2)]
        expect(len({summary["weights_sha256"] for summary in done}) == 1, f"{name}: {done}")
        expect(done[0]["test_accuracy"] > 0.5 and done[0]["test_total"] == 100, f"{name}: {done[0]['test_accuracy']}")
        moved = [tensor for key, tensor in pp.read_checkpoint(lab.folder / f"{name}-1" / "checkpoints").items()
                 if "moving" in key]
        expect(len(moved) == averages and all(abs(float(tensor.max()) - 1) > 1e-3 for tensor in moved), f"{name}: {moved}")


if __name__ == "__main__":
    base.main(globals())
