"""The models of ddp_train.py as workers of a pushpull job: torch_worker.py MODEL tasks|loop, with one of the two ways to write a
script. `pushpull run --worker` starts it."""
import os
import pathlib
import sys

os.environ["OMP_NUM_THREADS"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
import torch  # noqa: E402
from ddp_train import MODELS, loss_of  # noqa: E402

import pushpull.torch as pp  # noqa: E402

BATCHES = 4  # in memory, as those of ddp_train.py


class Samples(torch.utils.data.Dataset):
    """Random samples that are picked as a whole batch, so that reading them costs next to nothing on both sides."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]

    def __getitems__(self, indices):
        return self.inputs[indices], self.targets[indices]


def by_tasks(job, model, samples):
    job.attach(model, train=samples, collate_fn=lambda batch: batch, data_digest="random")
    for task in job.tasks():
        task.backward(loss_of(model, *task.batch))


def by_loop(job, model, samples):
    loader = job.loader(samples, collate_fn=lambda batch: batch, data_digest="random")
    optimizer = job.optimizer(model)
    for _ in job.epochs():
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            optimizer.step(loss=loss)


def main():
    torch.set_num_threads(1)
    make, _, samples = MODELS[sys.argv[1]]
    job = pp.join()
    torch.manual_seed(job.seed)
    model = make()
    {"tasks": by_tasks, "loop": by_loop}[sys.argv[2]](job, model, Samples(*samples(BATCHES * job.global_batch)))


if __name__ == "__main__":
    main()
