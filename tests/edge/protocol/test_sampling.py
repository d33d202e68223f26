"""The sampling rule: against known answers, against docs/sampling.md in plain Python, and where it could go wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge.protocol.frames import Sampling
from edge.protocol.noise import LARGEST, SMALLEST, gumbel, philox4x32
from edge.protocol.row import below
from edge.protocol.sampling import NothingLeft, Sampler, noise
from edge.protocol.survivors import best
from tests.edge.protocol import rule

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs/protocol-vectors.json").read_text())
GREEDY = Sampling(temperature=0)


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def bell(seed: int, size: int, scale: float = 3.0) -> NDArray[np.float32]:
    """Logits shaped like a model's: a bell with a few leaders."""
    generator = np.random.default_rng(seed)
    logits = (generator.standard_normal(size) * scale).astype(np.float32)
    logits[generator.integers(0, size, 20)] += np.linspace(3, 9, 20).astype(np.float32)
    return logits


# --- noise


@pytest.mark.parametrize("vector", VECTORS["philox"])
def test_philox_gives_the_known_answers_of_random123(vector: dict[str, list[str]]) -> None:
    counter = [int(word, 16) for word in vector["counter"]]
    k0, k1 = (int(word, 16) for word in vector["key"])
    expected = [int(word, 16) for word in vector["words"]]
    c0, c1, c2, c3 = counter
    assert list(philox4x32((c0, c1, c2, c3), (k0, k1))) == expected
    assert rule.philox(counter, (k0, k1)) == expected
    lanes = philox4x32((c0, np.array([c1] * 3, np.uint64), c2, c3), (k0, k1))
    assert [np.unique(lane).tolist() for lane in lanes] == [[word] for word in expected]


@pytest.mark.parametrize("vector", VECTORS["noise"])
def test_noise_matches_the_published_vectors(vector: dict[str, Any]) -> None:
    got = noise(int(vector["seed"]), vector["position"], vector["choice"], np.array([vector["token"]]))
    assert got[0] == pytest.approx(vector["g"], abs=1e-12)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1), st.integers(1, 40))
def test_a_tokens_noise_does_not_depend_on_how_many_are_asked_for(seed: int, at: int, choice: int, count: int) -> None:
    tokens = np.arange(count) * 3797
    together = noise(seed, at, choice, tokens)
    assert together.tolist() == [noise(seed, at, choice, tokens[i : i + 1])[0] for i in range(count)]
    assert together[-1] == pytest.approx(rule.gumbel(seed, at, choice, int(tokens[-1])), abs=1e-12)


def test_noise_of_a_whole_vocabulary_is_that_of_its_parts() -> None:
    tokens = np.arange(20_000)  # more than one chunk
    assert noise(5, 6, 7, tokens)[::997].tolist() == noise(5, 6, 7, tokens[::997]).tolist()


def test_noise_stays_within_its_bounds() -> None:
    extremes = gumbel(np.array([0, 2**32 - 1], np.uint64), np.array([0, 2**32 - 1], np.uint64))
    assert extremes.tolist() == pytest.approx([SMALLEST, LARGEST], abs=1e-12)


def test_seed_position_choice_and_token_each_change_the_noise() -> None:
    values = {
        float(noise(seed, position, choice, np.array([token]))[0])
        for seed, position, choice, token in [
            (1, 0, 0, 0), (1 << 32, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0)
        ]
    }  # fmt: skip
    assert len(values) == 6


# --- the rule


