"""One measurement each of pushpull, of its floors and of its alternatives. Every function returns key -> value;
speed_compare.py combines the rounds."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from figures import Failed, bench_rows, google_benchmark, run  # noqa: E402

PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
WORKERS = 2
# name -> job, number of steps, and seconds of PyTorch's run
JOBS = {
    "mlp": ({"model": "mlp", "hidden": "1024,1024", "input": "784", "global-batch": 256,
             "micro-batch": 128}, 200, 6),
    "mlp-wide": ({"model": "mlp", "hidden": "4096,4096", "input": "4096", "global-batch": 128,
                  "micro-batch": 64}, 60, 10),
    "convnet": ({"model": "convnet", "input": "1x28x28", "global-batch": 200, "micro-batch": 100},
                200, 5)}
TITLES = {"mlp": "mlp 1024,1024", "mlp-wide": "mlp 4096,4096", "convnet": "convnet"}
COMMON = {"dataset": "dummy", "classes": 10, "optimizer": "sgd", "lr": 0.01, "seed": 1, "threads": 1,
          "eval-every": 0, "test-samples": 200}


def floors(bin_dir, sizes):
    """Returns µs: the update in memory, the faster of one and two threads; raw TCP; and bare ZeroMQ for one worker."""
    wanted = "bytes:(" + "|".join(str(size) for size in sizes) + ")/"
    pattern = (f"^memory_momentum/{wanted}|^link_tcp_(push|pull)/{wanted}clients:1|"
               f"^link_tcp_exchange/{wanted}clients:{WORKERS}/|^link_zmq_tcp_push/{wanted}clients:1")
    found = google_benchmark(bin_dir / "floors_bench", "--benchmark_min_time=0.5",
                             f"--benchmark_filter={pattern}")

    def us(name, size, how):
        return found[f"{name}/bytes:{size}/{how}/real_time"]["p50_us"]

    values = {}
    for size in sizes:
        values["floor", "shm", size] = min(us("memory_momentum", size, f"threads:{n}") for n in (1, 2))
        values["floor", "tcp", size] = us("link_tcp_exchange", size, f"clients:{WORKERS}")
        for way in ("push", "pull"):
            values["raw " + way, "tcp", size] = us(f"link_tcp_{way}", size, "clients:1")
        values["zmq push", "tcp", size] = us("link_zmq_tcp_push", size, "clients:1")
    return values


def exchanges(bin_dir, sizes):
    values = {}
    for row in bench_rows(bin_dir, sizes, WORKERS, 1, ["shm", "tcp"]):
        values["pushpull", row["transport"], row["bytes"]] = row["exchange_us_p50"]
        for way in ("push", "pull"):
            if row.get(f"{way}_us_p50"):
                values[way, row["transport"], row["bytes"]] = row[f"{way}_us_p50"]
    return values


def pairs(text, name):
    """Parses lines "BYTES microseconds"."""
    rows = [line.split() for line in text.splitlines()]
    return {(name, int(row[0])): float(row[1]) for row in rows if len(row) == 2}


def gloo(sizes):
    return pairs(run([PYTHON, HERE / "gloo_exchange.py", WORKERS, *sizes]), "gloo")


def mpi(program, sizes):
    """Measures Open MPI over its default transport on one host, shared memory, and over TCP."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    found = {}
    for transport, words in (("shm", []), ("tcp", ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"])):
        text = run(["mpirun", *root, *words, "--oversubscribe", "-np", WORKERS, program, *sizes])
        found.update({("mpi", transport, size): us for (_, size), us in pairs(text, "mpi").items()})
    return found


def build_mpi(folder):
    """Builds the program and returns its path."""
    program = pathlib.Path(folder) / "mpi_all_reduce"
    run(["mpicxx", "-O3", "-std=c++20", "-o", program, HERE / "mpi_all_reduce.cpp"], OMPI_CXX="g++")
    return program


def torch_rate(kind, name, seconds):
    return {(kind, name): float(run([PYTHON, HERE / "ddp_train.py", kind, name, WORKERS, seconds]))}


def pushpull_rate(bin_dir, name, strategy, steps):
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.ini"
        keys = {**COMMON, **JOBS[name][0], "strategy": strategy, "steps": steps}
        job.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        run([bin_dir / "pushpull", "run", "--job", job, "--servers", 1, "--workers", WORKERS, "--out",
             f"{folder}/out"])
        summary = json.loads(pathlib.Path(f"{folder}/out/summary.json").read_text())
    return {(strategy, name): summary["samples_per_second"]}


def missing_torch():
    """Returns why PyTorch cannot be measured, or None if it can."""
    test = "import torch, torch.distributed as d; assert d.is_gloo_available(), 'no Gloo in it'"
    try:
        run([PYTHON, "-c", test], timeout_s=60)
    except Failed:
        return f"{PYTHON} has no PyTorch with Gloo; install python3-torch, or set PYTHON"
    return None


def missing_mpi():
    if shutil.which("mpicxx") and shutil.which("mpirun"):
        return None
    return "no mpicxx and mpirun; install openmpi-bin and libopenmpi-dev"


def torch_version():
    done = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                          text=True, check=False)
    return done.stdout.strip() or None
