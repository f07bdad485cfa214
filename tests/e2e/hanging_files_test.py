"""A file system that does not answer under --out: SIGTERM is heard, the file is named, and every member ends.

A FIFO without a reader in the place of FILE.tmp lets the coordinator hang at this file alone, in a system call that a
process can be ended in. A frozen file system (fsfreeze) lets it hang at every file; a process ends only once it is
thawed."""
import contextlib
import os
import shutil
import signal
import subprocess

import lab as base
from lab import LONG, MLP, Skipped, expect

FILE, TERM, STOPPED = 8, 143, 75
OF_MEMBERS = {FILE: FILE, TERM: 1, STOPPED: STOPPED}  # they hear that the job was ended, and not by which code


def impatient(lab, keys, seconds=6):
    return {**keys, "progress-timeout": lab.seconds(seconds)}


@contextlib.contextmanager
def frozen_later(lab, size=32 << 20):
    """A folder on a file system of its own, and a function that freezes it. The end of the block thaws it."""
    image, folder = lab.folder / "image", lab.folder / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    for words in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, folder]):
        if not shutil.which(words[0]) or subprocess.run(words, capture_output=True, check=False).returncode != 0:
            raise Skipped("no file system can be mounted here")
    frozen = []

    def freeze():
        subprocess.run(["fsfreeze", "-f", folder], check=True)
        frozen.append(folder)

    def thaw():
        while frozen:
            subprocess.run(["fsfreeze", "-u", frozen.pop()], check=True)
    try:
        yield folder, freeze, thaw
    finally:
        thaw()
        for process in lab.processes:
            if process.poll() is None:
                process.kill()
            process.wait(30)
        subprocess.run(["umount", folder], check=True)


def starts_alone(lab, out, keys):
    return lab.start("pushpull-server", "--job", lab.job(keys), "--listen", "tcp://127.0.0.1:*", "--out", out)


def hangs_at(out, name):
    os.mkfifo(out / f"{name}.tmp")


def named(process, code, name, seconds=60):
    """Ends with this code and a line that names the file."""
    got = process.ends(seconds)
    expect(got == code, f"{process.name} ended with {got}, want {code}: {process.output()[-600:]}")
    lines = [line for line in process.output().splitlines() if "for the file system to " in line and name in line]
    expect(lines, f"{process.name} does not name {name}: {process.output()[-600:]}")


def a_start_that_hangs_is_named_and_ends(lab):
    def case(name, code):
        out = lab.folder / name
        out.mkdir()
        hangs_at(out, "term.json")
        server = starts_alone(lab, out, impatient(lab, MLP, 2 if code == FILE else 600))
        if code == TERM:
            lab.until((out / ".lock").exists, 30, server.output)  # it hears signals from here on
            server.send_signal(signal.SIGTERM)
        named(server, code, f"{name}/term.json" if code == FILE else name)
        expect("listening" not in server.output(), "it takes members in before it can keep its term")
    lab.side_by_side(case, ("deadline", FILE), ("signal", TERM))


def waits_in_the_kernel(pid):
    """A thread of the process waits where no signal reaches it."""
    states = ""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
            states += file.read().rsplit(")", 1)[1].split()[0]
    return "D" in states


def files_of_the_start_that_hang_are_named_to_all(lab):
    cluster = lab.cluster(lab.job(impatient(lab, LONG, 2)), 1, 0, workers=1)
    hangs_at(cluster.out, "job.ini")
    for process in (cluster.add_worker(), cluster.servers[0]):
        named(process, FILE, "job.ini")
    expect("training starts" not in cluster.servers[0].output(), "it trains")


def a_term_that_cannot_be_saved_is_named_to_all(lab):
    def case(name, code):
        del name
        cluster = lab.cluster(lab.job(impatient(lab, LONG, 6 if code == FILE else 600)), 2, 1)
        cluster.reaches(100)
        hangs_at(cluster.out, "term.json")
        cluster.servers[1].kill()
        cluster.servers[0].prints("all members go back", 30)
        if code == TERM:
            cluster.servers[0].send_signal(signal.SIGTERM)
        named(cluster.workers[0], OF_MEMBERS[code], "term.json", 90)
        named(cluster.servers[0], code, "term.json")
    lab.side_by_side(case, ("deadline", FILE), ("signal", TERM))


