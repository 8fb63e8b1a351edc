#!/usr/bin/env python3
"""First batches of run files compared with those of a Python program with transformers on the same rows.

    python3 tests/interop/batches_interop.py --weft build/weft

The workloads over ../shared/data: wikitext lines padded for Qwen, wikisql pairs for T5, IMDB reviews for
BLOOM. Order is file order here: the shuffle has tests of its own.
"""

import json
import os
import shutil
from collections import Counter

from common import Weft, run_program, shared_folder, write_run_file

os.environ["HF_HUB_OFFLINE"] = "1"
GLOBAL_BATCH = 4
NUM_BATCHES = 6


def weft_rows(weft, folder, model, data, **more):
    path = write_run_file(folder / "run.yaml", {
        "name": "x", "model": {"path": str(model), "init": "random"}, "data": {**data, "shuffle": False},
        "train": {"steps": NUM_BATCHES, "global_batch": GLOBAL_BATCH, "micro_batch": 1, **more}})
    out = weft.json("inspect", path, "--batches", NUM_BATCHES)
    return [row for batch in out["batches"] for row in batch["rows"]]


def labels_of(row):
    """Labels as transformers writes them: at the token's own position, -100 elsewhere."""
    return [-100] + [-100 if t < 0 else t for t in row["targets"][:-1]]


def causal_rows(texts, tokenizer, length, pad, drop):
    """Pad to length, labels on all but padding."""
    for text in texts:
        ids = tokenizer(text, add_special_tokens=True)["input_ids"][:length]
        if drop and len(ids) <= 1:
            continue
        rest = length - len(ids)
        yield ids + [pad] * rest, [-100] + ids[1:] + [-100] * rest, len(ids)


def compare(checks, got, wanted, what):
    wanted = [row for row, _ in zip(wanted, got)]
    same = [row["ids"] == ids and labels_of(row) == labels and row["length"] == n
            for row, (ids, labels, n) in zip(got, wanted)]
    checks.equal(len(wanted), GLOBAL_BATCH * NUM_BATCHES, f"{what}: number of rows")
    checks.equal(sum(same), len(got), f"{what}: rows whose ids and labels are equal")


def check_wikitext(checks, weft, folder, data):
    """Workloads 1 and 2: one row per line, padded to seq_length."""
    from transformers import AutoTokenizer
    model = folder / "qwen"
    shutil.copytree(data / "tokenizers/qwen2", model)
    shutil.copy(data / "configs/Qwen2-0.5B.config.json", model / "config.json")
    tokenizer = AutoTokenizer.from_pretrained(model)
    file = data / "wikitext2/wiki.valid.raw"
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    for drop in (True, False):
        got = weft_rows(weft, folder, model, {"train": [str(file)], "format": "text", "seq_length": 128, "drop_empty": drop})
        compare(checks, got, causal_rows(lines, tokenizer, 128, tokenizer.pad_token_id, drop), f"wikitext, drop_empty {drop}")


def check_imdb(checks, weft, folder, data):
    """Workload 5: reviews, at most 512 tokens, the tiny BLOOM's tokenizer."""
    from transformers import AutoTokenizer
    model = data / "weights/tiny_BloomForCausalLM"
    tokenizer = AutoTokenizer.from_pretrained(model)
    file = data / "imdb/imdb_train_2k.jsonl"
    texts = [json.loads(line)["text"] for line in file.open(encoding="utf-8")]
    got = weft_rows(weft, folder, model, {"train": [str(file)], "seq_length": 512})
    compare(checks, got, causal_rows(texts, tokenizer, 512, tokenizer.pad_token_id, True), "imdb for BLOOM")


def check_wikisql(checks, weft, folder, data):
    """Workload 4: source of 256 tokens, target of 128, </s> kept; from Parquet."""
    import pyarrow.json
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer
    model = folder / "t5"
    shutil.copytree(data / "tokenizers/t5-small", model)
    shutil.copy(data / "configs/t5-small.config.json", model / "config.json")
    tokenizer = AutoTokenizer.from_pretrained(model)
    table = pyarrow.json.read_json(data / "wikisql/text2sql_dev.jsonl")
    pq.write_table(table, folder / "wikisql.parquet")
    for source_length, target_length in ((256, 128), (20, 12)):
        got = weft_rows(weft, folder, model, {
            "train": [str(folder / "wikisql.parquet")], "source": "Instruction: {instruction}\nInput: {input}",
            "target": "{output}", "seq_length": source_length, "target_length": target_length})
        good = 0
        for row, raw in zip(got, table.to_pylist()):
            source = tokenizer(f"Instruction: {raw['instruction']}\nInput: {raw['input']}", truncation=True,
                               max_length=source_length)["input_ids"]
            target = tokenizer(raw["output"], truncation=True, max_length=target_length)["input_ids"]
            shifted = [0] + target[:-1]
            good += (row["source_ids"][:row["source_length"]] == source and row["targets"][:row["length"]] == target
                     and set(row["targets"][row["length"]:]) <= {-1} and row["ids"][:row["length"]] == shifted
                     and set(row["source_ids"][row["source_length"]:]) <= {0})
        checks.equal(good, GLOBAL_BATCH * NUM_BATCHES, f"wikisql for T5, {source_length} and {target_length} tokens")


