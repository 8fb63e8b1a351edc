"""The small models of the golden sets: one or more per family, each with something that the others
lack.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, BloomConfig,
                          Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config,
                          Qwen3Config, T5Config)


@dataclass
class Golden:
    """One model and how it is stored."""

    name: str
    config: transformers.PretrainedConfig
    seq_length: int
    std: float = 0.0  # of the random weights: large enough that attention and gates are far from linear
    rows: int = 4
    store_bf16: bool = False  # weights are bf16 values, kept in a BF16 file, used as fp32
    sample: bool = False  # store a sample of each gradient, and only the logits of the first row
    special_ids: list = field(default_factory=list)  # ids that must occur as real tokens
    source_length: int = 0  # of an encoder-decoder
    norm_start: float = 1.0  # around which the weights of norms are drawn
    std_of: dict = field(default_factory=dict)  # factors of std, by a part of the name
    folder: Path | None = None  # whose weights are used
    own_head: bool = False  # lm_head is not the embedding, though transformers 5 ties every T5's


COMMON = {"max_position_embeddings": 512, "attention_dropout": 0.0, "bos_token_id": None}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def llama_models():
    tiny = LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(ROPE), eos_token_id=256, **COMMON)
    scaled = LlamaConfig(
        vocab_size=331, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64},
        eos_token_id=330, **COMMON)
    wide = LlamaConfig(
        vocab_size=320, hidden_size=256, intermediate_size=272, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(ROPE), eos_token_id=319, **COMMON)
    return [
        Golden("tiny_llama", tiny, seq_length=32, std=0.12),
        Golden("llama_rope", scaled, seq_length=48, std=0.12),
        Golden("llama_256", wide, seq_length=128, std=0.06, rows=8, store_bf16=True, sample=True),
    ]


def qwen_models():
    grouped = Qwen2Config(
        vocab_size=1003, hidden_size=96, intermediate_size=120, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        pad_token_id=17, eos_token_id=1002, use_sliding_window=False, **COMMON)
    # The first layer sees everything, the second seven tokens.
    window = Qwen2Config(
        vocab_size=263, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=dict(ROPE), eos_token_id=262, use_sliding_window=True, sliding_window=7,
        max_window_layers=1, **COMMON)
    qwen3 = Qwen3Config(
        vocab_size=263, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=24,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, eos_token_id=262,
        **COMMON)
    return [
        Golden("qwen2_gqa", grouped, seq_length=32, std=0.10, store_bf16=True, special_ids=[17]),
        Golden("qwen2_window", window, seq_length=32, std=0.12),
        Golden("qwen3", qwen3, seq_length=32, std=0.12),
    ]


def other_decoders():
    # 4 x 24 columns of heads are more than hidden_size.
    mistral = MistralConfig(
        vocab_size=263, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=24,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(ROPE), eos_token_id=262, sliding_window=9, **COMMON)
    # 6 heads are not a power of two, so that slopes of both kinds occur.
    bloom = BloomConfig(vocab_size=257, hidden_size=96, n_layer=2, n_head=6, hidden_dropout=0.0,
                        attention_dropout=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=3)
    gpt2 = GPT2Config(vocab_size=257, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                      resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=256,
                      eos_token_id=256)
    gemma3 = Gemma3TextConfig(
        vocab_size=263, hidden_size=64, intermediate_size=96, num_hidden_layers=3, head_dim=24,
        num_attention_heads=4, num_key_value_heads=2, query_pre_attn_scalar=20, sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        max_position_embeddings=512, attention_dropout=0.0, bos_token_id=2, eos_token_id=1,
        pad_token_id=0)
    return [
        Golden("mistral", mistral, seq_length=32, std=0.12),
        Golden("bloom", bloom, seq_length=32, std=0.10, store_bf16=True),
        Golden("gpt2", gpt2, seq_length=32, std=0.12),
        Golden("gemma3", gemma3, seq_length=32, std=0.12, norm_start=0.0, special_ids=[0]),
    ]


def t5_models():
    """Buckets up to a distance below the rows' lengths, so that the last one is used.

    q is smaller, since scores are not scaled.
    """
    common = {"d_kv": 16, "num_heads": 4, "relative_attention_num_buckets": 8,
              "relative_attention_max_distance": 20, "dropout_rate": 0.0, "pad_token_id": 0,
              "eos_token_id": 1, "decoder_start_token_id": 0}
    factors = {"Attention.q.": 0.5, "relative_attention_bias": 5}
    relu = T5Config(vocab_size=211, d_model=48, d_ff=96, num_layers=2, feed_forward_proj="relu",
                    **common)
    gated = T5Config(vocab_size=211, d_model=64, d_ff=80, num_layers=2, num_decoder_layers=3,
                     feed_forward_proj="gated-gelu", tie_word_embeddings=False, **common)
    return [
        Golden("t5", relu, seq_length=24, source_length=40, std=0.12,
               std_of={**factors, "shared": 8}, special_ids=[0]),
        Golden("t5_v11", gated, seq_length=24, source_length=32, std=0.12, std_of=factors,
               store_bf16=True, own_head=True),
    ]


def golden_models():
    return llama_models() + qwen_models() + other_decoders() + t5_models()


def auto_class(config):
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def random_model(golden, generator):
    """Matrices and biases around 0, norm weights around their start (1, or 0 where the norm adds 1)."""
    model = auto_class(golden.config).from_config(golden.config, dtype=torch.float32)
    if golden.own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        model.all_tied_weights_keys.pop("lm_head.weight")  # as from_pretrained does where they differ
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * golden.std
            for part, factor in golden.std_of.items():
                noise = noise * factor if part in name else noise
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(golden.norm_start + noise if is_norm else noise)
    return model


def stored_model(folder):
    """A model that exists already."""
    config = AutoConfig.from_pretrained(folder)
    for key in ("dropout_rate", "hidden_dropout", "attention_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    return Golden(folder.name, config, seq_length=24, folder=folder,
                  source_length=40 if config.is_encoder_decoder else 0)
