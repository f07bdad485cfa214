#!/usr/bin/env python3
"""Checks finished packages in bare systems: installs, trains, removes.

    scripts/package/check.py DIST [--systems NAME,...] [--folder FOLDER] [--only PART,...]

DIST holds what `scripts/package.sh --deb DIST DIST/pushpull.tar.gz` has written. Needs root, debootstrap and a mirror of
Debian's packages; without them it says so and exits with 77. The systems (a table below) are made once in FOLDER
(/tmp/pushpull-systems); a check never changes them: it works on a copy that ends with it.

    wheel       in each of the systems with Python 3.8 or newer: installs it in an environment, trains with two workers, and with a
                script in NumPy; removes it
    tarball     in each of the systems: unpacks it, trains with two workers, compares the hash of the weights; the
                package's C library loads a stand-in for a driver that the system's ldconfig knows and an old glibc linked
    deb         in Debian 12: installs, trains, shows a page, removes; nothing may remain
    dev         in Debian 12: compiles a program in C with libpushpull-dev
    dockerfile  in Debian 12: its steps
    apptainer   in Debian 12: its steps
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
# name: mirror, glibc
SYSTEMS = {"bookworm": (DEBIAN, "2.36"), "bullseye": (DEBIAN, "2.31"), "trixie": (DEBIAN, "2.41"), "xenial": (UBUNTU, "2.23"),
           "bionic": (UBUNTU, "2.27"), "focal": (UBUNTU, "2.31"), "jammy": (UBUNTU, "2.35"), "noble": (UBUNTU, "2.39")}
JOB = "--model mlp --hidden 64,32 --dataset digits --global-batch 64 --micro-batch 8 --optimizer momentum --lr 0.1 --steps 60 --seed 7"
# Like libcuda: names the libraries of an old glibc, of which all must be the package's.
DRIVER = """#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
static void* answer(void* to) { *(int*)to = 42; return to; }
int cuInit(unsigned flags) {
  int is = (int)flags;
  pthread_t thread;
  timer_t timer;
  if (dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) == 0) return 1;
  if (timer_create(CLOCK_MONOTONIC, 0, &timer) != 0) return 2;
  if (pthread_create(&thread, 0, answer, &is) != 0 || pthread_join(thread, 0) != 0) return 3;
  return is;
}
"""
USER = """#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == 0) { puts(dlerror()); return 1; }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  printf("cuInit says %d\\n", init(0));
  return 0;
}
"""
# in a mount namespace of its own, so that no mount stays behind
ENTER = """set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"; mount --rbind /dev "$2/root/dev"; mount -t tmpfs -o size=1g tmpfs "$2/root/dev/shm"
cp /etc/resolv.conf /etc/hosts "$2/root/etc/"
exec chroot "$2/root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c "$3" """


