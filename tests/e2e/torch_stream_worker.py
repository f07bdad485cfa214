"""A PyTorch worker whose training data are streams, for the tests of whole jobs: torch_stream_worker.py KIND [--folder DIR] ..."""
import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as F
from torch.utils.data import IterableDataset
from torch_worker import data, network

import pushpull.torch as pp

LENGTHS = (100, 37, 63, 150, 90, 60)  # of shards of the 500 samples


class Numbers(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def in_shards(samples, **options):
    begins = [sum(LENGTHS[:shard]) for shard in range(len(LENGTHS))]

    def opened(shard):
        return (samples[begins[shard] + i] for i in range(LENGTHS[shard]))

    return pp.Shards(range(len(LENGTHS)), open=opened, lengths=LENGTHS, **options)


def from_rows(rows):
    return torch.stack([torch.tensor(row["x"]).reshape(1, 12, 12) for row in rows]), torch.tensor([row["y"] for row in rows])


def of_hugging_face(folder):
    """Returns files of rows as one stream of the package datasets, as its shards, and how rows become batches."""
    import datasets

    files = sorted(str(path) for path in folder.glob("*.jsonl"))
    whole = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
    return whole, pp.Shards(range(whole.num_shards), open=lambda shard: whole.shard(whole.num_shards, shard), lengths=LENGTHS), from_rows


def of_webdataset(folder):
    import webdataset as wds

    files = sorted(str(path) for path in folder.glob("*.tar"))

    def opened(file):
        return wds.WebDataset(file, shardshuffle=False).decode().to_tuple("x.json", "y.cls")

    def batch(samples):
        return from_rows([{"x": x, "y": y} for x, y in samples])

    return pp.Shards(files, open=opened, lengths=LENGTHS), batch


def loader_of(job, given):
    """Returns the loader of a kind of data."""
    train, _ = data()
    options = {"num_workers": given.loaders}
    if given.kind == "map":
        return job.loader(train, **options)
    if given.kind == "weights":
        weights = [float(index % 7 == 0) + 0.25 * (index % 3) for index in range(500)]
        if given.mistake == "weights" and job.rank == 1:
            weights[8] += 1
        return job.loader(train, weights=None if given.mistake == "none" else weights, **options)
    if given.kind == "iterable":
        return job.loader(Numbers(train), length=500 if given.mistake != "short" else 600, **options)
    if given.kind == "shards":
        return job.loader(in_shards(train), **options)
    if given.kind == "webdataset":
        shards, collate = of_webdataset(given.folder)
        return job.loader(shards, collate_fn=collate, **options)
    whole, shards, collate = of_hugging_face(given.folder)
    if given.kind == "datasets-whole":
        return job.loader(whole, length=500, collate_fn=collate, **options)
    return job.loader(shards, collate_fn=collate, **options)


def evaluate(job, model, kind):
    def results(batch):
        out = model(batch[0])
        return {"loss": F.cross_entropy(out, batch[1]), "correct": (out.argmax(1) == batch[1]).sum()}

    test = data()[1]
    if kind == "shards":
        parts = len(test) // 4
        job.evaluation(pp.Shards(range(4), open=lambda part: (test[part * parts + i] for i in range(parts)), lengths=parts), results)
    elif kind == "iterable":
        job.evaluation(Numbers(test), results, length=len(test))
    else:
        job.evaluation(test, results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", help="map, weights, iterable, shards, datasets, datasets-whole, webdataset")
    parser.add_argument("--folder", type=pathlib.Path, help="with the files of datasets and webdataset")
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--mistake", default="")
    parser.add_argument("--test", choices=("map", "iterable", "shards"), help="evaluates the test data, of this kind")
    parser.add_argument("--indices", type=pathlib.Path, help="a folder for the indices of the samples of each task")
    given = parser.parse_args()
    torch.set_num_threads(1)
    job = pp.join()
    torch.manual_seed(job.seed)
    model = network("mlp")
    loader = loader_of(job, given)
    optimizer = job.optimizer(model)
    if given.test:
        evaluate(job, model, given.test)
    tasks = {}
    for _ in job.epochs():
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            tasks[f"{job._open.step} {job._open.micro_batch}"] = job._open.indices
            optimizer.step(loss=loss)
            time.sleep(given.slow)
    if given.indices:
        (given.indices / f"{job.rank}.json").write_text(json.dumps(tasks))


if __name__ == "__main__":
    main()
