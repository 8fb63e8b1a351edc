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
    seq: int  # of an encoder-decoder: of the source
    speed_bar: float
    memory_bar: float
    shares_weights: bool = True  # PyTorch reads weft's; else it draws its own
    target: int = 0  # of an encoder-decoder: length of the target
    has_bias: bool = False  # added to the scores: PyTorch's attention always gets a mask

    def tokens(self):
        """Of a step; of an encoder-decoder: of the source."""
        return self.batch * self.seq


QWEN_05B = {**QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
            "tie_word_embeddings": True, "max_position_embeddings": 32768,
            "rope_theta": 1000000.0}
QWEN_7B = {**QWEN2, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
           "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
           "tie_word_embeddings": False, "max_position_embeddings": 32768,
           "rope_theta": 1000000.0}

BLOOMZ_1B1 = {
    "architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 1536,
    "n_layer": 24, "n_head": 16, "vocab_size": 250880, "layer_norm_epsilon": 1e-05,
    "initializer_range": 0.02, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    "apply_residual_connection_post_layernorm": False, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 3, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}
T5_3B = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 1024,
    "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 32,
    "vocab_size": 32128, "relative_attention_num_buckets": 32, "dropout_rate": 0.0,
    "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "relu",
    "is_encoder_decoder": True, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
    "torch_dtype": "bfloat16",
}

MODELS = {m.name: m for m in (
    GpuModel("qwen2.5-0.5b", QWEN_05B, 8, 1024, 1.25, 0.6),
    GpuModel("qwen2.5-0.5b-long", QWEN_05B, 16, 2048, 1.25, 0.6),
    GpuModel("qwen2-7b", QWEN_7B, 4, 2048, 1.08, 0.95, shares_weights=False),
    GpuModel("bloomz-1b1", BLOOMZ_1B1, 8, 512, 1.25, 0.6, has_bias=True),
    GpuModel("t5-3b", T5_3B, 8, 512, 1.3, 0.8, shares_weights=False, target=128, has_bias=True),
    GpuModel("t5-3b-dropout", {**T5_3B, "dropout_rate": 0.1}, 8, 512, 1.15, 0.8,
             shares_weights=False, target=128, has_bias=True),
)}


def write_folder(model, folder):
    """config.json and a tokenizer: weft draws the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, model.config["vocab_size"])
    (folder / "config.json").write_text(json.dumps(model.config), encoding="ascii")


FIRST, SECOND, THIRD = string.ascii_lowercase[:13], string.ascii_uppercase, string.ascii_lowercase[13:]
HEADS = [a + b for a in FIRST for b in SECOND]
TAILS = [a + b for a in THIRD for b in SECOND]
FIRST_WORD = 256 + len(HEADS) + len(TAILS)  # ids: bytes, halves of words, words


def words_of(vocab_size):
    """As many as the vocabulary has ids for."""
    num_heads = min(len(HEADS), (vocab_size - FIRST_WORD) // len(TAILS))
    return [h + t for h in HEADS[:num_heads] for t in TAILS]


def byte_alphabet():
    """GPT-2's letters of the 256 bytes: printable ones stand for themselves."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    letters = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]


def write_tokenizer(folder, vocab_size):
    words = words_of(vocab_size)
    tokens = byte_alphabet() + HEADS + TAILS + words
    merges = [[w[0], w[1]] for w in HEADS + TAILS] + [[w[:2], w[2:]] for w in words]
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
    """One line per row: text of exactly seq words, or a JSON object with source and target."""
    draw = random.Random(seed)
    words = words_of(model.config["vocab_size"])
    text = lambda length: "".join(draw.choices(words, k=length))
    with open(path, "w", encoding="ascii") as file:
        for _ in range(steps * model.batch):
            line = text(model.seq)
            if model.target:
                line = json.dumps({"source": line, "target": text(model.target)})
            file.write(line + "\n")


def read_rows(model, path):
    """Batches {name of transformers' argument: lists of ids}, as weft's tokenizer gives them."""
    ids = {word: FIRST_WORD + i for i, word in enumerate(words_of(model.config["vocab_size"]))}
    encode = lambda text: [ids[text[i:i + 4]] for i in range(0, len(text), 4)]
    lines = path.read_text(encoding="ascii").splitlines()
    for begin in range(0, len(lines) - model.batch + 1, model.batch):
        batch = lines[begin:begin + model.batch]
        if model.target:
            rows = [json.loads(line) for line in batch]
            yield {"input_ids": [encode(row["source"]) for row in rows],
                   "labels": [encode(row["target"]) for row in rows]}
        else:
            rows = [encode(line) for line in batch]
            yield {"input_ids": rows, "labels": rows}


def data_section(model, rows):
    common = {"train": [str(rows)], "seq_length": model.seq, "shuffle": False}
    if not model.target:
        return {**common, "format": "text"}
    return {**common, "format": "jsonl", "source": "{source}", "target": "{target}",
            "target_length": model.target, "append_eos": "false"}


def run_file(model, folder, rows, steps, init, **changes):
    """A run file of weft as text (JSON is YAML)."""
    run = {
        "name": "bench", "model": {"path": str(folder), "init": init},
        "data": data_section(model, rows),
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
