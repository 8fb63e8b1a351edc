#!/usr/bin/env python3
"""A model goes from transformers to weft and back: same losses, weights, logits and token ids.

    roundtrip_interop.py --weft build/weft

Two cases: a Llama with the built-in bytes tokenizer, and a sharded Qwen2 with Qwen2's vocabulary
(where the reference data is present). Each is trained for three steps by weft and by plain PyTorch
on the same rows; what weft wrote is then read with transformers and with safetensors.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer, LlamaConfig, Qwen2Config

import peer
from common import Weft, read_metrics, run_program, shared_folder, write_run_file
from final_logits import check_final_logits

STEPS, BATCH, SEQ_LENGTH, LR, CLIP = 3, 4, 48, 1e-3, 1.0
NEW_TOKENS = 16
# For numbers that both programs compute in fp32, in another order of additions.
LOSS_TOLERANCE, NORM_TOLERANCE = 5e-6, 1e-4
UPDATE_TOLERANCE = 1e-3  # distance of the weights over distance walked from the start
# The gradient of k_proj.bias nearly cancels (softmax does not see a shift of all scores): torch in
# fp32 is itself 1.5e-3 from torch in float64 there.
CANCELLING, CANCELLING_TOLERANCE = "k_proj.bias", 1e-2
LOGIT_TOLERANCE = 1e-4
HALF_LOSS, HALF_NORM = 5e-4, 5e-3  # relative; fp16 has 11 bits, one of them is 5e-4

SENTENCES = [
    "The weft is the thread that crosses the warp.", "x", "",
    "SELECT name, COUNT(*) FROM looms WHERE width >= 120 GROUP BY name;",
    "Grüße aus Zürich, naïve café, Ελλάδα, привет", "two  spaces and\ta tab   ",
    "日本語のテキスト、中文，한국어", "emoji 🙂👩‍👩‍👧 and a flag 🇨🇭", "12345 67.89 1,000,000 3e-5",
    "it's we'll I'm don't THEY'RE", "a very long row " * 12, "if (a[i] != b->c) { return ~x; }",
    "ok", "Tabs\tand trailing blanks  ", "one sign \u212b, two A\u030a, ligature \ufb01",
]


@dataclass
class Case:
    """One model and its rows, and where everything about it is written."""

    name: str
    weft: Weft
    folder: Path
    source: Path  # Hugging Face folder that weft starts from
    tokenizer: str  # of the run file
    encode: object  # text to ids, by a tokenizer that is not weft's

    def rows(self, texts):
        return peer.token_rows(texts, self.encode, SEQ_LENGTH)

    def run_file(self, name, layout="pad", data=None, **train):
        settings = {"steps": STEPS, "global_batch": BATCH, "micro_batch": 2, "lr": LR,
                    "clip_norm": CLIP, **train}
        init = settings.pop("init", "pretrained")
        return write_run_file(self.folder / f"{name}.yaml", {
            "name": name, "storage": str(self.folder / "runs"), "seed": 7,
            "model": {"path": str(self.source), "init": init},
            "data": {"train": [str(self.folder / "train.txt")],
                     "eval": [str(self.folder / "eval.txt")], "tokenizer": self.tokenizer,
                     "seq_length": SEQ_LENGTH, "shuffle": False, "layout": layout, **(data or {})},
            "train": settings, "launch": {"threads": 2}})


def train_texts():
    return SENTENCES + [s[::-1] for s in SENTENCES] + [s + " " + s for s in SENTENCES]


def eval_texts():
    return [f"{i}: {s}" for i, s in enumerate(SENTENCES) if s]


def bytes_case(weft, folder):
    source = folder / "source"
    config = LlamaConfig(
        vocab_size=264, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=256, pad_token_id=None)
    peer.save_random_model(config, source, seed=11)
    return Case("bytes", weft, folder, source, "bytes", lambda text: list(text.encode()))


def qwen2_case(weft, folder):
    files = shared_folder("data", "tokenizers", "qwen2")
    if files is None:
        return None
    source = folder / "source"
    source.mkdir()
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(files / name, source)
    config = Qwen2Config(
        vocab_size=151936, hidden_size=32, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=151643,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
    peer.save_random_model(config, source, seed=12, max_shard_size="60KB")
    tokenizer = AutoTokenizer.from_pretrained(source)
    return Case("qwen2", weft, folder, source, "auto", lambda text: tokenizer(text)["input_ids"])


def half_case(weft, folder):
    """A Qwen2 of bytes: weft's reference, which fp16 has on the CPU, is slow."""
    source = folder / "source"
    config = Qwen2Config(
        vocab_size=264, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=256, pad_token_id=None)
    peer.save_random_model(config, source, seed=13)
    return Case("half", weft, folder, source, "bytes", lambda text: list(text.encode()))


