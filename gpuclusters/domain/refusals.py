"""A refusal: something that we could do but must not, with the reason and the way out."""

from __future__ import annotations

from gpuclusters.domain import error_id


class RefusalError(Exception):
    """We will not do this; nothing was changed by the step that refused.

    Attributes:
        where: host, board or cluster object concerned, as the user writes it.
        problem: what is wrong, with the values found.
        remedy: what to do next.
        error_id: of the function that refuses; of the class, where a refusal has one of its own.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(where, problem, remedy)
        self.where = where
        self.problem = problem
        self.remedy = remedy
        own = type(self) is not RefusalError
        self.error_id = error_id.of_class(type(self)) if own else error_id.of_caller()

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"
