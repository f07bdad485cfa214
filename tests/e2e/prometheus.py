"""A strict parser of Prometheus' text format 0.0.4, as its documentation defines it
(https://prometheus.io/docs/instrumenting/exposition_formats/): an oracle for what pushpull serves."""
import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
SUFFIXES = ("_bucket", "_sum", "_count")


def labels_of(text):
    out, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        if not found or found[1] in out:
            raise ValueError(f"bad labels: {text}")
        out[found[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), found[2])
        at = found.end()
    return out


def number_of(text):
    if text in ("NaN", "+Inf", "-Inf"):
        return float(text)
    if not re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text):
        raise ValueError(f"bad number: {text}")
    return float(text)


def parse(text):
    """Returns {metric: (type, [(name, labels, value)])}. Raises ValueError for what the format forbids: a sample without a
    type, a metric in two groups, a sample twice, a counter below zero, buckets out of order."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    out, current, helped = {}, None, set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            if name in helped or len(line.split(" ", 3)) < 4:
                raise ValueError(f"second or empty help: {line}")
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in out or kind not in TYPES or name not in helped:
                raise ValueError(f"bad type: {line}")
            current, out[name] = name, (kind, [])
        else:
            found = SAMPLE.fullmatch(line)
            if not found:
                raise ValueError(f"bad line: {line}")
            kind, samples = out[current]
            allowed = [current + suffix for suffix in SUFFIXES] if kind == "histogram" else [current]
            if found[1] not in allowed:
                raise ValueError(f"a sample of another metric than {current}: {line}")
            samples.append((found[1], labels_of(found[2] or ""), number_of(found[3])))
    for name, (kind, samples) in out.items():
        check(name, kind, samples)
    return out


def check(name, kind, samples):
    keys = [(sample, tuple(sorted(labels.items()))) for sample, labels, _ in samples]
    if len(keys) != len(set(keys)):
        raise ValueError(f"a sample of {name} occurs twice")
    if kind == "counter" and any(value < 0 or math.isnan(value) for _, _, value in samples):
        raise ValueError(f"{name} is below zero")
    if kind != "histogram":
        return
    buckets = [(number_of(labels["le"]), value) for sample, labels, value in samples if sample.endswith("_bucket")]
    count = next(value for sample, _, value in samples if sample.endswith("_count"))
    if buckets != sorted(buckets) or [v for _, v in buckets] != sorted(v for _, v in buckets):
        raise ValueError(f"buckets of {name} are out of order")
    if buckets[-1] != (math.inf, count):
        raise ValueError(f"{name} has no bucket for all")


def value(metrics, name, **labels):
    """Returns the one sample with these labels."""
    found = [v for sample, have, v in metrics[name][1] if sample == name and labels.items() <= have.items()]
    if len(found) != 1:
        raise ValueError(f"{len(found)} samples of {name} with {labels}")
    return found[0]
