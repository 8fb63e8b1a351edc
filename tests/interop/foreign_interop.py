#!/usr/bin/env python3
"""weft reads what torch.save, DeepSpeed and torch.distributed.checkpoint wrote, to the bit.

    foreign_interop.py --weft build/weft

State dicts of every dtype and layout, pytorch_model.bin in one file and in shards, ZeRO 1 to 3 of
two processes against DeepSpeed's own zero_to_fp32, FSDP2 and DTensor shards against the gathered
tensors. Files that would run code, and those of other formats, are refused without running it.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config

import peer
from common import Weft, run_program, run_ranks, write_run_file

HERE = Path(__file__).resolve().parent
PEER_DEADLINE_S = 300
ZERO = [(1, "float32"), (2, "bfloat16"), (3, "float32"), (3, "bfloat16"), (2, "float32")]


def write_model(folder):
    config = Qwen2Config(vocab_size=264, hidden_size=48, intermediate_size=100, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                         max_position_embeddings=64, bos_token_id=None, eos_token_id=256,
                         pad_token_id=None)
    peer.save_random_model(config, folder, seed=5)
    return load_file(folder / "model.safetensors")


def state_dict():
    base = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.bool]
    tensors = OrderedDict((str(k).removeprefix("torch."), (base * 9).to(k)) for k in kinds)
    tensors["rows"] = base[2:5]  # a view of a storage that others share
    tensors["transposed"] = base.t()
    tensors["every_second"] = base[1:, ::2]
    tensors["permuted"] = torch.arange(120.).reshape(4, 5, 6).permute(2, 0, 1)
    tensors["scalar"] = torch.tensor(3.5)
    tensors["empty"] = torch.zeros(0, 3)
    tensors["parameter"] = torch.nn.Parameter(torch.ones(3))
    return tensors


def check_torch_save(weft, checks, folder):
    tensors = state_dict()
    nested = {"epoch": 3, "model": tensors, "history": [1.5, None, {"loss": torch.tensor([2.0])}]}
    torch.save(nested, folder / "nested.pt")
    torch.save(tensors, folder / "flat.pt", pickle_protocol=4)
    plain = {k: t.detach().clone().contiguous() for k, t in tensors.items()}
    save_file(plain, folder / "flat.safetensors")
    save_file({f"model.{k}": t for k, t in plain.items()} | {"history.2.loss": torch.tensor([2.0])},
              folder / "nested.safetensors")
    for name in ("flat", "nested"):
        said = weft.call("diff", folder / f"{name}.pt", folder / f"{name}.safetensors")
        checks.that(said.startswith("identical"), f"torch.save: {name}, every dtype and view", said.strip())
    plain["rows"] = plain["rows"] + 1e-6
    save_file(plain, folder / "other.safetensors")
    said = weft.call("diff", folder / "flat.pt", folder / "other.safetensors", wanted=1)
    checks.that(said.startswith("rows "), "torch.save: control, a nudged view is found")


def refusal(weft, path, checks, what, reason):
    done = subprocess.run([weft.path, "hash", path], capture_output=True, text=True, timeout=60,
                          check=False)
    checks.that(done.returncode == 2 and reason in done.stderr, what,
                "" if reason in done.stderr else f"exit {done.returncode}: {done.stderr}")


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def check_hostile(weft, checks, folder):
    proof = folder / "executed"
    torch.save({"w": torch.ones(2), "x": Runs(proof)}, folder / "code.pt")
    save_file({"w": torch.ones(2)}, folder / "w.safetensors")
    said = weft.call("diff", folder / "code.pt", folder / "w.safetensors")
    checks.that(said.startswith("identical") and not proof.exists(), "a pickle that would run a command: not run")
    (folder / "old.pt").write_bytes(b"")
    torch.save({"w": torch.ones(2)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    model = folder / "legacy"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (folder / "old.pt").rename(model / "pytorch_model.bin")
    refusal(weft, model, checks, "torch's older format is named", "older format")
    torch.save({"w": torch.ones(2)}, folder / "good.pt")
    packed = model / "pytorch_model.bin"
    with zipfile.ZipFile(folder / "good.pt") as good, \
            zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name in good.namelist():
            out.writestr(name, good.read(name))
    refusal(weft, model, checks, "a compressed archive is refused", "is compressed")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as out:
        out.writestr("archive/data.pkl", b"\x80\x02(ios\nsystem\n.")
    refusal(weft, model, checks, "a forbidden instruction is named", "instruction INST")


def write_run(folder, model):
    (folder / "rows.txt").write_text("".join(f"row {i} of text\n" for i in range(16)))
    return write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(model)},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 24},
        "train": {"steps": 2, "global_batch": 4, "micro_batch": 2, "lr": 1e-3},
        "launch": {"threads": 1}})


def check_bin(weft, checks, folder, model, weights):
    """The tied head is stored too, as transformers did: a second view of the embedding."""
    stored = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    for name in ("single", "sharded"):
        place = folder / name
        place.mkdir()
        (place / "config.json").write_text((model / "config.json").read_text())
        if name == "single":
            torch.save(stored, place / "pytorch_model.bin")
        else:
            keys, index = sorted(stored), {}
            for i in range(3):
                shard = f"pytorch_model-{i + 1:05}-of-00003.bin"
                torch.save({k: stored[k] for k in keys[i::3]}, place / shard)
                index |= {k: shard for k in keys[i::3]}
            (place / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
        checks.equal(weft.call("hash", place), weft.call("hash", model), f"{name} .bin: hash")
        weft.call("export", place, folder / f"{name}_out")
        said = weft.call("diff", folder / f"{name}_out", model)
        checks.that(said.startswith("identical"), f"{name} .bin: export", said.strip())
    ends = {}
    for name, path in (("safetensors", model), ("bin", folder / "single")):
        run_dir = folder / f"run_{name}"
        weft.train(write_run(folder, path), run_dir)
        ends[name] = weft.call("hash", run_dir)
    checks.equal(ends["bin"], ends["safetensors"], "model.path: two steps from .bin and from safetensors")


def run_peer(folder, model):
    job = {"store": str(folder / "store"), "size": 2, "model": str(model), "out": str(folder), "zero": ZERO}
    (folder / "job.json").write_text(json.dumps(job))
    env = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
           "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    run_ranks([[sys.executable, HERE / "foreign_peer.py", rank, folder / "job.json"] for rank in range(2)],
              folder / "peer.log", PEER_DEADLINE_S, env)


def check_same(weft, checks, got, wanted, what, num_tensors):
    said = weft.call("diff", got, wanted)
    checks.that(said == f"identical: {num_tensors} tensors\n", what, said.strip())


def joined_moments(folder):
    """Of ZeRO 1 and 2: the ranks' parts one after the other, cut by the shapes of the parameters."""
    model = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    ranks = [torch.load(path, weights_only=False)["optimizer_state_dict"]
             for path in sorted(folder.glob("*_optim_states.pt"))]
    moments = {}
    for key, suffix in (("exp_avg", "#m"), ("exp_avg_sq", "#v")):
        for group, shapes in enumerate(model["param_shapes"]):
            flat = torch.cat([rank["base_optimizer_state"]["state"][group][key] for rank in ranks])
            for name, shape in shapes.items():
                moments[name + suffix] = flat[:shape.numel()].view(shape)
                flat = flat[shape.numel():]
    return moments


