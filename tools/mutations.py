"""tools/mutations.py: one-line bugs that a C++ file could have; tools/mutate.py puts them in.

A file is looked at through a mask in which comments, strings, preprocessor lines, logs and messages
are blank, so that every mutation changes code that runs; so are ensure (what we promise ourselves: a
program without a bug never sees it fail) and reserve (only how often memory is taken). Templates are told from comparisons by
clang-format's spaces. A mutation that does not compile costs a try and is not counted.
"""

import re
from dataclasses import dataclass

KINDS = ("comparison", "constant", "dropped condition", "plus and minus", "removed exit", "negated condition")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
LOGICAL = ("&&", "||")
SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
LITERALS = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
                      r"|//[^\n]*|/\*(?:.|\n)*?\*/")
DIRECTIVES = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
MESSAGES = re.compile(r"\b(?:log_\w+|throw \w+|fmt::format|static_assert|ensure|reserve|\w+->event)\s*\(")


@dataclass(frozen=True)
class Mutation:
    kind: str
    line: int    # from 1
    change: str  # "a -> b", for people
    text: str    # the new line

    def apply(self, source):
        lines = source.split("\n")
        lines[self.line - 1] = self.text
        return "\n".join(lines)


def blank(text, begin, end):
    return text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]


def closing(text, at):
    """Behind the parenthesis that closes the one at `at`; the end where none does."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i + 1
    return len(text)


def mask(source):
    """The source with what must not be changed made blank, place for place."""
    def hide(match):  # quotes stay: a string must remain present
        text = match.group()
        is_comment = text.startswith("/")
        return re.sub(r"[^\n]", " ", text) if is_comment else '"' + re.sub(r"[^\n]", " ", text[1:-1]) + '"'
    text = LITERALS.sub(hide, source)
    text = DIRECTIVES.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for match in MESSAGES.finditer(text):
        text = blank(text, match.end() - 1, closing(text, match.end() - 1))
    return text


def is_boundary(line, i):
    """Whether an operator that binds weaker than && is here: , ; ? : = but neither :: nor a comparison."""
    c, around = line[i], line[max(i - 1, 0):i] + line[i + 1:i + 2]
    return c in ",;?" or c == ":" and ":" not in around or c == "=" and not set(around) & set("=!<>")


def operand(line, at, step):
    """Where the operand that begins behind (step 1) or before (-1) a logical operator ends."""
    depth, i = 0, at
    opens, closes = ("([{", ")]}") if step > 0 else (")]}", "([{")
    while 0 <= i < len(line):
        c = line[i]
        if depth == 0 and (c in closes or is_boundary(line, i) or line[i:i + 2] in LOGICAL or line[i - 1:i + 1] in LOGICAL):
            break
        depth += (c in opens) - (c in closes)
        i += step
    return i if depth == 0 else None


def dropped_conditions(code, line):
    """Both operands of && and || in turn, where they are on the line."""
    for match in re.finditer(r" (&&|\|\|) ", code):
        end = operand(code, match.end(), 1)
        if end is not None and end < len(code) and code[match.end():end].strip():
            yield f"drop {line[match.start() + 1:end].strip()}", line[:match.start()] + line[end:]
        begin = operand(code, match.start(), -1)
        if begin is None:
            continue
        begin += 1 + re.match(r"\s*(return )?", code[begin + 1:]).end()
        if code[begin:match.start()].strip():
            yield f"drop {line[begin:match.end()].strip()}", line[:begin] + line[match.end():]


def replaced(code, line, pattern, table):
    for match in re.finditer(pattern, code):
        old = match.group(1)
        new = table[old] if isinstance(table, dict) else table(old)
        yield f"{old} -> {new}", line[:match.start(1)] + new + line[match.end(1):]


def removed_exits(code, line):
    """return, continue, break; alone, or with the condition before them."""
    match = re.match(r"\s*(?:(?:else )?if \(.*\) )?(return\b[^;{}]*|continue|break);\s*$", code)
    if not match or match.group(1).startswith("return ") and " if (" not in f" {code.strip()}":
        return  # a return of a value is needed where no condition precedes it
    if "if (" in code and closing(code, code.index("if (") + 3) > match.start(1):
        return
    indent = len(line) - len(line.lstrip())
    yield f"remove {line.strip()}", line[:indent] + ";"


def negated_conditions(code, line):
    for match in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, match.end() - 1)
        inside = line[match.end():end - 1]
        if code[end - 1:end] != ")" or ";" in code[match.end():end] or "constexpr" in code[:match.end()]:
            continue
        yield f"if ({inside}) -> if (!({inside}))", line[:match.end()] + f"!({inside})" + line[end - 1:]


def mutations_of(source):
    """All mutations of a file, in order."""
    found = []
    for number, (code, line) in enumerate(zip(mask(source).split("\n"), source.split("\n")), 1):
        if not code.strip():
            continue
        declares = re.match(r"\s*(?:using|namespace|template|struct|class|enum|friend|case|static_assert)\b", code)
        if declares:
            continue
        each = {"comparison": replaced(code, line, r" ([<>]=?|[!=]=) ", COMPARISONS),
                "constant": replaced(code, line, r"(?<![\w.'])(\d+)(?![\w.'])", lambda n: str(int(n) + 1)),
                "dropped condition": dropped_conditions(code, line),
                "plus and minus": replaced(code, line, r"(?<=[\w)\]]) ([+-]=?) ", SIGNS),
                "removed exit": removed_exits(code, line),
                "negated condition": negated_conditions(code, line)}
        found += [Mutation(kind, number, change, text) for kind in KINDS for change, text in each[kind]]
    return found


def pick(by_file, rng):
    """(file, mutation) in an order that takes the kinds in turn; one for a line."""
    queues = {kind: [] for kind in KINDS}
    for file, mutations in sorted(by_file.items()):
        for mutation in mutations:
            queues[mutation.kind].append((file, mutation))
    for queue in queues.values():
        rng.shuffle(queue)
    seen = set()
    while any(queues.values()):
        for kind in KINDS:
            while queues[kind]:
                file, mutation = queues[kind].pop()
                if (file, mutation.line) in seen:
                    continue
                seen.add((file, mutation.line))
                yield file, mutation
                break
