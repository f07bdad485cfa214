"""Tests whole jobs of scripts that say the learning rate, and metrics from named sums: torch_said_worker.py."""
import json
import re

import lab as base
from lab import MLP, expect, summary_of
from torch_workers_test import HERE, JOB, _prepare, launch, script, start_script

SAID = {**JOB, "lr-schedule": "external", "optimizer": "momentum", "lr": 0.003, "steps": 30, "global-batch": 40, "micro-batch": 5}
STRATEGIES = ("async", "ssp:2", "buffered:2", "backup:1", "local:4")


def saying(*words):
    return script(*words, file=HERE / "torch_said_worker.py")


def run_of(lab, keys, servers, workers, *words, code=0, **options):
    """Runs a job. Returns the process, whose exit code must be this one."""
    run = launch(lab, {**SAID, **keys}, servers, workers, saying(*words), **options)
    got = run.ends(240)
    expect(got == code, f"exit code {got}, want {code}: {run.output()[-1500:]}")
    return run


def trained(lab, keys, servers, workers, *words, **options):
    """Runs a job, which must end with 0. Returns its summary and, by step, the (rate, loss of the step before) of micro-batch 0."""
    run = run_of(lab, keys, servers, workers, *words, **options)
    lines = re.findall(r"STEP \d+ (\d+) (\d+) (\S+) (\S+)", run.output())
    return summary_of(run.out), {int(step): (float(rate), loss) for step, batch, rate, loss in lines if batch == "0"}


def a_scheduler_of_the_script_has_the_bits_of_the_jobs_own(lab):
    _prepare(lab)
    own = {"lr-schedule": "multistep", "lr-milestones": "10,20", "lr-gamma": 0.5}
    want, _ = trained(lab, own, 1, 1, "--rate", "none")
    for servers, workers, words in ((1, 1, ("lambda",)), (2, 4, ("lambda",)), (1, 2, ("tasks",))):
        summary, said = trained(lab, {}, servers, workers, "--rate", *words)
        expect(summary["weights_sha256"] == want["weights_sha256"], f"{servers} servers, {workers} workers, {words}: other bits")
        expect([said[step][0] for step in (0, 9, 10, 20)] == [0.003, 0.003, 0.0015, 0.00075], f"{said}")


def the_loss_of_a_step_is_that_of_all_workers(lab):
    _prepare(lab)
    runs = [trained(lab, {}, servers, workers, "--rate", "lambda")[1] for servers, workers in ((1, 1), (2, 4))]
    expect(runs[0] == runs[1] and runs[0][0][1] == "none", f"{runs}")
    losses = [float(loss) for step, (_, loss) in sorted(runs[0].items()) if step > 0]
    expect(len(losses) == 29 and losses[-1] < losses[0], f"{losses}")
    run = run_of(lab, {}, 1, 2, "--rate", "lambda")
    ends = set(re.findall(r"LOSS \d end (\S+)", run.output()))
    newest = [line["loss"] for line in base.metrics_of(run.out) if line.get("step") == 30]
    expect(len(ends) == 1 and float(ends.pop()) == newest[-1], f"{ends}, {newest}")


def one_cycle_is_that_of_torch(lab):
    torch = _prepare(lab)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.006, total_steps=30, cycle_momentum=False)
    want = []
    for _ in range(30):
        want.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step() if len(want) < 30 else None
    summaries = {}
    for workers in (1, 4):
        summaries[workers], said = trained(lab, {}, 1, workers, "--rate", "onecycle")
        expect([said[step][0] for step in range(30)] == want, f"{workers} workers: {said}, want {want}")
    expect(summaries[1]["weights_sha256"] == summaries[4]["weights_sha256"], "other bits")


def a_plateau_has_the_same_bits_and_a_resume_keeps_its_rate(lab):
    _prepare(lab)
    keys = {"steps": 120, "lr": 0.02}
    runs = [trained(lab, keys, servers, workers, "--rate", "plateau") for servers, workers in ((1, 1), (2, 2), (1, 4))]
    expect(len({summary["weights_sha256"] for summary, _ in runs}) == 1, "other bits")
    said = runs[0][1]
    expect(said[119][0] < said[0][0] == 0.02, f"the rate has not dropped: {said[119]}")
    out = lab.folder / "resumed"
    _, before = trained(lab, keys, 1, 2, "--rate", "plateau", out=out, stop_after=101)
    _, after = trained(lab, keys, 1, 3, "--rate", "plateau", out=out, resume="true")
    expect(before[100][0] == after[101][0] < 0.02, f"{before[100]}, {after[101]}")


