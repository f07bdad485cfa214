"""Tests jobs whose workers are a command of the user's own: `pushpull run --worker` and `pushpull compare --worker`."""
import contextlib
import json
import os
import pathlib
import shlex
import signal
import sys

import lab as base
from lab import MLP, expect, first, living_below

LINE = {"model": "external", "global-batch": 64, "micro-batch": 8, "optimizer": "momentum", "lr": 0.05, "steps": 150,
        "seed": 7, "eval-every": 50}
FAILED, USAGE, STOPPED = 1, 2, 75


def program(lab, name="linear_regression"):
    """Returns the worker in C."""
    return (lab.bin_dir / "../tests" / name).resolve()


def words_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def workers_of(lab, run):
    """Returns the pids of the workers in C below a launcher, oldest first."""
    return sorted(pid for pid in living_below(run.pid) if words_of(pid)[:1] == [str(program(lab))])


def nothing_is_left(lab, seconds=20):
    """Waits until no process of this test lives, of ours or not."""
    lab.until(lambda: not living_below(os.getpid()), seconds,
              lambda: f"left behind: {[words_of(pid) for pid in living_below(os.getpid())]}")


def script(lab, text):
    """Returns the command of a shell script."""
    path = lab.folder / f"{lab.name('script')}.sh"
    path.write_text(text)
    return f"sh {shlex.quote(str(path))}"


def refused(lab, command, keys, *words, text):
    """Expects one line before anything starts."""
    out = lab.folder / lab.name("refused")
    code, got = lab.call("pushpull", command, "--job", lab.job(keys), "--out", out, *words)
    expect(code == USAGE and text in got and len(got.splitlines()) == 1, f"{words}: exit code {code}: {got}")
    expect(not out.exists(), f"{words}: {out} exists")


@first("a program of one's own as the worker")
def a_command_trains_as_workers_started_by_hand(lab):
    by_hand = lab.cluster(lab.job(LINE), 1, 1, worker_program="../tests/linear_regression").ends_well()
    for workers, keys in ((1, {}), (2, {"servers": 2})):
        summary = lab.train(lab.job(LINE), workers=workers, worker=program(lab), **keys)
        expect(summary["weights_sha256"] == by_hand["weights_sha256"], f"{workers} workers: {summary}")
        expect(summary["model_parameters"] == 3 and summary["heads"][0]["metric"] == "mean squared error", f"{summary}")
    nothing_is_left(lab)


@first("DeepSpeed's file as a job")
def a_file_of_deepspeed_is_a_job(lab):
    path = lab.folder / "ds.json"
    config = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": 1}, "optimizer": {"type": "Adam", "params": {"lr": 0.02, "weight_decay": 0.01}},
              "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5, "total_num_steps": 20, "warmup_max_lr": 0.02}}}
    keys = {"model": "external", "global-batch": 32, "micro-batch": 8, "clip-norm": 1, "optimizer": "adamw", "lr": 0.02, "weight-decay": 0.01,
            "no-decay": "none", "lr-schedule": "linear", "lr-horizon": 20, "warmup-shape": "deepspeed-log", "warmup-steps": 5}
    by_hand = lab.train(lab.job({**keys, "steps": 20}), workers=2, worker=program(lab))
    path.write_text(json.dumps(config))
    out = lab.folder / "deepspeed"
    words = ("--deepspeed", path, "--steps", 20, "--worker", program(lab), "--out", out)
    code, text = lab.call("pushpull", "run", *words, "--workers", 2)
    expect(code == 0 and "zero_optimization stage 1: the optimizer's state is divided" in text, f"exit code {code}: {text}")
    summary = json.loads((out / "summary.json").read_text())
    expect(summary["weights_sha256"] == by_hand["weights_sha256"] and summary["samples"] == 640, f"{summary}, by hand {by_hand}")
    rates = [json.loads(line).get("learning_rate") for line in (out / "metrics.jsonl").read_text().splitlines()]
    expect(all(rate is None or 0 <= rate <= 0.02 for rate in rates) and any(rates), f"{rates}")
    code, text = lab.call("pushpull", "run", *words, "--workers", 3)
    expect(code == USAGE and "take --workers 2" in text and len(text.splitlines()) == 1, f"exit code {code}: {text}")
    path.write_text(json.dumps({**config, "no_such_key": 1}))
    code, text = lab.call("pushpull", "run", *words, "--workers", 2)
    expect(code == USAGE and "no_such_key" in text and len(text.splitlines()) == 1, f"exit code {code}: {text}")


