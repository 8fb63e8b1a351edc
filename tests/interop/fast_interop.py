#!/usr/bin/env python3
"""Fast mode through whole runs: every layout stays within its tolerance of one rank.

    fast_interop.py --weft build/weft

Each run is `weft train` with its ranks as processes, 100 steps at lr 1e-4 over the same batches of at
least 2,048 target tokens in rows of very unequal length. fp32: no loss differs by 1e-5. bf16 (weights,
gradients and states, as the verification of workload 1 has them): 5e-3 at most, 1e-3 in the mean. The
control: a tenth more learning rate is found. Run are one model in fp32 and one in bf16, chosen by the
commit, each in every shard, together in every place of the mesh; all with FULL=1.
"""

import json
import random
import shutil

from common import Weft, run_program, write_run_file
from exact_interop import COMMON, Layout

STEPS, SEQ_LENGTH, GLOBAL_BATCH, LEAST_TARGETS = 100, 256, 24, 2048
SHARDS = ("none", "zero1", "zero2", "zero3")
MOST_FP32, MOST_BF16, MEAN_BF16 = 1e-5, 5e-3, 1e-3
# The Llama has 2 key/value heads: at tp 4 each is on two ranks. BLOOM and T5 train with dropout, and T5
# on pairs whose sides are padded to lengths of their own; the vocabulary of their tied heads, 601, is
# divided by no tp.
MODELS = {
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 48,
              "intermediate_size": 88, "num_attention_heads": 12, "num_key_value_heads": 4,
              "vocab_size": 600, "tie_word_embeddings": True},
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
              "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 2,
              "vocab_size": 1003, "tie_word_embeddings": False},
    "bloom": {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 48, "n_head": 12,
              "vocab_size": 601, "hidden_dropout": 0.1, "attention_dropout": 0.1},
    "t5": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 48, "d_kv": 8,
           "d_ff": 96, "num_heads": 4, "num_layers": 1, "vocab_size": 601, "dropout_rate": 0.1, "pad_token_id": 0}}


def layouts(precision):
    if precision == "bf16":  # some of each kind
        places = [(2, 1, "none"), (4, 1, "zero1"), (3, 1, "zero3"), (1, 2, "none"), (1, 4, "none"),
                  (2, 2, "zero2"), (2, 2, "zero3")]
        return [Layout(*place, 2) for place in places]
    places = [(dp, 1, shard) for dp in (2, 4) for shard in SHARDS]
    places += [(3, 1, "zero3"), (1, 2, "none"), (1, 4, "none")]
    places += [(2, 2, shard) for shard in SHARDS]
    return [Layout(*place, (2, 1)[i % 2]) for i, place in enumerate(places)]


def write_rows(path, count):
    """Words of a small vocabulary, so that there is something to learn."""
    dice = random.Random(11)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 7))) for _ in range(200)]
    rows = []
    for _ in range(count):
        length = dice.choice((3, 20, 90, 200, SEQ_LENGTH, 2 * SEQ_LENGTH))
        text = " ".join(dice.choices(words, k=length // 3 + 1))
        rows.append(text[:length])
    path.with_suffix(".txt").write_text("\n".join(rows) + "\n")
    pairs = [{"q": row[:dice.choice((1, 30, 128))], "a": row} for row in rows]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def data_keys(folder, model):
    if MODELS[model]["model_type"] != "t5":
        return {"train": [str(folder / "train.txt")], "seq_length": SEQ_LENGTH}
    return {"train": [str(folder / "train.jsonl")], "source": "{q}", "target": "{a}", "seq_length": 96,
            "target_length": SEQ_LENGTH, "layout": "dynamic"}


def train(weft, folder, model, train_keys, layout):
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    file = write_run_file(folder / "run.yaml", {
        "name": "run", "seed": 5, "model": {"path": str(folder / model), "init": "random"},
        "data": {"tokenizer": "bytes", **data_keys(folder, model)},
        "parallel": {"dp": layout.dp, "tp": layout.tp, "shard": layout.shard},
        "train": {"steps": STEPS, "global_batch": GLOBAL_BATCH, "micro_batch": layout.micro,
                  "lr": 1e-4, **train_keys},
        "checkpoint": {"every": 0}, "launch": {"threads": 1}})
    steps, _ = weft.train(file, run_dir)
    return [step["loss"] for step in steps], [step["target_tokens"] for step in steps]


def apart(losses, others):
    differences = [abs(a - b) for a, b in zip(losses, others)]
    return max(differences), sum(differences) / len(differences)


def check_model(checks, weft, folder, model, precision, others):
    keys = {"precision": precision}
    if precision == "bf16":
        keys["master_weights"] = False
    one, targets = train(weft, folder, model, keys, Layout(1, 1, "none", 4))
    checks.that(len(one) == STEPS and one[-1] < one[0] and min(targets) >= LEAST_TARGETS,
                f"{model} {precision}: one rank learns, {min(targets)} to {max(targets)} targets per step",
                f"{one[0]:.4f} to {one[-1]:.4f}")
    for layout in others:
        losses, _ = train(weft, folder, model, keys, layout)
        most, mean = apart(losses, one)
        good = most < MOST_FP32 if precision == "fp32" else most < MOST_BF16 and mean < MEAN_BF16
        checks.that(len(losses) == STEPS and good, f"{model} {precision}: {layout.text()}",
                    f"largest {most:.1e}, mean {mean:.1e}")
    wrong, _ = train(weft, folder, model, {**keys, "lr": 1.1e-4}, Layout(2, 1, "none", 4))
    most, mean = apart(wrong, one)
    bad = most >= MOST_FP32 if precision == "fp32" else most >= MOST_BF16 or mean >= MEAN_BF16
    checks.that(bad, f"{model} {precision}: control, another learning rate is detected",
                f"largest {most:.1e}, mean {mean:.1e}")


def body(args, checks, folder):
    weft = Weft(args.weft)
    write_rows(folder / "train", 700)
    for model, config in MODELS.items():
        (folder / model).mkdir()
        (folder / model / "config.json").write_text(json.dumps({**COMMON, **config,
                                                                "max_position_embeddings": 512}))
    pairs = [(model, precision) for model in MODELS for precision in ("fp32", "bf16")]
    for pair in checks.sample(pairs, 10):
        try:
            check_model(checks, weft, folder, *pair, layouts(pair[1]))
        except Exception as error:
            checks.that(False, f"{' '.join(pair)} finished", str(error))


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
