"""The tensors of a module that a job trains: their names, weights on the way in, gradients on the way out."""
import hashlib
import inspect
import operator
import threading

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from pushpull._digest import add
from pushpull._error import USAGE, Error

_CALLS_ALWAYS = "always_call" in inspect.signature(nn.Module.register_forward_hook).parameters  # PyTorch 2.0
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


class _Entry:
    """A tensor of the job: a trained parameter, or a running statistic of a normalisation.

    place: the dict of the module that has it. key: its name there.
    """

    def __init__(self, name, tensor, place, key, momentum=None):
        self.name, self.tensor, self.momentum = name, tensor, momentum
        self.place, self.key = place, key
        self.elements = tensor.numel()

    @property
    def is_average(self):
        return self.momentum is not None

    def is_in_place(self):
        return self.place.get(self.key) is self.tensor


class _NoGradients:
    """Turns autograd off while a module or a part of it is called in evaluation mode, and only then: a loop may be left in an
    evaluation, and a traceback keeps it open. A copy, in a copy of the module, does nothing."""

    def __init__(self, module=None):
        self._is_on = module is not None
        self._calls = threading.local()  # .before: by open call of this thread, whether autograd was on, or None
        always = {"always_call": True} if _CALLS_ALWAYS else {}
        self._handles = [handle for part in (module.modules() if module else ()) for handle in
                         (part.register_forward_pre_hook(self._begin), part.register_forward_hook(self._end, **always))]

    def __reduce__(self):
        return _NoGradients, ()

    def remove(self):
        self._is_on = False
        for handle in self._handles:
            handle.remove()
        for before in getattr(self._calls, "before", [])[:1]:  # of calls that an exception has left
            self._set(before)

    def _begin(self, part, *_):
        if not hasattr(self._calls, "before"):
            self._calls.before = []
        turns_off = self._is_on and not part.training
        self._calls.before.append(torch.is_grad_enabled() if turns_off else None)
        if turns_off:
            torch.set_grad_enabled(False)

    def _end(self, *_):
        self._set(self._calls.before.pop())

    @staticmethod
    def _set(before):
        if before is not None:
            torch.set_grad_enabled(before)


