"""Why a request of the OpenAI API can't be honoured: always the client's doing, always a 400 that names the field."""

from __future__ import annotations

from typing import Literal

RejectionCode = Literal["invalid_value", "unsupported_parameter", "context_length_exceeded"]


class Rejected(ValueError):
    """`param`: the field, as the client wrote it."""

    def __init__(self, message: str, param: str | None = None, code: RejectionCode = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code: RejectionCode = code
