"""Why the cluster refused a container, said so that its tenant can do something about it."""

from __future__ import annotations

import logging
import re
from typing import Any

from caas.api.problems import Problem, ProblemError, retry_after
from caas.api.tenancies import Tenancy
from caas.cluster import ClusterError

_QUOTA = re.compile(r"exceeded quota: \S+, requested: (\S+), used: (\S+), limited: (\S+)")
_LIMIT = re.compile(r"((?:maximum|minimum) \S+ usage per \S+ is [^,\]]+(?:, but \w+ is [^,.\]]+)?)")
_POLICY = re.compile(r"denied request: (.*)$", re.S)
_UNPROCESSABLE = 422
_log = logging.getLogger(__name__)


def refused(error: ClusterError, tenancy: Tenancy) -> ProblemError:
    """The problem behind the API server's refusal to make a pod."""
    said = str(error)
    if found := _QUOTA.search(said):
        requested, used, allowed = (_amounts(part) for part in found.groups())
        short = ", ".join(
            f"{_plain(name)}: {requested[name]} asked for, {used.get(name, '0')} of "
            f"{allowed.get(name, '0')} used"
            for name in requested
        )
        return ProblemError(
            Problem.QUOTA,
            f"{short}; delete a container or ask for less",
            {"requested": requested, "used": used, "allowed": allowed},
        )
    if "is being terminated" in said:
        return ProblemError(Problem.TENANCY_ENDING, "the tenancy is being removed")
    if "status unknown for quota" in said or error.reason == "NotFound":
        return retry_after(
            Problem.TENANCY_NOT_READY, "the tenancy's isolation is being set up; try again", 5
        )
    if found := _LIMIT.search(said):
        return ProblemError(Problem.LIMIT, found[1])
    _log.warning("the cluster refused a container of %s: %s", tenancy.tenant, error)
    if error.status == _UNPROCESSABLE:
        return ProblemError(Problem.INVALID, "the cluster cannot make a container of this request")
    if found := _POLICY.search(said):
        return ProblemError(Problem.REFUSED, found[1].strip()[:500])
    return ProblemError(
        Problem.REFUSED, "the cluster's policies refuse this container; its operator sees why"
    )


def _amounts(text: str) -> dict[str, Any]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _plain(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")
