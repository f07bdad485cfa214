"""Tests the files that a run writes, and its errors if it cannot write them."""
import re
import resource
import subprocess

import lab as base
from lab import LONG, MLP, expect, first, kill_all, metrics_of

FILE = 8
NUMBER = (int, float)
SUMMARY = {"strategy": str, "workers": int, "servers": int, "steps": int,
           "resumed_from_step": type(None), "samples": int, "samples_per_worker": list,
           "seconds": NUMBER, "samples_per_second": NUMBER, "train_loss": float, "test_loss": float,
           "test_correct": int, "test_total": int, "weights_sha256": str, "slices_per_server": list,
           "staleness": dict, "bytes_pushed": int, "bytes_pulled": int, "rejected_frames": int,
           "refused_peers": int, "peak_rss_mib": dict}


@first("summary.json")
def the_summary_is_complete(lab):
    for strategy in ("sync", "async", "ssp:2"):
        summary = lab.train(lab.job({**MLP, "strategy": strategy}), 2, 3, slice_bytes=4096)
        for key, kind in SUMMARY.items():
            expect(isinstance(summary.get(key, ...), kind), f"{key}: {summary.get(key, 'missing')!r}")
        expect((summary["strategy"], summary["workers"], summary["servers"], summary["steps"]) ==
               (strategy, 3, 2, 40), f"{summary}")
        expect(len(summary["samples_per_worker"]) == 3 and len(summary["slices_per_server"]) == 2,
               f"{summary}")
        expect(re.fullmatch("[0-9a-f]{64}", summary["weights_sha256"]), summary["weights_sha256"])
        staleness = summary["staleness"]
        expect(set(staleness) >= {"max", "mean", "histogram", "clock_gap_max"}, f"{staleness}")
        gradients = 40 * 6570 * 4  # bytes; some shares are several subtrees
        expect(summary["bytes_pushed"] >= 3 * gradients, f"{summary['bytes_pushed']} bytes pushed")
        expect(summary["bytes_pulled"] >= 3 * gradients, f"{summary['bytes_pulled']} bytes pulled")
        for role in ("server", "worker"):
            expect(1 < summary["peak_rss_mib"][role] < 10_000, f"{summary['peak_rss_mib']}")


@first("metrics.jsonl")
def metrics_describe_the_run(lab):
    out = lab.folder / "out"
    summary = lab.train(lab.job({**MLP, "steps": lab.steps(6000), "eval-every": 400}), 1, 2, out=out)
    lines = metrics_of(out)
    expect((out / "metrics.jsonl").read_text().endswith("\n"), "the last line is torn")
    for line in lines:
        for key in ("seconds", "step", "epoch", "samples", "samples_per_second", "learning_rate",
                    "staleness_mean", "staleness_max"):
            expect(isinstance(line[key], NUMBER), f"{key} is {line[key]!r}")
    steps = [line["step"] for line in lines]
    expect(steps == sorted(steps) and steps[-1] == summary["steps"], f"steps {steps[:3]}...{steps[-3:]}")
    tested = [line["test_step"] for line in lines if "test_step" in line]
    expect(tested == list(range(400, summary["steps"], 400)) + [summary["steps"]],
           f"evaluations at {tested}")
    last = [line for line in lines if "test_step" in line][-1]
    expect(last["test_correct"] == summary["test_correct"], f"{last}")


def a_short_run_has_metrics_too(lab):
    out = lab.folder / "out"
    lab.train(lab.job({**MLP, "steps": 1}), out=out)
    expect([line["step"] for line in metrics_of(out)][-1:] == [1], f"{metrics_of(out)}")


def an_earlier_summary_is_removed(lab):
    out = lab.folder / "out"
    lab.train(lab.job(MLP), out=out)
    for name in ("summary.json", "metrics.jsonl", "job.ini"):
        expect((out / name).exists(), f"no {name}")
    run = lab.launch(lab.job(LONG), out=out)
    run.prints("training starts")
    expect(not (out / "summary.json").exists(), "the summary of the earlier run still exists")
    kill_all(run)
    run.ends(20)
    lab.until(lambda: not lab.left_behind(), 30, lambda: f"left: {lab.left_behind()}")
    expect(not (out / "summary.json").exists(), "a killed run has a summary")
    # the run before has evaluated its last weights; this run was killed before its first evaluation
    expect(not [line for line in metrics_of(out) if "test_step" in line], "the metrics of the earlier run")


