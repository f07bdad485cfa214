#!/usr/bin/env python3
"""Checks a finished wheel. Prints a summary, or a line for each mistake, and then exits with 1.

    scripts/wheel/check.py WHEEL

The files are those of RECORD, with its hashes. The library exports pp_* only, needs no library outside glibc, and no
symbol that is younger than the glibc of the wheel's tag. The programs have all libraries that they need, except those of
CUDA; each command is there.
"""
import base64
import csv
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

LIBRARY = "pushpull/libpushpull.so.0"
PROGRAMS = "pushpull/_programs/"
COMMANDS = {"pushpull", "pushpull-server", "pushpull-worker", "pushpull-proxy", "pushpull-netlab"}
OF_A_DEVICE = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn.*|nvidia-.*)\.so")
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}


def lines(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout.splitlines()


def number(version):
    return tuple(int(part) for part in version.split("."))


def needed_symbols(library):
    """Returns (name, version) of each versioned symbol that a library needs."""
    found = []
    for line in lines("nm", "-D", "--undefined-only", "--with-symbol-versions", library):
        name, _, version = line.split()[-1].partition("@")
        if version:
            found.append((name, version.lstrip("@")))
    return found


def oldest_glibc(library):
    """Returns the version of the youngest symbol of glibc that a library needs, such as "2.28"."""
    versions = [version[len("GLIBC_"):] for _, version in needed_symbols(library) if re.fullmatch(r"GLIBC_[\d.]+", version)]
    return max(versions, key=number)


def needed_by(dynamic):
    """Returns the names of the libraries that a file needs, of the lines of its dynamic section."""
    return {match.group(1) for line in dynamic for match in [re.search(r"\(NEEDED\).*\[(.*)\]", line)] if match}


def programs_mistakes(archive, folder):
    """Returns a line for each command or library that the programs lack, and each that cannot be executed."""
    modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    scripts = {name.rpartition("/")[2]: name for name in modes if re.fullmatch(r"pushpull-[^/]+\.data/scripts/[^/]+", name)}
    mistakes = [] if set(scripts) == COMMANDS else [f"the commands are {sorted(scripts)}; expected {sorted(COMMANDS)}"]
    libraries = {name.rpartition("/")[2] for name in modes if re.fullmatch(PROGRAMS + r"lib/pushpull/[^/]+", name)}
    programs = [name for name in modes if name.startswith(PROGRAMS + "libexec/")]
    loaders = [f"{PROGRAMS}lib/pushpull/loader/{name.rpartition('/')[2]}" for name in programs]
    mistakes += [f"{name} is missing" for name in loaders if name not in modes]
    run = [*scripts.values(), *programs, *loaders, *(name for name in modes if name.startswith(PROGRAMS + "bin/"))]
    mistakes += [f"{name} has mode {modes[name]:o}; expected one that can be executed" for name in run if not modes.get(name, 0o100) & 0o100]
    for name in [*programs, *(f"{PROGRAMS}lib/pushpull/{library}" for library in libraries)]:
        needed = needed_by(lines("readelf", "--dynamic", "--wide", archive.extract(name, folder)))
        mistakes += [f"{name} needs {library}, which is missing" for library in sorted(needed - libraries) if not OF_A_DEVICE.match(library)]
    if PROGRAMS + "share/pushpull/digits/train-images.idx3-ubyte" not in modes:
        mistakes.append("the digits are missing")
    return mistakes


def library_mistakes(library, glibc):
    """Returns a line for each reason why the library does not suit any machine with that glibc."""
    mistakes = []
    exported = [line.split()[-1] for line in lines("nm", "-D", "--defined-only", library)]
    foreign = [name for name in exported if not name.startswith("pp_")]
    if foreign or not exported:
        mistakes.append(f"{library} exports {', '.join(foreign[:8]) or 'nothing'}; expected pp_* only")
    for name, version in needed_symbols(library):
        if not re.fullmatch(r"GLIBC_[\d.]+", version) or number(version[len("GLIBC_"):]) > number(glibc):
            mistakes.append(f"{library} needs {name} of {version}; expected GLIBC_{glibc} or older")
    dynamic = lines("readelf", "--dynamic", "--wide", library)
    needed = needed_by(dynamic)
    if needed - GLIBC:
        mistakes.append(f"{library} needs {', '.join(sorted(needed - GLIBC))}; expected libraries of glibc only")
    mistakes += [f"{library} has {match.group(1)}; expected none" for line in dynamic
                 for match in [re.search(r"\((RPATH|RUNPATH|TEXTREL)\)", line)] if match]
    return mistakes


def record_mistakes(archive):
    """Returns a line for each file that differs from its line in RECORD."""
    names = archive.namelist()
    listings = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(listings) != 1:
        return [f"{len(listings)} files are named RECORD; expected 1"]
    rows = {row[0]: row[1:] for row in csv.reader(archive.read(listings[0]).decode().splitlines())}
    mistakes = [f"RECORD lacks {name}" for name in names if name not in rows]
    mistakes += [f"RECORD lists {name}, which is missing" for name in rows if name not in names]
    for name in sorted(set(names) & set(rows) - set(listings)):
        content = archive.read(name)
        want = f"sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()}"
        if rows[name] != [want, str(len(content))]:
            mistakes.append(f"{name} has {want} and {len(content)} bytes; RECORD says {' and '.join(rows[name])}")
    return mistakes


def wheel_mistakes(wheel):
    tag = re.fullmatch(r"pushpull-[\w.+]+-py3-none-(manylinux_(\d+)_(\d+)_x86_64(?:\.manylinux2014_x86_64)?)\.whl", pathlib.Path(wheel).name)
    if not tag:
        return [f"{wheel} is not named pushpull-VERSION-py3-none-manylinux_X_Y_x86_64[.manylinux2014_x86_64].whl"]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        mistakes = record_mistakes(archive)
        stated = [line for name in archive.namelist() if name.endswith(".dist-info/WHEEL")
                  for line in archive.read(name).decode().splitlines() if line.startswith("Tag: ")]
        if stated != [f"Tag: py3-none-{platform}" for platform in tag.group(1).split(".")]:
            mistakes.append(f"WHEEL says {stated}; expected the tags of the name, {tag.group(1)}")
        if LIBRARY not in archive.namelist():
            return mistakes + [f"{LIBRARY} is missing"]
        mistakes += library_mistakes(archive.extract(LIBRARY, folder), f"{tag.group(2)}.{tag.group(3)}")
        return mistakes + programs_mistakes(archive, folder)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    wheel = pathlib.Path(sys.argv[1])
    mistakes = wheel_mistakes(wheel)
    for mistake in mistakes:
        print(f"[wheel] {mistake}", file=sys.stderr)
    if mistakes:
        sys.exit(1)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        library = archive.extract(LIBRARY, folder)
        unpacked = sum(entry.file_size for entry in archive.infolist())
        print(f"[wheel] {wheel}: {wheel.stat().st_size / 1e6:.1f} MB, unpacked {unpacked / 1e6:.0f} MB, library {archive.getinfo(LIBRARY).file_size / 1e6:.1f} MB, "
              f"its youngest symbol is of glibc {oldest_glibc(library)}")


if __name__ == "__main__":
    main()
