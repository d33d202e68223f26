"""Bodies and events of /v1/responses. Pure.

The output is a list of items: a message if there is text, and a function call for each call. Both forms are made of the
same items: the stream tells of each as it begins, grows and ends, and its last event holds the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge.openai.job import Job
from edge.openai.output import ChoiceOutput, FinishReason, Part
from edge.openai.render import Identity, Renderer, call_id, encode
from edge.openai.responses import ResponsesRequest
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Reason, TokenLogprob, Usage


@dataclass(slots=True)
class _Item:
    """One of the output, as far as it has come. `name` None: a message."""

    id: str
    call_id: str = ""
    name: str | None = None
    text: str = ""
    """Of the message, or the call's arguments."""

    def body(self, status: str, *, text: str | None = None) -> dict[str, Any]:
        """`text`: instead of its own; a message without any has no part yet."""
        shown = self.text if text is None else text
        if self.name is None:
            content = [_part(shown)] if shown else []
            return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": content}
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": shown,
            "status": status,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponsesRenderer:
    """Of the one job of a request. `stream`: events; otherwise the body alone."""

    def __init__(self, request: ResponsesRequest, identity: Identity, job: Job, vocabulary: Vocabulary) -> None:
        self._request = request
        self._identity = identity
        self._output = ChoiceOutput(job, vocabulary)
        self._items: list[_Item] = []
        self._open = False
        """Whether the last item still grows."""
        self._reason: FinishReason = "stop"
        self._sequence = 0

    def begin(self) -> bytes:
        body = self._body("in_progress")
        return self._event("response.created", response=body) + self._event("response.in_progress", response=body)

    def push(self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> bytes:
        return self._grow(self._output.push(tokens, logprobs))

    def finish(self, index: int, reason: Reason, kept_bytes: int | None) -> bytes:
        events = self._grow(self._output.finish(kept_bytes))
        self._reason = self._output.reason(reason)
        return events + self._close("incomplete" if self._reason == "length" else "completed")

    def end(self, usages: Sequence[Usage]) -> bytes:
        status = "incomplete" if self._reason == "length" else "completed"
        body = self._body(status, usages[0])
        return self._event(f"response.{status}", response=body) if self._request.stream else encode(body)

    def failed(self, error: Mapping[str, Any]) -> bytes:
        fault = error["error"]
        return self._event("error", code=fault["code"], message=fault["message"], param=fault["param"])

    def _grow(self, part: Part) -> bytes:
        events = b""
        if part.text:
            if not self._open or self._items[-1].name is not None:
                events += self._close("completed") + self._add(_Item(self._item_id("msg")))
                events += self._at("response.content_part.added", content_index=0, part=_part(""))
            self._items[-1].text += part.text
            events += self._at("response.output_text.delta", content_index=0, delta=part.text, logprobs=[])
        for call in part.calls:
            if call.name is not None:
                item = _Item(self._item_id("fc"), call_id(self._identity.id, 0, call.index), call.name)
                events += self._close("completed") + self._add(item)
            if call.arguments:
                self._items[-1].text += call.arguments
                events += self._at("response.function_call_arguments.delta", delta=call.arguments)
        return events

    def _add(self, item: _Item) -> bytes:
        self._items.append(item)
        self._open = True
        index = len(self._items) - 1
        return self._event("response.output_item.added", output_index=index, item=item.body("in_progress"))

    def _close(self, status: str) -> bytes:
        """End the last item, if it grows."""
        if not self._open:
            return b""
        self._open = False
        item, index = self._items[-1], len(self._items) - 1
        if item.name is None:
            events = self._at("response.output_text.done", content_index=0, text=item.text, logprobs=[])
            events += self._at("response.content_part.done", content_index=0, part=_part(item.text))
        else:
            events = self._at("response.function_call_arguments.done", name=item.name, arguments=item.text)
        return events + self._event("response.output_item.done", output_index=index, item=item.body(status))

    def _at(self, kind: str, **fields: Any) -> bytes:
        """An event about the last item."""
        return self._event(kind, item_id=self._items[-1].id, output_index=len(self._items) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        if not self._request.stream:
            return b""
        number, self._sequence = self._sequence, self._sequence + 1
        data = encode({"type": kind, "sequence_number": number} | fields)
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self._identity.id.removeprefix('resp_')}{len(self._items):02x}"

    def _body(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        request, name = self._request, self._identity
        given = request.model_dump(mode="json", by_alias=True)
        last = "incomplete" if self._reason == "length" else "completed"
        items = [
            item.body(last if item is self._items[-1] else "completed") for item in self._items if usage is not None
        ]
        return {
            "id": name.id,
            "object": "response",
            "created_at": name.created,
            "model": name.model,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "output": items,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": None,
            "store": False,
            "temperature": 1.0 if request.temperature is None else request.temperature,
            "text": given["text"] or {"format": {"type": "text"}},
            "tool_choice": given["tool_choice"] or "auto",
            "tools": given["tools"] or [],
            "top_p": 1.0 if request.top_p is None else request.top_p,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
        }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }


def responses_renderer(
    request: ResponsesRequest,
    jobs: Sequence[Job],
    vocabulary: Vocabulary,
    *,
    id: str,  # noqa: A002
    created: int,
) -> Renderer:
    """The renderer that a request asks for: streaming or not."""
    return ResponsesRenderer(request, Identity(id, created, request.model), jobs[0], vocabulary)
