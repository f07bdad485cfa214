"""Ways to watch a running job: event files for TensorBoard, and a page over HTTP for Prometheus and scripts."""
import json
import math
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree

import event_file
import lab as base
import prometheus
from lab import LONG, MLP, expect, first, metrics_of

STOPPED = 75


def http(url, method="GET"):
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as answer:
        return answer.read().decode(), answer.headers


def page_of(cluster):
    """Returns the address that the first server prints."""
    cluster.servers[0].prints("metrics on http://")
    return re.search(r"metrics on (http://\S+)/metrics", cluster.servers[0].output())[1]


def event_files(folder):
    return sorted(folder.glob("events.out.tfevents.*"))


@first("TensorBoard")
def tensorboard_gets_the_figures_of_metrics_jsonl(lab):
    folder = lab.folder / "events"
    out = lab.train(lab.job({**MLP, "strategy": "async", "eval-every": 10}), workers=2, tensorboard=folder)
    files = event_files(folder)
    expect(len(files) == 1, f"event files {files}")
    got = event_file.read(files[0])
    expect(got["version"] == "brain.Event:2" and got["starts"] == [0], f"{got['version']}, starts {got['starts']}")
    expect(all(abs(at - time.time()) < 3600 for at in got["times"]), f"times {got['times'][:3]}")
    lines = metrics_of(lab.folder / "out-0")
    scalars = got["scalars"]

    def same(tag, key, step="step"):
        want = [(line[step], line[key]) for line in lines if line.get(key) is not None]
        have = scalars.get(tag, [])
        expect(len(have) == len(want) > 0 and all(a == b and math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-12)
                                                  for (a, x), (b, y) in zip(have, want)), f"{tag}: {have}, want {want}")
    for tag, key in (("train/loss", "loss"), ("train/learning_rate", "learning_rate"), ("train/epoch", "epoch"),
                     ("train/samples_per_second", "samples_per_second"), ("staleness/mean", "staleness_mean"),
                     ("staleness/max", "staleness_max")):
        same(tag, key)
    same("test/loss", "test_loss", "test_step")
    same("test/accuracy", "test_accuracy", "test_step")
    expect([step for step, _ in scalars["test/loss"]] == [10, 20, 30, 40], f"{scalars['test/loss']}")
    whole = {}
    for _, h in got["histograms"]["staleness/updates"]:
        expect(h["num"] == sum(h["bucket"]) > 0 and h["bucket_limit"] == sorted(h["bucket_limit"]), f"{h}")
        expect(len(h["bucket"]) == len(h["bucket_limit"]) and h["min"] <= h["max"] < h["bucket_limit"][-1], f"{h}")
        for edge, updates in zip(h["bucket_limit"], h["bucket"]):
            whole[edge - 0.5] = whole.get(edge - 0.5, 0) + updates
    want = {float(key): value for key, value in out["staleness"]["histogram"].items()}
    expect({k: v for k, v in whole.items() if v} == want, f"staleness {whole}, want {want}")
    split = [scalars.get(f"task_ms/{name}", []) for name in ("compute", "push", "wait", "pull")]
    expect(all(split) and all(math.isfinite(v) and v >= 0 for part in split for _, v in part), f"split {split}")


def a_lost_server_begins_the_curves_again(lab):
    folder = lab.folder / "events"
    cluster = lab.cluster(lab.job({**LONG, "checkpoint-every": 50}), servers=2, started=1,
                          on_server_loss="restart", tensorboard=folder)
    cluster.reaches(200)
    cluster.servers[1].kill()
    cluster.servers.append(lab.start("pushpull-server", "--join", cluster.address))
    lab.until(lambda: len(event_file.read(event_files(folder)[0])["starts"]) == 2, 90,
              lambda: cluster.servers[0].output()[-800:])
    got = event_file.read(event_files(folder)[0])
    expect(got["starts"][0] == 0 and got["starts"][1] >= 150 and got["starts"][1] % 50 == 0, f"{got['starts']}")


def a_folder_that_cannot_be_used_costs_one_line(lab):
    (lab.folder / "file").write_text("")
    run = lab.run(lab.job(MLP), tensorboard=lab.folder / "file" / "events")
    expect(run.code == 0 and run.text.count("tfevents") == 1, f"{run.code}: {run.text[-800:]}")
    expect("Not a directory; training goes on" in run.text, run.text[-800:])
    expect(run.summary()["steps"] == 40 and metrics_of(run.out), "no results")


