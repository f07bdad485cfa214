"""Jobs of the models that are compared with PyTorch: keys of job files. models_torch.py makes the same models in PyTorch."""

WORDS = {"gpt": 65, "bert": 1024}
ADAMW = {"optimizer": "adamw", "lr": 0.001, "weight-decay": 0.01, "clip-norm": 1}
MOMENTUM = {"dataset": "dummy", "optimizer": "momentum", "lr": 0.01}
QA = {"model": "bert", "dataset": "dummy-qa", "vocab": WORDS["bert"], **ADAMW}
# job, steps of a run. A step has two micro-batches: one for each worker or rank of a pair
JOBS = {
    "mlp": ({"model": "mlp", "hidden": "1024,1024", "input": "784", "test-samples": 200, "global-batch": 256, "micro-batch": 128, **MOMENTUM}, 150),
    "convnet": ({"model": "convnet", "input": "1x28x28", "test-samples": 200, "global-batch": 200, "micro-batch": 100, **MOMENTUM}, 150),
    "gpt": ({"model": "gpt", "dataset": "text", "layers": 4, "heads": 4, "embed": 128, "sequence": 64, "global-batch": 12, "micro-batch": 6, **ADAMW}, 60),
    "bert": ({"layers": 4, "heads": 4, "embed": 256, "sequence": 128, "test-samples": 8, "global-batch": 16, "micro-batch": 8, **QA}, 15),
    "resnet18": ({"model": "resnet18", "stem": "cifar", "input": "1x28x28", "test-samples": 8, "global-batch": 32, "micro-batch": 16, **MOMENTUM}, 6),
    "resnet50": ({"model": "resnet50", "input": "3x224x224", "test-samples": 2, "global-batch": 8, "micro-batch": 4, **MOMENTUM}, 3),
    "bert-base": ({"layers": 12, "heads": 12, "embed": 768, "sequence": 384, "test-samples": 2, "global-batch": 4, "micro-batch": 2, **QA}, 3),
}


def data_of(job, folder):
    """Returns further keys of a job, for data that it needs; writes them to the folder."""
    if job["dataset"] != "text":
        return {}
    path = f"{folder}/text.txt"
    with open(path, "w") as file:
        file.write("".join(chr(ord("0") + i * 7 % WORDS["gpt"]) for i in range(100_000)))
    return {"data-dir": path}
