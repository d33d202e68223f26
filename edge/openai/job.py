"""Requests of the OpenAI API to jobs: what an engine, or a device's runtime, needs to know of them. Pure.

`chat_jobs` and `completion_jobs` check everything that needs a vocabulary or a context length, so that nothing behind
them checks again; the schemas have checked the rest. They tokenise and compile grammars: call them in a thread.

    request ─► schemas ─► Job, one for each choice ─► engine or hybrid stream ─► tokens ─► output.py ─► render*.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from edge.openai import structured, tools
from edge.openai.errors import Rejected
from edge.openai.schemas import (
    ChatRequest,
    CompletionRequest,
    Format,
    Function,
    Generating,
    JsonFormat,
    NamedTool,
    SchemaFormat,
)
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Grammar, Sampling

ANY_OBJECT: Final = '{"type": "object"}'
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One choice of a request. Ids lie in the vocabulary, the prompt fits the context, the grammar compiles."""

    prompt: tuple[int, ...]
    sampling: Sampling
    """With seed, choice and grammar."""
    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """Alternatives to report per token; None: no logprobs."""
    prediction: tuple[int, ...] = ()
    """What the output may be (prediction.py makes drafts of it)."""
    tools: frozenset[str] = frozenset()
    """Names of the functions whose calls are looked for in the output."""


def chat_jobs(chat: ChatRequest, vocabulary: Vocabulary, *, context: int, seed: int) -> list[Job]:
    """One job for each of the `n` choices. `context`: tokens of prompt and output. `seed`: if the request has none.

    Raises Rejected.
    """
    offered = _offered(chat)
    try:
        prompt = tuple(vocabulary.render(tools.messages(chat.messages, offered)))
    except InvalidRequest as error:
        raise Rejected(error.message, "messages") from error
    max_tokens = _max_tokens(prompt, chat.limit, context, "messages")
    _check(chat, vocabulary, max_tokens)
    grammar = _grammar(chat, offered)
    if grammar is not None:
        _compile(grammar, vocabulary, chat)
    stop = chat.stops
    if offered and chat.parallel_tool_calls is False and grammar is None:
        stop = (*stop, tools.HERMES.closing)  # nothing can come behind the one call
    prediction = chat.prediction.text if chat.prediction else ""
    return [
        Job(
            prompt=prompt,
            sampling=sampling(chat, seed=seed, choice=choice, grammar=grammar),
            max_tokens=max_tokens,
            min_tokens=chat.min_tokens or 0,
            stop=stop,
            logprobs=(chat.top_logprobs or 0) if chat.logprobs else None,
            prediction=tuple(vocabulary.encode(prediction)) if prediction else (),
            tools=frozenset(tool.name for tool in offered),
        )
        for choice in range(chat.n or 1)
    ]


def completion_jobs(request: CompletionRequest, vocabulary: Vocabulary, *, context: int, seed: int) -> list[Job]:
    """A job for each prompt and choice: all choices of the first prompt, then of the next. Raises Rejected."""
    jobs = []
    for prompt in prompts(request, vocabulary):
        max_tokens = _max_tokens(prompt, request.max_tokens, context, "prompt")
        _check(request, vocabulary, max_tokens)
        jobs += [
            Job(
                prompt=prompt,
                sampling=sampling(request, seed=seed, choice=choice),
                max_tokens=max_tokens,
                min_tokens=request.min_tokens or 0,
                stop=request.stops,
                logprobs=request.logprobs,
            )
            for choice in range(request.n or 1)
        ]
    return jobs


def prompts(request: CompletionRequest, vocabulary: Vocabulary) -> list[tuple[int, ...]]:
    """The prompts of a completion in token ids. Raises Rejected."""
    found = []
    for item in _prompts(request):
        ids = tuple(vocabulary.encode(item)) if isinstance(item, str) else tuple(item)
        if not ids:
            raise Rejected("The prompt is empty.", "prompt")
        if max(ids) >= vocabulary.size:
            raise Rejected(f"Token ids of this model are below {vocabulary.size}.", "prompt")
        found.append(ids)
    return found