def check_initial(case, checks):
    """steps: 0 writes the initial weights: pretrained ones bit for bit, random ones by rule."""
    run_dir = case.folder / "initial"
    case.weft.call("train", case.run_file("initial", steps=0), "--run-dir", run_dir, "--quiet")
    mine, theirs = peer.weights(peer.load(run_dir / "final")), peer.weights(peer.load(case.source))
    checks.equal(sorted(mine), sorted(theirs), f"{case.name}: names of the initial weights")
    checks.that(all(mine[n].equal(theirs[n]) for n in theirs),
                f"{case.name}: initial weights bit for bit")
    run_dir = case.folder / "random"
    case.weft.call("train", case.run_file("random", steps=0, init="random"), "--run-dir", run_dir,
                   "--quiet")
    random = peer.weights(peer.load(run_dir / "final"))
    wanted = AutoConfig.from_pretrained(case.source).initializer_range
    table = random["model.embed_tokens.weight"]
    checks.close(table.std().item(), wanted, 0.05, f"{case.name}: random init, std of embedding")
    checks.that(all((w == 1).all() for n, w in random.items() if "norm" in n)
                and all((w == 0).all() for n, w in random.items() if n.endswith("bias")),
                f"{case.name}: random init, norms 1 and biases 0")


def check_training(case, checks, run_dir):
    """Three steps of both programs: losses, norms, counts, then every weight."""
    steps, evals = case.weft.train(case.run_file("train"), run_dir)
    rows = case.rows(train_texts())
    theirs = peer.train(case.source, rows, STEPS, BATCH, LR, CLIP)
    checks.equal([line["step"] for line in steps], [1, 2, 3], f"{case.name}: lines of metrics")
    checks.close([line["loss"] for line in steps], theirs.losses, LOSS_TOLERANCE,
                 f"{case.name}: loss of each step")
    checks.close([line["grad_norm"] for line in steps], theirs.grad_norms, NORM_TOLERANCE,
                 f"{case.name}: gradient norm of each step")
    checks.equal([line["target_tokens"] for line in steps], theirs.target_tokens,
                 f"{case.name}: targets of each step")
    checks.equal([line["lr"] for line in steps], [LR] * STEPS, f"{case.name}: lr of each step")
    start, end = peer.weights(peer.load(case.source)), peer.weights(theirs.model)
    mine = peer.weights(peer.load(run_dir / "final"))
    for cancelling, most in ((False, UPDATE_TOLERANCE), (True, CANCELLING_TOLERANCE)):
        names = [n for n in end if n.endswith(CANCELLING) == cancelling]
        worst = max(((mine[n] - end[n]).norm().item() / (end[n] - start[n]).norm().item(), n)
                    for n in names) if names else (0.0, f"no {CANCELLING}")
        checks.that(worst[0] < most, f"{case.name}: weights after {STEPS} steps",
                    f"{worst[0]:.1e} of the way walked, at most {most:g} ({worst[1]})")
    return evals


