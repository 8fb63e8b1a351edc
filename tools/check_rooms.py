#!/usr/bin/env python3
"""tools/check_rooms.py: the house rules that a compiler does not know; part of make lint.

Rooms and floors, foreign headers, file lengths, first lines, words that must not be committed.
Reads the files that git tracks, or those of a folder given as argument.
"""

import re
import subprocess
import sys
from pathlib import Path

# room: the rooms it may include, which bring their own; base is open to all.
ROOMS = {
    "base": "",
    "tensor": "base",
    "text": "base",
    "net": "base",
    "kernel": "tensor",
    "io": "tensor net",
    "launch": "net",
    "comm": "kernel net",
    "data": "text io",
    "track": "net io",
    "graph": "tensor",
    "model": "graph io",
    "optim": "graph kernel",
    "parallel": "graph optim",
    "exec": "parallel kernel comm",
    "checkpoint": "io comm model",
    "generate": "exec model text",
    "config": "data model optim kernel",
    "planning": "config exec generate launch track",
    "train": "planning checkpoint generate",
    "verify": "train",
    "cmd": "verify",
}

# header prefix: the one folder below src/ whose .cpp files may include it.
FOREIGN = {
    "nlohmann/": "base",
    "yaml-cpp/": "base",
    "spdlog/": "base",
    "xxhash.h": "base",
    "CLI/": "cmd",
    "arrow/": "io",
    "parquet/": "io",
    "zlib.h": "io",
    "zstd.h": "io",
    "sentencepiece": "text",
    "gloo/": "comm",
    "dnnl": "kernel",
    "oneapi/": "kernel",
    "cublas": "kernel",
    "cudnn": "kernel",
    "nccl": "comm",
    "httplib": "net",
    "openssl/": "net",
    "curl/": "net",
    "cairo": "track",
}

MAX_LINES = 500
LONG_FILES = [re.compile(r"src/text/unicode_tables\w*\.cpp")]  # generated tables

# Spelt in pieces, so that this file does not hold them itself.
MACHINE_PATHS = re.compile(r"""(?<![\w./$}~-])/(?:tmp|work|home|root|mnt|opt|Users)/""")
HOSTS = re.compile(r"\b(?:py" r"pi\.org|files\.python" r"hosted\.org|npm" r"js\.org|crates\.io|"
                   r"docker\.io|ghcr\.io|quay\.io|(?:deb|security)\.debian\.org)\b")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# A call, not a method of ours with such a name (Comm::abort ends collectives, not the process).
ENDINGS = re.compile(r"std::cerr|(?<!void )(?<![\w.>:])(?:(?:std)?::)?(?:abort|exit|_exit|quick_exit)\s*\(")
# start_rank.cpp, child.cpp, first_agent.cpp, fork.h: a forked child that cannot become a program has nobody to throw
# to; no more has the handler of a signal (signals.cpp).
MAY_END = ("src/cmd/", "src/base/log.", "src/launch/start_rank.", "src/launch/child.",
           "src/launch/first_agent.", "src/launch/fork.", "src/train/signals.", "tests/")
# Names that a precompiled header may provide by accident: (use, the header that declares the name).
DIRECT = [(re.compile(r"\bstd::(?:ranges::\w+|(?:stable_|partial_|is_)?sort|find(?:_if|_if_not|_first_of)?|search|(?:any|all|none)_of|"
                      r"count(?:_if)?|(?:min|max|minmax)_element|reverse|transform|unique|rotate|shuffle|remove_if|replace(?:_if)?|"
                      r"nth_element|clamp|for_each|generate|copy_if|copy_n|binary_search|equal_range|(?:stable_)?partition|"
                      r"next_permutation|adjacent_find|minmax|(?:push|pop|make)_heap)\("), "algorithm"),
          (re.compile(r"\bfmt::join\("), "fmt/ranges.h")]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

CODE = (".h", ".cpp", ".cu", ".cuh", ".inc")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".toml", "")


