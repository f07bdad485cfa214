"""Tests `scripts/gpu-check.sh` with short scripts in place of every program, as on a machine with a GPU: its
rows for programs that pass, fail, hang, print garbage or are missing."""
import os
import re
import shutil
import signal

from lab import expect
from package_test import SOURCE, called

# 7 tests, of which each process runs its share; EXTRA runs within the last test
TEST = """[ "$PUSHPULL_REQUIRE_DEVICE" = 1 ] || exit 1
case $* in *CudaGives*) exit 0 ;; *--gtest_filter=\\*/Cuda*) ;; *) exit 1 ;; esac
index=${GTEST_SHARD_INDEX:-0} end='[       OK ]'
while [ $index -lt 7 ]; do
  echo "[ RUN      ] Suite.Test$index/Cuda"
  [ $index -lt 6 ] || { EXTRA; }
  echo "$end Suite.Test$index/Cuda (1 ms)"
  index=$((index + ${GTEST_TOTAL_SHARDS:-1}))
done
"""
# its own options, then the program with its options
SANITIZER = """[ "$1" != --help ] || { echo '  --kernel-name ...'; exit 0; }
while [ "${1#-}" != "$1" ]; do case $1 in --tool | --error-exitcode | --kernel-name) shift ;; esac; shift; done
"$@"
"""
# the weights depend on the precision
PUSHPULL = """[ -z "$PUSHPULL_LR" ] || exit 2
device=cpu n=1 loss=1.50
while [ $# -gt 0 ]; do
  case $1 in --out) out=$2 ;; --model) model=$2 ;; --workers) workers=$2 ;; --strategy) strategy=$2 ;; --device) device=$2 ;;
    --precision) precision=$2; case $2 in tf32) n=2 ;; bf16) n=3 ;; esac ;; esac
  shift
done
EXTRA
cat >"$out/summary.json" <<END
{
  "samples_per_second": 1234.5,
  "test_loss": $loss,
  "initial_weights_sha256": "$(printf %064d 9)",
  "weights_sha256": "$(printf %064d $n)"
}
END
"""
BENCHES = {
    "gpu_copies_bench": r"printf 'row\t'$1'\t4000\tGB/s\t-\t-\t-\n'",
    "gpu_matmul_bench": r"printf 'row\tproduct forward\t600\tTflop/s\t610\t1.017\t<=1.05\n'",
    "gpu_bench": r"printf 'row\tbatch_norm/large\t3.9e+03\tGB/s\t4000\t0.975\t>=0.8\n'",
}
PYTHON = r"""[ "$1" != -c ] || exit 0
[ "$(basename "$1") $4 $5" = "torch_networks_check.py --device cuda:0" ] && [ -d "$2" ] || exit 1
printf 'row\tmlp\t1.4e-07\tof the norm\t-\t1.4e-07\t<=1e-04\n'
printf 'row\tresnet18\t5.2e-03\tof the norm\t-\t5.2e-03\t<=5e-03\n'
"""


