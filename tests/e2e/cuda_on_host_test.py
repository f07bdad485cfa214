"""Tests whole jobs in which workers and servers run the product's CUDA code on the processor
(tests/cuda_on_host). Processes share device memory; no GPU is needed."""
import json
import shutil

import lab as base
from gpu_stages_test import expect_same_bits_in_stages
from lab import MLP, expect

ON_GPU = {"device": "cuda:0", "server-device": "cuda:0"}
STEPS = {**MLP, "steps": 12, "slice-bytes": 4096, "checkpoint-every": 4}


def train(lab, keys, servers, workers, seed):
    lab.environment["CUDA_ON_HOST_SEED"] = str(seed)
    run = lab.run(lab.job(keys), servers, workers, **ON_GPU)
    expect(run.code == 0, f"exit code {run.code}: {run.text[-800:]}")
    return run


def bits_do_not_depend_on_the_number_of_processes_or_their_order(lab):
    """All runs start from one checkpoint, which holds the algorithms that its worker chose by their speed."""
    lab.on_host_cuda()
    begin = lab.folder / "begin"
    timed = {**STEPS, "algorithms": "timed"}
    train(lab, {**timed, "checkpoint-dir": begin, "stop-after": 4}, 1, 1, 0)
    summaries = []
    for seed, (servers, workers) in enumerate([(1, 1), (1, 2), (2, 2), (1, 4)]):
        folder = lab.folder / f"resumed-{seed}"
        shutil.copytree(begin, folder)
        run = train(lab, {**timed, "checkpoint-dir": folder, "resume": "true"}, servers, workers, seed)
        expect(run.text.count("shared device memory with") == workers, f"not all share: {run.text[-800:]}")
        summaries.append(run.summary())
        for key in ("weights_sha256", "test_correct", "test_loss"):
            got, want = summaries[-1][key], summaries[0][key]
            expect(got == want, f"{servers} servers, {workers} workers: {key} {got}, one of each: {want}")


def runs_choose_the_same_algorithms_unless_they_time_them(lab):
    """No run knows of the others: each has its own checkpoints."""
    lab.on_host_cuda()
    found = []
    for seed, workers in enumerate([1, 2]):
        folder = lab.folder / f"run-{seed}"
        run = train(lab, {**STEPS, "checkpoint-dir": folder}, 1, workers, seed)
        choices = json.loads((max(folder.glob("step-*")) / "state.json").read_text())["choices"]
        expect("matmul/" in choices, f"no choice of a product: {choices}")
        found.append((choices, run.summary()["weights_sha256"]))
    expect(found[0] == found[1], f"two runs of a job: {found}")


def stages_have_the_bits_of_the_undivided_model(lab):
    lab.on_host_cuda()
    for keys in (STEPS, {**STEPS, "model": "convnet", "lr": 0.05, "steps": 4}):
        expect_same_bits_in_stages(lab, keys)


if __name__ == "__main__":
    base.main(globals())
