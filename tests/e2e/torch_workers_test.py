"""Tests whole jobs whose workers are PyTorch scripts: torch_worker.py, and the examples of docs/examples as they stand."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import sys

import lab as base
from lab import Skipped, expect, first, flags_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "python"))
# 12 steps of an epoch, 8 micro-batches a step.
JOB = {"model": "external", "global-batch": 40, "micro-batch": 5, "optimizer": "adamw", "lr": 0.003, "weight-decay": 0.02,
       "clip-norm": 1, "steps": 30, "seed": 9}
SMALLEST = 1e-3  # a tensor's size, below which differences count as absolute


def _prepare(lab):
    """Lets scripts find the package and the library. Skips the test without PyTorch, or without the library."""
    try:
        import torch
    except ImportError as error:
        raise Skipped(f"{error}; on Debian it is the package python3-torch, for /usr/bin/python3") from None
    library = lab.bin_dir.parent / "lib" / "libpushpull.so.0"
    if not library.exists():
        raise Skipped(f"this build has no {library.name}")
    lab.environment.update(PYTHONPATH=str(ROOT / "python"), PUSHPULL_LIBRARY=str(library), OMP_NUM_THREADS="1")
    return torch


def script(*words, file=HERE / "torch_worker.py"):
    return " ".join([sys.executable, str(file), *map(str, words)])


def launch(lab, keys, servers=1, workers=1, command=None, **options):
    job = lab.job({**JOB, **keys})
    return lab.launch(job, servers, workers, worker=command or script("convnet"), **options)


def trained(lab, keys, servers=1, workers=1, command=None, **options):
    """Runs a job, which must succeed. Returns its summary."""
    run = launch(lab, keys, servers, workers, command, **options)
    code = run.ends(240)
    expect(code == 0, f"exit code {code}: {run.output()[-1500:]}")
    return base.summary_of(run.out)


def hash_of(*arguments, **options):
    return trained(*arguments, **options)["weights_sha256"]


# ---- the job of a script ----

def said(keys):
    """Returns the command of a script that says these keys."""
    return script("mlp", "--keys", shlex.quote(json.dumps({key.replace("-", "_"): value for key, value in keys.items()})))


@first("a script says its job")
def a_script_says_the_job(lab):
    _prepare(lab)
    keys = {**JOB, "micro-batch": 20}
    run = lab.start("pushpull", "run", "--workers", 2, "--worker", said(keys), "--strategy", "ssp:0", "--out", lab.folder / "said")
    expect(run.ends(120) == 0, run.output()[-1500:])
    expect(base.summary_of(lab.folder / "said")["weights_sha256"] == hash_of(lab, keys, 1, 1, script("mlp")),
           "other bits than with a job file")


def the_job_of_a_script_survives_its_first_server(lab):
    _prepare(lab)
    keys = {**JOB, "micro-batch": 20, "steps": 400, "checkpoint-every": 50}
    want = hash_of(lab, keys, 1, 1, script("mlp"))
    run = lab.start("pushpull", "run", "--workers", 2, "--worker", said(keys), "--out", lab.folder / "said")
    run.out = lab.folder / "said"
    lab.trains(run, 60)
    servers = [pid for pid in base.living_below(run.pid) if os.readlink(f"/proc/{pid}/exe").endswith("/pushpull-server")]
    os.kill(servers[0], signal.SIGKILL)
    expect(run.ends(120) == 0, run.output()[-1500:])
    expect(base.summary_of(run.out)["weights_sha256"] == want, "other bits than with a job file")


def a_job_that_a_script_contradicts_or_lacks_is_named(lab):
    _prepare(lab)
    for command, flags, line in ((said(JOB), ("--lr", 0.5), "lr = 0.003 in this program, and 0.5 in the job"),
                                 (said({**JOB, "lr": -1}), (), "lr = -1 (the worker's program): must be"),
                                 (said({"learning-rate": 1}), (), "unknown key 'learning-rate' (the worker's program"),
                                 (script("mlp"), (), "the first server has no job")):
        code, text = lab.call("pushpull", "run", "--workers", 1, "--worker", command, *flags, "--out", lab.folder / "bad")
        expect(code == 2 and line in text, f"{code}: {text[-800:]}")


# ---- the same bits ----

def the_weights_have_the_same_bits_on_any_cluster(lab):
    _prepare(lab)
    for network in ("convnet", "mlp", "transformer"):
        command = script(network)
        clusters = [(1, 1, {}), (4, 2, {"transport": "tcp"})]
        if network == "convnet":
            clusters += [(2, 1, {}), (2, 1, {"strategy": "allreduce:tree"})]
        hashes = {f"{workers} workers, {servers} servers {keys}": hash_of(lab, keys, servers, workers, command)
                  for workers, servers, keys in clusters}
        hashes["loaders"] = hash_of(lab, {}, 1, 2, script(network, "--loaders", 2))
        expect(len(set(hashes.values())) == 1, f"{network}: {hashes}")


def a_worker_with_another_thread_count_is_refused(lab):
    _prepare(lab)
    cluster = lab.cluster(lab.job(JOB), 1, 0, workers=2)
    environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
    lab.environment = environment
    first = start_script(lab, "convnet", "--threads", 1)
    cluster.servers[0].prints("joined, 1 of 2")
    first.prints("waiting for the job to start")
    second = start_script(lab, "convnet", "--threads", 2)
    code = second.ends()
    expect(code != 0 and "2 threads" in second.output() and "1 threads" in second.output(), f"{code}: {second.output()}")


def start_script(lab, *words, file="torch_worker.py"):
    process = base.Process(lab, lab.name("script"), [sys.executable, HERE / file, *words])
    lab.processes.append(process)
    return process


def a_kill_in_the_middle_keeps_the_bits(lab):
    _prepare(lab)
    keys = {"steps": 300, "on-worker-loss": "wait", "eval-every": 100}
    want = hash_of(lab, keys, 1, 2)
    cluster = lab.cluster(lab.job({**JOB, **keys}), 1, 0, workers=2)
    lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
    scripts = [start_script(lab, "convnet", "--slow", 0.002) for _ in range(2)]
    cluster.reaches(60)
    scripts[0].kill()
    scripts.append(start_script(lab, "convnet"))
    for process in scripts[1:]:
        expect(process.ends(120) == 0, process.output()[-600:])
    summary = cluster.ends_well()
    expect(summary["weights_sha256"] == want, "a kill has changed the weights")


def a_resume_in_the_middle_of_an_epoch_with_other_workers_keeps_the_bits(lab):
    _prepare(lab)
    want = hash_of(lab, {"steps": 60}, 1, 1)
    out = lab.folder / "resumed"
    trained(lab, {"steps": 60}, 1, 3, out=out, stop_after=31)
    got = hash_of(lab, {"steps": 60}, 2, 1, out=out, resume="true")
    expect(got == want, "a resume has changed the weights")


# ---- what is learned ----

@first("a PyTorch worker trains as plain PyTorch")
def twenty_steps_agree_with_plain_pytorch(lab):
    torch = _prepare(lab)
    import torch_worker
    # optimizer_torch_test.py compares the others; these two take weight decay into the gradient, and beside it
    optimizers = {
        "nesterov": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
        "adamw": lambda groups: torch.optim.AdamW(groups)}
    for name, make in optimizers.items():
        lr = 0.003 if name.startswith("adam") else 0.02
        out = lab.folder / name
        trained(lab, {"steps": 20, "shuffle": "false", "optimizer": name, "lr": lr}, 1, 2, script("convnet", "--no-dropout"), out=out)
        import pushpull.torch as pp
        ours = pp.read_checkpoint(out / "checkpoints")
        theirs = plain_training(torch, torch_worker, make, lr)
        for key, value in ours.items():
            size = max(float(theirs[key].abs().max()), SMALLEST)
            worst = float((value - theirs[key]).abs().max()) / size
            expect(worst < 1e-4, f"{name}: {key} differs by {worst:.1e}")


def plain_pytorch_goes_on_from_a_checkpoint(lab):
    torch = _prepare(lab)
    import torch_worker
    for name, lr, make in (("momentum", 0.02, lambda groups: torch.optim.SGD(groups, momentum=0.9)),
                           ("adam", 0.003, lambda groups: torch.optim.Adam(groups)),
                           ("adamw", 0.003, lambda groups: torch.optim.AdamW(groups))):
        out = lab.folder / name
        trained(lab, {"steps": 20, "shuffle": "false", "optimizer": name, "lr": lr}, 1, 2, script("convnet", "--no-dropout"), out=out,
                stop_after=12)
        whole = plain_training(torch, torch_worker, make, lr)
        for with_state in (True, False):
            continued = plain_training(torch, torch_worker, make, lr, out / "checkpoints", with_state)
            worst = max(float((value - whole[key]).abs().max()) / max(float(whole[key].abs().max()), SMALLEST)
                        for key, value in continued.items() if not key.endswith("num_batches_tracked"))
            expect((worst < 1e-4) == with_state, f"{name}, with the optimizer's state {with_state}: a tensor differs by {worst:.1e}")


def plain_training(torch, torch_worker, make, lr, checkpoint=None, with_state=True):
    """The same 20 steps in plain PyTorch, the first 12 of them by a checkpoint if there is one. Returns the state."""
    torch.manual_seed(JOB["seed"])
    model = torch_worker.network("convnet", 0.0)
    named = dict(model.named_parameters())
    own = {"1.weight": dict(lr=0.0007)}
    optimizer = make([dict(params=[parameter], **{"lr": lr, "weight_decay": 0.0 if parameter.dim() < 2 else 0.02,
                                                  **own.get(name, {})}) for name, parameter in named.items()])
    if checkpoint:
        import pushpull.torch as pp
        model.load_state_dict(pp.read_checkpoint(checkpoint), strict=False)
        if with_state:
            optimizer.load_state_dict(pp.optimizer_state(checkpoint, optimizer, model))
    x, y = torch_worker.data()[0].tensors
    norm = model[1]
    for step in range(12 if checkpoint else 0, 20):
        optimizer.zero_grad()
        before = norm.running_mean.clone(), norm.running_var.clone()
        after = []
        for part in range(8):
            norm.running_mean.copy_(before[0])
            norm.running_var.copy_(before[1])
            first = (step % 12) * 40 + 5 * part
            loss = torch.nn.functional.cross_entropy(model(x[first:first + 5]), y[first:first + 5])
            (loss / 8).backward()
            after.append((norm.running_mean.clone(), norm.running_var.clone()))
        norm.running_mean.copy_(sum(mean for mean, _ in after) / 8)
        norm.running_var.copy_(sum(var for _, var in after) / 8)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
    return {key: value.float() for key, value in model.state_dict().items()}


def each_strategy_trains(lab):
    _prepare(lab)
    for strategy in ("async", "ssp:2", "buffered:2", "local:4", "backup:1", "allreduce:ring"):
        summary = trained(lab, {"strategy": strategy, "steps": 120}, 1, 2)
        expect(summary["test_total"] == 100, f"{strategy}: {summary['test_total']} of 100 test samples")
        expect(summary["model_parameters"] == 9501, f"{strategy}: {summary['model_parameters']} parameters")


# ---- mistakes ----

def mistakes_are_one_line_that_names_the_thing(lab):
    _prepare(lab)
    for mistake, word, code in (("vector", "expected a scalar", 1), ("nan", "is nan", 7), ("half", "torch.float16", 2),
                                ("raise", "my own mistake", 1), ("count", "whole number from 0 to 5", 2), ("early", "no worker is left", 75)):
        run = launch(lab, {}, 1, 1, script("convnet", mistake))
        got = run.ends(60)
        # the job ends with code 1 (pp_fail) if a slow script has not ended by then with its own code
        expect(got == code or (got != 0 and mistake in ("vector", "half", "count")), f"{mistake}: exit code {got}: {run.output()[-800:]}")
        expect(word in run.output(), f"{mistake}: {run.output()[-800:]}")
        left = [line for line in command_lines(lab) if "torch_worker.py" in line]
        expect(not left, f"{mistake}: left behind {left}")


def a_script_that_hangs_is_named_with_its_line(lab):
    _prepare(lab)
    run = launch(lab, {"task-timeout": 2}, 1, 1, script("convnet", "hang"))
    expect(run.ends(90) != 0, "a script that hangs ends with 0")
    expect("torch_worker.py, line " in run.output() and "step 3, micro-batch 5" in run.output(), run.output()[-1500:])


def another_model_or_other_data_of_the_second_worker_is_refused(lab):
    _prepare(lab)
    for mistake, words in (("other-model", "8.weight [6, 32]"), ("other-data", "data")):
        cluster = lab.cluster(lab.job(JOB), 1, 0, workers=2)
        lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
        first = start_script(lab, "convnet")
        cluster.servers[0].prints("joined, 1 of 2")
        first.prints("waiting for the job to start")
        second = start_script(lab, "convnet", mistake)
        code = second.ends()
        expect(code != 0 and words in second.output(), f"{mistake}: {code}: {second.output()[-600:]}")
        del lab.environment["PUSHPULL_JOIN"]


def command_lines(lab):
    for pid in base.living_below(os.getpid()):
        with contextlib.suppress(OSError):
            yield pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def jobs_with_reading_processes_end(lab):
    _prepare(lab)
    for _ in range(int(os.environ.get("PUSHPULL_TEST_LOADER_JOBS", "2"))):
        trained(lab, {"steps": 5}, 1, 2, script("mlp", "--loaders", 2))
        left = [line for line in command_lines(lab) if "torch_worker.py" in line]
        expect(not left, f"left behind {left}")


# ---- the examples ----

def write_idx(path, sizes, values):
    head = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    path.write_bytes(head + bytes(values))


def write_mnist(folder):
    """Writes images of ten greys as MNIST's files. Returns the folder."""
    folder.mkdir(parents=True)
    for split, count in (("train", 400), ("t10k", 100)):
        labels = [i * 7 % 10 for i in range(count)]
        write_idx(folder / f"{split}-labels-idx1-ubyte", [count], labels)
        write_idx(folder / f"{split}-images-idx3-ubyte", [count, 28, 28], [25 * label for label in labels for _ in range(784)])
    return folder