def stand_in(path, text):
    """Writes a program of a few lines of shell in place of a real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


def package_of(lab, tests=None, benches=None, job="", build=False):
    """Returns a package, or the folder of a build, with stand-ins: `tests` and `job` are what runs in a program's last test and in
    each job."""
    root = lab.folder / lab.name("package")
    for name, extra in {"cuda_test": ":", "device_test": ":", **(tests or {})}.items():
        stand_in(root / "tests" / name, TEST.replace("EXTRA", extra))
        filters = root / "tests" / ("device" if build else "")
        filters.mkdir(exist_ok=True)
        (filters / f"{name}.filter").write_text("*/Cuda\n")
    for name, text in {**BENCHES, **(benches or {})}.items():
        stand_in(root / ("bin" if build else "bench") / name, text)
    stand_in(root / "bin/pushpull", PUSHPULL.replace("EXTRA", job))
    stand_in(root / "python", PYTHON)
    stand_in(root / "cuda/bin/compute-sanitizer", SANITIZER)
    if not build:
        (root / "libexec").mkdir()
        shutil.copy(SOURCE / "scripts/gpu-check.sh", root)
    return root


def words_of(root, *words):
    script = [root / "gpu-check.sh"] if (root / "gpu-check.sh").exists() else [SOURCE / "scripts/gpu-check.sh", "--build", root]
    environment = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(root / "cuda"), "PYTHON": str(root / "python"), "PUSHPULL_LR": "3"}
    return [*script, "--out", root / "out", *words], environment


def checked(lab, root, *words):
    """Returns (exit code, {row: (result, what was seen)}, output)."""
    words, environment = words_of(root, *words)
    code, text = called(words, lab.seconds(100), cwd=lab.folder, env=environment)
    return code, rows_of(text), text


def rows_of(text):
    rows = re.findall(r"^(\w+: .*?) +(passed|FAILED|measured|not run) +\d+ s(?:  (.*))?$", text, re.MULTILINE)
    expect(len({row[0] for row in rows}) == len(rows), f"two rows of one name: {text}")
    return {name: (result, seen) for name, result, seen in rows}


def every_part_has_rows_in_a_package_and_in_a_build(lab):
    for build in (False, True):
        code, rows, text = checked(lab, package_of(lab, build=build))
        expect(rows["tests: device_test"] == ("passed", "7 passed"), text)
        expect(rows["models: convnet tf32, 2 workers, server on cuda:0"] == ("passed", "weights 000000000000"), text)
        for name in ("models: gpt fp32, 1 worker", "strategies: async, 4 workers, server on cuda:0", "kernels: batch_norm/large",
                     "sanitizer: racecheck device_test", "torch: mlp"):
            expect(rows[name][0] == "passed", f"{name}: {text}")
        expect(rows["kernels: floors"] == ("measured", "4000 GB/s"), text)
        expect(rows["torch: resnet18"] == ("FAILED", "5.2e-03 of the norm, ratio 5.2e-03 <=5e-03"), text)
        expect(code == 1 and re.search(r"^\[gpu-check\] \d+ passed, 1 failed, 0 not run for lack of time, \d+ s; logs: ",
                                       text.splitlines()[-1]), text)


def a_failure_is_a_row_and_not_the_end(lab):
    root = package_of(lab, tests={"crash_test": "kill -SEGV $$", "wrong_test": "end='[  FAILED  ]'; trap 'exit 1' EXIT",
                                  "skipped_test": "end='[  SKIPPED ]'"},
                      benches={"gpu_bench": "echo 'out of memory' >&2; exit 9", "gpu_copies_bench": r"printf 'row\t'$1'\t1\tGB/s\t1\tnan\t<=1\n'",
                               "gpu_matmul_bench": "head -c 999 /dev/urandom"},
                      job='[ "$strategy" != ssp:4 ] || { echo "error: [push] no answer"; exit 5; }; [ "$strategy" != async ] || exit 0\n'
                          '[ "$model$workers$device" != mlp2cuda:0 ] || n=8; [ "$precision" != bf16 ] || loss=1.7')
    code, rows, text = checked(lab, root, "--only", "tests,models,strategies,kernels")
    for name, seen in {"tests: crash_test": "6 passed, 0 skipped, 0 failed (within Suite.Test6/Cuda); exit code 139",
                       "tests: wrong_test": "6 passed, 0 skipped, 1 failed (Suite.Test6/Cuda)", "tests: skipped_test": "6 passed, 1 skipped",
                       "models: mlp fp32, 2 workers": "those of one worker 0000", "models: convnet bf16, 1 worker": "loss 1.7, on the processor 1.5",
                       "strategies: ssp:4, 2 workers, server on cuda:0": "exit code 5: error: [push] no answer",
                       "strategies: async, 2 workers, server on cpu": "its summary lacks a hash", "kernels: floors": "ratio nan",
                       "kernels: gpu_bench": "exit code 9: out of memory", "kernels: gpu_matmul_bench": "it printed no rows"}.items():
        expect(rows[name][0] == "FAILED" and seen in rows[name][1], f"{name}, {seen}: {text}")
    expect(rows["tests: device_test"][0] == rows["models: mlp fp32, 1 worker"][0] == "passed" and code == 1, text)


def a_hang_is_cut_off_and_the_rest_is_out_of_time(lab):
    code, rows, text = checked(lab, package_of(lab, tests={"cuda_test": "trap '' TERM; sleep 1000"}), "--budget", "12", "--only", "tests,kernels")
    expect(rows["tests: cuda_test"][0] == "not run" and "out of time after" in rows["tests: cuda_test"][1], text)
    expect(rows["tests: device_test"][0] == rows["kernels: gpu_bench"][0] == "not run" and code == 4, text)


def a_signal_ends_the_programs_and_leaves_a_table(lab):
    root = package_of(lab, benches={"gpu_bench": "echo $$ >pid; sleep 1000"})
    words, environment = words_of(root, "--only", "kernels")
    process = lab.start("/usr/bin/env", *(f"{key}={value}" for key, value in environment.items()), *words)
    lab.until(lambda: (lab.folder / "pid").exists(), 30, process.output)
    process.send_signal(signal.SIGTERM)
    expect(process.ends(30) == 143, f"ended with {process.returncode}: {process.output()}")
    rows = rows_of(process.output())
    expect(rows["kernels: product forward"][0] == "passed" and rows["kernels: gpu_bench"][0] == "not run", process.output())
    pid = int((lab.folder / "pid").read_text())
    lab.until(lambda: not os.path.exists(f"/proc/{pid}"), 20, lambda: f"{pid} is still there")


def without_a_gpu_it_is_skipped_in_one_line(lab):
    root = package_of(lab)
    stand_in(root / "tests/cuda_test", "echo 'a device is required: there is no NVIDIA driver here'; exit 1")
    code, _, text = checked(lab, root)
    expect((code, text) == (77, "[gpu-check] skipped: there is no NVIDIA driver here\n"), f"{code}: {text}")
    (root / "tests/cuda_test").unlink()
    code, _, text = checked(lab, root)
    expect(code == 77 and "no CUDA in it" in text and len(text.splitlines()) == 1, f"{code}: {text}")


if __name__ == "__main__":
    import lab as base
    base.main(globals())