def quotes_path_and_keys_reach_the_worker(lab):
    link = lab.folder / "a 'link"
    link.symlink_to(program(lab))
    lab.environment["PATH"] = f"{lab.folder}:{lab.environment['PATH']}"
    lab.environment["PUSHPULL_JOIN"] = "tcp://127.0.0.1:1"  # of another job
    lab.environment["PUSHPULL_INSECURE"] = "1"
    lab.train(lab.job({**LINE, "steps": 20}), workers=2, worker='"a \'link"')
    code, text = lab.call("pushpull", "keygen", lab.folder / "job.key")
    expect(code == 0, text)
    lab.train(lab.job({**LINE, "steps": 20}), worker=program(lab), key=lab.folder / "job.key")
    lab.environment["HOME"] = lab.environment["XDG_CONFIG_HOME"] = "/proc/none"  # no key can be kept there
    lab.train(lab.job({**LINE, "steps": 20}), worker=program(lab))
    out = lab.folder / "insecure"
    code, text = lab.call("pushpull", "run", "--job", lab.job({**LINE, "steps": 20}), "--out", out, "--insecure", "--worker",
                          program(lab))
    expect(code == 0, text)


def a_command_that_cannot_be_started_is_refused(lab):
    (lab.folder / "plain.py").write_text("")
    for command in ("run", "compare"):
        for worker, text in (("no-such-program train.py", "no program 'no-such-program' in PATH"),
                             ("./train.py", "./train.py cannot be executed: No such file"),
                             ("./plain.py", "./plain.py cannot be executed: it is not executable"),
                             ("python3 'train.py", "' without its end"), (" ", "got ''")):
            refused(lab, command, LINE, "--worker", worker, text=text)
        refused(lab, command, MLP, "--worker", "true", text="--worker: the job has model = mlp")
        refused(lab, command, LINE, text="model = external: the workers are a program of your own")
        refused(lab, command, LINE, "--worker", "true", "--device", "cuda", text="--device cuda and --worker")
    refused(lab, "run", LINE, "--worker", "true", "--trace", "t", text="--trace t and --worker")
    refused(lab, "compare", {**LINE, "steps": 0, "epochs": 2}, "--worker", "true", text="give the length as steps")


@first("P5: run replaces a program of one's own")
def a_killed_worker_is_replaced(lab):
    keys = lab.in_parts({**LINE, "on-worker-loss": "wait"}, 3000)
    want = lab.train(lab.job(keys), workers=2, worker=program(lab))["weights_sha256"]
    run = lab.launch(lab.job(keys), 1, 2, worker=program(lab))
    lab.trains(run)
    lost = workers_of(lab, run)[0]
    os.kill(lost, signal.SIGKILL)
    expect(run.ends(120) == 0, f"exit code {run.returncode}: {run.output()[-800:]}")
    expect("starting a replacement" in run.output() and str(lost) in run.output(), run.output()[-800:])
    expect("SIGTERM" not in run.output(), f"the replacement was killed in its last work: {run.output()[-800:]}")
    expect(base.summary_of(run.out)["weights_sha256"] == want, "the weights differ")
    nothing_is_left(lab)


def a_worker_that_leaves_is_replaced(lab):
    keys = {**LINE, "on-worker-loss": "wait"}
    want = lab.train(lab.job(keys), workers=2, worker=program(lab))["weights_sha256"]
    once = script(lab, f'mkdir {lab.folder}/once 2>/dev/null && exec {program(lab)} --free-in 40\nexec {program(lab)}\n')
    run = lab.run(lab.job(keys), workers=2, worker=once)
    expect(run.code == 0 and "starting a replacement" in run.text, f"exit code {run.code}: {run.text[-800:]}")
    expect(run.summary()["weights_sha256"] == want, "the weights differ")


def ctrl_c_stops_the_job_with_a_checkpoint(lab):
    keys = {**LINE, "steps": 10_000_000}
    run = lab.launch(lab.job(keys), 1, 2, worker=program(lab))
    lab.trains(run)
    os.kill(run.pid, signal.SIGINT)
    expect(run.ends(60) == STOPPED, f"exit code {run.returncode}: {run.output()[-800:]}")
    expect(list((run.out / "checkpoints").glob("step-*")), "no checkpoint")
    nothing_is_left(lab)


def a_command_that_does_not_join_ends_the_job(lab):
    for policy in ("abort", "wait", "continue"):
        run = lab.run(lab.job({**LINE, "strategy": "async", "on-worker-loss": policy}), workers=2, worker="true", seconds=60)
        expect(run.code == FAILED and "ended with exit code 0 before training began" in run.text,
               f"{policy}: exit code {run.code}: {run.text[-800:]}")
        nothing_is_left(lab)


def an_exception_is_shown_whole(lab):
    path = lab.folder / "train.py"
    path.write_text("def deep(n):\n    if n == 0: raise RuntimeError('my own mistake')\n    deep2(n)\n\n"
                    "def deep2(n):\n    deep(n - 1)\n\ndeep(30)\n")
    run = lab.run(lab.job(LINE), workers=2, worker=f"{sys.executable} {path}", seconds=60)
    expect(run.code == FAILED, f"exit code {run.code}: {run.text[-800:]}")
    rank = run.text[run.text.index("[run] worker ") + len("[run] worker ")]
    lines = [line for line in run.text.splitlines() if line.startswith(f"worker {rank} | ")]
    for word, count in (("Traceback (most recent call last):", 1), ("RuntimeError: my own mistake", 1), ("line 3, in deep", 30),
                        ("line 6, in deep2", 30)):
        found = sum(word in line for line in lines)
        expect(found == count, f"'{word}' {found} times, want {count}:\n{run.text}")
    nothing_is_left(lab)


