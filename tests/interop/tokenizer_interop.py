#!/usr/bin/env python3
"""weft's ids against those of the `tokenizers` package (0.23.3) and transformers.

    python3 tests/interop/tokenizer_interop.py --weft build/weft [--data ../shared/data] [--all-characters]

Random strings from a seed (mixed scripts, emoji, control characters, characters newer than most
Unicode tables, long runs of blanks, added tokens), and every Unicode character, go through `weft
tokenize MODEL --jsonl FILE` and through the package, there and back. --all-characters puts each
character into more surroundings. Of all these strings a quarter is tried, chosen by the commit, all with
FULL=1; every tokenizer meets some of each kind. Prints 'N passed, M failed' and exits 1 on a failure.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from sampling import Sampler

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x5FF), (0x600, 0x8FF), (0x900, 0xDFF),
          (0xE00, 0x11FF), (0x1E00, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF),
          (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFD), (0x10000, 0x11FFF), (0x12000, 0x1BFFF),
          (0x1D000, 0x1DFFF), (0x1F000, 0x1FAFF), (0x20000, 0x323AF), (0xE0000, 0xE01EF)]
PIECES = ["'s", "'RE", "'ll", "'\u017f", "'", "''", "\r\n", "\n", "\n\n\n", "\t", " ", "  ", "\u00a0", "\u3000",
          "\u2028", "\u180e", "\u200d", "\ufe0f", "e\u0301\u0323", "\u1100\u1161\u11a8", "\ufb01", "\u212b", "1",
          "12345678", " 2024", "1000000", "\u0663\u0664", "\u00bd", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end",
          "\x00", "\x01\x7f\x85", "hello", " World", "don't", "\U0001F9D9\u200d\u2640\ufe0f", "\U0001FAE9", "\U00016D6A",
          "_x", "a_b", "</s>", "<s>", "..."]


def random_text(rng):
    if rng.random() < 0.02:
        return rng.choice([" ", "\n", "a", "=", "\u00e9", "\u3000", "7", " \n"]) * rng.randrange(1, 3000)
    out = []
    for _ in range(rng.randrange(0, 14)):
        if rng.random() < 0.45:
            out.append(rng.choice(PIECES))
        else:
            low, high = rng.choice(RANGES[:1] * 6 + RANGES)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 9))))
        if rng.random() < 0.3:
            out.append(" " * rng.randrange(1, 5))
    return "".join(c for c in "".join(out) if not 0xD800 <= ord(c) < 0xE000)


def every_character():
    """Each character where a splitter or the normalizer may see it, 64 characters per string."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    forms = ["a{0}b {0}1{0} '{0}e\n{0}\n .{0}{0}", "'r{0}x'l{0}x q{0}\u0334q\u0301{0} \u1100{0}\u11a8 {0} \t{0}"]
    for at in range(0, len(codes), 64):
        for form in forms:
            yield "|".join(form.format(chr(c)) for c in codes[at:at + 64])


