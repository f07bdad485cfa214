#!/usr/bin/env python3
"""Opens reports of `pushpull compare` and `pushpull report` in a real headless Chromium: with and without JavaScript, at
several widths, light and dark. Checks sections, tables and their numbers, charts, hover, the legend, files to save, and that
there is no console message and nothing to fetch.

    report_browser_test.py REPORT_WRITER [--keep FOLDER]     exit code 77: skipped, Chromium is not installed
"""

import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DARK, LIGHT = 0, 1  # blink's numbers of the preferred color scheme

# Opens a report in a frame of the given width (a window cannot be as narrow), runs a probe in it, and writes what the probe
# returns to its own DOM. `frame` is the report's window, `page` its document.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" src="REPORT" style="border:0;width:WIDTHpx;height:900px"></iframe>
<pre id="found"></pre>
<script>
const pause = ms => new Promise(done => setTimeout(done, ms));
addEventListener("load", async () => {
  const frame = document.getElementById("frame").contentWindow;
  const page = frame.document;
  let found;
  try { found = await (async () => { PROBE })(); }
  catch (error) { found = {error: String(error.stack || error)}; }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""

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
const root = page.documentElement;
for (const part of page.querySelectorAll("details")) part.open = true;
await pause(300);
const sizes = [...page.querySelectorAll("body *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !["SCRIPT", "NOSCRIPT"].includes(e.tagName))
    .map(e => parseFloat(frame.getComputedStyle(e).fontSize));
const style = frame.getComputedStyle(root);
const colour = name => style.getPropertyValue(name).trim();
const blank = canvas => !new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer).some(Boolean);
return {
  client: root.clientWidth, scroll: root.scrollWidth, smallest: Math.min(...sizes),
  charts: page.querySelectorAll("figure canvas").length,
  blank: [...page.querySelectorAll("figure canvas")].filter(c => c.clientHeight < 100 || blank(c)).length,
  main: page.querySelector("main").clientWidth,
  sections: [...page.querySelectorAll("section")].map(s => s.id),
  titles: [...page.querySelectorAll("figcaption b")].map(b => b.textContent),
  tables: page.querySelectorAll("table").length, images: page.querySelectorAll("img").length, text: page.body.innerText,
  lost: [...page.querySelectorAll("a[href^='#']")].filter(a => !page.querySelector(a.getAttribute("href"))).length,
  contrasts: ["--text", "--soft", "--accent", "--bad"].map(c => [c, contrast(colour(c), colour("--card")), 4.5])
      .concat(["--text", "--soft", "--accent"].map(c => [c + " on page", contrast(colour(c), colour("--page")), 4.5]))
      .concat(["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "p0", "p1", "p2", "p3"].map(c => [c, contrast(colour("--" + c), colour("--card")), 3])),
  background: [...rgb(frame.getComputedStyle(page.body).backgroundColor)],
  fetched: frame.performance.getEntriesByType("resource").map(e => e.name),
};
"""

# Finds charts by their title; hovers over the middle of one; clicks names in a legend.
HELPERS = """
const chart = title => Object.values(frame.Chart.instances).find(c => c.canvas.ariaLabel === title);
const hover = async (c, x, y) => {
  const box = c.canvas.getBoundingClientRect();
  c.canvas.dispatchEvent(new frame.MouseEvent("mousemove", {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
  for (let i = 0; i < 3; ++i) await new Promise(done => frame.requestAnimationFrame(done));  // Chart.js waits for a frame
  return [...c.tooltip.title, ...c.tooltip.body.flatMap(b => b.lines)];
};
const middle = c => [(c.chartArea.left + c.chartArea.right) / 2, (c.chartArea.top + c.chartArea.bottom) / 2];
const table = name => [...page.querySelectorAll(`[aria-label="${name}"] tr`)].map(tr => [...tr.cells].map(cell => cell.innerText.replace(/\\s+/g, " ").trim()));
const saved = async button => {
  let text = null;
  const make = frame.URL.createObjectURL;
  frame.URL.createObjectURL = blob => { text = blob.text(); return "data:,"; };
  const click = frame.HTMLAnchorElement.prototype.click;
  frame.HTMLAnchorElement.prototype.click = () => {};
  button.click();
  frame.URL.createObjectURL = make;
  frame.HTMLAnchorElement.prototype.click = click;
  return text;
};
"""


class Browser:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def call(self, page, theme, *flags):
        """Returns the standard output, and the console messages of pages."""
        command = [self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0",
                   f"--user-data-dir={self.folder / 'profile'}",
                   f"--blink-settings=preferredColorScheme={theme}", *flags, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{self.program} exited with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def probe(self, name, script, width=1280, theme=LIGHT, frame=""):
        """Returns what the script returns in a report, after the check that the console was silent.

        frame: attributes of the frame; sandbox="allow-same-origin" switches the report's scripts off."""
        page = self.folder / "reports" / f"{name}.html"
        wrapper = self.folder / f"probe_{name}_{width}_{theme}_{abs(hash(script))}.html"
        wrapper.write_text(WRAPPER.replace("REPORT", page.as_uri()).replace("WIDTH", str(width))
                           .replace("PROBE", script).replace("<iframe", f"<iframe {frame}"))
        out, console = self.call(wrapper, theme, "--dump-dom", "--window-size=2300,1000", "--virtual-time-budget=20000")
        expect(all(frame and "frame is sandboxed" in line for line in console), f"{name}: {console}")
        found = re.search(r'<pre id="found">(.*?)</pre>', out, re.DOTALL)
        expect(found and found.group(1), f"{wrapper.name} returned nothing")
        result = json.loads(html.unescape(found.group(1)))
        expect("error" not in result, f"{wrapper.name}: {result.get('error')}")
        return result

    def screenshot(self, page, theme):
        file = self.folder / f"{page.stem}_{theme}.png"
        self.call(page, theme, f"--screenshot={file}", "--window-size=1280,1600")
        return file.read_bytes()


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
    (failed / "members.json").write_text(json.dumps({"members": members[:1], "left": [members[1] | {"reason": "[train] not finite <script>"}]}))
    os.utime(failed / "members.json", (1, 1))


def the_browser_reports_console_errors(browser, folder):
    """Without this, a silent console would prove nothing."""
    page = folder / "broken.html"
    page.write_text("<!DOCTYPE html><script>undefined_function()</script>")
    _, console = browser.call(page, LIGHT, "--dump-dom")
    expect(any("undefined_function" in line for line in console), f"no console error seen: {console}")


def every_report_opens_silently_and_fits_every_width(browser, folder):
    charts = {"full": 70, "one_run": 9, "unfair": 17, "failures": 1, "hostile": 22, "nothing": 0, "outage": 9, "new": 0, "failed": 0}
    for name, count in charts.items():
        for width in (400, 1400, 2200) if name in ("full", "outage") else (400,):
            found, where = browser.probe(name, LOOK, width), f"{name} at {width} px"
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
    for words in ("convnet on digits: strategies compared", "FAILED 10 of 162 runs", "Failures: 10 of 162 runs", "tuned: lr=0.05",
                  "Gloo is not built into this worker", "The textbook model beside the measurement", "All 162 runs, in the order"):
        expect(words in full["text"], f"no '{words}'")
    outage = browser.probe("outage", LOOK)
    expect(outage["sections"] == ["results", "training", "accuracy", "steps", "staleness", "processes", "provenance"], outage["sections"])
    for words in ("mlp on digits: async, 3 workers", "its connection closed 2.0 s ago <b>&", "servers lost and replaced", "node17.a-cluster.example.org"):
        expect(words in outage["text"], f"no '{words}'")
    expect("FAILED worker 0: [train] not finite <script>" in browser.probe("failed", LOOK)["text"], "no reason of the failure at the top")
    hostile = browser.probe("hostile", LOOK)
    expect("</script><img src=x>" in hostile["text"] and "<b>x</b> on {{data}}" in hostile["text"], "hostile names are not shown as text")


def figures_are_readable_without_javascript(browser, folder):
    for name, words in (("full", ("speed, median (min-max)", "beside sync", "5 of 5 FAILED", "FAILED", "convnet on digits", "How to read this")),
                        ("outage", ("85.00%", "its connection closed 2.0 s ago", "mlp on digits", "node17.a-cluster.example.org"))):
        for width in (400, 1400):
            found = browser.probe(name, LOOK, width, frame='sandbox="allow-same-origin"')
            expect(found["charts"] == 0 and found["tables"] == 0, f"{name}: scripts ran")
            expect(found["scroll"] <= width, f"{name} at {width} px: {found['scroll']} px wide")
            for word in words:
                expect(word in found["text"], f"{name}: no '{word}' without scripts")
            expect("Charts need JavaScript" in found["text"] and "Beside sync, seed" not in found["text"], found["text"][:500])


def tables_have_the_numbers(browser, folder):
    found = browser.probe("full", HELPERS + """return {results: table("Results"), pairs: table("Beside sync"), costs: table("Costs"),
        data: JSON.parse(page.getElementById("data").textContent)}""")
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
    found = browser.probe("full", HELPERS + """
        const curve = chart("Accuracy over time, 4 workers"), bars = chart("Throughput"), runs = chart("Every run, in order");
        const out = {curve: await hover(curve, ...middle(curve)), bars: await hover(bars, ...middle(bars))};
        const failed = runs.data.datasets.flatMap((set, d) => set.data.map((p, i) => [p, d, i])).find(([p]) => p.run?.failure);
        const at = runs.getDatasetMeta(failed[1]).data[failed[2]];
        out.failed = await hover(runs, at.x, at.y - 30);
        const button = [...page.querySelectorAll("#accuracy .legend button")].find(b => b.textContent === "async");
        button.click();
        out.hidden = await hover(curve, ...middle(curve));
        out.off = [...page.querySelectorAll(".legend .off")].map(b => b.textContent);
        button.click();
        out.again = await hover(curve, ...middle(curve));
        const step = curve.data.datasets.find(set => set.label === "sync");
        out.stepped = step.stepped;
        out.points = step.data.length;
        return out;""")
    names = lambda lines: sorted(line.split(": ")[0] for line in lines[1:])
    expect(found["curve"][0].startswith("time since training began (s): "), found["curve"])
    expect(names(found["curve"]) == ["allreduce:ring", "async", "local:16", "ssp:4", "sync"], found["curve"])
    expect(all(re.search(r": \d+\.\d\d% \(\d+\.\d\d% to \d+\.\d\d%\)$", line) for line in found["curve"][1:]), found["curve"])
    expect(len(found["bars"]) >= 6, found["bars"])
    expect(any("Gloo is not built into this worker" in line or "not finite" in line for line in found["failed"]), found["failed"])
    expect(names(found["hidden"]) == ["allreduce:ring", "local:16", "ssp:4", "sync"], found["hidden"])
    expect(set(found["off"]) == {"async"} and found["again"] == found["curve"], found)
    expect(found["stepped"] is True and found["points"] > 10, found)


def an_outage_is_a_gap_and_a_mark(browser, folder):
    found = browser.probe("outage", HELPERS + """
        const speed = chart("Speed over time"), evaluations = chart("Accuracy over time, 3 workers");
        return {points: speed.data.datasets[0].data.map(p => [p.x, Number.isFinite(p.y)]), marks: speed.options.plugins.extras.marks.map(m => ({...m})),
                steps: evaluations.data.datasets.at(-1).data.length};""")
    expect([mark["text"] for mark in found["marks"]] == ["server lost, back to step 151"], found["marks"])
    expect([x for x, known in found["points"] if not known] and len(found["points"]) == 401, found["points"][195:205])
    expect(found["steps"] == 7, f"{found['steps']} evaluations; a repeated one counts once")


def charts_and_tables_can_be_saved(browser, folder):
    found = browser.probe("full", HELPERS + """
        const out = {svg: [], tex: []};
        for (const button of page.querySelectorAll(".save")) out[button.textContent === "SVG" ? "svg" : "tex"].push(button);
        out.svg = await Promise.all(out.svg.filter(b => frame.Chart.getChart(b.closest("figure").querySelector("canvas"))).map(saved));
        out.tex = await Promise.all(out.tex.map(saved));
        return out;""")
    expect(len(found["svg"]) > 20 and len(found["tex"]) >= 6, (len(found["svg"]), len(found["tex"])))
    for svg in found["svg"]:
        root = xml.etree.ElementTree.fromstring(svg)
        kinds = [element.tag.split("}")[1] for element in root.iter()]
        expect(kinds.count("path") > 5 and kinds.count("text") > 5, svg[:500])
    expect("NaN" not in "".join(found["svg"]), "a drawing has a coordinate that is no number")
    results = found["tex"][0]
    expect(results.startswith("\\begin{tabular}{lrr") and "$\\times$" in results and "--" in results, results[:300])
    widths = {line.count("&") for line in results.splitlines() if "sync" in line}
    expect(len(widths) == 1, results)


def has_a_light_and_a_dark_theme_with_contrast(browser, folder):
    """WCAG 2.1: text 4.5, parts of drawings 3."""
    brightness = {}
    for theme in (LIGHT, DARK):
        found = browser.probe("full", LOOK, 400, theme)
        brightness[theme] = sum(found["background"][:3]) / 3
        expect(found["background"][3] == 255, "the page has no background of its own")
        for colour, ratio, least in found["contrasts"]:
            expect(ratio >= least, f"theme {theme}: {colour} has a contrast of {ratio:.2f}")
    expect(brightness[LIGHT] > 200 and brightness[DARK] < 60, f"backgrounds: {brightness}")
    page = folder / "reports" / "full.html"
    light, dark = browser.screenshot(page, LIGHT), browser.screenshot(page, DARK)
    expect(light != dark and min(len(light), len(dark)) > 20000, "the themes look the same")


TESTS = (the_browser_reports_console_errors, every_report_opens_silently_and_fits_every_width, all_sections_are_there,
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
        for test in TESTS:
            try:
                test(Browser(program, folder), folder)
                print(f"ok      {test.__name__}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {error}", flush=True)
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
