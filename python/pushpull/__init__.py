"""Workers of pushpull jobs in Python: `pushpull.torch` for PyTorch, `pushpull.numpy` for any other framework.

This module needs the standard library only. The first `join` loads libpushpull.so.0.
"""
import ctypes
import fnmatch

from pushpull._error import Error
from pushpull._library import LogFunction, library

__all__ = ["Error", "Group", "group", "set_log"]
__version__ = "0.1.0"


class Group:
    """Settings of the tensors whose names fit a pattern. Of several groups the first that fits decides."""

    def __init__(self, pattern, lr=None, weight_decay=None):
        self.pattern, self.lr, self.weight_decay = pattern, lr, weight_decay

    def fits(self, name):
        return fnmatch.fnmatchcase(name, self.pattern)


def group(pattern, lr=None, weight_decay=None):
    """Returns a group for `attach`.

    pattern: of names, with * and ?, such as "*.bias".
    lr: learning rate in place of the job's; the job's schedule multiplies it.
    weight_decay: in place of the job's weight-decay.
    """
    return Group(pattern, lr, weight_decay)


_log = None  # keeps the function of set_log alive


def set_log(function):
    """Passes log lines of the library to `function(line)` instead of standard error; None: standard error again.

    The function is called by threads of the library, by one at a time. Set None before the interpreter ends.
    """
    global _log
    kept = LogFunction(lambda _, line: function(line.decode(errors="replace").rstrip("\n"))) if function else LogFunction()
    library().pp_set_log(kept, ctypes.c_void_p())
    _log = kept
