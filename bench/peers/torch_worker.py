"""The models of ddp_train.py as workers of a pushpull job: torch_worker.py MODEL. `pushpull run --worker` starts it."""
import os
import pathlib
import sys

os.environ["OMP_NUM_THREADS"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
import torch  # noqa: E402
from ddp_train import MODELS  # noqa: E402

import pushpull.torch as pp  # noqa: E402

BATCHES = 4  # in memory, as those of ddp_train.py


class Samples(torch.utils.data.Dataset):
    """Random samples that are picked as a whole batch, so that reading them costs next to nothing on both sides."""

    def __init__(self, batch, shape):
        self.images, self.labels = torch.randn(BATCHES * batch, *shape), torch.randint(0, 10, (BATCHES * batch,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def __getitems__(self, indices):
        return self.images[indices], self.labels[indices]


def main():
    torch.set_num_threads(1)
    make, _, shape = MODELS[sys.argv[1]]
    job = pp.join()
    torch.manual_seed(job.seed)
    model = make()
    job.attach(model, train=Samples(job.global_batch, shape), collate_fn=lambda batch: batch, data_digest="random")
    for task in job.tasks():
        images, labels = task.batch
        task.backward(torch.nn.functional.cross_entropy(model(images), labels))


if __name__ == "__main__":
    main()
