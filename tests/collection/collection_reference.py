"""Slow, obvious references of the kernels of collection."""

from __future__ import annotations

from typing import Any

import numpy as np


def assign_requests(
    pairs: list[int],
    judged: dict[int, set[int]],
    allowed: list[list[int]],
    merit: Any,
    price: list[float],
    load: list[int],
    most: int,
    money: float,
    turn: list[int],
) -> list[int]:
    """Return who gets each request: the highest score per price, then the lowest load, then turn; -1 for nobody."""
    taken = {pair: set(who) for pair, who in judged.items()}
    load, chosen = list(load), []
    for wish, pair in enumerate(pairs):
        free = [
            a for a in allowed[pair] if load[a] < most and a not in taken.get(pair, set()) and price[a] <= money + 1e-9
        ]
        score = merit[wish if len(merit) > 1 else 0]
        order = sorted(free, key=lambda a: (-score[a] / max(price[a], 1e-12), load[a], turn[a]))
        best = order[0] if order else -1
        chosen.append(best)
        if best >= 0:
            money -= price[best]
            load[best] += 1
            taken.setdefault(pair, set()).add(best)
    return chosen


def dcg(scores: Any, k: int) -> float:
    best = np.sort(np.asarray(scores))[::-1][:k]
    return float((best / np.log2(np.arange(2, len(best) + 2))).sum())


def top_gain(scores: Any, d: int, chance: Any, after: Any, k: int) -> float:
    """What a label of document d adds to the DCG@k of its query, by ranking again for each answer."""
    expected = 0.0
    for share, value in zip(chance, after, strict=True):
        changed = np.array(scores, float)
        changed[d] = value
        expected += share * dcg(changed, k)
    whole = dcg(scores, k)
    return max(expected - whole, 0.0) / max(whole, 1e-12)


def information(posterior: Any, curves: Any) -> float:
    """H[state] - E[H[state | answer]]: by Bayes' rule, answer by answer."""

    def entropy(shares: Any) -> float:
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    left = 0.0
    for row in curves:
        share = float((row * posterior).sum())
        if share > 0:
            left += share * entropy(row * posterior / share)
    return entropy(posterior) - left
