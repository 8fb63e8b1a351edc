#!/usr/bin/env python3
"""BLOOM and T5 against PyTorch: three steps from the same weights, and final/ read back by transformers.

    families_interop.py --weft build/weft

BLOOM and T5 v1.0 start from the tiny models of the reference data (where it is present), T5 v1.1 from a random one
with a head of its own. Rows are bytes; T5's are pairs of a source and a target of different lengths. Dropout is off:
its draws are not torch's. Sampled: the layouts in which rows are fed. models_interop.py has every family's answers.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, T5Config

import peer
from common import Weft, run_program, shared_folder, write_run_file
from roundtrip_interop import CLIP, LOSS_TOLERANCE, LR, NORM_TOLERANCE, SENTENCES, UPDATE_TOLERANCE

STEPS, BATCH, SOURCE_LENGTH, TARGET_LENGTH, EOS = 3, 4, 40, 24, 256
LAYOUTS = ("pad", "dynamic", "pack")
FINAL_TOLERANCE = 1e-6  # of the same weights' loss


@dataclass
class Case:
    name: str
    weft: Weft
    folder: Path
    source: Path  # Hugging Face folder that weft starts from
    has_source: bool

    def load(self, folder):
        kind = AutoModelForSeq2SeqLM if self.has_source else AutoModelForCausalLM
        return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    def run_file(self, layout):
        data = {"train": [str(self.folder / "train.jsonl")], "eval": [str(self.folder / "eval.jsonl")],
                "tokenizer": "bytes", "shuffle": False, "layout": layout, "seq_length": SOURCE_LENGTH}
        data |= ({"source": "{q}", "target": "{a}", "target_length": TARGET_LENGTH} if self.has_source
                 else {"text": "{a}"})
        return write_run_file(self.folder / f"{layout}.yaml", {
            "name": layout, "seed": 7, "model": {"path": str(self.source), "dropout": 0.0}, "data": data,
            "train": {"steps": STEPS, "global_batch": BATCH, "micro_batch": 2, "lr": LR, "clip_norm": CLIP},
            "launch": {"threads": 2}})


def pairs(count, first):
    """Sources and targets of very unequal length, none of one token, which weft would drop."""
    texts = [text for text in SENTENCES if len(text) > 1]
    return [{"q": texts[(first + i) % len(texts)][: 1 + 13 * i % 50], "a": texts[(first + 3 * i) % len(texts)][: 2 + 7 * i % 31]}
            for i in range(count)]


def encode(case, row):
    """(source, target) as weft feeds them; of a causal model the source is empty."""
    answer = list(row["a"].encode())
    if not case.has_source:
        return [], answer[:SOURCE_LENGTH]
    return list(row["q"].encode())[:SOURCE_LENGTH], answer[:TARGET_LENGTH - 1] + [EOS]


def summed_loss(case, model, rows):
    """The sum of all targets' losses, and their number."""
    if not case.has_source:
        ids, mask, labels = peer.pad([target for _, target in rows])
        logits, labels = model(input_ids=ids, attention_mask=mask).logits[:, :-1], labels[:, 1:]
    else:
        ids, mask, _ = peer.pad([source for source, _ in rows])
        labels = peer.pad([target for _, target in rows])[2]
        logits = model(input_ids=ids, attention_mask=mask, labels=labels).logits
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="sum")
    return loss, int((labels >= 0).sum())


def train(case, batches):
    """AdamW over the batches, each a list of (source, target)."""
    model = case.load(case.source).train()
    for module in model.modules():  # transformers has no switch for all dropout sites
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "hidden_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    result = peer.Trained([], [], [], model)
    for rows in batches:
        optimizer.zero_grad()
        loss, targets = summed_loss(case, model, rows)
        (loss / targets).backward()
        result.losses.append(loss.item() / targets)
        result.grad_norms.append(peer.clip_gradients(model, CLIP))
        result.target_tokens.append(targets)
        optimizer.step()
    model.eval()
    return result


def shown_batches(case, layout):
    """The rows that weft feeds, as (source, target); of packed ones every segment is a row."""
    batches = []
    for batch in case.weft.json("inspect", case.run_file(layout), "--batches", STEPS)["batches"]:
        rows = []
        for row in batch["rows"]:
            segments = row.get("segments", [1] * row["length"])
            sources = row.get("source_segments", [1] * row.get("source_length", 0))
            for number in range(1, max(segments) + 1):
                source = [t for t, s in zip(row.get("source_ids", []), sources) if s == number]
                target = [t for t, s in zip(row["targets" if case.has_source else "ids"], segments) if s == number]
                rows.append((source, target))
        batches.append(rows)
    return batches


