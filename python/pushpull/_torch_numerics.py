"""Text that names all that PyTorch's bits depend on (the numerics of a worker's declaration)."""
import re

import torch

from pushpull._processor import processor, variables


def numerics(devices):
    """devices: those that the model's tensors are on."""
    parts = [f"torch {torch.__version__}", f"cpu {_cpu()}", processor(), _blas(),
             f"{torch.get_num_threads()} threads", *variables()]
    if torch.are_deterministic_algorithms_enabled():
        parts.append("deterministic algorithms")
    if not torch.backends.mkldnn.is_available():
        parts.append("no oneDNN")
    if torch.get_float32_matmul_precision() != "highest":
        parts.append(f"{torch.get_float32_matmul_precision()} matmul precision")
    for device in sorted({str(device) for device in devices if device.type == "cuda"}):
        parts.append(f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
                     f"TF32 {torch.backends.cuda.matmul.allow_tf32}/{torch.backends.cudnn.allow_tf32}, "
                     f"benchmark {torch.backends.cudnn.benchmark}, deterministic {torch.backends.cudnn.deterministic}")
    return ", ".join(parts)


def _cpu():
    if hasattr(torch.backends, "cpu") and hasattr(torch.backends.cpu, "get_cpu_capability"):
        return torch.backends.cpu.get_cpu_capability()
    found = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    return found.group(1) if found else "unknown"


def _blas():
    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return f"BLAS {found.group(1)}" if found else "BLAS unknown"
