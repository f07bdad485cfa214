"""Tests what `pushpull submit` writes, without Slurm and Kubernetes: the batch script runs in bash with programs that stand for
pushpull and scontrol; the manifest is compared with the models of JobSet and Job in PyPI's kubeflow-trainer-api, if the
python3 in PUSHPULL_TEST_JOBSET_PYTHON has it, with PyYAML."""
import os
import re
import shutil
import signal
import stat

import lab as base
from lab import MLP, Skipped, expect

STOPPED = 75

FAKE_RUN = """#!/bin/bash
# stands for `pushpull run`: a signal takes a second to stop it, with a checkpoint
echo "$@" > words
trap 'echo stopping >> log; sleep 1; exit 75' TERM
echo running >> log
for i in $(seq 200); do sleep 0.1; [ -e end ] && exit $(cat end); done
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def begun(lab, *words, early=""):
    """Starts the batch script of a submission with fakes in the place of pushpull and scontrol.
    early: commands that the script runs between the start of pushpull and its next line."""
    out = lab.folder / lab.name("out")
    code, text = lab.call("pushpull", "submit", "--job", lab.job(MLP), "--nodes", 2, "--workers", 4, "--out", out, *words)
    expect(code == 0 and f"sbatch {out}/submit.sh" in text, f"{code}: {text}")
    script = (out / "submit.sh").read_text()
    fake = executable(lab.folder / "fake-run", FAKE_RUN)
    executable(out / "submit.sh", script.replace(str(lab.bin_dir / "pushpull"), str(fake)).replace("\nrun=$!\n", f"\n{early}\nrun=$!\n"))
    executable(lab.folder / "scontrol", "#!/bin/sh\n[ $1 = show ] && { cat shown; exit; }\necho \"$@\" >> requeued\n")
    (lab.folder / "shown").write_text("   PreemptEligibleTime=2026-11-25T00:00:00 PreemptTime=None\n")
    lab.environment["PATH"] = f"{lab.folder}:{os.environ['PATH']}"
    lab.environment["SLURM_JOB_ID"] = "77"
    for name in ("words", "log", "end", "requeued"):
        (lab.folder / name).unlink(missing_ok=True)
    process = lab.start("/bin/bash", out / "submit.sh")
    lab.until(lambda: (lab.folder / "log").exists() or process.poll() is not None, 20, process.output)
    return process


def the_script_passes_the_end_of_the_run_on(lab):
    for code in (0, 3, STOPPED):
        process = begun(lab)
        (lab.folder / "end").write_text(str(code))
        expect(process.ends(20) == code, f"{process.returncode}, not {code}: {process.output()}")
        expect(not (lab.folder / "requeued").exists(), "it was requeued without a notice")
    words = (lab.folder / "words").read_text()
    expect(re.match(r"run --over slurm --job \S+ --workers 4 --servers 2 --out \S+ --logs \S+ --resume=auto$", words), words)


def a_notice_stops_the_run_and_requeues_the_job(lab):
    process = begun(lab)
    process.send_signal(signal.SIGUSR1)
    expect(process.ends(20) == 0, f"{process.returncode}: {process.output()}")
    expect((lab.folder / "requeued").read_text() == "requeue 77\n", "scontrol requeue")
    expect("stopping" in (lab.folder / "log").read_text(), "the run was not stopped")


def sigterm_stops_the_run_and_leaves_the_job_ended(lab):
    process = begun(lab, "--time", "0:20")
    for _ in range(3):  # Slurm may repeat it
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    expect(process.ends(20) == STOPPED, f"{process.returncode}: {process.output()}")
    expect(not (lab.folder / "requeued").exists(), "a job that was cancelled is back in the queue")


def a_signal_before_the_script_knows_its_run_stops_it(lab):
    early = "until [ -e log ]; do sleep 0.05; done; kill -{} $$"
    process = begun(lab, early=early.format("TERM"))
    expect(process.ends(20) == STOPPED, f"{process.returncode}: {process.output()}")
    process = begun(lab, early=early.format("USR1"))
    expect(process.ends(20) == 0 and (lab.folder / "requeued").exists(), f"{process.returncode}: {process.output()}")


def a_preempted_job_is_requeued(lab):
    process = begun(lab)
    (lab.folder / "shown").write_text("   PreemptEligibleTime=2026-11-25T00:00:00 PreemptTime=2026-11-25T00:00:01\n")
    process.send_signal(signal.SIGTERM)
    expect(process.ends(20) == 0, f"{process.returncode}: {process.output()}")
    expect((lab.folder / "requeued").read_text() == "requeue 77\n", "scontrol requeue")


def without_sbatch_the_script_is_written_and_the_error_says_so(lab):
    lab.environment["PATH"] = str(lab.folder)
    code, text = lab.call("pushpull", "submit", "--job", lab.job(MLP), "--out", lab.folder / "out", "--go")
    expect(code == 2 and "there is no sbatch in PATH" in text and (lab.folder / "out/submit.sh").exists(), f"{code}: {text}")
    (lab.folder / "file").write_text("")
    code, text = lab.call("pushpull", "submit", "--job", lab.job(MLP), "--out", lab.folder / "file/out")
    expect(code == 8 and "submit.sh" in text, f"{code}: {text}")


CHECK = """
import sys, yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
config, manifest = yaml.safe_load_all(open(sys.argv[1]))
assert config["kind"] == "ConfigMap" and config["data"]["job.ini"] == open(sys.argv[2]).read()
def known(value):
    if isinstance(value, dict): return {key: known(item) for key, item in value.items() if item is not None}
    return [known(item) for item in value] if isinstance(value, list) else value
back = known(JobsetV1alpha2JobSet.from_dict(manifest).to_dict())
assert back == manifest, f"the model knows\\n{back}\\nof\\n{manifest}"
"""


def a_job_set_has_only_fields_of_its_schema(lab):
    python = os.environ.get("PUSHPULL_TEST_JOBSET_PYTHON")
    if not python:
        raise Skipped("needs PyPI's kubeflow-trainer-api and pyyaml in the python3 of PUSHPULL_TEST_JOBSET_PYTHON")
    job = lab.job(MLP)
    for more in ((), ("--insecure", "--lr", "0.5")):
        code, text = lab.call("pushpull", "submit", "--job", job, "--nodes", 2, "--workers", 5, "--out", "out", "--print", "jobset", *more)
        expect(code == 0, f"{code}: {text}")
        (lab.folder / "manifest.yaml").write_text(text)
        code, text = lab.call(shutil.which(python), "-c", CHECK, lab.folder / "manifest.yaml", job)
        expect(code == 0, text[-2000:])


if __name__ == "__main__":
    base.main(globals())
