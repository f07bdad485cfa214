"""Tests `pushpull bench`: real processes, a row for each size and transport, one line for each mistake."""
import json
import signal

from lab import expect, first

USAGE, SIGINT_CODE = 2, 128 + signal.SIGINT


def bench(lab, *words, want=0, seconds=240):
    """Returns (rows of the JSON, output)."""
    out = lab.folder / lab.name("bench.json")
    code, text = lab.call("pushpull", "bench", "--steps", 20, "--out", out, *words, seconds=seconds)
    expect(code == want, f"exit code {code}, want {want}: {text[-1500:]}")
    return json.loads(out.read_text())["rows"] if out.exists() else [], text


def complete(row, sockets):
    for field in ("exchange_us_p50", "exchange_us_p99", "exchange_gb_s", "floor_us_p50", "ratio"):
        expect(row[field] > 0, f"{field} in {row}")
    expect(row["exchange_us_p99"] >= row["exchange_us_p50"], f"{row}")
    expect(row["steps"] == 20, f"{row}")
    for field in ("push_gb_s", "pull_gb_s", "push_us_p50", "pull_us_p50", "floor_push_gb_s", "floor_pull_gb_s"):
        expect((row[field] or 0) > 0 if sockets else row[field] is None, f"{field} in {row}")


def every_size_and_number_of_processes_gives_a_row(lab):
    def gives_rows(workers, servers):
        rows, text = bench(lab, "--bytes", "4,4096,3000000", "--transport", "tcp", "--workers", workers,
                           "--servers", servers)
        expect([row["bytes"] for row in rows] == [4, 4096, 3000000], f"{rows}")
        for row in rows:
            complete(row, True)
            expect((row["workers"], row["servers"], row["transport"]) == (workers, servers, "tcp"), f"{row}")
            expect(str(row["bytes"]) in text, text)
    for servers in (1, 2):
        lab.side_by_side(gives_rows, *((workers, servers) for workers in (1, 2, 4)))
    lab.nothing_is_left()


@first("pushpull bench")
def every_transport_and_optimizer_gives_a_row(lab):
    for optimizer in ("sgd", "adam"):
        rows, _ = bench(lab, "--bytes", 65536, "--optimizer", optimizer)
        expect([row["transport"] for row in rows] == ["shm", "tcp", "ipc"], f"{rows}")
        for row in rows:
            complete(row, row["transport"] != "shm")
    lab.nothing_is_left()


def wrong_arguments_are_refused_in_one_line(lab):
    for words in (("--bytes", "0"), ("--bytes", "6"), ("--bytes", "a"), ("--transport", "udp"), ("--workers", "0"),
                  ("--optimizer", "sdg"), ("--bytes", "4000000000000"), ("--strategy", "async"), ("--byte", "4"), ("more",)):
        code, text = lab.call("pushpull", "bench", *words)
        expect(code == USAGE, f"{words}: exit code {code}: {text}")
        expect(len(text.strip().splitlines()) == 1 and words[0].lstrip("-") in text, f"{words}: {text}")


def an_interrupt_ends_the_bench_and_keeps_its_rows(lab):
    out = lab.folder / lab.name("bench.json")
    process = lab.start("pushpull", "bench", "--bytes", "4096,1048576", "--transport", "tcp", "--steps", 1000000, "--out", out)
    lab.until(lambda: any("pushpull-worker" in line for line in lab.left_behind()), 60, lambda: "no worker")
    process.send_signal(signal.SIGINT)
    expect(process.ends(60) == SIGINT_CODE, f"exit code {process.returncode}: {process.output()}")
    expect("ended by SIGINT after 0 rows" in process.output(), process.output())
    expect(json.loads(out.read_text())["rows"] == [], out.read_text())
    lab.nothing_is_left()


def running_servers_are_joined(lab):
    keys = {"strategy": "sync", "global-batch": 2, "micro-batch": 1, "steps": 30, "optimizer": "adam", "transport": "tcp"}
    cluster = lab.cluster(lab.job(keys), servers=2, started=0, workers=2)
    out = lab.folder / "joined.json"
    code, text = lab.call("pushpull", "bench", "--join", cluster.address, "--bytes", 1048576, "--workers", 2, "--out", out)
    expect(code == 0, f"exit code {code}: {text}")
    result = json.loads(out.read_text())
    row = result["rows"][0]
    expect(result["optimizer"] == "adam" and row["transport"] == "tcp" and row["servers"] == 2, f"{result}")
    expect(row["exchange_us_p50"] > 0 and row["floor_us_p50"] > 0 and row["ratio"] > 0, f"{row}")
    for server in cluster.servers:
        expect(server.ends() == 0, server.output())


def a_job_of_another_strategy_is_refused(lab):
    keys = {"strategy": "async", "global-batch": 1, "micro-batch": 1, "steps": 30}
    cluster = lab.cluster(lab.job(keys), servers=1, started=0, workers=1)
    code, text = lab.call("pushpull", "bench", "--join", cluster.address, "--bytes", 4096, "--workers", 1)
    expect(code == USAGE and "strategy is async" in text, f"exit code {code}: {text}")


if __name__ == "__main__":
    import lab as base
    base.main(globals())
