"""Tests keys: a process with the job's key can join; any other is refused before its first message, without an effect on the
job."""
import contextlib
import os
import socket

import lab as base
from lab import LONG, MLP, expect, first
from zmtp import GREETING, Stranger, hello, listening_ports, preamble

USAGE = 2
REFUSED = 77
WORKER = 2


def keygen(lab, *words):
    code, text = lab.call("pushpull", "keygen", *words)
    expect(code == 0, f"keygen {words}: exit code {code}: {text}")


def mechanism_at(port):
    """Returns the mechanism that a listener requires: bytes 12 to 32 of its greeting."""
    with contextlib.closing(Stranger(f"tcp://127.0.0.1:{port}")) as stranger:
        stranger.bytes(GREETING[:12])
        return stranger.receive(64)[12:32].rstrip(b"\0").decode()


def mechanisms(cluster):
    """Returns the mechanisms of every port of the job: control, data of each server, peers of each worker."""
    control = int(cluster.address.rsplit(":", 1)[1])
    found = {"control": {mechanism_at(control)}, "data": set(), "peers": set()}
    for server in cluster.servers:
        found["data"] |= {mechanism_at(port) for port in listening_ports(server.pid) - {control}}
    for worker in cluster.workers:
        found["peers"] |= {mechanism_at(port) for port in listening_ports(worker.pid)}
    return found


@first("P7: strangers are refused")
def strangers_are_refused_without_an_effect_on_the_job(lab):
    calm = lab.train(lab.job(MLP), 1, 2)["weights_sha256"]
    keygen(lab, "job.key")
    keygen(lab, "other.key")
    keygen(lab, "--observer", "--key", "job.key", "observer.key")
    cluster = lab.cluster(lab.job(MLP), 2, 1, workers=2, key_words=("--key", "job.key"))
    strangers = [(lab.start(program, "--join", cluster.address, "--join-timeout", lab.seconds(60), *words), words, message)
                 for words, message in ((("--insecure",), "--insecure"), (("--key", "other.key"), "other.key"),
                                     (("--key", "observer.key"), "observer"), ((), "has a different key"))
                 for program in ("pushpull-worker", "pushpull-server")]
    for stranger, words, message in strangers:
        expect(stranger.ends(60) == REFUSED, f"{stranger.name} {words}: {stranger.returncode}: {stranger.output()}")
        expect(message in stranger.output() and "[key]" in stranger.output(), f"{words}: {stranger.output()}")
        errors = [line for line in stranger.output().splitlines() if "error" in line]
        expect(len(errors) == 1, f"{words}: not one line: {stranger.output()}")
    ports = set().union(*(listening_ports(server.pid) for server in cluster.servers))
    expect(len(ports) == 3, f"{ports}")
    for port in ports:  # by hand, without a key
        with contextlib.closing(Stranger(f"tcp://127.0.0.1:{port}")) as raw:
            raw.handshake()
            raw.message(hello(WORKER, 7))
            expect(not raw.frame().startswith(preamble(7)), f"port {port} answers a stranger")
    cluster.add_worker()
    summary = cluster.ends_well()
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
    expect(summary["refused_peers"] >= 11, f"refused_peers {summary['refused_peers']}")
    expect(summary["rejected_frames"] == 0, f"{summary['rejected_frames']} frames came in")
    output = cluster.servers[0].output()
    for reason in ("had shown a key", "is not this job's", "observer"):
        expect(output.count(reason) in (1, 2), f"'{reason}' is not logged, or too often: {output}")


def the_users_key_is_made_once_and_found_by_all_programs(lab):
    del lab.environment["XDG_CONFIG_HOME"]
    home = lab.folder / "home"
    home.mkdir()
    lab.environment["HOME"] = str(home)
    cluster = lab.cluster(lab.job(MLP), 2, 2)
    files = [path for path in home.rglob("*") if path.is_file()]
    expect(files == [home / ".config" / "pushpull" / "key"], f"{files}")
    expect(files[0].stat().st_mode & 0o777 == 0o600, f"mode {files[0].stat().st_mode:o}")
    expect(cluster.ends_well()["refused_peers"] == 0, "a member was refused")
    expect(lab.train(lab.job(MLP), 1, 1)["refused_peers"] == 0, "a member of `pushpull run` was refused")


def programs_that_start_together_use_one_key(lab):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    started = [lab.start("pushpull-worker", "--join", address) for _ in range(6)]
    started.append(lab.start("pushpull-server", "--job", lab.job(MLP), "--listen", address, "--workers", 6,
                             "--out", "out"))
    for process in started:
        expect(process.ends(60) == 0, f"{process.name}: {process.returncode}: {process.output()[-400:]}")


