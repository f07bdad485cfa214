"""Tests stages of a model on a GPU, which it needs: the hash of the undivided model there."""
import lab as base
from lab import MLP, expect
from pipeline_test import keys_of

DEVICE = 9


def expect_same_bits_in_stages(lab, keys):
    """Compares two stages of one worker, and of two, with one model; all on cuda:0."""
    job = lab.job(keys)
    on_device = ("--device", "cuda:0")
    whole = lab.cluster(job, 1, 1, worker_words=on_device).ends_well()
    staged = lab.cluster(job, 1, 1, worker_words=(*on_device, "--stages", 2)).ends_well()
    group = lab.cluster(job, 1, 2, stages=2, worker_words=on_device).ends_well()
    for name, run in (("--stages 2", staged), ("stages = 2", group)):
        for key in ("weights_sha256", "test_loss"):
            expect(run[key] == whole[key], f"{keys['model']}, {name}: {key} {run[key]}, undivided {whole[key]}")


def stages_on_a_gpu_have_the_bits_of_the_undivided_model(lab):
    code, text = lab.call("pushpull-worker", "--join", "tcp://127.0.0.1:1", "--join-timeout", 1, "--device", "cuda:0")
    if code == DEVICE:
        raise base.Skipped(text.strip())
    for keys in (MLP, {**MLP, "model": "convnet", "lr": 0.05}, keys_of(lab.folder)):
        expect_same_bits_in_stages(lab, keys)


if __name__ == "__main__":
    base.main(globals())
