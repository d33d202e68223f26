"""What the OpenAPI document says of requests beyond what pydantic derives of their fields: which of a message's go
with its role. A client that is generated from the document, and a test that makes requests by it, then mostly ask what
can be answered. Nothing is validated by this.
"""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

TOKEN_NAMES: Final[Any] = {"propertyNames": {"pattern": "^[0-9]{1,9}$"}}
"""A map's keys are token ids."""
_ROLES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "system": (("content",), ()),
    "developer": (("content",), ()),
    "user": (("content",), ()),
    "assistant": (("content",), ("tool_calls",)),
    "tool": (("content", "tool_call_id"), ()),
}
"""By role: fields of a message that must be there and aren't null, and others that may."""
_EMPTY: Final = ("refusal", "audio", "function_call", "annotations")
"""Of an answer that is sent back as it was."""


def message(document: Document) -> None:
    """One shape for each role."""
    fields = document.pop("properties")
    del document["required"]
    document["oneOf"] = [
        {
            "type": "object",
            "properties": {
                "role": {"const": role},
                **{name: _present(fields[name]) for name in (*needed, *other)},
                **{name: fields[name] for name in _EMPTY if role == "assistant"},
            },
            "required": ["role", *needed],
            "additionalProperties": False,
        }
        for role, (needed, other) in _ROLES.items()
    ]
    del document["type"], document["additionalProperties"]


def _present(field: Document) -> Document:
    """Without null."""
    shapes = [shape for shape in field.get("anyOf", [field]) if shape != {"type": "null"}]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def no_empty_text(document: Document) -> None:
    """Of a field that is a text, several, or something else."""
    for shape in document.get("anyOf", [document]):
        if shape.get("type") == "string":
            shape["minLength"] = 1
        elif shape.get("type") == "array" or "anyOf" in shape:
            no_empty_text(shape.get("items", shape))