def the_resolved_job_can_be_run(lab):
    out = lab.folder / "out"
    first = lab.train(lab.job({"dataset": "digits", "optimizer": "adam"}), 1, 2, out=out, lr=0.003)
    second = lab.train(out / "job.ini", 2, 1)
    expect(first["weights_sha256"] == second["weights_sha256"], "job.ini is another job")
    text = (out / "job.ini").read_text()
    expect("lr = 0.003" in text and "optimizer = adam" in text, text)


def cannot_write(lab, name, keys, out, *words, **options):
    job = lab.job({**MLP, **keys})
    code, text = lab.call("pushpull", "run", "--job", job, "--out", out, "--workers", 2, **options)
    expect(code == FILE, f"{name}: exit code {code}, want {FILE}: {text[-600:]}")
    lines = [line for line in text.splitlines() if not line.startswith("step ")]
    expect(any(all(word in line for word in words) for line in lines), f"{name}: {words} in {text}")
    expect(len(lines) <= 12, f"{name}: {text}")


def an_impossible_output_folder_is_named(lab):
    (lab.folder / "file").write_text("")
    cannot_write(lab, "file in the way", {}, lab.folder / "file" / "out", "file/out")
    cannot_write(lab, "file as folder", {}, lab.folder / "file", "file")
    cannot_write(lab, "no folder for checkpoints", {"checkpoint-dir": lab.folder / "file" / "ckpt"},
                 lab.folder / "out", "file/ckpt")


def limited_files(size):
    def limit():
        base.die_with_parent()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def a_file_size_limit_is_named(lab):
    out = lab.folder / "out"
    cannot_write(lab, "checkpoint", {"transport": "tcp"}, out, ".safetensors", "out", preexec_fn=limited_files(16_000))
    torn = [path for path in out.rglob("*") if path.name in ("DONE", "summary.json")]
    expect(not torn, f"a broken run left {torn}")


def training_continues_if_metrics_cannot_be_written(lab):
    out = lab.folder / "out"
    job = lab.job({**MLP, "transport": "tcp", "eval-every": 1, "steps": lab.steps(4000)})
    code, text = lab.call("pushpull", "run", "--job", job, "--out", out, "--workers", 2, preexec_fn=limited_files(40_000))
    expect(code == 0, f"exit code {code}: {text[-600:]}")
    warnings = [line for line in text.splitlines() if "metrics.jsonl" in line]
    expect(len(warnings) == 1 and "File too large; training goes on" in warnings[0], f"{warnings}")
    expect(base.summary_of(out)["steps"] == lab.steps(4000), "not all steps")


@first("P5, P6: a full disk")
def a_full_disk_is_named(lab):
    full = lab.folder / "full"
    full.mkdir()
    # a small file system in its own mount namespace: it disappears with its processes
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             f'mount -t tmpfs -o size=32k tmpfs "{full}" && exec "$@"', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        raise base.Skipped("only root may mount a small disk")
    look = ["sh", "-c", f'"$@"; code=$?; find "{full}" | sed "s/^/left: /"; exit $code', "sh"]
    for name, keys, out, word in (
            ("checkpoint", {"checkpoint-dir": full / "ckpt"}, lab.folder / "out", ".safetensors"),
            ("metrics", {"eval-every": 1, "steps": lab.steps(4000)}, full, "metrics.jsonl")):
        job = lab.job({**MLP, **keys})
        process = base.Process(lab, lab.name("full"), [
            *alone, *look, lab.bin_dir / "pushpull", "run", "--job", job, "--out", out])
        lab.processes.append(process)
        code, text = process.ends(60), process.output()
        expect(code == FILE and word in text and "full" in text, f"{name}: exit code {code}: {text[-900:]}")
        expect("[run] server 0" in text, f"{name}: not written by server 0: {text[-900:]}")
        left = [line for line in text.splitlines() if line.startswith("left: ")]
        expect(not any(word in line for line in left for word in ("DONE", "step-0", "summary.json")),
               f"{name}: torn files: {left}")


if __name__ == "__main__":
    base.main(globals())