@first("Prometheus, and status over HTTP")
def prometheus_gets_the_figures_of_the_job(lab):
    cluster = lab.cluster(lab.job({**LONG, "strategy": "async", "eval-every": 100}), metrics_listen="*")
    page = page_of(cluster)
    expect(page.startswith("http://127.0.0.1:"), f"without a host it listens on {page}")
    cluster.reaches(300)
    # workers send the times of their tasks with heartbeats
    there = re.compile(r"pushpull_tasks_total [1-9]")
    lab.until(lambda: "pushpull_test_step" in (text := http(page + "/metrics")[0]) and there.search(text), 60,
              lambda: http(page + "/metrics")[0])
    text, headers = http(page + "/metrics")
    expect(headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", str(headers))
    metrics = prometheus.parse(text)
    one = lambda name, **labels: prometheus.value(metrics, "pushpull_" + name, **labels)
    expect(all(name.startswith("pushpull_") for name in metrics), f"{list(metrics)}")
    expect(one("phase", phase="training") == 1 and one("phase", phase="failed") == 0, text[:600])
    expect(one("info", strategy="async") == 1 and one("step") >= 100 and one("end_step") == LONG["steps"], text[:900])
    expect(one("learning_rate") == 0.1 and 0 < one("loss") < 10 and one("samples") > 0, text[:2000])
    expect(one("test_step") % 100 == 0 and 0 < one("test_metric", metric="accuracy") <= 1, text)
    parts = [one("task_seconds_total", activity=a) for a in ("compute", "push", "wait", "pull")]
    expect(one("tasks_total") > 0 and sum(parts) > 0 and one("pushed_bytes_total") > 0, f"{parts}")
    have = {(labels["role"], labels["pid"]) for _, labels, _ in metrics["pushpull_member_step"][1]}
    want = {(role, str(p.pid)) for role, all in (("server", cluster.servers), ("worker", cluster.workers)) for p in all}
    expect(have == want, f"members {have}, want {want}")
    sent = {labels["role"]: value for _, labels, value in metrics["pushpull_member_sent_bytes_total"][1]}
    expect(all(sent[role] > 0 for role in ("server", "worker")) and "pushpull_member_device_memory_bytes" not in metrics, f"{sent}")
    workers = {labels["rank"] for _, labels, _ in metrics["pushpull_member_samples_per_second"][1]}
    expect(workers == {"0", "1"}, f"ranks {workers}")
    buckets = [v for name, _, v in metrics["pushpull_staleness"][1] if name.endswith("_count")]
    expect(buckets[0] > 0, "no updates in the histogram")
    later = prometheus.parse(http(page + "/metrics")[0])
    for name, (kind, samples) in metrics.items():
        if kind != "counter":
            continue
        for full, labels, before in samples:
            expect(prometheus.value(later, full, **labels) >= before, f"{full} falls")
    the_page_has_the_status_that_the_command_prints(lab, cluster, page)
    cluster.servers[0].send_signal(signal.SIGTERM)
    expect(cluster.servers[0].ends() == STOPPED, cluster.servers[0].output()[-600:])


def the_page_has_the_status_that_the_command_prints(lab, cluster, page):
    text, headers = http(page + "/status")
    expect(headers["Content-Type"] == "application/json", str(headers))
    status = json.loads(text)
    code, told = lab.call("pushpull", "status", "--json", "--join", cluster.address)
    expect(code == 0, told)
    asked = json.loads(told[told.index("{"):])
    expect(set(status) == set(asked), f"{set(status) ^ set(asked)}")
    expect([sorted(m) for m in status["members"]] == [sorted(m) for m in asked["members"]], "other fields")
    expect({m["pid"] for m in status["members"]} == {p.pid for p in cluster.all()}, f"{status['members']}")
    first = status["members"][1]
    expect((first["role"], first["rank"], first["host"]) == ("worker", 0, socket.gethostname()) and "step" in first,
           f"{first}")


def a_taken_port_costs_one_line(lab):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = lab.run(lab.job(MLP), metrics_listen=f"127.0.0.1:{port}")
    expect(run.code == 0 and run.text.count(f"127.0.0.1:{port}: Address already in use") == 1, run.text[-900:])
    expect("training goes on without /metrics" in run.text, run.text[-900:])


def a_report_shows_one_run_that_goes_on_or_has_ended(lab):
    def report_of(out):
        code, told = lab.call("pushpull", "report", out)
        expect(code == 0 and (out / "report.html").exists(), f"{code}: {told}")
        page = (out / "report.html").read_text()
        xml.etree.ElementTree.fromstring(page)
        return page
    cluster = lab.cluster(lab.job({**LONG, "eval-every": 50}))
    cluster.reaches(200)
    page = report_of(cluster.out)
    expect("not finished" in page, page[:2000])
    cluster.workers[1].kill()
    cluster.workers[1].wait()
    cluster.servers[0].prints("lost", 90)
    cluster.servers[0].send_signal(signal.SIGTERM)
    cluster.servers[0].ends()
    out = cluster.out
    page = report_of(out)
    expect(json.loads((out / "members.json").read_text())["left"][0]["reason"][:20] in page, "no reason of the worker that left")
    lab.train(lab.job({**MLP, "strategy": "async", "eval-every": 10}), workers=2)
    out = lab.folder / "out-1"
    page = report_of(out)
    for part in ("<p>finished", "async, 2 workers", '"rank":1', '"histogram":', "<dt>accuracy</dt>",
                 base.summary_of(out)["weights_sha256"]):
        expect(part in page, f"no '{part}'")
    code, told = lab.call("pushpull", "report", lab.folder)
    expect(code == 2 and "job.ini does not exist" in told, f"{code}: {told}")


def refused(url, method="GET"):
    try:
        return http(url, method)[1]
    except urllib.error.HTTPError as error:
        return error.code


def raw(port, data, seconds=20):
    """Sends bytes and returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        got = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(65536):
                got += piece
        except ConnectionError:
            pass
        return got


def hostile_clients_disturb_neither_the_page_nor_the_job(lab):
    cluster = lab.cluster(lab.job(LONG), metrics_listen="*")
    page = page_of(cluster)
    port = int(page.rsplit(":", 1)[1])
    cluster.reaches(10)
    expect(refused(page + "/") == 404 and refused(page + "/metrics", "POST") == 405, "another page is served")
    body, headers = http(page + "/metrics?x=1", "HEAD")
    expect(body == "" and int(headers["Content-Length"]) > 100, f"HEAD: {headers}")
    expect(raw(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").startswith(b"HTTP/1.1 400"), "TLS gets no 400")
    expect(not raw(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20)).startswith(b"HTTP/1.1 200"), "1 MB of header")
    expect(not raw(port, b"GET /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789").startswith(b"HTTP/1.1 200"), "a body")
    step = cluster.step()
    # clients that send nothing, a byte at a time, or do not read: more than the page takes in at once
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
    for number, client in enumerate(silent):
        client.sendall([b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"][number % 3])
    begin = time.monotonic()
    prometheus.parse(http_patiently(page + "/metrics", lab.seconds(60)))
    for client in silent:
        client.close()
    print(f"after 40 idle clients the page answered in {time.monotonic() - begin:.1f} s")
    cluster.reaches(step + 100)
    files = os.listdir(f"/proc/{cluster.servers[0].pid}/fd")
    expect(len(files) < 100, f"{len(files)} descriptors")


def http_patiently(url, seconds):
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode()


def bad_addresses_are_refused_before_any_process_starts(lab):
    for text in ("", "port", "127.0.0.1:", "127.0.0.1:70000", "host:1:x", "-1"):
        for words in (("pushpull-server",), ("pushpull", "run")):
            code, told = lab.call(*words, "--job", lab.job(MLP), "--metrics-listen", text)
            expect(code == 2 and "metrics-listen" in told and "listening" not in told, f"'{text}': {code}: {told[-300:]}")
    code, told = lab.call("pushpull-server", "--join", "tcp://127.0.0.1:1", "--tensorboard", "x")
    expect(code == 2 and "--tensorboard with --join" in told, f"{code}: {told}")


if __name__ == "__main__":
    base.main(globals())