def a_kill_and_a_resume_keep_the_bits_of_a_scheduler(lab):
    _prepare(lab)
    keys = {**SAID, "steps": 100, "on-worker-loss": "wait"}
    want, _ = trained(lab, keys, 1, 1)
    cluster = lab.cluster(lab.job(keys), 1, 0, workers=2)
    lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
    scripts = [start_script(lab, "--slow", 0.005, file="torch_said_worker.py") for _ in range(2)]
    cluster.reaches(15)
    scripts[0].kill()
    scripts.append(start_script(lab, file="torch_said_worker.py"))
    for process in scripts[1:]:
        expect(process.ends(120) == 0, process.output()[-600:])
    expect(cluster.ends_well()["weights_sha256"] == want["weights_sha256"], "a kill has changed the weights")
    del lab.environment["PUSHPULL_JOIN"]
    out = lab.folder / "resumed"
    trained(lab, keys, 2, 3, out=out, stop_after=15)
    summary, _ = trained(lab, keys, 1, 2, out=out, resume="true")
    expect(summary["weights_sha256"] == want["weights_sha256"], "a resume has changed the weights")


def other_strategies_take_the_rate_of_each_push(lab):
    _prepare(lab)
    for strategy in STRATEGIES:
        run = run_of(lab, {"strategy": strategy, "steps": 60, "eval-every": 20}, 1, 2)
        rates = {line["learning_rate"] for line in base.metrics_of(run.out)}
        expect(0.00075 in rates and rates <= {0.003, 0.0015, 0.00075}, f"{strategy}: {rates}")


def rates_that_cannot_be_are_named(lab):
    _prepare(lab)
    run = run_of(lab, {}, 1, 1, "--rate", "nan", code=2)
    expect("the program says the learning rate nan: expected a finite number from 0" in run.output(), run.output()[-800:])
    run = run_of(lab, {}, 1, 1, "--rate", "group", code=2)
    expect("a job has one rate" in run.output(), run.output()[-800:])
    run = run_of(lab, {"lr-schedule": "constant"}, 1, 1, "--rate", "lambda", code=2)
    expect("take lr-schedule = external" in run.output(), run.output()[-800:])
    for keys, line in (({**SAID, "strategy": "allreduce:ring"}, "lr-schedule = external (job.ini"),
                       ({**SAID, "stages": 2}, "a rate from each stage"), ({**SAID, "warmup-steps": 3}, "says all rates"),
                       ({**MLP, "lr-schedule": "external"}, "model = external")):
        code, text = lab.call("pushpull", "run", "--job", lab.job(keys), "--worker", "true", "--out", lab.folder / "bad")
        expect(code == 2 and line.split(" (")[0] in text and text.count("\n") <= 2, f"{code}: {text}")


# ---- named sums ----

def heads_of(summary):
    return {head["name"]: head for head in summary["heads"]}


def metrics_of_named_sums_are_those_of_the_whole_test_split(lab):
    torch = _prepare(lab)
    keys = {"eval-every": 10}
    found = {}
    for servers, workers, words in ((1, 1, ("lambda",)), (2, 3, ("lambda",)), (1, 2, ("tasks",))):
        run = run_of(lab, keys, servers, workers, "--rate", *words)
        summary = summary_of(run.out)
        found[workers] = heads_of(summary)
        one = found[workers]
        expect(one["Right_share"]["value"] == summary["test_accuracy"] and one["Right_share"]["metric"] == "value", f"{one}")
        expect(abs(one["wrong"]["value"] - (1 - summary["test_accuracy"])) < 1e-12 and one["wrong"]["metric"] == "cost", f"{one}")
        expect(one["never"]["value"] is None, f"{one['never']}")
        lines = [line for line in base.metrics_of(run.out) if "test_step" in line]
        expect([line["test_step"] for line in lines] == [10, 20, 30], f"{lines}")
        expect(all("f1" in heads_of(line) for line in lines), f"{lines}")
        told = re.findall(r"FOUND \d (\{.*\})", run.output())
        expect(len(told) == workers and all(f"'f1': {one['f1']['value']}" in line for line in told), f"{told}")
    expect(found[1] == found[3] == found[2], f"{found}")
    import pushpull.torch as pp
    from torch_worker import data, network
    model = network("mlp").eval()
    model.load_state_dict(pp.read_checkpoint(run.out / "checkpoints"))
    x, y = data()[1].tensors
    with torch.no_grad():
        predicted = model(x).argmax(1)
    tp, fp, fn = (int((one & other).sum()) for one, other in
                  ((predicted == 0, y == 0), (predicted == 0, y != 0), (predicted != 0, y == 0)))
    expect(found[2]["f1"]["value"] == 2 * tp / (2 * tp + fp + fn), f"{found[2]['f1']}, {tp}, {fp}, {fn}")