def check_eval(case, checks, run_dir, evals):
    """final/ read by transformers has weft's evaluation loss."""
    final = run_dir / "final"
    model, rows = peer.load(final).eval(), case.rows(eval_texts())
    wanted, targets = peer.mean_loss(model, rows)
    got = case.weft.json("eval", case.run_file("train"), "--model", final)
    checks.close(got["eval_loss"], wanted, LOSS_TOLERANCE, f"{case.name}: eval loss of final/")
    checks.equal((got["rows"], got["target_tokens"]), (len(rows), targets),
                 f"{case.name}: rows and targets of eval")
    checks.close(got["perplexity"], numpy.exp(wanted), 1e-4, f"{case.name}: perplexity")
    checks.close([line["eval_loss"] for line in evals[-1:]], [wanted], LOSS_TOLERANCE,
                 f"{case.name}: eval loss at the end of the run")
    initial = peer.mean_loss(peer.load(case.source).eval(), rows)[0]
    checks.that(abs(initial - wanted) > 100 * LOSS_TOLERANCE * wanted,
                f"{case.name}: the initial weights would give another loss", f"{initial:.4f}")


def check_generate(case, checks, run_dir):
    """final/ read by transformers continues a prompt as weft does."""
    final = run_dir / "final"
    model = peer.load(final).eval()
    tokenizer = AutoTokenizer.from_pretrained(final)
    for prompt in ("The weft is", "SELECT name"):
        answer = case.weft.json("generate", final, "--prompt", prompt, "--max-new-tokens",
                                NEW_TOKENS, "--temperature", 0)
        ids = answer["ids"]
        ended = ids[-1:] == [model.config.eos_token_id] or len(ids) < NEW_TOKENS
        checks.that(len(ids) == NEW_TOKENS or ended, f"{case.name}: {len(ids)} new tokens")
        below = peer.greedy_shortfall(model, case.encode(prompt), ids) if ids else 0.0
        checks.that(below <= LOGIT_TOLERANCE, f"{case.name}: greedy ids after {prompt!r}",
                    f"{below:.1e} below the largest logit, at most {LOGIT_TOLERANCE:g}")
        checks.equal(answer["text"], tokenizer.decode(ids, skip_special_tokens=True),
                     f"{case.name}: text of the greedy ids")


def check_logits(case, checks, run_dir):
    """final/ read by transformers has weft's logits."""
    check_final_logits(case.weft, checks, case.folder / "golden",
                       {f"final_{case.name}": run_dir / "final"})


def check_tokenizer(case, checks, run_dir):
    """The tokenizer files of final/ yield the ids that training used, in both programs."""
    final = run_dir / "final"
    tokenizer = AutoTokenizer.from_pretrained(final)
    for text in SENTENCES:
        wanted = case.encode(text)
        checks.equal(tokenizer(text)["input_ids"], wanted, f"{case.name}: transformers' ids "
                     f"from final/, {text[:20]!r}")
        mine = case.weft.call("tokenize", final, f"--text={text}", "--ids")
        checks.equal(mine.split(), [str(token) for token in wanted],
                     f"{case.name}: weft's ids from final/, {text[:20]!r}")


def stored_tensors(folder):
    """Every logical tensor of a checkpoint, assembled from its slices with only numpy."""
    index = json.loads((folder / "index.json").read_text())
    kinds = {"F32": numpy.float32, "BF16": numpy.uint16, "F16": numpy.float16}
    tensors = {}
    for name, entry in index["tensors"].items():
        kind = kinds[entry["dtype"]]
        whole = numpy.zeros(entry["shape"], kind)
        for part in entry["slices"]:
            begin, end = part["offsets"]
            data = numpy.frombuffer((folder / part["file"]).read_bytes()[begin:end], kind)
            offset, extent = part["box"]["offset"], part["box"]["extent"]
            place = tuple(slice(o, o + e) for o, e in zip(offset, extent))
            box = whole[place].reshape(-1)
            box[part["flat"][0]:part["flat"][1]] = data
            whole[place] = box.reshape(extent)
        tensors[name] = whole
    return tensors