class ModelTensors:
    """The tensors that a module has now.

    earlier: of the same module; parts that it knows have the modes that they had then.
    Raises Error if the module has a tensor that cannot be trained.
    """

    def __init__(self, module, earlier=None):
        self.module = module
        self.entries = []
        self._local = []  # other tensors: they stay as they are in this process
        self._frozen = []  # the parameters among them
        self._norms = []  # (module, momentum) of normalisations with statistics of the job
        self._no_gradients = None  # in an evaluation
        modes = earlier._modes if earlier else {}
        self._modes = {one: modes.get(one, one.training) for one in module.modules()}
        seen = set()
        for prefix, part in _inner(module).named_modules():
            _check_module(prefix, part)
            self._add_parameters(prefix, part, seen)
            self._add_buffers(prefix, part)
        if not self.trained():
            raise Error(f"[attach] {type(module).__name__} has no parameter that requires a gradient", USAGE)
        _check_memory(self.entries)
        self._structure = _structure(module)

    def trained(self):
        return [entry for entry in self.entries if not entry.is_average]

    def devices(self):
        return {entry.tensor.device for entry in self.entries}

    def local_digest(self):
        """Returns a hash of the tensors that stay local: frozen parameters and buffers."""
        digest = hashlib.sha256()
        for name, tensor in self._local:
            digest.update(name.encode())
            add(digest, tensor)
        return digest.hexdigest()[:16] if self._local else "none"

    def flat_weights(self):
        """Returns all weights, one tensor after the other."""
        return torch.cat([entry.tensor.detach().reshape(-1).cpu() for entry in self.entries])

    def enter(self):
        """A normalisation's running statistics become the values of the micro-batch."""
        for norm, _ in self._norms:
            norm.momentum = 1.0

    def leave(self):
        for norm, momentum in self._norms:
            norm.momentum = momentum
        self.set_mode(True)

    def keep_modes(self):
        """Makes the present modes of the parts those that set_mode(True) puts them into, if the module is in training."""
        if self.module.training:
            self._modes = {part: part.training for part in self._modes}

    def set_mode(self, training):
        """Puts the module into evaluation, or back into the modes that its parts had when it was attached."""
        if self._no_gradients:
            self._no_gradients.remove()
        self._no_gradients = None if training else _NoGradients(self.module)
        if not training:
            self.module.eval()
            return
        for part, mode in self._modes.items():
            part.training = mode

    def check_structure(self):
        """Raises Error if the module has other tensors to train than those that the servers have."""
        if _same(_structure(self.module), self._structure) and all(entry.is_in_place() for entry in self.entries):
            return
        inner = _inner(self.module)
        tensors = {_name(prefix, key): tensor for prefix, part in inner.named_modules()
                   for key, tensor in (*part._parameters.items(), *part._buffers.items())}
        for entry in self.entries:
            if tensors.get(entry.name) is not entry.tensor:
                what = "is gone" if tensors.get(entry.name) is None else "is another object"
                raise Error(f"[weights] {entry.name} {what} since the first task: the servers train what the model had then. "
                            f"Replace parts, load with assign=True and move the model before the first task", USAGE)
        now = ModelTensors(self.module, self)
        known = {entry.name for entry in self.entries}
        for entry in now.trained():
            if entry.name not in known:
                raise Error(f"[weights] parameter {entry.name} was added after the first task: the servers train what the model "
                            f"had then. Add parts before the first task", USAGE)
        self._modes, self._structure = now._modes, now._structure

    def check_frozen(self):
        """Raises Error if a parameter that was frozen has thawed: servers do not have it."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise Error(f"[gradient] parameter {name} requires a gradient, but was frozen at the first task: servers train "
                            f"what required a gradient then", USAGE)

    def _add_parameters(self, prefix, part, seen):
        for key, parameter in part._parameters.items():
            if parameter is None or id(parameter) in seen:
                continue
            seen.add(id(parameter))  # a tied parameter has its first name
            name = _name(prefix, key)
            if not parameter.requires_grad:
                self._local.append((name, parameter))
                self._frozen.append((name, parameter))
                continue
            _check_parameter(name, parameter)
            self.entries.append(_Entry(name, parameter, part._parameters, key))

    def _add_buffers(self, prefix, part):
        counts = isinstance(part, _NormBase) and part.track_running_stats and self._modes[part]
        if counts:
            if part.momentum is None:
                raise Error(f"[attach] {prefix} ({type(part).__name__}) has momentum=None, a cumulative average: give it a "
                            f"number, since servers average over workers", USAGE)
            self._norms.append((part, part.momentum))
        for key, buffer in part._buffers.items():
            if buffer is None:
                continue
            if counts and key in ("running_mean", "running_var"):
                self.entries.append(_Entry(_name(prefix, key), buffer, part._buffers, key, float(part.momentum)))
            elif key != "num_batches_tracked":
                self._local.append((_name(prefix, key), buffer))


def _name(prefix, key):
    return f"{prefix}.{key}" if prefix else key


def _structure(module):
    """Returns the parts and parameters of a module, to be compared by _same."""
    return [one for part in module.modules() for one in (part, *part._modules.values(), *part._parameters.values())]


def _same(one, other):
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _inner(module):
    """Returns the module inside those of torch.compile and DataParallel, whose names the tensors have."""
    while True:
        if isinstance(module, _PARALLEL):
            module = module.module
        elif type(module).__name__ == "OptimizedModule":
            module = module._orig_mod
        else:
            return module


def _check_module(prefix, part):
    if isinstance(part, nn.SyncBatchNorm):
        raise Error(f"[attach] {prefix} is SyncBatchNorm, which needs torch.distributed; BatchNorm's statistics are averaged "
                    f"by the servers: use it", USAGE)
    if isinstance(part, torch.jit.ScriptModule) and "running_mean" in dict(part.named_buffers(recurse=False)):
        raise Error(f"[attach] {prefix} is a scripted module with running statistics, which cannot be averaged: attach the "
                    f"module from which it was made", USAGE)
    if getattr(part, "sparse", False):
        raise Error(f"[attach] {prefix} ({type(part).__name__}) has sparse gradients: create it with sparse=False", USAGE)


def _check_memory(entries):
    """Raises Error if two tensors share memory: each would have gradients and weights of its own."""
    dense = [entry for entry in entries if entry.tensor.numel() and entry.tensor.is_contiguous()]
    dense.sort(key=lambda entry: (str(entry.tensor.device), entry.tensor.data_ptr()))
    for one, other in zip(dense, dense[1:]):
        if one.tensor.device == other.tensor.device and \
                other.tensor.data_ptr() < one.tensor.data_ptr() + one.elements * one.tensor.element_size():
            raise Error(f"[attach] {one.name} and {other.name} share memory, but are two tensors: tie them as one object "
                        f"(b.weight = a.weight)", USAGE)


def _check_parameter(name, parameter):
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise Error(f"[attach] parameter {name} has no shape yet: run the lazy module once before attach", USAGE)
    if parameter.is_meta:
        raise Error(f"[attach] parameter {name} is on the device meta, without values: give the module memory first", USAGE)
    if parameter.dtype != torch.float32:
        raise Error(f"[attach] parameter {name} is {parameter.dtype}: servers hold float32; keep it in float32 and use "
                    f"torch.autocast", USAGE)
