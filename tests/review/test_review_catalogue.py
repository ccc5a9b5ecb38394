"""Realistic changes, each with the comment that it gets. Could you say yes or no from one alone?

`python -m tests.review.catalogue.make` makes the recorded plans anew, `pytest --snapshot-update` the
comments.
"""

from __future__ import annotations

import random

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from gpuclusters.policy.rules import RULES
from gpuclusters.review.cost import price_table
from gpuclusters.review.plan import Plan
from gpuclusters.review.review import Level, Review, review
from tests.review.catalogue import loading
from tests.review.reviewing import comment, plan_of

LEVELS = {
    "nothing": Level.NOTHING,
    "found-different-on-the-machine": Level.SAFE,
    "quota-raised": Level.SAFE,
    "internet-opened": Level.LOOK,
    "firmware-set": Level.LOOK,
    "first-deployment": Level.LOOK,
    "scale-out": Level.LOOK,
    "tenant-added": Level.SAFE,
    "quota-lowered": Level.LOOK,
    "maintenance": Level.DANGEROUS,
    "image-bumped": Level.LOOK,
    "fewer-controllers": Level.LOOK,
    "secret-rotated": Level.LOOK,
    "operator-upgraded": Level.LOOK,
    "rke2-upgraded": Level.DANGEROUS,
    "machine-added-on-google-cloud": Level.LOOK,
    "scale-in": Level.DANGEROUS,
    "tenant-removed": Level.DANGEROUS,
    "tenant-moved": Level.DANGEROUS,
    "relayout": Level.DANGEROUS,
    "by-lease": Level.DANGEROUS,
    "driver-bumped": Level.DANGEROUS,
    "reboot-for-kernel-argument": Level.DANGEROUS,
    "protect-removed": Level.DANGEROUS,
    "address-changed": Level.LOOK,
    "monitoring-off": Level.LOOK,
    "driver-bumped-on-rke2": Level.DANGEROUS,
    "server-removed": Level.DANGEROUS,
    "time-slicing-across-tenants": Level.DANGEROUS,
    "zone-moved": Level.DANGEROUS,
    "spot-server-and-open-firewall": Level.DANGEROUS,
    "disk-deleted": Level.DANGEROUS,
    "type-switched": Level.DANGEROUS,
    "worker-added": Level.LOOK,
    "worker-removed": Level.DANGEROUS,
    "usernetes-upgraded": Level.DANGEROUS,
    "docker-bumped": Level.DANGEROUS,
}


class Markdown(SingleFileSnapshotExtension):
    """A comment in a file of its own, to be read as it is shown."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"


def judged(name: str) -> Review:
    return review(plan_of(loading.document(name)), prices=price_table(), rules=RULES)


@pytest.mark.parametrize("name", loading.names())
def test_a_realistic_change_gets_this_comment(name: str, snapshot: SnapshotAssertion) -> None:
    assert comment(judged(name)) == snapshot(extension_class=Markdown)


def test_the_catalogue_has_at_least_25_changes_and_a_verdict_for_each() -> None:
    assert len(loading.names()) >= 25
    assert {name: judged(name).level for name in loading.names()} == LEVELS


def test_the_order_in_which_an_engine_tells_does_not_matter() -> None:
    document = loading.document("scale-in")
    expected = comment(judged("scale-in"))
    for seed in range(3):
        random.Random(seed).shuffle(document["steps"])
        plan: Plan = plan_of(document)
        assert comment(review(plan, prices=price_table(), rules=RULES)) == expected
