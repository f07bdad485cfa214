"""Workers of pushpull jobs in Python: `pushpull.torch` for PyTorch, `pushpull.numpy` for any other framework.

This module needs the standard library only. The first `join` loads libpushpull.so.0.
"""
import atexit
import ctypes

from pushpull._error import Error
from pushpull._job import Group, cost, group
from pushpull._library import LogFunction, library

__all__ = ["Error", "Group", "cost", "group", "set_log"]
__version__ = "0.1.0"


_log = None  # keeps the function of set_log alive


def set_log(function):
    """Passes log lines of the library to `function(line)` instead of standard error; None: standard error again.

    The function is called by threads of the library, by one at a time. The interpreter's end sets None.
    """
    global _log
    if _log is None:
        atexit.register(set_log, None)
    kept = LogFunction(lambda _, line: function(line.decode(errors="replace").rstrip("\n"))) if function else LogFunction()
    library().pp_set_log(kept, ctypes.c_void_p())
    _log = kept