class Failed(Exception):
    """The expectation and the observation of a failed check."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


def base_of(name, folder):
    """Returns the folder of a bare system, which is made if it is absent."""
    base = folder / name
    if not (base / "etc").is_dir():
        mirror = SYSTEMS[name][0]
        # the keys of another distribution are seldom installed; nothing of such a system leaves its folder
        unchecked = ["--no-check-gpg"] if mirror != DEBIAN else []
        print(f"[check] {name}: debootstrap from {mirror}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.log", "w", encoding="utf-8") as log:
            code = subprocess.run(["debootstrap", "--variant=minbase", *unchecked, name, folder / f"{name}.part", mirror], stdout=log, stderr=log,
                                  check=False).returncode
        if code:
            raise OSError(f"debootstrap {name} failed; {folder / name}.log")
        (folder / f"{name}.part").rename(base)
    return base


class System:
    """A copy of a bare system; its changes last as long as the object is in use."""

    def __init__(self, name, folder):
        self.name = name
        self.base = base_of(name, folder)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder, prefix=f"run-{name}-"))
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, source, target):
        place = self.folder / "upper" / target.lstrip("/")
        if target.endswith("/") or (self.base / target.lstrip("/")).is_dir():
            place = place / source.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)

    def run(self, command, seconds=600, code=0):
        """Runs a command as root, and returns its output. Fails unless it ends with `code`."""
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c", ENTER, "enter", self.base,
                               self.folder, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds, check=False)
        text = done.stdout.decode(errors="replace")
        expect(done.returncode == code, f"{self.name}: {command}: exit code {done.returncode}, expected {code}: {text[-1500:]}")
        return text

    def trains(self, pushpull):
        """Returns the hash of the weights."""
        self.run(f"cd /tmp && {pushpull} run {JOB} --servers 1 --workers 2 --out /tmp/out", 120)
        return json.loads(self.run("cat /tmp/out/summary.json"))["weights_sha256"]

    def installs(self, package):
        self.put(package, "/tmp/")
        # an updated base would have other packages than the mirror
        self.run("apt-get update -q")
        self.run(f"apt-get install -y -q --no-install-recommends /tmp/{package.name}; code=$?; rm /tmp/{package.name}; exit $code")

    def files(self):
        """Returns all paths but those that apt, dpkg and ldconfig rewrite, and the backups that adduser makes for another package."""
        text = self.run(r"find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/cache -o -path /var/lib/apt -o -path /var/log "
                        r"-o -path /var/lib/dpkg -o -path /root -o -path /run/adduser -o -path '/etc/*-' \) -prune -o -print; find /root")
        return set(text.splitlines())


def only_file(folder, pattern):
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"[check] {folder} has {len(found)} files {pattern}; expected 1: scripts/package.sh --deb {folder} {folder}/pushpull.tar.gz")
    return found[0]


def stand_in(folder):
    """Compiles the stand-in for the driver, linked with stubs of glibc 2.17, and a program that loads it."""
    subprocess.run([sys.executable, HERE.parent / "wheel/glibc_stubs.py", "2.17", folder / "stubs"], check=True)
    (folder / "driver.c").write_text(DRIVER, encoding="utf-8")
    (folder / "user.c").write_text(USER, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", f"-L{folder}/stubs", "-Wl,--no-as-needed", "-Wl,-soname,libcuda.so.1", "-Wl,--enable-new-dtags,-rpath,/usr/lib",
                    "-o", folder / "libcuda.so.1", folder / "driver.c", *(folder / "stubs" / name for name in
                                                                         ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6"))], check=True)
    subprocess.run(["gcc", "-o", folder / "user", folder / "user.c"], check=True)


def loads_a_driver(system):
    """The package's C library loads a library of the host that ldconfig knows, and that needs parts of glibc."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        stand_in(folder)
        system.put(folder / "libcuda.so.1", "/opt/driver/libcuda.so.1")
        system.put(folder / "user", "/opt/pushpull/libexec/user")
    system.run("echo /opt/driver >/etc/ld.so.conf.d/driver.conf; ldconfig; cd /opt/pushpull; cp bin/pushpull bin/user; "
               "ln lib/pushpull/ld-linux-x86-64.so.2 lib/pushpull/loader/user")
    text = system.run("/opt/pushpull/bin/user")
    expect("cuInit says 42" in text, text)


def tarball(options, want, name):
    with System(name, options.folder) as system:
        libc = system.run("ldd --version").split("\n")[0].split()[-1]
        system.put(only_file(options.dist, "pushpull*.tar.*"), "/tmp/package.tar.gz")
        system.run("mkdir /opt/pushpull; tar -xf /tmp/package.tar.gz -C /opt/pushpull --strip-components 1; ln -s /opt/pushpull/bin/pushpull /usr/bin/")
        got = system.trains("pushpull")
        expect(got == want, f"{name}: weights {got}, expected {want}")
        text = system.run("/opt/pushpull/bin/pushpull-worker --join tcp://no-such-host.invalid:5555 --join-timeout 1", code=4)
        expect("no-such-host" in text, text)
        loads_a_driver(system)
        return f"glibc {libc}: the weights of this machine"


