"""Tests datasets in whole jobs: questions that scripts/make_qa.py writes, CIFAR-10's files, the weighted sampler, bad files."""
import json
import pathlib
import random
import struct
import subprocess
import sys
import zlib

import lab as base
from lab import MLP, expect, first, summary_of

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"
USAGE, DATA = 2, 3
RESNET = {"model": "resnet18", "stem": "cifar", "dataset": "cifar10", "global-batch": 10, "micro-batch": 5, "steps": 2, "lr": 0.01, "seed": 3}


def squad_in(folder):
    """Writes questions in SQuAD's format: which word is behind this one? The contexts are longer than a row."""
    chance = random.Random(1)
    words = [a + b + "n" for a in ("ba", "do", "ki", "lu", "me") for b in ("ta", "ro", "pi", "su", "ge")]
    paragraphs = []
    for i in range(40):
        row = chance.sample(words, 24)
        at = chance.randrange(23)
        context = " ".join(row)
        answer = {"text": row[at + 1], "answer_start": len(" ".join(row[:at + 1])) + 1}
        paragraphs.append({"context": context, "qas": [{"id": str(i), "question": f"What follows {row[at]}?", "answers": [answer]}]})
    path = folder / "squad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


def questions_in(place):
    """Returns a folder of dataset qa with rows of 24 tokens."""
    source, folder = squad_in(place.folder), place.folder / "qa"
    words = [SCRIPTS / "make_qa.py", "--train", source, "--test", source, "--out", folder, "--sequence", 24, "--question", 8, "--stride", 8]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0 and "train: 40 questions, 80 rows, " in done.stdout, done)
    return folder


def bert_on(folder):
    return {"model": "bert", "dataset": "qa", "data-dir": folder, "sequence": 24, "layers": 1, "heads": 2, "embed": 16, "sampler": "weighted",
            "global-batch": 8, "micro-batch": 2, "optimizer": "adamw", "lr": 0.001, "steps": 25, "dropout": 0.1, "seed": 3}


def a_bert_trains_on_questions_from_squad_with_the_same_bits_everywhere(lab):
    job = lab.job(bert_on(questions_in(lab)))
    runs = [lab.train(job, servers, workers) for servers, workers in ((1, 1), (2, 3))]
    out = lab.folder / "resumed"
    expect(lab.run(job, 1, 2, out=out, stop_after=13).code == 0, "the first part")
    runs.append(lab.run(job, 1, 1, out=out, resume="true").summary())  # 13 is within the second epoch
    expect(len({run["weights_sha256"] for run in runs}) == 1, [run["weights_sha256"] for run in runs])
    expect(runs[0]["heads"][0]["counted"] < runs[0]["heads"][4]["counted"] == 80, f"rows without an answer do not count: {runs[0]['heads']}")


def classes_are_drawn_by_the_workers_alone(lab):
    """The order of a weighted epoch does not depend on workers or servers; another sampler gives another order."""
    keys = {**MLP, "steps": 30, "sampler": "weighted"}
    runs = [lab.train(lab.job(keys), servers, workers) for servers, workers in ((1, 1), (2, 3))]
    runs.append(lab.train(lab.job({**keys, "strategy": "allreduce:tree"}), 1, 2))
    for name in ("data_order_sha256", "weights_sha256"):
        expect(len({run[name] for run in runs}) == 1, [run[name] for run in runs])
    uniform = lab.train(lab.job({**keys, "sampler": "uniform"}), 1, 1)
    expect(uniform["data_order_sha256"] != runs[0]["data_order_sha256"], "the same order without weights")


def a_replay_draws_the_same_classes(lab):
    record = lab.folder / "run.rec"
    job = lab.job({**MLP, "steps": 40, "sampler": "weighted", "strategy": "async"})
    live = lab.train(job, 1, 2, record=record)
    code, text = lab.call("pushpull", "replay", record, "--job", job, "--out", lab.folder / "again")
    expect(code == 0 and summary_of(lab.folder / "again")["weights_sha256"] == live["weights_sha256"], text)


def cifar_in(folder):
    chance = random.Random(2)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([chance.randrange(10)]) + chance.randbytes(3072) for _ in range(4)))
    return folder


