#!/usr/bin/env python3
"""Conversations as weft writes them, compared with transformers' apply_chat_template.

    python3 tests/interop/chat_interop.py --weft build/weft [--templates FOLDER]

Every template that weft accepts, as text, as the default of a list and in a file of its own; the one that final/
ships for a model without any; templates that write something else must be refused. Of the texts, Qwen2.5's is in the
reference data. FOLDER may have others: each *.jinja there must be accepted (trl's package has
qwen3_instruct_2507.jinja).
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from common import Weft, run_program, shared_folder, write_run_file

os.environ["HF_HUB_OFFLINE"] = "1"
NUM_TALKS = 24
LENGTH = 320
TURN = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
HELPFUL = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
CHATML = "{% for message in messages %}" + TURN + "{% endfor %}" + PROMPT
QWEN2 = "{% for message in messages %}" + HELPFUL + TURN + "{% endfor %}" + PROMPT
CONFIG = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 151936,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": True}


def talks():
    for i in range(NUM_TALKS):
        talk = [{"role": "system", "content": f"Be number {i}.\n"}] if i % 3 == 0 else []
        for k in range(1 + i % 3):
            if i % 7 == 4 and k == 1:
                talk.append({"role": "system", "content": "Another one."})
            talk += [{"role": "user", "content": f"What is {i} + {k}?\n\nSay it. \U0001F9F5"},
                     {"role": "assistant", "content": ("\n" if i % 5 == 0 else "") + f"It's {i + k}, naïve one."}]
        if i % 11 == 5:
            talk[-1]["content"] = ""
        yield talk


def model_folder(folder, data, name, files):
    model = folder / name
    shutil.copytree(data / "tokenizers/qwen2", model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (model / "tokenizer_config.json").write_text(json.dumps({**config, **files.pop("tokenizer_config.json", {})}))
    (model / "config.json").write_text(json.dumps(CONFIG))
    for file, text in files.items():
        (model / file).write_text(text)
    return model


def run_file(folder, model, **more):
    return write_run_file(folder / "run.yaml", {
        "name": "chat", "storage": str(folder / "runs"), "model": {"path": str(model), "init": "random"},
        "data": {"train": [str(folder / "chat.jsonl")], "messages": "messages", "seq_length": LENGTH, "shuffle": False},
        "train": {"steps": NUM_TALKS // 4, "global_batch": 4, "micro_batch": 1, **more}})


def spoken(row, tokenizer, end):
    """The parts of a row that are learned, as text; None where one lacks its end."""
    parts, part = [], []
    for token in (t for t in row["targets"] if t >= 0):
        part.append(token)
        if token == end:
            parts.append(tokenizer.decode(part[:-1]))
            part = []
    return None if part else parts


def compare(checks, weft, folder, model, tokenizer, what):
    out = weft.json("inspect", run_file(folder, model), "--batches", NUM_TALKS // 4)
    rows = [row for batch in out["batches"] for row in batch["rows"]]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    same = learned = prompts = 0
    for row, talk in zip(rows, talks()):
        text = tokenizer.apply_chat_template(talk, tokenize=False)
        same += row["ids"][:row["length"]] == tokenizer(text, add_special_tokens=False)["input_ids"]
        said = [m["content"] for m in talk if m["role"] == "assistant"]
        # A line end that begins an answer may share a token with the one before it.
        parts = [p[1:] if p.startswith("\n\n") and s.startswith("\n") else p
                 for p, s in zip(spoken(row, tokenizer, end) or [], said)]
        learned += parts == said
        prompt = tokenizer.apply_chat_template(talk[:-1], tokenize=False, add_generation_prompt=True)
        prompts += text == prompt + talk[-1]["content"] + "<|im_end|>\n"
    checks.equal(same, NUM_TALKS, f"{what}: conversations with the same ids")
    checks.equal(learned, NUM_TALKS, f"{what}: conversations whose answers are learned")
    checks.equal(prompts, NUM_TALKS, f"{what}: conversations that continue their generation prompt")


def check_known(checks, weft, folder, data, extra):
    from transformers import AutoTokenizer
    instruct = json.loads((data / "tokenizers/qwen2.5/tokenizer_config.json").read_text())["chat_template"]
    base = instruct.replace("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "You are a helpful assistant.")
    texts = {"chatml": CHATML, "chatml_escaped": CHATML.replace("\n", "\\n"), "qwen2": QWEN2,
             "qwen2_escaped": QWEN2.replace("\n", "\\n"), "qwen2.5_instruct": instruct, "qwen2.5": base}
    if extra:
        texts.update({path.stem: path.read_text() for path in sorted(extra.glob("*.jinja"))})
    for i, (name, text) in enumerate(texts.items()):
        places = [{"chat_template.jinja": text}, {"tokenizer_config.json": {"chat_template": text}},
                  {"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": text}]}}]
        model = model_folder(folder, data, name, places[i % len(places)])
        compare(checks, weft, folder, model, AutoTokenizer.from_pretrained(model), name)


def check_shipped(checks, weft, folder, data):
    """A model without a template: final/ has the one that its rows were written with."""
    from transformers import AutoTokenizer
    model = model_folder(folder, data, "bare", {})
    done = subprocess.run([weft.path, "train", run_file(folder, model, steps=0)], capture_output=True, text=True, timeout=300, check=False)
    checks.that(done.returncode == 0 and "has no chat template" in done.stderr, "a model without a template is trained, and says so",
                f"exit {done.returncode}: {done.stderr[-300:]}")
    final = folder / "runs/chat/final"
    compare(checks, weft, folder, model, AutoTokenizer.from_pretrained(final), "the template that final/ ships")
    compare(checks, weft, folder, final, AutoTokenizer.from_pretrained(final), "a final/ as the next model")


def check_unknown(checks, weft, folder, data):
    """What contains ChatML's tokens and writes something else."""
    others = {"thinks": CHATML.replace("message['content']", "'<think>\n\n</think>\n\n' + message['content']"),
              "shouts": CHATML.replace("message['role']", "message['role'] | upper"),
              "apostrophe": QWEN2.replace("You are a helpful assistant.", "It\\'s you.\n"),
              "phi4": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endfor %}"}
    for name, text in others.items():
        places = {"chat_template.jinja": text} if name != "phi4" else {"chat_template.json": json.dumps({"chat_template": text})}
        model = model_folder(folder, data, name, places)
        done = subprocess.run([weft.path, "inspect", run_file(folder, model), "--batches", "1"], capture_output=True, text=True, timeout=60, check=False)
        checks.that(done.returncode == 2 and "chat template of " + next(iter(places)) in done.stderr, f"{name} is refused",
                    f"exit {done.returncode}: {done.stderr[:200].strip()}")


def body(args, checks, folder):
    data = shared_folder("data")
    if not data:
        checks.without_data("all conversations")
        return
    weft = Weft(args.weft)
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks()))
    check_known(checks, weft, folder, data, args.templates)
    check_shipped(checks, weft, folder, data)
    check_unknown(checks, weft, folder, data)


if __name__ == "__main__":
    run_program(__doc__, body, lambda parser: parser.add_argument("--templates", type=Path, help="a folder of more templates"))