@pytest.mark.parametrize("vector", VECTORS["sampling"], ids=lambda vector: str(vector["name"]))
def test_picks_match_the_published_vectors(vector: dict[str, Any]) -> None:
    fields = dict(vector["sampling"])
    fields["bias"] = tuple((token, value) for token, value in fields.get("bias", ()))
    sampling, logits = Sampling(**fields), row(*vector["logits"])
    sampler = Sampler(sampling, len(logits), vector["prompt"])
    for token in vector["output"]:
        sampler.push(token)
    allowed = None if vector["allowed"] is None else np.isin(np.arange(len(logits)), vector["allowed"])
    survivors = sampler.survivors(logits, vector["position"], allowed)
    assert sampler.pick(logits, vector["position"], allowed) == vector["token"] == survivors.winner
    assert survivors.ids.tolist() == vector["kept"]
    assert survivors.scores.tolist() == pytest.approx(vector["scores"], abs=1e-11)
    mask = None if allowed is None else [bool(value) for value in allowed]
    slow = rule.pick(sampling, vector["logits"], vector["position"], vector["prompt"], vector["output"], mask)
    assert slow is not None
    assert (slow.token, slow.kept) == (vector["token"], vector["kept"])
    assert slow.scores == pytest.approx(vector["scores"], abs=1e-11)


logit = st.one_of(
    st.integers(-6, 6).map(float),
    st.floats(-40, 40, width=32),
    st.sampled_from([-math.inf, math.inf, math.nan, 3e38, -3e38, 1e-40, -0.0]),
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-30, 1e-4, 0.3, 0.8, 1.0, 1.7, 100.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 30, 1000]),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.3, -1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3, 0.5]),
    bias=st.one_of(
        st.just(()), st.lists(st.tuples(st.integers(0, 4), st.floats(-100, 100)), max_size=3).map(tuple)
    ),
    seed=st.integers(0, 2**63 - 1),
    choice=st.integers(0, 3),
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.data(), samplings, st.lists(logit, min_size=5, max_size=40), st.integers(0, 2**20))
def test_pick_is_the_rule_of_the_text(data: st.DataObject, sampling: Sampling, logits: list[float], at: int) -> None:
    tokens = st.lists(st.integers(0, len(logits) - 1), max_size=6)
    prompt, output = data.draw(tokens, "prompt"), data.draw(tokens, "output")
    size = len(logits)
    allowed = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size), "allowed")
    slow = rule.pick(sampling, logits, at, prompt, output, allowed)
    sampler = Sampler(sampling, size, prompt)
    for token in output:
        sampler.push(token)
    mask = None if allowed is None else np.array(allowed)
    given_row = row(*logits)
    if slow is None:
        with pytest.raises(NothingLeft):
            sampler.pick(given_row, at, mask)
        return
    assume(not slow.undecided)
    assert sampler.pick(given_row, at, mask) == slow.token
    survivors = sampler.survivors(given_row, at, mask)
    assert survivors.ids.tolist() == slow.kept
    np.testing.assert_array_equal(given_row, row(*logits))  # untouched


