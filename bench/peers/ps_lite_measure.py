"""ps-lite, in the fork that BytePS ships, and BytePS's own server: their source, their build, one measurement of each.
ps_lite_compare.py combines the rounds.

The source distribution of BytePS contains its ps-lite (ZeroMQ van, no protobuf) and its server. This repository keeps
nothing of it: pip downloads it, or --source names it, and it is built in a scratch folder with Debian's libzmq."""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from figures import MIB, Failed, environment, free_port, run, say  # noqa: E402

RELEASE = "byteps==0.2.5.post15"
SHA256 = "9d6a3c5be4c4b5a172739744bb32725c433f9a9f63794e1885e7376ff4eea99f"
WHAT = "ps-lite of byteps 0.2.5.post15"
# The van. As released, its receiving threads never sleep, which takes a core for each of them (three in a worker, one
# in a server, one in the scheduler). With ps_lite_receive.patch they sleep until a message arrives.
VANS = ("released", "sleeping")
# The heap. With the default settings glibc returns large messages to the kernel and allocates them as fresh pages.
HEAPS = {"default": {}, "kept": {"MALLOC_MMAP_MAX_": 0, "MALLOC_TRIM_THRESHOLD_": 1 << 34,
                                 "MALLOC_TOP_PAD_": 64 * MIB, "MALLOC_ARENA_MAX": 1}}
# How a tensor is cut into keys: BYTEPS_PARTITION_BYTES' default; the whole tensor; a size that suits ZeroMQ. The
# released van is measured with the default only, and in few steps: on few cores one may take a second.
KEY_BYTES = {"released": [4_096_000], "sleeping": [4_096_000, 1 << 40, MIB]}
MOST_STEPS = {"released": 10, "sleeping": 200}
# One thread for each sum: the default of 4 for each of 4 engine threads is slower on two cores.
BYTEPS = {"BYTEPS_OMP_THREAD_PER_GPU": 1}
FLAGS = ["-O3", "-march=native", "-fPIC", "-w"]
COMPRESSORS = ["compressor_registry", "error_feedback", "impl/dithering", "impl/onebit", "impl/randomk",
               "impl/topk", "impl/vanilla_error_feedback"]


def download(scratch):
    """Returns the path of the source distribution. pip checks its digest."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{RELEASE} --hash=sha256:{SHA256}\n")
    say(f"downloading {RELEASE}")
    try:
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", scratch,
             "--require-hashes", "--requirement", wanted])
    except Failed as error:
        raise Failed(f"[bench] no ps-lite: pip cannot download {RELEASE} ({error}); fetch it where there "
                     "is a network, and give its path with --source") from None
    return next(scratch.glob("byteps-*.tar.gz"))


def unpacked(given, scratch):
    """Returns the folder of the release: as given, or unpacked from the given or downloaded archive."""
    if given and not given.exists():
        raise Failed(f"[bench] --source: no {given}; give the source distribution of {RELEASE}, or its folder")
    folder = given if given and given.is_dir() else scratch / "release"
    if not folder.exists():
        new = scratch / "unpacking"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        run(["tar", "-xzf", given or download(scratch), "--strip-components=1", "-C", new])
        new.rename(folder)
    if not (folder / "3rdparty/ps-lite/include/ps/ps.h").exists():
        raise Failed(f"[bench] {folder} has no 3rdparty/ps-lite; give the source distribution of {RELEASE}, "
                     "or its folder, with --source")
    return folder


def compiled(program, words, sources):
    """Builds the program unless it is newer than its sources."""
    if program.exists() and all(program.stat().st_mtime > source.stat().st_mtime for source in sources):
        return program
    say(f"building {program.name}")
    run(["g++", *FLAGS, *words, "-o", program, "-lzmq", "-pthread"])
    return program


def build(given, scratch):
    """Builds all programs. Returns a map from (van, "driver" or "byteps") to program."""
    for name, package in (("g++", "g++"), ("tar", "tar"), ("patch", "patch")):
        if not shutil.which(name):
            raise Failed(f"[bench] no {name} to build ps-lite with; install {package}")
    if not any(pathlib.Path(folder, "zmq.h").exists() for folder in ("/usr/include", "/usr/local/include")):
        raise Failed("[bench] no zmq.h to build ps-lite with; install libzmq3-dev")
    scratch = scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    release, programs = unpacked(given, scratch), {}
    for van in VANS:
        tree = patched(release, scratch, van)
        include, library = [f"-I{tree / 'include'}", f"-I{tree / 'src'}"], sorted((tree / "src").glob("*.cc"))
        driver = HERE / "ps_lite_driver.cpp"
        programs[van, "driver"] = compiled(scratch / f"driver-{van}", ["-std=c++17", *include, driver, *library],
                                           [driver, HERE / "ps_lite_receive.patch"])
        server = HERE / "byteps_server.cpp"
        words = byteps_words(release, include, [server, *library])
        programs[van, "byteps"] = compiled(scratch / f"byteps-{van}", words, [server, HERE / "ps_lite_receive.patch"])
    return programs


def patched(release, scratch, van):
    """Returns a tree of ps-lite: as released, or with receivers that sleep."""
    tree = scratch / f"ps-lite-{van}"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(release / "3rdparty/ps-lite", tree)
    if van == "sleeping":
        run(["patch", "--batch", "-p1", "-d", tree, "-i", HERE / "ps_lite_receive.patch"])
    return tree


def byteps_words(release, include, sources):
    """Returns the compiler arguments for the server, as in BytePS's setup.py, but without CUDA, NCCL and RDMA."""
    common = release / "byteps/common"
    files = [release / "byteps/server/server.cc",
             *(common / f"{name}.cc" for name in ("cpu_reducer", "logging", "common")),
             *(common / "compressor" / f"{name}.cc" for name in COMPRESSORS)]
    python = pathlib.Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").exists():
        raise Failed(f"[bench] no {python}/Python.h, which BytePS's server includes; install python3-dev")
    return ["-std=c++14", "-Ofast", "-fopenmp", "-mno-avx512f", "-DBYTEPS_BUILDING_SERVER", *include,
            f"-I{python}", *files, *sources]


