"""Training with PyTorch's DistributedDataParallel on Gloo, one thread per process, plain SGD, data in memory.
  ddp_train.py ddp|alone MODEL PROCESSES SECONDS
Prints samples per second of all processes together. `alone` runs the same processes without an exchange: the upper
limit, at which an exchange costs nothing. Three warm-up steps are not timed."""
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402

from gloo_exchange import free_port  # noqa: E402

WARM_UP_STEPS = 3


def mlp(inputs, width):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, 10))


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.MaxPool2d(2)]


def convnet():
    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def many():
    """100 layers of 72 weights: 200 small tensors."""
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(99)), nn.Linear(8, 10))


class Gpt(nn.Module):
    """As nanoGPT's, with 4 layers of 128 on 64 characters of 65."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, 128), nn.Embedding(64, 128)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
                                    for _ in range(4))
        self.head = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 65))
        self.register_buffer("earlier", nn.Transformer.generate_square_subsequent_mask(64), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.earlier, is_causal=True)
        return self.head(x)


def labelled(shape):
    return lambda count: (torch.randn(count, *shape), torch.randint(0, 10, (count,)))


def texts(count):
    text = torch.randint(0, 65, (count, 65))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


# model, samples of a micro-batch, and a function that makes so many samples: the same as JOBS of speed_measure.py, where it has them
MODELS = {"mlp": (lambda: mlp(784, 1024), 128, labelled((784,))),
          "convnet": (convnet, 100, labelled((1, 28, 28))),
          "mlp-wide": (lambda: mlp(4096, 4096), 64, labelled((4096,))),
          "gpt": (Gpt, 12, texts),
          "many": (many, 8, labelled((8,)))}


def loss_of(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def process(rank, processes, port, kind, name, seconds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=processes)
    torch.manual_seed(0)
    make, batch, samples = MODELS[name]
    model = make()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = samples(4 * batch)
    order = torch.randperm(4 * batch).reshape(4, batch).tolist()

    def step(index):
        drawn = order[index % 4]
        optimizer.zero_grad()
        loss_of(model, inputs[drawn], targets[drawn]).backward()
        optimizer.step()

    def timed(steps):
        dist.barrier()
        began = time.perf_counter()
        for index in range(steps):
            step(index)
        dist.barrier()
        return time.perf_counter() - began

    timed(WARM_UP_STEPS)
    one = torch.tensor([timed(2) / 2])
    dist.all_reduce(one)  # all ranks run the same number of steps
    steps = max(4, int(seconds * processes / float(one)))
    took = timed(steps)
    if rank == 0:
        print(steps * batch * processes / took, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(process, args=(int(sys.argv[3]), free_port(), sys.argv[1], sys.argv[2],
                            float(sys.argv[4])), nprocs=int(sys.argv[3]))
