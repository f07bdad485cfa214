"""Tests narrow pushes and pulls: fewer bytes, the same bits in every run with as many workers, and their effect
on accuracy."""
import json

import lab as base
from lab import MLP, expect, first

DIGITS = {**MLP, "lr": 0.05, "epochs": 10, "steps": 0, "seed": 5}
CODECS = (("fp16", 1.9), ("bf16", 1.9), ("int8", 3.5), ("topk:0.05", 8))
USAGE = 2


@first("codecs: fewer bytes, the same bits on any servers")
def fewer_bytes_and_the_same_bits_on_any_servers(lab):
    plain = lab.train(lab.job(DIGITS), 1, 3)
    for codec, fewer in CODECS:
        job = lab.job({**DIGITS, "codec": codec})
        runs = [lab.train(job, servers, 3, slice_bytes=size)
                for servers, size in ((1, 1 << 20), (3, 4096))]
        hashes = {run["weights_sha256"] for run in runs}
        expect(len(hashes) == 1 and plain["weights_sha256"] not in hashes, f"{codec}: {hashes}")
        saved = [plain["bytes_pushed"] / run["bytes_pushed"] for run in runs]
        expect(min(saved) >= fewer, f"{codec}: {saved} times fewer bytes, want {fewer}")
        expect(all(run["bytes_pulled"] == plain["bytes_pulled"] for run in runs), f"{codec}: pulls have changed")
        worst = min(run["test_correct"] for run in runs)
        expect(worst >= plain["test_correct"] - 0.03 * plain["test_total"],
               f"{codec}: {worst} right, without it {plain['test_correct']} of {plain['test_total']}")


def every_strategy_learns_with_a_codec(lab):
    for strategy, codec in (("async", "topk:0.05"), ("buffered:3", "int8"), ("ssp:2", "int8"), ("backup:1", "topk:0.05"), ("local:2", "int8"),
                            ("local:2", "topk:0.05")):
        # a job this small does not converge with DiLoCo's outer momentum under any codec; after only 10
        # epochs the result depends on the pushes that backup dropped
        keys = {**DIGITS, "epochs": 20, "codec": codec, "strategy": strategy, "clip-norm": 5, "outer-momentum": 0}
        summary = lab.train(lab.job(keys), 2, 3)
        expect(summary["test_correct"] >= 0.85 * summary["test_total"],
               f"{strategy}, {codec}: {summary['test_correct']} of {summary['test_total']}")


def pulls_in_bf16_have_the_same_bits_everywhere(lab):
    keys = {**MLP, "pull-codec": "bf16"}
    plain = lab.train(lab.job(MLP), 1, 2)
    runs = [lab.train(lab.job({**keys, "eval-every": every}), servers, workers, slice_bytes=size)
            for servers, workers, size, every in ((1, 2, 1 << 20, 0), (2, 3, 4096, 7), (3, 1, 8192, 1))]
    hashes = {run["weights_sha256"] for run in runs}
    expect(len(hashes) == 1 and plain["weights_sha256"] not in hashes, f"{hashes}")
    expect(len({run["test_correct"] for run in runs}) == 1, "another evaluation")
    one = runs[0]
    # the last pull, for the evaluation, is not rounded
    expect(plain["bytes_pulled"] / one["bytes_pulled"] > 1.9, f"{plain['bytes_pulled']} and {one['bytes_pulled']}")
    expect(plain["bytes_pushed"] == one["bytes_pushed"], "pushes have changed")


def a_resume_on_rounded_weights_gives_the_same_bits(lab):
    keys = {**MLP, "pull-codec": "bf16", "eval-every": 10}
    whole = lab.train(lab.job(keys), 1, 2)
    out = lab.folder / "resumed"
    run = lab.run(lab.job(keys), 1, 2, out=out, stop_after=20)
    expect(run.code == 0, run.text[-500:])
    rest = lab.run(lab.job(keys), 2, 3, out=out, resume="true").summary()
    expect(rest["weights_sha256"] == whole["weights_sha256"], "a resumed run has other bits")


def single_tensors_have_their_own_codec(lab):
    all_narrow = lab.train(lab.job({**MLP, "codec": "int8"}), 1, 2)
    rules = "no.such.*=bf16,*.weight=topk:0.05"
    some = lab.train(lab.job({**MLP, "codec": "int8", "codec-tensors": rules}), 1, 2)
    expect(some["bytes_pushed"] < all_narrow["bytes_pushed"], "the rule changes nothing")
    none = lab.train(lab.job({**MLP, "codec": "int8", "codec-tensors": "*=fp32"}), 1, 2)
    plain = lab.train(lab.job(MLP), 1, 2)
    expect(none["weights_sha256"] == plain["weights_sha256"], "no tensor has a codec, but the weights differ")


def a_record_with_a_codec_is_refused(lab):
    job = lab.job({**MLP, "strategy": "async", "codec": "int8"})
    run = lab.run(job, record=lab.folder / "record")
    expect(run.code == USAGE and "codec" in run.text and "record" in run.text, f"{run.code}: {run.text[-500:]}")


def rounded_weights_are_replayed(lab):
    job = lab.job({**MLP, "strategy": "async", "pull-codec": "bf16"})
    record = lab.folder / "record"
    lab.train(job, 2, 2, record=record)
    out = lab.folder / "replayed"
    code, text = lab.call("pushpull", "replay", record, "--out", out)
    expect(code == 0 and json.loads((out / "summary.json").read_text())["verified"], f"{code}: {text[-800:]}")


def compare_sweeps_codecs(lab):
    out = lab.folder / "compared"
    code, text = lab.call("pushpull", "compare", "--job", lab.job(MLP), "--out", out, "--strategies",
                          "sync,allreduce:tree", "--workers", 2, "--seeds", 1, "--codecs", "fp32,int8,topk:0.05",
                          seconds=240)
    expect(code == 0, f"{code}: {text[-1500:]}")
    runs = json.loads((out / "compare.json").read_text())["runs"]
    pushed = {(run["strategy"], run["codec"]): run["bytes_pushed_per_step"] for run in runs}
    expect(set(pushed) == {("sync", "fp32"), ("sync", "int8"), ("sync", "topk:0.05"), ("allreduce:tree", "fp32")},
           f"{pushed}")
    expect(pushed["sync", "fp32"] > 3.5 * pushed["sync", "int8"] > 8 * pushed["sync", "topk:0.05"], f"{pushed}")
    expect(all(run["test_accuracy"] > 0.5 for run in runs), text)
    header = (out / "compare.csv").read_text().splitlines()[0]
    for where, text_of in (("table", text), ("report", (out / "report.html").read_text()), ("csv", header)):
        expect("codec" in text_of, f"the {where} does not name codecs")
    for word in ("sync int8", "topk:0.05", "pushed"):
        expect(word in text, f"no {word} in {text}")


if __name__ == "__main__":
    base.main(globals())