def the_examples_run_as_they_stand(lab):
    _prepare(lab)
    folder = write_mnist(lab.folder / "mnist")
    examples = ROOT / "docs" / "examples"
    for name, keys, words, least in (("mnist", {"epochs": 6}, [folder], 0.5), ("qa", {"steps": 40, "eval-every": 20}, [], 0)):
        out = lab.folder / f"out-{name}"
        run = lab.start("pushpull", "run", "--job", examples / f"{name}.ini", "--workers", 2, "--out", out, *flags_of(keys),
                        "--worker", script(*words, file=examples / f"{name}.py"))
        expect(run.ends(240) == 0, f"{name}: {run.output()[-1500:]}")
        summary = base.summary_of(out)
        expect(summary["test_accuracy"] >= least, f"{name}: accuracy {summary['test_accuracy']}")


def the_notebook_is_stopped_and_goes_on(lab):
    _prepare(lab)
    cells = json.loads((ROOT / "docs/examples/notebook.ipynb").read_text())["cells"]
    cells = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    loop = next(cell for cell in cells if "job.tasks()" in cell)
    program = lab.folder / "notebook.py"
    program.write_text(f"""import _thread, threading
cells = {cells!r}
names = {{}}
for cell in cells:
    if cell != {loop!r}:
        exec(cell, names)
        continue
    for _ in range(3):
        threading.Timer(0.3, _thread.interrupt_main).start()
        try:
            exec(cell.replace("losses.append", "__import__('time').sleep(0.005); losses.append"), names)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    exec(cell, names)
""")
    job = lab.job({"model": "external", "global-batch": 64, "micro-batch": 16, "optimizer": "adam", "lr": 0.01, "steps": 200})
    cluster = lab.cluster(job, 1, 0, workers=1, progress_timeout=0)
    lab.environment = {**lab.environment, "PUSHPULL_JOIN": cluster.address}
    process = base.Process(lab, "notebook", [sys.executable, program])
    lab.processes.append(process)
    expect(process.ends(120) == 0, process.output()[-1500:])
    expect(process.output().count("interrupted") == 3, process.output())
    found = re.search(r"(\d+) micro-batches", process.output())
    expect(found and 800 <= int(found[1]) <= 803, process.output())
    expect(cluster.ends_well()["steps"] == 200, "not all steps")


if __name__ == "__main__":
    base.main(globals())
