"""Texts of which the entropy is known, and what the trainer's log says about learning them."""

import json
import random


def uniform(count, letters="abcdefghijklmnop", seed=0):
    """Letters that nobody can predict: ln 16 nats each."""
    return "".join(random.Random(seed).choices(letters, k=count))


def markov(count, letters="abcdefgh", seed=0):
    """Each letter is followed by one of three, 60 : 30 : 10, that depend on it.

    The entropy is that of (0.6, 0.3, 0.1), 0.8979 nats, whatever came before.
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
    """`{step: value}` of a figure in the log; the last one told counts."""
    return {line["step"]: line[key] for line in log(folder, name) if key in line}
