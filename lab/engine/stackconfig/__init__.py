"""The configuration of stacks: files, keys, values, and what the project says about them."""

from lab.engine.stackconfig.effective import effective, refuse_unsupported, validate
from lab.engine.stackconfig.keys import ConfigKey, parse_key, parse_path_key
from lab.engine.stackconfig.stackfile import StackFile
from lab.engine.stackconfig.values import Secure, Tree

__all__ = [
    "ConfigKey",
    "Secure",
    "StackFile",
    "Tree",
    "effective",
    "parse_key",
    "parse_path_key",
    "refuse_unsupported",
    "validate",
]