def a_run_without_a_home_makes_its_own_key(lab):
    nowhere = lab.folder / "file"
    nowhere.write_text("")
    lab.environment["XDG_CONFIG_HOME"] = str(nowhere)
    run = lab.run(lab.job(MLP), 2, 2)
    expect(run.code == 0 and "a key of its own" in run.text, run.text[-800:])
    process = lab.launch(lab.job(LONG), 1, 2)
    process.prints("listening on ")
    address = process.output().split("listening on ")[1].split()[0]
    process.prints("step ")
    lab.environment["XDG_CONFIG_HOME"] = str(lab.folder / "config")
    stranger = lab.start("pushpull-worker", "--join", address)
    expect(stranger.ends(30) == REFUSED, f"{stranger.returncode}: {stranger.output()}")
    process.terminate()
    process.ends(30)
    lab.environment["XDG_CONFIG_HOME"] = str(nowhere)
    code, text = lab.call("pushpull-server", "--job", lab.job(MLP))
    expect(code == USAGE and str(nowhere) in text and "--key" in text, f"{code}: {text}")


def a_missing_home_is_not_created(lab):
    del lab.environment["XDG_CONFIG_HOME"]
    home = lab.folder / "nonexistent"
    lab.environment["HOME"] = str(home)
    run = lab.run(lab.job(MLP), 1, 1)
    expect(run.code == 0 and "a key of its own" in run.text, run.text[-800:])
    code, text = lab.call("pushpull-server", "--job", lab.job(MLP))
    expect(code == USAGE and "no home" in text and "--key" in text, f"{code}: {text}")
    expect(not home.exists(), "the home was made")


def a_key_that_others_can_read_is_refused(lab):
    keygen(lab, "job.key")
    for mode in (0o644, 0o640, 0o602):
        os.chmod(lab.folder / "job.key", mode)
        for words in (["pushpull-worker", "--join", "tcp://127.0.0.1:1"],
                      ["pushpull-server", "--job", lab.job(MLP)], ["pushpull", "run", "--job", lab.job(MLP)]):
            code, text = lab.call(*words, "--key", "job.key")
            expect(code == USAGE and "job.key" in text and "chmod" in text, f"{mode:o} {words}: {code}: {text}")


def keygen_overwrites_nothing(lab):
    keygen(lab, "job.key")
    before = (lab.folder / "job.key").read_text()
    expect((lab.folder / "job.key").stat().st_mode & 0o777 == 0o600, "others can read a new key")
    code, text = lab.call("pushpull", "keygen", "job.key")
    expect(code == USAGE and "job.key" in text, f"{code}: {text}")
    expect((lab.folder / "job.key").read_text() == before, "the key was overwritten")
    keygen(lab, "--observer", "--key", "job.key", "observer.key")
    code, text = lab.call("pushpull", "keygen", "--observer", "--key", "observer.key", "more.key")
    expect(code == USAGE and "observer.key" in text, f"{code}: {text}")
    expect(not (lab.folder / "more.key").exists(), "an observer has made a key")
    code, text = lab.call("pushpull-server", "--job", lab.job(MLP), "--key", "observer.key")
    expect(code == USAGE and "observer" in text, f"{code}: {text}")


@first("P7: every port asks for a key")
def every_port_requires_the_mechanism_of_encrypt(lab):
    job = lab.job({**LONG, "strategy": "allreduce:ring"})  # the only kind of job with all kinds of ports
    for words, control, data in (((), "CURVE", "PLAIN"), (("--encrypt", "all"), "CURVE", "CURVE"),
                                 (("--insecure",), "NULL", "NULL")):
        keys = {"encrypt": "all"} if "--encrypt" in words else {}
        cluster = lab.cluster(job, 2, 2, key_words=words if "--insecure" in words else (), **keys)
        cluster.reaches(1)
        wanted = {"control": {control}, "data": {data}, "peers": {data}}
        expect(mechanisms(cluster) == wanted, f"{words}: {mechanisms(cluster)}, wanted {wanted}")
        if "--insecure" in words:
            for process in cluster.all():
                expect("no key is required" in process.output(), f"{process.name} does not say so")
        for process in cluster.all():  # a stop would write a checkpoint
            process.kill()


@first("P1, P7: encryption changes no bits")
def encryption_changes_no_bits(lab):
    for keys, kinds in ((MLP, (("shm", "all"), ("tcp", "control"), ("tcp", "all"), ("ipc", "control"), ("ipc", "all"))),
                        ({**MLP, "strategy": "allreduce:ring"}, (("shm", "control"), ("tcp", "all")))):
        job = lab.job(keys)
        hashes = {}
        for transport, encrypt in kinds:
            summary = lab.train(job, 2, 2, transport=transport, encrypt=encrypt)
            hashes[transport, encrypt] = summary["weights_sha256"]
            expect(summary["refused_peers"] == 0, f"{transport} {encrypt}: {summary['refused_peers']} refused")
        out = lab.folder / lab.name("open")
        code, text = lab.call("pushpull", "run", "--job", job, "--servers", 2, "--workers", 2, "--out", out, "--insecure")
        expect(code == 0, text[-600:])
        hashes["insecure"] = base.summary_of(out)["weights_sha256"]
        expect(len(set(hashes.values())) == 1, f"{hashes}")


def with_a_key_servers_may_listen_beyond_loopback(lab):
    for strategy in ("sync", "allreduce:ring"):
        run = lab.run(lab.job({**MLP, "strategy": strategy}), 2, 2, listen="tcp://0.0.0.0:*")
        expect(run.code == 0, f"{strategy}: exit code {run.code}: {run.text[-600:]}")
        expect("--insecure" not in run.text, run.text[-600:])


if __name__ == "__main__":
    base.main(globals())
