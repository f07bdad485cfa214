"""Tests whole jobs whose workers are another program, with a model and data of its own: linear_regression, in C."""
import hashlib
import json
import os
import pathlib
import re
import struct

import lab as base
from lab import MLP, Skipped, expect, first

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

PROGRAM = "../tests/linear_regression"
LINE = {"model": "external", "global-batch": 64, "micro-batch": 8, "optimizer": "momentum", "lr": 0.05, "steps": 150,
        "seed": 7, "eval-every": 50}
FAILED, USAGE, NOT_FINITE = 1, 2, 7
MISTAKE = 'my own mistake, "at line 7"'


def train(lab, keys, servers, workers, *words):
    return start(lab, keys, servers, workers, *words).ends_well()


def start(lab, keys, servers, started, *words, workers=None):
    return lab.cluster(lab.job({**LINE, **keys}), servers, started, workers=workers, worker_program=PROGRAM,
                       worker_words=words)


def one_hash(summaries):
    hashes = {summary["weights_sha256"] for summary in summaries}
    expect(len(hashes) == 1, f"hashes differ: {hashes}")
    return hashes.pop()


def library_of(lab, name="libpushpull.so"):
    """Returns libpushpull.so. A build with sanitizers has none: its programs contain the worker, and end as others do."""
    library = (lab.bin_dir / "../lib" / name).resolve()
    if not library.exists():
        raise Skipped(f"this build has no {name}")
    return library


def tally_of(worker):
    """Returns the numbers that the program prints at its end."""
    found = re.search(r"tasks (\d+), same weights (\d+), announced (\d+), of these tasks (\d+)", worker.output())
    expect(found, f"no tally: {worker.output()[-600:]}")
    return dict(zip(("tasks", "same", "announced", "known"), map(int, found.groups())))


def weights_of(summary_folder):
    """Returns the weights of the newest checkpoint, by tensor."""
    raw = max(summary_folder.rglob("model.safetensors")).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    out = {}
    for name, entry in head.items():
        if name != "__metadata__":
            lo, hi = (8 + size + place for place in entry["data_offsets"])
            out[name] = struct.unpack(f"<{(hi - lo) // 4}f", raw[lo:hi])
    return out


@first("P1: a worker in C")
def a_program_in_c_gives_the_same_bits_on_any_cluster(lab):
    summaries = [train(lab, {}, servers, workers) for servers, workers in ((1, 1), (1, 2), (2, 4))]
    want = one_hash(summaries)
    for summary in summaries:
        expect(summary["test_loss"] < 1e-6, f"y = 3 a - 2 b + 1 was not found: test_loss {summary['test_loss']}")
        expect(summary["test_total"] == 100, f"{summary['test_total']} of 100 test samples")
    other = train(lab, {"seed": 8}, 1, 1)["weights_sha256"]
    expect(other != want, "another seed gives the same weights")
    tree = train(lab, {"strategy": "allreduce:tree"}, 1, 2)["weights_sha256"]
    expect(tree == want, "allreduce:tree has other bits than sync")


def heads_and_statistics_have_the_same_bits_on_any_cluster(lab):
    words = ("--statistic", "--near")
    summaries = [train(lab, {}, servers, workers, *words) for servers, workers in ((1, 1), (2, 4))]
    one_hash(summaries)
    line, near = summaries[0]["heads"]
    expect((line["name"], line["metric"]) == ("line", "mean squared error"), f"{line}")
    expect(line["value"] == summaries[0]["test_loss"], f"{line}")
    expect((near["name"], near["metric"], near["value"], near["counted"]) == ("near", "accuracy", 1.0, 100), f"{near}")


def a_statistic_is_averaged_and_stays_where_it_has_no_value(lab):
    cluster = start(lab, {"shuffle": "false", "steps": 5}, 1, 2, "--statistic")
    cluster.ends_well()

    def feature(sample):
        bits = sample * 2654435761 & 0xffffffff
        bits ^= bits >> 15
        bits = bits * 2246822519 & 0xffffffff
        bits ^= bits >> 13
        return (bits & 0xffff) / 32768 - 1

    mean = 0.0
    for step in range(5):
        batches = [range(64 * step + 8 * m, 64 * step + 8 * m + 8) for m in range(8)]
        values = [mean] + [sum(map(feature, batch)) / 8 for batch in batches[1:]]
        mean = 0.75 * mean + 0.25 * sum(values) / 8
    got = weights_of(cluster.out)["mean"][0]
    expect(abs(got - mean) < 1e-6, f"the statistic is {got}, by hand {mean}")


def a_tensor_may_have_a_rate_of_its_own(lab):
    cluster = start(lab, {}, 2, 2, "--lr-of-bias", 0)
    cluster.ends_well()
    weights = weights_of(cluster.out)
    expect(weights["bias"] == (0.0,), f"a bias with lr 0 has moved to {weights['bias']}")
    expect(abs(weights["weight"][0] - 3) < 0.3, f"the weights have not learned: {weights['weight']}")
    one_hash([train(lab, {}, 1, 1, "--lr-of-bias", 0.02), train(lab, {}, 2, 4, "--lr-of-bias", 0.02)])


