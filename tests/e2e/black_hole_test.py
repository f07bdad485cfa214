"""Tests connections that go silent without being closed: a firewall that has lost their state drops their packets; packets of
new connections pass."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import lab as base
from lab import MLP, expect

PREFIX = "pushpull-hole"


@contextlib.contextmanager
def host_of_its_own():
    """Makes a network namespace in which a rule can drop packets. Returns its name."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        raise base.Skipped("needs root, ip and nft")
    name = f"{PREFIX}-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise base.Skipped(f"no network namespaces here: {made.stderr.strip()}")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        if inside(name, "nft", "list", "tables").returncode != 0:
            raise base.Skipped("no nft in a network namespace here")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def inside(name, *words):
    return subprocess.run(["ip", "netns", "exec", name, *words], capture_output=True, text=True, check=False)


def connections_to(name, pid, port):
    """Returns the local ports of a process's connections to `port`."""
    text = inside(name, "ss", "-tnpH", f"dport = :{port}").stdout
    return re.findall(rf"127\.0\.0\.1:(\d+)\s+\S+:{port}\s.*pid={pid}\b", text)


def drop(name, ends):
    """Drops packets from and to these ports: "{ 1, 2 }", or "1-65535"."""
    rules = f"type filter hook input priority 0;\n tcp sport {ends} drop\n tcp dport {ends} drop\n"
    done = inside(name, "nft", f"table ip hole {{\n chain incoming {{\n {rules} }}\n }}\n")
    expect(done.returncode == 0, done.stderr)


@contextlib.contextmanager
def a_run_inside(lab, name):
    """Runs `pushpull run` over tcp in the namespace. It must end with the bits of the undisturbed run and lose no member."""
    keys = {**MLP, "steps": lab.steps(4000), "transport": "tcp", "heartbeat-timeout": lab.seconds(12)}
    calm = lab.train(lab.job(keys), 2, 2)["weights_sha256"]
    out = lab.folder / "out"
    run = lab.start(shutil.which("ip"), "netns", "exec", name, lab.bin_dir / "pushpull", "run", "--job", lab.job(keys), "--servers", 2,
                    "--workers", 2, "--out", out)
    lab.until(lambda: (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > 0, 60,
              lambda: f"no training: {run.output()}")
    yield run
    code = run.ends(120)
    expect(code == 0, f"exit code {code}: {run.output()[-1500:]}")
    expect("lost worker" not in run.output() and "lost server" not in run.output(), f"{run.output()[-1500:]}")
    summary = json.loads((out / "summary.json").read_text())
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def silent_connections_cost_no_member(lab):
    with host_of_its_own() as name, a_run_inside(lab, name) as run:
        worker = next(pid for pid in base.living_below(run.pid)
                      if "pushpull-worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_text())
        listening = set(re.findall(r"127\.0\.0\.1:(\d+)\s", inside(name, "ss", "-tlnH").stdout))
        ports = [port for to in listening for port in connections_to(name, worker, to)]
        expect(len(ports) >= 3, f"control and two servers' data: {ports} of {listening}")
        drop(name, "{ " + ", ".join(ports) + " }")


def a_short_network_outage_costs_no_member(lab):
    with host_of_its_own() as name, a_run_inside(lab, name):
        drop(name, "1-65535")
        time.sleep(lab.seconds(6))
        done = inside(name, "nft", "delete table ip hole")
        expect(done.returncode == 0, done.stderr)


if __name__ == "__main__":
    base.main(globals())