def unpacked(row):
    """The pairs of a packed row: (source, what the decoder is fed, labels); None where something is misplaced."""
    sides = [("segments", "position_ids", "length", "ids"), ("source_segments", "source_position_ids", "source_length", "source_ids")]
    for segments, positions, length, ids in sides:
        n, numbers = row[length], row[segments]
        if numbers[:n] != sorted(numbers[:n]) or 0 in numbers[:n] or not set(numbers[n:] + row[positions][n:] + row[ids][n:]) <= {0}:
            return None
        if any(p != i - numbers.index(s) for i, (p, s) in enumerate(zip(row[positions][:n], numbers))):
            return None
    if not set(row["targets"][row["length"]:]) <= {-1}:
        return None
    pick = lambda ids, segments, s: tuple(t for t, k in zip(row[ids], row[segments]) if k == s)
    return [(pick("source_ids", "source_segments", s), pick("ids", "segments", s), pick("targets", "segments", s))
            for s in range(1, max(row["segments"] + row["source_segments"]) + 1)]


def check_packed_pairs(checks, weft, folder, data):
    """Pairs packed for T5, unpacked again: an epoch is exactly the rows, as transformers tokenizes and shifts them."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder / "t5")
    raws = [json.loads(line) for line in (data / "wikisql/text2sql_dev.jsonl").open(encoding="utf-8")][:1000]
    for source_length, target_length in ((256, 128), (64, 24)):
        wanted, cut, cut_parts, tokens = Counter(), 0, [0, 0], 0
        for raw in raws:
            whole = [tokenizer(text)["input_ids"] for text in (f"Instruction: {raw['instruction']}\nInput: {raw['input']}", raw["output"])]
            source, target = (ids if len(ids) <= n else ids[:n - 1] + ids[-1:] for ids, n in zip(whole, (source_length, target_length)))
            is_cut = [len(source) < len(whole[0]), len(target) < len(whole[1])]
            cut += any(is_cut)
            cut_parts = [count + part for count, part in zip(cut_parts, is_cut)]
            tokens += len(source) + len(target)
            wanted[tuple(source), (0, *target[:-1]), tuple(target)] += 1
        for shuffle in (False, True):
            run_file = write_run_file(folder / "run.yaml", {
                "name": "x", "model": {"path": str(folder / "t5"), "init": "random"}, "train": {"steps": 1, "global_batch": 1, "micro_batch": 1},
                "data": {"train": [str(folder / "wikisql.parquet")], "source": "Instruction: {instruction}\nInput: {input}", "target": "{output}",
                         "layout": "pack", "limit": 1000, "seq_length": source_length, "target_length": target_length, "shuffle": shuffle}})
            what = f"packed pairs of {source_length} and {target_length} tokens, {'shuffled' if shuffle else 'in file order'}"
            out = weft.json("inspect", run_file, "--batches", 1000)
            rows = [row for batch in out["batches"] if batch["epoch"] == 1 for row in batch["rows"]]
            found = [unpacked(row) for row in rows]
            checks.that(None not in found, f"{what}: segments and positions are in place")
            pairs = [pair for row in found for pair in row or ()]
            checks.equal(len(pairs), 1000, f"{what}: number of pairs")
            checks.that(Counter(pairs) == wanted, f"{what}: every pair once, id by id, with its own source")
            positions = len(rows) * (source_length + target_length)
            least = max(sum(len(p[0]) for p in pairs) / source_length, sum(len(p[1]) for p in pairs) / target_length)
            # Where most pairs fill more than half a row there is little to pack.
            checks.that(len(rows) < (1.05 if source_length == 256 else 1.3) * least, f"{what}: tight", f"{len(rows)} rows, the lower bound is {least:.1f}; "
                        f"{tokens / positions:.1%} of the positions hold a token")
            # Counters cover the requested batches: request only the epoch's.
            counts = weft.json("inspect", run_file, "--batches", len(rows))["counts"]
            checks.equal(counts, {"rows": 1000, "dropped": 0, "truncated": cut, "sources_cut": cut_parts[0], "targets_cut": cut_parts[1], "split": 0, "nulls": 0, "unanswered": 0, "without_target": 0, "repaired": 0, "incomplete": 0,
                                  "tokens": tokens, "padding": positions - tokens}, f"{what}: counts")
            # Negative control: two swapped sources are detected.
            swapped = [(b[0], *a[1:]) if i == 0 else (a[0], *b[1:]) for i, (a, b) in enumerate([pairs[:2], pairs[:2]])] + pairs[2:]
            checks.that(Counter(swapped) != wanted, f"{what}: another pair's source is detected")


def body(args, checks, folder):
    weft = Weft(args.weft)
    data = shared_folder("data")
    if not data:
        checks.without_data("all batches")
        return
    for part in (check_wikitext, check_imdb, check_wikisql, check_packed_pairs):
        part(checks, weft, folder, data)


if __name__ == "__main__":
    run_program(__doc__, body)
