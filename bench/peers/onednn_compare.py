"""Compares the kernels of Debian's oneDNN with those of PyPI's onednn-cpu-gomp, the newest with OpenMP of GCC there.

  onednn_compare.py [--rounds 3]    needs pip with access to PyPI, and libdnnl-dev

Builds onednn_kernels.cpp with both, runs them in alternation on one thread, and prints Markdown."""
import argparse
import pathlib
import statistics
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from figures import caption, cell, machine, markdown, positive, ratios, rounds_text, run, say, values  # noqa: E402

VERSION = "2023.2.0"
SOURCE = HERE / "onednn_kernels.cpp"


def build(folder):
    """Returns the programs with Debian's and with PyPI's oneDNN."""
    for package in ("onednn-cpu-gomp", "onednn-devel-cpu-gomp"):
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, f"{package}=={VERSION}"])
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
    include, = folder.glob("*/data/include")
    library = next(path.parent for path in folder.glob("*/data/lib/libdnnl.so.3"))
    compiler = ["g++", "-O2", "-std=c++20", SOURCE]
    run([*compiler, "-o", folder / "debian", "-ldnnl"])
    run([*compiler, "-I", include, "-o", folder / "pypi", f"-L{library}", f"-Wl,-rpath,{library}", "-ldnnl"])
    return {name: folder / name for name in ("debian", "pypi")}


def speeds(program):
    lines = run([program], OMP_NUM_THREADS="1").splitlines()
    return {name: float(speed) for name, speed in (line.split() for line in lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=3)
    arguments = parser.parse_args()
    found, rounds = machine(), {}
    with tempfile.TemporaryDirectory() as folder:
        programs = build(pathlib.Path(folder))
        for number in range(arguments.rounds):
            for name, program in programs.items():
                for kernel, speed in speeds(program).items():
                    rounds.setdefault(kernel, [{} for _ in range(arguments.rounds)])[number][name] = speed
            say(f"round {number + 1} of {arguments.rounds} is done")
    rows = [[kernel, cell(values(of, "debian")), cell(values(of, "pypi")), cell(ratios(of, "pypi", "debian"))] for kernel, of in rounds.items()]
    print(markdown(["kernel, one thread", "Debian's, gigaflop/s", f"PyPI's {VERSION}, gigaflop/s", "PyPI's / Debian's"], rows))
    medians = [ratios(of, "pypi", "debian")["median"] for of in rounds.values()]
    print(f"\nMedian of the {len(medians)} ratios: {statistics.median(medians):.2f}; {sum(ratio >= 1.15 for ratio in medians)} reach 1.15.")
    print(caption("bench/peers/onednn_compare.py", found), rounds_text(arguments.rounds))


if __name__ == "__main__":
    main()
