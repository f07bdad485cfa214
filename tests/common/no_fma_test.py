"""Tests P1 (same bits): no clone of a numeric loop contains a fused multiply-add, which rounds once instead of
twice: no_fma_test.py LIBRARY. Exit code 77 (skipped) without objdump."""

import re
import shutil
import subprocess
import sys

if shutil.which("objdump") is None:
    print("objdump is absent: skipped")
    sys.exit(77)
code = subprocess.run(["objdump", "-d", sys.argv[1]], stdout=subprocess.PIPE, check=True, text=True)
fused = re.findall(r"\bv?fn?m(?:add|sub|addsub|subadd)\w*", code.stdout)
print(f"{len(fused)} fused multiply-adds in {len(code.stdout.splitlines())} lines")
sys.exit(1 if fused or "update_range" not in code.stdout else 0)