def cases_of(van, size):
    """Returns the driver's arguments: one for each key size."""
    steps = max(5, min(MOST_STEPS[van], 400 * MIB // size))
    return [f"{size}:{keys}:{steps}" for keys in sorted({min(size, keys) for keys in KEY_BYTES[van]})]


def best_of_keys(outputs):
    """Parses the workers' output. Returns (what, bytes) -> µs. The time of a step is the slowest worker's, that of a
    case the median of its steps; of the key sizes the fastest counts."""
    steps = {}
    for text in outputs:
        for line in text.splitlines():
            what, size, keys, *figures = line.split()
            steps.setdefault((what, int(size), int(keys)), []).append([float(figure) for figure in figures])
    found = {}
    for (what, size, _), workers in steps.items():
        time_us = statistics.median(max(step) for step in zip(*workers))
        found[what, size] = min(time_us, found.get((what, size), time_us))
    return found


def finished(processes, deadline):
    """Waits for the processes and returns their standard outputs. All processes have ended on return, also after a
    failure."""
    try:
        while any(process.poll() is None for _, process in processes):
            if any(process.poll() for _, process in processes) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        late = [name for name, process in processes if process.poll() is None]
    finally:
        for _, process in processes:
            if process.poll() is None:
                process.kill()
    outputs = [process.communicate() for _, process in processes]
    for (name, process), (_, err) in zip(processes, outputs):
        if process.returncode != 0 and name not in late:
            last = " ".join(err.strip().splitlines()[-2:])[-300:]
            raise Failed(f"[bench] {WHAT}: the {name} ended with {process.returncode}: {last}")
    if late:
        raise Failed(f"[bench] {WHAT}: the {late[0]} has not ended in time; killed")
    return [out for out, _ in outputs]


def measured(programs, van, heap, kind, workers, size, timeout_s=60):
    """Measures a scheduler, a server and workers. Returns (what, bytes) -> µs. kind: see ps_lite_driver.cpp."""
    base = {key: value for key, value in environment().items() if not key.startswith(("DMLC_", "BYTEPS_", "PS_"))}
    settings = {"DMLC_NUM_WORKER": workers, "DMLC_NUM_SERVER": 1, "DMLC_PS_ROOT_URI": "127.0.0.1",
                "DMLC_PS_ROOT_PORT": free_port(), "DMLC_NODE_HOST": "127.0.0.1", **HEAPS[heap], **BYTEPS}
    base |= {key: str(value) for key, value in settings.items()}
    driver = [programs[van, "driver"], kind, *cases_of(van, size)]
    processes = []
    for role in ["worker"] * workers + ["server", "scheduler"]:
        words = [programs[van, "byteps"]] if kind == "byteps" and role != "worker" else driver
        process = subprocess.Popen(words, env={**base, "DMLC_ROLE": role}, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append((role, process))
    return best_of_keys(finished(processes, time.monotonic() + timeout_s)[:workers])
