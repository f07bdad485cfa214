"""The waits of workers if the link alone decided: the steps of traces, replayed over an ideal link.

An ideal link carries slices only, both ways at once, at the given rate, and always the most urgent ready byte. All
workers share one server's link. A slice is pushed as soon as its backward has finished it, is updated in no time once
all workers' parts have arrived, and returns in forward's order. Computing times come from the trace; only the waits
are recomputed."""
import collections
import heapq
import json

Slice = collections.namedtuple("Slice", "ready rank number bytes")  # seconds; low ranks are urgent
# One worker. `pushes`: Slices (rank unused). `free`: time when it has pushed all. `needs`: the requests of its next
# forward in order, each (seconds of computing before, numbers of slices).
Worker = collections.namedtuple("Worker", "pushes free needs")


def carried(slices, rate, delay):
    """Returns the arrival time of each slice, by index in `slices`. The most urgent slice goes first and overtakes
    slices in flight; of equals, the slice that was ready first."""
    waiting = sorted(range(len(slices)), key=lambda i: slices[i].ready)
    queue, left, done, now = [], {i: s.bytes / rate for i, s in enumerate(slices)}, {}, 0.0
    while waiting or queue:
        if not queue:
            now = max(now, slices[waiting[0]].ready)
        while waiting and slices[waiting[0]].ready <= now:
            i = waiting.pop(0)
            heapq.heappush(queue, (slices[i].rank, slices[i].ready, i))
        i = queue[0][2]
        until = now + left[i]
        if waiting and slices[waiting[0]].ready < until:
            left[i] -= slices[waiting[0]].ready - now
            now = slices[waiting[0]].ready
            continue
        heapq.heappop(queue)
        now, done[i] = until, until + delay
    return done


def waited(free, needs, arrived):
    """Returns the seconds that a forward waits that begins at `free`."""
    now, wait = free, 0.0
    for computing, numbers in needs:
        now += computing
        here = max((arrived[n] for n in numbers), default=now)
        wait += max(0.0, here - now)
        now = max(now, here)
    return wait


def ideal_waits(workers, pull_bytes, rate, delay):
    """Returns the seconds that each of `workers` has to wait. pull_bytes: {number of slice: bytes}."""
    out = [Slice(p.ready, p.number, p.number, p.bytes) for w in workers for p in w.pushes]
    updated = collections.defaultdict(float)
    for i, at in carried(out, rate, delay).items():
        updated[out[i].number] = max(updated[out[i].number], at)
    back = [Slice(at, n, n, pull_bytes[n]) for n, at in sorted(updated.items()) for _ in workers]
    arrived = carried(back, rate, delay)
    waits = []
    for index, worker in enumerate(workers):
        mine = {back[i].number: arrived[i] for i in range(index, len(back), len(workers))}
        waits.append(waited(worker.free, worker.needs, mine))
    return waits


class Trace:
    """The trace of one worker, step by step; times in seconds."""

    def __init__(self, events):
        self.slices_of, self.steps = {}, collections.defaultdict(list)
        for event in events:
            if event["ph"] == "M" and event["name"] == "model":
                self._read_model(event["args"])
            elif event["ph"] == "X":
                self.steps[event["args"]["step"]].append(event)
        for events_of_step in self.steps.values():
            events_of_step.sort(key=lambda e: e["ts"])

    def _read_model(self, model):
        n = model["slice_elements"]
        for t in model["tensors"]:
            self.slices_of[t["name"]] = range(t["offset"] // n, -(-(t["offset"] + t["size"]) // n))

    def of(self, step, category):
        return [e for e in self.steps[step] if e["cat"] == category]

    def wait(self, step):
        return sum(e["dur"] for e in self.of(step, "wait")) / 1e6

    def computing(self, step):
        whole = sum(e["dur"] for e in self.of(step, "compute"))
        return (whole - sum(e["dur"] for e in self.of(step, "wait") if e["name"] != FIRST)) / 1e6

    def carried_bytes(self, step, category):
        return sum(e["args"].get("bytes", 0) for e in self.of(step, category))

    def plain(self, step):
        """Returns whether the step is a plain task: a push and a forward, and no evaluation."""
        return bool(self.of(step, "push") and self.of(step, "compute")) and not self.of(step, "evaluate")

    def worker(self, step):
        """Returns the worker's pushes of `step`, and the needs of its forward in the next step."""
        pushes = [Slice(e["ts"] / 1e6, 0, int(e["name"].split()[-1]), e["args"]["bytes"])
                  for e in self.of(step, "push") if "bytes" in e["args"]]
        last = self.of(step, "push")[-1]
        free = (last["ts"] + last["dur"]) / 1e6
        return Worker(pushes, free, self._needs(step + 1, {p.number for p in pushes}))

    def _needs(self, step, everything):
        forward = self.of(step, "compute")[0]
        needs, at = [], forward["ts"]
        for e in self.of(step, "wait"):
            name = e["name"].removeprefix("wait for ")
            if e["name"] == FIRST or e["ts"] < forward["ts"]:
                continue
            numbers = everything if e["name"] == LAST else self.slices_of.get(name, ())
            needs.append(((e["ts"] - at) / 1e6, list(numbers)))
            at = e["ts"] + e["dur"]
            if e["name"] == LAST:
                break
        return needs


FIRST, LAST = "wait for the first weights", "wait for the last weights"


def read(path):
    with open(path, encoding="utf-8") as file:
        return Trace(json.load(file))


def steps_of(traces, rate, delay):
    """Returns one entry per worker and step with a wait that can be compared with the ideal one."""
    out = []
    for step in sorted(set.intersection(*(set(t.steps) for t in traces))):
        if step < 1 or not all(t.plain(s) if s in t.steps else False for t in traces for s in (step, step + 1)):
            continue
        workers = [t.worker(step) for t in traces]
        pulled = {int(e["name"].split()[1]): e["args"]["bytes"] for e in traces[0].of(step + 1, "pull")}
        if any(p.number not in pulled for w in workers for p in w.pushes):
            continue
        ideal = ideal_waits(workers, pulled, rate, delay)
        for i, t in enumerate(traces):
            out.append({"worker": i, "step": step + 1, "wait": t.wait(step + 1), "ideal": ideal[i],
                        "computing": t.computing(step + 1),
                        "pushed": t.carried_bytes(step, "push"), "pulled": t.carried_bytes(step + 1, "pull")})
    return out
