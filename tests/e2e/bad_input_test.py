"""Tests mistakes: each ends in seconds with the exit code of docs/exit-codes.md and one line that names the key or
file and a remedy, and damages nothing."""
import gzip
import json
import pathlib
import shutil
import socket
import struct

import lab as base
from lab import MLP, expect, first

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"
USAGE, DATA, UNREACHABLE, NOT_FINITE = 2, 3, 4, 7
MOST_LINES = 12


def refused(name, code, text, want, *words):
    expect(code == want, f"{name}: exit code {code}, want {want}: {text[-600:]}")
    lines = text.splitlines()
    expect(len(lines) <= MOST_LINES, f"{name}: {len(lines)} lines for one mistake: {text}")
    fitting = [line for line in lines if all(word in line for word in words)]
    expect(fitting, f"{name}: no line has {words}: {text}")


def nothing_is_left(lab, name):
    expect(not lab.left_behind(), f"{name}: left behind: {lab.left_behind()}")


def run_refused(lab, name, keys, want, *words, flags=(), alone=True):
    # counts the lines of `pushpull run`; a key with the value None is left out
    job = lab.job({key: value for key, value in {**MLP, **keys}.items() if value is not None})
    out = lab.folder / lab.name("refused")
    code, text = lab.call("pushpull", "run", "--job", job, "--out", out, "--workers", 2, *flags)
    refused(name, code, text, want, *words)
    expect(not (out / "summary.json").exists(), f"{name}: has a summary")
    if alone:
        nothing_is_left(lab, name)


@first("a mistake is one line")
def mistakes_in_the_job_are_named(lab):
    # job_values_test.cpp and job_test.cpp have each key; these are found at different places
    for name, keys, words in (
            ("unknown key", {"learning-rate": 1}, ("learning-rate", "lr")),
            ("no number", {"lr": "fast"}, ("lr", "fast")),
            ("unknown strategy", {"strategy": "ssp:x"}, ("strategy", "ssp:x", "async")),
            ("batch does not divide", {"global-batch": 65}, ("global-batch", "65", "micro-batch", "72")),
            ("idx without a folder", {"dataset": "idx"}, ("data-dir",)),
            ("no such straggler", {"straggler": "2:4"}, ("straggler = 2:4", "only 2", "0 to 1")),
            ("more data than there are", {"train-samples": 5000}, ("train-samples", "5000", "1438"))):
        run_refused(lab, name, keys, USAGE, *words)


@first("a mistake is one line")
def mistakes_on_the_command_line_are_named(lab):
    job = lab.job(MLP)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        for name, words, want, phrases in (
                ("unknown flag", ["pushpull", "run", "--job", job, "--wrkers", 2], USAGE, ["--workers"]),
                ("abbreviation", ["pushpull", "run", "--job", job, "--optimi", "sgd"], USAGE,
                 ["--optimi", "optimizer"]),
                ("no workers", ["pushpull", "run", "--job", job, "--workers", 0], USAGE, ["--workers"]),
                ("no job file", ["pushpull", "run", "--job", "nowhere.ini"], USAGE, ["nowhere.ini"]),
                ("folder as job", ["pushpull", "run", "--job", lab.folder], USAGE, [str(lab.folder)]),
                ("unknown command", ["pushpull", "trane"], USAGE, ["trane"]),
                ("nothing at all", ["pushpull-server"], USAGE, ["--job", "--join"]),
                ("worker without join", ["pushpull-worker"], USAGE, ["--join"]),
                ("job key to a worker", ["pushpull-worker", "--join", "tcp://127.0.0.1:1", "--lr", 1],
                 USAGE, ["--lr"]),
                ("job key to a joiner", ["pushpull-server", "--join", "tcp://127.0.0.1:1", "--lr", 1],
                 USAGE, ["--lr"]),
                ("no address", ["pushpull-worker", "--join", "here"], USAGE, ["here", "tcp://"]),
                ("other scheme", ["pushpull-worker", "--join", "http://a:1"], USAGE, ["tcp://"]),
                ("no such port", ["pushpull-worker", "--join", "tcp://127.0.0.1:99999"], USAGE, ["99999"]),
                ("key and no key", ["pushpull", "run", "--job", job, "--key", "a.key", "--insecure"],
                 USAGE, ["--key", "--insecure"]),
                ("no key there", ["pushpull-worker", "--join", "tcp://127.0.0.1:1", "--key", "a.key"],
                 USAGE, ["a.key", "keygen"]),
                ("a job file as key", ["pushpull-server", "--job", job, "--key", job], USAGE, [str(job)]),
                ("port taken", ["pushpull-server", "--job", job, "--listen", f"tcp://127.0.0.1:{port}"],
                 USAGE, [port]),
                ("port taken", ["pushpull", "run", "--job", job, "--listen", f"tcp://127.0.0.1:{port}"],
                 USAGE, [port]),
                ("unknown host", ["pushpull-worker", "--join", "tcp://no-such-host.invalid:1",
                                  "--join-timeout", 2], None, ["no-such-host.invalid"])):
            code, text = lab.call(*words)
            # the machine's resolver decides whether a name is unknown or its server silent
            want = code if want is None and code in (USAGE, UNREACHABLE) else want
            refused(name, code, text, want, *phrases)
    environment = lab.environment
    lab.environment = {**environment, "PUSHPULL_LERNING_RATE": "1"}
    run_refused(lab, "unknown variable", {}, USAGE, "PUSHPULL_LERNING_RATE")
    lab.environment = environment


