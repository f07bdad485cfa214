"""A DCGAN (Radford et al., arXiv 1511.06434) on the digits that ship with pushpull: two networks, each a job of its own.

    pushpull run --job docs/examples/generator.ini --job docs/examples/discriminator.ini --workers 2 \
        --worker 'python3 docs/examples/dcgan.py' --out out/dcgan
"""
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

import pushpull.torch as pp

NOISE = 16
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"


def images():
    """Returns the 1,438 training images of 8x8, from -1 to 1."""
    raw = bytearray((DIGITS / "train-images.idx3-ubyte").read_bytes())
    return torch.frombuffer(raw, dtype=torch.uint8, offset=16).reshape(-1, 1, 8, 8).float() / 127.5 - 1


def batch_norm(channels):
    return nn.BatchNorm2d(channels, track_running_stats=False)  # of the batch alone: each network runs in two tasks


def generator():
    return nn.Sequential(nn.ConvTranspose2d(NOISE, 64, 4), batch_norm(64), nn.ReLU(),
                         nn.ConvTranspose2d(64, 1, 4, stride=2, padding=1), nn.Tanh())


def discriminator():
    return nn.Sequential(nn.Conv2d(1, 32, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
                         nn.Conv2d(32, 64, 4, stride=2, padding=1), batch_norm(64), nn.LeakyReLU(0.2),
                         nn.Conv2d(64, 1, 2), nn.Flatten(0))


def main():
    torch.set_num_threads(1)
    job_g, job_d = pp.join(job="generator"), pp.join(job="discriminator")
    torch.manual_seed(job_g.seed)
    net_g, net_d = generator(), discriminator()
    data = images()
    loader_g, loader_d = job_g.loader(data), job_d.loader(data)  # of the first, only the size of a batch counts
    optimizer_g, optimizer_d = job_g.optimizer(net_g), job_d.optimizer(net_d)
    for _ in zip(job_d.epochs(), job_g.epochs()):
        for real, ones in zip(loader_d, loader_g):
            # both networks have the weights of this step; the noise is that of its micro-batch
            fake = net_g(torch.randn(len(ones), NOISE, 1, 1))
            out_real, out_fake = net_d(real), net_d(fake.detach())
            loss_d = (F.binary_cross_entropy_with_logits(out_real, torch.ones_like(out_real))
                      + F.binary_cross_entropy_with_logits(out_fake, torch.zeros_like(out_fake)))
            loss_d.backward()
            out = net_d(fake)
            loss_g = F.binary_cross_entropy_with_logits(out, torch.ones_like(out))
            loss_g.backward(inputs=list(net_g.parameters()))  # the discriminator's gradients are of no use
            optimizer_d.step(loss=loss_d)  # one after the other: a worker that dies has ended both batches, or neither
            optimizer_g.step(loss=loss_g)
    if job_g.rank == 0:
        with torch.no_grad():
            shades = ((net_g(torch.randn(4, NOISE, 1, 1))[:, 0] + 1) * 4.99).long()
        for rows in zip(*shades):
            print("  ".join("".join(" .:-=+*#%@"[shade] for shade in row) for row in rows), flush=True)


if __name__ == "__main__":
    main()