def check_checkpoint(case, checks, run_dir):
    """The Python safetensors package reads the slices; the index leads to the bits of final/."""
    folder = run_dir / "checkpoints" / f"step-{STEPS:08d}"
    if not checks.that((folder / "COMMITTED").exists(), f"{case.name}: checkpoint is committed"):
        return
    files = sorted(folder.glob("*.safetensors"))
    names = set()
    for path in files:
        with safe_open(path, "np") as file:
            names |= {key.split("@")[0] for key in file.keys()}
    tensors = stored_tensors(folder)
    checks.equal(sorted(names), sorted(tensors), f"{case.name}: safetensors reads {len(files)} "
                 "files with the names of the index")
    final = load_file(run_dir / "final" / "model.safetensors")
    checks.that(all(numpy.array_equal(tensors.get(n), final[n]) for n in final),
                f"{case.name}: checkpoint and final/ hold the same bits")
    states = {f"{n}#{s}" for n in final for s in "mv"}
    checks.equal(sorted(tensors), sorted(states | set(final)), f"{case.name}: weights and states")
    checks.that(all(numpy.isfinite(t).all() for t in tensors.values())
                and all((tensors[n] >= 0).all() for n in states if n.endswith("#v")),
                f"{case.name}: states are finite, second moments not negative")
    checks.equal(json.loads((folder / "state.json").read_text())["step"], STEPS,
                 f"{case.name}: step of state.json")


def check_resume(case, checks, run_dir):
    """Three steps and three more after a stop: the bits of six at once."""
    at_once, together = case.folder / "six", 2 * STEPS
    steps, _ = case.weft.train(case.run_file("train"), at_once, "--set", f"train.steps={together}")
    before = case.weft.call("hash", run_dir)
    resumed, _ = case.weft.train(case.run_file("train"), run_dir, "--set",
                                 f"train.steps={together}")
    after, wanted = case.weft.call("hash", run_dir), case.weft.call("hash", at_once)
    checks.equal(after, wanted, f"{case.name}: hash after a stop and a resume")
    checks.that("states " in after and before != after, f"{case.name}: three steps have another hash")
    for key in ("step", "loss", "grad_norm", "target_tokens"):
        checks.equal([line[key] for line in resumed], [line[key] for line in steps],
                     f"{case.name}: {key} of every line after the resume")
    checks.equal(case.weft.call("hash", run_dir / "final").split("weights ")[-1].split()[0],
                 wanted.split("weights ")[-1].split()[0], f"{case.name}: hash of final/")


def segments_of(row):
    """The token ids of each segment of a packed row."""
    last = max(row["segments"])
    return [[i for i, s in zip(row["ids"], row["segments"]) if s == k] for k in range(1, last + 1)]


def check_pack(case, checks):
    """Packed rows: torch with a block-diagonal mask trains the same; no token is lost."""
    run_file = case.run_file("pack", layout="pack")
    pieces = [ids[at:at + SEQ_LENGTH] for ids in map(case.encode, train_texts()) if len(ids) > 1
              for at in range(0, len(ids), SEQ_LENGTH)]
    shown = case.weft.json("inspect", run_file, "--batches", STEPS)
    batches = [batch["rows"] for batch in shown["batches"]]
    packed = [segment for rows in batches for row in rows for segment in segments_of(row)]
    checks.that(len(packed) > STEPS * BATCH and all(packed.count(s) <= pieces.count(s) for s in packed),
                f"{case.name}: segments of packed rows are rows, or pieces of long ones",
                f"{len(packed)} in {STEPS * BATCH} rows")
    steps, evals = case.weft.train(run_file, case.folder / "pack")
    theirs = peer.train_packed(case.source, batches, LR, CLIP)
    checks.close([line["loss"] for line in steps], theirs.losses, LOSS_TOLERANCE,
                 f"{case.name}: loss of each step, packed")
    checks.close([line["grad_norm"] for line in steps], theirs.grad_norms, NORM_TOLERANCE,
                 f"{case.name}: gradient norm of each step, packed")
    checks.equal([line["target_tokens"] for line in steps], theirs.target_tokens,
                 f"{case.name}: targets of each step, packed")
    leaking = peer.packed_loss(peer.load(case.source), batches[0], blocks=False)[0].item()
    checks.that(abs(leaking - steps[0]["loss"]) > 10 * LOSS_TOLERANCE * leaking,
                f"{case.name}: attention across segments would give another loss", f"{leaking:.6f}")
    rows = [ids[at:at + SEQ_LENGTH] for ids in map(case.encode, eval_texts())
            for at in range(0, len(ids), SEQ_LENGTH)]
    wanted, _ = peer.mean_loss(peer.load(case.folder / "pack" / "final").eval(), [r for r in rows if len(r) > 1])
    checks.close([line["eval_loss"] for line in evals[-1:]], [wanted], LOSS_TOLERANCE,
                 f"{case.name}: eval loss of packed rows, compared with separate rows")