def check_deepspeed(weft, checks, folder, model):
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    frozen = "model.layers.0.mlp.up_proj.weight"
    for stage, precision in ZERO:
        name = f"zero{stage}_{precision}"
        gathered = torch.load(folder / f"{name}.pt")
        if stage < 3:
            gathered |= joined_moments(folder / name / "global_step2")
        with contextlib.redirect_stdout(io.StringIO()):
            theirs = get_fp32_state_dict_from_zero_checkpoint(folder / name)
        if stage == 1:  # it leaves the frozen tensor out; weft takes it from the model
            theirs[frozen] = load_file(model / "model.safetensors")[frozen]
        whole = {k: t.clone().contiguous() for k, t in theirs.items()}
        torch.save(whole | {k: t for k, t in gathered.items() if "#" in k}, folder / "wanted.pt")
        same = all(torch.equal(whole[k], gathered[k]) for k in gathered if "#" not in k)
        num_tensors = len(whole) + sum("#" in k for k in gathered)
        checks.that(same and frozen in whole and num_tensors > 3 * 20, f"{name}: the peer agrees with itself",
                    f"{num_tensors} tensors")
        check_same(weft, checks, folder / name, folder / "wanted.pt",
                   f"{name}: zero_to_fp32's weights and the optimizer's moments", num_tensors)
        checks.equal(weft.json("inspect", folder / name)["step"], 2, f"{name}: step")
        weft.call("export", folder / name, folder / "out", "--config", model, "--overwrite")
        mine = load_file(folder / "out" / "model.safetensors")
        checks.that(set(whole) - set(mine) == {"lm_head.weight"}
                    and all(torch.equal(t, whole[k]) for k, t in mine.items()), f"{name}: export")
    loaded = peer.load(folder / "out")
    checks.that(torch.equal(loaded.model.norm.weight, whole["model.norm.weight"]), "transformers loads the export")
    try:
        weft.call("export", folder / "zero2_float32", folder / "none", wanted=2)
        checks.that(not (folder / "none").exists(), "without config.json there is no export")
    except RuntimeError as error:
        checks.that(False, "without config.json there is no export", str(error))
    check_model_path(weft, checks, folder, folder / "zero2_float32", folder / "out", model)


