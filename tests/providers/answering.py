"""A host that gives prepared answers."""

from typing import Any

from gpuclusters.host.ssh import Completed, SshHost


class Answers(SshHost):
    """Answers its commands one after the other, the last answer for ever."""

    def __init__(self, *answers: Completed | Exception) -> None:
        self.answers = list(answers)

    @property
    def target(self) -> str:
        return "gpu-1"

    def run(self, *_: Any, **__: Any) -> Completed:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
