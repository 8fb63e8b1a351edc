"""tests/tools/docs_test.py: links lead somewhere, named files exist, picture and contract follow the code."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from check_rooms import ROOMS  # noqa: E402

LINK = re.compile(r"\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+/[\w.-]+\.(?:h|cpp|cu|py|sh|cmake|md|svg)")
# Their files must exist. Other pages (design, log) also mention what used to be.
GUIDES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/kernels/*.md")


def pages():
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md"):
        yield from sorted(ROOT.glob(pattern))


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def anchors(path):
    """GitHub's anchors for the headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.M)
    plain = (re.sub(r"[^\w\- ]", "", h.replace("`", "").lower()) for h in headings)
    return {h.replace(" ", "-") for h in plain}


def broken_links(page):
    for link in LINK.findall(without_code(page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"


def missing_files(page):
    """Files in `code`: relative to the root, to src/ or to the page."""
    for span in SPAN.findall(without_code(page.read_text())):
        if not FILE.fullmatch(span):
            continue
        if not any((base / span).exists() for base in (ROOT, ROOT / "src", page.parent)):
            yield f"`{span}`: no such file"


class Docs(unittest.TestCase):
    def test_links(self):
        self.assertGreater(len(list(pages())), 15)
        wrong = [f"{p.relative_to(ROOT)}: {w}" for p in pages() for w in broken_links(p)]
        self.assertEqual(wrong, [])

    def test_files_exist(self):
        guides = [p for pattern in GUIDES for p in sorted(ROOT.glob(pattern))]
        found = sum(bool(FILE.fullmatch(s)) for p in guides for s in SPAN.findall(p.read_text()))
        self.assertGreater(found, 80)
        wrong = [f"{p.relative_to(ROOT)}: {w}" for p in guides for w in missing_files(p)]
        self.assertEqual(wrong, [])

    def test_picture_has_the_rooms(self):
        """Every room is drawn once, above all rooms that it may include, and explained in CONTRIBUTING."""
        picture = (ROOT / "docs/architecture.svg").read_text()
        drawn = re.findall(r'y="(\d+)"><tspan class="b">(\w+)</tspan>', picture.split("The rooms of src/")[1])
        height = {room: int(y) for y, room in drawn}
        self.assertEqual(sorted(room for _, room in drawn), sorted(ROOMS))
        for room, below in ROOMS.items():
            for other in below.split():
                self.assertLess(height[room], height[other], f"{room} includes {other}")
        table = re.findall(r"^\| `src/(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
        self.assertEqual(sorted(table), sorted(ROOMS))

    def test_contract_has_the_commands(self):
        commands = re.findall(r'\{"(\w+)", "', (ROOT / "src/cmd/commands.cpp").read_text())
        contract = (ROOT / "docs/contract.md").read_text()
        self.assertGreater(len(commands), 15)
        self.assertEqual([c for c in commands if f"weft {c}" not in contract], [])

    def test_finds_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text("# A title, of two `words`\n[a](#a-title-of-two-words) [b](#b) [c](c.md) [d](page.md)\n"
                            "`exec/no_such_file.h` `exec/plan.h` `tests/<room>/<file>_test.cpp`\n"
                            "```\n[e](e.md) `exec/no_such_file.h`\n```\n")
            self.assertEqual(list(broken_links(page)), ["#b: no such heading", "c.md: no such file"])
            self.assertEqual(list(missing_files(page)), ["`exec/no_such_file.h`: no such file"])


if __name__ == "__main__":
    unittest.main()
