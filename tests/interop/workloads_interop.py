#!/usr/bin/env python3
"""First batches of the run files of examples/workloads compared with those of datasets and transformers; 4 and 5 train.

    python3 tests/interop/workloads_interop.py --weft build/weft

Each workload is written here once more, as people write it in Python: rows by datasets, tokens and cuts by
transformers, padding and labels as their collators make them. weft shows its batches from the very run files.
With shuffle off the rows must be the same ones in the same order; as the file stands, each row of a batch must be
one of Python's, and none may come twice. Workloads 4 and 5 are then trained, cut down to a few steps; what final/
holds, transformers reads with weft's evaluation loss.
"""

import json
import os
from collections import Counter

from common import ROOT, Weft, run_program, shared_folder

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
NUM_BATCHES = 6
FILES = ROOT / "examples/workloads"


def texts_of(kind, path, folder):
    from datasets import load_dataset
    return load_dataset(kind, data_files=str(path), split="train", cache_dir=str(folder / "datasets"))


def padded_rows(texts, tokenizer, length, mask_padding, drop_empty):
    """Workloads 1 and 2: every row as long as the longest may be; labels are the ids, or -100 on padding."""
    for text in texts:
        row = tokenizer(text, padding="max_length", truncation=True, max_length=length)
        ids, mask = row["input_ids"], row["attention_mask"]
        if drop_empty and sum(mask) <= 1:
            continue
        labels = [t if m or not mask_padding else -100 for t, m in zip(ids, mask)]
        yield {"ids": ids, "labels": labels, "length": sum(mask)}


def answer_rows(rows, tokenizer):
    """Workload 4: encoder and decoder; the decoder is fed its labels shifted right."""
    for row in rows:
        source = tokenizer(f"Instruction: {row['instruction']}\nInput: {row['input']}", truncation=True, max_length=256)
        target = tokenizer(text_target=row["output"], truncation=True, max_length=128)["input_ids"]
        yield {"source_ids": source["input_ids"], "labels": target, "ids": [0] + target[:-1], "length": len(target)}


def review_rows(rows, tokenizer):
    """Workload 5: cut at 512 tokens, padded by the collator to the longest of a batch."""
    for row in rows:
        ids = tokenizer(row["text"], truncation=True, max_length=512)["input_ids"]
        if len(ids) > 1:
            yield {"ids": ids, "labels": ids, "length": len(ids)}


def bucket(longest, most):
    """The width of a dynamic batch: multiples of 16 up to 64, then four per octave."""
    step = 16 if longest <= 64 else (1 << ((longest - 1).bit_length() - 1)) // 4
    return min(-(-longest // step) * step, most)


def plain(row):
    """A row of Python's as a key: what is fed and learned, without padding where the width may differ."""
    return tuple(row["ids"]), tuple(row["labels"]), tuple(row.get("source_ids", ())), row["length"]


def shown_row(row, keeps_padding):
    """A row of weft's in transformers' form: labels at their own token's position, -100 elsewhere."""
    n = row["length"]
    is_answer = "source_ids" in row
    labels = row["targets"] if is_answer else [None] + row["targets"][:-1]
    labels = [-100 if t == -1 else t for t in labels]
    if not is_answer and row["ids"]:
        labels[0] = row["ids"][0] if n or keeps_padding else -100  # shifted away by the loss of both
    out = {"ids": row["ids"], "labels": labels, "length": n}
    if is_answer:
        out["source_ids"] = row["source_ids"][:row["source_length"]]
    if not keeps_padding:
        out["ids"], out["labels"] = row["ids"][:n], labels[:n]
    return plain(out)


def check_widths(checks, what, batches, most, most_source, pad):
    """Dynamic batches are as wide as the bucket of their longest row, and padded with nothing else."""
    good = 0
    for batch in batches:
        rows = batch["rows"]
        width = bucket(max(row["length"] for row in rows), most)
        # The decoder's first padded position holds the last token of its answer, as transformers shifts it.
        shift = 1 if "source_ids" in rows[0] else 0
        same = all(len(row["ids"]) == len(row["targets"]) == width and set(row["ids"][row["length"] + shift:]) <= {pad}
                   and set(row["targets"][row["length"]:]) <= {-1} for row in rows)
        if shift:
            source = bucket(max(row["source_length"] for row in rows), most_source)
            same = same and all(len(row["source_ids"]) == source and set(row["source_ids"][row["source_length"]:]) <= {pad}
                                for row in rows)
        good += same
    checks.equal(good, NUM_BATCHES, f"{what}: batches of the right width")


def check_workload(checks, weft, name, theirs, global_batch, keeps_padding, held_out=0):
    """The batches of the file in file order, then as configured. Returns the latter."""
    path = FILES / f"{name}.yaml"
    theirs = [plain(row) for row in theirs]
    out = weft.json("inspect", path, "--batches", NUM_BATCHES, "--set", "data.shuffle=false")
    got = [shown_row(row, keeps_padding) for batch in out["batches"] for row in batch["rows"]]
    checks.equal(len(got), global_batch * NUM_BATCHES, f"{name}: rows of {NUM_BATCHES} batches")
    if held_out:  # those of the evaluation part are missing, and no others
        at = [theirs.index(row) if row in theirs else -1 for row in got]
        checks.that(-1 not in at and at == sorted(set(at)), f"{name}: rows in file order, equal to Python's")
        out_of = at[-1] + 1 - len(at)
        checks.that(out_of < 3 * held_out * at[-1], f"{name}: about {held_out} of the rows are held out", f"{out_of} of {at[-1] + 1}")
    else:
        checks.equal(sum(a == b for a, b in zip(got, theirs)), len(got), f"{name}: rows in file order, equal to Python's")
    wrong = [(ids, (-100,) + labels[1:-2] + (7,) + labels[-1:], *rest) for ids, labels, *rest in got]
    checks.that(not any(a == b for a, b in zip(wrong, theirs)), f"{name}: one changed label is detected")

    out = weft.json("inspect", path, "--batches", NUM_BATCHES)
    shuffled = [shown_row(row, keeps_padding) for batch in out["batches"] for row in batch["rows"]]
    there, seen = Counter(theirs), Counter(shuffled)
    checks.equal(sum(min(n, there[row]) for row, n in seen.items()), global_batch * NUM_BATCHES,
                 f"{name}: shuffled rows are Python's, none twice")
    checks.that(shuffled != got, f"{name}: shuffled means another order")
    return out


def check_training(checks, weft, folder, name, sets, kind, mean_loss):
    """A few steps of the file on a CPU, at a learning rate that shows, and the loss of final/ over the evaluation rows."""
    import transformers
    transformers.utils.logging.disable_progress_bar()
    run_dir = folder / name
    words = [word for item in (*sets, "train.steps=8", "train.lr=1e-3", "train.schedule=constant", "train.precision=bf16",
                               "data.seq_length=96", "launch.threads=1") for word in ("--set", item)]
    steps, evals = weft.train(FILES / f"{name}.yaml", run_dir, *words)
    losses = [line["loss"] for line in steps]
    checks.that(len(losses) == 8 and losses[-1] < losses[0], f"{name}: trains, cut down",
                f"{losses[0]:.3f} to {losses[-1]:.3f}")
    model = getattr(transformers, kind).from_pretrained(run_dir / "final", dtype="float32").eval()
    wanted = mean_loss(model)
    # weft evaluates in bf16, transformers in fp32.
    checks.close([line["eval_loss"] for line in evals[-1:]], [wanted], 1e-2, f"{name}: final/ in transformers")


def causal_loss(rows):
    import torch
    def loss(model):
        with torch.no_grad():
            sums = [(model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item(), len(ids) - 1) for ids in rows]
        return sum(mean * n for mean, n in sums) / sum(n for _, n in sums)
    return loss


def answer_loss(rows):
    import torch
    def loss(model):
        with torch.no_grad():
            sums = [(model(torch.tensor([source]), labels=torch.tensor([target])).loss.item(), len(target))
                    for source, target in rows]
        return sum(mean * n for mean, n in sums) / sum(n for _, n in sums)
    return loss


def body(args, checks, folder):
    from transformers import AutoTokenizer
    weft = Weft(args.weft)
    data = shared_folder("data")
    if not data:
        checks.without_data("all workloads")
        return
    os.chdir(ROOT)  # the paths of the run files are the repository's
    qwen = AutoTokenizer.from_pretrained(data / "tokenizers/qwen2")
    lines = texts_of("text", data / "wikitext2/wiki.valid.raw", folder)["text"]
    out = check_workload(checks, weft, "1-qwen-tp-dp", padded_rows(lines, qwen, 2048, False, False), 4, True)
    checks.that("not_built" not in out, "1-qwen-tp-dp: this build trains it")
    part = lines[:round(len(lines) * 0.05)]
    out = check_workload(checks, weft, "2-qwen-tutorial", padded_rows(part, qwen, 512, True, True), 2, True)
    checks.that("not_built" not in out, "2-qwen-tutorial: this build trains it")

    t5 = AutoTokenizer.from_pretrained(data / "tokenizers/t5-small")
    pairs = texts_of("json", data / "wikisql/text2sql_dev.jsonl", folder).select(range(1000))
    out = check_workload(checks, weft, "4-t5-text-to-sql", answer_rows(pairs, t5), 24, False, held_out=0.01)
    checks.equal(out["rows"], 1000, "4-t5-text-to-sql: rows taken")
    check_widths(checks, "4-t5-text-to-sql", out["batches"], 128, 256, t5.pad_token_id)
    checks.that("not_built" not in out, "4-t5-text-to-sql: this build trains it")
    held = folder / "held.jsonl"
    held.write_text("".join(json.dumps(dict(row)) + "\n" for row in pairs.select(range(960, 1000))))
    rows = [(t5(f"Instruction: {row['instruction']}\nInput: {row['input']}", truncation=True, max_length=96)["input_ids"],
             t5(text_target=row["output"], truncation=True, max_length=128)["input_ids"]) for row in pairs.select(range(960, 1000))]
    check_training(checks, weft, folder, "4-t5-text-to-sql", ["data.eval_fraction=0", f"data.eval={held}"], "T5ForConditionalGeneration", answer_loss(rows))

    bloom = AutoTokenizer.from_pretrained(data / "weights/tiny_BloomForCausalLM")
    reviews = texts_of("json", data / "imdb/imdb_train_2k.jsonl", folder)
    out = check_workload(checks, weft, "5-bloomz-imdb", review_rows(reviews, bloom), 16, False, held_out=0.1)
    check_widths(checks, "5-bloomz-imdb", out["batches"], 512, 0, bloom.pad_token_id)
    held.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in reviews.select(range(40))))
    rows = [bloom(row["text"], truncation=True, max_length=96)["input_ids"] for row in reviews.select(range(40))]
    check_training(checks, weft, folder, "5-bloomz-imdb",  # until 8-bit states and recomputation are built
                   ["train.optimizer=adamw", "train.recompute=none", "data.eval_fraction=0", f"data.eval={held}"],
                   "BloomForCausalLM", causal_loss(rows))


if __name__ == "__main__":
    run_program(__doc__, body)
