#!/usr/bin/env python3
"""Exact mode through whole runs: the same bits in every layout; six models, three precisions.

    exact_interop.py --weft build/weft

Each run is `weft train` with its ranks as processes: 18 steps of 12 rows with clipping on rows of very
unequal length, an evaluation every six. `weft hash` of the run directory (all parameters, all states), of
final/, and the text of every loss, norm and evaluation must be those of one rank. micro_batch goes
through 1, 2, 4 from layout to layout. The control: fast mode does differ. Of the layouts a quarter is
run, chosen by the commit, all with FULL=1: of each model every place in the mesh, of each model and
each precision every shard.
"""

import json
import random
import re
import shutil
from dataclasses import dataclass

from common import Weft, run_program, write_run_file

STEPS, ROWS, SEQ_LENGTH = 18, 12, 24
SHARDS = ("none", "zero1", "zero2", "zero3")
# Of the first two exact_tp is chosen: 4 and 2, as many as key/value heads. The others are given 4 and
# 8, above their key/value heads: ranks hold copies of these. BLOOM and T5 train with dropout, and T5 on
# pairs whose sides are padded to lengths of their own.
MODELS = {
    "qwen2": ({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 48,
               "intermediate_size": 88, "num_attention_heads": 12, "num_key_value_heads": 4,
               "vocab_size": 600, "tie_word_embeddings": True}, (1, 2, 4), 0),
    "llama": ({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 36,
               "intermediate_size": 50, "num_attention_heads": 6, "num_key_value_heads": 2,
               "vocab_size": 1003, "tie_word_embeddings": False}, (1, 2), 0),
    "qwen2_copies": (
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 48,
         "intermediate_size": 88, "num_attention_heads": 12, "num_key_value_heads": 2,
         "vocab_size": 600, "tie_word_embeddings": True}, (1, 2, 4), 4),
    "llama_copies": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
         "intermediate_size": 56, "num_attention_heads": 8, "num_key_value_heads": 1,
         "vocab_size": 1003, "tie_word_embeddings": False}, (1, 2, 4), 8),
    "bloom": ({"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 48, "n_head": 12,
               "vocab_size": 601, "hidden_dropout": 0.1, "attention_dropout": 0.1}, (1, 2, 4), 0),
    "t5": ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 32, "d_kv": 12,
            "d_ff": 56, "num_heads": 4, "num_layers": 2, "vocab_size": 601, "dropout_rate": 0.1,
            "pad_token_id": 0}, (1, 2, 4), 0)}
COMMON = {"num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
          "initializer_range": 0.1, "hidden_act": "silu", "eos_token_id": 256}
PRECISIONS = {"fp32": {"precision": "fp32"}, "bf16": {"precision": "bf16"},
              "bf16 without masters": {"precision": "bf16", "master_weights": False}}


@dataclass(frozen=True)
class Layout:
    dp: int
    tp: int
    shard: str
    micro: int

    def text(self):
        return f"dp {self.dp} tp {self.tp} {self.shard}, micro_batch {self.micro}"

    def sets(self):
        return [f"parallel.dp={self.dp}", f"parallel.tp={self.tp}", f"parallel.shard={self.shard}",
                f"train.micro_batch={self.micro}"]


def layouts(tps):
    """All layouts; the others are compared with the first."""
    places = [(1, 1, "none")] * 3
    places += [(dp, 1, shard) for dp in (2, 4) for shard in SHARDS]
    places += [(1, tp, "none") for tp in tps[1:]]
    places += [(2, 2, shard) for shard in SHARDS]
    # Four groups of three rows: these own no whole groups.
    places += [(3, 1, "none"), (3, 1, "zero1"), (6, 1, "zero2"), (3, 2, "zero3")]
    return [Layout(*place, (4, 1, 2)[i % 3]) for i, place in enumerate(places)]


