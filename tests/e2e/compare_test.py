"""Tests `pushpull compare`: every strategy gets the same runs, and the output files are complete and true."""
import csv
import json
import os
import signal

import lab as base
from lab import MLP, expect, first, living_below

USAGE, NOT_FINITE, DEVICE, SIGINT_CODE = 2, 7, 9, 128 + signal.SIGINT


def compare(lab, keys, *words, want=0, seconds=240):
    """Runs `pushpull compare`. Returns its folder and its output."""
    out = lab.folder / lab.name("compared")
    code, text = lab.call("pushpull", "compare", "--job", lab.job(keys), "--out", out, *words, seconds=seconds)
    expect(code == want, f"exit code {code}, want {want}: {text[-1500:]}")
    return out, text


def result_of(out):
    return json.loads((out / "compare.json").read_text())


def rows_of(out):
    with open(out / "compare.csv", newline="") as file:
        return list(csv.DictReader(file))


@first("compare")
def every_strategy_gets_the_same_runs(lab):
    out, text = compare(lab, {**MLP, "steps": 60}, "--strategies", "sync,async", "--workers", "1,2", "--seeds", 1,
                        "--target-accuracy", "0.5")
    result = result_of(out)
    runs = result["runs"]
    cells = {(run["strategy"], run["workers"], run["seed"]) for run in runs}
    expect(len(runs) == 4 and cells == {(s, w, 7) for s in ("sync", "async") for w in (1, 2)}, f"{cells}")
    for run in runs:
        expect(run["failure"] is None and run["samples_per_second"] > 0 and run["test_accuracy"] > 0.5, f"{run}")
        expect(run["seconds_to_target"] > 0 and run["samples_to_target"] % 64 == 0, f"{run}")
        expect(run["curve"][-1]["test_accuracy"] == run["test_accuracy"], f"{run['curve']}")
        expect(15 <= len(run["curve"]) <= 25, f"{len(run['curve'])} evaluations")
        expect((out / run["out"] / "log.txt").exists() and (out / run["out"] / "metrics.jsonl").exists(), run["out"])
        expect(not (out / run["out"] / "checkpoints").exists(), "weights are left")
    sync = {run["weights_sha256"] for run in runs if run["strategy"] == "sync"}
    expect(len(sync) == 1, "sync has other bits with another number of workers")
    for key in ("initial_weights_sha256", "data_order_sha256"):
        expect(len({run[key] for run in runs}) == 1, f"{key} differs")
    rows = rows_of(out)
    expect([(row["strategy"], int(row["workers"])) for row in rows] ==
           [(run["strategy"], run["workers"]) for run in runs], "compare.csv has other rows")
    for row, run in zip(rows, runs):
        expect(float(row["samples_per_second"]) == run["samples_per_second"], f"{row}")
    for word in ("sync", "async", "samples/s", "accuracy", "[4/4]", "congestion", "evaluation  every 3 steps"):
        expect(word in text, f"no {word} in {text}")
    expect(max(map(len, text.splitlines())) <= 240, "a very long line")


@first("compare survives a failed run")
def a_run_that_fails_does_not_stop_the_others(lab):
    out = lab.folder / lab.name("compared")
    process = lab.start("pushpull", "compare", "--job", lab.job({**MLP, "steps": lab.steps(4000)}), "--strategies",
                        "sync,async", "--workers", 2, "--seeds", 1, "--out", out)
    metrics = out / "runs" / "sync-w2-s7" / "metrics.jsonl"
    lab.until(lambda: metrics.exists() and metrics.stat().st_size > 0, 60, lambda: f"no metrics: {process.output()}")
    for pid in sorted(living_below(process.pid)):
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            if words.read().split(b"\0")[0].endswith(b"pushpull-worker"):
                os.kill(pid, signal.SIGKILL)
                break
    expect(process.ends(120) == 0, f"exit code {process.returncode}: {process.output()[-1500:]}")
    sync, asynchronous = result_of(out)["runs"]
    expect(sync["failure"] and "\n" not in sync["failure"] and sync["exit_code"] != 0, f"{sync}")
    expect(sync["samples_per_second"] is None and sync["test_accuracy"] is None, f"{sync}")
    expect(asynchronous["failure"] is None and asynchronous["samples_per_second"] > 0, f"{asynchronous}")
    expect(len(rows_of(out)) == 2, "compare.csv has other rows")
    text = process.output()
    expect("1 of 1 FAILED" in text and sync["failure"] in text, text)
    expect(any("FAILED: sync, 2 workers" in note for note in result_of(out)["notes"]), "no note")
    lab.nothing_is_left()


def if_all_runs_fail_the_code_is_the_first_failures(lab):
    out, text = compare(lab, {**MLP, "lr": 1e38}, "--strategies", "sync,async", "--workers", 1, "--seeds", 1,
                        want=NOT_FINITE)
    expect(len(result_of(out)["runs"]) == 2 and all("[train]" in run["failure"] for run in result_of(out)["runs"]),
           f"{result_of(out)['runs']}")
    expect(text.count("FAILED: [train]") >= 2, text)


