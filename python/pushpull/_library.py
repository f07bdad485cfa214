"""The functions of libpushpull.so.0 (client/pushpull.h), by ctypes, which releases the interpreter's lock in each call."""
import ctypes
import os
import pathlib

from pushpull._error import USAGE, Error

NAME = "libpushpull.so.0"
VARIABLE = "PUSHPULL_LIBRARY"  # path of the library, in place of the package's own

END, TRAIN, EVALUATE, NOTHING_YET, REGROUP, VALUES = range(6)
NO_LOSS = -3.4028234663852886e38  # PP_NO_LOSS
METRICS = ("accuracy", "mean squared error", "exact match", "perplexity")  # pp_metric, as the next two
VALUE, COST = 4, 5

_int, _long, _size, _float, _double = ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_float, ctypes.c_double
_text, _pointer = ctypes.c_char_p, ctypes.POINTER


class Options(ctypes.Structure):
    _fields_ = [("join", _text), ("join_timeout", _double), ("key", _text), ("insecure", _int), ("listen", _text),
                ("advertise", _text), ("job", _text)]


class JobFacts(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("global_batch", _long), ("micro_batch", _long), ("learning_rate", _double),
                ("weight_decay", _double), ("task_timeout", _double), ("same_bits", _int), ("workers", _int),
                ("stages", _int), ("place", _int), ("loss_timeout", _double), ("rank", _int), ("steps", _long),
                ("epochs", _long), ("strategy", _text), ("checkpoint_keep", _long), ("says_rate", _int)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", _text), ("shape", _pointer(_long)), ("dimensions", _size), ("init", _int), ("value", _float),
                ("no_decay", _int), ("lr", _pointer(_double)), ("weight_decay", _pointer(_double)), ("is_average", _int),
                ("average_momentum", _float)]


class Head(ctypes.Structure):
    _fields_ = [("name", _text), ("metric", _int)]


class Model(ctypes.Structure):
    _fields_ = [("tensors", _pointer(Tensor)), ("tensor_count", _size), ("heads", _pointer(Head)), ("head_count", _size),
                ("weights", ctypes.c_void_p), ("train_samples", _long), ("test_samples", _long), ("data_digest", _text),
                ("numerics", _text), ("stages", _int), ("stage", _int), ("port", _int), ("stage_digest", _text),
                ("sample_weights", _pointer(_double)), ("in_order", _int)]


class Task(ctypes.Structure):
    _fields_ = [("kind", _int), ("step", _long), ("micro_batch", _long), ("epoch", _long), ("indices", _pointer(_long)),
                ("samples", _size), ("same_weights", _int), ("learning_rate", _double), ("checkpoint", _long),
                ("term_start", _long), ("term", ctypes.c_uint64)]


class StageGroup(ctypes.Structure):
    _fields_ = [("number", _long), ("host", _text), ("port", _int), ("over", _int)]


class Result(ctypes.Structure):
    _fields_ = [("loss", _double), ("metric", _double)]


class Progress(ctypes.Structure):
    _fields_ = [("steps", _long), ("loss", _double), ("learning_rate", _double)]


class Total(ctypes.Structure):
    _fields_ = [("name", _text), ("value", _double)]


class Sums(ctypes.Structure):
    _fields_ = [("loss", _double), ("counted", _long), ("metric", _double)]


LogFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _text)

_session = ctypes.c_void_p
_SIGNATURES = {
    "pp_open": (_int, [_pointer(Options), _pointer(_session)]),
    "pp_join": (_int, [_session, _int, _pointer(JobFacts)]),
    "pp_attach": (_int, [_session, _pointer(Model)]),
    "pp_next": (_int, [_session, _int, _pointer(Task)]),
    "pp_next_group": (_int, [_session, _int, _pointer(StageGroup)]),
    "pp_announced": (_int, [_session, _pointer(Task)]),
    "pp_all_weights": (_int, [_session, _int, _pointer(ctypes.c_void_p), _size, _pointer(_size)]),
    "pp_changed_weights": (_int, [_session, _pointer(ctypes.c_void_p), _size, _pointer(_size)]),
    "pp_gradient": (_int, [_session, _size, ctypes.c_void_p, _size]),
    "pp_lend_gradient": (_int, [_session, _size, ctypes.c_void_p, _size]),
    "pp_await_lent": (_int, [_session]),
    "pp_log": (_int, [_session, _text, _double]),
    "pp_set_lr": (_int, [_session, _double]),
    "pp_get_progress": (_int, [_session, _pointer(Progress)]),
    "pp_end": (_int, [_session, _float]),
    "pp_add_sum": (_int, [_session, _text, _double]),
    "pp_totals": (_int, [_session, _pointer(_pointer(Total)), _pointer(_size)]),
    "pp_report_values": (_int, [_session, _pointer(_double), _size]),
    "pp_report": (_int, [_session, _pointer(Sums), _size]),
    "pp_evaluated": (_int, [_session, _pointer(_long), _pointer(Result), _size]),
    "pp_fail": (_int, [_session, _text]),
    "pp_error": (_text, [_session]),
    "pp_free": (None, [_session]),
    "pp_set_log": (None, [LogFunction, ctypes.c_void_p]),
}


def _paths():
    """Returns where the library may be: the variable's path, beside this package, then where the system looks."""
    given = os.environ.get(VARIABLE)
    if given:
        return [given]
    beside = pathlib.Path(__file__).with_name(NAME)
    return [str(beside)] if beside.exists() else [NAME]


def _load():
    reasons = []
    for path in _paths():
        try:
            found = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(found, name)
                function.restype, function.argtypes = result, arguments
            return found
        except (OSError, AttributeError) as error:
            reasons.append(str(error))
    raise Error(f"[client] no usable {NAME}: {'; '.join(reasons)}; install the wheel, or set {VARIABLE} to its path", USAGE)


_loaded = None


def library():
    """Returns the library, which is loaded once. Raises Error if it cannot be."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded
