"""A machine that was just made and is not there yet: its SSH server starts, its account is being made."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.domain.connection import HostConnection


class FirstLoginInputs(BaseModel):
    """Which machine is waited for, and how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    instance: str
    """Another one is another machine under the same name, and is waited for again."""
    timeout_seconds: Annotated[int, Field(ge=10, le=7200)] = 900

    @property
    def natural_id(self) -> str:
        """One for each machine."""
        return f"{self.connection.host}/first-login"
