"""What is measured: model S and its relatives, the rows both programs read, weft's run file."""

import json
import random
import string
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Workload:
    """One model and batch. Rows are text of seq_length bytes: one byte, one token, in both programs.

    Only the ids 0-255 occur, but the head computes the whole vocabulary and costs what it costs.
    """

    hidden_size: int = 512
    intermediate_size: int = 1408
    num_layers: int = 8
    num_heads: int = 8
    num_kv_heads: int = 2
    vocab_size: int = 16384
    batch: int = 8
    seq_length: int = 256

    def tokens(self):
        return self.batch * self.seq_length

    def kv_size(self):
        return self.hidden_size // self.num_heads * self.num_kv_heads

    def layer_products(self):
        """(inputs, outputs) of each matrix of one layer."""
        C, F, KV = self.hidden_size, self.intermediate_size, self.kv_size()
        return [(C, C), (C, KV), (C, KV), (C, C), (C, F), (C, F), (F, C)]

    def products(self):
        """All products with a weight in a forward pass, the head among them."""
        return self.layer_products() * self.num_layers + [(self.hidden_size, self.vocab_size)]

    def product_flops(self):
        """Of one step: forward, input gradient and weight gradient of every product."""
        return 6 * self.tokens() * sum(k * n for k, n in self.products())

    def text(self):
        return (f"hidden {self.hidden_size}, feed-forward {self.intermediate_size}, "
                f"{self.num_layers} layers, {self.num_heads} heads, {self.num_kv_heads} KV heads, "
                f"vocabulary {self.vocab_size}, tied; batch {self.batch} x {self.seq_length}")


MODEL_S = Workload()
MODEL_TINY = Workload(hidden_size=64, intermediate_size=96, num_layers=2, vocab_size=512,
                      seq_length=32)  # for trying out the programs, not for measuring
MODEL_1M = Workload(hidden_size=128, intermediate_size=384, num_layers=4, num_heads=4,
                    vocab_size=2048)


def grown(factor):
    """Model S with one of its sizes multiplied."""
    return {"layers": replace(MODEL_S, num_layers=MODEL_S.num_layers * factor),
            "sequence": replace(MODEL_S, seq_length=MODEL_S.seq_length * factor),
            "batch": replace(MODEL_S, batch=MODEL_S.batch * factor)}


def config_json(work):
    """config.json of transformers' Qwen2, as version 5 writes it."""
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
            "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": 256,
            "pad_token_id": None, "dtype": "float32", "hidden_act": "silu",
            "hidden_size": work.hidden_size, "intermediate_size": work.intermediate_size,
            "initializer_range": 0.02, "max_position_embeddings": 4096,
            "max_window_layers": work.num_layers, "num_attention_heads": work.num_heads,
            "num_hidden_layers": work.num_layers, "num_key_value_heads": work.num_kv_heads,
            "rms_norm_eps": 1e-6, "sliding_window": None, "use_sliding_window": False,
            "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
            "tie_word_embeddings": True, "use_cache": True, "vocab_size": work.vocab_size}


def write_config(work, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_json(work), indent=2) + "\n")


def write_rows(work, path, steps, seed=1):
    """One row per line, seq_length letters each; enough for `steps` batches."""
    letters = random.Random(seed)
    with open(path, "w", encoding="ascii") as file:
        for _ in range(steps * work.batch):
            file.write("".join(letters.choices(string.ascii_letters, k=work.seq_length)) + "\n")


def read_rows(path, batch):
    """The same rows as ids, (steps, batch, seq_length)."""
    rows = [list(line) for line in path.read_bytes().split(b"\n") if line]
    return [rows[i:i + batch] for i in range(0, len(rows) - batch + 1, batch)]


def yaml_text(sections):
    """A run file: scalars and sections of scalars, each value written as JSON, which YAML reads."""
    lines = []
    for key, value in sections.items():
        if isinstance(value, dict):
            lines += [f"{key}:"] + [f"  {k}: {json.dumps(v)}" for k, v in value.items()]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def run_file(work, model, rows, steps, precision, init="pretrained", parallel=None, threads=2):
    """weft's run file for this workload: AdamW lr 1e-4, no clipping, rows in file order."""
    train = {"precision": precision, "steps": steps, "global_batch": work.batch,
             "micro_batch": work.batch, "lr": 1.0e-4, "weight_decay": 0.01, "clip_norm": 0}
    if precision == "bf16":
        train["master_weights"] = False
    return yaml_text({
        "name": "bench", "seed": 1,
        "model": {"path": str(model), "init": init},
        "data": {"train": [str(rows)], "format": "text", "tokenizer": "bytes",
                 "seq_length": work.seq_length, "shuffle": False},
        "parallel": parallel or {"dp": 1},
        "train": train,
        "launch": {"threads": threads}})
