#!/usr/bin/env python3
"""Writes libraries to link with in the place of glibc, so that the result runs with an older glibc.

    scripts/wheel/glibc_stubs.py VERSION FOLDER

A stub has the names of a library of this machine's glibc, each in the newest version that glibc VERSION has, and no
code. The linker records these versions. Names that are younger than VERSION are left out, so that a link that needs one
fails. Glibc 2.34 moved the names of libpthread, libdl and librt to libc; the stubs put them back, because an older
program loader finds them only there. FOLDER then belongs before the system's folders, as -L.

Sound because glibc never changes or removes a version of a name. polyfill-glibc and `zig cc` do the same.
"""
import collections
import pathlib
import re
import subprocess
import sys

MERGED = ((2, 32), (2, 34))  # when libc took over names of the other libraries, in versions of their own
STAYED = {"__libc_start_main", "__isnanf128"}  # got a version then, but were in libc before
# the old library of a name that was merged into libc; all others were in libpthread
MOVED = {
    "libdl.so.2": re.compile(r"dl(open|close|sym|vsym|mopen|error|addr1?|info)$"),
    "librt.so.1": re.compile(r"(__)?(aio|lio|mq|shm|timer)_"),
    "libutil.so.1": re.compile(r"forkpty$|openpty$|log(in|in_tty|out|wtmp)$"),
    "libanl.so.1": re.compile(r"getaddrinfo_a$|gai_(cancel|error|suspend)$"),
    "libresolv.so.2": re.compile(r"(__)?(res|ns|dn)_"),
}
# those that the library links to
STUBS = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")

Name = collections.namedtuple("Name", "name version is_data size")


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def file_of(library):
    return run("gcc", f"-print-file-name={library}").strip()


def number(version):
    return tuple(int(part) for part in version.split("."))


def names_of(library):
    """Returns all names that the library of this machine defines, with each of their versions."""
    found = []
    for line in run("readelf", "--dyn-syms", "--wide", file_of(library)).splitlines():
        words = line.split()
        if len(words) < 8 or words[6] == "UND" or "@" not in words[7]:
            continue
        name, version = re.split("@+", words[7])
        if re.fullmatch(r"GLIBC_[\d.]+", version):
            found.append(Name(name, number(version[len("GLIBC_"):]), words[3] in ("OBJECT", "TLS"), int(words[2], 0)))
    return found


def old_library(name, versions):
    """Returns the library that had the name of libc before glibc 2.34."""
    if len(versions) == 1 or max(versions) not in MERGED or name in STAYED:
        return "libc.so.6"
    return next((library for library, names in MOVED.items() if names.match(name)), "libpthread.so.0")


def sort_into_stubs(target):
    """Returns the names of each stub, in the newest version that is not younger than the target."""
    stubs = {library: [] for library in STUBS}
    for library in ("libc.so.6", "libm.so.6"):
        entries = collections.defaultdict(list)
        for entry in names_of(library):
            entries[entry.name].append(entry)
        for name, choices in entries.items():
            old = [entry for entry in choices if entry.version <= target]
            home = old_library(name, {entry.version for entry in choices}) if library == "libc.so.6" else library
            if old and home in stubs:
                stubs[home].append(max(old, key=lambda entry: entry.version))
    return stubs


def write_stub(folder, library, names):
    source, versions = [], collections.defaultdict(list)
    for place, entry in enumerate(sorted(names)):
        version = "GLIBC_" + ".".join(map(str, entry.version))
        versions[entry.version].append(version)
        label = f"stub_{place}"
        kind, section = ("object", ".data") if entry.is_data else ("function", ".text")
        source += [f"{section}", f".globl {label}", f".type {label}, @{kind}", f"{label}: .skip {max(entry.size, 1) if entry.is_data else 1}",
                   f".size {label}, {entry.size}", f".symver {label}, {entry.name}@@@{version}"]
    nodes = sorted(versions)
    script = [f"GLIBC_{'.'.join(map(str, node))} {{ {'local: stub_*;' if node == nodes[0] else ''} }};" for node in nodes]
    (folder / f"{library}.s").write_text("\n".join(source) + '\n.section .note.GNU-stack,"",@progbits\n')
    (folder / f"{library}.map").write_text("\n".join(script) + "\n")
    run("gcc", "-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{library}", f"-Wl,--version-script={folder / (library + '.map')}", "-o",
        folder / library, folder / f"{library}.s")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    target, folder = number(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for library, names in sort_into_stubs(target).items():
        write_stub(folder, library, names)
    merged = " ".join(library for library in STUBS if library not in ("libc.so.6", "libm.so.6"))
    loader = file_of("ld-linux-x86-64.so.2")
    (folder / "libc.so").write_text(f"GROUP ( libc.so.6 {file_of('libc_nonshared.a')} AS_NEEDED ( {merged} {loader} ) )\n")
    (folder / "libm.so").write_text("GROUP ( libm.so.6 )\n")
    for library in ("pthread", "dl", "rt"):  # a program that names them needs nothing more than libc's group
        (folder / f"lib{library}.so").write_text("INPUT ( libc.so )\n")


if __name__ == "__main__":
    main()
