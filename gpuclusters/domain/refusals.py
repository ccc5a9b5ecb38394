"""A refusal: something that we could do but must not, with the reason and the way out."""

from __future__ import annotations


class RefusalError(Exception):
    """We will not do this; nothing was changed by the step that refused.

    Attributes:
        where: host, board or cluster object concerned, as the user writes it.
        problem: what is wrong, with the values found.
        remedy: what to do next.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(where, problem, remedy)
        self.where = where
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"
