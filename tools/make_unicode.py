#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp: character classes, (de)composition, lower case.

Ids must equal those of the `tokenizers` package, so the tables follow its Unicode versions, not the
newest. Version 0.23 knows the classes \\p{L}, \\p{N}, \\s of Unicode 16.0 (its regex engine), but
normalizes to NFC as Unicode 9.0 does (its normalization library). Decompositions, compositions and
combining classes of a character never change once it is assigned (Unicode's stability policy), so
Unicode 9.0's are those of 16.0 less the characters that came later; those are found by asking the
package. Every class is compared with the package over all code points before anything is written.
What decides about T5 (where a user-perceived character ends) and Falcon (punctuation) is asked of the
package alone, code point by code point; so are compatibility forms and lower case.

    pip install unicodedata2==16.0.0 tokenizers==0.23.3
    python3 tools/make_unicode.py src/text/unicode_tables.cpp
"""
import struct
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
PUNCTUATION, EXTENDS, CONTROL, PREPEND = 1, 2, 4, 8
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


def make_charsmap(codes):
    """A precompiled map (darts-clone's double array) that makes Z of each of these characters."""
    root = {}
    for code in codes:
        node = root
        for byte in chr(code).encode():
            node = node.setdefault(byte, {})
        node[None] = {}
    units, used, todo = {0: 0}, {0}, [(root, 0)]
    while todo:
        node, place = todo.pop()
        labels = [label or 0 for label in node]
        base = 1
        while any(base ^ label in used for label in labels):
            base += 1
        units[place] |= (place ^ base) << 10 | (None in node) << 8
        for label, child in node.items():
            at = base ^ (label or 0)
            used.add(at)
            units[at] = 1 << 31 if label is None else label
            if label is not None:
                todo.append((child, at))
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range((max(used) | 255) + 1))
    return normalizers.Precompiled(struct.pack("<I", len(trie)) + trie + b"Z\0").normalize_str


def clusters():
    """{code: flags}: what joins the character before it, what ends one, what joins the one after it.

    The package's Precompiled gives the whole cluster the form of its first character, so a map with one
    character shows where the cluster ends. Clusters of 6 bytes and more are not queried, nor used.
    """
    flags = {}
    after_a = make_charsmap([ord("a")])
    for code in CODES:
        if code != ord("a") and after_a("a" + chr(code)) == "Z":
            flags[code] = EXTENDS
    odd = [c for c in CODES if 0 < c < 0x10000 and category(c) in ("Cc", "Cf", "Zl", "Zp")]
    mapped = make_charsmap(odd)
    for code in odd:
        if mapped(chr(code) + "\u0301") == "Z\u0301":
            flags[code] = CONTROL
    others = [c for c in CODES if 0 < c and c not in flags and category(c) in ("Cf", "Lo", "Mn", "Mc")]
    for at in range(0, len(others), 500):
        some = others[at:at + 500]
        mapped = make_charsmap(some)
        for code in some:
            if mapped(chr(code) + "a") == "Z":
                flags[code] = flags.get(code, 0) | PREPEND
    return flags


def punctuation():
    split = pre_tokenizers.Punctuation("isolated")
    return {c for c in CODES if c != 1 and len(split.pre_tokenize_str("\x01" + chr(c) + "\x01")) == 3}


def mapping(name, form):
    """{code: text} as two arrays: where in the second the characters are."""
    entries, codes = [], []
    for code, text in sorted(form.items()):
        entries.append(f"{{0x{code:X}, {len(codes)}, {len(text)}}}")
        codes += [f"0x{ord(c):X}" for c in text]
    assert len(codes) < 65536
    return (f"const size_t kNum{name} = {len(entries)};\n" + "\n" + array("Mapping", f"k{name}", entries, 6)
            + "\n" + array("uint32_t", f"k{name}Codes", codes, 16))


def two_stages(name, flags, values):
    """Flags of all characters by blocks of 128, each kind of block once."""
    blocks, index = {}, []
    for at in range(0, 0x110000, BLOCK):
        index.append(blocks.setdefault(bytes(flags[at:at + BLOCK]), len(blocks)))
    assert len(blocks) <= 256
    return (array("uint8_t", name, [str(i) for i in index], 32) + "\n"
            + array("uint8_t", values, [str(v) for block in blocks for v in block], 32))


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
    # Text without any of these is already in NFC.
    unstable = {c for c in CODES if c in combining or c in followers or NFC(chr(c)) != chr(c)}

    flags = bytearray(0x110000)
    for code in CODES:
        flags[code] = (LETTER * (code in letters) | NUMBER * (code in numbers) | SPACE * (code in SPACES)
                       | WORD * is_word(code) | UNSTABLE * (code in unstable))
    shapes = bytearray(0x110000)
    for code, flag in clusters().items():
        shapes[code] = flag
    for code in punctuation():
        shapes[code] |= PUNCTUATION
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    compatible = {c: nfkd(chr(c)) for c in CODES if nfkd(chr(c)) != nfd(chr(c))}
    lower = normalizers.Lowercase().normalize_str
    lowered = {c: lower(chr(c)) for c in CODES if c > 127 and lower(chr(c)) != chr(c)}

    parts = [
        "// text/unicode_tables.cpp: generated by tools/make_unicode.py; do not edit.\n"
        "// Classes: Unicode 16.0. Normalization: Unicode 9.0. Both as the tokenizers package 0.23.\n"
        '#include "text/unicode_tables.h"\n\nnamespace weft {\n\n// clang-format off\n',
        two_stages("kUnicodeBlock", flags, "kUnicodeFlags"),
        two_stages("kShapeBlock", shapes, "kShapeFlags"),
        f"const size_t kNumDecompositions = {len(decomposed)};\n",
        array("Decomposition", "kDecompositions",
              [f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}" for c, (a, b) in sorted(decomposed.items())], 4),
        f"const size_t kNumCompositions = {len(composed)};\n",
        array("Composition", "kCompositions", [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for a, b, c in composed], 4),
        f"const size_t kNumCombiningRanges = {len(ranges(combining))};\n",
        array("CombiningRange", "kCombiningRanges",
              [f"{{0x{a:X}, 0x{b:X}, {v}}}" for a, b, v in ranges(combining)], 4),
        mapping("Compatible", compatible),
        mapping("Lowered", lowered),
        "// clang-format on\n\n}  // namespace weft\n",
    ]
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("\n".join(parts))
    print(f"{len(compatible)} compatible, {len(lowered)} lowered, {len(decomposed)} decompositions, {len(composed)} compositions, "
          f"{len(combining)} combining marks")


if __name__ == "__main__":
    main()
