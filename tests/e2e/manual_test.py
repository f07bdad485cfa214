"""Tests scripts/manual.sh: man pages as man(1) shows them, and the completion of each shell, in the shell."""
import gzip
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import lab as base
from lab import Skipped, expect

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# what is typed, and a word that the shell must complete it to
LINES = (("pushpull comp", "compare"), ("pushpull run --strat", "--strategy"), ("pushpull run --model resnet1", "resnet18"),
         ("pushpull run --dataset cif", "cifar10"), ("pushpull run --strategy=allreduce:r", "allreduce:ring"),
         ("pushpull compare --strategies sync,as", "sync,async"), ("pushpull run --job a-job", "a-job.ini"),
         ("pushpull run --out a-fol", "a-folder/"), ("pushpull-worker --join-t", "--join-timeout"))


def written(folder, bin_dir):
    out = folder / "manual"
    subprocess.run([SOURCE / "scripts/manual.sh", bin_dir, out], check=True, timeout=60)
    return out


def each_program_and_command_has_a_page_without_warnings(lab):
    out = written(lab.folder, lab.bin_dir)
    names = {"pushpull", "pushpull-server", "pushpull-worker", "pushpull-proxy"} | {f"pushpull-{c}" for c in lab.call("pushpull", "--help-as", "commands")[1].split()}
    pages = {page.name: page for page in (out / "man").rglob("*.gz")}
    expect(set(pages) == {f"{name}.1.gz" for name in names} | {"pushpull-job.5.gz"}, f"{sorted(pages)}")
    for page in pages.values():
        for other, section in re.findall(r"\.BR ([a-z\\-]+) \((\d)\)", gzip.open(page, "rt").read()):
            expect(f"{other.replace(chr(92), '')}.{section}.gz" in pages, f"{page.name} refers to {other}({section})")
    if not shutil.which("man"):
        raise Skipped("no man: the pages were not formatted; install man-db")
    for page in pages.values():
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MAN_KEEP_FORMATTING": "", "GROFF_NO_SGR": "1"})
        expect(done.returncode == 0 and not done.stderr, f"{page.name}: {done.stderr}")
        text = re.sub(".\b", "", done.stdout)
        for heading in ("NAME", "DESCRIPTION", "SEE ALSO"):
            expect(heading in text, f"{page.name} lacks {heading}:\n{text[:500]}")


def each_flag_of_the_help_is_on_the_page(lab):
    out = written(lab.folder, lab.bin_dir)
    for words, page in ((["pushpull", "run"], "pushpull-run"), (["pushpull", "compare"], "pushpull-compare"), (["pushpull-server"], "pushpull-server")):
        text = lab.call(*words, "--help")[1].split("\nThe job,")[0]
        shown = gzip.open(out / "man/man1" / f"{page}.1.gz", "rt").read().replace("\\-", "-")
        flags = re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)
        expect(len(flags) > 8, text)
        for flag in flags:
            expect(f"\\fB{flag}\\fR" in shown, f"{page}: no {flag}")


def typed(shell, setup, lines, folder, env):
    """Types each line and a tab in an interactive shell, and returns what the terminal shows."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(shell[0], shell, env)

    def read_until(word, seconds):
        shown, end = "", time.monotonic() + seconds
        while time.monotonic() < end and word not in shown:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
        return shown

    try:
        os.write(terminal, f"{setup}; echo rea''dy\n".encode())
        shown = read_until("ready", 30)
        expect("ready" in shown, f"{shell[0]}: {shown}")
        for line, word in lines:
            os.write(terminal, f"{line}\t".encode())
            shown = re.sub("\x1b\\[[0-9;?]*[A-Za-z]|\x07", "", read_until(word, 15))
            expect(word in shown, f"{shell[0]}: '{line}' and a tab, expected {word}: {shown!r}")
            os.write(terminal, b"\x15")  # ^U: an empty line
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def completed(lab, name, shell, setup):
    if not shutil.which(name):
        raise Skipped(f"no {name}")
    (lab.folder / "a-job.ini").touch()
    (lab.folder / "a-folder").mkdir()
    out = written(lab.folder, lab.bin_dir)
    env = {"PATH": f"{lab.bin_dir}:/usr/bin:/bin", "HOME": str(lab.folder), "TERM": "dumb", "LC_ALL": "C.UTF-8", "INPUTRC": "/dev/null"}
    typed(shell, setup.format(out=out), LINES, lab.folder, env)


def bash_completes(lab):
    completed(lab, "bash", ["bash", "--norc", "--noprofile", "-i"], "for f in {out}/bash/*; do . $f; done; bind 'set enable-bracketed-paste off'")


def zsh_completes(lab):
    completed(lab, "zsh", ["zsh", "-f", "-i"], "fpath=({out}/zsh $fpath); autoload -Uz compinit; compinit -u -D; PS1='> '; unsetopt zle_bracketed_paste")


def fish_completes(lab):
    if not shutil.which("fish"):
        raise Skipped("no fish")
    (lab.folder / "a-job.ini").touch()
    (lab.folder / "a-folder").mkdir()
    out = written(lab.folder, lab.bin_dir)
    env = {"PATH": f"{lab.bin_dir}:/usr/bin:/bin", "HOME": str(lab.folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    for line, word in LINES:
        done = subprocess.run(["fish", "--no-config", "-c", f"for f in {out}/fish/*; source $f; end; complete -C '{line}'"], capture_output=True, text=True,
                              timeout=60, check=False, env=env, cwd=lab.folder)
        words = [text.split("\t")[0] for text in done.stdout.splitlines()]
        expect(any(text.endswith(word) for text in words) and not done.stderr, f"'{line}': {words} {done.stderr}")


if __name__ == "__main__":
    base.main(globals())