def nothing_survives_its_worker(lab):
    """A child of a worker, such as a loader of data, ends with it: at a good end, a failure, and when it ignores SIGTERM."""
    good = script(lab, f"sleep 1000 &\n{program(lab)}\n")
    lab.train(lab.job({**LINE, "steps": 20}), workers=2, worker=good)
    nothing_is_left(lab)
    run = lab.run(lab.job(LINE), worker=script(lab, "sleep 1000 & sleep 1000 &\nexit 3\n"), seconds=60)
    expect(run.code == 3, f"exit code {run.code}: {run.text}")
    nothing_is_left(lab)
    deaf = script(lab, f"trap '' TERM INT\nsleep 1000 &\n[ $(ls {lab.folder}/deaf* | wc -l) = 0 ] && exit 4\nsleep 1000\n")
    (lab.folder / "deaf").write_text("")
    run = lab.launch(lab.job(LINE), worker=deaf)
    lab.until(lambda: any(words_of(pid)[:1] == ["sleep"] for pid in living_below(run.pid)), 30, run.output)
    os.kill(run.pid, signal.SIGTERM)
    expect(run.ends(90) == 128 + signal.SIGTERM, f"exit code {run.returncode}: {run.output()}")
    nothing_is_left(lab)


def nothing_survives_a_killed_launcher(lab):
    run = lab.launch(lab.job({**LINE, "steps": 10_000_000}), workers=2, worker=script(lab, f"sleep 1000 &\n{program(lab)}\n"))
    lab.trains(run)
    run.kill()
    run.ends(10)
    nothing_is_left(lab)
    expect(list((run.out / "checkpoints").glob("step-*")), "the job was not stopped with a checkpoint")


def a_comparison_reports_on_the_users_model(lab):
    out = lab.folder / "compared"
    words = ("--strategies", "sync,async", "--workers", "1,2", "--seeds", 1, "--worker", f"{program(lab)}")
    code, text = lab.call("pushpull", "compare", "--job", lab.job({**LINE, "eval-every": 0}), "--out", out, *words,
                          "--target", "0.001", seconds=240)
    expect(code == 0, f"exit code {code}: {text[-1500:]}")
    result = json.loads((out / "compare.json").read_text())
    expect(len(result["runs"]) == 4 and all(run["failure"] is None for run in result["runs"]), f"{result['runs']}")
    expect(result["model_parameters"] == 3 and result["metric"] == "mean squared error", f"{result}")
    expect(result["worker"] == str(program(lab)) and str(program(lab)) in result["command"], f"{result}")
    sync = [run for run in result["runs"] if run["strategy"] == "sync"]
    expect(len({run["weights_sha256"] for run in sync}) == 1, "sync has other bits with another number of workers")
    expect(all(run["seconds_to_target"] and 15 <= len(run["curve"]) <= 25 for run in sync), f"{sync}")
    page = (out / "report.html").read_text()
    for word in ("program of the workers", str(program(lab)), "Mean squared error"):
        expect(word in page, f"no '{word}' in the report")
    for word in ("3 parameters, measures mean squared error", "samples/s", "mean squared error"):
        expect(word in text, f"no '{word}' in {text}")
    nothing_is_left(lab)


def a_target_that_the_users_model_does_not_measure_is_refused(lab):
    code, text = lab.call("pushpull", "compare", "--job", lab.job({**LINE, "steps": 20}), "--strategies", "sync,async",
                          "--workers", 1, "--seeds", 2, "--worker", program(lab), "--target-accuracy", "0.9",
                          "--out", lab.folder / "compared")
    expect(code == USAGE and "measures mean squared error" in text, f"exit code {code}: {text}")
    expect("[1/4]" in text and "[2/4]" not in text, f"it is known after the first run: {text}")


def a_comparison_names_what_the_users_program_says(lab):
    path = lab.folder / "train.py"
    path.write_text("raise RuntimeError('my own mistake')\n")
    code, text = lab.call("pushpull", "compare", "--job", lab.job(LINE), "--strategies", "sync", "--workers", 2, "--seeds",
                          1, "--worker", f"{sys.executable} {path}", "--out", lab.folder / "compared")
    expect(code == FAILED and "FAILED: RuntimeError: my own mistake (exit code 1)" in text, f"exit code {code}: {text}")


def commands_without_the_users_model_say_so(lab):
    job = lab.job({**LINE, "steps": 20})
    run = lab.run(job, worker=program(lab))
    expect(run.code == 0, run.text)
    for words in (("eval", "--checkpoint", run.out / "checkpoints"), ("generate", "--checkpoint", run.out / "checkpoints"),
                  ("models", "--job", job)):
        code, text = lab.call("pushpull", *words)
        expect(code == USAGE and "only the program of the job's workers has the model; " in text and
               len(text.splitlines()) == 1, f"{words}: exit code {code}: {text}")
    refused(lab, "run", {**LINE, "strategy": "async", "record": "r"}, "--worker", "true",
            text="record = r (")


if __name__ == "__main__":
    base.main(globals())