def a_job_begins_with_the_weights_of_the_worker_with_the_lowest_rank(lab):
    own = lambda value: struct.pack("<4f", value, value, -value, value)
    words = ("--statistic", "--own-weights")
    summaries = [train(lab, keys, servers, workers, *words, 0.25)
                 for servers, workers, keys in ((1, 1, {}), (2, 4, {}), (1, 2, {"strategy": "allreduce:tree"}))]
    mixed = lab.cluster(lab.job(LINE), 1, 0, workers=2)
    for rank, value in enumerate((0.25, 0.5)):
        mixed.add_worker(*words, value, program=PROGRAM)
        mixed.servers[0].prints(f"joined, {rank + 1} of 2")
    summaries.append(mixed.ends_well())
    want = one_hash(summaries)
    for summary in summaries:
        expect(summary["initial_weights_sha256"] == hashlib.sha256(own(0.25)).hexdigest(),
               f"initial weights {summary['initial_weights_sha256']}")
    drawn = train(lab, {}, 1, 1, "--statistic")["weights_sha256"]
    expect(drawn != want, "the model's own weights change nothing")


def a_model_without_heads_is_not_evaluated(lab):
    summary = train(lab, {}, 1, 2, "--no-head")
    expect(summary["heads"] == [] and summary["test_loss"] is None, f"{summary['heads']} {summary['test_loss']}")


def each_strategy_trains_and_its_announcements_are_true(lab):
    """The program fails if a task is marked whose weights differ from those of the task before."""
    for strategy, transport in (("sync", "auto"), ("sync", "tcp"), ("async", "auto"), ("async", "tcp"), ("buffered:2", "auto"), ("ssp:2", "tcp"),
                                ("backup:1", "auto"), ("local:4", "tcp"), ("allreduce:tree", "auto"), ("allreduce:ring", "tcp")):
        keys = {"strategy": strategy, "lr": 0.02, "optimizer": "sgd", "transport": transport}
        cluster = start(lab, keys, 2, 2, "--statistic")
        summary = cluster.ends_well()
        expect(summary["test_loss"] < 0.1, f"{strategy}: test_loss {summary['test_loss']}")
        for worker in cluster.workers:
            tally = tally_of(worker)
            where = f"{strategy} over {transport}: {tally}"
            expect(tally["same"] >= tally["tasks"] / 4, f"few tasks keep their weights: {where}")
            expect(tally["known"] >= 0.7 * tally["tasks"], f"few tasks were announced: {where}")
            expect(tally["announced"] <= 1.3 * tally["tasks"] + 16, f"many announced tasks never come: {where}")


def the_others_take_the_work_of_a_program_that_frees_its_session(lab):
    want = train(lab, {}, 1, 2)["weights_sha256"]
    for policy, when in (("wait", "--free-in"), ("continue", "--free-after"), ("abort", "--free-after")):
        cluster = start(lab, {"on-worker-loss": policy}, 1, 1, workers=2)
        leaving = cluster.add_worker(when, 40, program=PROGRAM)
        expect(leaving.ends(10) == 0, f"ended with {leaving.returncode}: {leaving.output()}")
        cluster.servers[0].prints("its program has ended; the others go on")
        got = cluster.ends_well(but=[leaving])["weights_sha256"]
        expect(got == want, f"{policy}, {when}: hash {got}, without the change of workers {want}")


def the_job_stops_when_the_last_program_frees_its_session(lab):
    for strategy, stops in (("sync", True), ("local:4", True), ("allreduce:ring", False)):
        cluster = start(lab, {"strategy": strategy}, 1, 1, "--free-after", 100)
        code = cluster.servers[0].ends()
        expect(code == (75 if stops else 5), f"{strategy}: ended with {code}: {cluster.servers[0].output()}")
        expect(not stops or base.summary_of(cluster.out)["stopped_by"] == "the end of the last worker's program", strategy)


def a_program_frees_its_session_though_no_server_answers(lab):
    cluster = start(lab, {"eval-every": 20}, 1, 1, "--hang-in", 40, "--free-in", 40)
    cluster.reaches(40)
    with cluster.servers[0].stopped():
        leaving = cluster.workers[0]
        expect(leaving.ends(20) == 0, f"ended with {leaving.returncode}: {leaving.output()}")


@first("P6: a worker in C that fails")
def a_program_that_fails_is_named_with_its_own_words(lab):
    cluster = start(lab, {}, 1, 1, "--fail-in", 40)
    for process in cluster.all():
        expect(process.ends() == FAILED, f"ended with {process.returncode}: {process.output()}")
        expect(MISTAKE in process.output(), process.output())


