"""A worker's session with a job, for the jobs of all frameworks (torch.py, numpy.py). One thread uses it."""
import atexit
import contextlib
import ctypes
import os
import sys
import threading
import types
import weakref

from pushpull import _library
from pushpull._error import FAILED, STOPPED, USAGE, Error, GroupChanged
from pushpull._interrupts import Uninterrupted
from pushpull._watch import Watch

_WAIT_MS = 100  # the longest wait in the library, so that Ctrl-C is noticed

_open_sessions = weakref.WeakSet()


class Session:
    """Joins a job. Raises Error if that fails.

    address: tcp://HOST:PORT of the first server, or "auto": from the variables of the launcher (docs/clusters.md).
        None: the variable PUSHPULL_JOIN, which `pushpull run` sets.
    timeout: seconds to wait for the server.
    key: file with the job's key; None: as pushpull-worker finds it.
    job: name of one of several jobs that `pushpull run` has started with this script: that of its file, without .ini.
    keys: of the job that the script means, with _ for -, such as global_batch=256. A first server without a job takes it
        from the first worker; in another job they must have these values.
    """

    def __init__(self, address=None, timeout=60.0, key=None, insecure=False, listen=None, advertise=None, job=None, **keys):
        _install_hooks()
        address = address if job is None else _address_of(job)
        encoded = [None if text is None else os.fsencode(text) for text in (address, key, listen, advertise)]
        self._address = address or os.environ.get("PUSHPULL_JOIN")
        _leave_earlier(self._address)
        options = _library.Options(encoded[0], timeout, encoded[1], int(insecure), encoded[2], encoded[3], _job_text(keys))
        self._library = _library.library()
        self._handle = ctypes.c_void_p()
        self._process = os.getpid()
        self._ended = None  # why no task follows, once that is so
        self._failure = None  # the Error of pp_fail or of the watch
        self._watch = None
        self._holds_task = False
        self._thread = None  # that of the last task
        self._closers = []
        self._values_of = None
        self.facts = _library.JobFacts()
        _open_sessions.add(self)
        try:
            self._join(options)
        except Error as error:
            self.close()
            raise Error(str(error).replace("--join-timeout", "join(timeout=...)"), error.code) from None  # that of programs
        except BaseException as error:  # a notebook keeps it, and this session with it
            self.fail(reason_of(type(error), error, None))
            self.close()
            raise
        self.task = _library.Task()
        self.group = _library.StageGroup()  # the last one; its number is 0 if it has ended
        self._hint = _library.Task()
        if self.facts.task_timeout > 0:
            self._watch = Watch(self, self.facts.task_timeout)

    def _join(self, options):
        self.call("pp_open", ctypes.byref(options), ctypes.byref(self._handle))
        while self.facts.micro_batch == 0:
            self.call("pp_join", self._handle, _WAIT_MS, ctypes.byref(self.facts))

    def call(self, name, *arguments):
        """Calls a function of the library. Raises Error with its line."""
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise self._failure or Error(self.error(), code)

    def error(self):
        """Returns the line of the last call that failed, or ""."""
        if not self._handle:
            return self._ended or "[client] the session is closed"
        text = self._library.pp_error(self._handle)
        return text.decode(errors="replace")

    def attach(self, tensors, heads, weights, train_samples, test_samples, data_digest, numerics, stage=(0, 1, 0, ""),
               in_order=False, sample_weights=None):
        """Declares the model.

        tensors, heads: arrays of _library.Tensor and _library.Head, kept by the caller during the call.
        weights: address of the initial weights of all tensors, or None.
        stage: number, stages, port and digest; these and the rest as in pp_model.
        """
        number, stages, port, stage_digest = stage
        model = _library.Model(tensors, len(tensors), heads, len(heads), weights, train_samples, test_samples,
                               data_digest.encode(), numerics.encode(), stages, number, port, stage_digest.encode(),
                               sample_weights, int(in_order))
        self.call("pp_attach", self._handle, ctypes.byref(model))

    def next(self, meanwhile=lambda: None):
        """Waits for the next task, which self.task then describes. Returns False after the end of the job.

        A task that has not ended is the next one again. Raises GroupChanged if `poll_group` comes first.
        meanwhile: called before each wait.
        """
        self.check_process()
        if self._ended:
            raise Error(self._ended, USAGE)
        while not self._holds_task:
            meanwhile()
            with Uninterrupted():
                self.call("pp_next", self._handle, _WAIT_MS, ctypes.byref(self.task))
                if self.task.kind == _library.END:
                    self._ended = "[client] the job is over: it has no further task"
                    return False
                if self.task.kind == _library.REGROUP:
                    raise GroupChanged()
                if self.task.kind not in (_library.NOTHING_YET, _library.VALUES):
                    self._holds_task = True
                    self._thread = threading.get_ident()
                    if self._watch:
                        self._watch.begin(self.task)
            if self.task.kind == _library.VALUES:
                self._report_values()
        return True

    def compute_values(self, function):
        """Lets `next` compute the values of the heads with a formula.

        function: takes the named sums of an evaluation as a dict, and returns the values in the order of the heads.
        """
        self._values_of = function

    def _report_values(self):
        totals, count = ctypes.POINTER(_library.Total)(), ctypes.c_size_t()
        self.call("pp_totals", self._handle, ctypes.byref(totals), ctypes.byref(count))
        values = self._values_of({one.name.decode(): one.value for one in totals[:count.value]})
        self.call("pp_report_values", self._handle, (ctypes.c_double * len(values))(*values), len(values))

    def poll_group(self):
        """Waits a moment for another group than the last one; self.group then describes it, or the last one. Drops an open
        task of a group that has ended. Returns False after the end of the job.
        """
        before = self.group.number
        self.call("pp_next_group", self._handle, _WAIT_MS, ctypes.byref(self.group))
        if self.group.over or self.group.number != before:
            self._end_task()
        return not self.group.over

    def announced(self):
        """Returns the next task that will probably come, as (kind, step, micro-batch, epoch, indices), or None."""
        self.call("pp_announced", self._handle, ctypes.byref(self._hint))
        if self._hint.kind == _library.NOTHING_YET:
            return None
        return (self._hint.kind, self._hint.step, self._hint.micro_batch, self._hint.epoch,
                self._hint.indices[:self._hint.samples])

    @contextlib.contextmanager
    def watched(self, task):
        """Returns a context in which task-timeout limits the reading of an announced task."""
        if self._watch:
            kind, step, micro_batch = task[:3]
            self._watch.begin(types.SimpleNamespace(kind=kind, step=step, micro_batch=micro_batch))
        try:
            yield
        finally:
            if self._watch:
                self._watch.end()

    def indices(self):
        """Returns the indices of the task's samples."""
        return self.task.indices[:self.task.samples]

    def weights(self, addresses):
        """Copies the task's weights, and waits until they have arrived. The time of the task begins then.

        addresses: array of c_void_p for each tensor, None: it is not copied. All are None afterwards.
        """
        missing = ctypes.c_size_t(1)
        if self._watch:
            self._watch.end()
        while missing.value > 0:
            self.call("pp_all_weights", self._handle, _WAIT_MS, addresses, len(addresses), ctypes.byref(missing))
        if self._watch and self._holds_task:
            self._watch.begin(self.task)

    def changed_weights(self, addresses):
        """Returns the first tensor whose values are not those that `weights` copied last, or None.

        addresses: array of c_void_p for each tensor, None: it is not compared.
        """
        changed = ctypes.c_size_t()
        self.call("pp_changed_weights", self._handle, addresses, len(addresses), ctypes.byref(changed))
        return None if changed.value == len(addresses) else changed.value

    def gradient(self, tensor, address, elements):
        """Copies a gradient."""
        self.call("pp_gradient", self._handle, tensor, address, elements)

    def lend_gradient(self, tensor, address, elements):
        """Copies a gradient until `end` has returned. The caller keeps it as it is until then."""
        self.call("pp_lend_gradient", self._handle, tensor, address, elements)

    def log(self, name, value):
        """Adds a value to the job's figure of this name. Any thread."""
        try:
            value = float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, RuntimeError):
            raise Error(f"[log] {name} is {value!r:.80}: expected a number", USAGE) from None
        self.call("pp_log", self._handle, name.encode(), value)

    def set_lr(self, rate):
        """Says the learning rate that holds from the open task on, or from the next one."""
        self.call("pp_set_lr", self._handle, rate)

    def progress(self):
        """Returns the complete steps in the weights of the task, and the loss and the rate of the last one, or NaN."""
        found = _library.Progress()
        self.call("pp_get_progress", self._handle, ctypes.byref(found))
        return found.steps, found.loss, found.learning_rate

    def await_lent(self):
        """Waits until lent gradients are copied: the caller may change them."""
        self.call("pp_await_lent", self._handle)

    def evaluated(self, heads):
        """Returns the step of the job's newest evaluation that is known here, or -1, and (loss, metric) of each head."""
        step, results = ctypes.c_int64(), (_library.Result * heads)()
        self.call("pp_evaluated", self._handle, ctypes.byref(step), results, heads)
        return step.value, [(one.loss, one.metric) for one in results]

    def end(self, loss):
        with self.uninterrupted():
            self.call("pp_end", self._handle, loss)
            self._end_task()

    def report(self, sums, named=()):
        """Ends an evaluation's task.

        sums: (loss, counted, metric) of each head. named: sums by name.
        """
        for name, value in dict(named).items():
            self.call("pp_add_sum", self._handle, name.encode(), value)
        array = (_library.Sums * len(sums))(*(_library.Sums(*each) for each in sums))
        with self.uninterrupted():
            self.call("pp_report", self._handle, array, len(sums))
            self._end_task()

    def say(self, line):
        """Prints a line for users, if this is worker 0: the scripts of a job would all say the same."""
        if self.facts.rank == 0:
            print(f"pushpull: {line}", file=sys.stderr, flush=True)

    def uninterrupted(self):
        """Returns a context that delays Ctrl-C, unless the session has failed."""
        return Uninterrupted(lambda: self._failure is not None)

    def fail(self, text, code=FAILED):
        """Leaves the job with this line as the reason. Any thread."""
        if self._handle and not self.is_forked():
            self._failure = self._failure or Error(text, code)
            self._library.pp_fail(self._handle, text.replace("\n", " ").encode())

    @property
    def failure(self):
        """Returns the Error that ended the session by `fail`, or None."""
        return self._failure

    def is_used_by(self, thread):
        """Returns whether this thread has got the last task."""
        return self._thread == thread

    def is_forked(self):
        """Returns whether this process is a fork of the one that has joined."""
        return self._process != os.getpid()

    def check_process(self):
        if self.is_forked():
            raise Error("[client] the session belongs to the process that has joined: a forked process has none", USAGE)

    def is_open(self):
        return bool(self._handle)

    def when_closed(self, function):
        """Calls it, without arguments, when the session ends."""
        self._closers.append(function)

    @property
    def address(self):
        return self._address

    def close(self):
        """Ends the session: the job loses this worker if it is not over. May be called twice."""
        if self.is_forked() or not self._handle:
            return
        while self._closers:
            self._closers.pop()()
        self._end_task()
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._ended = self._ended or "[client] the session is closed"
        self._library.pp_free(handle)

    def __del__(self):
        if hasattr(self, "_handle"):
            self.close()

    def _end_task(self):
        self._holds_task = False
        if self._watch:
            self._watch.end()


