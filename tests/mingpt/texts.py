"""Texts with known entropy, and what the trainer's log says about learning them."""

import json
import random


def uniform(count, letters="abcdefghijklmnop", seed=0):
    """Random letters: ln 16 nats each."""
    return "".join(random.Random(seed).choices(letters, k=count))


def markov(count, letters="abcdefgh", seed=0):
    """Each letter allows three next letters, with odds of 60 : 30 : 10.

    The entropy per letter is that of (0.6, 0.3, 0.1): 0.8979 nats.
    """
    draw = random.Random(seed)
    follows = {letter: draw.sample(letters, 3) for letter in letters}
    text = [letters[0]]
    while len(text) < count:
        text += draw.choices(follows[text[-1]], (6, 3, 1))
    return "".join(text)


def log(folder, name="mingpt"):
    """The lines of the trainer's log."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def curve(folder, key="val_loss", name="mingpt"):
    """`{step: value}` of a number in the log; the last line of a step counts."""
    return {line["step"]: line[key] for line in log(folder, name) if key in line}
