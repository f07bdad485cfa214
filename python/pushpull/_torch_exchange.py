"""Copies weights from the session into a module, and its gradients into the session while backward goes on."""
import ctypes
import functools
import threading

import torch

from pushpull._error import USAGE, Error


# Whether clipping by the functions of torch.nn.utils counts in the versions of gradients.
_COUNTS_CLIPPING = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")

_scaled = False  # a backward of a loss that a GradScaler has scaled goes on


class Exchange:
    """Used by the thread that computes, and by autograd's threads inside its backward.

    call: what ends a micro-batch, for messages.
    """

    def __init__(self, session, entries, call):
        self._session, self._entries, self._call = session, entries, call
        self._leaves_gradients = call is STEP  # the script may change them after backward
        self._settles = False  # the backward that goes on ends with _settle
        self._told_changed = False
        _watch_scalers()
        self._addresses_type = ctypes.c_void_p * len(entries)
        self._lent = []  # gradients that the session reads until the task has ended
        self._is_open = False  # a task is
        self._takes = False  # hooks give gradients to the session
        self.backwards = 0  # that are still to come; the last one gives its gradients
        self._left = {}  # by tensor: a gradient that was given, as the script can see it, and its version
        self._given = bytearray(len(entries))
        self._hooks = [_register(index, entry.tensor, self._on_gradient)
                       for index, entry in enumerate(entries) if not entry.is_average]
        self._trained = [index for index, entry in enumerate(entries) if not entry.is_average]
        # Views without elements share the versions of their tensors, so writing to them counts as a change of those.
        self._marks = [entry.tensor.detach().as_strided((0,), (1,)) for entry in entries]
        self._seen = None  # version and address of each tensor when its weights had been copied
        self._turn = 0  # of the tensor that is compared in any case
        self._averages = [index for index, entry in enumerate(entries) if entry.is_average]
        self._on_device = any(entry.tensor.is_cuda for entry in entries)
        self._copies = _DeviceCopies(self._lend) if self._on_device else None

    def begin(self, same_weights, again=False):
        """Begins a task: copies its weights.

        same_weights: the parameters have them.
        again: the task was begun before and not ended: gradients that were given stay.
        """
        self.check_gradients()
        self._copy_weights(averages_only=same_weights)
        self.clear()
        self._is_open = True
        self._settles = False
        self._again = again
        if not again:
            self._given = bytearray(len(self._entries))
        self._takes = False

    def check(self, every=False):
        """Raises Error if the script has changed weights since they were copied here: the servers do not see that.

        A tensor is compared if its version has moved, and so that changes by way of .data are found, too, one in turn.
        every: compares all tensors.
        """
        if self._seen is None:
            return
        turn = self._trained[self._turn % len(self._trained)]
        self._turn += 1
        moved = [index for index in self._trained if every or index == turn or self._state(index) != self._seen[index]]
        self._check_types(moved)
        addresses, kept = self._addresses_type(), []
        for index in moved:
            values = self._entries[index].tensor.detach()
            if not (values.is_cpu and values.is_contiguous()):
                values = values.cpu().contiguous()
                kept.append(values)
            addresses[index] = values.data_ptr()
        changed = self._session.changed_weights(addresses)
        if changed is not None:
            raise Error(f"[weights] the script has changed {self._entries[changed].name} after the first task: the servers hold the "
                        f"weights and do not see it. Load weights before the first task; clip or project them in the "
                        f"model's forward (docs/pytorch.md#the-tensors-of-a-model)", USAGE)

    def clear(self):
        """Drops the gradients of the parameters."""
        self._left.clear()
        for index in self._trained:
            self._entries[index].tensor.grad = None

    def check_gradients(self):
        """Notices if the script has changed gradients that were given: the servers do not see that. In a loop of the script's
        own it says so once, since such loops clip; otherwise it raises Error.
        """
        changed = next((index for index, (gradient, version) in self._left.items()
                        if self._entries[index].tensor.grad is not gradient or gradient._version != version), None)
        if changed is None or self._told_changed:
            return
        text = (f"[gradient] the script has changed the gradient of {self._entries[changed].name} after backward, which has "
                f"sent it: leave out clip_grad_norm_ (max_grad_norm, gradient_clip_val), since servers clip by the job's key "
                f"clip-norm; values can be clipped by a hook, parameter.register_hook(lambda g: g.clamp(-1, 1))")
        if not self._leaves_gradients:
            raise Error(text, USAGE)
        self._told_changed = True
        self._session.say(f"{text}; this changes nothing")

    def take(self, takes, backwards=1):
        """Gradients of backward go to the session from now on, or stay in the parameters.

        backwards: in a loop of the script's own, those of a micro-batch: the last one's gradients go, with what the others have
            added.
        """
        self._takes, self.backwards = takes, backwards

    def finish(self):
        """Gives the rest after the last backward of a task: gradients of earlier ones, and running statistics, which
        become those of the weights again."""
        self.check_gradients()
        for index, entry in enumerate(self._entries):
            if entry.is_average:
                self._give(index, entry.tensor, self._copy)
            elif entry.tensor.grad is not None and index not in self._left:
                self._pass_on(index, entry.tensor)
        if self._copies:
            self._copies.wait()
        self.restore_averages()
        if self._leaves_gradients:
            self._left.clear()  # the script may do as it likes with them
        self._takes = self._is_open = False

    def ended(self):
        """Frees the gradients of a task that has ended."""
        self._lent.clear()

    def abandon(self):
        """Drops a task that the session has dropped, with its gradients."""
        if self._copies:
            self._copies.wait()
        self.clear()
        self._lent.clear()
        self._takes = self._is_open = False

    def restore_averages(self):
        """Makes running statistics those of the open task's weights."""
        self._copy_weights(averages_only=True)

    def close(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _copy_weights(self, averages_only):
        indices = self._averages if averages_only else range(len(self._entries))
        if not indices:
            return
        self._check_types(indices)
        addresses, staged = self._addresses_type(), []
        for index in indices:
            tensor = self._entries[index].tensor
            if tensor.is_cpu and tensor.is_contiguous():
                addresses[index] = tensor.data_ptr()
                continue
            staging = _float32(tensor.shape, pinned=tensor.is_cuda)
            addresses[index] = staging.data_ptr()
            staged.append((tensor.detach(), staging))
        self._session.weights(addresses)
        for tensor, staging in staged:
            tensor.copy_(staging)
        if not averages_only:
            with torch.no_grad():
                torch._foreach_zero_(self._marks)
            self._seen = [self._state(index) for index in range(len(self._entries))]

    def _state(self, index):
        tensor = self._entries[index].tensor
        return tensor._version, tensor.data_ptr()

    def _check_types(self, indices):
        for index in indices:
            entry = self._entries[index]
            tensor = entry.tensor
            if tensor.numel() != entry.elements or tensor.dtype != torch.float32:
                raise Error(f"[weights] {entry.name} is {tensor.dtype} with {tensor.numel()} elements now, and was float32 with "
                            f"{entry.elements} at the first task: change the model before it", USAGE)

    def _on_gradient(self, index, parameter):
        if self._is_open and _scaled:
            _note_end()
            raise Error(f"[loss] a GradScaler has scaled the loss, and servers do not unscale gradients: call {self._call} without "
                        f"scaler.scale; bfloat16 in torch.autocast needs none", USAGE)
        if self._leaves_gradients and not self._settles and self._is_open:
            self._settles = True
            torch.autograd.Variable._execution_engine.queue_callback(self._settle)
        if self._takes and self.backwards <= 1:
            self._pass_on(index, parameter)

    def _pass_on(self, index, parameter):
        gradient = parameter.grad
        if gradient.is_sparse:
            raise Error(f"[gradient] that of {self._entries[index].name} is sparse: servers take dense ones", USAGE)
        self._give(index, gradient, self._lend)
        if not _COUNTS_CLIPPING:
            gradient = parameter.grad = gradient.clone()
        self._left[index] = gradient, gradient._version

    def _give(self, index, values, send):
        if self._given[index]:
            if self._again:
                return
            raise Error(f"[gradient] a second one of {self._entries[index].name} in one micro-batch: {_SECOND[self._call]}, or add "
                        f"the losses; with checkpoints of torch.utils, use_reentrant=False", USAGE)
        self._given[index] = 1
        if values.is_cuda:
            self._copies.begin(index, values)
        else:
            send(index, values)

    def _settle(self):
        """The end of a backward: from here on the script may change the gradients in their memory."""
        self._settles = False
        self.backwards -= 1
        if self.backwards > 0:
            return
        self._session.await_lent()
        if self._copies:
            self._copies.order()

    def _lend(self, index, values):
        values = self._plain(index, values)
        self._lent.append(values)
        self._session.lend_gradient(index, values.data_ptr(), values.numel())

    def _copy(self, index, values):
        values = self._plain(index, values)
        self._session.gradient(index, values.data_ptr(), values.numel())

    def _plain(self, index, values):
        """Returns values as contiguous float32."""
        values = values.detach()
        if values.dtype != torch.float32:
            raise Error(f"[gradient] that of {self._entries[index].name} is {values.dtype}: expected float32", USAGE)
        return values.contiguous()


BACKWARD, STEP = "task.backward(loss)", "loss.backward(), optimizer.step(loss=loss)"
_SECOND = {BACKWARD: "call task.backward(loss, last=False) for all losses but the last",
           STEP: "call optimizer.step() after each backward; job.loader(..., accumulate=n) is for n of them"}


def _watch_scalers():
    """Makes the backward of a loss that a GradScaler has scaled known, from now on."""
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
    plain = scaler.scale
    if hasattr(plain, "pushpull"):
        return

    @functools.wraps(plain)
    def scale(self, outputs):
        scaled = plain(self, outputs)
        for one in scaled if isinstance(scaled, (list, tuple)) else [scaled]:
            if self.is_enabled() and one.requires_grad:
                one.register_hook(_note_scaled)
        return scaled

    scale.pushpull = True
    scaler.scale = scale


def _note_scaled(_):
    """A hook of a scaled loss: its backward begins."""
    global _scaled
    _scaled = True
    torch.autograd.Variable._execution_engine.queue_callback(_note_end)


def _note_end():
    global _scaled
    _scaled = False


def _float32(shape, pinned):
    """Returns memory of this process, whatever the program's default type and device are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu", pin_memory=pinned)


def _register(index, parameter, function):
    """Calls function(index, parameter) once the parameter's gradient is accumulated. Returns the hook's handle."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(lambda _: function(index, parameter))
    with torch.enable_grad():
        accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    handle = accumulate.register_hook(lambda *_: function(index, parameter))
    return _Kept(handle, accumulate)


class _Kept:
    """A hook of PyTorch before 2.1: its node lives as long as a reference to it."""

    def __init__(self, handle, node):
        self._handle, self._node = handle, node

    def remove(self):
        self._handle.remove()


class _DeviceCopies:
    """Gradients on the way from GPUs, through pinned memory, on streams of their own. autograd has a thread for each GPU."""

    def __init__(self, send):
        self._send = send
        self._mutex = threading.Lock()
        self._streams = {}
        self._pinned = {}
        self._open = []  # (index, event, pinned memory), in order

    def begin(self, index, values):
        with self._mutex:
            self._begin(index, values)

    def order(self):
        """Later work on the present streams of the devices comes after the copies."""
        with self._mutex:
            for device, stream in self._streams.items():
                torch.cuda.current_stream(device).wait_stream(stream)

    def wait(self):
        with self._mutex:
            while self._open:
                self._open[0][1].synchronize()
                self._send_first()

    def _begin(self, index, values):
        stream = self._streams.setdefault(values.device, torch.cuda.Stream(values.device))
        pinned = self._pinned.get(index)
        if pinned is None:
            pinned = self._pinned[index] = _float32(values.shape, pinned=True)
        values = values.detach()
        stream.wait_stream(torch.cuda.current_stream(values.device))
        with torch.cuda.stream(stream):
            pinned.copy_(values, non_blocking=True)
            event = torch.cuda.Event()
            event.record(stream)
        values.record_stream(stream)  # its memory may be reused only after the copy
        self._open.append((index, event, pinned))
        while self._open and self._open[0][1].query():
            self._send_first()

    def _send_first(self):
        index, _, pinned = self._open.pop(0)
        self._send(index, pinned)