def a_summary_that_cannot_be_written_is_named_to_all(lab):
    def case(name, code):
        del name
        cluster = lab.cluster(lab.job(impatient(lab, {**MLP, "steps": lab.steps(4000)}, 6 if code == FILE else 600)), 1, 1)
        hangs_at(cluster.out, "summary.json")
        cluster.reaches(lab.steps(4000), 120)
        if code == STOPPED:  # its last checkpoint is whole
            cluster.servers[0].send_signal(signal.SIGTERM)
        named(cluster.workers[0], OF_MEMBERS[code], "summary.json", 90)
        named(cluster.servers[0], code, "summary.json")
    lab.side_by_side(case, ("deadline", FILE), ("signal", STOPPED))


def a_member_does_not_give_up_a_lost_server_while_its_term_is_saved(lab):
    """The worker has no answer for longer than heartbeat-timeout; the job goes on once the file system answers."""
    with frozen_later(lab) as (folder, freeze, thaw):
        keys = {**MLP, "steps": lab.steps(8000), "checkpoint-every": 50, "heartbeat-timeout": lab.seconds(4)}
        want = lab.train(lab.job(keys), 2, 1)["weights_sha256"]
        os.symlink(folder, lab.folder / "out-1")
        cluster = lab.cluster(lab.job({**keys, "checkpoint-dir": lab.folder / "checkpoints"}), 2, 1)
        cluster.reaches(100)
        freeze()
        cluster.servers.pop().kill()
        server = cluster.servers[0]
        server.prints("for the file system to write", 60)
        expect(cluster.workers[0].poll() is None, cluster.workers[0].output()[-600:])
        cluster.servers.append(lab.start("pushpull-server", "--join", cluster.address))
        cluster.servers[1].prints("joins once OUT/term.json", 30)
        thaw()
        got = cluster.ends_well()
        expect(got["weights_sha256"] == want and got["recoveries"] == 1, f"{got}")


def frozen(lab, moment, code):
    with frozen_later(lab) as (folder, freeze, thaw):
        os.symlink(folder, lab.folder / "out-0")
        keys = {**(LONG if moment == "term" else {**MLP, "steps": lab.steps(4000)}),
                "checkpoint-dir": lab.folder / "checkpoints"}
        keys = impatient(lab, keys, 6 if code == FILE else 600)
        if moment == "start":
            freeze()
            server = starts_alone(lab, folder, keys)
            members, word = [], "to lock"
            if code == TERM:
                lab.until(lambda: waits_in_the_kernel(server.pid), 30, server.output)
        else:
            cluster = lab.cluster(lab.job(keys), 2, 1)
            server, members = cluster.servers[0], cluster.workers
            word = "term.json" if moment == "term" else "summary.json"
            cluster.reaches(100 if moment == "term" else 1)
            freeze()
            if moment == "term":
                cluster.servers[1].kill()
                server.prints("all members go back", 30)
            else:
                members = [*members, cluster.servers[1]]
        if code in (TERM, STOPPED):
            if moment == "summary":
                server.prints("step " + str(lab.steps(4000)) + "/", 120)
            server.send_signal(signal.SIGTERM)
        for member in members:
            named(member, OF_MEMBERS[code], word, 90)
        # it may say that it waits, before it gives up
        server.prints("for the file system to " if code == TERM else "(progress-timeout = ", 60)
        thaw()
        named(server, code, word)


def a_frozen_file_system_at_the_start(lab):
    frozen(lab, "start", FILE)


def a_signal_over_a_frozen_file_system_at_the_start(lab):
    frozen(lab, "start", TERM)


def a_frozen_file_system_at_the_begin_of_a_term(lab):
    frozen(lab, "term", FILE)


def a_signal_over_a_frozen_file_system_at_the_begin_of_a_term(lab):
    frozen(lab, "term", TERM)


def a_frozen_file_system_at_the_summary(lab):
    frozen(lab, "summary", FILE)


def a_signal_over_a_frozen_file_system_at_the_summary(lab):
    frozen(lab, "summary", STOPPED)


if __name__ == "__main__":
    base.main(globals())
