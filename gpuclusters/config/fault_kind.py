"""What can be wrong with a stack file apart from rules: each kind has an id, a meaning and a way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class About:
    """What is told about a kind of fault by `gpu-clusters explain`."""

    id: str
    cause: str
    fix: str


class FaultKind(Enum):
    """Every kind, with what it means."""

    GENERAL = About(
        "wrong-value",
        "Something in the stack file cannot be used.",
        "The message says what to write instead.",
    )
    MISSING = About(
        "missing-key",
        "A key that has no default is not there.",
        "Write it; the message says what it is for.",
    )
    UNKNOWN_KEY = About(
        "unknown-key",
        "A key that this section does not have, most often a typing mistake. A key that nobody reads is "
        "refused, because it would change nothing and look as if it did.",
        "Take the key that is suggested, or remove it.",
    )
    WRONG_TYPE = About(
        "wrong-type",
        "A value is of another kind: text for a number, a list for a mapping, a number for text.",
        "Write what the message asks for. YAML needs quotes around text that looks like a number.",
    )
    NOT_A_CHOICE = About(
        "not-a-choice",
        "A value is not one of those that the key takes.",
        "Write one of the values that the message lists.",
    )
    OUT_OF_RANGE = About(
        "out-of-range",
        "A number is smaller or larger than the key allows.",
        "Write a number within the range of the message.",
    )
    WRONG_LENGTH = About(
        "wrong-length",
        "A text or list is empty, too short or too long.",
        "Write as many as the message says.",
    )
    REFUSED_VALUE = About(
        "refused-value",
        "A value is of the right kind but not of the right form: no DNS label, no PCI address, no range.",
        "Write it in the form of the message.",
    )
    CLUSTER_TYPE = About(
        "unknown-cluster-type",
        "`gpu-clusters:cluster-type` is missing, mistyped, or names a type that this version does not have.",
        "Write one of the types that the message lists.",
    )
    KEY_IS_NO_TEXT = About(
        "key-is-no-text",
        "A key is a number, a truth value or nothing to YAML, for example `on` or `8`.",
        "Put it in quotes.",
    )
    TOO_DEEP = About(
        "nested-too-deeply",
        "Mappings and lists lie within each other deeper than any section goes.",
        "Look for wrong indentation; docs/configuration.md shows how deep each section is.",
    )
    ENCRYPTED_SECTION = About(
        "encrypted-section",
        "Part of the description of the cluster was set with `--secret`. It holds no secrets, and rules "
        "could not read it.",
        "Set it again without `--secret`.",
    )
    PLAIN_SECRET = About(
        "plain-secret",
        "A secret stands in the stack file for everybody to read.",
        "Replace the secret itself, since it was readable, and set it with `pulumi config set --secret`.",
    )
    SECRET = About(
        "wrong-secret",
        "A secret that the stack needs is missing, or is not the text that it should be.",
        "Set it with the command in the message.",
    )
    UNUSED_SECRET = About(
        "unused-secret",
        "A secret was set that nobody reads with this configuration.",
        "Remove it with `pulumi config rm`: what is not needed cannot leak.",
    )
    UNREADABLE_FILE = About(
        "unreadable-stack-file",
        "The stack file is missing, is no YAML, or is too large.",
        "Correct it at the place that the message names.",
    )
    LAB = About(
        "lab-not-usable",
        "The configuration says `source: lab`, and the lab does not run or does not fit to it.",
        "`gpu-clusters lab status` shows what runs; `gpu-clusters lab start` starts it.",
    )
    CHART = About(
        "chart-file",
        "A chart that stands beside the stack cannot be read, or is not the file whose checksum was written.",
        "Put the right archive there with `helm pull`, or write its checksum if you trust it.",
    )

    @property
    def id(self) -> str:
        """As it is printed."""
        return self.value.id
