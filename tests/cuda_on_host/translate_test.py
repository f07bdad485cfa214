#!/usr/bin/env python3
"""Tests the translation of a launch, and that translate.py refuses text that it does not understand."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True
from translate import Refused, translate  # noqa: E402


class Translate(unittest.TestCase):
    def test_a_launch_keeps_its_template_arguments_and_lines(self):
        text = "void f() {\n  fill<float, kWide>\n      <<<g(1, 2), 32, 0, s>>>(\n          a, b);\n  next();\n}\n"
        made = translate(text, "k.cu")
        self.assertIn('launch({"k.cu", 3, "fill<float, kWide>"}, g(1, 2), 32, 0, s, [=]', made)
        self.assertIn("fill<float, kWide>(of_launch...); }, a, b)", made)
        self.assertEqual(made.split("\n").index("  next();"), text.split("\n").index("  next();") + 1)

    def test_comments_and_strings_are_left_alone(self):
        text = '// a<<<b>>>(c) and __shared__\nconst char* t = "asm __shared__ <<<";\n'
        self.assertEqual(translate(text, "k.cu"), '#line 1 "k.cu"\n' + text)

    def test_text_that_is_not_understood_is_refused(self):
        for text in ("f<<<1, 2>>>(a);", "f<<<1, 2, 0, s>>>;", "(*f)<<<1, 2, 0, s>>>(a);", "x::f<<<1, 2, 0, s>>>(a);",
                     "x = a.f<<<1, 2, 0, s>>>(a);", "__shared__ int a, b;", "__shared__ T* p = q;",
                     'asm volatile("bar.sync 0;");', "__constant__ int table[4];", "__syncwarp();", "f<<<1, 2, 0, s;"):
            with self.subTest(text), self.assertRaises(Refused):
                translate("void g() {\n" + text + "\n}\n", "k.cu")


if __name__ == "__main__":
    unittest.main()