def workers_of_every_run_get_the_device(lab):
    words = ("--strategies", "sync,allreduce:tree", "--workers", 2, "--seeds", 1)
    out, text = compare(lab, {**MLP, "steps": 6}, *words, "--device", "auto")
    expect("device      auto (of workers)" in text and result_of(out)["device"] == "auto", text)
    for run in result_of(out)["runs"]:
        log = (out / run["out"] / "log.txt").read_text()
        expect("computes on" in log, f"{run['out']}: {log}")
    if "computes on the processor" not in log:
        raise base.Skipped("there is a GPU")
    # the device decides about the job's precision when a run begins
    out, text = compare(lab, {**MLP, "precision": "bf16"}, *words, "--device", "cuda:7", want=DEVICE)
    expect(all("cuda:7 cannot be used" in run["failure"] for run in result_of(out)["runs"]), text)


def servers_of_every_run_get_their_device(lab):
    lab.on_fake_devices()
    out, text = compare(lab, {**MLP, "steps": 6}, "--strategies", "sync,async", "--workers", 2, "--seeds", 1,
                        "--servers", 2, "--server-device", "cuda")
    expect("device      cuda (of servers)" in text and result_of(out)["server_device"] == "cuda", text)
    expect(result_of(out)["device"] is None, text)
    for run in result_of(out)["runs"]:
        log = (out / run["out"] / "log.txt").read_text()
        expect("keeps weights on fake:0" in log and "keeps weights on fake:1" in log, f"{run['out']}: {log}")
    expect("device of the servers" in (out / "report.html").read_text(), "the report does not name the device")


def an_unreached_target_is_no_number(lab):
    out, text = compare(lab, {**MLP, "model": "convnet", "steps": 5}, "--strategies", "sync", "--workers", 1, "--seeds", 2,
                        "--target-accuracy", "0.9999")
    for run in result_of(out)["runs"]:
        expect(run["seconds_to_target"] is None and run["samples_to_target"] is None, f"{run}")
    expect(all(row["seconds_to_target"] == "" for row in rows_of(out)), "a number in compare.csv")
    expect("never" in text and "0 of 2" in text, text)
    run = json.loads((out / result_of(out)["runs"][0]["out"] / "summary.json").read_text())
    expect(result_of(out)["model_parameters"] == run["model_parameters"], f"{run['model_parameters']}: running statistics")


def tuning_gives_every_strategy_the_same_tries(lab):
    out, text = compare(lab, {**MLP, "steps": 30}, "--strategies", "sync,async", "--workers", "1", "--seeds", 2,
                        "--tune", "lr=0.1,1e38")
    result = result_of(out)
    tries = sorted((run["strategy"], run["tuned"], run["seed"]) for run in result["tuning"])
    expect(tries == [(s, f"lr={lr}", 7) for s in ("async", "sync") for lr in ("0.1", "1e38")], f"{tries}")
    expect(len(result["runs"]) == 4 and all(run["tuned"] == "lr=0.1" for run in result["runs"]), f"{result['runs']}")
    expect("tuned sync, 1 worker: lr=0.1" in text and "tuned async, 1 worker: lr=0.1" in text, text)


def ctrl_c_keeps_the_complete_runs(lab):
    out = lab.folder / lab.name("compared")
    process = lab.start("pushpull", "compare", "--job", lab.job({**MLP, "steps": lab.steps(3000)}), "--strategies",
                        "sync,async,ssp:2", "--workers", "1,2", "--seeds", 100, "--out", out, start_new_session=True)
    process.prints("[1/600]", 120)
    lab.until(lambda: lab.left_behind() and len(lab.left_behind()) > 2, 60, lambda: "the second run does not start")
    os.killpg(process.pid, signal.SIGINT)  # like a terminal
    expect(process.ends(60) == SIGINT_CODE, f"exit code {process.returncode}: {process.output()[-1500:]}")
    lab.nothing_is_left()
    result = result_of(out)
    expect(1 <= len(result["runs"]) < 600 and all(run["failure"] is None for run in result["runs"]),
           f"{[run['failure'] for run in result['runs']]}")
    expect(any("INTERRUPTED" in note and "SIGINT" in note for note in result["notes"]), f"{result['notes']}")
    expect("INTERRUPTED" in process.output() and "samples/s" in process.output(), process.output()[-1500:])


def mistakes_are_named_before_a_run_starts(lab):
    """compare_options_test.cpp has all."""
    job = lab.job({**MLP, "steps": 5})
    for words, phrases in ((["--strategies", "sync,psync"], ["psync", "async"]),
                           (["--straggler", "2:4", "--workers", "4,2"], ["straggler", "2:4", "--workers is 2"]),
                           (["--strategie", "sync"], ["--strategie", "--strategies"]),
                           (["--global-batch", "65"], ["global-batch", "65"])):
        out = lab.folder / lab.name("refused")
        code, text = lab.call("pushpull", "compare", "--job", job, "--out", out, *words)
        expect(code == USAGE, f"{words}: exit code {code}: {text}")
        expect(len(text.splitlines()) == 1 and all(word in text for word in phrases), f"{words}: {text}")
        expect(not out.exists(), f"{words}: something ran")


if __name__ == "__main__":
    base.main(globals())
