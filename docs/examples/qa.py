"""A small transformer that answers questions: it finds the first and the last token of the answer. On invented data.

    pushpull run --job docs/examples/qa.ini --workers 2 --worker 'python3 docs/examples/qa.py'

Each sample is a question (two tokens that mark the answer's begin and end) and a text in which the
two marks occur. The heads `start` and `end` have losses and results of their own.
"""
import torch
import torch.nn.functional as F
from torch import nn

import pushpull.torch as pp

WORDS, MARKS, LENGTH, WIDTH = 100, 20, 32, 64


class Questions(torch.utils.data.Dataset):
    """Sample i is a function of the split and i."""

    def __init__(self, count, first):
        self.count, self.first = count, first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        g = torch.Generator().manual_seed(self.first + index)
        marks = torch.randperm(MARKS, generator=g)[:2]
        places = torch.randperm(LENGTH - 2, generator=g)[:2].sort().values + 2
        tokens = torch.randint(MARKS, WORDS, (LENGTH,), generator=g)
        tokens[:2] = marks
        tokens[places] = marks
        return {"tokens": tokens, "start": places[0], "end": places[1]}


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0.1, activation="gelu",
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.outputs = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        """tokens [N, LENGTH] -> scores of each place as the start and as the end of the answer, [N, LENGTH] each."""
        return self.outputs(self.encoder(self.words(tokens) + self.places)).unbind(-1)


def main():
    torch.set_num_threads(1)  # of each worker
    job = pp.join()
    torch.manual_seed(job.seed)
    model = Finder()
    job.attach(model, train=Questions(8000, 0), test=Questions(500, 1_000_000),
               metric={"start": "accuracy", "end": "accuracy"})
    for task in job.tasks():
        scores = dict(zip(("start", "end"), model(task.batch["tokens"])))
        losses = {head: F.cross_entropy(scores[head], task.batch[head]) for head in scores}
        if task.training:
            task.backward(losses["start"] + losses["end"])
        else:
            task.report(**{head: {"loss": losses[head], "correct": (scores[head].argmax(1) == task.batch[head]).sum()}
                           for head in scores})


if __name__ == "__main__":
    main()
