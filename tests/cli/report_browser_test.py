#!/usr/bin/env python3
"""Opens reports of `pushpull compare` and `pushpull report` in a real headless Chromium: with and without JavaScript, at
several widths, light and dark. Checks sections, tables and their numbers, charts, hover, the legend, files to save, and that
there is no console message and nothing to fetch.

    report_browser_test.py REPORT_WRITER [--keep FOLDER]     exit code 77: skipped, Chromium is not installed
"""

import argparse
import base64
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# What a reader sees of any report. Reads colours back from a canvas, in any notation.
LOOK = """
const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgb = colour => {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  return pixel.getImageData(0, 0, 1, 1).data;
};
const luminance = colour => {
  const [r, g, b] = [...rgb(colour)].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const root = document.documentElement;
for (const part of document.querySelectorAll("details")) part.open = true;
await pause(300);
const sizes = [...document.querySelectorAll("body *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !["SCRIPT", "NOSCRIPT"].includes(e.tagName))
    .map(e => parseFloat(window.getComputedStyle(e).fontSize));
const style = window.getComputedStyle(root);
const colour = name => style.getPropertyValue(name).trim();
const blank = canvas => !new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer).some(Boolean);
return {
  client: root.clientWidth, scroll: root.scrollWidth, smallest: Math.min(...sizes),
  charts: document.querySelectorAll("figure canvas").length,
  blank: [...document.querySelectorAll("figure canvas")].filter(c => c.clientHeight < 100 || blank(c)).length,
  main: document.querySelector("main").clientWidth,
  sections: [...document.querySelectorAll("section")].map(s => s.id),
  titles: [...document.querySelectorAll("figcaption b")].map(b => b.textContent),
  tables: document.querySelectorAll("table").length, images: document.querySelectorAll("img").length, text: document.body.innerText,
  lost: [...document.querySelectorAll("a[href^='#']")].filter(a => !document.querySelector(a.getAttribute("href"))).length,
  contrasts: ["--text", "--soft", "--accent", "--bad"].map(c => [c, contrast(colour(c), colour("--card")), 4.5])
      .concat(["--text", "--soft", "--accent"].map(c => [c + " on page", contrast(colour(c), colour("--page")), 4.5]))
      .concat(["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "p0", "p1", "p2", "p3"].map(c => [c, contrast(colour("--" + c), colour("--card")), 3])),
  background: [...rgb(window.getComputedStyle(document.body).backgroundColor)],
  fetched: window.performance.getEntriesByType("resource").map(e => e.name),
};
"""

# Finds charts by their title, reads tables, catches files that a button saves.
HELPERS = """
const pause = ms => new Promise(done => setTimeout(done, ms));
const chart = title => Object.values(Chart.instances).find(c => c.canvas.ariaLabel === title);
const table = name => [...document.querySelectorAll(`[aria-label="${name}"] tr`)].map(tr => [...tr.cells].map(cell => cell.innerText.replace(/\\s+/g, " ").trim()));
const saved = async button => {
  let text = null;
  const [make, click] = [URL.createObjectURL, HTMLAnchorElement.prototype.click];
  URL.createObjectURL = blob => { text = blob.text(); return "data:,"; };
  HTMLAnchorElement.prototype.click = () => {};
  button.click();
  [URL.createObjectURL, HTMLAnchorElement.prototype.click] = [make, click];
  return text;
};
"""


