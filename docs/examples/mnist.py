"""A convolutional network on MNIST's images, trained by any number of workers.

    pushpull run --job docs/examples/mnist.ini --workers 2 --worker 'python3 docs/examples/mnist.py FOLDER'

FOLDER has MNIST's four files as they are distributed: train-images-idx3-ubyte.gz and so on, or the same without .gz.
"""
import gzip
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

import pushpull.torch as pp


def read_idx(folder, name):
    """Returns the array of an IDX file (http://yann.lecun.com/exdb/mnist) as a tensor of bytes."""
    plain = pathlib.Path(folder) / name
    raw = plain.read_bytes() if plain.exists() else gzip.decompress(plain.with_name(name + ".gz").read_bytes())
    sizes = [int.from_bytes(raw[4 * i:4 * i + 4], "big") for i in range(1, raw[3] + 1)]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(sizes)


class Images(torch.utils.data.Dataset):
    def __init__(self, folder, split):
        self.images = read_idx(folder, f"{split}-images-idx3-ubyte")
        self.labels = read_idx(folder, f"{split}-labels-idx1-ubyte").long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index, None].float() / 255, self.labels[index]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.block(1, 16)
        self.layer2 = self.block(16, 32)
        self.fc = nn.Linear(32 * 7 * 7, 10)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
                             nn.MaxPool2d(2))

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)  # of each worker
    job = pp.join()
    torch.manual_seed(job.seed)
    model = ConvNet()
    job.attach(model, train=Images(folder, "train"), test=Images(folder, "t10k"))
    for task in job.tasks():
        x, y = task.batch
        out = model(x)
        loss = F.cross_entropy(out, y)
        if task.training:
            task.backward(loss)
        else:
            task.report(loss=loss, correct=(out.argmax(1) == y).sum())


if __name__ == "__main__":
    main()
