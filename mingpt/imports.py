"""Imports torch in three quarters of the time. For programs: to be imported before all else."""

import gc
from importlib import import_module

# Modules stay. While they come in, the collector would look through all of them, again and again.
collecting = gc.isenabled()
gc.disable()
import_module("torch._dynamo")  # brings torch; guard.prepare_for_group would import it later
gc.freeze()
if collecting:
    gc.enable()
