"""tests/tools/tools_test.py: the lint checks find what they should."""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
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
        self.assertIn("not a room", complaints("src/attic/x.cpp", "")[0])
        self.assertIn("room/file.h", complaints("src/io/x.cpp", '#include "x.h"\n')[0])

    def test_verify_sees_everything_below(self):
        self.assertEqual(check_rooms.ALLOWED["verify"], set(check_rooms.ROOMS) - {"cmd"})
        self.assertEqual(check_rooms.ALLOWED["base"], {"base"})

    def test_foreign_headers(self):
        yaml = "#include <yaml-cpp/yaml.h>\n"
        self.assertEqual(complaints("src/base/yaml.cpp", yaml), [])
        self.assertEqual(len(complaints("src/train/run.cpp", yaml)), 1)
        self.assertEqual(len(complaints("src/base/yaml.h", "#pragma once\n" + yaml)), 1)
        self.assertEqual(len(complaints("tests/base/yaml_test.cpp", yaml)), 1)

    def test_headers_that_come_by_chance(self):
        sorts = "\nstd::sort(a.begin(), a.end());\nstd::ranges::find(a, 1);\n"
        self.assertEqual([message for message in complaints("src/io/x.cpp", sorts)], ["needs #include <algorithm>"])
        self.assertEqual(complaints("src/io/x.cpp", "#include <algorithm>\n" + sorts), [])
        self.assertEqual(complaints("tests/io/x.cpp", "// std::sort(a)\nx.find(1); a.sort();\n"), [])
        self.assertEqual(complaints("src/io/x.cpp", "fmt::join(a);\n"), ["needs #include <fmt/ranges.h>"])

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

    def test_names_that_other_commits_run(self):
        names = [f"Exact.Layouts/{i}" for i in range(60)] + ["Exact.Alone", "Other.Test"]
        slots = [("Exact.Layouts/7", 1), ("Exact.Layouts/*", 5), ("Gone.*", 2)]
        seen = set()
        for number in range(90, 95):
            found = run_tests.left_out(names, slots, number)
            left = set(found["Exact.Layouts/*"][0])
            self.assertEqual([count for _, count in found.values()], [1, 59, 0])
            self.assertTrue(left)
            self.assertFalse(left & {"Exact.Layouts/7", "Exact.Alone", "Other.Test"})
            seen |= set(names) - left
        self.assertEqual(seen, set(names))
        self.assertEqual(run_tests.left_out(names, slots, None)["Exact.Layouts/*"], ([], 59))

    def test_ten_commits_run_every_test_of_the_list(self):
        slots = run_tests.read_slots(ROOT / "tests/slots.txt")
        self.assertTrue(slots)
        names = [pattern.replace("*", str(i)) for pattern, _ in slots for i in range(20)]
        seen = set()
        for number in range(1001, 1011):
            seen |= set(names) - {name for left, _ in run_tests.left_out(names, slots, number).values() for name in left}
        self.assertEqual(seen, set(names))

    def test_filters_of_left_names(self):
        self.assertEqual(run_tests.with_left_out("", []), "")
        self.assertEqual(run_tests.with_left_out("", ["A.a", "A.b"]), "-A.a:A.b")
        self.assertEqual(run_tests.with_left_out("*X*", ["A.a"]), "*X*-A.a")
        self.assertEqual(run_tests.with_left_out("*X*-B.b", ["A.a"]), "*X*-B.b:A.a")

    def test_names_of_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "test_x"
            program.write_text("#!/bin/sh\nprintf 'Running main() from x.cc\\nA.\\n  a\\nM/B.  # TypeParam = int\\n"
                               "  b/0  # GetParam() = 7\\n  b/two\\n'\n")
            program.chmod(0o755)
            self.assertEqual(run_tests.list_tests(program), ["A.a", "M/B.b/0", "M/B.b/two"])

    def test_output_of_a_failed_program(self):
        printed = ["Running main() from gtest_main.cc", "[==========] Running 3 tests.", "[ RUN      ] S.good",
                   "chatter", "[       OK ] S.good (1 ms)", "[ RUN      ] S.bad", "x.cpp:7: Failure",
                   "[  FAILED  ] S.bad (1 ms)", "[----------] 2 tests from S", "[ RUN      ] S.crash", "last words"]
        self.assertEqual(run_tests.without_passed("\n".join(printed)), "\n".join(printed[5:]))
        self.assertEqual(run_tests.without_passed("no gtest\nat all"), "no gtest\nat all")

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


