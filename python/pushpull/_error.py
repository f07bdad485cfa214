"""The error of all functions."""

# Codes of docs/exit-codes.md.
FAILED = 1
USAGE = 2
DATA = 3
STOPPED = 75


class Error(RuntimeError):
    """Says in one line why something failed.

    code: the exit code of docs/exit-codes.md that stands for it.
    """

    def __init__(self, text, code=FAILED):
        super().__init__(text)
        self.code = code


class GroupChanged(Error):
    """This worker's group has ended, since it has lost a member or its work has changed: its open task is void, and the next
    group computes it again."""

    def __init__(self):
        super().__init__("[stages] the group of this worker has changed: compute its tasks in the next one of job.groups()")
