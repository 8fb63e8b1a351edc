"""What ray_beside_interop.py has measured, as a page of tables, and the bars that it is held to."""

from ray_beside import KINDS

import report  # in benchmarks/, which ray_beside's torch_on_ray has put on the path
import workload


class Page:
    """Rows of tables."""

    def __init__(self):
        self.fields, self.starts, self.steps, self.recoveries, self.bars = [], [], [], [], []

    def add_step(self, who, seconds):
        self.steps.append([who, f"{1000 * seconds:.0f}", f"{workload.MODEL_S.tokens() / seconds:.0f}"])

    def add_bar(self, what, got, bar, good):
        self.bars.append([what, got, bar, "pass" if good else "**short**"])

    def text(self, facts):
        lines = ["# WeftTrainer beside TorchTrainer", "", workload.MODEL_S.text() + ".",
                 "fp32, AdamW, TP 2 x DP 2 on four workers of one thread, one node, Ray's cluster running. TorchTrainer: Ray Train V2, FSDP2 and "
                 "DTensor, gloo. WeftTrainer: zero3. Fields of Result: a tiny model.", ""]
        if self.recoveries:
            lines += [f"kill -9 of an actor or a raylet: a smaller model ({workload.MODEL_1M.text()}), DP 2 on two nodes (network namespaces) of one worker; "
                      "a third node is spare.", ""]
        lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
        if self.starts:
            lines += ["From fit() to the first step: until metrics.jsonl has its first line. Bars are on the later times (\"again\"), where the node has the program. The first step's "
                      "own work is a part of the time: the bar of model S is on the time less the median step, that of the tiny model, whose step is short, on the whole time.", ""]
        for title, head, rows in (
                ("Bars", ["what", "got", "bar", "mark"], self.bars),
                ("From fit() to the first step", ["trainer", "first fit(), s", "again, s (median)", "again, less a step, s"], self.starts),
                ("Step", ["trainer", "ms, median", "tok/s"], self.steps),
                ("kill -9, max_failures=-1", ["of", "trainer", "to the next completed step, s", "less a step, s",
                                              "since Ray reported the node, less a step, s", "steps repeated"], self.recoveries),
                ("Fields of Result", ["field", *KINDS], self.fields)):
            lines += [f"## {title}", "", *report.table(head, rows)] if rows else []
        return "\n".join(lines).rstrip() + "\n"


def hold(case, page, what, got, bar, unit, least=False):
    """A bar; on a machine that others use a time may be ten times as long, and a speed a tenth."""
    page.add_bar(what, f"{got:.2f}{unit}", f"{'>=' if least else '<='} {bar:g}{unit}", got >= bar if least else got <= bar)
    loose = bar / case.slack if least else bar * case.slack
    case.checks.that(got >= loose if least else got <= loose,
                     f"{what}: {got:.2f}{unit} (promised {bar:g}{unit}, {'at least' if least else 'at most'} {loose:g}{unit} here)")
