"""Turns measurements into the markdown page of benchmarks/results."""

import datetime
import os
import platform
import shlex
import statistics
import subprocess
import sys
from importlib import metadata

from workload import MODEL_1M, MODEL_S

GIB = 2**30


def output_of(command, folder="."):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=folder,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cpu_name():
    for line in output_of(["lscpu"]).splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def command_line(root):
    """How we were called, without the paths of this machine; FULL decides what a program measures."""
    full = os.environ.get("FULL", "") not in ("", "0")
    words = [*(["FULL=1"] if full else []), "python", os.path.relpath(sys.argv[0], root)]
    for word in sys.argv[1:]:
        inside = os.path.abspath(word).startswith(f"{root}{os.sep}")
        is_path = os.sep in word
        words.append(os.path.relpath(word, root) if is_path and inside else
                     os.path.basename(word) if is_path else word)
    return shlex.join(words)


def gpu_name():
    return output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).split("\n")[0]


def run_facts(root, device="cpu"):
    """Of a measurement without a peer."""
    commit = output_of(["git", "rev-parse", "--short=12", "HEAD"], root) or "unknown"
    if output_of(["git", "status", "--porcelain", "--untracked-files=no"], root):
        commit += " with changes"
    gpu = f"{gpu_name() or 'unknown GPU'}; " if device == "cuda" else ""
    return {
        "hardware": f"{gpu}{cpu_name()}, {platform.machine()}, {os.cpu_count()} cores, "
                    f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": f"`{command_line(root)}`",
        "load before": f"{os.getloadavg()[0]:.1f} (programs of others; 0 is a quiet machine)"}


def list_of(facts):
    return [f"- {key}: {value}" for key, value in facts.items()]


def machine_facts(root, threads="2 threads"):
    return run_facts(root) | {
        "peer": f"torch {metadata.version('torch')}, "
                f"transformers {metadata.version('transformers')}, {threads}"}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


class Figures:
    """Medians over all turns of one program."""

    def __init__(self, turns):
        kept = [ms for turn in turns for ms in turn.kept_ms()]
        self.step_ms = statistics.median(kept)
        self.best_ms, self.worst_ms = min(kept), max(kept)
        self.tokens_per_s = 1000 * MODEL_S.tokens() / self.step_ms
        self.memory = statistics.median(turn.peak_bytes for turn in turns)
        self.to_first_step_s = statistics.median(turn.to_first_step_s() for turn in turns)
        self.busy = statistics.median(turn.busy_cores for turn in turns)


def speed_rows(figures):
    rows = []
    for program, f in figures.items():
        floor = program.name == "floor"
        rows.append([
            "floor: products alone, torch.mm" if floor else program.name, program.precision,
            f"{f.tokens_per_s:.0f}", f"{f.step_ms:.0f} ({f.best_ms:.0f}-{f.worst_ms:.0f})",
            f"{MODEL_S.product_flops() / f.step_ms / 1e6:.0f}",
            "" if floor else f"{f.memory / GIB:.2f}",
            "" if floor else f"{f.to_first_step_s:.2f}",
            "" if floor else f"{f.busy:.2f}"])
    return rows


def probe_rows(probes):
    fastest = {p: min(t.median_ms() for (q, _), t in probes.items() if q == p) for p, _ in probes}
    return [[precision, kind, f"{turn.median_ms():.0f}", f"{turn.peak_bytes / GIB:.2f}",
             "yes" if turn.median_ms() == fastest[precision] else ""]
            for (precision, kind), turn in probes.items()]


def bar_rows(figures, probes, small):
    """(what, got, bar, aim, mark); a figure that could not be measured has no row."""
    by_name = {(p.name, p.precision): f for p, f in figures.items()}
    rows = []

    def add(what, got, bar, most=False, aim="", unit="x"):
        good = got <= bar if most else got >= bar
        sign = "<=" if most else ">="
        rows.append([what, f"{got:.2f}{unit}", f"{sign} {bar:g}{unit}", aim,
                     "pass" if good else "**short**"])

    for precision, peer, bar, aim in (("fp32", "eager", 1.4, "1.6x"),
                                      ("fp32", "compiled", 1.05, "1.2x"),
                                      ("bf16", "eager", 2.0, "3x")):
        mine, theirs = by_name.get(("weft", precision)), by_name.get((peer, precision))
        if mine and theirs:
            add(f"speed {precision}, weft / {peer}", theirs.step_ms / mine.step_ms, bar, aim=aim)
    for precision, bar in (("fp32", 0.45), ("bf16", 0.35)):
        mine = by_name.get(("weft", precision))
        if mine:
            least = min(turn.peak_bytes for (p, _), turn in probes.items() if p == precision)
            add(f"memory {precision}, weft / eager", mine.memory / least, bar, most=True)
    mine = by_name.get(("weft", "fp32"))
    if mine:
        add("to the first step, less the step", mine.to_first_step_s, 0.5, most=True, unit=" s")
    if "weft" in small:
        add("1 M parameters, first step included", small["weft"], 1.0, most=True, unit=" s")
    return rows


def growth_rows(growth):
    if not growth:
        return []
    base_ms, base_bytes = growth[0][2], growth[0][3]
    return [[size, f"{factor}x", f"{ms:.0f}", f"{ms / base_ms:.2f}x", f"{peak / GIB:.2f}",
             f"{peak / base_bytes:.2f}x"] for size, factor, ms, peak in growth]


def markdown(facts, turns, probes, small, growth, losses, complaints):
    figures = {program: Figures(runs) for program, runs in turns.items() if runs}
    lines = ["# Model S against PyTorch", "", MODEL_S.text() + ".",
             "AdamW, lr 1e-4, weight decay 0.01, clipping off. bf16: weights and AdamW's states in "
             "bf16 in both programs.", ""]
    lines += list_of(facts) + [""]
    lines += table(["program", "precision", "tok/s", "step ms, median (range)",
                    "GFLOP/s of products", "VmHWM GiB", "to first step s", "cores busy"],
                   speed_rows(figures))
    lines += ["PyTorch eager with either attention, two steps, second one; the faster runs the turns:",
              ""]
    lines += table(["precision", "attention", "step ms", "VmHWM GiB", "taken"], probe_rows(probes))
    bars = bar_rows(figures, probes, small)
    if bars:
        lines += ["## Bars", ""] + table(["what", "got", "bar", "aim", "mark"], bars)
    lines += ["Exec to first line of metrics, 1 M parameters (" + MODEL_1M.text() + "): "
              + ", ".join(f"{name} {s:.2f} s" for name, s in small.items()) + ".", ""]
    if losses:
        lines += ["## Losses side by side", ""] + table(
            ["precision", "step", "weft", "PyTorch eager", "relative difference"],
            [[p, step, f"{a:.6f}", f"{b:.6f}", f"{d:.1e}"] for p, step, a, b, d in losses])
    if growth:
        lines += ["## Growth (weft, fp32)", ""] + table(
            ["size", "factor", "step ms", "time", "VmHWM GiB", "memory"], growth_rows(growth))
    lines += [f"FAILED: {complaint}" for complaint in complaints]
    return "\n".join(lines).rstrip() + "\n"


def publish(text, out, complaints):
    """Prints the text, and writes it where a file was given; the exit code."""
    print("\n" + text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    return 1 if complaints else 0