# A worker in NumPy: least squares.
SCRIPT = """import numpy as np
import pushpull.numpy as pp
job = pp.join()
rng = np.random.default_rng(job.seed)
x = rng.standard_normal((640, 3)).astype(np.float32)
y = x @ np.array([1, -2, 3], np.float32)
job.attach({"w": np.zeros(3, np.float32)}, train_samples=len(x))
for task in job.tasks():
    i = task.indices
    error = x[i] @ task.weights["w"] - y[i]
    task.end(float((error ** 2).mean()), {"w": 2 * x[i].T @ error / len(i)})
"""


def wheel(options, want, name):
    with System(name, options.folder) as system:
        if SYSTEMS[name][0] == UBUNTU:
            system.run("sed -i 's/ main$/ main universe/' /etc/apt/sources.list")
        system.run("apt-get update -q; apt-get install -y -q --no-install-recommends python3-venv python3-pip python3-numpy")
        version = system.run("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
        if tuple(map(int, version.split("."))) < (3, 8):
            return f"left out: its Python is {version}"
        libc = system.run("ldd --version").split("\n")[0].split()[-1]
        system.run("python3 -m venv --system-site-packages /opt/env")
        file = only_file(options.dist, "pushpull-*.whl")
        before = system.files()
        system.put(file, "/tmp/")
        system.run(f"/opt/env/bin/pip install -q --no-index /tmp/{file.name}")
        got = system.trains("/opt/env/bin/pushpull")
        expect(got == want, f"{name}: weights {got}, expected {want}")
        system.run("/opt/env/bin/python -m pushpull --version")
        system.run(f"printf %s {shlex.quote(SCRIPT)} >/tmp/train.py; cd /tmp; /opt/env/bin/pushpull run --model external --global-batch 32 --micro-batch 8 "
                   "--optimizer sgd --lr 0.1 --steps 40 --workers 2 --worker '/opt/env/bin/python train.py' --out /tmp/o", 120)
        loss = json.loads(system.run("cat /tmp/o/summary.json"))["train_loss"]
        expect(loss < 1e-2, f"{name}: the script ends with the train loss {loss}")
        system.run("rm -rf ~/.config; /opt/env/bin/pip uninstall -q -y pushpull")
        left = sorted(path for path in system.files() - before if "__pycache__" not in path)
        expect(not left, f"left behind: {left[:20]}")
        return f"glibc {libc}, Python {version}: the weights of this machine, a script in NumPy trained, uninstalled without a trace"


def deb(options, want):
    if shutil.which("lintian"):
        for package in options.dist.glob("*.deb"):
            text = subprocess.run(["lintian", package], capture_output=True, text=True, timeout=120, check=False).stdout
            expect("E: " not in text, text)
    with System("bookworm", options.folder) as system:
        before, packages = system.files(), system.run("dpkg-query -W -f '${Package}\n'")
        system.installs(only_file(options.dist, "pushpull_*.deb"))
        expect(system.trains("pushpull") == want, "the weights differ from those of this machine")
        # a minimal Debian of containers leaves out man pages; the package has them
        expect("man1/pushpull-run.1.gz" in system.run("dpkg -L pushpull"), "the package has no page of pushpull run")
        completed = system.run("compopt() { :; }; . /usr/share/bash-completion/completions/pushpull; COMP_LINE='pushpull ru' COMP_POINT=11; "
                               "_pushpull; echo ${COMPREPLY[@]}")
        expect(completed.strip() == "run", completed)
        size = system.run("dpkg-query -W -f '${Installed-Size}' pushpull")
        system.run("rm -rf ~/.config; apt-get purge -y -q --autoremove pushpull")
        left = sorted(system.files() - before)
        expect(not left, f"left behind: {left[:20]}")
        expect(system.run("dpkg-query -W -f '${Package}\n'") == packages, "packages are left behind")
        linted = "lintian has no error, " if shutil.which("lintian") else "no lintian here, "
        return f"{linted}installed ({size} KiB), the weights of this machine, purged without a trace"


def dev(options, _want):
    program = "#include <pushpull.h>\nint main(void) { pp_set_log(0, 0); return 0; }\n"
    with System("bookworm", options.folder) as system:
        system.installs(only_file(options.dist, "libpushpull-dev_*.deb"))
        system.run("apt-get install -y -q --no-install-recommends gcc libc6-dev pkg-config")
        system.run(f"cd /tmp && printf %s {shlex.quote(program)} >a.c && gcc a.c $(pkg-config --cflags --libs pushpull) && ./a.out")
        return "compiled and ran a program with pkg-config"


def dockerfile_steps(text):
    """Returns the instructions of a Dockerfile as pairs, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def dockerfile(options, want):
    with System("bookworm", options.folder) as system:
        folder, entry = "/", []
        for word, rest in dockerfile_steps((HERE / "Dockerfile").read_text()):
            if word == "FROM":
                expect(rest.startswith("debian:12"), f"FROM {rest}: expected debian:12")
            elif word == "COPY":
                pattern, target = rest.split()
                system.put(only_file(options.dist, pattern), target)
            elif word == "RUN":
                system.run(f"cd {folder} && {rest}")
            elif word == "WORKDIR":
                folder = rest
                system.run(f"mkdir -p {folder}")
            elif word == "ENTRYPOINT":
                entry = json.loads(rest)
            elif word == "CMD":
                expect("Usage:" in system.run(f"cd {folder} && {shlex.join(entry + json.loads(rest))}"), "the image's command does not show its usage")
            else:
                raise Failed(f"{word}: no such step is known to this check")
        expect(system.trains(shlex.join(entry)) == want, "the weights differ from those of this machine")
        return "the steps ran, the weights of this machine"


def apptainer(options, want):
    sections = dict(re.findall(r"^%(\w+)\n((?:    .*\n|\n)*)", (HERE / "pushpull.def").read_text() + "\n", re.MULTILINE))
    with System("bookworm", options.folder) as system:
        for line in sections["files"].split("\n"):
            if line.strip():
                pattern, target = line.split()
                system.put(only_file(options.dist, pattern.split("/", 1)[1]), target)
        for section in ("post", "test"):
            system.run("set -e\n" + sections[section])
        expect(system.run("set -- --version\n" + sections["runscript"]).startswith("pushpull "), "%runscript does not start pushpull")
        expect(system.trains("pushpull") == want, "the weights differ from those of this machine")
        return "the steps ran, the weights of this machine"


PARTS = {"deb": deb, "dev": dev, "dockerfile": dockerfile, "apptainer": apptainer}


def weights_here(dist):
    """Returns the hash that the package's programs give on this machine with this machine's C library and loader."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-xf", only_file(dist, "pushpull*.tar.*"), "-C", folder, "--strip-components", "1"], check=True)
        subprocess.run([f"{folder}/bin/pushpull", "run", *JOB.split(), "--servers", "1", "--workers", "1", "--out", f"{folder}/out"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        return json.loads(pathlib.Path(folder, "out/summary.json").read_text(encoding="utf-8"))["weights_sha256"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=pathlib.Path)
    parser.add_argument("--systems", default="bookworm,bullseye,bionic", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/pushpull-systems"))
    parser.add_argument("--only", default="tarball,wheel," + ",".join(PARTS))
    parser.add_argument("--weights", help="the expected hash, of another build")
    return parser.parse_args()


def main():
    options = arguments()
    missing = [tool for tool in ("debootstrap", "unshare") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        print(f"[check] skipped: needs {'root' if os.geteuid() else ', '.join(missing)}")
        return SKIPPED
    want = options.weights or weights_here(options.dist)
    only, failed = options.only.split(","), 0
    steps = [(f"{part.__name__} {name}", lambda part=part, name=name: part(options, want, name))
             for part in (tarball, wheel) if part.__name__ in only for name in options.systems.split(",")]
    steps += [(name, lambda part=part: part(options, want)) for name, part in PARTS.items() if name in only]
    for name, step in steps:
        try:
            print(f"[check] {name}: {step()}", flush=True)
        except OSError as error:
            print(f"[check] {name}: NOT RUN: {error}", flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"[check] {name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
