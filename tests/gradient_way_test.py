#!/usr/bin/env python3
"""Tests scripts/gradient_way.py without a run: which functions are handed a gradient, which files a page lists; ARCHITECTURE's list is short and exists."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import gradient_way as way  # noqa: E402

MOST_FILES = 22


class Functions(unittest.TestCase):
    def test_parameters_decide_not_the_rest_of_the_name(self):
        for name in ("pushpull::Server::take(std::string const&, pushpull::Message)",
                     "pushpull::(anonymous namespace)::add_range(float const*, float*, long, long)",
                     "pushpull::SocketLinks::exchange(std::function<void (pushpull::Message const&)> const&)",
                     "pushpull::Router::receive[abi:cxx11](std::vector<zmq::message_t>&)",
                     "pushpull::GradientStep::run(int)::{lambda(int, pushpull::Payload)#1}::operator()(int, pushpull::Payload) const"):
            self.assertTrue(way.handed(name), name)
        for name in ("pushpull::Payload::floats() const", "pushpull::Server::work()", "main", "pushpull::Ledger::add(long, pushpull::Range)",
                     "pushpull::f(pushpull::wire::Pull const&, floating)"):
            self.assertFalse(way.handed(name), name)

    def test_files_that_do_not_count_have_a_reason(self):
        self.assertEqual("", way.reason("worker/exchange/pull.cpp"))
        self.assertIn("way begins", way.reason("models/network.cpp"))


class Pages(unittest.TestCase):
    PAGE = f"[x](y.cpp)\n{way.HEADING}\n| [a](p/a.cpp), [b](p/b.h) | [docs](c.md) |\n[d](d.cpp)\n## Next\n| [e](e.cpp) |\n"

    def test_a_page_lists_the_links_of_its_table(self):
        self.assertEqual(["p/a.cpp", "p/b.h"], way.listed(self.PAGE))

    def test_what_is_lacking_too_much_or_twice_is_named(self):
        self.assertEqual([], way.mistakes(["a", "b"], ["b", "a"]))
        self.assertEqual(3, len(way.mistakes(["a", "b"], ["b", "b", "c"])))

    def test_the_list_of_the_page_is_short_and_exists(self):
        named = way.listed((ROOT / "ARCHITECTURE.md").read_text())
        self.assertLessEqual(len(named), MOST_FILES)
        self.assertGreater(len(named), 10)
        self.assertEqual([], [f for f in named if not (ROOT / f).is_file() or way.reason(f)])


if __name__ == "__main__":
    unittest.main()
