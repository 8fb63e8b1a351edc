#!/usr/bin/env python3
"""A model trained by weft also stops in transformers, without explicit stop tokens.

    python3 tests/interop/stop_interop.py --weft build/weft

Two runs from a configuration alone: README's first one (prompts and answers, the built-in bytes), and conversations
with a tokenizer whose turns end at <|im_end|> while its end of sequence is <|endoftext|>. generate() of transformers,
given nothing but final/ and a prompt, must stop where `weft generate` does, long before the most tokens it may make.
"""

import json

import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from common import Weft, run_program, write_run_file

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 260, "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
# Plain ChatML, to the letter (src/text/known_templates.cpp): other texts are refused.
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
PAIRS = [("one", "two"), ("red", "green"), ("up", "down and under"), ("a", "b")]
MOST = 60


def train(weft, place, data):
    run_file = write_run_file(place / "run.yaml", {
        "name": "stop", "seed": 3, "model": {"path": str(place / "model"), "init": "random"},
        "data": {"train": [str(place / "rows.jsonl")], "seq_length": 96, **data},
        "train": {"steps": 150, "global_batch": 4, "lr": 3e-3}, "launch": {"threads": 1}})
    weft.train(run_file, place / "run")
    return place / "run" / "final"


def check_answers(weft, checks, name, final, prompt_of, end):
    """Every prompt's answer is memorized; both programs produce it, and stop at the same token."""
    model = AutoModelForCausalLM.from_pretrained(final).eval()
    tokenizer = AutoTokenizer.from_pretrained(final)
    for question, answer in PAIRS:
        prompt = prompt_of(tokenizer, question)
        ours = weft.json("generate", final, "--prompt", prompt, "--max-new-tokens", MOST)["ids"]
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        theirs = model.generate(**given, do_sample=False, max_new_tokens=MOST)[0, given["input_ids"].shape[1]:].tolist()
        checks.equal(theirs, ours, f"{name}: ids after {question!r}")
        checks.equal(tokenizer.decode(theirs[:-1]), answer, f"{name}: the answer to {question!r}")
        checks.equal(theirs[-1], end, f"{name}: its end")
        # The same without what the run wrote: nothing stops it.
        endless = model.generate(**given, do_sample=False, max_new_tokens=MOST, eos_token_id=-1)
        checks.equal(endless.shape[1] - given["input_ids"].shape[1], MOST, f"{name}: without an eos it continues")


def check_bytes(weft, checks, place):
    (place / "model" / "config.json").write_text(json.dumps(CONFIG))
    (place / "rows.jsonl").write_text("".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in PAIRS))
    final = train(weft, place, {"source": "{q}\n", "target": "{a}", "tokenizer": "bytes"})
    check_answers(weft, checks, "bytes", final, lambda _, question: question + "\n", 256)
    config = transformers.AutoConfig.from_pretrained(final)
    checks.equal(config.eos_token_id, 256, "bytes: config.json")
    checks.equal(transformers.GenerationConfig.from_pretrained(final).pad_token_id, 256, "bytes: padding of generate()")


def check_chat(weft, checks, place, bytes_final):
    (place / "model" / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = AutoTokenizer.from_pretrained(bytes_final)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(place / "model")
    messages = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in PAIRS]
    (place / "rows.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m in messages))
    final = train(weft, place, {"messages": "messages"})

    def prompt_of(tokenizer, question):
        turn = [{"role": "user", "content": question}]
        return tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)

    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    check_answers(weft, checks, "chat", final, prompt_of, end)
    checks.equal(transformers.GenerationConfig.from_pretrained(final).eos_token_id, [256, end],
                 "chat: both ends in generation_config.json")


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    weft = Weft(args.weft)
    for name in ("bytes", "chat"):
        (folder / name / "model").mkdir(parents=True)
    check_bytes(weft, checks, folder / "bytes")
    check_chat(weft, checks, folder / "chat", folder / "bytes/run/final")


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