def _prompts(request: CompletionRequest) -> Sequence[str | list[int]]:
    """One prompt or several, each as text or in ids."""
    given = request.prompt
    if isinstance(given, str):
        return [given]
    ids = [item for item in given if isinstance(item, int)]
    return [ids] if ids else [item for item in given if not isinstance(item, int)]


def sampling(request: Generating, *, seed: int, choice: int = 0, grammar: Grammar | None = None) -> Sampling:
    """The sampling rule's inputs. `seed` is used if the request has none; a negative one counts modulo 2^63."""
    given = Sampling()
    return Sampling(
        temperature=_or(request.temperature, given.temperature),
        top_k=max(0, _or(request.top_k, given.top_k)),  # -1 is vLLM's "all"
        # The rule takes top_p > 0. Zero keeps the likeliest token alone, as any value below its probability does.
        top_p=max(1e-9, _or(request.top_p, given.top_p)),
        min_p=_or(request.min_p, given.min_p),
        presence_penalty=_or(request.presence_penalty, given.presence_penalty),
        frequency_penalty=_or(request.frequency_penalty, given.frequency_penalty),
        repetition_penalty=_or(request.repetition_penalty, given.repetition_penalty),
        bias=tuple(sorted((request.logit_bias or {}).items())),
        seed=seed if request.seed is None else request.seed % 2**63,
        choice=choice,
        grammar=grammar,
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _max_tokens(prompt: Sequence[int], limit: int | None, context: int, param: str) -> int:
    room = context - len(prompt)
    if room < 1:
        raise Rejected(
            f"The prompt has {len(prompt)} tokens; the model's context holds {context}, answer included.",
            param,
            "context_length_exceeded",
        )
    # A limit past the context's end is no error: the answer ends there with `length`, as it would at the limit.
    return min(room, limit or room)


def _check(request: Generating, vocabulary: Vocabulary, max_tokens: int) -> None:
    if any(token >= vocabulary.size for token in request.logit_bias or ()):
        raise Rejected(f"Token ids of this model are below {vocabulary.size}.", "logit_bias")
    if (request.min_tokens or 0) > max_tokens:
        raise Rejected(f"min_tokens is above the {max_tokens} tokens that the answer may have.", "min_tokens")


def _offered(chat: ChatRequest) -> list[Function]:
    """The functions that the model may call."""
    functions = [tool.function for tool in chat.tools or ()]
    names = [function.name for function in functions]
    if len(set(names)) < len(names):
        raise Rejected("Two tools have the same name.", "tools")
    choice = chat.tool_choice
    if choice is None or choice == "auto":
        return functions
    if choice == "none":
        return []
    if not functions:
        raise Rejected("tool_choice asks for a call, and there are no tools.", "tool_choice")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise Rejected(f"tool_choice names '{choice.function.name[:64]}', which is none of the tools.", "tool_choice")
    return functions


def _grammar(chat: ChatRequest, offered: Sequence[Function]) -> Grammar | None:
    choice, most = chat.tool_choice, 1 if chat.parallel_tool_calls is False else tools.MAX_CALLS
    if isinstance(choice, NamedTool):
        named = [function for function in offered if function.name == choice.function.name]
        return Grammar("lark", tools.calls_grammar(named, most=1))
    if choice == "required":
        return Grammar("lark", tools.calls_grammar(offered, most=most))
    schema = format_schema(chat.response_format)
    if schema is None:
        return None
    if offered:
        return Grammar("lark", tools.calls_grammar(offered, most=most, instead=schema))
    return Grammar("json_schema", schema)


def format_schema(format: Format | None) -> str | None:  # noqa: A002
    """The JSON schema that an answer must match; None: it is text."""
    if isinstance(format, JsonFormat):
        return ANY_OBJECT
    if isinstance(format, SchemaFormat):
        return json.dumps(format.json_schema.schema_)
    return None


def _compile(grammar: Grammar, vocabulary: Vocabulary, chat: ChatRequest) -> None:
    try:
        structured.check(grammar, vocabulary)
    except ValueError as error:
        param = "tools" if grammar.kind == "lark" else "response_format"
        raise Rejected(f"The schema can't be enforced: {error}.", param) from error
