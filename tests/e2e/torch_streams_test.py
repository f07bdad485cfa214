"""Tests whole jobs whose data have no indices, or weights: torch_stream_worker.py."""
import io
import json
import tarfile

import lab as base
from lab import expect
from torch_loop_test import _prepare_with
from torch_workers_test import HERE, JOB, _prepare, hash_of, launch, script, start_script, trained



def stream(*words, python=None):
    command = script(*words, file=HERE / "torch_stream_worker.py")
    return command if python is None else " ".join([python, *command.split(" ")[1:]])


def it_has_the_bits_of_the_samples_in_order(lab):
    _prepare(lab)
    want = hash_of(lab, {"shuffle": "false"}, 1, 1, stream("map"))
    expect(hash_of(lab, {}, 1, 2, stream("iterable")) == want, "an iterable has other bits than its samples in order")


def shards_have_the_same_bits_for_any_number_of_workers(lab):
    _prepare(lab)
    hashes = {f"{workers} workers, {loaders} loaders": hash_of(lab, keys, 1, workers, stream("shards", "--loaders", loaders))
              for workers, loaders, keys in ((1, 0, {}), (2, 0, {}), (4, 0, {}), (3, 2, {}), (2, 1, {"strategy": "allreduce:tree"}))}
    expect(len(set(hashes.values())) == 1, f"{hashes}")


def streams_are_evaluated(lab):
    _prepare(lab)
    found = {}
    for kind, workers, loaders in (("map", 1, 0), ("iterable", 1, 0), ("iterable", 3, 1), ("shards", 2, 0)):
        summary = trained(lab, {"eval-every": 10}, 1, workers, stream("map", "--test", kind, "--loaders", loaders))
        expect(summary["test_total"] == 100, f"{kind}: {summary['test_total']} test samples")
        found[kind, workers] = summary["test_loss"], summary["test_accuracy"]
    first = found["map", 1]
    expect(all(abs(loss - first[0]) < 1e-6 and right == first[1] for loss, right in found.values()), f"{found}")
    expect(found["iterable", 3] == first, "an iterable has other figures than its samples in order")


def each_strategy_trains_on_shards(lab):
    _prepare(lab)
    for strategy in ("async", "ssp:2", "local:4", "backup:1"):
        trained(lab, {"strategy": strategy}, 1, 2, stream("shards"))


def a_kill_and_a_resume_keep_the_bits(lab):
    _prepare(lab)
    for kind in ("shards", "iterable"):
        keys = {"steps": 60, "on-worker-loss": "wait", "eval-every": 15}
        want = hash_of(lab, keys, 1, 1, stream(kind))
        cluster = lab.cluster(lab.job({**JOB, **keys}), 1, 0, workers=2)
        lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
        scripts = [start_script(lab, kind, "--slow", 0.005, "--loaders", number, file="torch_stream_worker.py") for number in range(2)]
        cluster.reaches(29)
        scripts[0].kill()
        scripts.append(start_script(lab, kind, file="torch_stream_worker.py"))
        for process in scripts[1:]:
            expect(process.ends(120) == 0, process.output()[-600:])
        expect(cluster.ends_well()["weights_sha256"] == want, f"{kind}: a kill has changed the weights")
        del lab.environment["PUSHPULL_JOIN"]
        out = lab.folder / f"resumed-{kind}"
        trained(lab, keys, 1, 3, stream(kind), out=out, stop_after=31)
        summary = trained(lab, keys, 1, 2, stream(kind), out=out, resume="true")
        expect(summary["weights_sha256"] == want, f"{kind}: a resume has changed the weights")


def a_stream_that_ends_early_is_named(lab):
    _prepare(lab)
    for loaders in (0, 1):
        run = launch(lab, {"epochs": 1, "steps": 0}, 1, 1, stream("iterable", "--mistake", "short", "--loaders", loaders))
        expect(run.ends(120) != 0, run.output()[-1500:])
        expect("[data] the train data set (Numbers) ends after 500 samples, and its length is 600" in run.output(), run.output()[-1500:])


# ---- the streams of other packages ----

