"""Declare the cluster that this stack's configuration describes."""

from dataclasses import fields
from importlib import import_module

import pulumi

from gpuclusters.config import loader

loaded = loader.load()
# Only the chosen type is imported: its provider packages are large, the others' need not be there.
outputs = import_module(f"stacks.{loaded.cluster_type}").build(loaded.section, loaded.secrets)
for field in fields(outputs):
    pulumi.export(field.name, getattr(outputs, field.name))
