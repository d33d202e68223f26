from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.openai.prediction import Predictor
from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier, accept


def run(prediction: list[int], output: list[int]) -> tuple[int, int]:
    """An engine that checks 8 drafts a step, told of each offer at once: its steps, and how many drafts it took."""
    predictor, ledger = Predictor(prediction), Ledger()
    verifier = Verifier(ledger)
    steps = 0
    offer = predictor.push([])
    while len(ledger) < len(output):
        if offer is not None:
            assert verifier.offer(offer.epoch, offer.start, offer.tokens) is not Offered.REFUSED
        head = len(ledger)
        candidates = verifier.candidates(min(8, len(output) - head - 1))
        tokens = accept(candidates, lambda i: output[head + i])  # noqa: B023 (called at once)
        ledger.append(tokens)
        verifier.stepped(tokens, len(candidates), 0.0)
        offer = predictor.push(tokens)
        steps += 1
    assert list(ledger.tokens) == output
    return steps, verifier.stats.accepted


def test_a_right_prediction_is_taken_whole() -> None:
    text = list(range(180))
    steps, accepted = run(text, text)
    assert steps == 20
    assert accepted == 160


def test_behind_a_change_the_prediction_is_taken_up_again() -> None:
    before, after = list(range(100)), list(range(100))
    after[40:42] = [900, 901, 902]
    steps, _ = run(before, after)
    assert steps < 25


def test_a_prediction_of_something_else_costs_nothing_but_its_first_drafts() -> None:
    steps, accepted = run(list(range(100)), list(range(200, 260)))
    assert (steps, accepted) == (60, 0)


@given(st.lists(st.integers(0, 3), max_size=80), st.lists(st.integers(0, 3), min_size=1, max_size=120))
def test_no_prediction_leaves_a_hole_or_changes_the_output(prediction: list[int], output: list[int]) -> None:
    run(prediction, output)
