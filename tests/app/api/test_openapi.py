"""The OpenAPI document, tried with what it says may be sent (schemathesis): no 5xx, no status that it doesn't name.

A minute in all. For longer, and to see how much was answered by 2xx:

    PACELINE_OPENAPI_S=600 python -m pytest tests/app/api/test_openapi.py -s --timeout 900
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.app.serving import MODEL, Running, scripted, serving

SECONDS: Final = float(os.environ.get("PACELINE_OPENAPI_S", "60"))
ADMIN: Final = "admin-key-of-the-tests"
TENANT: Final = "acme"
VOCABULARY: Final = 512
ANSWERING: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
SHARES: Final = {
    **{("POST", path): 5.0 for path in ANSWERING},
    **dict.fromkeys(
        [
            ("GET", "/v1/models"),
            ("GET", "/v1/models/{model}"),
            ("GET", "/v1/drafter"),
            ("GET", "/v1/drafter/model"),
            ("GET", "/v1/drafter/webllm"),
            ("POST", "/v1/tickets"),
            ("GET", "/v1/usage"),
            ("GET", "/healthz"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("GET", "/admin/overview"),
            ("GET", "/admin/replicas"),
            ("POST", "/admin/replicas/{index}/drain"),
            ("GET", "/admin/tenants"),
            ("POST", "/admin/tenants"),
            ("GET", "/admin/tenants/{tenant}"),
            ("PATCH", "/admin/tenants/{tenant}"),
            ("GET", "/admin/tenants/{tenant}/keys"),
            ("POST", "/admin/tenants/{tenant}/keys"),
            ("POST", "/admin/keys/{key_id}/rotate"),
            ("DELETE", "/admin/keys/{key_id}"),
            ("GET", "/admin/usage"),
        ],
        0.5,
    ),
}
"""All operations, and how much of the time each gets."""
WITH_INPUT: Final = {
    *(("POST", path) for path in ANSWERING),
    ("GET", "/v1/usage"),
    ("POST", "/admin/replicas/{index}/drain"),
    ("POST", "/admin/tenants"),
    ("PATCH", "/admin/tenants/{tenant}"),
    ("POST", "/admin/tenants/{tenant}/keys"),
    ("POST", "/admin/keys/{key_id}/rotate"),
    ("GET", "/admin/usage"),
}
"""Those that can be asked something wrong."""
ENDLESS: Final = ("GET", "/admin/events")
"""A stream that ends when its reader leaves."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway in a thread of its own: the examples are sent by a blocking client."""
    ready, stop = threading.Event(), threading.Event()
    found: list[Running] = []

    async def serve(data_dir: Path) -> None:
        async with serving(data_dir, scripted(length=12), admin_key=ADMIN) as running:
            await running.gateway.tenants.create_tenant(TENANT)
            found.append(running)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("openapi"))))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    stop.set()
    thread.join()


def test_no_operation_of_the_document_is_left_out(served: Running) -> None:
    paths = httpx2.get(f"{served.url}/v1/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path in paths for method in paths[path]} == {*SHARES, ENDLESS}


def fitted(case: schemathesis.Case[Any]) -> None:
    """Names that the document can't know, or they would be all that an answer is about."""
    if case.path_parameters and "tenant" in case.path_parameters:
        case.path_parameters["tenant"] = TENANT
    if case.path_parameters and "model" in case.path_parameters:
        case.path_parameters["model"] = MODEL
    if not isinstance(case.body, dict):
        return
    if isinstance(case.body.get("model"), str):
        case.body["model"] = MODEL
    bias, prompt = case.body.get("logit_bias"), case.body.get("prompt")
    if isinstance(bias, dict):
        case.body["logit_bias"] = {str(int(token) % VOCABULARY): value for token, value in bias.items()}
    if "best_of" in case.body:
        case.body["n"] = case.body["best_of"]
    if isinstance(prompt, list):
        case.body["prompt"] = [_in_vocabulary(item) for item in prompt]


def _in_vocabulary(item: Any) -> Any:
    """A token id as one that there is; lists of them likewise; text as it is."""
    if isinstance(item, list):
        return [_in_vocabulary(token) for token in item]
    return int(item) % VOCABULARY if isinstance(item, int | float) else item


POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
CASES: Final = [
    *((*operation, POSITIVE) for operation in SHARES),
    *((*operation, NEGATIVE) for operation in SHARES if operation in WITH_INPUT),
]


@pytest.mark.parametrize(
    ("method", "path", "mode"), CASES, ids=[f"{method} {path} {mode.value}" for method, path, mode in CASES]
)
def test_no_request_is_answered_by_a_fault_of_ours_or_by_an_undocumented_status(
    served: Running, method: str, path: str, mode: GenerationMode
) -> None:
    document = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")
    until = time.monotonic() + SECONDS * SHARES[method, path] / sum(SHARES[case[:2]] for case in CASES)
    headers = {"Authorization": f"Bearer {ADMIN}"} if path.startswith("/admin") else served.headers
    statuses: Counter[int] = Counter()

    def send(case: schemathesis.Case[Any]) -> None:
        if mode is POSITIVE:
            fitted(case)
        answer = case.call_and_validate(
            headers=headers, checks=[not_a_server_error, status_code_conformance], timeout=20
        )
        statuses[answer.status_code] += 1

    try:
        strategy = document[path][method].as_strategy(generation_mode=mode)
        for number in itertools.count():
            seed(number)(
                settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))(
                    given(strategy)(send)
                )
            )()
            if time.monotonic() > until:
                break
    finally:
        good = sum(count for status, count in statuses.items() if status < 300)
        share = good / max(1, statuses.total())
        sys.stdout.write(f"{method} {path} {mode.value}: {statuses.total()} requests, {share:.0%} answered by 2xx\n")
    if mode is POSITIVE and path in ANSWERING:
        assert share > 0.6, statuses
