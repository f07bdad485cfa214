#!/usr/bin/env python3
"""Tests that no figure of scripts/house.py exceeds its limit in the table LIMITS, and that the counting is
right, on small trees."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import house  # noqa: E402


def counted(**files):
    """Returns figure -> value for a tree with these files; "__" in a name stands for "/", "_dot_" for "."."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {name: value for name, (value, _) in house.figures(folder).items()}


class TheHouse(unittest.TestCase):
    def test_no_figure_is_above_its_limit(self):
        found = house.figures(ROOT)
        self.assertEqual([], house.exceeded(found, house.LIMITS), "\n" + house.table(found, house.LIMITS))

    def test_no_limit_is_below_its_goal(self):
        for name, (goal, held) in house.LIMITS.items():
            self.assertGreaterEqual(held, goal, name)


class TheCounting(unittest.TestCase):
    def test_a_question_for_the_strategy_counts_under_any_name(self):
        found = counted(
            common__job__job_dot_h="struct J { bool calm() const { return strategy.kind == 1; } };\nint x = strategy.kind;\n",
            ps__a_dot_cpp="if (job.strategy.kind == StrategyKind::kSync) {}\n// strategy.kind\n",
            worker__b_dot_cpp="bool quiet() const { return in_lockstep(); }\nif (quiet() || job.calm()) {}\n")
        self.assertEqual(2 + 4, found["strategy places"])
        self.assertEqual(2, found["strategy files"])

    def test_a_class_has_the_lines_of_all_its_files(self):
        found = counted(
            ps__server_dot_h="class Server {\n  void a();\n};\n", ps__server_dot_cpp="void Server::a() {\n}\n",
            ps__server_pull_dot_cpp="bool Server::b() {\n}\n" + "\n" * 600, ps__other_dot_cpp="void free() {}\n")
        self.assertEqual(3 + 2 + 602, found["Server lines"])
        self.assertEqual(3, found["Server header"])
        self.assertEqual(1, found["classes over 450 lines"])
        self.assertEqual(1, found["foreign implementations"])
        self.assertEqual(1, found["files over 500 lines"])
        self.assertEqual(4, found["files in a folder"])

    def test_a_backend_and_a_local_class_are_no_foreign_implementation(self):
        found = counted(ps__x_dot_h="class Thing {\n};\n", ps__no_x_dot_cpp="void Thing::a() {}\n",
                        ps__y_dot_cpp="class Thing {\n};\nvoid Thing::a() {}\n")
        self.assertEqual(0, found["foreign implementations"])

    def test_two_headers_that_define_one_type_count(self):
        one, declared = "namespace a {\nstruct Row {\n};\n}\n", "namespace a {\nstruct Row;\n}\n"
        self.assertEqual(1, counted(ps__x_dot_h=one, worker__y_dot_h=one)["types of one name"])
        self.assertEqual(0, counted(ps__x_dot_h=one, worker__y_dot_h=declared)["types of one name"])
        self.assertEqual(0, counted(ps__x_dot_h=one, worker__y_dot_h=one.replace("a {", "b {"))["types of one name"])

    def test_a_refusal_without_a_reason_counts(self):
        found = counted(
            ps__server__a_dot_cpp="bool Server::push_fits(const Push& p) const {\n  if (x) { return false; }\n  return false;\n}\n"
                                  "bool Server::is_late() const {\n  return false;\n}\n"
                                  "std::string Server::pull_fits(int x) const {\n  return false;\n}\n",
            ps__aggregation__b_dot_cpp="bool on_chosen() {\n  return false;\n}\nbool Rule::reads_fit(int x) {\n  return false;\n}\n")
        self.assertEqual(3, found["refusals without a reason"])

    def test_words_comments_and_casts_are_counted(self):
        found = counted(
            worker__a_dot_cpp="// Of weights on their way\n// the bells ring for nobody\n// False: it was not taken\nauto* p = const_cast<PushPull*>(this);\n",
            docs__a_dot_md="distrusted\n", tests__b_dot_cpp="// What is it\n// distrusted\n")
        self.assertEqual(1, found["comments like translations"])
        self.assertEqual(2, found["words that say nothing"])
        self.assertEqual(1, found["const_casts of machines"])
        self.assertEqual(1, found["lines with vague pronouns"])
        self.assertEqual(2, found["comment fragments"], "one in a test")
        self.assertEqual(1, found["comments reflowed"])

    def test_a_simulated_node_may_be_an_adapter_and_no_more(self):
        found = counted(tests__simulation__a_node_dot_h="x;\n" * 20, tests__simulation__a_node_dot_cpp="x;\n\n  // y\n" * 130,
                        tests__simulation__b_node_dot_cpp="x;\n" * 120)
        self.assertEqual(30, found["driver lines twice"])

    def test_a_figure_above_its_limit_is_named(self):
        limits = {"a": (0, 2), "b": (0, 5), "c": (1, 1)}
        self.assertEqual(["a: 3, held to 2", "d: no limit", "c: not counted"],
                         house.exceeded({"a": (3, ""), "b": (5, ""), "d": (0, "")}, limits))


if __name__ == "__main__":
    unittest.main()
