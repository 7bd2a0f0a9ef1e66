"""Text to numbers and back."""

import numpy as np

from utils import Mistake

KINDS = ("chars", "gpt2")


def build(kind, text):
    """The tokenizer of this kind for `text`."""
    return Characters("".join(sorted(set(text))))


def restore(about):
    """The tokenizer that `about`, its entry in a checkpoint, describes."""
    return Characters(about["vocabulary"])


class Characters:
    """One token for each character; the vocabulary is a string, and a token is a place in it."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.codes = np.frombuffer(vocabulary.encode("utf-32-le"), np.uint32)  # ascending

    @property
    def about(self):
        return {"kind": "chars", "vocabulary": self.vocabulary}

    def __len__(self):
        return len(self.vocabulary)

    def encode(self, text):
        """An array of tokens. Raises Mistake for a character that is not in the vocabulary."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown:
            raise Mistake(
                f"{unknown[0]!r} is not among the {len(self)} characters the model was trained on"
            )
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        return np.searchsorted(self.codes, codes).astype(np.min_scalar_type(len(self)))

    def decode(self, tokens):
        return "".join(self.vocabulary[token] for token in tokens)
