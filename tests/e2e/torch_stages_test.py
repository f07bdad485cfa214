"""Tests jobs whose PyTorch scripts divide the model: docs/examples/pipeline.py as it stands, against itself undivided."""
import json
import os
import signal
import sys

import lab as base
import torch_workers_test as torch_workers
from lab import expect

EXAMPLES = torch_workers.ROOT / "docs" / "examples"
SCRIPT = torch_workers.script(file=EXAMPLES / "pipeline.py")


def launch(lab, servers, workers, worker=SCRIPT, **keys):
    torch_workers._prepare(lab)
    keys = {"heartbeat_timeout": lab.seconds(30), **keys}
    return lab.launch(EXAMPLES / "pipeline.ini", servers, workers, worker=worker, **keys)


def trained(lab, servers, workers, **keys):
    """Runs the example, which must succeed. Returns its summary."""
    run = launch(lab, servers, workers, **keys)
    code = run.ends(240)
    expect(code == 0, f"exit code {code}: {run.output()[-1500:]}")
    return base.summary_of(run.out)


def start(lab, cluster, rank):
    """Starts a script by hand, which has stage rank % stages."""
    torch_workers._prepare(lab)
    lab.environment.update(PUSHPULL_JOIN=cluster.address, PUSHPULL_RANK=str(rank))
    process = base.Process(lab, lab.name("script"), [sys.executable, EXAMPLES / "pipeline.py"])
    lab.processes.append(process)
    for name in ("PUSHPULL_JOIN", "PUSHPULL_RANK"):
        del lab.environment[name]
    return process


def groups_of_scripts_have_the_bits_of_an_undivided_one(lab):
    whole = trained(lab, 1, 1, stages=1, epochs=2)
    groups = trained(lab, 2, 4, epochs=2)
    expect(groups["weights_sha256"] == whole["weights_sha256"], "other bits")
    for key in ("heads", "samples", "data_digest", "data_order_sha256", "initial_weights_sha256"):
        expect(groups[key] == whole[key], f"{key}: {groups[key]}, {whole[key]}")
    # 4 layers in 3 stages, and one that owns few blocks
    for stages, keys in ((3, {"transport": "tcp"}), (4, {"clip_norm": 0.5})):
        want = trained(lab, 1, 1, stages=1, epochs=1, **keys)
        got = trained(lab, 2, stages, stages=stages, epochs=1, **keys)
        expect(got["weights_sha256"] == want["weights_sha256"], f"{stages} stages {keys}: other bits")


def each_strategy_counts_each_micro_batch(lab):
    for strategy in ("async", "local:4", "ssp:2", "buffered:2"):
        summary = trained(lab, 1, 4, strategy=strategy, epochs=2, clip_norm=1)
        expect(summary["samples"] == summary["steps"] * 64, f"{strategy}: {summary['samples']} samples")
    for strategy in ("async", "local:4"):
        want = trained(lab, 1, 1, strategy=strategy, epochs=1, stages=1)["weights_sha256"]
        got = trained(lab, 2, 2, strategy=strategy, epochs=1)["weights_sha256"]
        expect(got == want, f"{strategy}: one group has other bits than one worker")


def a_killed_script_of_a_group_is_replaced(lab):
    keys = {"epochs": 20, "eval_every": 40}
    want = trained(lab, 1, 4, **keys)["weights_sha256"]
    for stage in (0, 1):  # with stage 0 the store of the group is gone
        run = launch(lab, 1, 4, **keys)
        lab.trains(run, 100)
        kill(run, "worker", stage)
        expect(run.ends(240) == 0, run.output()[-1500:])
        expect(base.summary_of(run.out)["weights_sha256"] == want, f"the loss of stage {stage} has changed the weights")


def a_spare_takes_a_lost_stage(lab):
    want = trained(lab, 1, 2, epochs=20)["weights_sha256"]
    cluster = lab.cluster(EXAMPLES / "pipeline.ini", 1, 0, workers=2, epochs=20, heartbeat_timeout=4)
    scripts = [start(lab, cluster, rank) for rank in range(4)]  # two of them are spares
    cluster.reaches(60)
    members = json.loads((cluster.out / "members.json").read_text())["members"]
    busy = {m["pid"] for m in members if m["role"] == "worker" and m["group"] is not None}
    victim = next(process for process in scripts if process.pid in busy)
    victim.kill()
    for process in scripts:
        code = process.ends(120)
        expect(code == 0 or process is victim, f"{code}: {process.output()[-1500:]}")
    expect(cluster.ends_well()["weights_sha256"] == want, "a lost script has changed the weights")


