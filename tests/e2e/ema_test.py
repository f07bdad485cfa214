"""Tests the averaged weights that servers keep: the key ema."""
import json
import shutil
import struct

import lab as base
from lab import MLP, Skipped, expect, first, summary_of
from server_losses_test import STEPS, at, kill_at

AVERAGED = {**MLP, "ema": 0.9, "optimizer": "adamw", "lr": 0.003, "steps": 30}


def tensors(file):
    """Returns the floats of a safetensors file by name, as NumPy arrays."""
    try:
        import numpy
    except ImportError as error:
        raise Skipped(str(error)) from None
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    return {name: numpy.frombuffer(raw, numpy.float32, (entry["data_offsets"][1] - entry["data_offsets"][0]) // 4,
                                   8 + size + entry["data_offsets"][0])
            for name, entry in head.items() if name != "__metadata__"}


def newest(out):
    return max(out.rglob("step-*"))


def ema_of(out):
    """Returns the SHA-256 of the newest checkpoint's averaged weights."""
    return json.loads((newest(out) / "state.json").read_text())["files"]["ema.safetensors"]["sha256"]


def evaluations_of(out):
    """Returns the loss of each evaluation, by step."""
    return {line["test_step"]: line["test_loss"] for line in base.metrics_of(out) if "test_step" in line}


def checkpoint_at(out, step):
    return out / "checkpoints" / f"step-{step:08d}"


def test_loss(lab, checkpoint):
    """Returns the loss of a checkpoint's averaged weights."""
    code, text = lab.call("pushpull", "eval", "--checkpoint", checkpoint, "--ema", "--json")
    expect(code == 0, text)
    return json.loads(text)["test_loss"]


def averaged(lab, keys, servers=1, workers=1, **options):
    run = lab.run(lab.job({**AVERAGED, **keys}), servers, workers, **options)
    expect(run.code == 0, f"exit code {run.code}: {run.text[-1000:]}")
    return ema_of(run.out)


@first("averaged weights have the same bits on any cluster")
def the_average_has_the_same_bits_on_any_cluster(lab):
    want = averaged(lab, {"model": "convnet"})
    for servers, workers, more in ((2, 3, {"slice_bytes": 4096}), (1, 2, {"strategy": "allreduce:tree"}), (2, 2, {"transport": "tcp"})):
        expect(averaged(lab, {"model": "convnet"}, servers, workers, **more) == want, f"{servers} servers, {workers} workers, {more}")
    expect(averaged(lab, {"model": "convnet", "ema": 0.8}) != want, "another decay gives the same average")


def the_average_is_that_of_the_weights_after_each_update(lab):
    for strategy, every in (("sync", 1), ("local:5", 5)):
        run = lab.run(lab.job({**AVERAGED, "model": "convnet", "strategy": strategy, "steps": 20, "checkpoint-every": every,
                               "checkpoint-keep": 100}), 2, 2)
        expect(run.code == 0, run.text[-1000:])
        import numpy
        decay, rest = numpy.float32(0.9), numpy.float32(1.0 - 0.9)
        want = None
        for folder in sorted((run.out / "checkpoints").glob("step-*")):
            model, ema = tensors(folder / "model.safetensors"), tensors(folder / "ema.safetensors")
            expect(list(model) == list(ema), f"{list(model)}, {list(ema)}")
            want = {name: value if want is None or "running" in name else decay * want[name] + rest * value
                    for name, value in model.items()}
            for name, value in ema.items():
                expect((value == want[name]).all(), f"{strategy}, {folder.name}, {name}: {value[:4]}, want {want[name][:4]}")
        expect(any("running" in name for name in want), f"{list(want)}")


def a_resume_and_the_loss_of_a_server_keep_the_average(lab):
    keys = lab.in_parts({**AVERAGED, "checkpoint-every": at(lab, 150)}, STEPS)
    want = averaged(lab, keys)
    out = lab.folder / "resumed"
    averaged(lab, keys, 2, 2, out=out, stop_after=at(lab, 400))
    expect(averaged(lab, keys, 1, 3, out=out, resume="true") == want, "a resume has changed the average")
    for more in ({}, {"recovery": "peers", "copy-every": 7}):
        run = lab.launch(lab.job({**keys, **more}), 2, 2)
        kill_at(lab, run, 240, coordinator=False)
        expect(run.ends(120) == 0, run.output()[-1500:])
        expect(summary_of(run.out)["recoveries"] == 1, "no server was replaced")
        expect(ema_of(run.out) == want, f"the loss of a server has changed the average: {more}")


