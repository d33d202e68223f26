"""What the plugin hands vLLM's model runner where a step is planned ahead."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.vllm


def test_the_newest_token_is_the_last_before_a_rejection() -> None:
    import torch

    from app.engine.vllm_ahead import newest

    last, counts = newest(torch.tensor([[5, 6, 7], [8, -1, -1], [9, 10, -1]]))
    assert last.tolist() == [7, 8, 10]
    assert counts.tolist() == [3, 1, 2]


def test_drafts_stand_in_the_row_that_their_request_had_in_the_step_before() -> None:
    from app.engine.vllm_ahead import rows

    table = rows({"b": [1, 2], "new": [3]}, {"a": 0, "b": 2, "c": 1}, 4)
    assert table.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 2, 0, 0]]
    assert rows({"new": [3]}, {"a": 0}, 2).tolist() == [[0, 0]]