FILTERS = {
    "greedy": GREEDY,
    "unfiltered": Sampling(seed=3),
    "cold": Sampling(temperature=1e-4, seed=3),
    "hot": Sampling(temperature=40, seed=3),
    "top-k": Sampling(top_k=50, seed=3),
    "a large top-k": Sampling(top_k=20_000, seed=3),
    "top-p": Sampling(temperature=0.8, top_p=0.95, seed=3),
    "a wide top-p": Sampling(temperature=1.5, top_p=0.9999, seed=3),
    "a top-p of nearly all": Sampling(top_p=1 - 2**-53, seed=3),
    "min-p": Sampling(min_p=0.02, seed=3),
    "all filters": Sampling(temperature=1.2, top_k=400, top_p=0.9, min_p=0.01, seed=3),
    "penalties": Sampling(top_p=0.9, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2, seed=3),
    "penalties, unfiltered": Sampling(frequency_penalty=-1.5, bias=((7, 12.0), (9, -3.0)), seed=3),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("shape", ["bell", "flat", "integers", "two left", "broken"])
def test_screening_a_large_vocabulary_loses_nothing(name: str, shape: str) -> None:
    """`pick` looks at a part of the vocabulary, `survivors` ranks all of it: they must agree."""
    size = 30_011  # not a multiple of any block
    logits = bell(11, size)
    if shape == "flat":
        logits = bell(12, size, scale=0.01)
    elif shape == "integers":
        logits = np.round(logits)
    elif shape == "broken":
        logits[[5, 600, 29_999]] = np.nan, np.inf, -np.inf
    allowed = np.isin(np.arange(size), (17, 30_010)) if shape == "two left" else None
    sampler = Sampler(FILTERS[name], size, range(0, size, 40))
    for token in (7, 9, 9, 4000):
        sampler.push(token)
    for position in range(12):
        assert sampler.pick(logits, position, allowed) == sampler.survivors(logits, position, allowed).winner


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.999), st.floats(0.2, 3), st.floats(0.1, 6))
def test_the_nucleus_is_found_whatever_its_size(seed: int, top_p: float, temperature: float, scale: float) -> None:
    logits = bell(seed, 6000, scale)
    sampler = Sampler(Sampling(temperature=temperature, top_p=top_p, seed=seed), 6000)
    survivors = sampler.survivors(logits, 0)
    # 1e-9 of the total is left open by the text; a weight is never that near a border here, by luck of 200 draws
    ids, _ = sampler._row(logits, None).nucleus(top_p, temperature)
    assert ids.tolist() == survivors.ids.tolist()
    assert sampler.pick(logits, 0) == survivors.winner


def test_a_border_within_the_screens_error_is_decided_in_float64() -> None:
    """5000 equal weights: float32 can't tell whether 2500 of them are half of the total."""
    logits = np.zeros(5000, np.float32)
    ids, _ = Sampler(Sampling(top_p=0.5, seed=1), 5000)._row(logits, None).nucleus(0.5, 1.0)
    assert ids.tolist() == list(range(2500))


# --- ties and borders


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert Sampler(GREEDY, 4).pick(row(1, 2, 2, 2), 0) == 1


def test_greedy_takes_the_lowest_id_when_a_penalty_makes_equals() -> None:
    sampler = Sampler(Sampling(temperature=0, bias=((0, 1.0), (3, 1.0))), 4)
    assert sampler.pick(row(1, 2, 2, 1), 0) == 0


def test_the_lowest_id_of_equal_scores_wins_wherever_it_ranks() -> None:
    assert best(np.array([5, 7, 2, 1]), np.array([3.0, 3.0, 3.0, 2.0])) == 2


def test_top_k_keeps_the_lower_ids_of_equals() -> None:
    survivors = Sampler(Sampling(top_k=2, seed=1), 4).survivors(row(0, 5, 5, 5), 0)
    assert survivors.ids.tolist() == [1, 2]


def test_top_p_keeps_the_token_that_crosses_the_border_and_not_the_next() -> None:
    keep = {p: Sampler(Sampling(top_p=p, seed=1), 4).survivors(row(0, 0, 0, 0), 0).count for p in (0.25, 0.5, 0.51)}
    assert keep == {0.25: 1, 0.5: 2, 0.51: 3}


def test_top_p_is_taken_after_top_k() -> None:
    """Of two equal tokens that top-k left, half of the weight is one token; of all four it would be two."""
    survivors = Sampler(Sampling(top_k=2, top_p=0.5, seed=1), 4).survivors(row(0, 0, 0, 0), 0)
    assert survivors.ids.tolist() == [0]


def test_temperature_comes_before_the_filters() -> None:
    survivors = Sampler(Sampling(temperature=2, min_p=0.5, seed=1), 3).survivors(row(0, -1, -2), 0)
    assert survivors.ids.tolist() == [0, 1]  # exp(-1/2) is above one half, exp(-1) below


def test_min_p_keeps_the_most_probable_token_always() -> None:
    assert Sampler(Sampling(min_p=1.0, seed=1), 3).survivors(row(1, 3, 3), 0).ids.tolist() == [1, 2]


# --- penalties