def eval_takes_the_average(lab):
    run = lab.run(lab.job({**AVERAGED, "ema": 0.95, "lr": 0.02, "steps": 60}))
    checkpoint = newest(run.out)

    def evaluated(*words, code=0):
        got, text = lab.call("pushpull", "eval", run.out, "--json", *words)
        expect(got == code, f"exit code {got}: {text}")
        return json.loads(text) if code == 0 else text

    with_average, without = evaluated("--ema"), evaluated()
    expect(without["test_loss"] == summary_of(run.out)["test_loss"] != with_average["test_loss"], f"{with_average}, {without}")
    # the same as from a model with these weights
    as_model = lab.run(lab.job({**AVERAGED, "ema": 0, "lr": 1e-30, "weight-decay": 0, "steps": 1}), init_from=checkpoint / "ema.safetensors")
    expect(abs(summary_of(as_model.out)["test_loss"] - with_average["test_loss"]) < 1e-6, f"{with_average}")
    shutil.rmtree(run.out)
    run = lab.run(lab.job({**AVERAGED, "ema": 0}), out=run.out)
    expect("has no averaged weights: its job has ema = 0" in evaluated("--ema", code=3), "no line")


@first("evaluations of the averaged weights during the training")
def evaluations_take_the_average(lab):
    keys = {**AVERAGED, "model": "convnet", "eval-every": 5, "checkpoint-every": 5, "checkpoint-keep": 100}
    plain = lab.train(lab.job(keys))
    want = None
    for servers, workers, more in ((1, 1, {}), (2, 3, {"slice-bytes": 4096}), (1, 2, {"transport": "tcp", "pull-codec": "fp32"}),
                                   (1, 2, {"strategy": "allreduce:tree"})):
        run = lab.run(lab.job({**keys, "eval-weights": "ema", **more}), servers, workers)
        expect(run.code == 0, run.text[-1000:])
        summary = summary_of(run.out)
        expect(summary["weights_sha256"] == plain["weights_sha256"], f"{more}: the evaluations have changed the weights")
        losses = evaluations_of(run.out)
        want = want or {step: test_loss(lab, checkpoint_at(run.out, step)) for step in range(5, 31, 5)}
        expect(losses == want and summary["test_loss"] == want[30] != plain["test_loss"], f"{more}: {losses}, want {want}")


def every_strategy_evaluates_the_average(lab):
    for strategy in ("async", "ssp:2", "buffered:2", "backup:1", "local:5", "allreduce:ring"):
        for transport in ("auto", "tcp"):
            run = lab.run(lab.job({**AVERAGED, "strategy": strategy, "eval-every": 10, "eval-weights": "ema", "transport": transport}), 2, 3)
            expect(run.code == 0, f"{strategy}: {run.text[-1000:]}")
            losses = evaluations_of(run.out)
            expect(sorted(losses) == [10, 20, 30], f"{strategy}: {losses}")
            expect(losses[30] == test_loss(lab, newest(run.out)), f"{strategy}, {transport}: {losses}, {newest(run.out)}")


def the_average_stops_a_run_at_the_same_step(lab):
    keys = {**AVERAGED, "lr": 0.1, "steps": 300, "eval-every": 3, "stop-when": "loss:2", "checkpoint-best": "true", "eval-weights": "ema"}
    one = lab.train(lab.job(keys))
    expect(one["stopped_early"], one)
    expect(lab.train(lab.job({**keys, "eval-weights": "model"}))["steps"] != one["steps"], "the weights themselves stop it there, too")
    for servers, workers, more in ((2, 3, {}), (1, 2, {"strategy": "allreduce:tree"})):
        other = lab.train(lab.job({**keys, **more}), servers, workers)
        for key in ("steps", "weights_sha256", "best_evaluation"):
            expect(other[key] == one[key], f"{more}, {key}: {other[key]}, {one[key]}")


def averages_that_are_not_there_are_refused(lab):
    for keys, word in (({"ema": 0}, "ema = 0.999"), ({"stages": 2, "model": "convnet"}, "stages = 2")):
        run = lab.run(lab.job({**AVERAGED, "eval-weights": "ema", **keys}), 1, 2)
        expect(run.code == 2 and "eval-weights = ema" in run.text and word in run.text, run.text[-500:])


if __name__ == "__main__":
    base.main(globals())
