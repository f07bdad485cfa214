"""Tests `scripts/gpu-check.sh` with short scripts in place of every program, as on a machine with a GPU: its
rows for programs that pass, fail, hang, print garbage or are missing."""
import json
import os
import signal
import shutil
import time

from cluster import Cluster, JobFailed
from lab import expect
from package_test import SOURCE, called

# 7 tests, of which each of the processes runs its share; EXTRA runs within the last test
TEST = """[ "$PUSHPULL_REQUIRE_DEVICE" = 1 ] || exit 1
case $* in *--gtest_filter=\\*/Cuda* | *OnDevice*) ;; *) exit 1 ;; esac
index=${GTEST_SHARD_INDEX:-0} end='[       OK ]'
while [ $index -lt 7 ]; do
  echo "[ RUN      ] Suite.Test$index/Cuda"
  [ $index -lt 6 ] || { EXTRA; }
  echo "$end Suite.Test$index/Cuda (1 ms)"
  index=$((index + ${GTEST_TOTAL_SHARDS:-1}))
done
"""
# like the real one: its own options, then the program with its options
SANITIZER = """[ "$1" != --help ] || { echo '  --kernel-name ...'; seq 100000; exit 0; }
EXTRA
while [ "${1#-}" != "$1" ]; do case $1 in --tool | --error-exitcode | --kernel-name) shift ;; esac; shift; done
"$@"
"""
# the weights depend on the precision; writes a summary like the real program
PUSHPULL = """[ -z "$PUSHPULL_LR" ] || exit 2
precision=fp32 loss=1.50 seen=' '
while [ $# -gt 0 ]; do
  case $1 in --*) case $seen in *" $1 "*) echo "error: $1 is given twice"; exit 2 ;; esac; seen="$seen$1 " ;; esac
  case $1 in --out) out=$2 ;; --precision) precision=$2 ;; --workers) workers=$2 ;; --strategy) strategy=$2 ;; esac
  shift
done
EXTRA
case $precision in fp32) n=1 ;; tf32) n=2 ;; bf16) n=3 ;; esac
mkdir -p "$out/checkpoints"
cat >"$out/summary.json" <<END
{
  "samples_per_second": 1234.5,
  "test_loss": $loss,
  "initial_weights_sha256": "$(printf %064d 9)",
  "weights_sha256": "$(printf %064d $n)",
  "steps": 20
}
END
"""
BENCHES = {
    "gpu_copies_bench": r"""case $1 in
  floors) printf 'row\tcopy within the device\t4000\tGB/s\t-\t-\t-\n' ;;
  pipeline) printf 'row\tgradients to the host\t50\tGB/s\t52\t1.04\t<=1.1\n' ;;
esac
""",
    "gpu_matmul_bench": r"printf 'row\tproduct forward\t600\tTflop/s\t610\t1.017\t<=1.05\n'" "\n",
    "gpu_bench": r"printf 'row\tbatch_norm/large\t3.9e+03\tGB/s\t4000\t0.975\t>=0.8\n'" "\n"
                 r"printf 'row\tbatch_norm/small\t300\tGB/s\t1000\t0.3\t-\n'" "\n",
}
PYTHON = r"""[ "$1" != -c ] || { echo 2.9.0 True; exit 0; }
case $1 in
  */tests/e2e/torch_networks_check.py)
    [ "$2" = "${0%python}bin" ] && [ "$3" = "${0%python}share/pushpull/digits" ] && [ "$4 $5" = "--device cuda:0" ] || exit 1
    echo 'mlp momentum, workers 1, servers 1: worst layers.0.bias 1.4e-07 of 1e-04'
    printf 'row\tmlp\t1.4e-07\tof the norm\t-\t1.4e-07\t<=1e-04\n'
    printf 'row\tresnet18\tRESNET\tof the norm\t-\tRESNET\t<=5e-03\n'
    exit 0 ;;
  */bench/peers/gpu_compare.py) ;;
  *) exit 1 ;;
esac
printf 'row\tconvnet-100: 1 worker over PyTorch, eager\t9000\tsamples/s\t8000\t1.125\t>=1\n'
printf 'skip\tconvnet-100: PyTorch, compiled\tno compiler\n'
"""
PARTS = ("machine", "tests", "bits", "networks", "kernels", "peers", "training", "memcheck", "racecheck")