def check_padding(case, checks):
    """Padding and empty rows as labels: every position of the padded row is learned, as transformers does with labels = ids."""
    run_file = case.run_file("padding", data={"mask_padding": False, "drop_empty": False})
    shown = case.weft.json("inspect", run_file, "--batches", STEPS)
    batches = [batch["rows"] for batch in shown["batches"]]
    lengths = [row["length"] for rows in batches for row in rows]
    checks.that(min(lengths) == 0 and max(lengths) == SEQ_LENGTH, f"{case.name}: an empty row and a full one, padding learned")
    steps, _ = case.weft.train(run_file, case.folder / "padding")
    theirs = peer.train_on_padding(case.source, batches, LR, CLIP)
    checks.close([line["loss"] for line in steps], theirs.losses, LOSS_TOLERANCE,
                 f"{case.name}: loss of each step, padding learned")
    checks.close([line["grad_norm"] for line in steps], theirs.grad_norms, NORM_TOLERANCE,
                 f"{case.name}: gradient norm of each step, padding learned")
    checks.equal([line["target_tokens"] for line in steps], theirs.target_tokens,
                 f"{case.name}: targets of each step, padding learned")
    start, ours = peer.weights(peer.load(case.source)), peer.weights(peer.load(case.folder / "padding" / "final"))
    walked = sum((p - start[n]).square().sum() for n, p in peer.weights(theirs.model).items()) ** 0.5
    apart = sum((p - ours[n]).square().sum() for n, p in peer.weights(theirs.model).items()) ** 0.5
    checks.that(apart < UPDATE_TOLERANCE * walked, f"{case.name}: weights, padding learned", f"{apart / walked:.1e} of the way")


def check_dynamic(case, checks):
    """Rows padded to a bucket train as rows padded to seq_length do."""
    steps, _ = case.weft.train(case.run_file("dynamic", layout="dynamic"), case.folder / "dynamic")
    theirs = peer.train(case.source, case.rows(train_texts()), STEPS, BATCH, LR, CLIP)
    checks.close([line["loss"] for line in steps], theirs.losses, LOSS_TOLERANCE,
                 f"{case.name}: loss of each step, dynamic")
    checks.close([line["grad_norm"] for line in steps], theirs.grad_norms, NORM_TOLERANCE,
                 f"{case.name}: gradient norm of each step, dynamic")


def check_sgd(case, checks):
    """torch.optim.SGD, with momentum and without: losses, norms, every weight, the momentum itself."""
    lr, steps = 0.1, 6
    for momentum in (0.9, 0.0):
        what, run_dir = f"{case.name}: SGD, momentum {momentum}", case.folder / f"sgd_{momentum}"
        lines, _ = case.weft.train(case.run_file(run_dir.name, optimizer="sgd", momentum=momentum, lr=lr, steps=steps,
                                                 weight_decay=0.1), run_dir)
        theirs = peer.train(case.source, case.rows(train_texts()), steps, BATCH, lr, CLIP, 0.1, momentum)
        checks.close([line["loss"] for line in lines], theirs.losses, LOSS_TOLERANCE, f"{what}, loss of each step")
        checks.close([line["grad_norm"] for line in lines], theirs.grad_norms, NORM_TOLERANCE,
                     f"{what}, gradient norm of each step")
        start, end = peer.weights(peer.load(case.source)), peer.weights(theirs.model)
        mine = peer.weights(peer.load(run_dir / "final"))
        walked = sum((end[n] - start[n]).square().sum() for n in end) ** 0.5
        apart = sum((end[n] - mine[n]).square().sum() for n in end) ** 0.5
        checks.that(apart < UPDATE_TOLERANCE * walked, f"{what}, weights", f"{apart / walked:.1e} of the way")


