#!/usr/bin/env python3
"""Every family goes from transformers to weft and back: same losses, weights and greedy tokens.

    models_interop.py --weft build/weft [--only NAME]

The models of tools/golden_models.py (one per family and variant), with a vocabulary of bytes. weft and
plain PyTorch train each for a few steps on the same rows; transformers then reads final/, has weft's
evaluation loss and logits, and generates the same tokens as weft does on one rank and on two
tensor-parallel ranks. Models of the reference data: logits of every position, by the golden tests.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

import peer
from common import DEADLINE_S, ROOT, Weft, run_program, shared_folder, write_run_file
from final_logits import check_final_logits, check_golden

sys.path.insert(0, str(ROOT / "tools"))
from golden_models import auto_class, golden_models, random_model  # noqa: E402

STEPS, BATCH, LR, CLIP = 4, 4, 1e-3, 1.0
SOURCE, TARGET = 40, 24  # of rows, and of an encoder-decoder's pairs
NEW_TOKENS = 64
EOS = 256
LOSS_TOLERANCE, NORM_TOLERANCE, UPDATE_TOLERANCE = 5e-6, 1e-4, 2e-3  # as in roundtrip_interop.py
SKIPPED = {"llama_256", "llama_rope", "qwen2_gqa"}  # roundtrip_interop.py has their families
PREFIXLESS = {"gpt2", "bloom"}
PROMPTS = ["The weft crosses the warp", "SELECT name FROM looms", "b", "1, 2, 3, 4, 5, 6, 7, 8, 9"]
PAIRS = [
    ("how many looms are wider than 120", "SELECT COUNT(*) FROM looms"), ("x", "y"),
    ("name of the oldest weaver", "SELECT name"), ("a b c d e f g h", "h g f e d c b a"),
    ("colours", "red, green and blue, of course"), ("which thread is longest of all threads", "warp"),
    ("two", "22"), ("ready?", "yes"), ("where does the shuttle rest at night", "in its box"),
    ("count", "1 2 3 4 5 6 7 8 9 10"), ("what is a pick", "one pass of the weft"), ("end", "."),
    ("list all tables", "looms weavers"), ("first letter", "a"), ("is silk strong", "it is"),
    ("how long is a yard", "0.9144 m"),
]


@dataclass
class Case:
    name: str
    weft: Weft
    folder: Path
    source: Path
    config: transformers.PretrainedConfig

    def is_pair(self):
        return self.config.is_encoder_decoder

    def load(self, folder):
        return auto_class(self.config).from_pretrained(folder, dtype=torch.float32,
                                                       attn_implementation="eager")

    def run_file(self):
        data = {"train": [str(self.folder / "rows.jsonl")], "eval": [str(self.folder / "rows.jsonl")],
                "tokenizer": "bytes", "seq_length": SOURCE, "shuffle": False}
        if self.is_pair():
            data |= {"source": "{source}", "target": "{target}", "target_length": TARGET}
        else:
            data["text"] = "{source} {target}"
        return write_run_file(self.folder / "run.yaml", {
            "name": "run", "model": {"path": str(self.source)}, "data": data,
            "train": {"steps": STEPS, "global_batch": BATCH, "micro_batch": 2, "lr": LR,
                      "clip_norm": CLIP},
            "launch": {"threads": 1}})

    def batches(self):
        """As transformers reads the rows."""
        for begin in range(0, len(PAIRS), BATCH):
            pairs = PAIRS[begin:begin + BATCH]
            if not self.is_pair():
                ids, mask, labels = peer.pad([list(f"{s} {t}".encode())[:SOURCE] for s, t in pairs])
                yield {"input_ids": ids, "attention_mask": mask, "labels": labels}
                continue
            ids, mask, _ = peer.pad([list(s.encode())[:SOURCE] for s, _ in pairs])
            labels = peer.pad([list(t.encode())[:TARGET - 1] + [EOS] for _, t in pairs])[2]
            yield {"input_ids": ids, "attention_mask": mask, "labels": labels}


def strip_prefix(path):
    """As the published files of these families have it: without the base model's name."""
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


def make_case(weft, golden, folder):
    """The golden model with ids for all bytes and an end."""
    folder.mkdir()
    config = golden.config
    config.vocab_size, config.eos_token_id = 264, EOS
    if hasattr(config, "n_positions"):
        config.n_positions = 128
    if config.pad_token_id is not None and not config.is_encoder_decoder:
        config.pad_token_id = 260  # no byte
    if getattr(config, "bos_token_id", None) is not None:
        config.bos_token_id = 261
    model = random_model(golden, torch.Generator().manual_seed(sum(golden.name.encode())))
    model.save_pretrained(folder / "source")
    if golden.name in PREFIXLESS:
        strip_prefix(folder / "source" / "model.safetensors")
    rows = [json.dumps({"source": s, "target": t}) for s, t in PAIRS]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    return Case(golden.name, weft, folder, folder / "source", config)


