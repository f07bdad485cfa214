"""Tests `pushpull top` in a pseudo-terminal, in tmux, and without a terminal."""
import os
import re
import shutil
import signal
import subprocess

import lab as base
from hosts_test import no_launcher
from lab import LONG, Skipped, expect, first
from terminal import Terminal


def top(lab, address, *words, **size):
    return Terminal(lab, lab.bin_dir / "pushpull", "top", "--join", address, "--interval", "0.3", *words, **size)


def running(lab, **keys):
    cluster = lab.cluster(lab.job({**LONG, **keys}))
    cluster.reaches(20)
    return cluster


def step_on(text):
    return int(re.search(r"step (\d+) of", text)[1])


@first("top")
def it_shows_the_job_live_at_eighty_columns(lab):
    cluster = running(lab)
    view = top(lab, cluster.address)
    first = view.shows(r"worker 1 .*[0-9]M.* [0-9.]+/[0-9]")
    for word in (cluster.address, "training", "loss", "samples/s", "server 0", "worker 0", "memory", "cores", "heard",
                 str(cluster.workers[0].pid)):
        expect(word in first, f"no {word}:\n{first}")
    expect(max(len(line) for line in first.splitlines()) <= 80, first)
    view.shows(f"step (?!{step_on(first)} )")
    view.keys("q")
    expect(view.ends() == 0, f"exit code {view.code}")
    expect(view.is_restored(), f"the terminal is not restored: {view.raw[-200:]}")
    step = cluster.step()
    lab.until(lambda: cluster.step() > step, 30, lambda: "training does not continue")


def it_leaves_and_follows_the_terminal(lab):
    cluster = running(lab)
    for stop, code in (("q", 0), ("\x03", 0), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)):
        view = top(lab, cluster.address)
        view.shows("worker 1")
        if isinstance(stop, str):
            view.keys(stop)
        else:
            os.kill(view.pid, stop)
        expect(view.ends() == code, f"{stop!r}: exit code {view.code}")
        expect(view.is_restored(), f"{stop!r}: {view.raw[-200:]}")

    view = top(lab, cluster.address)
    view.shows("worker 1")
    view.keys("\x1a")  # Ctrl-Z
    stopped = lambda: open(f"/proc/{view.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T"
    lab.until(stopped, 10, lambda: "it does not stop")
    view.read()
    expect(view.is_restored(), f"{view.raw[-200:]}")
    os.kill(view.pid, signal.SIGCONT)
    view.shows("worker 1")
    expect(view.full_screen, "it does not continue")
    view.keys("q")
    expect(view.ends() == 0 and view.is_restored(), f"{view.code}")

    view = top(lab, cluster.address, rows=24, columns=150)
    view.shows("device")
    view.resize(10, 44)
    view.shows(r"(?s)^(?!.*device).*worker 1")
    expect(all(len(line) <= 44 for line in view.screen()), view.screen())
    view.resize(3, 20)
    view.shows("pushpull top")
    view.keys("q")
    expect(view.ends() == 0, f"exit code {view.code}")

    lab.call("pushpull", "keygen", lab.folder / "other.key")
    view = top(lab, cluster.address, "--key", lab.folder / "other.key")
    expect(view.ends(30) == 77, f"exit code {view.code}: {view.raw}")
    expect(view.is_restored() and b"[key]" in view.raw.rsplit(b"\x1b[?1049l", 1)[1], f"{view.raw[-300:]}")


def it_goes_on_when_a_coordinator_is_back(lab):
    """Its server is killed and started again at the same address, with the workers."""
    job = lab.job({**LONG, "on-server-loss": "restart", "checkpoint-every": 50})
    cluster = lab.cluster(job)
    cluster.reaches(100)
    view = top(lab, cluster.address)
    view.shows("worker 1")
    os.kill(cluster.servers[0].pid, signal.SIGKILL)
    view.shows("no answer for .*: the coordinator is gone or restarting; asking again")
    expect("worker 1" in "\n".join(view.screen()), "the newest figures are gone")
    again = lab.start("pushpull-server", "--job", job, "--listen", cluster.address, "--workers", 2, "--out", cluster.out)
    text = view.shows("the coordinator has been restarted: now")
    expect(f"pid {again.pid}" in text.replace("\n", ""), text)
    view.shows(r"training(?s:.*)worker 1")
    view.keys("q")
    expect(view.ends() == 0, f"exit code {view.code}")


def it_may_start_before_the_job(lab):
    view = top(lab, "tcp://127.0.0.1:1")
    view.shows("no answer for .*: no coordinator there yet")
    view.keys("q")
    expect(view.ends() == 0 and view.is_restored(), f"exit code {view.code}")


def without_a_terminal_it_prints_once(lab):
    cluster = running(lab)
    for words in ((), ("--once",)):
        code, text = lab.call("pushpull", "top", "--join", cluster.address, *words)
        expect(code == 0 and "worker 1" in text and "\x1b" not in text, f"exit code {code}: {text!r}")
    code, text = lab.call("pushpull", "top", "--join", "tcp://127.0.0.1:1", "--join-timeout", 0.5)
    expect(code == 4 and "tcp://127.0.0.1:1" in text, f"exit code {code}: {text}")
    code, text = lab.call("pushpull", "top")
    expect(code == 2 and "HOST:PORT" in text, f"exit code {code}: {text}")


def it_works_in_tmux(lab):
    if shutil.which("tmux") is None:
        raise Skipped("no tmux")
    no_launcher(lab)
    cluster = running(lab)
    socket = str(lab.folder / "tmux")

    def tmux(*words):
        return subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", *words], env=lab.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30).stdout
    lab.environment.pop("TMUX", None)
    lab.environment.setdefault("LC_ALL", "C.UTF-8")
    tmux("new-session", "-d", "-x", "80", "-y", "24", "sh")
    try:
        tmux("send-keys", "echo before", "Enter")
        lab.until(lambda: "\nbefore" in tmux("capture-pane", "-p"), 20, lambda: tmux("capture-pane", "-p"))
        tmux("send-keys", f"{lab.bin_dir}/pushpull top --join {cluster.address}", "Enter")
        lab.until(lambda: "worker 1" in tmux("capture-pane", "-p"), 30, lambda: tmux("capture-pane", "-p"))
        pane = tmux("capture-pane", "-p")
        expect("cores" in pane and "UTC" in pane.splitlines()[0], pane)
        expect("before" not in pane, "it does not use the whole screen")
        tmux("send-keys", "q")
        lab.until(lambda: "before" in tmux("capture-pane", "-p"), 20, lambda: tmux("capture-pane", "-p"))
        expect("worker 1" not in tmux("capture-pane", "-p"), "the screen is not restored")
    finally:
        tmux("kill-server")


if __name__ == "__main__":
    base.main(globals())
