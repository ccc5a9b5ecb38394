"""One issue of a project, found again by its marker, edited in place, closed. GitHub's and GitLab's API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.adapters.forge import (
    MOST_PAGES,
    PAGE,
    TRIES,
    AgainError,
    Comments,
    Forge,
    ForgeError,
    Place,
    place,
)


def issue_place(forge: Forge, env: Mapping[str, str]) -> Place:
    """The project of the pipeline around this command.

    Raises:
        ForgeError: something is missing; the message has all of it.
    """
    # Issues belong to the project; the number is that of a pull request, of which there is none.
    return place(forge, env, 1)


class Issues(Comments):
    """The open issues of one project that this account has made."""

    def __enter__(self) -> Issues:
        """Keeps its connections until the end of the block."""
        return self

    def keep(self, title: str, body: str, marker: str) -> str:
        """Open the issue, or bring the open one that carries the marker up to date; gives its address.

        Raises:
            TooLongError: the forge takes no text of this length.
            ForgeError: it refuses, or does not answer.
        """
        text = "body" if self._github else "description"
        for attempt in range(TRIES):
            known = self._open(marker)
            try:
                if known is None:
                    answer = self._once("POST", self._list, {"title": title, text: body})
                elif str(known.get(text)).strip() == body.strip():
                    return _address(known, self._list)
                else:
                    answer = self._once(self._verb, self._one(known), {"title": title, text: body})
            except AgainError as again:
                # It may have been made all the same: it is looked for before it is made once more.
                self._wait(again, attempt)
            else:
                return _address(answer.json(), self._list)
        raise AssertionError("unreachable")

    def close(self, marker: str) -> str | None:
        """Close the issue that carries the marker; its address, or None if none is open.

        Raises:
            ForgeError: the forge refuses, or does not answer.
        """
        change = {"state": "closed"} if self._github else {"state_event": "close"}
        for attempt in range(TRIES):
            known = self._open(marker)
            if known is None:
                return None
            try:
                answer = self._once(self._verb, self._one(known), change)
            except AgainError as again:
                self._wait(again, attempt)
            else:
                return _address(answer.json(), self._list)
        raise AssertionError("unreachable")

    @property
    def _github(self) -> bool:
        return self._where.forge is Forge.GITHUB

    @property
    def _verb(self) -> str:
        return "PATCH" if self._github else "PUT"

    @property
    def _list(self) -> str:
        if self._github:
            return f"{self._where.api}/repos/{self._where.project}/issues"
        return f"{self._where.api}/projects/{self._where.project}/issues"

    def _one(self, issue: Mapping[str, Any]) -> str:
        return f"{self._list}/{int(issue['number' if self._github else 'iid'])}"

    def _open(self, marker: str) -> Mapping[str, Any] | None:
        ours = self._author()
        for issue in self._issues():
            text = str(issue.get("body" if self._github else "description"))
            # Of our own account only: what others write with our marker in it stays theirs.
            if text.rstrip().endswith(marker) and ours(issue):
                return issue
        return None

    def _issues(self) -> Iterator[Mapping[str, Any]]:
        state = "open" if self._github else "opened"
        for page in range(1, MOST_PAGES + 1):
            answer = self._get(f"{self._list}?state={state}&per_page={PAGE}&page={page}")
            found = answer.json() if answer is not None else []
            if not isinstance(found, list):
                raise ForgeError(f"{self._where.forge} answers with something else than issues")
            # GitHub lists pull requests as issues too.
            yield from (
                one for one in found if isinstance(one, Mapping) and "pull_request" not in one
            )
            if len(found) < PAGE:
                return


def _address(issue: Any, fallback: str) -> str:
    if isinstance(issue, Mapping):
        return str(issue.get("html_url") or issue.get("web_url") or fallback)
    return fallback
