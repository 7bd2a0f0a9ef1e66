"""Tokenizers: text to numbers and back."""

import numpy as np

from guard import UserError


def build(kind, text):
    """A tokenizer of this kind for `text`. Raises UserError."""
    return BytePairs() if kind == "gpt2" else Characters("".join(sorted(set(text))))


def restore(about):
    """The tokenizer that a checkpoint describes by `about`. Raises UserError."""
    return BytePairs() if about["kind"] == "gpt2" else Characters(about["vocabulary"])


class Characters:
    """One token per character: its index in the vocabulary, a string."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.codes = np.frombuffer(vocabulary.encode("utf-32-le"), np.uint32)  # ascending

    @property
    def about(self):
        return {"kind": "chars", "vocabulary": self.vocabulary}

    def __len__(self):
        return len(self.vocabulary)

    def encode(self, text):
        """An array of tokens. Raises UserError for a character that is not in the vocabulary."""
        unknown = sorted(set(text) - set(self.vocabulary))
        if unknown:
            raise UserError(
                f"{unknown[0]!r} is not among the {len(self)} characters the model was trained on"
            )
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        return np.searchsorted(self.codes, codes).astype(np.min_scalar_type(len(self)))

    def decode(self, tokens):
        return "".join(self.vocabulary[token] for token in tokens)


class BytePairs:
    """GPT-2's 50,257 tokens. tiktoken downloads the vocabulary once and caches it."""

    about = {"kind": "gpt2"}  # noqa: RUF012

    def __init__(self):
        try:
            import tiktoken
        except ImportError:
            raise UserError("this needs the package tiktoken: pip install tiktoken") from None
        try:
            self.encoding = tiktoken.get_encoding("gpt2")
        except Exception as error:  # tiktoken documents no exceptions; most come from the network
            raise UserError(
                f"tiktoken cannot get GPT-2's vocabulary ({type(error).__name__}): connect once, "
                "or set TIKTOKEN_CACHE_DIR to a folder that has it"
            ) from None

    def __len__(self):
        return self.encoding.n_vocab

    def encode(self, text):
        """An array of tokens."""
        return self.encoding.encode_to_numpy(text, disallowed_special=()).astype(np.uint16)

    def decode(self, tokens):
        return self.encoding.decode(list(tokens))