def check_model_path(weft, checks, folder, source, exported, model):
    """Two steps from the folder itself, with config.json put into it, and from its export."""
    done = subprocess.run([weft.path, "train", write_run(folder, source), "--run-dir", folder / "no_config"],
                          capture_output=True, text=True, timeout=60, check=False)
    checks.that(done.returncode == 2 and "--config MODEL" in done.stderr,
                f"model.path: {source.name} without config.json says what to do", done.stderr.strip())
    (source / "config.json").write_text((model / "config.json").read_text())
    ends = []
    for i, path in enumerate((source, exported)):
        run_dir = folder / f"run_{source.name}_{i}"
        weft.train(write_run(folder, path), run_dir, "--set", "parallel.dp=2", "--set", "parallel.shard=zero3")
        ends.append(weft.call("hash", run_dir))
    checks.equal(ends[0], ends[1], f"model.path: {source.name} and its export")


def check_dcp(weft, checks, folder, model):
    for kind in ("fsdp2", "tp"):
        gathered = torch.load(folder / f"{kind}.pt")
        check_same(weft, checks, folder / kind, folder / f"{kind}.pt", f"{kind}: weights and moments",
                   len(gathered))
        weft.call("export", folder / kind, folder / f"{kind}_out", "--config", model)
        mine = load_file(folder / f"{kind}_out" / "model.safetensors")
        wanted = {k for k in gathered if "#" not in k and k != "lm_head.weight"}
        checks.that(set(mine) == wanted and all(torch.equal(mine[k], gathered[k]) for k in wanted),
                    f"{kind}: export")
    check_model_path(weft, checks, folder, folder / "fsdp2", folder / "fsdp2_out", model)
    (folder / "fsdp2" / "__1_0.distcp").unlink()
    refusal(weft, folder / "fsdp2", checks, "a missing file is named", "__1_0.distcp is missing")


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    weft = Weft(args.weft)
    model = folder / "model"
    weights = write_model(model)
    check_torch_save(weft, checks, folder)
    check_hostile(weft, checks, folder)
    check_bin(weft, checks, folder, model, weights)
    place = folder / "peer"
    place.mkdir()
    run_peer(place, model)
    check_dcp(weft, checks, place, model)
    check_deepspeed(weft, checks, place, model)


if __name__ == "__main__":
    run_program(__doc__, body)