def write_rows(path, count, seed):
    dice = random.Random(seed)
    lengths = [dice.choice((2, 3, 5, 12, SEQ_LENGTH, 40)) for _ in range(count)]
    rows = ["".join(dice.choices("abcdefgh ", k=n)) for n in lengths]
    path.with_suffix(".txt").write_text("".join(row + "\n" for row in rows))
    pairs = [{"q": "".join(dice.choices("abcdefgh ", k=dice.choice((1, 7, 20, 50)))), "a": row} for row in rows]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def data_keys(folder, model):
    """Where the rows are: of T5 sources and targets of other lengths, padded by the batch."""
    if MODELS[model][0]["model_type"] != "t5":
        return {"train": [str(folder / "train.txt")], "eval": [str(folder / "eval.txt")], "seq_length": SEQ_LENGTH}
    return {"train": [str(folder / "train.jsonl")], "eval": [str(folder / "eval.jsonl")], "source": "{q}",
            "target": "{a}", "seq_length": 40, "target_length": SEQ_LENGTH, "layout": "dynamic"}


def run_file(folder, model, precision):
    return write_run_file(folder / "run.yaml", {
        "name": "run", "seed": 3, "model": {"path": str(folder / model), "init": "random"},
        "data": {"tokenizer": "bytes", **data_keys(folder, model)},
        "parallel": {"mode": "exact", "exact_tp": MODELS[model][2]},
        "train": {"steps": STEPS, "global_batch": ROWS, "lr": 3e-3, "clip_norm": 0.5,
                  "eval_every": STEPS // 3, **PRECISIONS[precision]},
        "launch": {"threads": 1}})


def texts_of(run_dir, key):
    """The values of a key as written in metrics.jsonl: equal text is equal bits."""
    return re.findall(rf'"{key}": *([^,}}]+)', (run_dir / "metrics.jsonl").read_text())


def train(weft, folder, file, sets):
    """The run's results: {what: text}."""
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    words = [word for item in sets for word in ("--set", item)]
    weft.call("train", file, "--run-dir", run_dir, "--quiet", *words)
    result = {key: texts_of(run_dir, key)
              for key in ("step", "loss", "grad_norm", "target_tokens", "lr", "eval_loss")}
    result["hash"] = weft.call("hash", run_dir).splitlines()
    result["hash of final/"] = weft.call("hash", run_dir / "final").splitlines()
    return result


def difference(got, wanted):
    """The first difference, or nothing."""
    for what, values in wanted.items():
        for place, (a, b) in enumerate(zip(got[what], values)):
            if a != b:
                return f"{what}, line {place + 1}: got {a}, wanted {b}"
        if len(got[what]) != len(values):
            return f"{what}: {len(got[what])} lines, wanted {len(values)}"
    return ""


def check_sound(checks, one, what):
    losses = [float(x) for x in one["loss"]]
    checks.that(len(losses) == STEPS and losses[-1] < losses[0]
                and len(one["eval_loss"]) == 3 and one["hash"][-1].startswith("states ")
                and any(float(norm) > 0.5 for norm in one["grad_norm"]),
                f"{what}: one rank learns, clips and evaluates",
                f"{losses[0]:.3f} to {losses[-1]:.3f}")


def choose_cases(sample):
    """{(model, precision): layouts} to compare with one rank."""
    chosen = sample([(model, precision, layout) for model, (_, tps, _) in MODELS.items()
                     for precision in PRECISIONS for layout in layouts(tps)[1:]], 4)
    return {(model, precision): [case[2] for case in chosen if case[:2] == (model, precision)]
            for model in MODELS for precision in PRECISIONS}


def check_matrix(checks, weft, folder, model, precision, others):
    file = run_file(folder, model, precision)
    first = layouts(MODELS[model][1])[0]
    one = train(weft, folder, file, first.sets())
    check_sound(checks, one, f"{model} {precision}")
    for layout in others:
        found = difference(train(weft, folder, file, layout.sets()), one)
        checks.that(not found, f"{model} {precision}: {layout.text()}", found)
    fast = train(weft, folder, file, ["parallel.mode=fast", "parallel.dp=2", "parallel.tp=2"])
    found = difference(fast, one)
    checks.that(bool(found), f"{model} {precision}: control, fast mode differs", found)


def body(args, checks, folder):
    weft = Weft(args.weft)
    write_rows(folder / "train", 90, 1)
    write_rows(folder / "eval", 13, 2)
    for model, (config, *_) in MODELS.items():
        (folder / model).mkdir()
        (folder / model / "config.json").write_text(json.dumps({**COMMON, **config}))
    for (model, precision), others in choose_cases(checks.sample).items():
        try:
            check_matrix(checks, weft, folder, model, precision, others)
        except Exception as error:
            checks.that(False, f"{model} {precision} finished", str(error))


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