def test_repetition_counts_the_prompt_and_the_others_only_the_output() -> None:
    sampling = Sampling(temperature=0, repetition_penalty=2, presence_penalty=1, frequency_penalty=0.25)
    sampler = Sampler(sampling, 5, [0, 1])
    for token in (1, 2, 2):
        sampler.push(token)
    survivors = sampler.survivors(row(8, 8, 8, 2, -8), 0)
    # 0: 8/2; 1: 8/2 - 1 - .25; 2: 8/2 - 1 - .5; 3 untouched
    assert survivors.ids.tolist() == [0, 1, 2, 3, 4]
    assert survivors.scores.tolist() == [0, -1.25, -1.5, -2, -12]


def test_a_negative_logit_is_multiplied_by_the_repetition_penalty() -> None:
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=2), 3, [0])
    assert sampler.survivors(row(-1, 0, -3), 0).scores.tolist() == [0, -2, -3]


def test_pop_takes_back_what_push_counted() -> None:
    sampler, fresh = (Sampler(Sampling(frequency_penalty=1.5, seed=4), 30) for _ in range(2))
    logits = bell(1, 30)
    for token in (3, 4, 3):
        sampler.push(token)
    sampler.pop(3)
    assert sampler.survivors(logits, 2).scores.tolist() == fresh.survivors(logits, 2).scores.tolist()
    with pytest.raises(ValueError, match="can't be taken back"):
        sampler.pop(1)


def test_without_penalties_the_output_is_not_kept() -> None:
    sampler = Sampler(Sampling(seed=4, bias=((1, 1.0),)), 30)
    before = sampler.pick(bell(1, 30), 0)
    sampler.push(before)
    sampler.pop(5)
    assert sampler.pick(bell(1, 30), 0) == before


def test_a_bias_named_twice_adds_up_and_a_masked_token_stays_out() -> None:
    sampler = Sampler(Sampling(temperature=0, bias=((2, 3.0), (2, 3.0))), 4)
    assert sampler.pick(row(5, 0, 0, 0), 0) == 2
    assert sampler.pick(row(5, 0, 0, 0), 0, np.array([True, True, False, True])) == 0


# --- what can't be done


def test_sampling_needs_a_seed_and_greedy_does_not() -> None:
    with pytest.raises(ValueError, match="seed"):
        Sampler(Sampling(), 10)
    assert Sampler(GREEDY, 2).pick(row(0, 1), 0) == 1


@pytest.mark.parametrize("bias", [((10, 1.0),), ((0, math.inf),), ((0, math.nan),), ((0, 2e6),)])
def test_a_bias_that_means_nothing_is_refused(bias: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="bias"):
        Sampler(Sampling(temperature=0, bias=bias), 10)


def test_a_prompt_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt"):
        Sampler(GREEDY, 10, [10])


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=1), Sampling(temperature=0, presence_penalty=1)])
def test_a_row_of_another_length_is_refused(sampling: Sampling) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        Sampler(sampling, 10).pick(row(1, 2), 0)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=1), Sampling(top_p=0.5, seed=1)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_without_numbers_leaves_nothing(sampling: Sampling, value: float) -> None:
    with pytest.raises(NothingLeft):
        Sampler(sampling, 3).pick(row(value, value, value), 0)


def test_a_threshold_in_float32_is_never_above_the_one_asked_for() -> None:
    for value in (0.1, -0.1, 1e-45, -1e39, 12345.678):
        assert float(below(value)) <= value


# --- logprobs


def test_logprobs_are_the_raw_log_softmax() -> None:
    logits = bell(2, 3000)
    got = Sampler(Sampling(temperature=0.1, top_k=3, bias=((5, 9.0),), seed=1), 3000).logprobs(logits, 5, 4)
    exact = logits.astype(np.float64)
    expected = exact - math.log(math.fsum(np.exp(exact)))
    assert got.token == 5
    assert got.logprob == pytest.approx(expected[5], abs=1e-12)
    order = np.argsort(-exact, kind="stable")[:4]
    assert [token for token, _ in got.top] == order.tolist()
    assert [value for _, value in got.top] == pytest.approx(expected[order].tolist(), abs=1e-12)