def data_in(lab, damage):
    """Copies the digits, with the name and content of one file changed."""
    folder = lab.folder / lab.name("data")
    folder.mkdir()
    for path in DIGITS.glob("*ubyte"):
        shutil.copy(path, folder / path.name)
    damage(folder)
    return folder


def rewritten(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def zipped(folder):
    path = folder / "train-images.idx3-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.with_name(path.name + ".gz").write_bytes(packed[:len(packed) // 2])
    path.unlink()


def damaged_data_are_named(lab):
    """idx_test.cpp damages each part of a file."""
    images, labels = "train-images.idx3-ubyte", "train-labels.idx1-ubyte"
    run_refused(lab, "missing folder", {"dataset": "idx", "data-dir": lab.folder / "nodata"}, DATA,
                "nodata")

    def is_named(name, damage, *words):
        keys = {"dataset": "idx", "data-dir": data_in(lab, damage)}
        run_refused(lab, name, keys, DATA, *words, alone=False)
    lab.side_by_side(
        is_named,
        ("missing", lambda folder: (folder / images).unlink(), "train-images"),
        ("truncated", rewritten(images, lambda data: data[:-1]), images),
        ("fewer labels", rewritten(labels, lambda data: struct.pack(">2I", 0x801, 100) + data[8:108]),
         "1438", "100"),
        ("truncated gzip", zipped, images + ".gz"))
    nothing_is_left(lab, "damaged data")


def bad_texts_are_named(lab):
    good = lab.folder / "good.txt"
    good.write_text("a text of some length, again and again. " * 50)

    def is_named(name, text, code, keys, *words):
        path = lab.folder / f"{name}.txt"
        if text is not None:
            path.write_bytes(text)
        run_refused(lab, name, {"dataset": "text", "data-dir": path, **keys}, code, *words, alone=False)
    tokenizer = lab.folder / "broken.json"
    tokenizer.write_text('{"model": {"type": "BPE", "vocab": {"a": 0}')
    from_file = {"data-dir": good, "tokenizer": "bpe", "tokenizer-file": tokenizer}
    lab.side_by_side(
        is_named,
        ("none", None, DATA, {}, "none.txt", "no such file"),
        ("latin", b"one\ntwo\nthr\xe9e\n" * 50, DATA, {}, "latin.txt", "byte 11 (line 3)", "UTF-8"),
        ("broken", None, DATA, from_file, "broken.json", "JSON"),
        ("images wanted", None, USAGE, {"data-dir": good}, "model = mlp", "pixels", "ids, target"))
    nothing_is_left(lab, "bad texts")


def damaged_weights_are_named(lab):
    """safetensors_test.cpp damages each part of a file."""
    lab.train(lab.job({**MLP, "steps": 1}), out=lab.folder / "trained")
    good = lab.folder / "trained" / "checkpoints" / "step-00000001" / "model.safetensors"
    data = good.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    next(tensor for name, tensor in header.items() if name != "__metadata__")["shape"] = [1]
    wrong = json.dumps(header).encode()
    for name, content in (
            ("truncated", data[:-4]), ("wrong shape", struct.pack("<Q", len(wrong)) + wrong + data[8 + length:])):
        path = lab.folder / f"{name.replace(' ', '-')}.safetensors"
        path.write_bytes(content)
        run_refused(lab, name, {"init-from": path}, DATA, path.name)
    run_refused(lab, "missing", {"init-from": lab.folder / "none.safetensors"}, DATA,
                "none.safetensors")
    run_refused(lab, "another model", {"init-from": good, "hidden": "64"}, DATA, good.name)
    run_refused(lab, "nothing to resume", {"resume": "true", "checkpoint-dir": lab.folder / "void"},
                DATA, "void")
    good.write_bytes(data[:100])
    code, text = lab.call("pushpull", "eval", "--checkpoint", good.parent)
    refused("eval", code, text, DATA, "model.safetensors")


def a_non_finite_value_is_named_with_worker_step_and_place(lab):
    for strategy in ("sync", "async", "ssp:1"):
        for rate in ("1e30", "1e10"):
            run_refused(lab, f"{strategy}, lr {rate}", {"strategy": strategy, "lr": rate,
                        "steps": 4000, "optimizer": "sgd"}, NOT_FINITE, "worker ", " step ", "lr")
    run_refused(lab, "convnet", {"model": "convnet", "lr": 1e38, "steps": 4000}, NOT_FINITE,
                "worker ", " step ")


@first("P6: a value that is not finite ends the job")
def a_non_finite_value_ends_the_job(lab):
    cluster = lab.cluster(lab.job({**MLP, "lr": "1e30", "steps": 4000}), 2, 2, slice_bytes=4096)
    for process in cluster.all():
        expect(process.ends(30) == NOT_FINITE, f"{process.name}: {process.returncode}: {process.output()}")
        expect(" step " in process.output().splitlines()[-1], process.output())


if __name__ == "__main__":
    base.main(globals())
