"""The rule about charts, images and drivers that are another thing on another day."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import DYNAMIC, Subject
from gpuclusters.review.secrets import SECRET
from gpuclusters.review.text import UNKNOWN

_FLOATING = {"latest", "stable", "main", "master", "edge", "nightly", "dev"}
_VERSION = re.compile(r"v?\d+(\.\d+)*([-+.][0-9A-Za-z.+-]+)?")


class PinParameters(Parameters):
    """What counts as pinned."""

    digests: bool = Field(
        default=False, description="Whether images need a digest; a tag is not enough then."
    )


def unpinned(subject: Subject, parameters: PinParameters) -> Iterator[str]:
    """Whatever does not say exactly which one it is."""
    if subject.type.startswith("kubernetes:helm.sh/"):
        yield from _chart(subject.props)
    for path, image in _images(subject.props):
        yield from _image(path, image, digests=parameters.digests)
    yield from _driver(subject)


def _chart(props: Mapping[str, Any]) -> Iterator[str]:
    chart, version = props.get("chart"), props.get("version")
    if chart is None:
        return
    local = isinstance(chart, str) and (chart.endswith(".tgz") or chart.startswith((".", "/")))
    if local or SECRET in (chart, version) or version == UNKNOWN:
        return
    if not isinstance(version, str) or not version:
        yield f"the chart {chart} has no version: whatever is newest is installed"
    elif not _VERSION.fullmatch(version):
        yield f"the chart {chart} has a range or a name for a version ({version})"


def _images(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Images of pods: the texts called `image` of what lies in a list of containers."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if key in ("containers", "initContainers") and isinstance(item, list):
                for container in item:
                    if isinstance(container, Mapping) and isinstance(container.get("image"), str):
                        yield below, container["image"]
            else:
                yield from _images(item, below)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item, path)


def _image(path: str, image: str, *, digests: bool) -> Iterator[str]:
    if image in (SECRET, UNKNOWN) or "@sha256:" in image:
        return
    _, colon, tag = image.rsplit("/", 1)[-1].partition(":")
    if not colon:
        yield f"the image {image} ({path}) has neither tag nor digest"
    elif tag in _FLOATING:
        yield f"the image {image} ({path}) has a tag that moves"
    elif digests:
        yield f"the image {image} ({path}) has no digest"


def _driver(subject: Subject) -> Iterator[str]:
    if subject.type == f"{DYNAMIC}GpuDriver":
        version = subject.props.get("version") or subject.props.get("driver_version")
        if subject.props.get("source") != "operator" and version in (None, "", "latest"):
            yield "the NVIDIA driver has no exact version: machines get whatever is newest on that day"
    if subject.type.startswith("kubernetes:helm.sh/") and "gpu-operator" in str(
        subject.props.get("chart")
    ):
        values = subject.props.get("values")
        driver = values.get("driver") if isinstance(values, Mapping) else None
        if isinstance(driver, Mapping) and driver.get("version") == "latest":
            yield "the GPU Operator's driver has no exact version"
