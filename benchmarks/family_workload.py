"""T5 and BLOOM of the size of model S: their configs, the rows both programs read, weft's run file."""

import json
import random
import string
from dataclasses import dataclass

from workload import yaml_text


@dataclass(frozen=True)
class Family:
    """One model and batch. Rows are random letters: one byte, one token, in both programs."""

    name: str
    config: dict
    batch: int
    seq_length: int  # of an encoder-decoder: of the source
    target_length: int = 0  # of an encoder-decoder

    def tokens(self):
        return self.batch * (self.seq_length + self.target_length)


T5 = Family("t5", {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512, "d_kv": 64,
    "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8, "vocab_size": 32128,
    "relative_attention_num_buckets": 32, "dropout_rate": 0.0, "layer_norm_epsilon": 1e-06,
    "initializer_factor": 1.0, "feed_forward_proj": "relu", "is_encoder_decoder": True,
    "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}, batch=8, seq_length=128, target_length=64)
BLOOM = Family("bloom", {
    "architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 512, "n_layer": 8,
    "n_head": 8, "vocab_size": 16384, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 3,
}, batch=8, seq_length=256)
FAMILIES = {family.name: family for family in (T5, BLOOM)}


def write_rows(family, path, steps, seed=1):
    dice = random.Random(seed)
    text = lambda length: "".join(dice.choices(string.ascii_letters, k=length))
    with open(path, "w", encoding="ascii") as file:
        for _ in range(steps * family.batch):
            row = {"source": text(family.seq_length)}
            if family.target_length:
                row["target"] = text(family.target_length)
            file.write(json.dumps(row) + "\n")


def read_rows(family, path):
    """Batches {name of transformers' argument: lists of ids}."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    ids = lambda batch, key: [list(row[key].encode()) for row in batch]
    for begin in range(0, len(rows) - family.batch + 1, family.batch):
        batch = rows[begin:begin + family.batch]
        yield {"input_ids": ids(batch, "source"),
               "labels": ids(batch, "target" if family.target_length else "source")}


def run_file(family, model, rows, steps, precision):
    """As for model S (workload.py)."""
    data = {"train": [str(rows)], "format": "jsonl", "tokenizer": "bytes",
            "seq_length": family.seq_length, "shuffle": False, "append_eos": "false"}
    if family.target_length:
        data |= {"source": "{source}", "target": "{target}", "target_length": family.target_length}
    else:
        data["text"] = "{source}"
    train = {"precision": precision, "steps": steps, "global_batch": family.batch,
             "micro_batch": family.batch, "lr": 1.0e-4, "weight_decay": 0.01, "clip_norm": 0}
    if precision == "bf16":
        train["master_weights"] = False
    return yaml_text({"name": "bench", "seed": 1, "model": {"path": str(model)}, "data": data,
                      "parallel": {"dp": 1}, "train": train, "launch": {"threads": 2}})