def reachable(room, seen=None):
    """The room, base, and every room that may be included directly or through another."""
    seen = {"base"} if seen is None else seen
    if room not in seen or room == "base":
        seen.add(room)
        for other in ROOMS[room].split():
            reachable(other, seen)
    return seen


ALLOWED = {room: reachable(room) for room in ROOMS}


def strip_comments(text):
    """The code with comments and string literals blanked, lines kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(pattern, blank, text, flags=re.S)


def check_includes(path, lines):
    """Includes that go up or sideways, and foreign headers outside their folder."""
    parts = path.split("/")
    room = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    if parts[0] == "src" and room is None:
        return
    if room is not None and room not in ROOMS:
        yield 1, f"{room} is not a room of the table"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        target = header.split("/")[0]
        if quote == '"' and room is not None:
            if "/" not in header or target not in ROOMS:
                yield number, f'"{header}": an include of ours is "room/file.h"'
            elif target not in ALLOWED[room]:
                yield number, f"{room} may not include {target} ({header})"
        if quote == "<" and parts[0] != "benchmarks":  # these measure a library alone
            for prefix, home in FOREIGN.items():
                inside = room == home and path.endswith((".cpp", ".cu"))
                if header.startswith(prefix) and not inside:
                    yield number, f"<{header}> belongs into .cpp files of src/{home} alone"


def check_code(path, text):
    """Rules for C++ files."""
    lines = text.split("\n")
    names = [path, path.removeprefix("src/"), path.removeprefix("tests/")]
    if not any(re.match(r"// " + re.escape(name) + r": \S", lines[0]) for name in names):
        yield 1, f"the first line must read: // {names[1]}: one sentence."
    if path.endswith(".h") and "#pragma once" not in text:
        yield 1, "no #pragma once"
    yield from check_includes(path, lines)
    code = strip_comments(text).split("\n")
    for use, header in DIRECT:
        found = next((number for number, line in enumerate(code, 1) if use.search(line)), None)
        if found and f"#include <{header}>" not in text:
            yield found, f"needs #include <{header}>"
    if path.startswith("src/") and not path.startswith(MAY_END):
        for number, line in enumerate(code, 1):
            if match := ENDINGS.search(line):
                yield number, f"{match.group(0).strip(' (')} outside cmd/ and base/log: throw instead"


def check_python(text):
    """A module begins with a docstring, after an interpreter line at most."""
    lines = text.split("\n")
    first = 1 if lines[0].startswith("#!") else 0
    if len(lines) <= first or not re.match(r'[rR]?"""\S', lines[first]):
        yield first + 1, 'a Python file begins with """path: one sentence.'


def check_words(path, text):
    """Paths of a machine, registry hosts, unfinished work."""
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((MACHINE_PATHS, "path of a machine"), (HOSTS, "host of a registry"),
                              (UNFINISHED, "unfinished work")):
            if match := pattern.search(line):
                yield number, f"{what}: {match.group(0)}"


def check_file(path, text):
    """All complaints (line, message) about one file; path is relative to the repository."""
    suffix = Path(path).suffix
    is_code = suffix in CODE
    if is_code or suffix == ".py":
        count = text.count("\n")
        if count > MAX_LINES and not any(p.fullmatch(path) for p in LONG_FILES):
            yield 1, f"{count} lines; {MAX_LINES} at most"
    if is_code:
        yield from check_code(path, text)
    if suffix == ".py":
        yield from check_python(text)
    if path != "LICENSE":
        yield from check_words(path, text)


def tracked_files(root):
    """Text files that git tracks or would track."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    for name in sorted(set(names) - {""}):
        path = root / name
        # Data of tests is data: it may hold anything.
        is_data = re.match(r"tests/.*(/data/|/corpus/)", name)
        if path.is_file() and Path(name).suffix in TEXT and not is_data:
            yield name, path


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    bad = 0
    files = 0
    for name, path in tracked_files(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            print(f"{name}: not UTF-8 text")
            bad += 1
            continue
        files += 1
        for number, message in check_file(name, text):
            print(f"{name}:{number}: {message}")
            bad += 1
    print(f"rooms: {files} files, {bad} complaints")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
