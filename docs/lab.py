"""Helpers for the pages' code cells: run a command, read its log, draw a figure.

On the site, the output of a command is the recorded one: tools/pages/recordings.py.
"""

import json
import os
import re
import subprocess

import matplotlib.pyplot as plt

INK = "#010203"  # replaced by the colour of the text around a figure: docs/_ext/pictures.py
COLORS = ("#3b82c4", "#d9730d", "#2a9d6f", "#a463c9")  # 3:1 or more on white and on black


def run(*lines):
    """Run shell lines, one after the other, in a new copy of the scripts; return all output."""
    if "PAGES_BUILD" in os.environ:
        from tools.pages.record import book

        if book().is_not_measured(lines):
            return ""
        return "".join(one.output for one in book().kept.find(lines).ran)
    if os.path.exists("recorded.json"):  # a notebook has here what takes too long to run again
        with open("recorded.json") as file:
            known = json.load(file)
        if "\n".join(lines) in known:
            return known["\n".join(lines)]
    from fresh import fresh

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": fresh()}
    log = ""
    for line in lines:
        ran = subprocess.run(["bash", "-o", "pipefail", "-c", line], **options)
        log += ran.stdout
        if ran.returncode:
            raise RuntimeError(f"status {ran.returncode}: {line}\n{ran.stdout}")
    return log


def epochs(log):
    """`(epoch, loss, samples, samples per second)` of each epoch's line in a log."""
    pattern = r"Epoch +(\d+) \| loss ([\d.]+) over (\d+) samples \| ([\d,]+) samples/s"
    return [
        (int(epoch), float(loss), int(samples), int(speed.replace(",", "")))
        for epoch, loss, samples, speed in re.findall(pattern, log)
    ]


def picture(alt, width=7.2, height=2.9, rows=1, columns=1, **options):
    """A figure and its axes. `alt` describes it for readers who cannot see it."""
    style = {
        "axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "lines.linewidth": 2,
        "axes.prop_cycle": plt.cycler(color=COLORS), "legend.frameon": False,
    }  # fmt: skip
    if "PAGES_BUILD" in os.environ:
        style |= dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color",
             "ytick.color"), INK,
        )  # fmt: skip
    plt.rcParams.update(style)
    options = {"figsize": (width, height), "layout": "constrained", **options}
    figure, axes = plt.subplots(rows, columns, **options)
    figure.set_label(alt)
    return figure, axes