def test_a_token_without_probability_has_a_finite_logprob() -> None:
    got = Sampler(GREEDY, 3).logprobs(row(0, -math.inf, math.nan), 2, 3)
    assert (got.logprob, got.top) == (-9999.0, ((0, 0.0),))
    assert Sampler(GREEDY, 3).logprobs(row(0, 0, 0), 1, 0).top == ()


# --- ties between two runs


@settings(max_examples=300, deadline=None)
@given(st.data(), samplings, st.lists(st.floats(-8, 8, width=32), min_size=5, max_size=30), st.floats(1e-6, 0.5))
def test_a_winner_under_perturbed_logits_is_always_plausible(
    data: st.DataObject, sampling: Sampling, logits: list[float], eps: float
) -> None:
    """The promise that the tie rule rests on: no error of up to eps makes a token win that it didn't name."""
    assume(sampling.temperature == 0 or sampling.temperature >= 0.3)
    errors = data.draw(st.lists(st.floats(-1, 1), min_size=len(logits), max_size=len(logits)))
    exact = row(*logits)
    moved = exact + (np.array(errors) * eps * 0.999).astype(np.float32)
    sampler = Sampler(sampling, len(logits), [1, 2])
    sampler.push(3)
    survivors = sampler.survivors(exact, 9)
    # float32 rounds the moved logits: at most 2**-20 at these magnitudes
    plausible = survivors.plausible(eps + 2**-20).tolist()
    assert survivors.winner in plausible
    assert sampler.pick(moved, 9) in plausible


def test_a_clear_winner_is_the_only_plausible_token() -> None:
    survivors = Sampler(GREEDY, 3).survivors(row(5, 3, 4.9), 0)
    assert survivors.plausible(0.01).tolist() == [0]
    assert survivors.close(0, 2, 0.06)
    assert not survivors.close(0, 1, 0.06)
    assert survivors.gap(0, 2) == pytest.approx(0.1, abs=1e-6)
    assert survivors.distance(0, 2) == pytest.approx(0.05, abs=1e-5)
    assert survivors.distance(0, 1, limit=0.5) == math.inf


def test_a_token_at_the_edge_of_a_filter_is_plausible_by_its_place() -> None:
    """Token 2 has the best score of the three but top-k leaves it out by a hair."""
    logits, position = row(5, 4.99, 4.985), 0
    sampler = next(
        s for seed in range(100)
        if (s := Sampler(Sampling(top_k=2, seed=seed), 3)) and int(noise(seed, 0, 0, np.arange(3)).argmax()) == 2
    )  # fmt: skip
    survivors = sampler.survivors(logits, position)
    assert survivors.winner != 2
    assert survivors.close(survivors.winner, 2, 0.003)
    assert not survivors.close(survivors.winner, 2, 0.001)


@pytest.mark.parametrize(
    ("sampling", "last"),
    [(Sampling(top_p=0.9, seed=1), math.log(0.9 / 0.1)), (Sampling(min_p=0.1, seed=1), math.log(10))],
)
def test_edges_of_top_p_and_min_p_are_seen_from_both_sides(sampling: Sampling, last: float) -> None:
    """The second of two tokens, put just inside and just outside of the filter's edge."""
    for offset in (-0.001, 0.001):
        survivors = Sampler(sampling, 2).survivors(row(last + offset, 0), 0)
        assert survivors.count == (2 if offset < 0 else 1)
        possible, sure = survivors._survival(survivors._slack(0.001))
        assert (possible.tolist(), sure.tolist()) == ([True, True], [True, False])
        possible, sure = survivors._survival(survivors._slack(0.0001))
        assert possible[1] == sure[1] == (offset < 0)
