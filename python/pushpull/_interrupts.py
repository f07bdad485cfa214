"""Delays Ctrl-C over code that must run as a whole, such as the end of a task."""
import signal
import threading


_is_delayed = False


class Uninterrupted:
    """A context. An interrupt in it is raised at its end; a second one, or one after `ended` is true, at once.

    Only the main thread can be interrupted; in others this changes nothing, nor does a context within one.
    ended: function without arguments.
    """

    def __init__(self, ended=lambda: False):
        self._ended = ended
        self._handler = None  # before this context
        self._pending = None  # arguments of the handler

    def __enter__(self):
        global _is_delayed
        if _is_delayed or threading.current_thread() is not threading.main_thread():
            return self
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):  # not the default, which ends the process, and not one in C
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)
            _is_delayed = True
        return self

    def __exit__(self, *_):
        if self._handler is None:
            return
        global _is_delayed
        _is_delayed = False
        signal.signal(signal.SIGINT, self._handler)
        if self._pending is not None:
            self._handler(*self._pending)

    def _note(self, *arguments):
        if self._pending is not None or self._ended():
            self._pending = None
            self._handler(*arguments)
        else:
            self._pending = arguments
