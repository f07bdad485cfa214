#!/usr/bin/env python3
"""pushpull.torch with a fake library: a state of the script's own, saved at checkpoints and restored."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian it is the package python3-torch, for /usr/bin/python3")
    sys.exit(77)

from fake_library import EVALUATE, TRAIN, FakeLibrary
from torch import nn
from torch.utils.data import TensorDataset

import pushpull.torch as pp

torch.set_num_threads(1)
DATA = TensorDataset(torch.arange(40.0).reshape(40, 1))


class State(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "state"
        self.said = ""

    def run_steps(self, steps, points, rank=0, keep=3):
        """Runs a script that counts its steps, from 0. Returns the counter at its end, and before each step.

        points: by step, and at the end by None: term, its start, checkpoint; a missing one is that before.
        """
        known = {}
        for step in [*steps, None]:
            known[step] = points.get(step, list(known.values())[-1] if known else (1, 0, 0))
        library = FakeLibrary([(EVALUATE, -1, 0, [0])] + [(TRAIN, step, 0, [0]) for step in steps]).install()
        library.points = known
        library.facts.update(rank=rank, checkpoint_keep=keep)
        self.counter, seen = 0, []
        job, model = pp.join(), nn.Linear(1, 3)
        job.attach(model, train=DATA, test=DATA)
        job.state(self.folder, get=lambda: {"steps": self.counter}, set=self._take)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for task in job.tasks():
                if not task.training:
                    task.report(loss=0, correct=0)
                    continue
                seen.append(self.counter)
                task.backward(model(task.batch[0]).mean())
                self.counter += 1
        self.said = said.getvalue()
        return self.counter, seen

    def _take(self, state):
        self.counter = state["steps"]

    def saved(self):
        return {path.name: torch.load(path)["steps"] for path in sorted(self.folder.glob("*.pt"))}

    def test_is_saved_at_each_checkpoint_and_at_the_end(self):
        self.run_steps(range(6), {2: (1, 0, 2), 4: (1, 0, 4), None: (1, 0, 6)})
        self.assertEqual(self.saved(), {f"step-0000000{step}.pt": step for step in (0, 2, 4, 6)})

    def test_is_restored_by_a_resume(self):
        self.run_steps(range(5), {2: (1, 0, 2), 4: (1, 0, 4), None: (1, 0, 5)})
        self.assertEqual(self.run_steps(range(4, 8), {4: (2, 4, 4), None: (2, 4, 8)}), (8, [4, 5, 6, 7]))
        self.assertEqual(self.saved()["step-00000008.pt"], 8)
        self.assertEqual(self.run_steps(range(8, 9), {8: (3, 8, 8)}, rank=1), (9, [8]))

    def test_is_restored_after_a_loss_that_leads_back(self):
        steps = [0, 1, 2, 3, 2, 3, 4]
        with unittest.mock.patch.object(FakeLibrary, "pp_next", _in_terms({0: (1, 0, 0), 2: (1, 0, 2), 4: (2, 2, 2)})):
            self.assertEqual(self.run_steps(steps, {})[1], [0, 1, 2, 3, 2, 3, 4])

    def test_of_an_earlier_run_is_moved_away(self):
        self.run_steps(range(4), {2: (1, 0, 2)})
        self.run_steps(range(1), {})
        self.assertEqual(list(self.saved()), ["step-00000000.pt"])
        self.assertEqual(sorted(path.name for path in (self.folder / "earlier").iterdir()), ["step-00000000.pt", "step-00000002.pt"])

    def test_has_as_many_files_as_the_job_has_checkpoints_and_two(self):
        self.run_steps(range(10), {step: (1, 0, step) for step in range(10)}, keep=1)
        self.assertEqual(list(self.saved()), [f"step-0000000{step}.pt" for step in (7, 8, 9)])

    def test_that_is_missing_is_named(self):
        self.run_steps(range(4), {2: (1, 0, 2)})
        with self.assertRaisesRegex(pp.Error, "goes on at step 3, and .* at steps 0, 2: resume from a checkpoint of these"):
            self.run_steps(range(3, 5), {3: (2, 3, 3)})
        for path in self.folder.glob("*.pt"):
            path.unlink()
        self.assertEqual(self.run_steps(range(3, 5), {3: (2, 3, 3)})[1], [0, 1])
        self.assertIn("no state of the script in", self.said)

    def test_is_the_newest_one_in_a_script_that_joins_late(self):
        self.run_steps(range(4), {2: (1, 0, 2)})
        self.assertEqual(self.run_steps([5], {5: (1, 0, 4)}, rank=1)[1], [2])

    def test_that_cannot_be_written_is_named(self):
        self.folder.write_text("a file")
        with self.assertRaisesRegex(pp.Error, r"^\[state\] cannot write .*step-00000000.pt: "):
            self.run_steps(range(2), {})


def _in_terms(points):
    """Returns a pp_next that takes the points of its tasks by their number."""
    following, count = FakeLibrary.pp_next, [-1]

    def pp_next(library, handle, timeout, task):
        code = following(library, handle, timeout, task)
        if task._obj.kind == TRAIN:
            count[0] += 1
        task._obj.term, task._obj.term_start, task._obj.checkpoint = points[max(one for one in points if one <= max(count[0], 0))]
        return code
    return pp_next


if __name__ == "__main__":
    unittest.main()
