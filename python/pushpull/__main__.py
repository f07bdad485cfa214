"""`python -m pushpull`: runs the program pushpull of the wheel, in the place of this process."""
import os
import pathlib
import shutil
import sys

OWN = pathlib.Path(__file__).with_name("_programs") / "bin" / "pushpull"


def main():
    program = str(OWN) if OWN.exists() else shutil.which("pushpull")
    if program is None:
        print(f"[pushpull] no program pushpull: expected {OWN}, or one in PATH; install the wheel", file=sys.stderr)
        sys.exit(2)
    os.execv(program, ["pushpull", *sys.argv[1:]])


if __name__ == "__main__":
    main()