@first("cifar10 and resnet")
def a_resnet_trains_on_cifar10(lab):
    run = lab.train(lab.job({**RESNET, "data-dir": cifar_in(lab.folder)}), 1, 2)
    expect(run["heads"][0]["counted"] == 4 and run["model_parameters"] == 11173962, run)


def png_of(pixels, width, height):
    """Returns a grey PNG, by hand."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def images_in(folder, side=8, classes=("ant", "bee", "cat")):
    """Writes the same images as a folder of classes and, in its order, as four IDX files."""
    chance = random.Random(4)
    for split, name, each in (("train", "train", 16), ("test", "t10k", 5)):
        images, labels = b"", b""
        for label, kind in enumerate(classes):
            (folder / "images" / split / kind).mkdir(parents=True)
            for i in range(each):
                pixels = bytes(chance.randrange(80) + 80 * ((x // 3 + label) % 3 == 0) for x in range(side * side))
                (folder / "images" / split / kind / f"{i:03}.png").write_bytes(png_of(pixels, side, side))
                images, labels = images + pixels, labels + bytes([label])
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, len(labels), side, side) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + labels)
    return folder / "images"


def images_in_class_folders_train_as_the_same_images_in_idx_files(lab):
    folder = images_in(lab.folder)
    keys = {**MLP, "global-batch": 12, "micro-batch": 3, "steps": 12, "eval-every": 6}
    want = lab.train(lab.job({**keys, "dataset": "idx", "data-dir": lab.folder}), 1, 1)
    job = lab.job({**keys, "dataset": "folder", "data-dir": folder, "input": "1x8x8"})
    for servers, workers in ((1, 1), (2, 3)):
        got = lab.train(job, servers, workers)
        for name in ("weights_sha256", "data_order_sha256", "test_loss"):
            expect(got[name] == want[name], f"{name}: {got[name]}, of IDX files {want[name]}")
    run = lab.run(lab.job({**keys, "dataset": "folder", "data-dir": folder}), 1, 1)
    expect(run.code == USAGE and "needs input, the shape that its images are made to fit" in run.text, f"{run.code}: {run.text[-400:]}")
    bad = folder / "train" / "bee" / "007.png"
    bad.write_bytes(bad.read_bytes()[:60])
    run = lab.run(job, 1, 2)
    expect(run.code == DATA and f"[data] {bad}: this PNG cannot be read: " in run.text, f"{run.code}: {run.text[-500:]}")


def bad_files_end_with_file_and_record(lab):
    folder = cifar_in(lab.folder)
    batch = folder / "data_batch_3.bin"
    batch.write_bytes(batch.read_bytes()[:3073 * 2] + b"\x0b" + bytes(3072))
    run = lab.run(lab.job({**RESNET, "data-dir": folder}), 1, 1)
    expect(run.code == DATA and f"{batch}: record 2: expected a label from 0 to 9, got 11" in run.text, f"{run.code}: {run.text[-500:]}")
    questions = questions_in(lab)
    train = questions / "train.safetensors"
    raw = bytearray(train.read_bytes())
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    raw[begin + 4 * 24:begin + 4 * 25] = struct.pack("<i", 9999)  # the first id of record 1
    train.write_bytes(raw)
    run = lab.run(lab.job(bert_on(questions)), 1, 1)
    expect(run.code == DATA and f"{train}: record 1: ids: expected 0 to" in run.text, f"{run.code}: {run.text[-500:]}")


def mistakes_are_named(lab):
    text = lab.folder / "text.txt"
    text.write_text("calm " * 400)
    for keys, word in (({"model": "gpt", "dataset": "text", "data-dir": text, "sampler": "weighted"}, "sampler = weighted"),
                       ({"model": "bert", "dataset": "dummy-qa", "sequence": 15}, "sequence: expected 16 to 32768, got 15"),
                       ({"model": "bert", "dataset": "dummy-qa", "vocab": 15}, "vocab: expected 16 to 1000000, got 15"),
                       ({"model": "resnet18", "dataset": "dummy-qa"}, "dataset = dummy-qa"),
                       ({"dataset": "qa"}, "data-dir"), ({"dataset": "imagenot"}, "dummy-qa, digits")):
        run = lab.run(lab.job({"steps": 1, **keys}), 1, 1)
        expect(run.code == USAGE and word in run.text, f"{word}: {run.code}: {run.text[-400:]}")


if __name__ == "__main__":
    base.main(globals())