def check_bf16(case, checks):
    """Trained in bf16, with and without master weights: near fp32, and readable."""
    wanted = peer.train(case.source, case.rows(train_texts()), STEPS, BATCH, LR, CLIP).losses
    for master in (True, False):
        run_dir = case.folder / f"bf16_{master}"
        steps, _ = case.weft.train(
            case.run_file("bf16", precision="bf16", master_weights=master), run_dir)
        checks.close([line["loss"] for line in steps], wanted, 1e-2,
                     f"{case.name}: bf16 losses, master_weights {master}")
        got = case.weft.json("eval", case.run_file("train"), "--model", run_dir / "final")
        mean, _ = peer.mean_loss(peer.load(run_dir / "final").eval(), case.rows(eval_texts()))
        checks.close(got["eval_loss"], mean, LOSS_TOLERANCE, f"{case.name}: final/ of bf16 in fp32")


def check_fp16(case, checks):
    """Ten steps in fp16 compared with PyTorch's of the same model in float16, masters and scale by hand.

    The CPU's kernels have no fp16: weft's are its reference, with float64 inside, where PyTorch rounds
    more often.
    """
    rows, batch, steps = case.rows(train_texts()), 3, 10
    theirs = peer.train_half(case.source, rows, steps, batch, LR, CLIP)
    case.weft.call("train", case.run_file("fp16", precision="fp16", steps=steps, global_batch=batch,
                                          micro_batch=1), "--run-dir", case.folder / "fp16", "--quiet",
                   "--set", "launch.device=cpu", env={"WEFT_CPU_LEVEL": "ref"})
    lines, _ = read_metrics(case.folder / "fp16")
    checks.close([line["loss"] for line in lines], theirs.losses, HALF_LOSS,
                 f"{case.name}: fp16 losses of each step")
    checks.close([line["grad_norm"] for line in lines], theirs.grad_norms, HALF_NORM,
                 f"{case.name}: fp16 gradient norm of each step")
    checks.equal({line["loss_scale"] for line in lines}, {65536}, f"{case.name}: fp16 loss scale")


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    weft = Weft(args.weft)
    for make in (bytes_case, qwen2_case):
        place = folder / make.__name__
        place.mkdir()
        case = make(weft, place)
        if case is None:
            checks.without_data(make.__name__)
            continue
        (place / "train.txt").write_text("\n".join(train_texts()) + "\n")
        (place / "eval.txt").write_text("\n".join(eval_texts()) + "\n")
        run_dir = place / "run"
        checks.section(check_initial, case)
        evals = checks.section(check_training, case, run_dir)
        checks.section(check_eval, case, run_dir, evals or [])
        checks.section(check_generate, case, run_dir)
        checks.section(check_logits, case, run_dir)
        checks.section(check_tokenizer, case, run_dir)
        checks.section(check_checkpoint, case, run_dir)
        checks.section(check_resume, case, run_dir)
        checks.section(check_pack, case)
        checks.section(check_dynamic, case)
        checks.section(check_sgd, case)
        checks.section(check_padding, case)
        checks.section(check_bf16, case)
    place = folder / "half"
    place.mkdir()
    (place / "train.txt").write_text("\n".join(train_texts()) + "\n")
    (place / "eval.txt").write_text("\n".join(eval_texts()) + "\n")
    checks.section(check_fp16, half_case(weft, place))


if __name__ == "__main__":
    run_program(__doc__, body)