def a_metric_of_named_sums_stops_a_run_and_chooses_the_best(lab):
    _prepare(lab)
    for measure, better in (("wrong/cost", min), ("f1/value", max)):
        run = run_of(lab, {"eval-every": 5, "stop-when": f"{measure}:2", "checkpoint-best": "true", "steps": 1000, "lr": 0.02}, 1, 2)
        summary = summary_of(run.out)
        name = measure.split("/")[0]
        values = [heads_of(line)[name]["value"] for line in base.metrics_of(run.out) if "test_step" in line]
        expect(summary["stopped_early"] and summary["best_evaluation"]["value"] == better(values), f"{measure}: {values}")
        expect(len(list((run.out / "checkpoints" / "best").glob("step-*"))) == 1, "no best checkpoint")


def compare_takes_a_formula_as_its_target(lab):
    _prepare(lab)

    def compared(*target):
        out = lab.folder / "compare"
        words = [word for key, value in {**SAID, "eval-every": 5, "steps": 60, "lr": 0.02}.items() for word in (f"--{key}", value)]
        code, text = lab.call("pushpull", "compare", "--strategies", "sync", "--workers", 1, "--seeds", 1, "--worker", saying(), *words,
                              "--out", out, *target, seconds=240)
        return code, text, out

    def tested(out):
        """Returns the time and the value of f1 at each evaluation of the run of sync."""
        return [(line["test_seconds"], heads_of(line)["f1"]["value"] or 0.0)
                for line in base.metrics_of(next((out / "runs").iterdir())) if "test_step" in line]

    code, text, out = compared("--target", "f1/value:1.1")
    expect(code == 0 and "target f1/value 1.1 never reached" in text, text[-1500:])
    best = max(value for _, value in tested(out))
    code, text, out = compared("--target", f"f1/value:{best!r}")
    expect(code == 0 and "seconds to f1/value" in text, text[-1500:])
    result = json.loads((out / "compare.json").read_text())
    expect((result["target"], result["target_measure"], result["metric"]) == (best, "f1/value", "accuracy"), text)
    want = next(seconds for seconds, value in tested(out) if value == best)
    expect(result["runs"][0]["seconds_to_target"] == want, f"{result['runs'][0]['seconds_to_target']}, want {want}: {tested(out)}")
    code, text, _ = compared("--target", "f1/cost:0.5")
    expect(code == 2 and "f1/value" in text, f"{code}: {text[-500:]}")


def metrics_of_named_sums_survive_the_loss_of_a_worker(lab):
    _prepare(lab)
    for strategy in ("sync", *STRATEGIES):
        keys = {"strategy": strategy, "eval-every": 5, "steps": 60, "on-worker-loss": "continue" if strategy != "sync" else "wait"}
        run = launch(lab, {**SAID, **keys}, 1, 2, saying("--slow", 0.002))
        lab.trains(run, 8)
        scripts = [pid for pid in base.living_below(run.pid) if b"torch_said_worker" in command_of(pid)]
        base.os.kill(max(scripts), base.signal.SIGKILL)
        expect(run.ends(120) == 0, f"{strategy}: {run.output()[-1500:]}")
        one = heads_of(summary_of(run.out))
        expect(one["Right_share"]["value"] is not None, f"{strategy}: {one}")


def command_of(pid):
    try:
        return (base.pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    base.main(globals())
