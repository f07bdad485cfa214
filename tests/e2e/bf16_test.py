"""Tests precision = bf16 on the processor: sync gives the same bits for any cluster, other commands compute as the
workers do, and a processor that does not compute in bf16 is refused."""
import json

import lab as base
from lab import MLP, expect
from replay_test import record_of, replays

USAGE = 2
BF16 = {**MLP, "precision": "bf16"}
LARGE = {"optimizer": "adamw", "lr": 0.001, "global-batch": 16, "micro-batch": 4, "steps": 6, "seed": 7, "precision": "bf16"}
TEXT = "".join(chr(97 + i * 7 % 23) for i in range(20_000))


def _need_bf16(lab):
    run = lab.run(lab.job({**BF16, "steps": 1}))
    if "has neither" in run.text:
        raise base.Skipped("nothing is tested in bf16: this processor has neither AVX512_BF16 nor AMX-BF16")


def _gpt(lab):
    text = lab.folder / "text.txt"
    text.write_text(TEXT)
    return {**LARGE, "model": "gpt", "dataset": "text", "data-dir": text, "layers": 2, "heads": 2, "embed": 32, "sequence": 24,
            "dropout": 0.1}


def _models(lab):
    return {"mlp": BF16, "gpt": _gpt(lab),
            "convnet": {**BF16, "model": "convnet", "lr": 0.05, "steps": 8},
            "resnet18": {**BF16, "model": "resnet18", "stem": "cifar", "lr": 0.001, "steps": 2, "eval-every": 0, "global-batch": 16,
                         "micro-batch": 4, "test-samples": 16},
            "bert": {**LARGE, "model": "bert", "dataset": "dummy-qa", "layers": 1, "heads": 2, "embed": 32, "sequence": 24, "vocab": 64,
                     "test-samples": 16}}


def any_cluster_gives_the_same_bits(lab):
    _need_bf16(lab)
    for name, keys in _models(lab).items():
        job = lab.job(keys)
        is_large = name == "resnet18"
        shapes = [(1, 1), (2, 4)] if is_large else [(servers, workers) for servers in (1, 2) for workers in (1, 2, 4)]
        runs = {shape: lab.train(job, *shape, slice_bytes=1 << 20 if is_large else 4096) for shape in shapes}
        found = {(run["weights_sha256"], run["test_loss"]) for run in runs.values()}
        expect(len(found) == 1, f"{name}: {[(shape, run['weights_sha256']) for shape, run in runs.items()]}")
        wide = lab.train(lab.job({**keys, "precision": "fp32"}))
        expect(wide["weights_sha256"] != runs[1, 1]["weights_sha256"], f"{name}: bf16 has the bits of fp32")
        # 2^-8 is the rounding of an activation; after these few steps the losses are farther apart by less than ten of them
        near = abs(wide["test_loss"] - runs[1, 1]["test_loss"]) <= 10 / 256 * wide["test_loss"]
        expect(near, f"{name}: test_loss {runs[1, 1]['test_loss']}, in fp32 {wide['test_loss']}")


def training_ends_where_fp32_ends(lab):
    _need_bf16(lab)
    wide, narrow = (lab.train(lab.job({**MLP, "steps": 200, "precision": precision})) for precision in ("fp32", "bf16"))
    expect(wide["test_accuracy"] > 0.9, f"fp32 has learnt nothing: {wide['test_accuracy']}")
    expect(abs(wide["test_accuracy"] - narrow["test_accuracy"]) < 0.02, f"{wide['test_accuracy']}, {narrow['test_accuracy']}")


def other_commands_compute_in_bf16(lab):
    _need_bf16(lab)
    run = lab.run(lab.job({**BF16, "checkpoint-every": 20}), 1, 2)
    code, text = lab.call("pushpull", "eval", "--checkpoint", run.out / "checkpoints", "--json")
    expect(code == 0, text)
    expect(json.loads(text)["test_loss"] == run.summary()["test_loss"], f"{text}, {run.summary()['test_loss']}")
    code, text = lab.call("pushpull", "eval", "--checkpoint", run.out / "checkpoints", "--json", "--precision", "fp32")
    expect(code == 0 and json.loads(text)["test_loss"] != run.summary()["test_loss"], f"the precision is ignored: {text}")

    record = record_of(lab)
    replays(lab, record, lab.train(lab.job({**BF16, "strategy": "async"}), 2, 3, record=record))


def a_processor_without_bf16_is_refused(lab):
    lab.environment["DNNL_MAX_CPU_ISA"] = "AVX512_CORE"
    run = lab.run(lab.job(BF16), 1, 2)
    expect(run.code == USAGE, f"exit code {run.code}: {run.text}")
    expect("precision = bf16 needs AVX512_BF16 or AMX-BF16" in run.text and "precision = fp32" in run.text, run.text)


if __name__ == "__main__":
    base.main(globals())
