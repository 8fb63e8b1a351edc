"""What `make bench-gpu` trains: full-size models with random weights, and rows of random tokens.

Tokens are spread over the vocabulary, as those of text are: where few ids come again and again, the
gradient of PyTorch's embedding is slow. A tokenizer is made whose tokens are words of four letters;
letters are of four kinds in turn, so that a text can be merged in one way only.
"""

import json
import random
import string
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
    """config.json and a tokenizer: weft draws the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(model.config), encoding="ascii")


FIRST, SECOND, THIRD = string.ascii_lowercase[:13], string.ascii_uppercase, string.ascii_lowercase[13:]
HEADS = [a + b for a in FIRST for b in SECOND]
TAILS = [a + b for a in THIRD for b in SECOND]
FIRST_WORD = 256 + len(HEADS) + len(TAILS)  # ids: bytes, halves of words, words


def byte_alphabet():
    """GPT-2's letters of the 256 bytes: printable ones stand for themselves."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    letters = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]


def write_tokenizer(folder):
    tokens = byte_alphabet() + HEADS + TAILS + [h + t for h in HEADS for t in TAILS]
    merges = [[w[0], w[1]] for w in HEADS + TAILS] + [[h, t] for h in HEADS for t in TAILS]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    made = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }
    (folder / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")


def write_rows(model, path, steps, seed=7):
    """One line per row, of exactly seq words."""
    draw = random.Random(seed)
    words = [h + t for h in HEADS for t in TAILS]
    with open(path, "w", encoding="ascii") as file:
        for _ in range(steps * model.batch):
            file.write("".join(draw.choices(words, k=model.seq)) + "\n")


def read_rows(path, batch):
    """Batches of lists of ids, as weft's tokenizer gives them."""
    ids = {h + t: FIRST_WORD + i for i, (h, t) in enumerate((h, t) for h in HEADS for t in TAILS)}
    with open(path, encoding="ascii") as file:
        rows = [[ids[line[i:i + 4]] for i in range(0, len(line) - 1, 4)] for line in file]
    for begin in range(0, len(rows) - batch + 1, batch):
        yield rows[begin:begin + batch]


def run_file(model, folder, rows, steps, init, **changes):
    """A run file of weft as text (JSON is YAML)."""
    run = {
        "name": "bench", "model": {"path": str(folder), "init": init},
        "data": {"train": [str(rows)], "format": "text", "seq_length": model.seq,
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
