#!/usr/bin/env python3
"""Measures how long workers wait per step over a slow link, compared with the minimum that the link alone forces.

Runs `pushpull run --link --trace` for each model and link, each worker on its own host (docs/links.md: needs root),
and replays the same steps over an ideal link (ideal_link.py). Prints a Markdown table."""
import argparse
import json
import pathlib
import re
import statistics
import sys
import tempfile

import ideal_link
from figures import BIN, Failed, caption, machine, markdown, number, positive, run, say

MODELS = {
    "mlp": {"model": "mlp", "hidden": "1024,1024,1024", "micro-batch": 64},
    "mlp-deep": {"model": "mlp", "hidden": "512,512,512,512,512,512", "micro-batch": 512},
    "convnet": {"model": "convnet", "micro-batch": 64},
}
LINKS = ["1gbit,0ms", "1gbit,2ms", "200mbit,0ms", "200mbit,5ms"]


def job_text(model, steps, workers, more=()):
    keys = {"dataset": "dummy", "train-samples": 4096, "test-samples": 64, "steps": steps,
            "eval-every": 1000000, "optimizer": "sgd", "lr": 0.01, **MODELS[model], **dict(more)}
    keys.setdefault("global-batch", int(keys["micro-batch"]) * workers)
    return "".join(f"{key} = {value}\n" for key, value in keys.items())


def link_of(text):
    """Returns bytes per second and one-way seconds, as the run measured its link before it began."""
    found = re.search(r"\[link\] .* measured ([0-9.]+) Mbit/s and ([0-9.]+) ms", text)
    if not found:
        raise Failed(f"[bench] the run did not report its link: {text[:200]}")
    return float(found[1]) * 1e6 / 8, float(found[2]) / 2e3


def measure(bin_dir, model, link, steps, workers, more=()):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "job.ini").write_text(job_text(model, steps, workers, more), encoding="utf-8")
        output = run([bin_dir / "pushpull", "run", "--job", folder / "job.ini", "--workers", workers, "--servers",
                    1, "--link", link, "--out", folder / "out", "--trace", folder / "trace"], timeout_s=600)
        rate, delay = link_of(output)
        traces = [ideal_link.read(file) for file in sorted((folder / "trace").glob("*.json"))]
        return row_of(ideal_link.steps_of(traces, rate, delay), model, link, rate, delay, workers)


def row_of(steps, model, link, rate, delay, workers):
    if not steps:
        raise Failed(f"[bench] {model} over {link}: no step that can be compared; use more --steps")
    middle = {key: statistics.median(s[key] for s in steps)
              for key in ("wait", "ideal", "computing", "pushed", "pulled")}
    return {"model": model, "link": link, "workers": workers, "rate": rate, "delay": delay, "steps": len(steps),
            "ratio": statistics.median(s["wait"] / max(s["ideal"], 1e-6) for s in steps), **middle}


def table(rows):
    head = ["model, link, workers", "link, Mbit/s", "pushed, MB", "pulled, MB", "computing, ms", "wait, ms",
            "ideal link, ms", "ratio"]
    return markdown(head, [[f"{r['model']}, {r['link']}, {r['workers']}", number(r["rate"] * 8e-6),
                            number(r["pushed"] / 1e6), number(r["pulled"] / 1e6),
                            *(number(r[key] * 1e3) for key in ("computing", "wait", "ideal")),
                            f"{r['ratio']:.2f}"] for r in rows])


def words(text):
    return text.split("+")


def main():
    parser = argparse.ArgumentParser(prog="slow_link.py", description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--links", type=words, default=LINKS, help="joined by +: 1gbit,2ms+100mbit,5ms")
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--steps", type=positive, default=16)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job")
    parser.add_argument("--out", metavar="FILE.json", help="also write every row to this file")
    arguments = parser.parse_args()
    for model in arguments.models:
        if model not in MODELS:
            parser.error(f"--models {model}: there are {', '.join(MODELS)}")
    more = [pair.split("=", 1) for pair in arguments.set]
    here, rows, failed = machine(), [], []
    for model in arguments.models:
        for link in arguments.links:
            say(f"{model} over {link}")
            try:
                rows.append(measure(arguments.bin, model, link, arguments.steps, arguments.workers, more))
            except Failed as error:
                failed.append(str(error))
                say(error)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"machine": here, "rows": rows, "failed": failed}, file, indent=2)
    print(table(rows) + "\n\n" + caption(" ".join(["bench/slow_link.py", *sys.argv[1:]]), here))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