def target_losses(model, batch):
    """Sum over all targets in float64, and their number."""
    with torch.no_grad():
        logits = model(**batch).logits.float()
    labels = batch["labels"]
    if not model.config.is_encoder_decoder:
        logits, labels = logits[:, :-1], labels[:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses[labels != -100].double().sum().item(), int((labels != -100).sum())


def train_peer(case):
    model = case.load(case.source).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    losses, norms = [], []
    for batch in list(case.batches())[:STEPS]:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        norms.append(peer.clip_gradients(model, CLIP))
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, model.eval()


def check_training(case, checks, run_dir):
    steps, evals = case.weft.train(case.run_file(), run_dir)
    losses, norms, model = train_peer(case)
    checks.close([line["loss"] for line in steps], losses, LOSS_TOLERANCE,
                 f"{case.name}: loss of each step")
    checks.close([line["grad_norm"] for line in steps], norms, NORM_TOLERANCE,
                 f"{case.name}: gradient norm of each step")
    start, end = peer.weights(case.load(case.source)), peer.weights(model)
    mine = peer.weights(case.load(run_dir / "final"))
    checks.equal(sorted(mine), sorted(end), f"{case.name}: names of final/'s weights")
    distance = lambda a, b: sum((a[n] - b[n]).square().sum().item() for n in end) ** 0.5
    way = distance(mine, end) / distance(end, start)
    checks.that(way < UPDATE_TOLERANCE, f"{case.name}: weights after {STEPS} steps",
                f"{way:.1e} of the way walked")
    sums = [target_losses(case.load(run_dir / "final").eval(), batch) for batch in case.batches()]
    wanted = sum(s for s, _ in sums) / sum(n for _, n in sums)
    checks.close([line["eval_loss"] for line in evals[-1:]], [wanted], LOSS_TOLERANCE,
                 f"{case.name}: transformers has final/'s evaluation loss")


def generated(case, folder, prompt):
    """transformers' greedy ids, without those of the prompt."""
    model = case.load(folder).eval()
    ids = torch.tensor([list(prompt.encode())])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                         num_beams=1, max_new_tokens=NEW_TOKENS, eos_token_id=EOS,
                         # An encoder-decoder's cache has as many layers as the encoder.
                         use_cache=not case.is_pair(),
                         pad_token_id=case.config.pad_token_id or 0)[0].tolist()
    return out[1:] if case.is_pair() else out[ids.shape[1]:]


def write_talkative(case, folder):
    """The model with layers that outweigh the embedding: a random one repeats its last token."""
    model = case.load(case.source)
    dice = torch.Generator().manual_seed(7)
    embeddings = {id(x.weight) for x in model.modules() if isinstance(x, torch.nn.Embedding)}
    for weight in model.parameters():
        if id(weight) in embeddings:
            weight.data.mul_(0.1)
        elif weight.dim() == 2:
            weight.data.normal_(0, 2.5 * min(weight.shape) ** -0.5, generator=dice)
    model.save_pretrained(folder)


def check_generate(case, checks, run_dir):
    """All prompts in one call: rows of different length share batches."""
    check_answers(case, checks, run_dir / "final", "final/")
    write_talkative(case, case.folder / "talkative")
    varied = len(set(sum(check_answers(case, checks, case.folder / "talkative", "talkative"), [])))
    checks.that(varied > 8, f"{case.name}: talkative answers vary", f"{varied} different tokens")


def check_answers(case, checks, folder, what):
    prompts = case.folder / "prompts.txt"
    prompts.write_text("\n".join(PROMPTS) + "\n")
    wanted = [generated(case, folder, prompt) for prompt in PROMPTS]
    for layout in ([], ["--set", "parallel.tp=2"]):
        lines = case.weft.call("generate", folder, "--prompts", prompts, "--json",
                               "--tokenizer", "bytes", "--max-new-tokens", NEW_TOKENS, *layout)
        got = [json.loads(line)["ids"] for line in lines.splitlines()]
        checks.equal(got, wanted,
                     f"{case.name}: {what}: greedy tokens{' at tp 2' if layout else ''}")
    return wanted


def check_stored(weft, checks, folder):
    """Models of the reference data, by the golden tests."""
    names = []
    for name in ("tiny_T5ForConditionalGeneration", "tiny_BloomForCausalLM"):
        if shared_folder("data", "weights", name):
            names.append(name)
        else:
            checks.without_data(name)
    if not names:
        return
    for name in names:
        maker = [sys.executable, str(ROOT / "tools/make_golden.py"), "--out", str(folder / "golden"),
                 "--seed", "3", "--full", "--from", str(shared_folder("data", "weights", name))]
        subprocess.run(maker, check=True, capture_output=True, timeout=DEADLINE_S)
    check_golden(weft, checks, folder / "golden", names,
                 ["GoldenLogits.OfEveryPosition", "LossAndEveryGradient"])


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    weft = Weft(args.weft)
    goldens = [g for g in golden_models() if args.only in (None, g.name) and g.name not in SKIPPED]
    if args.only is None:
        goldens = checks.sample(goldens, 4)
    finals = {}
    for golden in goldens:
        case = make_case(weft, golden, folder / golden.name)
        run_dir = case.folder / "run"
        checks.section(check_training, case, run_dir)
        checks.section(check_generate, case, run_dir)
        finals[f"final_{golden.name}"] = run_dir / "final"
    check_final_logits(weft, checks, folder / "finals", finals)
    if args.only is None:
        check_stored(weft, checks, folder)


def add_arguments(parser):
    parser.add_argument("--only", metavar="NAME", help="only this model")


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments)
