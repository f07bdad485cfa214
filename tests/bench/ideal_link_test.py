#!/usr/bin/env python3
"""Tests the ideal link on cases worked out by hand. Rates of 10 bytes a second, times in seconds."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import ideal_link  # noqa: E402
import slow_link  # noqa: E402
from ideal_link import Slice, Worker  # noqa: E402


def push(ready, number, size=10):
    return Slice(ready, 0, number, size)


class Carried(unittest.TestCase):
    def test_a_slice_takes_its_bytes_over_the_rate_and_the_delay(self):
        self.assertEqual({0: 3.5}, ideal_link.carried([Slice(2, 0, 0, 10)], 10, 0.5))

    def test_a_more_urgent_slice_overtakes_a_slice_in_flight(self):
        # half of slice 1 is sent at 0.5; slice 0 takes [0.5, 1.5], the other half [1.5, 2]
        self.assertEqual({0: 2.0, 1: 1.5}, ideal_link.carried([Slice(0, 1, 1, 10), Slice(0.5, 0, 0, 10)], 10, 0))

    def test_a_less_urgent_slice_waits_and_the_link_is_idle_only_if_none_is_ready(self):
        found = ideal_link.carried([Slice(0, 0, 0, 20), Slice(1, 1, 1, 10), Slice(9, 2, 2, 10)], 10, 0)
        self.assertEqual({0: 2.0, 1: 3.0, 2: 10.0}, found)


class Waits(unittest.TestCase):
    def test_both_ways_at_once(self):
        # up: slice 0 until 1, slice 1 until 2; back: [1, 2] and [2, 3]. Both are needed at once.
        worker = Worker([push(0, 0), push(0, 1)], 0, [(0, [0, 1])])
        self.assertEqual([3.0], ideal_link.ideal_waits([worker], {0: 10, 1: 10}, 10, 0))

    def test_computing_hides_transfers(self):
        # slice 0 arrives at 2, slice 1 at 3, while the layer between them computes from 2 to 2.75
        worker = Worker([push(0, 0), push(0, 1)], 0, [(0, [0]), (0.75, [1])])
        self.assertEqual([2.25], ideal_link.ideal_waits([worker], {0: 10, 1: 10}, 10, 0))

    def test_a_slice_returns_after_the_slowest_workers_part_and_two_delays(self):
        # the server's link carries both parts, the second one until 6; then it sends to both workers in turn
        quick, slow = Worker([push(0, 0)], 0, [(0, [0])]), Worker([push(5, 0)], 5, [(0, [0])])
        self.assertEqual([8.0, 4.0], ideal_link.ideal_waits([quick, slow], {0: 10}, 10, 0.5))

    def test_several_parts_of_a_slice_all_count(self):
        worker = Worker([push(0, 0), push(4, 0)], 4, [(0, [0])])
        self.assertEqual([2.0], ideal_link.ideal_waits([worker], {0: 10}, 10, 0))

    def test_a_worker_that_computes_long_enough_does_not_wait(self):
        worker = Worker([push(0, 0)], 3, [(0, [0])])
        self.assertEqual([0.0], ideal_link.ideal_waits([worker], {0: 10}, 10, 0))


def event(name, category, step, begin, end, size=None):
    args = {"step": step, **({"bytes": size} if size else {})}
    return {"name": name, "cat": category, "ph": "X", "ts": begin * 1e6, "dur": (end - begin) * 1e6, "args": args}


def events():
    """Returns the events of two layers with a slice each; three steps with the same times, 10 s apart."""
    out = [{"ph": "M", "name": "model", "args": {"slice_elements": 4, "tensors": [
        {"name": "a", "offset": 0, "size": 4}, {"name": "b", "offset": 4, "size": 3}]}}]
    for step in (1, 2, 3):
        t = 10.0 * step
        out += [event("wait for the first weights", "wait", step, t - 6, t, None),
                event("slice 0 is here", "pull", step, t, t, 10),
                event("slice 1 is here", "pull", step, t + 1, t + 1, 10),
                event("wait for a", "wait", step, t, t), event("wait for b", "wait", step, t + 1, t + 2),
                event("wait for the last weights", "wait", step, t + 3, t + 3),
                event("forward 0", "compute", step, t, t + 3), event("backward 0", "compute", step, t + 3, t + 4),
                event("push slice 1", "push", step, t + 3, t + 3, 10),
                event("push slice 0", "push", step, t + 4, t + 4, 10), event("end of push", "push", step, t + 4, t + 4)]
    return out


class Steps(unittest.TestCase):
    def test_a_trace_is_read_with_its_computing(self):
        trace = ideal_link.Trace(events())
        worker = trace.worker(1)
        self.assertEqual(Worker([push(13, 1), push(14, 0)], 14, [(0, [0]), (1, [1]), (1, [0, 1])]), worker)
        self.assertEqual((7.0, 3.0), (trace.wait(2), trace.computing(2)))

    def test_measured_and_ideal_waits_are_side_by_side(self):
        # up: slice 1 [13, 14], slice 0 [14, 15]; back: slice 1 [14, 15], slice 0 [15, 16]; slice 0 is needed at 14
        steps = ideal_link.steps_of([ideal_link.Trace(events())], 10, 0)
        self.assertEqual([2, 3], [s["step"] for s in steps])
        self.assertEqual({"worker": 0, "step": 2, "wait": 7.0, "ideal": 2.0, "computing": 3.0, "pushed": 20,
                          "pulled": 20}, steps[0])
        row = slow_link.row_of(steps, "mlp", "1gbit,0ms", 10, 0, 1)
        self.assertEqual(3.5, row["ratio"])
        self.assertIn("| mlp, 1gbit,0ms, 1 |", slow_link.table([row]))

    def test_steps_with_an_evaluation_and_half_steps_do_not_count(self):
        more = events() + [event("evaluate chunk 0", "evaluate", 2, 18, 19)]
        self.assertEqual([], ideal_link.steps_of([ideal_link.Trace(more)], 10, 0))
        with self.assertRaisesRegex(slow_link.Failed, "no step that can be compared"):
            slow_link.row_of([], "mlp", "1gbit,0ms", 10, 0, 1)


class Link(unittest.TestCase):
    def test_the_link_is_the_one_that_the_run_measured(self):
        line = "[link] 200mbit,2ms: measured 191.2 Mbit/s and 4.20 ms for a round trip (how); TCP bbr\n"
        rate, delay = slow_link.link_of(line)
        self.assertAlmostEqual(23.9e6, rate)
        self.assertAlmostEqual(0.0021, delay)
        with self.assertRaisesRegex(slow_link.Failed, "did not report"):
            slow_link.link_of("nothing")


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[2:]  # the folder of the programs
    unittest.main(verbosity=2)
