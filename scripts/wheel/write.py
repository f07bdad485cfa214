#!/usr/bin/env python3
"""Writes the wheel: a zip of the Python package, libpushpull.so.0, the programs and what pip reads. Same input, same bytes.

    scripts/wheel/write.py --library FILE --programs TARBALL --version VERSION --glibc X.Y [--licence FILE...] FOLDER

TARBALL is a package of scripts/package.sh. The wheel has it as pushpull/_programs, less pages for people, and its commands
once more for the environment's bin. Prints the path of the wheel. Format: PEP 427, PEP 376 (RECORD), PEP 600 (the tag: the
oldest glibc that the library runs with; the programs bring theirs).
"""
import argparse
import base64
import hashlib
import pathlib
import stat
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "python" / "pushpull"
LIBRARY = "pushpull/libpushpull.so.0"
PROGRAMS = "pushpull/_programs"
MOMENT = (1980, 1, 1, 0, 0, 0)  # the first that a zip can state

METADATA = """\
Metadata-Version: 2.1
Name: pushpull
Version: {version}
Summary: Trains PyTorch models with several processes, through a parameter server
License: Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
{licences}Description-Content-Type: text/plain

Trains a model of your own with several processes that push gradients to servers and pull the weights.
`import pushpull` needs only the standard library; `pushpull.torch` needs torch 1.13 or newer, `pushpull.numpy` numpy.
`pushpull run --worker 'python train.py' --workers 2` starts the script's workers and their server.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: pushpull scripts/wheel/write.py
Root-Is-Purelib: false
"""


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def record(files, name):
    lines = [f"{path},sha256={digest(content)},{len(content)}" for path, content in files.items()]
    return "\n".join([*lines, f"{name},,"]) + "\n"


def platforms_of(glibc):
    """Returns the platforms of the wheel's name; the older name of the first one is for pip before 20.3."""
    return [f"manylinux_{glibc.replace('.', '_')}_x86_64", *(["manylinux2014_x86_64"] if glibc == "2.17" else [])]


def programs_of(tarball):
    """Returns the files that the wheel takes from a package, and its licences: {path: content}, the paths that can be executed,
    and {name: content}. A zip has no links: a linked file is there twice."""
    files, executable, licences = {}, set(), {}
    with tarfile.open(tarball) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            path = member.name.partition("/")[2]
            if not (member.isfile() or member.islnk()):
                if member.issym():
                    raise ValueError(f"[wheel] {tarball}: {path} is a symbolic link, which a wheel cannot have")
                continue
            content = archive.extractfile(member).read()
            if path.startswith("share/doc/pushpull/licences/"):
                licences[path.rpartition("/")[2]] = content
            elif path == "PACKAGE" or path.startswith(("bin/", "lib/", "libexec/", "share/pushpull/")):
                files[path] = content
                if member.mode & 0o100:
                    executable.add(path)
    return files, executable, licences


def write(folder, library, version, glibc, programs=None, licences=(), package=PACKAGE):
    """Writes the wheel into the folder and returns its path. Licences: files, named as their folders are."""
    files = {f"pushpull/{path.relative_to(package).as_posix()}": path.read_bytes() for path in sorted(package.rglob("*.py"))}
    files[LIBRARY] = pathlib.Path(library).read_bytes()
    executable = {LIBRARY}
    info = f"pushpull-{version}.dist-info"
    kept = {"LICENSE": (ROOT / "LICENSE").read_bytes(), **{path.parent.name: path.read_bytes() for path in map(pathlib.Path, licences)}}
    if programs:
        packed, runs, of_libraries = programs_of(programs)
        kept.update(of_libraries)
        for path, content in packed.items():
            places = [f"{PROGRAMS}/{path}", *([f"pushpull-{version}.data/scripts/{path[4:]}"] if path.startswith("bin/") else [])]
            files.update({place: content for place in places})
            executable.update(places if path in runs else ())
    for name, content in sorted(kept.items()):
        files[f"{info}/licenses/{name}"] = content
    listed = "".join(f"License-File: {name}\n" for name in sorted(kept))
    files[f"{info}/METADATA"] = METADATA.format(version=version, licences=listed).encode()
    platforms = platforms_of(glibc)
    files[f"{info}/WHEEL"] = (WHEEL + "".join(f"Tag: py3-none-{platform}\n" for platform in platforms)).encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"pushpull-{version}-py3-none-{'.'.join(platforms)}.whl"
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.create_system = 3  # Unix: external_attr holds the mode
            entry.external_attr = (stat.S_IFREG | (0o755 if name in executable else 0o644)) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    part.rename(wheel)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--glibc", required=True)
    parser.add_argument("--licence", action="append", default=[])
    parser.add_argument("folder")
    options = parser.parse_args()
    print(write(options.folder, options.library, options.version, options.glibc, options.programs, options.licence))


if __name__ == "__main__":
    main()