def another_group_takes_the_work_of_an_incomplete_one(lab):
    want = trained(lab, 1, 2, epochs=20)["weights_sha256"]
    for strategy in ("sync", "async"):
        cluster = lab.cluster(EXAMPLES / "pipeline.ini", 1, 0, workers=4, epochs=20, strategy=strategy, heartbeat_timeout=4,
                              on_worker_loss="continue")
        scripts = [start(lab, cluster, rank) for rank in range(4)]
        cluster.reaches(60)
        scripts[3].kill()
        for process in scripts[:3]:  # the one whose group has ended waits for another
            expect(process.ends(120) == 0, process.output()[-1500:])
        summary = cluster.ends_well()
        expect(summary["samples"] == summary["steps"] * 64, f"{strategy}: {summary['samples']} samples")
        expect(strategy == "async" or summary["weights_sha256"] == want, "a lost script has changed the weights")


def kill(run, role, number):
    """Kills a worker with this stage, or the server with this rank."""
    members = json.loads((run.out / "members.json").read_text())["members"]
    key = "stage" if role == "worker" else "rank"
    os.kill(next(m["pid"] for m in members if m["role"] == role and m[key] == number), signal.SIGKILL)


def a_lost_server_begins_a_term_for_groups_too(lab):
    want = trained(lab, 2, 2, epochs=20)["weights_sha256"]
    run = launch(lab, 2, 2, epochs=20, checkpoint_every=50, heartbeat_timeout=4)
    lab.trains(run, 60)
    kill(run, "server", 1)
    expect(run.ends(240) == 0, run.output()[-1500:])
    expect(base.summary_of(run.out)["weights_sha256"] == want, "the loss of a server has changed the weights")


def a_run_goes_on_with_other_stages(lab):
    want = trained(lab, 1, 1, stages=1, epochs=3)["weights_sha256"]
    out = lab.folder / "parts"
    for stages, workers, keys in ((2, 4, {"stop_after": 20}), (1, 2, {"stop_after": 50, "resume": "true"}),
                                  (4, 4, {"resume": "true"})):
        got = trained(lab, 1, workers, stages=stages, epochs=3, out=out, **keys)
    expect(got["weights_sha256"] == want, "a resume with other stages has changed the weights")


def mistakes_are_one_line(lab):
    torch_workers._prepare(lab)
    text = (EXAMPLES / "pipeline.py").read_text().replace("__file__", repr(str(EXAMPLES / "pipeline.py")))
    attach = "stage=(job.stage, job.stages))"
    cases = {"stages": (attach, "stage=(0, 3))", "[attach] the script has 3 stages, and the job has stages = 2"),
             "whole": (", " + attach, ")\n    job._stage = None", "[stages] the script has no stage"),
             "names": ("model = part(job.stage, job.stages)", "model = nn.Sequential(*part(job.stage, job.stages))",
                       "has a tensor 0.0.weight, as stage 0 has"),
             "report": ("task.report()", "task.report(loss=1.0)", "which alone reports them: call task.report()"),
             "error": ("dist.send(out.detach(), stage + 1)", "raise RuntimeError('my own mistake')", "my own mistake"),
             "left": ("compute(task, model, group.stage, group.stages)",
                      "compute(task, model, group.stage, group.stages)\n                break",
                      "the loop over job.tasks() was left")}
    for name, (words, wrong, line) in cases.items():
        expect(words in text, f"{name}: no {words}")
        program = lab.folder / f"{name}.py"
        program.write_text(text.replace(words, wrong))
        run = launch(lab, 1, 2, torch_workers.script(file=program), epochs=1, heartbeat_timeout=2, on_worker_loss="abort")
        code = run.ends(60)
        expect(code != 0 and line in run.output(), f"{name}: exit code {code}: {run.output()[-1500:]}")


def a_missing_stage_is_named(lab):
    cluster = lab.cluster(EXAMPLES / "pipeline.ini", 1, 0, workers=2)
    scripts = [start(lab, cluster, 0), start(lab, cluster, 2)]  # both have stage 0
    cluster.servers[0].prints("joined as a spare")
    cluster.servers[0].prints("stage 1 lacks 1 worker")
    scripts.append(start(lab, cluster, 1))
    for process in scripts:
        expect(process.ends(120) == 0, process.output()[-800:])
    cluster.ends_well()


if __name__ == "__main__":
    base.main(globals())
