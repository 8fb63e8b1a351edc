"""What `make bench-gpu` trains: full-size models with random weights, and rows of random bytes."""

import json
import random
from dataclasses import dataclass

QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
    "initializer_range": 0.02, "rms_norm_eps": 1e-06, "attention_dropout": 0.0,
    "torch_dtype": "bfloat16", "use_sliding_window": False,
}


@dataclass(frozen=True)
class GpuModel:
    """A model with its batch and its bars against torch.compile."""

    name: str
    config: dict
    batch: int
    seq: int
    speed_bar: float
    memory_bar: float
    shares_weights: bool = True  # PyTorch reads weft's; else it draws its own

    def tokens(self):
        return self.batch * self.seq


QWEN_05B = {**QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
            "tie_word_embeddings": True, "max_position_embeddings": 32768,
            "rope_theta": 1000000.0}
QWEN_7B = {**QWEN2, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
           "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
           "tie_word_embeddings": False, "max_position_embeddings": 32768,
           "rope_theta": 1000000.0}

MODELS = {m.name: m for m in (
    GpuModel("qwen2.5-0.5b", QWEN_05B, 8, 1024, 1.25, 0.6),
    GpuModel("qwen2.5-0.5b-long", QWEN_05B, 16, 2048, 1.25, 0.6),
    GpuModel("qwen2-7b", QWEN_7B, 4, 2048, 1.08, 0.95, shares_weights=False),
)}


def write_folder(model, folder):
    """config.json alone: weft draws the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config), encoding="ascii")


def write_rows(model, path, steps, seed=7):
    """One line a row, of exactly seq bytes: printable, so that a line is a row."""
    draw = random.Random(seed)
    letters = bytes(range(33, 127))
    with open(path, "wb") as file:
        for _ in range(steps * model.batch):
            file.write(bytes(draw.choices(letters, k=model.seq)) + b"\n")


def read_rows(path, batch):
    """Batches of lists of ids, as weft's byte tokenizer gives them."""
    with open(path, "rb") as file:
        rows = [list(line.rstrip(b"\n")) for line in file]
    for begin in range(0, len(rows) - batch + 1, batch):
        yield rows[begin:begin + batch]


def run_file(model, folder, rows, steps, init, **changes):
    """A run file of weft as text (JSON is YAML)."""
    run = {
        "name": "bench", "model": {"path": str(folder), "init": init},
        "data": {"train": [str(rows)], "format": "text", "tokenizer": "bytes", "seq_length": model.seq,
                 "shuffle": False},
        "parallel": {"dp": 1, "tp": 1},
        "train": {"precision": "bf16", "master_weights": False, "steps": steps,
                  "global_batch": model.batch, "micro_batch": model.batch, "lr": 1e-5,
                  "weight_decay": 0.01, "clip_norm": 0.0},
        "launch": {"device": "cuda"},
    }
    for key, value in changes.items():
        section, name = key.split("__")
        run[section][name] = value
    return json.dumps(run, indent=1)
