"""Tests whole jobs whose workers are another program, with a model and data of its own: linear_regression, in C."""
import lab as base
from lab import MLP, expect

PROGRAM = "../tests/linear_regression"
LINE = {"model": "external", "global-batch": 64, "micro-batch": 8, "optimizer": "momentum", "lr": 0.05, "steps": 150,
        "seed": 7, "eval-every": 50}
USAGE = 2


def train(lab, keys, servers, workers):
    return lab.cluster(lab.job({**LINE, **keys}), servers, workers, worker_program=PROGRAM).ends_well()


def a_program_in_c_gives_the_same_bits_on_any_cluster(lab):
    summaries = [train(lab, {}, servers, workers) for servers, workers in ((1, 1), (1, 2), (2, 4))]
    hashes = {summary["weights_sha256"] for summary in summaries}
    expect(len(hashes) == 1, f"hashes differ: {hashes}")
    for summary in summaries:
        expect(summary["test_loss"] < 1e-6, f"y = 3 a - 2 b + 1 was not found: test_loss {summary['test_loss']}")
        expect(summary["test_total"] == 100, f"{summary['test_total']} of 100 test samples")
    other = train(lab, {"seed": 8}, 1, 1)["weights_sha256"]
    expect(other not in hashes, "another seed gives the same weights")
    tree = train(lab, {"strategy": "allreduce:tree"}, 1, 2)["weights_sha256"]
    expect(tree in hashes, "allreduce:tree has other bits than sync")


def a_program_in_c_trains_under_other_strategies(lab):
    for strategy in ("async", "ssp:2", "local:4", "backup:1"):
        summary = train(lab, {"strategy": strategy, "lr": 0.02, "optimizer": "sgd"}, 1, 2)
        expect(summary["test_loss"] < 0.1, f"{strategy}: test_loss {summary['test_loss']}")


def a_program_that_leaves_in_the_middle_is_replaced(lab):
    want = train(lab, {}, 1, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job({**LINE, "on-worker-loss": "wait"}), 1, 1, workers=2, worker_program=PROGRAM)
    leaving = cluster.add_worker("--leave-at", 40, program=PROGRAM)
    expect(leaving.ends() == 0, f"ended with {leaving.returncode}: {leaving.output()}")
    cluster.add_worker(program=PROGRAM)
    got = cluster.ends_well(but=[leaving])["weights_sha256"]
    expect(got == want, f"hash {got}, without the change of workers {want}")


def a_forked_process_is_refused(lab):
    lab.cluster(lab.job({**LINE, "steps": 20}), 1, 1, worker_program=PROGRAM, worker_words=("--fork",)).ends_well()


def a_job_and_a_program_that_do_not_fit_say_so(lab):
    ours = lab.cluster(lab.job(LINE), 1, 0, workers=1).add_worker()
    expect(ours.ends() == USAGE, f"ended with {ours.returncode}: {ours.output()}")
    expect("model = external" in ours.output(), ours.output())
    theirs = lab.cluster(lab.job(MLP), 1, 0, workers=1).add_worker(program=PROGRAM)
    expect(theirs.ends() == USAGE, f"ended with {theirs.returncode}: {theirs.output()}")
    expect("needs model = external" in theirs.output(), theirs.output())


if __name__ == "__main__":
    base.main(globals())
