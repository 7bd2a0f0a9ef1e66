"""The rules, by what they are about. Their order is that of the report."""

from . import processes, replicas, data, epochs, training, files, source, restart, parity  # noqa: F401, I001
