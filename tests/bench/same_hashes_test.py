#!/usr/bin/env python3
"""Tests `scripts/same_hashes.py` on programs that replace pushpull: its comparisons, and that it detects a
difference.
  same_hashes_test.py FOLDER_OF_THE_PROGRAMS
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import same_hashes  # noqa: E402

# Its weights are a function of the job and of {salt}; records and checkpoints contain the salt too.
FAKE = f"#!{sys.executable} -IS\n" + """import hashlib, json, os, pathlib, sys
salt = "{salt}"
words = dict(zip(sys.argv[2::2], sys.argv[3::2])) if sys.argv[1] == "run" else dict(zip(sys.argv[3::2], sys.argv[4::2]))
out = pathlib.Path(words["--out"])
out.mkdir(parents=True)
if words.get("--strategy") == "broken":
    sys.exit("[job] no strategy broken")
if sys.argv[1] == "replay":
    text = pathlib.Path(sys.argv[2]).read_text()
    text = text if "{replays_well}" == "yes" else text + "x"
else:
    text = salt + words["--strategy"] + ("" if words["--strategy"] != "async" else str(os.getpid()))
    if "--record" in words:
        pathlib.Path(words["--record"]).write_text(text)
    if "--stop-after" in words:
        (out / "checkpoints").mkdir()
        (out / "checkpoints" / "salt").write_text(salt)
    if words.get("--resume") == "true":
        text = (pathlib.Path(words["--checkpoint-dir"]) / "salt").read_text() + salt
(out / "summary.json").write_text(json.dumps({{"weights_sha256": hashlib.sha256(text.encode()).hexdigest()}}))
"""


def program(folder, salt, replays_well="yes"):
    path = pathlib.Path(folder)
    path.mkdir()
    (path / "pushpull").write_text(FAKE.format(salt=salt, replays_well=replays_well))
    (path / "pushpull").chmod(0o755)
    return path


class SameHashes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        root = pathlib.Path(self.folder.name)
        self.old = program(root / "old", "a")
        self.same = program(root / "same", "a")
        self.other = program(root / "other", "b")
        self.bad_replay = program(root / "bad", "a", replays_well="no")
        self.lines = []

    def wrong(self, new, *kinds, strategy="sync"):
        with tempfile.TemporaryDirectory() as folder:
            jobs = [same_hashes.job(kind, 1, 1, kind, strategy=strategy) for kind in kinds]
            return same_hashes.run_all(jobs, self.old, new, same_hashes.Lab(folder, 60), self.lines.append)

    def test_a_build_with_the_same_results_has_no_differences(self):
        self.assertEqual(0, self.wrong(self.same, "exact", "resumed"))
        self.assertEqual(0, self.wrong(self.same, "recorded", strategy="async"))
        self.assertTrue(all(line.endswith("equal") for line in self.lines), self.lines)

    def test_other_weights_and_other_checkpoints_are_detected(self):
        self.assertEqual(2, self.wrong(self.other, "exact", "resumed"))
        self.assertIn("run: ", self.lines[0])
        self.assertIn("old's checkpoint by new: ", self.lines[1])

    def test_a_differing_replay_is_detected_for_either_builds_record(self):
        self.assertEqual(1, self.wrong(self.bad_replay, "recorded", strategy="async"))
        self.assertIn("old's record by new", self.lines[0])
        self.assertIn("new's record by new", self.lines[0])
        self.assertNotIn("by old", self.lines[0])

    def test_a_run_that_fails_counts_and_says_why(self):
        self.assertEqual(1, self.wrong(self.same, "exact", strategy="broken"))
        self.assertIn("run ended with 1: [job] no strategy broken", self.lines[0])

    def test_every_strategy_codec_and_transport_is_in_the_list(self):
        text = " ".join(f"{key}={value}" for entry in same_hashes.JOBS for key, value in entry["keys"].items())
        for wanted in ("strategy=sync", "strategy=async", "strategy=ssp:2", "strategy=backup:1", "strategy=local:4",
                       "strategy=allreduce:tree", "strategy=allreduce:ring", "strategy=allreduce:gloo", "codec=fp16", "codec=bf16",
                       "codec=int8", "codec=topk", "pull-codec=bf16", "transport=shm", "transport=ipc", "transport=tcp",
                       "connections=2", "clip-norm=", "optimizer=momentum", "optimizer=nesterov", "optimizer=adam ", "optimizer=adamw",
                       "model=convnet"):
            self.assertIn(wanted, text)
        self.assertGreaterEqual(len(same_hashes.JOBS), 20)
        self.assertEqual({"exact", "resumed", "recorded"}, {entry["kind"] for entry in same_hashes.JOBS})
        names = [entry["name"] for entry in same_hashes.JOBS]
        self.assertEqual(len(names), len(set(names)))

    def test_it_ends_with_1_if_hashes_differ_and_2_without_a_build(self):
        for new, code in ((self.same, 0), (self.other, 1), (pathlib.Path("/none"), 2)):
            done = subprocess.run([ROOT / "scripts/same_hashes.py", self.old, new, "--only", "sync sgd"], capture_output=True,
                                  text=True, check=False, timeout=60)
            self.assertEqual(code, done.returncode, done.stderr + done.stdout)
        self.assertIn("build it", done.stderr)

    def test_the_built_programs_agree_with_themselves(self):
        done = subprocess.run([ROOT / "scripts/same_hashes.py", BIN, BIN, "--only", "async, shm"], capture_output=True, text=True,
                              check=False, timeout=300)
        self.assertEqual(0, done.returncode, done.stderr + done.stdout)
        self.assertIn("all hashes are equal", done.stdout.splitlines()[-1])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