def python(resnet="8.7e-04"):
    return PYTHON.replace("RESNET", resnet)


def stand_in(path, text):
    """Writes a program of a few lines of shell in place of a real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def pushpull(extra=":"):
    return PUSHPULL.replace("EXTRA", extra)


def test_program(extra=":"):
    return TEST.replace("EXTRA", extra)


def package_of(lab, tests=None, benches=None, program=None, sanitizer=SANITIZER.replace("EXTRA", ":"), interpreter=None):
    package = lab.folder / lab.name("package")
    package.mkdir()
    shutil.copy(SOURCE / "scripts/gpu-check.sh", package)
    shutil.copytree(SOURCE / "scripts/gpu_check", package / "gpu_check")
    (package / "PACKAGE").write_text('pushpull 0 "quoted" \\, commit abc123\n')
    for name, text in (tests or {"cuda_test": test_program(), "device_test": test_program()}).items():
        stand_in(package / "tests" / name, text)
        (package / "tests" / f"{name}.filter").write_text("*/Cuda\n")
    for name, text in {**BENCHES, **(benches or {})}.items():
        if text is not None:
            stand_in(package / "bench" / name, text)
    stand_in(package / "bin/pushpull", program or pushpull())
    stand_in(package / "python", interpreter or python())
    stand_in(package / "tools/nproc", "echo 16\n")
    if sanitizer:
        stand_in(package / "cuda/bin/compute-sanitizer", sanitizer)
    return package


def environment_of(package):
    return {"PATH": f"{package}/tools:/usr/bin:/bin", "CUDA_HOME": str(package / "cuda"), "PYTHON": str(package / "python"),
            "PUSHPULL_LR": "3"}


class Checked:
    """The result of a check: its exit code, its output, its JSON, and its rows by part and name."""

    def __init__(self, code, text, out):
        self.code, self.text = code, text
        self.found = json.loads((out / "gpu-check.json").read_text())
        self.table = (out / "gpu-check.md").read_text()
        self.rows = {(row["part"], row["name"]): row for row in self.found["rows"]}
        expect(len(self.rows) == len(self.found["rows"]), f"two rows of one name: {text}")
        for row in self.found["rows"]:
            expect(row["verdict"] in ("passed", "FAILED", "measured", "not run"), f"{row}")
            expect(f"| {row['part']} | {row['name']} | {row['verdict']} |" in self.table, f"{row}: {self.table}")

    def verdict(self, part, name):
        expect((part, name) in self.rows, f"no {part} {name}: {sorted(self.rows)}")
        return self.rows[part, name]["verdict"]

    def of(self, part):
        return {name: row for (p, name), row in self.rows.items() if p == part}

    def failed(self):
        return {key for key, row in self.rows.items() if row["verdict"] == "FAILED"}


def checked(lab, package, *words):
    out = lab.folder / lab.name("check")
    code, text = called([package / "gpu-check.sh", "--out", out, *words], lab.seconds(100), cwd=lab.folder,
                        env=environment_of(package))
    return Checked(code, text, out)


def a_passing_check_ends_with_0_and_has_every_part(lab):
    package = package_of(lab)
    check = checked(lab, package)
    expect(check.code == 0 and not check.failed(), f"exit code {check.code}: {check.text}")
    expect({part for part, _ in check.rows} == set(PARTS), f"{sorted(check.rows)}")
    expect(check.found["package"].startswith('pushpull 0 "quoted" \\') and check.found["no_device"] == "", f"{check.found}")
    expect(check.found["commit"] == "abc123" and check.found["machine"], f"{check.found}")
    row = check.rows["kernels", "batch_norm/large"]
    expect((row["value"], row["unit"], row["floor"], row["ratio"], row["bar"], row["verdict"])
           == (3900, "GB/s", 4000, 0.975, ">=0.8", "passed"), f"{row}")
    expect(row["command"] == f"{package}/bench/gpu_bench --rows", f"{row}")
    expect(check.verdict("kernels", "batch_norm/small") == "measured", check.text)
    expect(check.verdict("machine", "copy within the device") == "measured", check.text)
    expect(check.verdict("peers", "convnet-100: PyTorch, compiled") == "not run", check.text)
    expect(check.rows["tests", "device_test"]["seen"] == "7 passed", check.text)
    # jobs leave only logs and summaries
    expect(not list(lab.folder.glob("check-*/jobs/*/checkpoints")), check.text)


def jobs_of_1_2_and_4_workers_are_rows_for_every_precision_and_strategy(lab):
    check = checked(lab, package_of(lab), "--only", "bits,training")
    for precision in ("fp32", "tf32", "bf16"):
        expect(check.verdict("bits", f"{precision}, 1 worker") == "measured", check.text)
        for workers in ("2 workers", "4 workers", "2 workers, server on cuda:0"):
            row = check.rows["bits", f"{precision}, {workers}"]
            expect(row["verdict"] == "passed", f"{row}")
            expect(("--server-device cuda:0" in row["command"]) == ("server" in workers), f"{row}")
        row = check.rows["bits", f"{precision} beside the processor"]
        expect(row["verdict"] == "passed" and row["ratio"] == 0 and row["floor"] == 1.5, f"{row}")
    strategies = ("sync", "async", "ssp:4", "backup:1", "local:8", "allreduce:ring", "allreduce:tree")
    for strategy in strategies:
        for workers in ("1 worker", "2 workers", "4 workers"):
            row = check.rows["training", f"{strategy}, {workers}"]
            if (strategy, workers) == ("backup:1", "1 worker"):
                expect(row["verdict"] == "not run" and "two workers" in row["seen"], f"{row}")
            else:
                expect((row["verdict"], row["value"], row["unit"]) == ("passed", 1234.5, "samples/s"), f"{row}")
                expect(f"--strategy {strategy}" in row["command"] and "--device cuda:0" in row["command"], f"{row}")
    for strategy in ("sync", "async"):
        row = check.rows["training", f"{strategy}, 2 workers, server on cuda:0"]
        expect(row["verdict"] == "passed" and "--server-device cuda:0" in row["command"], f"{row}")
    expect({part for part, _ in check.rows} == {"bits", "training"} and check.code == 0, check.text)


def a_machine_without_cudnn_is_reported(lab):
    check = checked(lab, package_of(lab, program=pushpull(
        'echo "worker 0 | device: [models] convolutions are computed without cuDNN (none)"')), "--only", "bits")
    expect(check.rows["bits", "fp32, 1 worker"]["seen"].endswith("; convolutions without cuDNN"), check.text)
    expect(check.code == 0, check.text)


def other_bits_and_distant_losses_fail(lab):
    check = checked(lab, package_of(lab, program=pushpull(
        '[ "$workers" != 4 ] || [ $precision != tf32 ] || precision=bf16; [ $precision != bf16 ] || loss=1.7')),
        "--only", "bits")
    expect(check.failed() == {("bits", "tf32, 4 workers"), ("bits", "bf16 beside the processor")},
           f"{check.failed()}: {check.text}")
    expect("--device cpu" in check.rows["bits", "the processor"]["command"], check.text)
    row = check.rows["bits", "bf16 beside the processor"]
    expect(row["bar"] == "<=0.12" and abs(row["ratio"] - 0.2 / 0.802585) < 1e-3, f"{row}")
    expect("of one worker 0000" in check.rows["bits", "tf32, 4 workers"]["seen"], check.text)
    expect(check.code == 1, f"exit code {check.code}")


def a_failure_is_a_row_and_not_the_end(lab):
    failing = "end='[  FAILED  ]'; trap 'exit 1' EXIT"
    tests = {"cuda_test": "kill -SEGV $$\n", "device_test": test_program(), "models_test": "echo 'no tests'\n",
             "slices_test": test_program(failing), "steps_test": test_program("end='[  SKIPPED ]'")}
    # the first test of cuda_test, which looks for the device, finds it
    tests["cuda_test"] = "case $* in *CudaGives*) exit 0 ;; esac\n" + tests["cuda_test"]
    sanitizer = SANITIZER.replace("EXTRA", 'case "$*" in *racecheck*device_test*) trap "exit 9" EXIT ;; esac')
    benches = {"gpu_bench": "echo 'out of memory: 5 of 7' >&2; exit 9\n",
               "gpu_matmul_bench": r"printf 'row\tproduct forward\t500\tTflop/s\t600\t1.2\t<=1.05\n'" "\n"}
    program = pushpull('[ "$strategy" != ssp:4 ] || { echo "error: [push] no answer"; echo "ended"; exit 5; }')
    check = checked(lab, package_of(lab, tests, benches, program, sanitizer))
    expect(check.code == 1, f"exit code {check.code}: {check.text}")
    wrong = {("tests", "cuda_test"): "0 passed; shard 0: exit code 139", ("tests", "models_test"): "0 passed;",
             ("tests", "slices_test"): "6 passed, 1 failed; shard 6: exit code 1 after Suite.Test6/Cuda;",
             ("tests", "steps_test"): "6 passed, 1 skipped;", ("racecheck", "device_test"): "7 passed; shard 0: exit code 9",
             ("memcheck", "models_test"): "0 passed;", ("memcheck", "slices_test"): "6 passed, 1 failed; shard 0: exit code 1", ("kernels", "gpu_bench --rows"): "exit code 9: out of memory: 5 of 7",
             ("kernels", "product forward"): "", ("training", "ssp:4, 2 workers"): "exit code 5: error: [push] no answer"}
    for key, seen in wrong.items():
        expect(key in check.failed() and seen in check.rows[key]["seen"], f"{key}: {check.rows.get(key)}")
    for key in (("tests", "device_test"), ("memcheck", "device_test"), ("training", "sync, 4 workers"),
                ("bits", "bf16, 4 workers")):
        expect(check.verdict(*key) == "passed", f"{check.rows[key]}")


def tests_run_in_processes_at_once_that_share_them(lab):
    """Each process waits for the seven others."""
    together = 'touch "$0.$GTEST_SHARD_INDEX"; until [ "$(ls "$0".? | wc -l)" = "$GTEST_TOTAL_SHARDS" ]; do sleep 0.05; done\n'
    check = checked(lab, package_of(lab, {"cuda_test": test_program(), "device_test": together + test_program()}), "--only", "tests",
                    "--budget", "40")
    row = check.rows["tests", "device_test"]
    expect((row["verdict"], row["seen"]) == ("passed", "7 passed"), f"{row}")
    expect("shards.sh 8 " in row["command"], f"{row}")


def a_process_that_crashes_or_hangs_is_a_failure_with_its_last_test(lab):
    package = package_of(lab, {"cuda_test": test_program(), "device_test": test_program("kill -SEGV $$"),
                               "models_test": test_program("trap '' TERM; sleep 1000")})
    tests = package / "gpu_check/tests.sh"
    tests.write_text(tests.read_text().replace("run_tests tests 60", "run_tests tests 3"))
    check = checked(lab, package, "--only", "tests")
    expect(check.verdict("tests", "cuda_test") == "passed", check.text)
    for name, seen in (("device_test", "6 passed; shard 6: exit code 139 within Suite.Test6/Cuda"),
                       ("models_test", "6 passed; shard 6 did not end, within Suite.Test6/Cuda; not done within 3 s")):
        row = check.rows["tests", name]
        expect(row["verdict"] == "FAILED" and seen in row["seen"], f"{row}")
    expect(check.code == 1, f"exit code {check.code}")


def garbage_output_is_a_failure(lab):
    nonsense = (r"printf 'row\ta\tfast\tGB/s\t1\t1\t>=0.8\n'", r"printf 'row\tb\t1\tGB/s\n'",
                r"printf 'row\tc\t1\tGB/s\t1\tnan\t>=0.8\n'", r"printf 'row\td\t1\tGB/s\t1\t0.9\t80 percent\n'",
                r"printf 'row\te\t1\tGB/s\t1\t-\t>=0.8\n'", r"printf 'row\tf\t1\tGB/s\t1\t1\t-\tmore\n'",
                r"printf '\000\377\001 \"\\\n'", r"printf 'row\tgood\t5\tGB/s\t-\t-\t-\n'")
    check = checked(lab, package_of(lab, benches={
        "gpu_bench": "\n".join(nonsense) + "\n", "gpu_matmul_bench": "head -c 4096 /dev/urandom\n",
        "gpu_copies_bench": ":\n"}), "--only", "kernels")
    rows = check.of("kernels")
    for name in "abcdef":
        expect(rows[name]["verdict"] == "FAILED" and "no measurement" in rows[name]["seen"], f"{rows[name]}")
    expect(rows["good"]["verdict"] == "measured" and rows["good"]["value"] == 5, f"{rows['good']}")
    for name in ("gpu_matmul_bench 4096", "gpu_copies_bench pipeline"):
        expect(rows[name]["verdict"] == "FAILED" and rows[name]["seen"].startswith("0 rows"), f"{rows[name]}")
    expect(check.code == 1, f"exit code {check.code}")


def a_job_without_a_summary_fails(lab):
    program = pushpull('[ "$strategy" != async ] || exit 0')
    check = checked(lab, package_of(lab, program=program), "--only", "training")
    expect(check.failed() == {("training", f"async, {n}") for n in
                              ("1 worker", "2 workers", "4 workers", "2 workers, server on cuda:0")},
           f"{check.failed()}")
    expect("lacks a hash" in check.rows["training", "async, 1 worker"]["seen"], check.text)


def a_hang_is_cut_off_and_the_rest_is_out_of_time(lab):
    check = checked(lab, package_of(lab, benches={"gpu_copies_bench": "sleep 1000\n"}), "--only", "machine,tests",
                    "--budget", "12")
    row = check.rows["machine", "gpu_copies_bench floors"]
    expect(row["verdict"] == "not run" and "out of time after" in row["seen"], f"{row}")
    for row in check.of("tests").values():
        expect(row["verdict"] == "not run" and "out of time" in row["seen"], f"{row}")
    expect(check.code == 4, f"exit code {check.code}: {check.text}")
    expect(check.found["seconds"] <= 12, f"{check.found['seconds']} s")


def exceeding_its_own_limit_is_a_failure(lab):
    package = package_of(lab, program=pushpull("sleep 1000"))
    jobs = package / "gpu_check/jobs.sh"
    jobs.write_text(jobs.read_text().replace("job 20 ", "job 2 "))
    parts = package / "gpu-check.sh"
    parts.write_text(parts.read_text().replace('"training   80 ', '"training    7 '))
    check = checked(lab, package, "--only", "training")
    row = check.rows["training", "sync, 1 worker"]
    expect(row["verdict"] == "FAILED" and "not done within 2 s" in row["seen"], f"{row}")
    expect(check.verdict("training", "allreduce:tree, 4 workers") == "not run", check.text)
    expect(check.code == 1, f"exit code {check.code}")


def a_signal_ends_the_programs_and_leaves_a_table(lab):
    package = package_of(lab, benches={"gpu_bench": "echo $$ >pid; sleep 1000\n"})
    out = lab.folder / "check"
    process = lab.start(package / "gpu-check.sh", "--out", out, "--only", "kernels,peers")
    lab.until(lambda: (lab.folder / "pid").exists(), 30, process.output)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    expect(process.ends(30) == 143, f"ended with {process.returncode}: {process.output()}")
    expect(time.monotonic() - begin < 25, "it waited for the program that it should have ended")
    check = Checked(process.returncode, process.output(), out)
    expect(check.verdict("kernels", "product forward") == "passed", check.text)
    for row in (check.rows["kernels", "gpu_bench --rows"], *check.of("peers").values()):
        expect(row["verdict"] == "not run" and "interrupted" in row["seen"], f"{row}")
    pid = int((lab.folder / "pid").read_text())
    lab.until(lambda: not os.path.exists(f"/proc/{pid}"), 20, lambda: f"{pid} is still there")


def missing_programs_are_reported(lab):
    package = package_of(lab, benches={"gpu_bench": None}, interpreter='[ "$1" != -c ] || exit 1\n', sanitizer=None)
    environment = os.path.exists("/usr/local/cuda/bin/compute-sanitizer")
    check = checked(lab, package, "--only", "networks,kernels,peers,sanitizer")
    expect("no gpu_bench" in check.rows["kernels", "gpu_bench --rows"]["seen"], check.text)
    for part in ("networks", "peers"):
        row, = check.of(part).values()
        expect(row["verdict"] == "not run" and "no python3 with PyTorch" in row["seen"], f"{row}")
    if not environment:
        for tool in ("memcheck", "racecheck"):
            row, = check.of(tool).values()
            expect(row["verdict"] == "not run" and "no compute-sanitizer" in row["seen"], f"{row}")
    expect(check.code == 0 and not check.failed(), f"exit code {check.code}: {check.text}")


def a_worker_that_fails_ends_the_job_with_its_line(lab):
    """As in the check of networks, which has no time to wait for a job that cannot begin."""
    folder = lab.folder / "bin"
    stand_in(folder / "pushpull-server", "eval fd=\\${$#}; echo tcp://127.0.0.1:1 >/dev/fd/$fd; exec sleep 1000\n")
    stand_in(folder / "pushpull-worker", "[ \"$3 $4\" = '--device cuda:0' ] || exit 2\n"
             "echo 'worker: error: [device] cuda:0 cannot be used'; echo 'worker: ended'; exit 9\n")
    begin = time.monotonic()
    try:
        Cluster(folder, lab.folder).run({"model": "mlp"}, worker_flags=["--device", "cuda:0"])
        text = "no failure"
    except JobFailed as error:
        text = str(error).splitlines()[0]
    expect(text.endswith("exit code 9: worker: error: [device] cuda:0 cannot be used"), text)
    expect(time.monotonic() - begin < 30, "it waited for the server")


def a_pytorch_without_a_gpu_is_reported(lab):
    check = checked(lab, package_of(lab, interpreter='[ "$1" != -c ] || echo 1.13.0 False\n'), "--only", "networks,peers")
    for part in ("networks", "peers"):
        row, = check.of(part).values()
        expect(row["verdict"] == "not run" and "PyTorch 1.13.0 of" in row["seen"] and "sees no GPU" in row["seen"], f"{row}")


    check = checked(lab, package_of(lab, interpreter='[ "$1" != -c ] || { echo 2.9.0 True; exit; }; echo "skipped: no NumPy"; exit 77\n'),
                    "--only", "networks")
    row, = check.of("networks").values()
    expect((row["verdict"], row["seen"]) == ("not run", "skipped: no NumPy"), f"{row}")


def a_network_beyond_its_bar_fails(lab):
    check = checked(lab, package_of(lab, interpreter=python(resnet="5.2e-03")), "--only", "networks")
    expect(check.failed() == {("networks", "resnet18")} and check.code == 1, f"exit code {check.code}: {check.text}")
    row = check.rows["networks", "mlp"]
    expect((row["verdict"], row["value"], row["bar"]) == ("passed", 1.4e-7, "<=1e-04"), f"{row}")


def a_missing_gpu_is_the_reason_of_every_part(lab):
    no_device = "echo 'a device is required: there is no NVIDIA driver here'; exit 1\n"
    check = checked(lab, package_of(lab, {"cuda_test": no_device, "device_test": no_device}))
    expect(check.code == 3 and check.found["no_device"] == "there is no NVIDIA driver here", check.text)
    for row in check.found["rows"]:
        expect(row["verdict"] == "not run" and row["seen"] == check.found["no_device"], f"{row}")
    expect(check.text.splitlines()[-1] == f"[gpu-check] nothing could run: {check.found['no_device']}", check.text)
    # a build without CUDA has no cuda_test
    check = checked(lab, package_of(lab, {"device_test": test_program()}))
    expect(check.code == 3 and "no CUDA in it" in check.found["no_device"], check.text)


if __name__ == "__main__":
    import lab as base
    base.main(globals())