def check_layout(case, checks, layout):
    what = f"{case.name} {layout}"
    run_dir = case.folder / layout
    steps, evals = case.weft.train(case.run_file(layout), run_dir)
    batches = shown_batches(case, layout)
    if layout != "pack":
        rows = [encode(case, json.loads(line)) for line in (case.folder / "train.jsonl").read_text().splitlines()]
        checks.equal(batches, [rows[i * BATCH:(i + 1) * BATCH] for i in range(STEPS)], f"{what}: rows")
    theirs = train(case, batches)
    checks.close([line["loss"] for line in steps], theirs.losses, LOSS_TOLERANCE, f"{what}: loss of each step")
    checks.close([line["grad_norm"] for line in steps], theirs.grad_norms, NORM_TOLERANCE,
                 f"{what}: gradient norm of each step")
    checks.equal([line["target_tokens"] for line in steps], theirs.target_tokens, f"{what}: targets of each step")
    final = case.load(run_dir / "final")
    start, end, mine = (peer.weights(model) for model in (case.load(case.source), theirs.model, final))
    checks.equal(sorted(mine), sorted(end), f"{what}: names of the parameters that transformers reads")
    walked = sum((end[n] - start[n]).square().sum() for n in end) ** 0.5
    apart = sum((end[n] - mine[n]).square().sum() for n in end) ** 0.5
    checks.that(apart < UPDATE_TOLERANCE * walked, f"{what}: weights after {STEPS} steps", f"{apart / walked:.1e} of the way")
    held = [encode(case, json.loads(line)) for line in (case.folder / "eval.jsonl").read_text().splitlines()]
    if layout == "pack" and not case.has_source:  # a long row is split, not cut
        texts = [list(json.loads(line)["a"].encode()) for line in (case.folder / "eval.jsonl").read_text().splitlines()]
        held = [([], ids[at:at + SOURCE_LENGTH]) for ids in texts for at in range(0, len(ids), SOURCE_LENGTH)]
    with torch.no_grad():
        loss, targets = summed_loss(case, final, held)
        initial, _ = summed_loss(case, case.load(case.source), held)
    checks.close([line["eval_loss"] for line in evals[-1:]], [loss.item() / targets], FINAL_TOLERANCE,
                 f"{what}: final/ in transformers has weft's evaluation loss")
    apart = (abs(initial - loss) / loss).item()  # the tiny T5 starts near zero, and so learns slowly
    checks.that(apart > 2 * FINAL_TOLERANCE, f"{what}: the initial weights would give another loss", f"{apart:.1e} relative")


def shared_case(weft, folder, name, model, has_source):
    files = shared_folder("data", "weights", model)
    if files is None:
        return None
    source = folder / "source"
    source.mkdir()
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(files / file, source)
    return Case(name, weft, folder, source, has_source)


def bloom_case(weft, folder):
    return shared_case(weft, folder, "bloom", "tiny_BloomForCausalLM", False)


def t5_case(weft, folder):
    return shared_case(weft, folder, "t5", "tiny_T5ForConditionalGeneration", True)


def t5_v11_case(weft, folder):
    """With a head of its own and without the scale, which transformers' configuration calls not tied."""
    config = T5Config(vocab_size=300, d_model=48, d_kv=8, d_ff=80, num_layers=2, num_decoder_layers=3, num_heads=4,
                      feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
                      decoder_start_token_id=2)
    model = AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32)
    model.lm_head.weight = torch.nn.Parameter(torch.empty(300, 48))
    generator = torch.Generator().manual_seed(14)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.copy_(1.0 + noise if "norm" in name else noise)
    model.all_tied_weights_keys.pop("lm_head.weight", None)
    model.save_pretrained(folder / "source")
    return Case("t5_v11", weft, folder, folder / "source", True)


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    weft = Weft(args.weft)
    makers = (bloom_case, t5_case, t5_v11_case)
    chosen = checks.sample([(make.__name__, layout) for make in makers for layout in LAYOUTS], 4)
    for make in makers:
        place = folder / make.__name__
        place.mkdir()
        case = make(weft, place)
        if case is None:
            checks.without_data(make.__name__)
            continue
        for name, rows in (("train", pairs(40, 0)), ("eval", pairs(11, 5))):
            (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for layout in LAYOUTS:
            if (make.__name__, layout) in chosen:
                checks.section(check_layout, case, layout)


if __name__ == "__main__":
    run_program(__doc__, body)
