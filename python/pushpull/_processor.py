"""Text that names the processor and the variables that choose arithmetic: parts of a worker's numerics."""
import os
import pathlib

_VARIABLES = ("ATEN_CPU_CAPABILITY", "BLIS_ARCH_TYPE", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "MKL_CBWR",
              "MKL_DEBUG_CPU_TYPE", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES",
              "NPY_ENABLE_CPU_FEATURES", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
              "XLA_FLAGS")
_CPU = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")


def processor():
    """Returns the model and the caches of data: libraries choose kernels and the sizes of blocks by them."""
    return f"{_model()}{_caches()}"


def variables(*names):
    """Returns the variables that are set, of `names` or else of those that choose kernels, as a list of NAME=VALUE."""
    return [f"{name}={os.environ[name]}" for name in names or _VARIABLES if os.environ.get(name)]


def cores():
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _model():
    found = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if not line:
                break  # the first core is enough
            found[key.strip()] = value.strip()
    except OSError:
        pass
    name = found.get("model name", found.get("CPU part", "unknown processor"))
    numbers = [found[key] for key in ("cpu family", "model", "stepping") if key in found]
    return " ".join([name, *(["/".join(numbers)] if numbers else [])])


def _caches():
    sizes = []
    for index in sorted(_CPU.glob("index*")):
        try:
            if (index / "type").read_text().strip() != "Instruction":
                sizes.append((index / "size").read_text().strip())
        except OSError:
            continue
    return f" cache {'/'.join(sizes)}" if sizes else ""
