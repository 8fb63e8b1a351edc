"""tests/tools/mutations_test.py: which one-line bugs tools/mutate.py puts in, and how it judges."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import mutate  # noqa: E402
import mutations  # noqa: E402


def texts(source, kind=None):
    return [m.text for m in mutations.mutations_of(source) if kind in (None, m.kind)]


class Mutations(unittest.TestCase):
    def test_comparisons(self):
        self.assertEqual(texts("  while (i < n && j >= m) f();", "comparison"),
                         ["  while (i <= n && j >= m) f();", "  while (i < n && j > m) f();"])
        self.assertEqual(texts("ok = a == b;"), ["ok = a != b;"])
        self.assertEqual(texts("std::vector<std::pair<int, T>> v;"), [])  # templates are not comparisons

    def test_constants(self):
        self.assertEqual(texts("x = f(0, a1, 2.5, 0x10, 1'000, 42);", "constant"),
                         ["x = f(1, a1, 2.5, 0x10, 1'000, 42);", "x = f(0, a1, 2.5, 0x10, 1'000, 43);"])

    def test_plus_and_minus(self):
        self.assertEqual(texts("at += f(a) - b;"), ["at -= f(a) - b;", "at += f(a) + b;"])
        self.assertEqual(texts("x = -y; ++z;"), [])

    def test_dropped_conditions(self):
        self.assertEqual(texts("const bool ok = a.f(x, y) && g;", "dropped condition"),
                         ["const bool ok = a.f(x, y);", "const bool ok = g;"])
        self.assertEqual(texts("return a || b;", "dropped condition"), ["return a;", "return b;"])
        self.assertEqual(texts("if (a && (b || c)) f();", "dropped condition"),
                         ["if (a) f();", "if ((b || c)) f();", "if (a && (b)) f();", "if (a && (c)) f();"])
        self.assertEqual(texts("  x = a &&", "dropped condition"), [])  # continues on the next line

    def test_removed_exits(self):
        self.assertEqual(texts("    continue;"), ["    ;"])
        self.assertEqual(texts("  if (f(x)) return y;", "removed exit"), ["  ;"])
        self.assertEqual(texts("  return y;"), [])  # somebody needs the value
        self.assertEqual(texts("  if (a) b = [] { return; };", "removed exit"), [])

    def test_negated_conditions(self):
        self.assertEqual(texts("  if (f(x)) g();"), ["  if (!(f(x))) g();"])
        self.assertEqual(texts("  if (const auto y = f(); y) g();"), [])
        self.assertEqual(texts("  if constexpr (kX) g();", "negated condition"), [])
        self.assertEqual(texts("  if (f(x,"), [])

    def test_what_does_not_run_is_left_alone(self):
        for text in ("// a < b", "/* a < b\n a + 1 */", '#include "x1.h"\n#define A 1 + \\\n  2', 'log_info("{}", a + 1);',
                     'throw UserError(fmt::format("a < {}", x + 1), "1");', "using T = Array<4>;", "case 3:",
                     "x.reserve(n + 1);", 'ensure(a < b && c, "d");',
                     'f("a < 1", \'1\', R"(1 < 2)");', 'throw X("a",\n   b + 1,\n   c < d);'):
            self.assertEqual(texts(text), [], text)

    def test_a_mutation_changes_its_line_alone(self):
        source = (ROOT / "src/data/order.cpp").read_text()
        found = mutations.mutations_of(source)
        self.assertGreater(len(found), 50)
        self.assertEqual({m.kind for m in found}, set(mutations.KINDS))
        for mutation in found:
            before, after = source.split("\n"), mutation.apply(source).split("\n")
            self.assertEqual([i + 1 for i, (a, b) in enumerate(zip(before, after)) if a != b], [mutation.line])
            self.assertEqual(len(before), len(after))

    def test_pick_takes_kinds_in_turn_and_a_line_once(self):
        by_file = {name: mutations.mutations_of((ROOT / name).read_text())
                   for name in ("src/data/order.cpp", "src/data/pack.cpp")}
        first = list(mutations.pick(by_file, random.Random(1)))
        self.assertEqual([m.kind for _, m in first[:6]], list(mutations.KINDS))
        lines = [(file, m.line) for file, m in first]
        self.assertEqual(len(lines), len(set(lines)))
        self.assertEqual(first, list(mutations.pick(by_file, random.Random(1))))
        self.assertNotEqual(first, list(mutations.pick(by_file, random.Random(2))))


class FakeScratch:
    """A tree of one file whose object is its text without blanks; verdicts by program, in turn."""

    def __init__(self, folder, verdicts=None, compiles=True):
        self.root = self.build = Path(folder)
        self.verdicts, self.compiles, self.runs = verdicts or {}, compiles, []
        (self.root / "x.cpp").write_text("if (a < b) f();\n")
        self.make("")

    def make(self, *_):
        text = (self.root / "x.cpp").read_text()
        (self.root / "x.o").write_text(text.replace(" ", ""))
        return self.compiles

    def objects(self, _):
        return [self.root / "x.o"]

    def run(self, test, _, names="*"):
        self.runs.append((test, names))
        return self.verdicts[test].pop(0)


PASSED, FAILED = ("passed", [], 1), ("failed", ["A.b", "A.c"], 1)


class TryOne(unittest.TestCase):
    def verdict(self, new="if (a <= b) f();", **options):
        with tempfile.TemporaryDirectory() as folder:
            self.scratch = FakeScratch(folder, **options)
            mutation = mutations.Mutation("comparison", 1, "< -> <=", new)
            verdict = mutate.try_one(self.scratch, {"one": 1, "two": 1}, "x.cpp", mutation)
            self.assertEqual((self.scratch.root / "x.cpp").read_text(), "if (a < b) f();\n")
        return verdict

    def test_the_first_program_that_fails_twice_has_found_it(self):
        self.assertEqual(self.verdict(verdicts={"one": [PASSED], "two": [FAILED, FAILED]}), "killed by test_two A.b")
        self.assertEqual(self.scratch.runs, [("one", "*"), ("two", "*"), ("two", "A.b:A.c")])

    def test_a_failure_that_does_not_come_again_is_none(self):
        self.assertEqual(self.verdict(verdicts={"one": [FAILED, PASSED], "two": [PASSED]}), "SURVIVED")

    def test_a_loop_without_end_and_a_crash_are_found(self):
        late, crash = ("too long", [], 1), ("failed", [], 1)
        self.assertEqual(self.verdict(verdicts={"one": [late]}), "killed by test_one too long")
        self.assertEqual(self.verdict(verdicts={"one": [crash]}), "killed by test_one failed")

    def test_what_is_not_counted(self):
        self.assertEqual(self.verdict(compiles=False), "does not compile")
        self.assertEqual(self.verdict(new="if (a  <  b) f();"), "same object")


class Copy(unittest.TestCase):
    def test_only_the_files_of_the_checkout_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, listed = Path(folder), ["src/base/error.cpp", "tests/tools/mutations_test.py"]
            others = ["src/base/renamed_away.cpp", "tests/base/renamed_away_test.cpp"]
            for name in [*listed, *others, "build/src/x.o"]:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text("")
            mutate.remove_others(tree, [*listed, *others])  # git lists a file that was deleted, too
            left = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
            self.assertEqual(left, ["build/src/x.o", *listed])


if __name__ == "__main__":
    unittest.main()
