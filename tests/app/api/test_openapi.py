"""The OpenAPI document, tried with what it says may be sent (schemathesis): no 5xx, no status that it doesn't name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.app.serving import MODEL, Running, scripted, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway in a thread of its own: the examples are sent by a blocking client."""
    ready, stop = threading.Event(), threading.Event()
    found: list[Running] = []

    async def serve(data_dir: Path) -> None:
        async with serving(data_dir, scripted(length=12)) as running:
            found.append(running)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("openapi"))))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    stop.set()
    thread.join()


POSTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        *((path, "POST", mode) for path in POSTS for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)),
        ("/v1/models/{model}", "GET", GenerationMode.POSITIVE),
    ],
)
def test_no_request_is_answered_by_a_fault_of_ours_or_by_an_undocumented_status(
    served: Running, path: str, method: str, mode: GenerationMode
) -> None:
    document = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")

    @given(document[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def send(case: schemathesis.Case[Any]) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = MODEL  # an unknown one would be all that an answer is about
        case.call_and_validate(headers=served.headers, checks=[not_a_server_error, status_code_conformance], timeout=20)

    send()
