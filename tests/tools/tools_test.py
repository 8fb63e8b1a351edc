"""tests/tools/tools_test.py: the checks of the house find what they are there to find."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_rooms  # noqa: E402
import run_tests  # noqa: E402


def complaints(path, body, first=None):
    """Messages about a file whose first line is right unless given."""
    head = f"// {path.removeprefix('src/')}: words.\n" if first is None else first
    return [message for _, message in check_rooms.check_file(path, head + body)]


class CheckRooms(unittest.TestCase):
    def test_clean(self):
        body = '#include "io/x.h"\n\n#include <vector>\n\n#include "base/error.h"\n'
        self.assertEqual(complaints("src/io/x.cpp", body), [])

    def test_floors(self):
        self.assertIn("io may not include model", complaints("src/io/x.cpp", '#include "model/m.h"\n')[0])
        self.assertIn("text may not include io", complaints("src/text/x.cpp", '#include "io/m.h"\n')[0])
        self.assertEqual(complaints("src/train/x.cpp", '#include "kernel/m.h"\n'), [])
        self.assertEqual(complaints("src/exec/x.cpp", '#include "tensor/m.h"\n'), [])
        self.assertIn("no room", complaints("src/attic/x.cpp", "")[0])
        self.assertIn("room/file.h", complaints("src/io/x.cpp", '#include "x.h"\n')[0])

    def test_train_sees_everything_below(self):
        self.assertEqual(check_rooms.ALLOWED["train"], set(check_rooms.ROOMS) - {"cmd"})
        self.assertEqual(check_rooms.ALLOWED["base"], {"base"})

    def test_foreign_headers(self):
        yaml = "#include <yaml-cpp/yaml.h>\n"
        self.assertEqual(complaints("src/base/yaml.cpp", yaml), [])
        self.assertEqual(len(complaints("src/train/run.cpp", yaml)), 1)
        self.assertEqual(len(complaints("src/base/yaml.h", "#pragma once\n" + yaml)), 1)
        self.assertEqual(len(complaints("tests/base/yaml_test.cpp", yaml)), 1)

    def test_first_line(self):
        self.assertEqual(len(complaints("src/io/x.cpp", "", "// io/y.cpp: words.\n")), 1)
        self.assertEqual(len(complaints("src/io/x.cpp", "", "#include <vector>\n")), 1)
        self.assertEqual(complaints("tests/io/x.cpp", "", "// io/x.cpp: words.\n"), [])
        self.assertEqual(len(list(check_rooms.check_file("tools/x.py", "import sys\n"))), 1)
        self.assertEqual(list(check_rooms.check_file("tools/x.py", '#!/bin/x\n"""tools/x.py: y."""\n')), [])

    def test_length(self):
        self.assertEqual(complaints("src/io/x.cpp", "\n" * 499), [])
        self.assertEqual(len(complaints("src/io/x.cpp", "\n" * 500)), 1)
        self.assertEqual(complaints("src/text/unicode_tables.cpp", "\n" * 900), [])

    def test_endings(self):
        self.assertEqual(len(complaints("src/io/x.cpp", "std::exit(1);\n")), 1)
        self.assertEqual(len(complaints("src/io/x.cpp", "std::cerr << 1;\n")), 1)
        self.assertEqual(len(complaints("src/io/x.cpp", "  abort();\n")), 1)
        self.assertEqual(len(complaints("src/io/x.cpp", "  ::_exit(1);\n")), 1)
        self.assertEqual(complaints("src/comm/x.cpp", "void abort(int);\nvoid X::abort(int) {}\nx.abort(1);\n"), [])
        self.assertEqual(complaints("src/cmd/x.cpp", "std::exit(1);\n"), [])
        self.assertEqual(complaints("src/io/x.cpp", '// std::exit(1)\nf("abort()"); on_exit(g);\n'), [])

    def test_words(self):
        for word in ("/" + "tmp/x", "/" + "home/me", "py" + "pi.org", "TO" + "DO", "FIX" + "ME"):
            self.assertEqual(len(complaints("src/io/x.cpp", f"// see {word}/\n")), 1, word)
        self.assertEqual(complaints("src/io/x.cpp", "// runs/tmp/x, $HOME/work/x\n"), [])


class RunTests(unittest.TestCase):
    def test_skips(self):
        verdicts = [("A.a", "passed"), ("A.b", "skipped"), ("A.c", "failed")]
        self.assertEqual(run_tests.judge(verdicts, {"A.b"}, False), (["A.a"], ["A.c"], ["A.b"]))
        self.assertEqual(run_tests.judge(verdicts, {"A.b"}, True), (["A.a"], ["A.c", "A.b"], []))
        self.assertEqual(run_tests.judge(verdicts, set(), False), (["A.a"], ["A.c", "A.b"], []))

    def test_reports(self):
        cases = [
            {"name": "ok", "result": "COMPLETED"},
            {"name": "bad", "result": "COMPLETED", "failures": [{}]},
            {"name": "skip", "result": "SKIPPED"},
            {"name": "DISABLED_x", "result": "SUPPRESSED"},
        ]
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            report = {"testsuites": [{"name": "S", "testsuite": cases}]}
            (folder / "one.json").write_text(json.dumps(report))
            (folder / "half.json").write_text('{"testsuites": [')
            (folder / "late.json").write_text(
                json.dumps({"testsuites": [{"name": "L", "testsuite": cases[:1]}]}))
            (folder / "ctest.xml").write_text(
                '<s><testcase name="one" status="fail"/><testcase name="half" status="fail"/>'
                '<testcase name="late" status="fail"/><testcase name="plain" status="run"/></s>')
            found = run_tests.collect(folder, folder / "ctest.xml")
        self.assertEqual(found, [
            ("S.ok", "passed"), ("S.bad", "failed"), ("S.skip", "skipped"),
            ("S.DISABLED_x", "skipped"), ("program half", "failed"), ("L.ok", "passed"),
            ("program late", "failed"), ("program plain", "passed")])


if __name__ == "__main__":
    unittest.main()