class Browser:
    """A Chromium and one page in it, spoken to over a pipe (Chrome DevTools Protocol)."""

    def __init__(self, program, folder):
        self.folder = folder
        (to_read, self.to), (self.answers, from_write) = os.pipe(), os.pipe()

        def pipes():
            low, high = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, from_write))
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, pass_fds=(3, 4))
        os.close(to_read)
        os.close(from_write)
        self.text, self.events, self.number, self.session = b"", [], 0, None
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def end(self):
        self.process.kill()
        self.process.wait()

    def message(self):
        """Waits for the next message: an answer or an event."""
        while b"\0" not in self.text:
            expect(select.select([self.answers], [], [], 120)[0], "Chromium is silent")
            more = os.read(self.answers, 1 << 20)
            expect(more, "Chromium has ended")
            self.text += more
        line, self.text = self.text.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while (answer := self.message()).get("id") != self.number:
            self.events.append(answer)
        expect("result" in answer, f"{method}: {answer.get('error')}")
        return answer["result"]

    def words(self):
        """What pages said on the console, and the addresses that they asked for beside their own file."""
        told = [json.dumps(e["params"])[:2000] for e in self.events
                if e["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return told + [url for url in asked if not url.startswith(("data:", "blob:", self.url))]

    def open(self, name, width=1280, theme="light", scripts=True):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.url = (self.folder / "reports" / f"{name}.html").as_uri()
        self.call("Page.navigate", url=self.url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def run(self, script, kind="async"):
        answer = self.call("Runtime.evaluate", expression=f"({kind} () => {{ {script} }})()", awaitPromise=True, returnByValue=True)
        expect("exceptionDetails" not in answer, json.dumps(answer.get("exceptionDetails"))[:1500])
        return answer["result"].get("value")

    def probe(self, name, script, **how):
        """Returns what the script returns in a report, after the check that the report was silent."""
        self.open(name, **how)
        found = self.run(HELPERS + script)
        expect(not self.words(), f"{name}: {self.words()}")
        return found

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none", clickCount=1)

    def hover(self, title, place):
        """Moves the mouse over a chart and returns the lines that it then shows. place: returns a point of the chart c, as JavaScript."""
        x, y = self.run(HELPERS + f"""const c = chart({json.dumps(title)}); c.canvas.scrollIntoView({{block: "center"}});
            const [x, y] = (() => {{ {place} }})(), box = c.canvas.getBoundingClientRect(); return [box.left + x, box.top + y];""")
        self.mouse("mouseMoved", x - 5, y)
        self.mouse("mouseMoved", x, y)
        return self.run(HELPERS + f"""const c = chart({json.dumps(title)});
            for (let i = 0; i < 100 && !(c.tooltip.opacity && c.pointer); ++i) await pause(50);
            await pause(100);
            return [...c.tooltip.title, ...c.tooltip.body.flatMap(b => b.lines)];""")

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])


def expect(truth, message):
    if not truth:
        raise AssertionError(message)


def write_runs(folder):
    """The folders of runs whose reports report_writer writes: one with an outage, a new one, one that failed."""
    lost = folder / "runs" / "outage"
    lost.mkdir(parents=True)
    job = "model = mlp\ndataset = digits\nstrategy = async\nglobal-batch = 64\n# <not a tag>\n"
    (lost / "job.ini").write_text(job)
    lines = []
    for i in range(1, 401):  # the server is lost after step 200; 30 s later the run goes on from step 150
        step = i if i <= 200 else i - 50
        line = {"seconds": 0.25 * i + (30 if i > 200 else 0), "step": step, "samples": 64 * step, "loss": 2 / i, "samples_per_second": 4000}
        if i == 201:
            line |= {"lost": ["server 0"], "back_to_step": 150}
        if step % 50 == 0:
            line |= {"test_step": step, "test_seconds": line["seconds"], "test_samples": 64 * step, "test_loss": 1 / step,
                     "heads": [{"name": "label", "metric": "accuracy", "value": 0.5 + step / 1000}]}
        lines.append(json.dumps(line))
    (lost / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    member = {"host": "node17.a-cluster.example.org", "pid": 4194303, "device": "cuda:0", "step": 350, "samples": 22400,
              "cpu_seconds": 123.456, "peak_rss_mib": 2048.5}
    members = [member | {"role": "server" if rank == 0 else "worker", "rank": max(0, rank - 1)} for rank in range(4)]
    (lost / "members.json").write_text(json.dumps({"members": members, "left": [
        member | {"role": "server", "rank": 0, "reason": "its connection closed 2.0 s ago <b>&", "at_seconds": 52.5}]}))
    (lost / "summary.json").write_text(json.dumps({
        "strategy": "async", "workers": 3, "servers": 1, "steps": 350, "samples": 22400, "seconds": 130, "samples_per_second": 172,
        "train_loss": 0.01, "test_loss": 0.003, "heads": [{"name": "label", "metric": "accuracy", "value": 0.85}],
        "weights_sha256": "e" * 64, "recoveries": 1, "steps_repeated": 50, "staleness": {"mean": 0.5, "max": 2, "histogram": {"0": 500, "1": 400, "2": 50}},
        "split": {"compute": 0.01, "push": 0.002, "wait": 0.003, "pull": 0.001}}))
    new = folder / "runs" / "new"
    new.mkdir()
    (new / "job.ini").write_text(job)
    failed = folder / "runs" / "failed"
    failed.mkdir()
    (failed / "job.ini").write_text(job)
    (failed / "members.json").write_text(json.dumps({"members": members[:1], "left": [], "exit_code": 7, "failure": "[train] not finite <script>"}))


def the_browser_reports_errors_and_requests(browser, folder):
    """Without this, silence would prove nothing."""
    (folder / "reports" / "broken.html").write_text('<!DOCTYPE html><img src="missing.png"><script>undefined_function()</script>')
    browser.open("broken")
    words = " ".join(browser.words())
    expect("undefined_function" in words and "missing.png" in words, f"no error seen: {words}")


def every_report_opens_silently_and_fits_every_width(browser, folder):
    charts = {"full": 70, "one_run": 9, "unfair": 17, "failures": 1, "hostile": 22, "nothing": 0, "outage": 9, "new": 0, "failed": 0}
    for name, count in charts.items():
        for width in (400, 1400, 2200) if name in ("full", "outage") else (400,):
            found, where = browser.probe(name, LOOK, width=width), f"{name} at {width} px"
            expect(found["client"] == width, f"{where}: measured at {found['client']}")
            expect(found["scroll"] <= width, f"{where}: {found['scroll']} px wide")
            expect(found["smallest"] >= 11, f"{where}: text of {found['smallest']} px")
            expect(found["charts"] == count, f"{where}: {found['charts']} charts, expected {count}: {found['titles']}")
            expect(found["blank"] == 0, f"{where}: {found['blank']} charts are blank")
            expect(found["lost"] == 0, f"{where}: {found['lost']} links lead nowhere")
            expect(found["fetched"] == [], f"{where} fetched {found['fetched']}")
            expect(found["images"] == 0, f"{where}: text became an image")
            expect(width < 2200 or found["main"] > 2100, f"{where}: uses {found['main']} px")


def all_sections_are_there(browser, folder):
    full = browser.probe("full", LOOK)
    expect(full["sections"] == ["results", "pairs", "accuracy", "speed", "steps", "staleness", "costs", "links", "reading", "provenance"], full["sections"])
    for words in ("convnet on digits: strategies compared", "FAILED: 10 of 162 runs", "Failures: 10 of 162 runs", "tuned: lr=0.05",
                  "Gloo is not built into this worker", "The textbook model beside the measurement", "All 162 runs, in the order"):
        expect(words in full["text"], f"no '{words}'")
    outage = browser.probe("outage", LOOK)
    expect(outage["sections"] == ["results", "training", "accuracy", "steps", "staleness", "processes", "provenance"], outage["sections"])
    for words in ("mlp on digits: async, 3 workers", "its connection closed 2.0 s ago <b>&", "recoveries", "node17.a-cluster.example.org"):
        expect(words in outage["text"], f"no '{words}'")
    expect("FAILED: exit code 7 (not finite): [train] not finite <script>" in browser.probe("failed", LOOK)["text"], "no reason of the failure at the top")
    hostile = browser.probe("hostile", LOOK)
    expect("</script><img src=x>" in hostile["text"] and "<b>x</b> on {{data}}" in hostile["text"], "hostile names are not shown as text")


def figures_are_readable_without_javascript(browser, folder):
    for name, words in (("full", ("speed, median (min-max)", "beside sync", "5 of 5 FAILED", "FAILED", "convnet on digits", "How to read this")),
                        ("outage", ("85.00%", "its connection closed 2.0 s ago", "mlp on digits", "node17.a-cluster.example.org"))):
        for width in (400, 1400):
            browser.open(name, width=width, scripts=False)
            found = browser.run("""return {drawn: document.querySelectorAll("canvas, table").length, text: document.body.innerText,
                scroll: document.documentElement.scrollWidth};""", kind="")
            expect(found["drawn"] == 0 and not browser.words(), f"{name}: scripts ran")
            expect(found["scroll"] <= width, f"{name} at {width} px: {found['scroll']} px wide")
            for word in words:
                expect(word in found["text"], f"{name}: no '{word}' without scripts")
            expect("Charts need JavaScript" in found["text"] and "Beside sync, seed" not in found["text"], found["text"][:500])


def tables_have_the_numbers(browser, folder):
    found = browser.probe("full", """return {results: table("Results"), pairs: table("Beside sync"), costs: table("Costs"),
        data: JSON.parse(document.getElementById("data").textContent)}""")
    runs = [run for run in found["data"]["compare"]["runs"] if run["workers"] == 4 and not run["link"]]
    pick = lambda strategy: {run["seed"]: run for run in runs if run["strategy"] == strategy}
    sync, async_ = pick("sync"), pick("async")
    half = lambda values: sorted(values)[len(values) // 2]
    row = lambda table, name: [r for r in found[table] if r[0].startswith(name)][2]  # 1, 2, 4 workers
    rates = [run["samples_per_second"] for run in sync.values()]
    expect(row("results", "sync")[2] == f"{half(rates):,.0f} {min(rates):,.0f}–{max(rates):,.0f}", row("results", "sync"))
    good = {seed: run for seed, run in async_.items() if not run["failure"]}
    expect(len(good) == 4 and row("results", "async")[1] == "1 of 5 failed", row("results", "async"))
    ratios = sorted(good[s]["samples_per_second"] / sync[s]["samples_per_second"] for s in good)
    expect(row("pairs", "async")[2] == f"{(ratios[1] + ratios[2]) / 2:.2f} {ratios[0]:.2f}–{ratios[3]:.2f}", (row("pairs", "async"), ratios))
    reached = [run["seconds_to_target"] for run in async_.values() if run["seconds_to_target"] is not None]
    expect(f"{len(reached)} of 5 seeds" in row("results", "async")[5], row("results", "async"))  # a failed seed never got there
    expect("seeds" not in row("results", "sync")[5], row("results", "sync"))


def hover_shows_all_strategies_and_the_legend_hides_one(browser, folder):
    title = "Accuracy over time, 4 workers"
    middle = "return [(c.chartArea.left + c.chartArea.right) / 2, (c.chartArea.top + c.chartArea.bottom) / 2];"
    names = lambda lines: sorted(line.split(": ")[0] for line in lines[1:])
    browser.open("full")
    curve = browser.hover(title, middle)
    expect(curve[0].startswith("time since training began (s): "), curve)
    expect(names(curve) == ["allreduce:ring", "async", "local:16", "ssp:4", "sync"], curve)
    expect(all(re.search(r": \d+\.\d\d% \(\d+\.\d\d% to \d+\.\d\d%\)$", line) for line in curve[1:]), curve)
    expect(len(browser.hover("Throughput", middle)) == 7, "not all strategies of a group of bars")
    failed = browser.hover("Every run, in order", """
        const [d, i] = c.data.datasets.flatMap((set, d) => set.data.map((p, i) => [p, d, i])).find(([p]) => p.run?.failure).slice(1);
        const at = c.getDatasetMeta(d).data[i]; return [at.x, at.y - 20];""")
    expect(any("Gloo is not built into this worker" in line or "not finite" in line for line in failed), failed)
    for off in (["async"], []):
        x, y = browser.run("""const b = [...document.querySelectorAll("#accuracy .legend button")].find(b => b.textContent === "async");
            b.scrollIntoView({block: "center"}); const box = b.getBoundingClientRect(); return [box.left + 20, box.top + box.height / 2];""")
        browser.mouse("mousePressed", x, y)
        browser.mouse("mouseReleased", x, y)
        expect(set(browser.run('return [...document.querySelectorAll(".legend .off")].map(b => b.textContent);')) == set(off), f"not off: {off}")
        expect(names(browser.hover(title, middle)) == [name for name in names(curve) if name not in off], f"with {off} off")
    expect(not browser.words(), browser.words())


def an_outage_is_a_gap_and_a_mark(browser, folder):
    found = browser.probe("outage", """
        const speed = chart("Speed over time"), evaluations = chart("Accuracy over time, 3 workers");
        return {points: speed.data.datasets[0].data.map(p => [p.x, Number.isFinite(p.y)]), marks: speed.options.plugins.extras.marks.map(m => ({...m})),
                steps: evaluations.data.datasets.at(-1).data.length};""")
    expect([mark["text"] for mark in found["marks"]] == ["server 0 lost, back to step 150"], found["marks"])
    expect([x for x, known in found["points"] if not known] and len(found["points"]) == 401, found["points"][195:205])
    expect(found["steps"] == 7, f"{found['steps']} evaluations; a repeated one counts once")


def charts_and_tables_can_be_saved(browser, folder):
    found = browser.probe("full", """
        const out = {svg: [], tex: []};
        for (const button of document.querySelectorAll(".save")) out[button.textContent === "SVG" ? "svg" : "tex"].push(button);
        out.svg = await Promise.all(out.svg.filter(b => Chart.getChart(b.closest("figure").querySelector("canvas"))).map(saved));
        out.tex = await Promise.all(out.tex.map(saved));
        out.bars = await saved(chart("Throughput").canvas.closest("figure").querySelector(".save"));
        return out;""")
    expect(len(found["svg"]) > 20 and len(found["tex"]) >= 6, (len(found["svg"]), len(found["tex"])))
    for svg in found["svg"]:
        root = xml.etree.ElementTree.fromstring(svg)
        kinds = [element.tag.split("}")[1] for element in root.iter()]
        expect(kinds.count("path") > 5 and kinds.count("text") > 5, svg[:500])
    curves = set(re.findall(r'fill="none" stroke="(#[0-9a-f]{6})" stroke-opacity="1" stroke-width="2"', found["svg"][0]))
    expect(len(curves) == 6, f"curves of {curves} for six strategies")
    expect("NaN" not in "".join(found["svg"]), "a drawing has a coordinate that is no number")
    expect(">ssp:4</text>" in found["bars"], "bars have no names of strategies")
    results = found["tex"][0]
    expect(results.startswith("\\begin{tabular}{lrr") and "$\\times$" in results and "--" in results, results[:300])
    expect("\\multicolumn{9}{l}{1 worker} \\\\" in results, results[:900])
    widths = {line.count("&") for line in results.splitlines() if "sync" in line}
    expect(len(widths) == 1, results)


def has_a_light_and_a_dark_theme_with_contrast(browser, folder):
    """WCAG 2.1: text 4.5, parts of drawings 3."""
    brightness, pictures = {}, {}
    for theme in ("light", "dark"):
        found = browser.probe("full", LOOK, width=400, theme=theme)
        brightness[theme] = sum(found["background"][:3]) / 3
        expect(found["background"][3] == 255, "the page has no background of its own")
        for colour, ratio, least in found["contrasts"]:
            expect(ratio >= least, f"theme {theme}: {colour} has a contrast of {ratio:.2f}")
        pictures[theme] = browser.screenshot()
    expect(brightness["light"] > 200 and brightness["dark"] < 60, f"backgrounds: {brightness}")
    expect(pictures["light"] != pictures["dark"] and len(pictures["light"]) > 10000, "the themes look the same")
    grey = "return document.createElement('canvas') && chart('Throughput').options.scales.x.ticks.color;"
    browser.open("full", theme="light")
    before = browser.run(HELPERS + grey)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    expect(browser.run(HELPERS + "await pause(500);" + grey) != before, "charts keep the colours of the other theme")


TESTS = (the_browser_reports_errors_and_requests, every_report_opens_silently_and_fits_every_width, all_sections_are_there,
         figures_are_readable_without_javascript, tables_have_the_numbers, hover_shows_all_strategies_and_the_legend_hides_one,
         an_outage_is_a_gap_and_a_mark, charts_and_tables_can_be_saved, has_a_light_and_a_dark_theme_with_contrast)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("writer", help="the program that writes the reports")
    parser.add_argument("--keep", help="leave reports and screenshots in this folder")
    arguments = parser.parse_args()
    program = next((path for path in map(shutil.which, NAMES) if path), None)
    if program is None:
        print("skipped: no Chromium here (scripts/install-deps.sh --tests installs it)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="report-", ignore_cleanup_errors=True) as temporary:
        folder = pathlib.Path(arguments.keep or temporary).resolve()
        write_runs(folder / "reports")
        subprocess.run([arguments.writer, folder / "reports"], check=True)
        failed = 0
        browser = Browser(program, folder)
        try:
            for test in TESTS:
                try:
                    test(browser, folder)
                    print(f"ok      {test.__name__}", flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"FAILED  {test.__name__}: {error}", flush=True)
        finally:
            browser.end()
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
