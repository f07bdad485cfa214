"""Tests labs of network namespaces: they are measured, used by jobs, and removed without a trace."""
import contextlib
import json
import os
import pathlib
import re
import signal
import time

import lab as base
from lab import LONG, MLP, expect

STOPPED = 75
CANNOT = 3  # exit code of pushpull-netlab on a machine without such labs


class Netlab:
    """pushpull-netlab with names that no other test uses."""

    def __init__(self, lab):
        self.lab = lab
        self.name = f"t{os.getpid()}"
        self.state = lab.folder / "netlab"
        lab.environment["NETLAB_STATE"] = str(self.state)

    def call(self, *words, **options):
        return self.lab.call("pushpull-netlab", *words, **options)

    def up(self, *words, hosts=2):
        code, text = self.call("up", "--hosts", hosts, "--name", self.name, *words)
        if code == CANNOT:
            self.expect_removed()
            raise base.Skipped(text.strip().splitlines()[-1])
        expect(code == 0, f"up {words} ended with {code}: {text}")
        return text

    def down(self):
        code, text = self.call("down", self.name)
        expect(code == 0, f"down ended with {code}: {text}")
        self.expect_removed()

    def traces(self):
        found = [str(path) for path in pathlib.Path("/run/netns").glob(f"{self.name}-*")]
        found += [str(path) for path in self.state.glob("*")]
        found += [f"proxy {pid}" for pid in self.proxies()]
        return found

    def proxies(self):
        """Returns the pids of the proxies that delay this test's packets, found by their output files."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(folder / "fd" / "1").startswith(f"{self.state}/"):
                    found.append(int(folder.name))
        return found

    def need(self):
        """Skips the test if no lab can be made."""
        self.up()
        self.down()
        return self

    def expect_removed(self):
        self.lab.until(lambda: not self.traces(), 30, lambda: f"left behind: {self.traces()}")


def a_lab_keeps_the_rate_and_leaves_nothing(lab):
    labs = Netlab(lab)
    labs.up("--rate", "40mbit", hosts=3)
    expect(f"{labs.name}: 3 hosts, 40mbit" in labs.call("list")[1], "not in the list")
    code, text = labs.call("measure", labs.name, "--plain")
    found = dict(re.findall(r"(\w+)=(\S+)", text))
    # only an upper limit: the speed of the machine varies, but 40 Mbit/s of wire never carry more than 40 of payload
    expect(code == 0 and 0 < float(found["rate_mbit"]) <= 41, f"{code}: {text}")
    code, text = labs.call("measure", labs.name)
    expect(code == 0 and "asked     40mbit" in text and "congestion control" in text, text)
    code, text = labs.call("exec", labs.name, 2, "ip", "-brief", "addr")
    expect(code == 0 and "10.77.0.3/24" in text and "127.0.0.1/8" in text, text)
    labs.down()


def delay_counts_each_way(lab):
    labs = Netlab(lab)
    labs.up("--delay", "15ms")
    code, text = labs.call("measure", labs.name, "--plain")
    found = dict(re.findall(r"(\w+)=(\S+)", text))
    expect(code == 0 and float(found["round_trip_ms"]) >= 30, f"{code}: {text}")
    labs.down()


def lost_packets_are_retransmitted(lab):
    labs = Netlab(lab)
    labs.up("--rate", "40mbit", "--loss", "3%")
    code, text = labs.call("measure", labs.name, "--plain")
    found = dict(re.findall(r"(\w+)=(\S+)", text))
    # about 180 of some 6,000 packets are lost; 1 % would be 60
    expect(code == 0 and float(found["retransmitted_percent"]) >= 1, f"{code}: {text}")
    labs.down()


def an_attached_lab_ends_with_its_input_and_with_a_signal(lab):
    labs = Netlab(lab).need()
    for end in ("input", signal.SIGTERM, signal.SIGINT):
        reader, writer = os.pipe()
        process = lab.start("pushpull-netlab", "up", "--hosts", 2, "--delay", "1ms", "--name",
                            labs.name, "--attached", stdin=reader)
        os.close(reader)
        process.prints(f"\n{labs.name}\n")
        expect(labs.proxies() or "by proxy" not in process.output(), "no proxy keeps the delay")
        if end == "input":
            os.close(writer)
        else:
            process.send_signal(end)
        code = process.ends()
        expect(code == (0 if end == "input" else 128 + end), f"{end}: {code}")
        labs.expect_removed()


def an_interrupted_up_removes_its_namespaces(lab):
    labs = Netlab(lab).need()
    for wait in (0.0, 0.1, 0.3, 0.6):
        process = lab.start("pushpull-netlab", "up", "--hosts", 40, "--delay", "1ms", "--name", labs.name)
        lab.until(lambda: labs.traces() or process.poll() is not None, 30, lambda: "nothing begins")
        time.sleep(wait)
        process.send_signal(signal.SIGTERM)
        if process.ends() == 0:  # it finished before the signal
            labs.down()
        labs.expect_removed()


def bad_arguments_are_named(lab):
    labs = Netlab(lab)
    for words, message in (((), "which command?"), (("up",), "--hosts ''"),
                        (("up", "--hosts", "0"), "--hosts '0'"),
                        (("up", "--hosts", "2", "--rate", "fast"), "--rate 'fast'"),
                        (("up", "--hosts", "2", "--delay", "5"), "--delay '5'"),
                        (("up", "--hosts", "2", "--loss", "1"), "--loss '1'"),
                        (("up", "--hosts", "2", "--name", "../x"), "name '../x'"),
                        (("down", "none"), "there is no lab none"),
                        (("measure", "none"), "there is no lab none")):
        code, text = labs.call(*words)
        expect(code == 2 and message in text and text.count("\n") == 1, f"{words}: {code}, {text}")


def without_root_a_lab_is_refused(lab):
    labs = Netlab(lab)
    if os.getuid() != 0:
        code, text = labs.call("up", "--hosts", 2)
    else:
        try:
            code, text = labs.call("up", "--hosts", 2, preexec_fn=lambda: os.setuid(65534))
        except PermissionError:
            text = "permission denied"
        if "ermission denied" in text:
            raise base.Skipped("others may not read the programs here")
    expect(code == CANNOT and "need root" in text, f"{code}: {text}")


def a_job_over_links_has_the_same_bits_and_leaves_nothing(lab):
    labs = Netlab(lab).need()
    job = lab.job({**MLP, "steps": 15})
    wanted = lab.train(job)["weights_sha256"]
    out = lab.folder / "linked"
    code, text = lab.call("pushpull", "run", "--job", job, "--servers", 2, "--workers", 2, "--out", out,
                          "--link", "50mbit,3ms,0.5%", seconds=180)
    expect(code == 0, text)
    expect(re.search(r"\[link\] 50mbit,3ms,0.5%: measured [0-9.]+ Mbit/s and ([6-9]|\d\d+)\.\d+ ms",
                     text), f"no link was measured: {text}")
    expect("tcp://10.77.0.2:" in text, f"the second server has no host of its own: {text}")
    found = base.summary_of(out)["weights_sha256"]
    expect(found == wanted, f"{found}, without links {wanted}")
    labs.expect_removed()
    namespaces = list(pathlib.Path("/run/netns").glob("p*")) if pathlib.Path("/run/netns").exists() else []
    expect(not [n for n in namespaces if not alive(n.name)], f"left behind: {namespaces}")


def several_workers_share_a_host_of_links(lab):
    labs = Netlab(lab).need()
    out = lab.folder / "linked"
    process = lab.start("pushpull", "run", "--job", lab.job(LONG), "--servers", 2, "--workers", 4, "--out", out, "--link", "200mbit,1ms",
                        "--per-host", 2)
    lab.until(lambda: base.step_of(out) >= 1 and (out / "members.json").exists(), 120, process.output)
    members = json.loads((out / "members.json").read_text())["members"]
    network = lambda member: os.readlink(f"/proc/{member['pid']}/ns/net")
    workers = [network(m) for m in sorted(members, key=lambda m: m["rank"]) if m["role"] == "worker"]
    expect(len(workers) == 4 and len(set(workers)) == 2, f"{workers}")
    servers = {network(m) for m in members if m["role"] == "server"}
    expect(len(servers) == 2 and not servers & set(workers), f"servers {servers}, workers {workers}")
    process.send_signal(signal.SIGTERM)
    expect(process.ends() == STOPPED, process.output()[-800:])
    labs.expect_removed()


def users_programs_run_on_the_hosts_of_links(lab):
    labs = Netlab(lab).need()
    program = (lab.bin_dir / "../tests/linear_regression").resolve()
    job = lab.job({"model": "external", "global-batch": 64, "micro-batch": 8, "steps": 15})
    wanted = lab.train(job, worker=program)["weights_sha256"]
    run = lab.run(job, servers=2, workers=2, worker=f"env A=b {program}", link="50mbit,3ms")
    expect(run.code == 0 and "another network" in run.text, f"exit code {run.code}: {run.text[-800:]}")
    expect(run.summary()["weights_sha256"] == wanted, "the weights differ")
    labs.expect_removed()


def over_a_slow_link_pulls_overlap_pushes_and_nothing_is_sent_twice(lab):
    Netlab(lab).need()
    # a step's pushes take 2 s, twice the interval after which a worker repeats a pull
    job = lab.job({**MLP, "dataset": "dummy", "hidden": "512,512", "steps": 2, "slice-bytes": 262144})
    out = lab.folder / "slow"
    code, text = lab.call("pushpull", "run", "--job", job, "--workers", 2, "--out", out, "--trace", out / "trace",
                          "--link", "20mbit,1ms", seconds=180)
    expect(code == 0, text)
    traces = sorted((out / "trace").glob("*.json"))
    expect(len(traces) == 2, f"{traces}")
    for file in traces:
        events = [e for e in json.loads(file.read_text()) if e["ph"] == "X"]
        pushed = [e["name"].removeprefix("push ") for e in events if e["cat"] == "push" and "bytes" in e["args"]]
        first, last = (f"{name} is here" for name in (pushed[0], pushed[len(set(pushed)) - 1]))
        for version in (1, 2):
            came = [e for e in events if e["cat"] == "pull" and e["args"]["step"] == version]
            names = [e["name"] for e in sorted(came, key=lambda e: e["ts"])]
            expect(len(set(names)) == len(names) == len(set(pushed)) > 8, f"weights of step {version}: {names}")
            # the last layers' slices were pushed first, and return before the others have arrived
            expect(version == 2 or names.index(first) < names.index(last), f"weights of step {version}: {names}")


def a_comparison_runs_over_every_link_and_reports_its_measurements(lab):
    labs = Netlab(lab).need()
    out = lab.folder / "compared"
    code, text = lab.call("pushpull", "compare", "--job", lab.job({**MLP, "steps": 8}), "--strategies", "sync",
                          "--workers", 2, "--seeds", 1, "--per-host", 2, "--link", "none", "--link", "50mbit,2ms",
                          "--out", out, seconds=180)
    expect(code == 0, text)
    found = json.loads((out / "compare.json").read_text())
    expect([link["asked"] for link in found["links"]] == ["50mbit,2ms"], f"{found['links']}")
    link = found["links"][0]
    expect(link["round_trip_ms"] >= 4 and 0 < link["bytes_per_second"] <= 50e6 / 8 * 1.02, f"{link}")
    hashes = {run["link"]: run["weights_sha256"] for run in found["runs"]}
    expect(set(hashes) == {None, "50mbit,2ms"} and len(set(hashes.values())) == 1, f"{hashes}")
    labs.expect_removed()


def alive(name):
    """Returns whether the process in a lab's name is alive; labs of other users are not ours."""
    match = re.match(r"p(\d+)[a-z]-", name)
    return not match or pathlib.Path(f"/proc/{match[1]}").exists()


def the_hosts_of_a_killed_job_are_removed(lab):
    labs = Netlab(lab).need()
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = lab.start("pushpull", "run", "--job", lab.job(LONG), "--workers", 2, "--out",
                            lab.folder / lab.name("out"), "--link", "50mbit,1ms")
        process.prints("step ", 120)
        hosts = list(pathlib.Path("/run/netns").glob(f"p{process.pid}a-*"))
        expect(len(hosts) == 4, f"three hosts and their bridge: {hosts}")
        process.send_signal(number)
        process.ends()
        lab.until(lambda: not list(pathlib.Path("/run/netns").glob(f"p{process.pid}a-*")), 30,
                  lambda: f"after {number} there still are {hosts}")
        labs.expect_removed()


if __name__ == "__main__":
    base.main(globals())
