"""The groups of scripts that compute the stages of a model together (docs/pytorch.md#a-model-in-stages)."""
import datetime
import sys
import time

from torch import distributed

from pushpull._error import USAGE, Error, GroupChanged

LOST = RuntimeError, OSError  # errors that torch.distributed raises when another script is gone
_STORE_TIMEOUT = datetime.timedelta(seconds=60)  # of a value in the store, once all scripts of a group have come
_TRY = datetime.timedelta(seconds=2)  # to connect to the store, before the next look for a change of the group
_SILENT = 4  # seconds: a lost script is usually known by then


class Meeting:
    """Where the scripts of a group meet: a store of torch.distributed in the script with stage 0, for all its groups."""

    def __init__(self, stage):
        self._store = None
        if stage == 0 and distributed.is_available():
            self._store = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=_STORE_TIMEOUT)

    @property
    def port(self):
        return self._store.port if self._store else 0

    def store(self, group, changes):
        """Returns a store for the group once all its scripts have come: one that still was in an earlier group would be waited for
        otherwise. Raises GroupChanged.

        changes: returns whether the group has changed, after a moment.
        """
        if not distributed.is_available() or group.port == 0:
            raise Error("[stages] no store: torch.distributed is not in this PyTorch, or not in that of the script with stage 0",
                        USAGE)
        store = distributed.PrefixStore(str(group.number), self._store or _connected(group, changes))
        store.add("here", 1)
        while store.add("here", 0) < group.stages:
            if changes():
                raise GroupChanged()
        return store


def _connected(group, changes):
    until = time.monotonic() + _STORE_TIMEOUT.total_seconds()
    while True:
        try:
            store = distributed.TCPStore(group.host, group.port, is_master=False, timeout=_TRY)
            store.set_timeout(_STORE_TIMEOUT)
            return store
        except LOST as error:
            if changes():
                raise GroupChanged() from None
            if time.monotonic() > until:
                raise Error(f"[stages] the script with stage 0 does not answer at {group.host}, port {group.port}, for "
                            f"{_STORE_TIMEOUT.total_seconds():g} s; is this port open to this host? ({' '.join(str(error).split())})"
                            ) from None


class StageGroup:
    """The scripts that compute the stages of a model together, each on the same tasks in the same order.

        with group:
            torch.distributed.init_process_group("gloo", store=group.store, rank=group.stage, world_size=group.stages)
            for task in job.tasks(): ...

    The end of the block destroys the process group, so that no other script waits for this one. If the group has changed, it
    also ends GroupChanged, and the errors that a lost script causes in the others (RuntimeError, OSError): job.groups() yields
    the next group, in which the open task is computed again.

    stage, stages: the place of this script, and the number of scripts.
    number: another one for each group, the same in all its scripts.
    host, port: of the script with stage 0.
    """

    def __init__(self, job, meeting, stage, stages, number, host, port):
        self._job, self._meeting = job, meeting
        self.stage, self.stages, self.number, self.host, self.port = stage, stages, number, host, port
        self._store = None

    @property
    def store(self):
        """Returns a store of torch.distributed for this group alone. Waits until each of its scripts has asked for it."""
        if self._store is None:
            self._store = self._meeting.store(self, self._job._group_changes)
        return self._store

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        return error is not None and self._job._leaves_group(error)


def may_be_lost_member(error):
    """Returns whether an error may come from the loss of another script."""
    return isinstance(error, GroupChanged) or isinstance(error, LOST) and not isinstance(error, Error)


def wait_for_change(session, number, error):
    """Returns whether the group has changed, or the job has ended. Waits until the loss of a worker would be known."""
    seconds = session.facts.loss_timeout
    until = time.monotonic() + seconds
    told = False
    while session.poll_group() and session.group.number == number:
        if time.monotonic() > until:
            return False
        if not told and time.monotonic() > until - seconds + _SILENT:
            told = True
            print(f"pushpull: [stages] {type(error).__name__}: {' '.join(str(error).split())}; if a script of the group is lost, "
                  f"it is known within {seconds:g} s", file=sys.stderr, flush=True)
    return True
