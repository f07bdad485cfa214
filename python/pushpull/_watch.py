"""The limit of task-timeout: names the place where the script hangs."""
import os
import signal
import sys
import threading
import time
import traceback

from pushpull import _library

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class Watch:
    """Watches one task at a time, on a thread of its own."""

    def __init__(self, session, seconds):
        self._session = session
        self._seconds = seconds
        self._changed = threading.Condition()
        self._task = None  # (deadline, thread, text)
        self._thread = None

    def begin(self, task):
        """Starts the time of a task, which the calling thread computes."""
        if task.kind == _library.TRAIN:
            text = f"step {task.step}, micro-batch {task.micro_batch}"
        else:
            text = f"chunk {task.micro_batch} of an evaluation"
        with self._changed:
            self._task = (time.monotonic() + self._seconds, threading.get_ident(), text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pushpull-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self):
        with self._changed:
            self._task = None

    def _run(self):
        with self._changed:
            while True:
                if self._task is None:
                    self._changed.wait(self._seconds)
                    continue
                left = self._task[0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                (_, thread, text), self._task = self._task, None
                self._give_up(thread, text)

    def _give_up(self, thread, text):
        frame = sys._current_frames().get(thread)
        stack = traceback.extract_stack(frame) if frame else []
        theirs = [entry for entry in stack if not entry.filename.startswith(_PACKAGE)] or stack
        places = ", called from ".join(f"{entry.filename}, line {entry.lineno}" for entry in reversed(theirs[-3:]))
        sys.stderr.write("".join(traceback.format_list(stack)))
        self._session.fail(f"[task-timeout] the script has not ended {text} for {self._seconds:g} s "
                           f"(task-timeout = {self._seconds:g}): it is in {places}")
        if thread == threading.main_thread().ident:
            signal.pthread_kill(thread, signal.SIGINT)  # wakes a sleeping script, with KeyboardInterrupt