class Gpu(unittest.TestCase):
    """tools/gpu.sh over programs that only look like those of a build."""

    PASSES = "echo '[==========] x'; echo '[       OK ] A.B (1 ms)'; echo '[       OK ] A.C (1 ms)'"

    def run_with(self, **programs):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tests").mkdir()
            bodies = {"weft": "echo '{\"capability\": \"9.0\"}'"}
            bodies |= {f"tests/test_{name}": self.PASSES for name in ("comm", "generate", "cmd", "golden", "dist", "kernel")}
            bodies |= {name if name == "weft" else f"tests/test_{name}": body for name, body in programs.items()}
            for name, body in bodies.items():
                path = Path(folder) / name
                path.write_text(f"#!/bin/sh\n{body}\n")
                path.chmod(0o755)
            done = subprocess.run([ROOT / "tools/gpu.sh", "test"], capture_output=True, text=True, timeout=50,
                                  env={**os.environ, "WEFT_BUILD": folder, "WEFT_GPU_LIMIT_S": "24"})
        table = {line.split()[0]: line.split()[1:] for line in done.stdout.split("\npart ")[-1].splitlines()[1:]}
        return done.returncode, table, done.stdout + done.stderr

    def test_all_pass(self):
        code, table, _ = self.run_with()
        self.assertEqual(code, 0)
        self.assertEqual(list(table), ["doctor", "nccl", "generate", "cmd", "golden", "dist", "kernel", "all"])
        self.assertEqual(table["kernel"][0], "2")

    def test_a_hang_is_stopped_and_the_others_run(self):
        code, table, _ = self.run_with(comm=self.PASSES + "; sleep 40")
        self.assertEqual(code, 1)
        self.assertIn("stopped", table["nccl"])
        self.assertEqual(table["kernel"][2], "ok")

    def test_failures_and_skips_are_told(self):
        code, table, text = self.run_with(
            golden="echo '[==========] x'; echo '[  FAILED  ] Set.Name (1 ms)'; exit 1",
            dist=self.PASSES + "; echo '[  SKIPPED ] Set.Skipped (0 ms)'", kernel="echo '[==========] 0 tests'")
        self.assertEqual(code, 1)
        self.assertIn("FAILED", table["golden"])
        self.assertIn("Set.Name", text)
        self.assertIn("skipped: Set.Skipped", text)
        self.assertIn("FAILED:", table["kernel"])  # no tests at all is not a success

    def test_ranks_run_every_test_that_a_gpu_has(self):
        """By the names that tests/dist gives those of a real GPU; emulated ones are left out."""
        with tempfile.NamedTemporaryFile("r") as log:
            self.run_with(dist=f'echo "$@" >{log.name}; {self.PASSES}')
            patterns = log.read().strip().removeprefix("--gtest_filter=").split(":")
        for name, runs in [("Backends/LossScaling.FollowsFp32/cuda", True), ("Backends/DropoutGpu.X/cuda", True),
                           ("Backends/GpuEval.X/cuda_llama", True), ("Backends/Gpu.X/cuda_qwen2_fp16", True),
                           ("Backends/LossScaling.FollowsFp32/cuda_emulated", False), ("Exact.X/qwen2_fp32", False)]:
            self.assertEqual(any(fnmatch.fnmatchcase(name, p) for p in patterns), runs, name)

    def test_libraries_that_pytorch_brought(self):
        """Only those that weft does not find."""
        with tempfile.TemporaryDirectory() as packages, tempfile.NamedTemporaryFile("r") as log:
            for library in ("nccl", "cudnn"):
                folder = Path(packages) / "nvidia" / library / "lib"
                folder.mkdir(parents=True)
                (folder / f"lib{library}.so.2").touch()
            with unittest.mock.patch.dict(os.environ, {"PYTHONPATH": packages}):
                doctor = '{"capability": "9.0", "cudnn": null, "nccl": "2.28.9"}'
                self.run_with(weft=f"echo '{doctor}'", dist=f'echo "$LD_LIBRARY_PATH" >{log.name}; {self.PASSES}')
            path = log.read()
        self.assertIn("nvidia/cudnn/lib", path)
        self.assertNotIn("nvidia/nccl/lib", path)

    def test_kills_are_reported(self):
        """With a python3 that only writes down what it was asked for."""
        with tempfile.TemporaryDirectory() as folder:
            for name, body in {"weft": "echo '{}'", "python3": f'echo "$@" >>{folder}/log'}.items():
                (Path(folder) / name).write_text(f"#!/bin/sh\n{body}\n")
                (Path(folder) / name).chmod(0o755)
            done = subprocess.run([ROOT / "tools/gpu.sh", "survive"], capture_output=True, text=True, timeout=50,
                                  env={**os.environ, "WEFT_BUILD": folder, "WEFT_KILLS": "16",
                                       "PATH": f"{folder}:{os.environ['PATH']}"})
            kills = [line for line in (Path(folder) / "log").read_text().splitlines() if "survive_interop" in line]
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(kills), 1)
        self.assertRegex(kills[0], r"--moments 16 --out benchmarks/results/survive-\S+\.md")

    def test_no_gpu(self):
        code, _, text = self.run_with(weft="echo '{}'")
        self.assertEqual(code, 1)
        self.assertIn("no GPU can be used", text)

    def test_a_bundle_for_nothing(self):
        done = subprocess.run([ROOT / "tools/gpu.sh", "bundle", "s390x"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("amd64 or arm64", done.stderr)


if __name__ == "__main__":
    unittest.main()
