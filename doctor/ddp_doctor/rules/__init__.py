"""The rules, by what they are about. Their order is that of the report."""

from . import endings, cut_off, replicas, reductions, sample_shares, randomness, split_layers, loader_use, steps, clipping, memory, selection, shared_files, checkpoint_files, source_code, resuming, parity  # noqa: F401, E501, I001
