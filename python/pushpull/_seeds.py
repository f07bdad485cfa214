"""Seeds of random generators for one micro-batch, equal in all workers."""
import random
import sys

_MASK = (1 << 64) - 1

# Uses of the seeds of one micro-batch.
COMPUTE, DATA, DIGEST = range(3)


def mixed(*numbers):
    """Returns 64 bits that depend on all numbers. Source: Steele et al., "Fast splittable pseudorandom number
    generators" (OOPSLA 2014), the finalizer of SplitMix64."""
    state = 0
    for number in numbers:
        state = (state + 0x9E3779B97F4A7C15 + (number & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def seed_all(*numbers):
    """Seeds the generators of Python, of NumPy if the program uses it, and of PyTorch likewise."""
    seed = mixed(*numbers)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        _seed_torch(torch, seed)


_torch_seeders = None  # functions that seed PyTorch's generators


def _seed_torch(torch, seed):
    """Seeds as torch.manual_seed, which formats a stack trace for each kind of device that the host does not have."""
    global _torch_seeders
    if _torch_seeders is None:
        _torch_seeders = _find_torch_seeders(torch)
    for seeder in _torch_seeders:
        seeder(seed)


def _find_torch_seeders(torch):
    privates = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "")()
    for kind in ("xpu", "mtia", "mps", privates):
        module = getattr(torch, kind, None) if kind else None
        if module is not None and getattr(module, "is_available", lambda: True)():
            return [torch.manual_seed]
    processor = torch.default_generator.manual_seed
    return [torch.cuda.manual_seed_all, processor] if torch.cuda.is_available() else [processor]
