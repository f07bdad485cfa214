#!/usr/bin/env python3
"""Writes the wheel: a zip of the Python package, libpushpull.so.0 and what pip reads. Same input, same bytes.

    scripts/wheel/write.py --library FILE --version VERSION --glibc X.Y [--licence FILE...] FOLDER

Prints the path of the wheel. Format: PEP 427, PEP 376 (RECORD), PEP 600 (the tag: the oldest glibc it runs with).
"""
import argparse
import base64
import hashlib
import pathlib
import stat
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "python" / "pushpull"
LIBRARY = "pushpull/libpushpull.so.0"
MOMENT = (1980, 1, 1, 0, 0, 0)  # the first that a zip can state

METADATA = """\
Metadata-Version: 2.1
Name: pushpull
Version: {version}
Summary: Workers of pushpull jobs: trains PyTorch models through a parameter server
License: Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
{licences}Description-Content-Type: text/plain

Trains a model of your own with several processes that push gradients to servers and pull the weights.
`import pushpull` needs only the standard library; `pushpull.torch` needs torch 1.13 or newer, `pushpull.numpy` numpy.
The programs pushpull and pushpull-server, which start a job, are not in this package.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: pushpull scripts/wheel/write.py
Root-Is-Purelib: false
Tag: {tag}
"""


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def record(files, name):
    lines = [f"{path},sha256={digest(content)},{len(content)}" for path, content in files.items()]
    return "\n".join([*lines, f"{name},,"]) + "\n"


def tag_of(glibc):
    return f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"


def write(folder, library, version, glibc, licences=(), package=PACKAGE):
    """Writes the wheel into the folder and returns its path. Licences: files, named as their folders are."""
    files = {f"pushpull/{path.relative_to(package).as_posix()}": path.read_bytes() for path in sorted(package.rglob("*.py"))}
    files[LIBRARY] = pathlib.Path(library).read_bytes()
    info = f"pushpull-{version}.dist-info"
    kept = {"LICENSE": ROOT / "LICENSE", **{path.parent.name: path for path in map(pathlib.Path, licences)}}
    for name, path in sorted(kept.items()):
        files[f"{info}/licenses/{name}"] = path.read_bytes()
    listed = "".join(f"License-File: {name}\n" for name in sorted(kept))
    files[f"{info}/METADATA"] = METADATA.format(version=version, licences=listed).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag_of(glibc)).encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"pushpull-{version}-{tag_of(glibc)}.whl"
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.create_system = 3  # Unix: external_attr holds the mode
            entry.external_attr = (stat.S_IFREG | (0o755 if name == LIBRARY else 0o644)) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    part.rename(wheel)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--glibc", required=True)
    parser.add_argument("--licence", action="append", default=[])
    parser.add_argument("folder")
    options = parser.parse_args()
    print(write(options.folder, options.library, options.version, options.glibc, options.licence))


if __name__ == "__main__":
    main()
