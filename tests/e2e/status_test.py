"""Tests the views that users have of a running job: members.json and `pushpull status`."""
import json
import os
import signal

import lab as base
from lab import LONG, MLP, expect, first

FIELDS = {"role", "rank", "pid", "host", "step", "samples"}


def members_of(out):
    return json.loads((out / "members.json").read_text())


def pids_of(document):
    return sorted(member["pid"] for member in document["members"])


def status(lab, address, *words, seconds=30):
    """Returns its exit code and its standard output."""
    process = lab.start("pushpull", "status", "--join", address, *words)
    return process.ends(seconds), process.output()


def json_of(lab, address):
    code, text = status(lab, address, "--json")
    expect(code == 0, f"exit code {code}: {text}")
    return json.loads(text)


def members_are_those_of_the_last_step(lab):
    cluster = lab.cluster(lab.job({**MLP, "steps": lab.steps(3000), "eval-every": 500}), servers=2)
    summary = cluster.ends_well()
    document = members_of(cluster.out)
    expect(set(document) == {"members", "left", "phase", "workers", "failure", "exit_code"}, f"it has {set(document)}")
    expect(pids_of(document) == sorted(p.pid for p in cluster.all()), f"other members: {document}")
    expect(document["left"] == [], f"a member has left: {document['left']}")
    for member in document["members"]:
        expect(FIELDS <= set(member), f"a member lacks {FIELDS - set(member)}")
        expect(member["step"] == summary["steps"], f"it is at another step: {member}")
    samples = [m["samples"] for m in document["members"] if m["role"] == "worker"]
    expect(samples == summary["samples_per_worker"], f"{samples}, not {summary['samples_per_worker']}")
    expect(not (cluster.out / "members.json.tmp").exists(), "a half-written file is left")


def samples_exclude_dropped_pushes(lab):
    """backup:1: pushes of the slower worker are dropped, and its samples do not count. allreduce: no server
    sees samples."""
    low = min(base.free_port(), 65000)
    for strategy, keys in (("backup:1", {"straggler": "0:3"}), ("allreduce:ring", {}), ("async", {})):
        out = lab.folder / strategy.replace(":", "-")
        run = lab.run(lab.job({**MLP, "strategy": strategy, "steps": 200, **keys}), servers=2, workers=2, out=out,
                      data_port=f"{low}-{low + 99}")
        expect(run.code == 0, f"{strategy}: exit code {run.code}: {run.text[-800:]}")
        members = members_of(out)["members"]
        ports = [int(m["address"].rsplit(":", 1)[1]) for m in members if m["role"] == "server" or strategy == "allreduce:ring"]
        expect(len(set(ports)) == len(ports) and all(low <= port < low + 100 for port in ports), f"{strategy}: {members}")
        workers = [m for m in members if m["role"] == "worker"]
        expect([m["samples"] for m in workers] == run.summary()["samples_per_worker"], f"{strategy}: {workers}")


@first("members.json")
def a_lost_member_is_named_with_the_reason(lab):
    cluster = lab.cluster(lab.job({**LONG, "on-worker-loss": "wait"}), started=2)
    cluster.reaches(100)
    lost, other = cluster.workers
    lost.send_signal(signal.SIGKILL)
    lab.until(lambda: members_of(cluster.out)["left"], 30, lambda: "no member is named as lost")
    document = members_of(cluster.out)
    expect(lost.pid not in pids_of(document) and other.pid in pids_of(document), f"members {document}")
    left = document["left"][0]
    expect(left["pid"] == lost.pid and left["samples"] > 0 and left["reason"], f"left: {left}")
    late = cluster.add_worker()
    lab.until(lambda: any(m["pid"] == late.pid and m["samples"] > 0 for m in members_of(cluster.out)["members"]), 60,
              lambda: f"the late worker computes nothing: {members_of(cluster.out)}")
    ranks = [(m["role"], m["rank"]) for m in members_of(cluster.out)["members"]]
    expect(len(ranks) == len(set(ranks)), f"a rank appears twice: {ranks}")


@first("status and members.json")
def status_shows_members_and_progress(lab):
    cluster = lab.cluster(lab.job(LONG), servers=2)
    cluster.reaches(50)
    document = json_of(lab, cluster.address)
    expect(pids_of(document) == sorted(p.pid for p in cluster.all()), f"members: {document['members']}")
    expect(document["phase"] == "training" and document["strategy"] == "sync", f"{document}")
    expect(document["step"] >= 50 and document["steps"] == LONG["steps"], f"step {document['step']}")
    expect(document["out"] == str(cluster.out), f"out: {document['out']}")
    code, text = status(lab, cluster.address)
    expect(code == 0 and all(str(p.pid) in text for p in cluster.all()), f"exit code {code}: {text}")
    expect("rejected" not in cluster.servers[0].output() and "dropped a" not in cluster.servers[0].output(), "it was refused")
    cluster.servers[0].send_signal(signal.SIGTERM)
    for process in cluster.all():
        process.ends(60)
    expect(pids_of(members_of(cluster.out)) == sorted(p.pid for p in cluster.all()), f"{members_of(cluster.out)}")


