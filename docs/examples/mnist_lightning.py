"""A network on MNIST's images in Lightning's Trainer. The lines that end with `# pushpull` are new.

    pushpull run --job docs/examples/mnist_lightning.ini --worker 'python3 docs/examples/mnist_lightning.py FOLDER OUT'

FOLDER is the root of torchvision.datasets.MNIST. OUT gets the checkpoints that Lightning writes.
"""
import sys

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from pushpull.lightning import PushPullStrategy  # pushpull


class LitNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_accuracy", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.001)


def evaluate(module, batch):  # pushpull
    x, y = batch  # pushpull
    out = module(x)  # pushpull
    return {"loss": F.cross_entropy(out, y), "correct": (out.argmax(1) == y).sum()}  # pushpull


def main():
    folder, out = sys.argv[1:]
    torch.set_num_threads(1)
    L.seed_everything(1)
    train = datasets.MNIST(folder, train=True, transform=transforms.ToTensor())
    test = datasets.MNIST(folder, train=False, transform=transforms.ToTensor())
    best = ModelCheckpoint(out, monitor="val_accuracy", mode="max")
    trainer = L.Trainer(
        strategy=PushPullStrategy(evaluate),  # pushpull
        max_epochs=5, callbacks=[best], logger=False, accelerator="cpu", enable_progress_bar=False)
    trainer.fit(LitNet(), DataLoader(train, batch_size=25, shuffle=True), DataLoader(test, batch_size=25))
    print(f"val_accuracy {trainer.callback_metrics['val_accuracy']:.4f}, best {best.best_model_score:.4f}")


if __name__ == "__main__":
    main()
