"""Compares fp16 and bf16 with PyTorch's rounding: codec_torch_test.py CODEC_ROUND

Exit code 77 (skipped) without PyTorch.
"""

import subprocess
import sys

try:
    import torch
except ImportError:
    print("PyTorch is absent: skipped")
    sys.exit(77)

PROGRAM = sys.argv[1]


def values():
    torch.manual_seed(1)
    any_bits = torch.randint(-(2**31), 2**31, (200_000,), dtype=torch.int64).to(torch.int32)
    halves = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    between = (halves[1:] + halves[:-1]) / 2  # ties
    x = torch.cat([any_bits.view(torch.float32), torch.randn(100_000) * 0.01, halves, between])
    return x[torch.isfinite(x)].contiguous()


def main():
    failures = 0
    x = values()
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        stdin = x.numpy().tobytes()
        out = subprocess.run([PROGRAM, name], input=stdin, stdout=subprocess.PIPE, check=True).stdout
        ours = torch.frombuffer(bytearray(out), dtype=torch.float32)
        largest = torch.finfo(dtype).max
        theirs = x.to(dtype).float().clamp(-largest, largest)  # PyTorch overflows to infinity
        wrong = ours.view(torch.int32) != theirs.view(torch.int32)
        failures += int(wrong.sum())
        print(f"{name}: {int(wrong.sum())} of {len(x)} differ {x[wrong][:3].tolist()}")
        assert len(ours) == len(x) > 300_000
    return 1 if failures else 0


sys.exit(main())
