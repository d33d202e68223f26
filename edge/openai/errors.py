"""Why a request of the OpenAI API can't be honoured: always the client's doing, always a 400 that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from edge.openai.schemas import Unsupported

RejectionCode = Literal["invalid_value", "unsupported_parameter", "unknown_parameter", "context_length_exceeded"]

_FIELD: Final = re.compile(r"[a-z_][a-z0-9_]*")
_TYPES: Final = frozenset(("str", "int", "float", "bool"))
_FORMATS: Final = ("text", "json_object", "json_schema")
_TAGS: Final = {"response_format": _FORMATS, "format": _FORMATS}
"""Of fields that are one of several schemas: pydantic puts the schema's tag behind the field's name."""


class Rejected(ValueError):
    """`param`: the field, as the client wrote it; None: the body as a whole."""

    def __init__(self, message: str, param: str | None = None, code: RejectionCode = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code: RejectionCode = code

    def body(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        return {
            "error": {
                "message": self.message,
                "type": "invalid_request_error",
                "param": self.param,
                "code": self.code,
            }
        }


def rejected(faults: Sequence[Mapping[str, Any]], skip: int = 0) -> Rejected:
    """The first of the faults that pydantic's `errors()` lists. `skip`: parts of the location before the field."""
    first = _deepest(faults)
    param = _name(first["loc"][skip:])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return Rejected("The body is not JSON.")
    if not param:  # the model as a whole: fields that don't go together
        return Rejected(f"Invalid body: {message}.")
    if first["type"] == "extra_forbidden":
        return Rejected(f"Unknown parameter: '{param}'.", param, "unknown_parameter")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Unsupported):
        return Rejected(f"'{param}' is not supported: {cause}.", param, "unsupported_parameter")
    return Rejected(f"Invalid '{param}': {message}.", param)


def _deepest(faults: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first fault; if that is "not a string" of a value that may be something else, what is wrong with the else."""
    field = faults[0]["loc"][:-1]
    if faults[0]["loc"][-1:] != ("str",):
        return faults[0]
    return max((fault for fault in faults if fault["loc"][: len(field)] == field), key=lambda fault: len(fault["loc"]))


def _name(location: Sequence[int | str]) -> str:
    """('messages', 0, 'content') → messages[0].content; the names of a union's members are left out."""
    name, before = "", ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif _FIELD.fullmatch(part) and part not in _TYPES and part not in _TAGS.get(before, ()):
            name += f".{part}" if name else part
        before = str(part)
    return name