def _write_files(folder):
    """Writes the 500 samples as lines of JSON and as archives."""
    from torch_stream_worker import LENGTHS, data
    train, _ = data()
    folder.mkdir()
    place = 0
    for shard, length in enumerate(LENGTHS):
        rows = [(x.flatten().tolist(), int(y)) for x, y in (train[place + i] for i in range(length))]
        place += length
        (folder / f"part-{shard}.jsonl").write_text("".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in rows))
        with tarfile.open(folder / f"part-{shard}.tar", "w") as archive:
            for number, (x, y) in enumerate(rows):
                for name, text in (("x.json", json.dumps(x)), ("y.cls", str(y))):
                    entry = tarfile.TarInfo(f"{number:05}.{name}")
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text.encode()))
    return folder


def streams_of_hugging_face_train(lab):
    python = _prepare_with(lab, "torch", "datasets.iterable_dataset")  # not a folder datasets
    folder = _write_files(lab.folder / "rows")
    for kind in ("datasets", "datasets-whole"):
        hashes = {workers: hash_of(lab, {}, 1, workers, stream(kind, "--folder", folder, "--loaders", workers - 1, python=python))
                  for workers in (1, 2)}
        expect(hashes[1] == hashes[2], f"{kind}: {hashes}")
    # one epoch: set_epoch of the package reorders the files of later ones
    found = hash_of(lab, {"steps": 12}, 1, 1, stream("datasets-whole", "--folder", folder, python=python))
    want = hash_of(lab, {"steps": 12, "shuffle": "false"}, 1, 1, stream("map", python=python))
    expect(found == want, "a stream of the package datasets has other bits than its samples in order")


def archives_of_webdataset_train(lab):
    python = _prepare_with(lab, "torch", "webdataset")
    folder = _write_files(lab.folder / "archives")
    hashes = {workers: hash_of(lab, {}, 1, workers, stream("webdataset", "--folder", folder, "--loaders", workers - 1, python=python))
              for workers in (1, 2)}
    want = hash_of(lab, {}, 1, 1, stream("shards", python=python))
    expect(set(hashes.values()) == {want}, f"{hashes}, and as shards in memory {want}")


# ---- weights ----

def _philox(seed, stream, index, counter):
    """Philox4x32-10 of Salmon et al., SC 2011."""
    of = [counter & 0xFFFFFFFF, counter >> 32, index, stream]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        one, other = 0xD2511F53 * of[0], 0xCD9E8D57 * of[2]
        of = [other >> 32 ^ of[1] ^ key[0], other & 0xFFFFFFFF, one >> 32 ^ of[3] ^ key[1], one & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return of


def _drawn(seed, epoch, place, weights):
    """Returns the sample at a place of a weighted epoch, by the definition in docs/datasets.md."""
    words = _philox(seed, 9, epoch, place)
    part = ((words[0] << 32 | words[1]) >> 11) / 2 ** 53
    sums, so_far = [], 0.0
    for weight in weights:
        so_far += weight
        sums.append(so_far)
    return next(sample for sample, end in enumerate(sums) if end > part * so_far)


def weights_draw_the_samples(lab):
    _prepare(lab)
    weights = [float(index % 7 == 0) + 0.25 * (index % 3) for index in range(500)]
    hashes = set()
    for workers in (1, 2):
        folder = lab.folder / f"indices-{workers}"
        folder.mkdir()
        hashes.add(hash_of(lab, {"sampler": "weighted", "steps": 14}, 1, workers, stream("weights", "--indices", folder)))
        found = {key: indices for path in folder.glob("*.json") for key, indices in json.loads(path.read_text()).items()}
        expect(len(found) == 14 * 8, f"{len(found)} tasks")
        for key, indices in found.items():
            step, micro_batch = map(int, key.split())
            begin = step % 12 * 40 + micro_batch * 5
            want = [_drawn(9, step // 12, begin + i, weights) for i in range(5)]
            expect(indices == want, f"{key}: {indices}, and by the definition {want}")
    expect(len(hashes) == 1, f"{hashes}")


def weights_that_are_missing_or_differ_are_named(lab):
    _prepare(lab)
    for keys, mistake, line in (
            ({"sampler": "weighted"}, "none", "sampler = weighted: give a weight for each training sample (weights= of attach"),
            ({}, "", "this program has weights of its samples, and the job has sampler = uniform"),
            ({"sampler": "weighted"}, "weights", "its data differ: the job has 500 + 0 samples with digest weights ")):
        run = launch(lab, keys, 1, 2, stream("weights", *(("--mistake", mistake) if mistake else ())))
        code = run.ends(120)
        expect(code != 0 and line in run.output(), f"{code}: {run.output()[-1500:]}")


if __name__ == "__main__":
    base.main(globals())
