"""Tests the large networks as whole jobs: the same bits on every cluster, every strategy, learning, examples, mistakes."""
import pathlib

import lab as base
from lab import expect, first

USAGE = 2
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BERT = {"model": "bert", "dataset": "dummy-qa", "layers": 2, "heads": 4, "embed": 32, "sequence": 24, "vocab": 60, "train-samples": 500,
        "test-samples": 50, "global-batch": 16, "micro-batch": 2, "optimizer": "adamw", "lr": 0.002, "weight-decay": 0.01, "clip-norm": 1,
        "lr-schedule": "linear", "warmup-fraction": 0.1, "label-smoothing": 0.1, "sampler": "weighted", "dropout": 0.1,
        "attention-dropout": 0.1, "head-weights": "start:2,end-position:0.5", "steps": 12, "seed": 3}
RESNET = {"model": "resnet18", "stem": "cifar", "dataset": "digits", "train-samples": 64, "test-samples": 32, "global-batch": 16, "micro-batch": 4,
          "optimizer": "nesterov", "lr": 0.02, "weight-decay": 0.0005, "steps": 3, "seed": 3}
STRATEGIES = ("async", "ssp:2", "backup:1", "local:2", "buffered:2", "allreduce:ring", "allreduce:tree")


def has_one_hash(lab, keys):
    job = lab.job(keys)
    runs = [lab.train(job, servers, workers, **more)
            for servers, workers, more in ((1, 1, {}), (2, 2, {"transport": "tcp"}), (1, 4, {"slice_bytes": 65536}),
                                           (1, 2, {"strategy": "allreduce:tree"}))]
    expect(len({run["weights_sha256"] for run in runs}) == 1, [run["weights_sha256"] for run in runs])
    return runs[0]


@first("P1: bert")
def a_bert_gives_the_same_bits_on_any_cluster(lab):
    run = has_one_hash(lab, BERT)
    heads = [(head["name"], head["metric"]) for head in run["heads"]]
    expect(heads == [("start", "exact match"), ("end", "accuracy"), ("start-position", "mean squared error"),
                     ("end-position", "mean squared error"), ("class", "accuracy")], heads)
    expect(run["arena_bytes"] > 0 and run["slots"] == 1, run)


def a_resnet_gives_the_same_bits_on_any_cluster(lab):
    has_one_hash(lab, RESNET)


def a_bert_goes_on_after_a_kill_and_a_resume_with_the_same_bits(lab):
    keys = {**BERT, "steps": lab.steps(1200), "on-worker-loss": "wait", "eval-every": 100}
    job = lab.job(keys)
    calm = lab.train(job, 1, 2)["weights_sha256"]
    cluster = lab.cluster(job, 2, 2)
    cluster.reaches(1)
    cluster.workers[0].kill()
    cluster.add_worker()
    killed = cluster.ends_well(but=(cluster.workers[0],))["weights_sha256"]
    expect(killed == calm, "other bits after a kill")
    out = lab.folder / "resumed"
    run = lab.run(job, 1, 3, out=out, stop_after=keys["steps"] // 2)
    expect(run.code == 0, run.text[-500:])
    expect(lab.run(job, 1, 1, out=out, resume="true").summary()["weights_sha256"] == calm, "other bits after a resume")


def all_strategies_train_a_bert_and_a_resnet(lab):
    for strategy in STRATEGIES:
        summary = lab.train(lab.job({**BERT, "strategy": strategy}), 2, 3)
        expect(summary["heads"][0]["loss"] < 4, f"{strategy}: {summary['heads'][0]}")
        summary = lab.train(lab.job({**RESNET, "steps": 2, "strategy": strategy}), 1, 2)
        expect(summary["heads"][0]["counted"] == RESNET["test-samples"], f"{strategy}: {summary['heads'][0]}")


def a_bert_learns_the_planted_answers(lab):
    keys = {**BERT, "train-samples": 4000, "test-samples": 500, "dropout": 0, "attention-dropout": 0, "label-smoothing": 0, "head-weights": "",
            "sampler": "uniform", "embed": 64, "sequence": 32, "steps": 1000, "global-batch": 32, "micro-batch": 8}
    value = lab.train(lab.job(keys), 1, 2)["heads"][0]["value"]
    expect(value > 0.9, f"exact match {value}")


@first("the job files of docs/examples")
def examples_start(lab):
    small = {"bert-qa": {"layers": 1, "embed": 24, "ffn": 32, "epochs": 0, "steps": 2, "sequence": 32, "test_samples": 4},
             "resnet": {"dataset": "digits", "train_samples": 200, "test_samples": 10, "epochs": 1}}
    for name, keys in small.items():
        run = lab.run(ROOT / f"docs/examples/{name}.ini", 1, 2, **keys)
        expect(run.code == 0, f"{name}: {run.text[-500:]}")


def mistakes_are_named(lab):
    for keys, word in (({"dataset": "digits"}, "dataset = digits"), ({"heads": 5}, "heads = 5 does not divide embed = 32"),
                       ({"sequence": 100000}, "sequence"), ({"head-weights": "stat:1"}, "the heads of this model are start, end"),
                       ({"head-weights": "start"}, "head-weights = start"), ({"positions": 8}, "fewer than a sample's 24"),
                       ({"label-smoothing": 1}, "label-smoothing = 1")):
        run = lab.run(lab.job({**BERT, **keys}), 1, 1)
        expect(run.code == USAGE and word in run.text, f"{word}: {run.code}: {run.text[-400:]}")


if __name__ == "__main__":
    base.main(globals())
