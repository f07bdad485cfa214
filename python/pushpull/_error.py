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
