#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp: character classes and canonical (de)composition.

Ids must equal those of the `tokenizers` package, so the tables follow its Unicode versions, not the
newest. Version 0.23 knows the classes \\p{L}, \\p{N}, \\s of Unicode 16.0 (its regex engine), but
normalizes to NFC as Unicode 9.0 does (its normalization library). Decompositions, compositions and
combining classes of a character never change once it is assigned (Unicode's stability policy), so
Unicode 9.0's are those of 16.0 less the characters that came later; those are found by asking the
package. Every class is compared with the package over all code points before anything is written.

    pip install unicodedata2==16.0.0 tokenizers==0.23.3
    python3 tools/make_unicode.py src/text/unicode_tables.cpp
"""
import sys

import unicodedata2 as ud
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
SPACES = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}
# Alphabetic characters that are neither letters, marks nor numbers: circled and squared letters.
OTHER_ALPHABETIC = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                    *range(0x1F170, 0x1F18A)}
LETTER, NUMBER, SPACE, WORD, UNSTABLE = 1, 2, 4, 8, 16
NFC = normalizers.NFC().normalize_str
BLOCK = 128


def category(code):
    return ud.category(chr(code))


def is_word(code):
    """\\w of Rust's regex crate, which decides about single_word."""
    kind = category(code)
    return (kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or code in (0x200C, 0x200D)
            or code in OTHER_ALPHABETIC)


def check_class(pattern, ours):
    """The package must see exactly our characters in a class."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    for code in CODES:
        theirs = len(split.pre_tokenize_str("\x01" + chr(code) + "\x01")) == 3
        if code != 1 and theirs != (code in ours):
            sys.exit(f"U+{code:04X}: the package says {theirs} to {pattern}")


def check_word():
    tokenizer = Tokenizer(models.BPE(vocab={"x": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("<t>", single_word=True, normalized=False)])
    for code in CODES:
        theirs = 1 not in tokenizer.encode("<t>" + chr(code)).ids
        if theirs != is_word(code):
            sys.exit(f"U+{code:04X}: the package says {theirs} to \\w")


def known_combining(code):
    """Whether the package knows the combining class: it then sorts the mark against another."""
    first, second = (chr(code), "\u0334") if ud.combining(chr(code)) > 1 else ("\u0301", chr(code))
    return NFC("q" + first + second) != "q" + first + second


def known_decomposition(code):
    text = chr(code)
    return NFC(text) != text or NFC(ud.normalize("NFD", text)) == text


def decompositions():
    """code -> (first, second or 0), one level, without Hangul (which is arithmetic)."""
    found = {}
    for code in CODES:
        fields = ud.decomposition(chr(code)).split()
        if fields and not fields[0].startswith("<") and known_decomposition(code):
            pair = [int(f, 16) for f in fields]
            found[code] = (pair[0], pair[1] if len(pair) == 2 else 0)
    return found


def ranges(values):
    """{code: value} -> [(first, last, value)]"""
    out = []
    for code in sorted(values):
        if out and out[-1][1] == code - 1 and out[-1][2] == values[code]:
            out[-1] = (out[-1][0], code, values[code])
        else:
            out.append((code, code, values[code]))
    return out


def array(kind, name, items, per_line):
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return f"const {kind} {name}[{len(items)}] = {{\n" + "".join(f"    {l},\n" for l in lines) + "};\n"


def main():
    if ud.unidata_version != "16.0.0":
        sys.exit(f"unicodedata2 is {ud.unidata_version}, 16.0.0 is wanted")
    letters = {c for c in CODES if category(c)[0] == "L"}
    numbers = {c for c in CODES if category(c)[0] == "N"}
    for pattern, ours in ((r"\p{L}", letters), (r"\p{N}", numbers), (r"\s", SPACES)):
        check_class(pattern, ours)
    check_word()

    decomposed = decompositions()
    combining = {c: ud.combining(chr(c)) for c in CODES if ud.combining(chr(c)) and known_combining(c)}
    composed = sorted((*pair, c) for c, pair in decomposed.items() if pair[1] and NFC(chr(c)) == chr(c))
    followers = {second for _, second, _ in composed} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    # Text without any of these is in NFC as it stands.
    unstable = {c for c in CODES if c in combining or c in followers or NFC(chr(c)) != chr(c)}

    flags = bytearray(0x110000)
    for code in CODES:
        flags[code] = (LETTER * (code in letters) | NUMBER * (code in numbers) | SPACE * (code in SPACES)
                       | WORD * is_word(code) | UNSTABLE * (code in unstable))
    blocks, index = {}, []
    for at in range(0, 0x110000, BLOCK):
        index.append(blocks.setdefault(bytes(flags[at:at + BLOCK]), len(blocks)))
    assert len(blocks) <= 256
    values = [str(v) for block in blocks for v in block]

    parts = [
        "// text/unicode_tables.cpp: generated by tools/make_unicode.py; do not edit.\n"
        "// Classes: Unicode 16.0. Normalization: Unicode 9.0. Both as the tokenizers package 0.23.\n"
        '#include "text/unicode_tables.h"\n\nnamespace weft {\n\n// clang-format off\n',
        array("uint8_t", "kUnicodeBlock", [str(i) for i in index], 32),
        array("uint8_t", "kUnicodeFlags", values, 32),
        f"const size_t kNumDecompositions = {len(decomposed)};\n",
        array("Decomposition", "kDecompositions",
              [f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}" for c, (a, b) in sorted(decomposed.items())], 4),
        f"const size_t kNumCompositions = {len(composed)};\n",
        array("Composition", "kCompositions", [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for a, b, c in composed], 4),
        f"const size_t kNumCombiningRanges = {len(ranges(combining))};\n",
        array("CombiningRange", "kCombiningRanges",
              [f"{{0x{a:X}, 0x{b:X}, {v}}}" for a, b, v in ranges(combining)], 4),
        "// clang-format on\n\n}  // namespace weft\n",
    ]
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("\n".join(parts))
    print(f"{len(blocks)} blocks, {len(decomposed)} decompositions, {len(composed)} compositions, "
          f"{len(combining)} combining marks")


if __name__ == "__main__":
    main()