def each_character():
    """Every Unicode scalar value, 256 per string: those of planes of many scripts (0, 1, 14) inside and outside of
    words, the others (ideographs, private use, none) in a row."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for at in range(0, len(codes), 256):
        part = [chr(c) for c in codes[at:at + 256]]
        has_scripts = codes[at] >> 16 in (0, 1, 14)
        yield "|".join(f"a{c}b {c}" for c in part) if has_scripts else "".join(part)


def byte_level(vocab, merges, qwen2, added):
    tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
    if qwen2:
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in added])
    return tokenizer


def torchtitan(folder):
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", encoding="utf-8") as config:
        added = json.load(config)["added_tokens_decoder"]
    tokenizer.add_tokens([AddedToken(**added[key]) for key in sorted(added, key=int)])
    return tokenizer


def made_up(folder, base, name):
    """A tokenizer.json with a combination of features that real ones seldom have."""
    tokenizer = Tokenizer.from_str(base.to_str())
    if name == "llama3":
        data = json.loads(tokenizer.to_str())
        data["model"]["ignore_merges"] = True
        data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
        begin, end = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
        special = {"<|im_start|>": begin, "<|im_end|>": end}
        data["post_processor"] = {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {k: {"id": k, "ids": [v], "tokens": [k]} for k, v in special.items()}}]}
        tokenizer = Tokenizer.from_str(json.dumps(data))
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens([AddedToken("hello", single_word=True), AddedToken("<s>", lstrip=True, normalized=False),
                              AddedToken("</s>", rstrip=True), AddedToken("...", lstrip=True, rstrip=True),
                              AddedToken("e\u0301\u0323", normalized=True), AddedToken("\u212b", normalized=False),
                              AddedToken("_x", single_word=True, normalized=False), AddedToken(" ", normalized=False)])
    tokenizer.save(f"{folder}/tokenizer.json")
    return tokenizer


def falcon(base):
    """Falcon's pre-tokenizers over GPT-2's vocabulary."""
    tokenizer = Tokenizer.from_str(base.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return tokenizer


def normalized(base):
    """NFKC and lower case before GPT-2's words."""
    tokenizer = Tokenizer.from_str(base.to_str())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Prepend("> ")])
    return tokenizer


def llama2(lines, byte_fallback, prepend):
    """BPE of characters with marks, bytes for what is not in the vocabulary, <s> before the text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if byte_fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=special, limit_alphabet=120, show_progress=False)
    splitter = pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator(lines, trainer)
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    if not prepend:  # newer files: the mark is added only before the first word
        data["normalizer"] = None
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def unigram(lines, byte_fallback):
    """A Unigram model as XLM-R's family has it: Metaspace alone, blanks squeezed by the normalizer."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(left=False, right=True),
                                                 normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>"] + ([f"<0x{i:02X}>" for i in range(256)] if byte_fallback else [])
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=2000, special_tokens=special, unk_token="<unk>", show_progress=False))
    data = json.loads(tokenizer.to_str())
    data["model"]["byte_fallback"] = byte_fallback
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 2]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


CHARACTERS = list(each_character())


