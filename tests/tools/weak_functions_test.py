"""tests/tools/weak_functions_test.py: the program uses optimized copies of standard library functions.

Many objects define the same function of std::string, say; the linker takes one copy for the whole program. A copy
that was compiled with -O0 or -O1 for the command line would then run in the data path, too.
"""

import json
import re
import shlex
import subprocess
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
# Compiled with full optimization; src/cmd/program.cmake links them first.
FULL = "base tensor text io data comm checkpoint exec generate model".split()


def weak_sizes(path):
    """Maps each weak function of a program, an object or an archive to the sizes of its copies."""
    command = ["nm", "-S", "--defined-only", path]
    sizes = defaultdict(set)
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] == "W":
            sizes[words[3]].add(int(words[1], 16))
    return sizes


def others_copies(program, archives):
    """Weak functions of an archive for which the program has a copy of another size."""
    wanted = defaultdict(set)
    for archive in archives:
        for name, sizes in weak_sizes(archive).items():
            wanted[name] |= sizes
    found = {name: sizes for name, sizes in weak_sizes(program).items() if name in wanted}
    return len(found), sorted(name for name, sizes in found.items() if not sizes <= wanted[name])


class WeakFunctions(unittest.TestCase):
    @unittest.skipUnless((BUILD / "weft").exists(), "the program is not built")
    def test_the_program_has_those_of_the_optimized_rooms(self):
        compared, others = others_copies(BUILD / "weft", [BUILD / f"src/libweft_{room}.a" for room in FULL])
        self.assertGreater(compared, 100)
        self.assertEqual(others, [])

    @unittest.skipUnless((BUILD / "compile_commands.json").exists(), "nothing is configured")
    def test_no_file_of_the_program_is_compiled_without_optimization(self):
        levels = {}
        for entry in json.loads((BUILD / "compile_commands.json").read_text()):
            words = [w for w in shlex.split(entry["command"]) if re.fullmatch("-O.?", w)]
            if "/src/" in entry["file"]:
                levels[entry["file"]] = words[-1] if words else "none"
        self.assertGreater(len(levels), 50)
        self.assertEqual({f: level for f, level in levels.items() if level in ("-O0", "none")}, {})

    def test_a_copy_without_optimization_is_found(self):
        source = "#include <string>\nvoid FUNCTION(std::string& s, char c) { s.push_back(c); s.append(s, 3, 7); }\n"
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for name, level in (("slow", "-O0"), ("fast", "-O2")):
                code = folder / f"{name}.cpp"
                code.write_text(source.replace("FUNCTION", name) + ("int main() {}\n" if name == "slow" else ""))
                # Without explicit instantiations in the library, as functions of our own templates.
                flags = ["-std=c++20", level, "-D_GLIBCXX_EXTERN_TEMPLATE=0", "-fno-inline"]
                subprocess.run(["g++", *flags, "-c", code, "-o", folder / f"{name}.o"], check=True)
            for order, is_bad in ((("slow", "fast"), True), (("fast", "slow"), False)):
                objects = [folder / f"{name}.o" for name in order]
                subprocess.run(["g++", *objects, "-o", folder / "program"], check=True)
                compared, others = others_copies(folder / "program", [folder / "fast.o"])
                self.assertGreater(compared, 0)
                self.assertEqual(bool(others), is_bad, others)


if __name__ == "__main__":
    unittest.main()
