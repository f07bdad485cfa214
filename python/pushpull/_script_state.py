"""What a script keeps itself, such as averages of weights, saved and restored with the job's checkpoints. One thread uses it."""
import os
import pathlib
import re
import sys

import torch

from pushpull._error import DATA, FAILED, Error

_UNFINISHED = 2  # checkpoints that the job may not have written yet when a later one is due
_NAME = re.compile(r"step-([0-9]{8,})\.pt")


class ScriptState:
    """The state of worker 0's script in files, one for each checkpoint: FOLDER/step-00000040.pt.

    folder: one that the scripts of all workers see.
    get: returns the state, of what torch.save takes. set: takes it back.
    keep: number of checkpoints that the job keeps.
    """

    def __init__(self, folder, get, set, rank, keep):
        self._folder, self._get, self._set = pathlib.Path(folder), get, set
        self._rank, self._keep = rank, keep
        self._term, self._step = None, None  # of the last call

    def reached(self, term, start, step, is_end):
        """Saves the state at a checkpoint, and restores it where the job goes on from one.

        term, start, step: of pp_task at each micro-batch and at the end: the newest checkpoint so far.
        """
        if is_end and self._term is None:
            return
        before, self._term = self._term, term
        last, self._step = self._step, step
        if before is None and step > start:
            self._join_in(step)
        elif term != before and (before is not None or step > 0):
            self._restore(step, before is None)
        elif self._rank == 0 and (last is None or step > last):
            if last is None:
                self._set_earlier_aside()
            self._save(step)

    def _steps(self):
        names = os.listdir(self._folder) if self._folder.is_dir() else ()
        return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)

    def _path(self, step):
        return self._folder / f"step-{step:08}.pt"

    def _set_earlier_aside(self):
        """Moves the files of an earlier run away: this one begins from scratch."""
        for step in self._steps():
            aside = self._folder / "earlier"
            aside.mkdir(exist_ok=True)
            os.replace(self._path(step), aside / self._path(step).name)

    def _save(self, step):
        temporary = self._folder / f".tmp-{os.getpid()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                torch.save(self._get(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path(step))
            for old in [one for one in self._steps() if one <= step][:-self._keep - _UNFINISHED]:
                self._path(old).unlink()
        except OSError as error:
            raise Error(f"[state] cannot write {self._path(step)}: {error.strerror}", FAILED) from None

    def _join_in(self, step):
        """Takes the newest state in a job that has come to this checkpoint: worker 0 may not have saved that yet."""
        known = [one for one in self._steps() if one <= step]
        if known:
            self._set(_load(self._path(known[-1])))

    def _restore(self, step, is_resume):
        steps = self._steps()
        if not steps and is_resume:
            print(f"pushpull: [state] no state of the script in {self._folder}: it begins anew, and the job goes on at step {step}",
                  file=sys.stderr, flush=True)
        elif step not in steps:
            raise Error(f"[state] the job goes on at step {step}, and {self._folder} has the script's state at steps "
                        f"{', '.join(map(str, steps)) or 'none'}: resume from a checkpoint of these (delete the newer ones), or empty "
                        f"the folder", DATA)
        else:
            self._set(_load(self._path(step)))


def _load(path):
    return torch.load(path, map_location="cpu", weights_only=False)
