#!/usr/bin/env python3
"""Opens reports of `pushpull compare` and `pushpull report` in a real headless Chromium. Checks for no console message, charts in the
DOM, no resources to fetch, no horizontal scrolling and no small text at 400 pixels, and enough contrast, light
and dark.

    report_browser_test.py REPORT_WRITER [--keep FOLDER]     exit code 77: skipped, Chromium is not installed
"""

import argparse
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DARK, LIGHT = 0, 1  # blink's numbers of the preferred color scheme

# Measures a report in a frame of the given width (a window cannot be as narrow) and writes the result to its
# own
# DOM. Reads colours back from a canvas, in any notation.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" src="REPORT" style="border:0;width:WIDTHpx;height:900px"></iframe>
<pre id="found"></pre>
<script>
const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgb(colour) {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  return pixel.getImageData(0, 0, 1, 1).data;
}
function luminance(colour) {
  const [r, g, b] = [...rgb(colour)].map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}
function measure(page) {
  const view = page.defaultView;
  const root = page.documentElement;
  for (const part of page.querySelectorAll("details")) part.open = true;
  const smallest = {html: 1e9, svg: 1e9};
  for (const element of page.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || element.tagName.toLowerCase() === "title") continue;
    const svg = element.closest("svg.chart");
    const size = parseFloat(view.getComputedStyle(element).fontSize);
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const kind = svg ? "svg" : "html";
    smallest[kind] = Math.min(smallest[kind], size * scale);
  }
  const style = view.getComputedStyle(root);
  const colour = name => style.getPropertyValue(name).trim();
  const overlaps = [];
  for (const svg of page.querySelectorAll("svg.chart")) {
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    const frame = svg.getBoundingClientRect();
    for (const [i, [text, a]] of boxes.entries()) {
      if (a.left < frame.left - 1 || a.right > frame.right + 1) overlaps.push("outside: " + text);
      for (const [other, b] of boxes.slice(i + 1)) {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
          overlaps.push(text + " on " + other);
      }
    }
  }
  return {
    client: root.clientWidth, scroll: root.scrollWidth,
    charts: page.querySelectorAll("svg.chart").length,
    flat: [...page.querySelectorAll("svg.chart")].filter(s => s.getBoundingClientRect().height < 40).length,
    marks: page.querySelectorAll("svg .line, svg .bar").length,
    lost: [...page.querySelectorAll("a[href^='#']")].filter(a => !page.querySelector(a.getAttribute("href"))).length,
    smallest, overlaps,
    text: ["--text", "--soft", "--accent", "--bad"].map(c => [c, contrast(colour(c), colour("--card"))])
        .concat(["--text", "--soft", "--accent"].map(c => [c + " on page", contrast(colour(c), colour("--page"))])),
    marks_contrast: ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5", "--s6", "--s7", "--p0", "--p1", "--p2", "--p3"]
        .map(c => [c, contrast(colour(c), colour("--card"))]),
    background: [...rgb(view.getComputedStyle(page.body).backgroundColor)],
    fetched: view.performance.getEntriesByType("resource").map(e => e.name),
  };
}
addEventListener("load", () => {
  let found;
  try { found = measure(document.getElementById("frame").contentDocument); }
  catch (error) { found = {error: String(error)}; }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""


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

    def dom(self, page, theme=LIGHT):
        out, console = self.call(page, theme, "--dump-dom")
        return out, console

    def measured(self, page, width, theme):
        wrapper = self.folder / f"measure_{page.stem}_{width}_{theme}.html"
        wrapper.write_text(WRAPPER.replace("REPORT", page.as_uri()).replace("WIDTH", str(width)))
        out, console = self.call(wrapper, theme, "--dump-dom", "--window-size=1500,1000")
        found = re.search(r'<pre id="found">(.*?)</pre>', out, re.DOTALL)
        expect(found and found.group(1), f"{wrapper.name} measured nothing: {console}")
        result = json.loads(html.unescape(found.group(1)))
        expect("error" not in result, f"{wrapper.name}: {result.get('error')}")
        return result, console

    def screenshot(self, page, theme):
        file = self.folder / f"{page.stem}_{theme}.png"
        self.call(page, theme, f"--screenshot={file}", "--window-size=1280,1600")
        return file.read_bytes()


def expect(truth, message):
    if not truth:
        raise AssertionError(message)


def the_browser_reports_console_errors(browser, folder):
    """Without this, a silent console would prove nothing."""
    page = folder / "broken.html"
    page.write_text("<!DOCTYPE html><script>undefined_function()</script>")
    _, console = browser.dom(page)
    expect(any("undefined_function" in line for line in console), f"no console error seen: {console}")


def opens_without_a_word(browser, folder):
    for page in sorted((folder / "reports").glob("*.html")):
        dom, console = browser.dom(page)
        expect(not console, f"{page.name}: {console}")
        expect("</main>" in dom, f"{page.name}: the DOM ends early")


def every_chart_is_there_and_drawn(browser, folder):
    expected = {"full": 58, "one_run": 7, "unfair": 14, "failures": 0, "nothing": 0, "run": 9, "new_run": 0}
    for name, charts in expected.items():
        page = folder / "reports" / f"{name}.html"
        written = page.read_text().count('<svg class="chart"')
        found, console = browser.measured(page, 1280, LIGHT)
        expect(not console, f"{name}: {console}")
        expect(found["charts"] == written == charts, f"{name}: {found['charts']} charts of {written}, expected {charts}")
        expect(found["flat"] == 0, f"{name}: {found['flat']} charts have no height")
        expect(found["marks"] >= written, f"{name}: {found['marks']} lines and bars")
        expect(found["lost"] == 0, f"{name}: {found['lost']} links lead nowhere")
        expect(found["fetched"] == [], f"{name} fetched {found['fetched']}")


def is_readable_at_400_pixels(browser, folder):
    for name in ("full", "one_run", "unfair", "failures", "nothing", "run", "new_run"):
        for width in (400, 1280, 1400):
            found, _ = browser.measured(folder / "reports" / f"{name}.html", width, LIGHT)
            where = f"{name} at {width} px"
            expect(found["client"] == width, f"{where}: measured at {found['client']}")
            expect(found["scroll"] <= found["client"], f"{where}: {found['scroll']} px wide")
            expect(found["smallest"]["html"] >= 11, f"{where}: text of {found['smallest']['html']} px")
            if found["charts"]:
                expect(found["smallest"]["svg"] >= 11, f"{where}: labels of {found['smallest']['svg']} px")
            expect(not found["overlaps"], f"{where}: labels overlap: {found['overlaps'][:5]}")


def has_a_light_and_a_dark_theme_with_contrast(browser, folder):
    """WCAG 2.1: text 4.5, parts of drawings 3."""
    page = folder / "reports" / "full.html"
    brightness = {}
    for theme in (LIGHT, DARK):
        found, _ = browser.measured(page, 400, theme)
        brightness[theme] = sum(found["background"][:3]) / 3
        expect(found["background"][3] == 255, "the page has no background of its own")
        for colour, ratio in found["text"]:
            expect(ratio >= 4.5, f"theme {theme}: {colour} has a contrast of {ratio:.2f}")
        for colour, ratio in found["marks_contrast"]:
            expect(ratio >= 3, f"theme {theme}: {colour} has a contrast of {ratio:.2f}")
    expect(brightness[LIGHT] > 200 and brightness[DARK] < 60, f"backgrounds: {brightness}")
    light, dark = browser.screenshot(page, LIGHT), browser.screenshot(page, DARK)
    expect(light != dark and min(len(light), len(dark)) > 20000, "the themes look the same")


TESTS = (the_browser_reports_console_errors, opens_without_a_word, every_chart_is_there_and_drawn,
         is_readable_at_400_pixels, has_a_light_and_a_dark_theme_with_contrast)


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
        (folder / "reports").mkdir(parents=True, exist_ok=True)
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