class Check:
    def __init__(self, weft):
        self.weft, self.passed, self.failed, self.sampler = weft, 0, 0, Sampler()

    def some(self, name, texts):
        """The strings that are tested for `name`."""
        return [text for _, text in self.sampler([(name, text) for text in texts])]

    def one(self, ok, message):
        self.passed += bool(ok)
        self.failed += not ok
        if not ok and self.failed <= 20:
            print("FAILED", message)

    def made(self, name, tokenizer, texts, has_all=False):
        """A tokenizer that was made here, its ids and its decoded text."""
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(f"{folder}/tokenizer.json")
            if has_all:
                self.characters(name, folder, tokenizer)
            ours = self.compare(name, folder, lambda t: tokenizer.encode(t).ids, texts)
            self.back(name, folder, ours, tokenizer)

    def characters(self, name, model, tokenizer):
        """Round trip of every character; the package uses its own threads."""
        texts = self.some(name, CHARACTERS)
        ids = iter(tokenizer.encode_batch_fast(texts))
        ours = self.compare(name + ", every character", model, lambda _: next(ids).ids, texts)
        self.back(name + ", every character", model, ours, tokenizer)

    def back(self, name, model, rows, tokenizer):
        texts = iter(tokenizer.decode_batch(rows, skip_special_tokens=False))
        self.decoded(name, model, rows, lambda _: next(texts))

    def decoded(self, name, model, rows, text_of):
        """Text of ids, all special tokens shown."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            for ids in rows:
                file.write(" ".join(map(str, ids)) + "\n")
            file.flush()
            run = subprocess.run([*self.weft, "tokenize", model, "--jsonl", file.name, "--decode"], capture_output=True,
                                 text=True)
        lines = run.stdout.split("\n")[:-1]
        if run.returncode != 0 or len(lines) != len(rows) or not rows:
            self.one(False, f"{name}, decode: exit {run.returncode}, {len(lines)} lines of {len(rows)}: {run.stderr[-500:]}")
            return
        before = self.failed
        for ids, line in zip(rows, lines):
            ours, theirs = json.loads(line), text_of(ids)
            self.one(ours == theirs, f"{name}, decode: {ids[:40]}\n  ours   {ours[:200]!r}\n  theirs {theirs[:200]!r}")
        print(f"{name}, decode: {len(rows)} strings, {self.failed - before} differ")

    def compare(self, name, model, ids_of, texts):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            for text in texts:
                file.write(json.dumps(text) + "\n")
            file.flush()
            run = subprocess.run([*self.weft, "tokenize", model, "--jsonl", file.name], capture_output=True, text=True)
        lines = run.stdout.split("\n")[:-1]
        if run.returncode != 0 or len(lines) != len(texts):
            self.one(False, f"{name}: exit {run.returncode}, {len(lines)} lines of {len(texts)}: {run.stderr[-500:]}")
            return []
        before = self.failed
        for text, line in zip(texts, lines):
            ours, theirs = [int(i) for i in line.split()], ids_of(text)
            self.one(ours == theirs, f"{name}: {text[:200]!r}\n  ours   {ours[:40]}\n  theirs {theirs[:40]}")
        print(f"{name}: {len(texts)} strings, {self.failed - before} differ")
        return [[int(i) for i in line.split()] for line in lines]


def check_more(args, check, folder, gpt2, texts, lines, reviews):
    """T5 (both files), BLOOM, and variants of their families, compared with tokenizers and transformers."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoTokenizer, T5Tokenizer
    weights = f"{args.data}/weights"
    cases = [("t5, tokenizer.json", f"{folder}/t5-small", AutoTokenizer), ("t5, spiece.model", f"{folder}/t5-v1_1", T5Tokenizer),
             ("tiny t5", f"{weights}/tiny_T5ForConditionalGeneration", AutoTokenizer),
             ("tiny bloom", f"{weights}/tiny_BloomForCausalLM", AutoTokenizer)]
    for name, model, kind in cases:
        theirs = kind.from_pretrained(model)
        some = texts[:2000] if name == "tiny t5" else texts
        ours = check.compare(name, model, lambda t: theirs(t)["input_ids"], some)
        check.decoded(name, model, ours[:600], lambda ids: theirs.decode(ids, clean_up_tokenization_spaces=False))
        check.back(name, model, ours, theirs.backend_tokenizer)
        ours = check.compare(name + ", wikitext and imdb", model, lambda t: theirs(t)["input_ids"],
                             check.some(name, lines + reviews))
        check.back(name + ", wikitext and imdb", model, ours, theirs.backend_tokenizer)
        if not name.startswith("tiny t5"):
            check.characters(name, model, theirs.backend_tokenizer)
    texts = texts[:2000]
    check.made("falcon", falcon(gpt2), texts, has_all=True)
    check.made("NFKC, lower case, prepend", normalized(gpt2), texts)
    for byte_fallback in (True, False):
        for prepend in (True, False):
            name = f"llama 2 style, bytes {byte_fallback}, prepend {prepend}"
            check.made(name, llama2(lines, byte_fallback, prepend), texts + reviews[:200],
                       has_all=byte_fallback and prepend)
        check.made(f"unigram, bytes {byte_fallback}", unigram(lines, byte_fallback), texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weft", required=True, help="the program, or several words (a wrapper)")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num", type=int, default=5000)
    parser.add_argument("--all-characters", action="store_true", help="also every character of Unicode")
    parser.add_argument("--bytes", metavar="FOLDER", help="a folder with the files of the bytes tokenizer")
    args = parser.parse_args()
    check, folder = Check(args.weft.split()), f"{args.data}/tokenizers"
    rng = random.Random(args.seed)
    texts = check.some("random", [random_text(rng) for _ in range(args.num)])
    if args.all_characters:
        texts += every_character()

    qwen2 = byte_level(f"{folder}/qwen2/vocab.json", f"{folder}/qwen2/merges.txt", True,
                       ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    gpt2 = byte_level(f"{folder}/gpt2/vocab.json", f"{folder}/gpt2/merges.txt", False, ["<|endoftext|>"])
    ours = check.compare("qwen2", f"{folder}/qwen2", lambda t: qwen2.encode(t).ids, texts)
    # Negative control: without NFC some of the strings must differ.
    data = dict(json.loads(qwen2.to_str()), normalizer=None)
    other = Tokenizer.from_str(json.dumps(data))
    check.one(any(ids != other.encode(t).ids for ids, t in zip(ours, texts)), "a missing normalizer goes unnoticed")
    check.compare("gpt2", f"{folder}/gpt2", lambda t: gpt2.encode(t).ids, texts)
    titan = torchtitan(f"{folder}/torchtitan_test_bpe")
    check.compare("torchtitan", f"{folder}/torchtitan_test_bpe", lambda t: titan.encode(t).ids, texts)
    # GPT-2's vocabulary has numbers of several digits, so that their splitting shows in the ids.
    digits = byte_level(f"{folder}/gpt2/vocab.json", f"{folder}/gpt2/merges.txt", True, ["<|im_start|>", "<|im_end|>"])
    with tempfile.TemporaryDirectory() as made:
        llama3 = made_up(made, digits, "llama3")
        ours = check.compare("llama3", made, lambda t: llama3.encode(t).ids, texts)
        data = json.loads(llama3.to_str())
        data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2
        other = Tokenizer.from_str(json.dumps(data))
        check.one(any(ids != other.encode(t).ids for ids, t in zip(ours, texts)), "another pattern goes unnoticed")
    with tempfile.TemporaryDirectory() as made:
        odd = made_up(made, gpt2, "odd")
        check.compare("odd added tokens", made, lambda t: odd.encode(t).ids, texts)
    with open(f"{args.data}/wikitext2/wiki.test.raw", encoding="utf-8") as file:
        lines = file.read().split("\n")[:1500]
    with open(f"{args.data}/imdb/imdb_train_2k.jsonl", encoding="utf-8") as file:
        reviews = [json.loads(line)["text"] for line in file][:400]
    for name, theirs in (("qwen2", qwen2), ("gpt2", gpt2)):
        model = f"{folder}/{name}"
        some = check.some(name, lines + reviews)
        ids = iter(theirs.encode_batch_fast(some))
        ours = check.compare(f"{name}, wikitext and imdb", model, lambda _: next(ids).ids, some)
        check.back(f"{name}, wikitext and imdb", model, ours, theirs)
        check.back(name, model, [row.ids for row in theirs.encode_batch_fast(texts)], theirs)
        check.characters(name, model, theirs)

    check_more(args, check, folder, gpt2, texts, lines, reviews)

    if args.bytes:
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers import AutoTokenizer
        auto = AutoTokenizer.from_pretrained(args.bytes)
        end = "<|endoftext|>"

        def ids_of_bytes(text):
            parts = text.split(end)
            return [i for n, p in enumerate(parts) for i in ([256] if n else []) + list(p.encode())]

        for text in texts[:300]:
            check.one(auto(text)["input_ids"] == ids_of_bytes(text), f"bytes, transformers: {text[:200]!r}")
        check.one(auto.eos_token_id == 256 and auto.pad_token_id == 256, "bytes: eos and pad are 256")
        check.compare("bytes", args.bytes, lambda t: auto(t)["input_ids"], texts[:300])

    if summary := check.sampler.summary():
        print(summary)
    print(f"{check.passed} passed, {check.failed} failed")
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