def a_gathering_job_names_the_missing_members(lab):
    cluster = lab.cluster(lab.job(LONG), servers=2, started=1, workers=2)
    document = json_of(lab, cluster.address)
    expect(document["phase"] == "gathering" and "1 of 2 workers" in document["waiting_for"], f"{document}")
    code, text = status(lab, cluster.address)
    expect(code == 0 and "1 of 2 workers" in text, f"exit code {code}: {text}")
    code, text = lab.call("pushpull", "doctor", "--join", cluster.address)
    expect(code == 0 and "latency" in lines_of(text)["server 1"][1], f"exit code {code}: {text}")


def only_the_straggler_is_named(lab):
    cluster = lab.cluster(lab.job({**LONG, "hidden": "512,512", "straggler": "1:6"}), started=3)
    cluster.reaches(20)

    def stragglers():
        return [m["rank"] for m in members_of(cluster.out)["members"] if m.get("straggler")]
    lab.until(lambda: stragglers() == [1], 60, lambda: f"stragglers: {members_of(cluster.out)}")
    code, text = status(lab, cluster.address)
    named = [line for line in text.splitlines() if "STRAGGLER" in line]
    expect(code == 0 and len(named) == 1 and "worker 1" in named[0], f"exit code {code}: {text}")
    expect("traggler" not in cluster.servers[0].output(), "the log has it, too")


def an_absent_coordinator_is_code_4_and_names_the_address(lab):
    address = "tcp://127.0.0.1:1"
    code, text = status(lab, address, "--join-timeout", 1)
    expect(code == 4 and address in text, f"exit code {code}: {text}")
    code, text = status(lab, "here", "--join-timeout", 1)
    expect(code == 2 and "--join tcp://here" in text, f"exit code {code}: {text}")


def training_continues_if_members_cannot_be_written(lab):
    out = lab.folder / "held"
    os.makedirs(out / "members.json.tmp")
    want = lab.train(lab.job(MLP), workers=1)["weights_sha256"]
    run = lab.run(lab.job(MLP), workers=1, out=out)
    expect(run.code == 0 and run.summary()["weights_sha256"] == want, f"exit code {run.code}: {run.text[-800:]}")
    expect("members.json: Is a directory; training goes on" in run.text, f"no reason given: {run.text[-800:]}")


def lines_of(text):
    """Returns check -> (verdict, text) of `pushpull doctor`. A check may contain spaces; verdicts and texts
    begin in columns."""
    lines = [line for line in text.splitlines() if line.split(" ")[0] in ("ok", "warning", "ERROR")]
    return {" ".join(line[9:].split("  ")[0].split()): (line[:9].strip(), line) for line in lines}


@first("doctor")
def the_doctor_finds_no_errors_in_a_running_job(lab):
    cluster = lab.cluster(lab.job(LONG), servers=2)
    cluster.reaches(20)
    code, text = lab.call("pushpull", "doctor", "--join", cluster.address)
    found = lines_of(text)
    expect(code == 0 and "0 errors" in text, f"exit code {code}: {text}")
    for check in ("name", "port", "version", "key", "clock", "server 0", "server 1", "disk", "files", "/dev/shm"):
        expect(check in found, f"no line for {check}: {text}")
    expect("latency" in found["server 1"][1] and "protocol version" in found["version"][1], text)
    if "shared memory with" in "".join(worker.output() for worker in cluster.workers):
        expect("can be shared" in found["shm of server 1"][1], text)
    step = cluster.step()
    lab.until(lambda: cluster.step() > step, 30, lambda: "training does not continue")
    expect("dropped a" not in "".join(p.output() for p in cluster.servers), "a server refused something")


def the_doctor_names_a_stopped_server(lab):
    cluster = lab.cluster(lab.job(LONG), servers=2)
    cluster.reaches(20)
    with cluster.servers[1].stopped():
        code, text = lab.call("pushpull", "doctor", "--join", cluster.address)
    verdict, line = lines_of(text)["server 1"]
    expect(code == 4 and verdict == "ERROR" and "has not answered" in line, f"exit code {code}: {text}")
    expect(lines_of(text)["server 0"][0] == "ok", text)


def the_doctor_names_an_unused_port(lab):
    code, text = lab.call("pushpull", "doctor", "--join", "tcp://127.0.0.1:1")
    expect(code == 4 and "tcp://127.0.0.1:1 " in text and "Connection refused" in text, f"exit code {code}: {text}")


if __name__ == "__main__":
    base.main(globals())
