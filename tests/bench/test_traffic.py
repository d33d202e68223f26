from __future__ import annotations

import numpy as np

from bench.traffic import Trace, accuracy, features


def test_traces_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    draw = np.random.default_rng(1)
    labels = [label for label in range(5) for _ in range(6)]
    told = np.array([[label * 10 + draw.normal(), draw.normal()] for label in labels])
    assert accuracy(told, labels) > 0.9
    noise = draw.normal(size=(30, 2))
    assert accuracy(noise, labels) < 0.5
    assert accuracy(np.ones((30, 2)), labels) == 0.0, "nothing to tell by"


def test_features_see_size_and_time_of_each_way() -> None:
    base = features(Trace([(0.0, 300)], [(0.1, 30), (0.2, 40)]))
    assert features(Trace([(0.0, 301)], [(0.1, 30), (0.2, 40)])) != base
    assert features(Trace([(0.0, 300)], [(0.1, 30), (0.3, 40)])) != base
    assert len(features(Trace())) == len(base)
    assert all(np.isfinite(features(Trace())))