def a_program_that_fails_may_be_replaced(lab):
    cluster = start(lab, {"on-worker-loss": "wait"}, 1, 1, workers=2)
    failing = cluster.add_worker("--fail-in", 40, program=PROGRAM)
    expect(failing.ends() == FAILED, f"ended with {failing.returncode}: {failing.output()}")
    cluster.servers[0].prints(MISTAKE)
    cluster.add_worker(program=PROGRAM)
    one_hash([cluster.ends_well(but=[failing]), train(lab, {}, 1, 1)])


def a_task_that_hangs_is_named(lab):
    cluster = start(lab, {"task-timeout": 0.5}, 1, 1, "--hang-in", 40)
    for process in cluster.all():
        expect(process.ends() == FAILED, f"ended with {process.returncode}: {process.output()}")
        expect("[task-timeout] the program has not ended the task of step 40, micro-batch 0 for 0.5 s "
               "(task-timeout = 0.5)" in process.output(), process.output())


def a_process_may_end_with_an_open_session(lab):
    """By a return from main in the middle of a task, and by exit() in another thread: no crash, no hang."""
    library_of(lab)
    cluster = start(lab, {"steps": 3000, "on-worker-loss": "wait"}, 1, 1, workers=2)
    ended = []
    for step in range(40, 2000, 500):
        ended.append(cluster.add_worker(("--return-in", "--exit-in")[len(ended) % 2], step, program=PROGRAM))
        expect(ended[-1].ends(20) == 3, f"ended with {ended[-1].returncode}: {ended[-1].output()}")
    cluster.add_worker(program=PROGRAM)
    cluster.ends_well(but=ended)


def a_forked_process_is_refused(lab):
    library_of(lab)
    train(lab, {"steps": 20}, 1, 1, "--fork")


def a_program_lives_on_though_nothing_reads_its_log(lab):
    def break_standard_error():
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        os.close(reader)
        base.die_with_parent()
    cluster = start(lab, {}, 1, 1, workers=2)
    cluster.workers.append(lab.start(PROGRAM, "--join", cluster.address, preexec_fn=break_standard_error))
    cluster.ends_well()


def a_job_and_a_program_that_do_not_fit_say_so(lab):
    ours = lab.cluster(lab.job(LINE), 1, 0, workers=1).add_worker()
    expect(ours.ends() == USAGE, f"ended with {ours.returncode}: {ours.output()}")
    expect("model = external" in ours.output(), ours.output())
    theirs = lab.cluster(lab.job(MLP), 1, 0, workers=1).add_worker(program=PROGRAM)
    expect(theirs.ends() == USAGE, f"ended with {theirs.returncode}: {theirs.output()}")
    expect("needs model = external" in theirs.output(), theirs.output())


def the_example_of_the_manual_trains(lab):
    library = library_of(lab)
    page = (ROOT / "docs/c-api.md").read_text()
    program, keys = (re.search(f"^```{kind}\n(.*?)^```", page, re.M | re.S)[1] for kind in ("c", "ini"))
    (lab.folder / "line.c").write_text(program)
    (lab.folder / "line.ini").write_text(keys)
    code, text = lab.call("/usr/bin/cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "line.c", "-o", "line",
                          f"-I{ROOT}/client", library, f"-Wl,-rpath,{library.parent}")
    expect(code == 0, text)
    cluster = lab.cluster(lab.folder / "line.ini", 1, 0, workers=2)
    lab.environment["PUSHPULL_JOIN"] = cluster.address
    cluster.workers = [lab.start(lab.folder / "line") for _ in range(2)]
    summary = cluster.ends_well()
    line = weights_of(cluster.out)["line"]
    expect(abs(line[0] - 3) < 1e-3 and abs(line[1] - 2) < 1e-3, f"y = {line[0]} x + {line[1]}")
    expect(summary["test_total"] == 200, f"{summary['test_total']} of 200 test samples")


def a_mistake_is_one_line_that_names_it(lab):
    cluster = start(lab, {}, 1, 1, workers=2)
    for words, named in ((("--statistic",), "the job's model has 2 tensors, this worker's has 3"),
                         (("--near",), "the job's model has 1 heads, this worker's has 2"),
                         (("--lr-of-bias", 0.1), "with lr times 2"), (("--lr-of-bias", 0), "with lr times 0"),
                         (("--own-weights", "inf"), "initial weights of bias are not finite")):
        other = cluster.add_worker(*words, program=PROGRAM)
        expect(other.ends() != 0 and named in other.output(), f"{words}: {other.returncode}: {other.output()}")
    bad = start(lab, {}, 1, 1, "--nan-in", 40).workers[0]
    expect(bad.ends() == NOT_FINITE, f"ended with {bad.returncode}: {bad.output()}")
    expect("at step 40, micro-batch 0 is nan" in bad.output(), bad.output())


if __name__ == "__main__":
    base.main(globals())
