"""Tests models in stages: the bits of the undivided model, what the summary and `pushpull plan` say, and wrong numbers of stages."""
import json
import os
import signal

import lab as base
from lab import expect, first
from text_test import keys_in

USAGE = 2


def keys_of(folder, **more):
    return {**keys_in(folder), "layers": 3, "tie-embeddings": "true", **more}


@first("P1: a model in stages")
def stages_have_the_bits_of_the_undivided_model(lab):
    job = lab.job(keys_of(lab.folder))
    whole = lab.train(job, 1, 2)
    expect(whole["stages"] == [], whole["stages"])
    for servers, stages, keys in ((1, (2, 3), {}), (2, (4,), {"schedule": "gpipe", "balance": "parameters"})):
        cluster = lab.cluster(job, servers, 0, workers=len(stages), **keys)
        for count in stages:  # of each worker
            cluster.add_worker("--stages", count)
        run = cluster.ends_well()
        expect(run["weights_sha256"] == whole["weights_sha256"], f"{stages}: other bits")
        expect(run["heads"] == whole["heads"], f"{stages}: {run['heads']}, {whole['heads']}")
        found = run["stages"]
        expect(len(found) == max(stages), found)
        expect(all(s["busy_seconds"] > 0 and 0 <= s["bubble"] < 1 and s["layers"] > 0 for s in found), found)
        expect(sum(s["bytes_in"] for s in found) == sum(s["bytes_out"] for s in found) > 0, found)
        slots = [s["slots_max"] for s in found]
        expect(slots == sorted(slots, reverse=True) and slots[0] > 1, slots)


def every_strategy_trains_in_stages(lab):
    job = lab.job(keys_of(lab.folder))
    for strategy in ("async", "ssp:2", "local:4", "backup:1", "buffered:2", "allreduce:tree"):
        keys = {"strategy": strategy}
        cluster = lab.cluster(job, 1, 0, workers=2, **keys)
        for _ in range(2):
            cluster.add_worker("--stages", 2)
        run = cluster.ends_well()
        expect(len(run["stages"]) == 2, f"{strategy}: {run['stages']}")


def a_killed_worker_in_stages_is_replaced(lab):
    keys = keys_of(lab.folder, steps=300, **{"on-worker-loss": "wait", "heartbeat-timeout": 2})
    job = lab.job(keys)
    calm = lab.train(job, 1, 2)["weights_sha256"]
    cluster = lab.cluster(job, 1, 0, workers=2)
    victim = cluster.add_worker("--stages", 2)
    cluster.add_worker("--stages", 3)
    cluster.reaches(5)
    os.kill(victim.pid, signal.SIGKILL)
    cluster.add_worker()
    expect(cluster.ends_well(but=(victim,))["weights_sha256"] == calm, "the weights differ")


def the_plan_says_what_stages_have(lab):
    job = lab.job(keys_of(lab.folder))
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 3, "--json")
    expect(code == 0, text)
    stages = json.loads(text)["stages"]
    whole = json.loads(lab.call("pushpull", "models", "--job", job, "--json")[1])
    expect(len(stages) == 3 and sum(s["parameters"] for s in stages) == whole["parameters"], (stages, whole["parameters"]))
    expect([s["slots"] for s in stages] == [3, 2, 1] and stages[2]["bytes_out"] == 0 < stages[0]["bytes_out"], stages)
    code, text = lab.call("pushpull", "plan", "--job", job, "--stages", 2)
    expect(code == 0 and "parameters" in text and len(text.splitlines()) == 3, text)


def numbers_that_do_not_fit_are_refused_in_one_line(lab):
    job = lab.job(keys_of(lab.folder))
    for words, part in ((("--stages", 9), "this model has 5 pieces"), (("--stages", 0), "from 1 on"), (("--stages", 2, "--balance", "1,1"), "the sum 5"),
                        (("--balance", "fast"), "balance")):
        code, text = lab.call("pushpull", "plan", "--job", job, *words)
        expect(code == USAGE and part in text and len(text.splitlines()) == 1, (words, code, text))
    cluster = lab.cluster(job, 1, 0, workers=1)
    wrong = cluster.add_worker("--stages", 9)
    expect(wrong.ends(20) == USAGE and "this model has 5 pieces" in wrong.output(), wrong.output())
    odd = cluster.add_worker("--stages", "two")
    expect(odd.ends(20) == USAGE and "--stages two: must be a whole number from 1 on" in odd.output(), odd.output())
    cluster.add_worker("--stages", 5)  # more than cores, perhaps: stages with one thread each may take turns
    cluster.ends_well(but=(wrong, odd))


if __name__ == "__main__":
    base.main(globals())