def _job_text(keys):
    """Returns keys of a job as lines of a job file, or None if there are none."""
    lines = [f"{key.replace('_', '-')} = {_value_text(value)}" for key, value in keys.items() if value is not None]
    for line in lines:
        if "\n" in line or "\0" in line:
            raise Error(f"[join] {line.split(' =')[0]}: expected a value of one line", USAGE)
    return "\n".join(lines).encode() or None


def _address_of(job):
    """Returns the address of one of the jobs in PUSHPULL_JOBS."""
    jobs = dict(one.split("=", 1) for one in os.environ.get("PUSHPULL_JOBS", "").split(",") if "=" in one)
    if job not in jobs:
        known = f"PUSHPULL_JOBS has {', '.join(jobs)}" if jobs else "pushpull run sets PUSHPULL_JOBS with several --job"
        raise Error(f"[join] there is no job '{job}' among several: {known}", USAGE)
    return jobs[job]


def _value_text(value):
    if isinstance(value, (list, tuple)):
        return ",".join(map(_value_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _leave_earlier(address):
    """At a prompt, where a cell may be run again, ends the session that an earlier run of it has with the job.

    The job would wait for that session's next task, which nobody asks for any more.
    """
    if not hasattr(sys, "ps1"):
        return
    for session in [one for one in _open_sessions if one.address == address and one.is_open()]:
        print(f"pushpull: [join] this program has joined {address} before: that session ends now", file=sys.stderr, flush=True)
        session.close()


# ---- the end of the program ----

_hooks_installed = False


def _install_hooks():
    global _hooks_installed
    if _hooks_installed:
        return
    _hooks_installed = True
    atexit.register(_close_all)
    before, before_in_thread = sys.excepthook, threading.excepthook

    def hook(kind, error, trace):
        _on_uncaught(before, kind, error, trace)

    def hook_in_thread(arguments):
        _on_uncaught_in_thread(arguments)
        before_in_thread(arguments)

    sys.excepthook, threading.excepthook = hook, hook_in_thread


def _close_all():
    for session in list(_open_sessions):
        session.close()


def _on_uncaught(before, kind, error, trace):
    """Tells the job why the script ends. An Error is shown as one line, and its code is the script's."""
    if hasattr(sys, "ps1"):  # a prompt: the program goes on
        before(kind, error, trace)
        return
    failures = [session.failure for session in _open_sessions if session.failure]
    shown = error if isinstance(error, Error) else None
    if issubclass(kind, KeyboardInterrupt) and failures:
        shown = failures[0]  # the watch has interrupted the script
    for session in list(_open_sessions):
        session.fail(_line_of(kind, error, trace))
    if shown is None:
        before(kind, error, trace)
        return
    kind = "" if shown.code == STOPPED else "error: "
    print(f"pushpull: {kind}{_printable(str(shown))}", file=sys.stderr, flush=True)
    raise SystemExit(shown.code)


def _printable(text):
    """Returns the text with its control characters escaped, which a name of a tensor may have."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _on_uncaught_in_thread(arguments):
    """Tells the job that the thread with its tasks has ended. Other threads are the program's business."""
    for session in list(_open_sessions):
        if arguments.thread is not None and session.is_used_by(arguments.thread.ident):
            session.fail(_line_of(arguments.exc_type, arguments.exc_value, arguments.exc_traceback))


def _line_of(kind, error, trace):
    return str(error) if isinstance(error, Error) else reason_of(kind, error, trace)


def reason_of(kind, error, trace):
    """Returns an exception with its place, in one line."""
    place = ""
    if trace is not None:
        while trace.tb_next is not None:
            trace = trace.tb_next
        place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
    text = " ".join(str(error).split())
    return f"[script] {kind.__name__}{': ' if text else ''}{text}{place}"
