"""Turns the measurements of mesh_bench.py into the markdown page of benchmarks/results."""

import statistics

from report import GIB, table

PEER_BARS = {("dp 2", "fp32"): 1.3, ("dp 2 zero3", "fp32"): 1.45, ("tp 2", "fp32"): 1.7,
             ("dp 2", "bf16"): 2.0, ("dp 2 zero3", "bf16"): 2.6, ("tp 2", "bf16"): 3.5}
ONE_RANK_BARS = {"dp 2": 0.9, "dp 2 zero3": 0.9, "tp 2": 0.8}
EXACT_BAR, FOUR_BAR = 0.75, 1.3
NAMES = {"ddp": "torch DDP", "fsdp2": "torch FSDP2", "tp": "torch DTensor TP"}


class Figures:
    """Medians over all turns of one program."""

    def __init__(self, turns):
        kept = [ms for turn in turns for ms in turn.kept_ms()]
        self.step_ms = statistics.median(kept)
        self.best_ms, self.worst_ms = min(kept), max(kept)
        self.memory = statistics.median(turn.peak_bytes for turn in turns)
        self.busy = statistics.median(turn.busy_cores for turn in turns)

    def step_text(self):
        return f"{self.step_ms:.0f} ({self.best_ms:.0f}-{self.worst_ms:.0f})"


class Page:
    def __init__(self, model, work, facts):
        self.work, self.bars = work, []
        self.head = [f"# {model} on several ranks, against PyTorch", "", work.text() + ".",
                     "AdamW, lr 1e-4, weight decay 0.01, clipping off. bf16: weights and AdamW's "
                     "states in bf16 in both programs. Ranks have one thread; torch's meet over "
                     "gloo, weft's over shared memory.", ""]
        self.head += [f"- {key}: {value}" for key, value in facts.items()] + [""]
        self.lines = []

    def speed(self, step_ms):
        return f"{1000 * self.work.tokens() / step_ms:.0f}"

    def add_bar(self, what, got, bar, most=False):
        good = got <= bar if most else got >= bar
        self.bars.append([what, f"{got:.2f}x", f"{'<=' if most else '>='} {bar:g}x",
                          "pass" if good else "**short**"])

    def add_peers(self, turns, peers, one_rank, probes, attention, losses):
        figures = {(p.name, p.layout, p.precision): Figures(runs) for p, runs in turns.items()}
        rows = [[NAMES.get(name, f"{name}, {layout}"), precision, self.speed(f.step_ms),
                 f.step_text(), f"{f.memory / GIB:.2f}", f"{f.busy:.2f}"]
                for (name, layout, precision), f in figures.items()]
        self.lines += ["## Two ranks", ""] + table(
            ["program", "precision", "tok/s", "step ms, median (range)", "VmHWM of a rank, GiB",
             "cores busy"], rows)
        for (layout, precision), bar in PEER_BARS.items():
            mine, peer = figures["weft", layout, precision], peers[layout]
            if theirs := figures.get((peer, "", precision)):
                self.add_bar(f"speed {precision}, weft {layout} / {NAMES[peer]}",
                             theirs.step_ms / mine.step_ms, bar)
            else:
                self.bars.append([f"speed {precision}, weft {layout} / {NAMES[peer]}",
                                  "the peer failed", f">= {bar:g}x", "**not measured**"])
            one = figures["weft", one_rank, precision]
            self.add_bar(f"speed {precision}, weft {layout} / {one_rank}",
                         one.step_ms / mine.step_ms, ONE_RANK_BARS[layout])
        self.add_probes(probes, attention)
        self.lines += ["## Losses against one rank of weft", ""] + table(
            ["program", "largest relative difference", "at most"],
            [[p.text(), f"{worst:.1e}", f"{most:g}"] for p, worst, most in losses])

    def add_probes(self, probes, attention):
        taken = ", ".join(f"{precision} {kind}" for precision, kind in attention.items())
        self.lines += [f"PyTorch's attention: {taken}." + (
            " Probes with DDP, the second of two steps:" if probes else " Given, not probed."), ""]
        if probes:
            self.lines += table(["precision", "attention", "step ms"],
                                [[precision, kind, f"{turn.median_ms():.0f}"]
                                 for (precision, kind), turn in probes.items()])

    def add_exact(self, turns):
        rows, base, first = [], None, True
        for program, runs in turns.items():
            f = Figures(runs)
            if not program.constants:  # fast mode comes before the constants of its layout
                base, first = f, True
                rows.append([program.layout, program.precision, "fast", "", "", f.step_text(), ""])
                continue
            ratio = base.step_ms / f.step_ms
            rows.append([program.layout, program.precision, *program.constants, f.step_text(),
                         f"{ratio:.2f}x"])
            if first:
                self.add_bar(f"speed {program.precision}, exact / fast, {program.layout}, default "
                             "constants", ratio, EXACT_BAR)
            first = False
        self.lines += ["## Exact mode against fast", "",
                       "The first constants of each layout are the defaults.", ""] + table(
            ["layout", "precision", "exact_tp", "exact_dp", "exact_rows",
             "step ms, median (range)", "of fast's speed"], rows)

    def add_four(self, turns, four):
        figures = {(p.layout, p.precision): Figures(runs) for p, runs in turns.items()}
        self.lines += ["## Four ranks on the cores of two", ""] + table(
            ["layout", "precision", "step ms, median (range)", "cores busy"],
            [[layout, precision, f.step_text(), f"{f.busy:.2f}"]
             for (layout, precision), f in figures.items()])
        for layout, (_, two) in four.items():
            for precision in dict.fromkeys(p for _, p in figures):
                ratio = figures[layout, precision].step_ms / figures[two, precision].step_ms
                self.add_bar(f"time {precision}, {layout} / {two}", ratio, FOUR_BAR, most=True)

    def text(self, complaints):
        lines = self.head + ["## Bars", ""] + table(["what", "got", "bar", "mark"], self.bars)
        lines += self.lines + [f"FAILED: {complaint}" for complaint in complaints]
        return "\n".join(lines).rstrip() + "\n"
