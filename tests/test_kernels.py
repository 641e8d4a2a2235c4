"""Kernels: compiled and NumPy versions agree, and small data needs no compiled code."""

from __future__ import annotations

import copy
import ctypes
import importlib
import inspect
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import event

import crowdrank
from crowdrank import _numba, get_aggregator, read_judgments, simulate
from crowdrank._arrow import to_numpy
from crowdrank._numba import Kernel
from crowdrank.consensus import (
    assembly,
    data_warnings,
    dawid_skene,
    e_step_kernels,
    family_weights,
    grade_rules,
    posterior_check,
    preference_assessors,
    preference_kernels,
    result,
    votes,
)
from crowdrank.consensus.latent import MAX_WITHOUT_SCIPY, normal_quantiles
from crowdrank.judgments import ids as judgment_kernels

ITEMS, ASSESSORS, GRADES = 30, 8, 4


def judgments(rng: np.random.Generator, largest: int = 12) -> tuple[Any, Any, Any]:
    """Return offsets, assessors and grades of random items, some of them without judgments."""
    offsets = np.append(0, np.cumsum(rng.integers(0, largest, ITEMS)))
    n = int(offsets[-1])
    return offsets, rng.integers(0, ASSESSORS, n, np.int32), rng.integers(0, GRADES, n).astype(np.int8)


def expect(rng: np.random.Generator, n_states: int) -> tuple[Any, ...]:
    shares, likelihood = rng.dirichlet(np.ones(n_states)), rng.dirichlet(np.full(GRADES, 0.3), (ASSESSORS, n_states))
    likelihood = likelihood.transpose(0, 2, 1).clip(1e-10)
    gold, experts = rng.integers(-1, GRADES, ITEMS).astype(np.int8), rng.dirichlet(np.ones(GRADES), n_states).T
    flat = [array.ravel() for array in (likelihood, experts, np.empty((ITEMS, n_states)), np.zeros(likelihood.shape))]
    return *judgments(rng), gold, GRADES, shares, *flat, np.zeros(n_states)


def weighted(rng: np.random.Generator) -> tuple[Any, ...]:
    offsets, assessor, grade = judgments(rng)
    prior, likelihood = rng.dirichlet(np.ones(3), ITEMS), rng.dirichlet(np.ones(GRADES), (ASSESSORS, 3))
    gold, experts = rng.integers(-1, GRADES, ITEMS).astype(np.int8), rng.dirichlet(np.ones(GRADES), 3).T
    tables = np.log(prior), np.log(likelihood.transpose(0, 2, 1)), experts, np.empty((ITEMS, 3))
    counts = np.zeros((ASSESSORS, GRADES, 3))
    return offsets, assessor, grade, gold, rng.random(len(grade)), *tables, counts, np.zeros(3)


def agreements(rng: np.random.Generator) -> tuple[Any, ...]:
    reference = rng.integers(-1, GRADES, ITEMS).astype(np.int8)
    return *judgments(rng), reference, rng.random((GRADES, GRADES)) < 0.5, np.zeros(ASSESSORS), np.zeros(ASSESSORS)


def texts(rng: np.random.Generator) -> tuple[Any, ...]:
    words = ["1", "01", "0", "00", "", "d3 ", " d", "2.0", ".0", "2.", "-1", "a", "é", "10", "0.00"]
    chosen = [words[number].encode() for number in rng.integers(0, len(words), 40)]
    data = np.frombuffer(b"".join(chosen), np.uint8)
    return np.cumsum([0, *map(len, chosen)], dtype=np.int32), data, False, 30


def soft_answers(rng: np.random.Generator) -> tuple[Any, ...]:
    """Return answers of which every third judgment has all grades, and the others one."""
    offsets, assessor, grade = judgments(rng)
    n_answers = np.where(np.arange(len(grade)) % 3 == 0, GRADES, 1)
    row = np.repeat(np.arange(len(grade)), n_answers)
    within = np.arange(len(row)) - np.repeat(np.cumsum(n_answers) - n_answers, n_answers)
    share = np.where(n_answers[row] == 1, 1.0, rng.dirichlet(np.ones(GRADES), len(grade))[row, within])
    answer = np.where(n_answers[row] == 1, grade[row], within).astype(np.int8)
    return np.append(0, np.cumsum(n_answers))[offsets], assessor[row], answer, share, row


def soft(rng: np.random.Generator) -> tuple[Any, ...]:
    likelihood = rng.dirichlet(np.ones(GRADES), (ASSESSORS, 3)).transpose(0, 2, 1).copy()
    answers, gold = soft_answers(rng), rng.integers(-1, 2, ITEMS, np.int8)
    weight, prior = rng.random(answers[-1][-1] + 1), np.log(rng.dirichlet(np.ones(3), int(rng.choice([1, ITEMS]))))
    tables = np.log(likelihood), 2 * likelihood, rng.random((2, 3))
    return *answers, gold, weight, prior, *tables, np.zeros((ITEMS, 3)), np.zeros(likelihood.shape), np.zeros(3)


def repeats(rng: np.random.Generator) -> tuple[Any, ...]:
    return *judgments(rng), ASSESSORS, bool(rng.integers(2))


def groups(rng: np.random.Generator) -> tuple[Any, ...]:
    gold = np.where(rng.random(ITEMS) < 0.1, 1, -1).astype(np.int8)
    offsets = np.append(0, np.cumsum(rng.integers(1, 3, ITEMS)))
    return offsets, rng.integers(0, 60, offsets[-1], np.int32), gold, 60


def rows(rng: np.random.Generator) -> tuple[Any, ...]:
    return rng.integers(0, 5, 60, np.int32), rng.integers(0, 9, 60, np.int32), 5, 9


def left_out(rng: np.random.Generator) -> tuple[Any, ...]:
    offsets, assessor, grade = judgments(rng)
    item = np.repeat(np.arange(ITEMS), np.diff(offsets))
    one = rng.integers(0, len(grade), 30)
    likelihood = rng.dirichlet(np.ones(GRADES), (ASSESSORS, 3)).transpose(0, 2, 1).copy()
    posterior, other = rng.dirichlet(np.ones(3), ITEMS), rng.integers(0, len(grade), 30)
    return posterior, item[one], assessor, grade, one, other, rng.random(len(grade)), likelihood


def compared(rng: np.random.Generator) -> dict[str, Any]:
    """Return preferences between documents of queries, and their curvatures."""
    sizes = rng.integers(2, 9, 6)
    first, query = np.append(0, np.cumsum(sizes)), np.sort(rng.integers(0, 6, 60))
    left = rng.integers(0, sizes[query])
    right = (left + rng.integers(1, sizes[query])) % sizes[query]
    columns = first[query] + left, first[query] + right
    return {
        "ends": (first, np.searchsorted(query, np.arange(7))),
        "sides": columns,
        "answers": (rng.integers(0, 5, 60, np.int32), rng.integers(0, 3, 60, np.int32), rng.random(60)),
        "bend": rng.random(60),
        "curvature": rng.random(first[-1]) + 0.1,
        "mode": rng.normal(size=first[-1]),
    }


def preference_terms(rng: np.random.Generator) -> tuple[Any, ...]:
    one = compared(rng)
    infinite = np.full((3, 1), np.inf)
    cuts = np.concatenate([-infinite, np.sort(rng.normal(size=(3, 4)), axis=1), infinite], axis=1)
    return *one["sides"], *one["answers"], rng.random((3, 2)), cuts, one["mode"], np.empty((3, 60))


def newton_system(rng: np.random.Generator) -> tuple[Any, ...]:
    one = compared(rng)
    n = len(one["mode"])
    outputs = np.empty(n), np.empty(n), np.zeros((4, 2)), np.empty((3, n))
    return *one["sides"], one["bend"], one["curvature"], one["mode"], 1e-12, *outputs


def factorization(rng: np.random.Generator) -> tuple[Any, ...]:
    one = compared(rng)
    outputs = np.empty((2, 64)), np.empty(len(one["mode"])), np.empty(60)
    return *one["ends"], *one["sides"], one["bend"], one["curvature"], *outputs


def answer_counts(rng: np.random.Generator) -> tuple[Any, ...]:
    one = compared(rng)
    counts = np.zeros((3, len(preference_assessors.DIFFERENCES), 5))
    return *one["sides"], *one["answers"], one["mode"], one["bend"], counts


CASES: dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]] = {
    e_step_kernels.count_confusions: lambda rng: (
        *judgments(rng),
        rng.random((ITEMS, 3)),
        np.zeros((ASSESSORS, GRADES, 3)),
    ),
    e_step_kernels.make_e_step_kernel(GRADES): lambda rng: expect(rng, GRADES),
    e_step_kernels.make_e_step_kernel(7): lambda rng: expect(rng, 7),
    preference_kernels.differentiate: preference_terms,
    preference_kernels.conjugate_gradients: newton_system,
    preference_kernels.write_variances: factorization,
    preference_kernels.add_counts: answer_counts,
    e_step_kernels.weighted_e_step: weighted,
    e_step_kernels.soft_e_step: soft,
    e_step_kernels.count_soft_answers: lambda rng: (
        *soft_answers(rng),
        rng.random((ASSESSORS, GRADES, 3)),
        rng.random((ITEMS, 3)),
        np.zeros((ASSESSORS, GRADES, 3)),
    ),
    result.posterior_summaries: lambda rng: (rng.dirichlet(np.full(4, 0.2), 50), np.arange(4.0), 0.025, 1e-9),
    votes.count_votes: lambda rng: (*judgments(rng)[::2], GRADES),
    votes.count_weighted_votes: lambda rng: (*(table := judgments(rng))[::2], rng.random(len(table[2])), GRADES),
    grade_rules.minimize_loss: lambda rng: (rng.dirichlet(np.full(4, 0.2), 50).round(1), rng.random((4, 4)).round(1)),
    assembly.add_agreements: agreements,
    data_warnings.mean_scaled_grades: lambda rng: (*judgments(rng), rng.integers(1, GRADES, ASSESSORS)),
    data_warnings.find_groups: groups,
    posterior_check.expect_agreement: left_out,
    assembly.add_codes: lambda rng: (judgments(rng)[1], np.zeros(ASSESSORS, np.int64)),
    family_weights.nested_weights: lambda rng: (
        *judgments(rng)[:2],
        np.stack([(finest := rng.integers(0, 4, ASSESSORS, np.int32)) // 2, finest]),
        np.repeat([[0.25], [0.5]], ASSESSORS, axis=1),
    ),
    dawid_skene.confusions: lambda rng: (rng.gamma(0.3, 1.0, (9, 4, 4)).round(1) + 0.1, np.zeros((4, 4)), 1e-10),
    dawid_skene.dirichlet_sums: lambda rng: (
        counts := rng.gamma(0.3, 9.0, (9, 4, 3)).round(),
        counts.sum(axis=1),
        rng.uniform(0.1, 1.0, 9),
        rng.gamma(1.0, 1.0, (4, 3)),
    ),
    judgment_kernels.group_rows: rows,
    judgment_kernels.find_repeats: repeats,
    judgment_kernels.first_rows: lambda rng: (rng.integers(-1, 9, 30, np.int32), 9),
    judgment_kernels.find_unusual_texts: texts,
}


def kernels_with_numpy() -> Iterator[Kernel]:
    for module in pkgutil.walk_packages(crowdrank.__path__, "crowdrank."):
        if module.name.split(".")[1] in ("consensus", "judgments", "engine", "assessors", "evaluation"):
            members = vars(importlib.import_module(module.name)).values()
            yield from (one for one in members if isinstance(one, Kernel) and one.numpy is not None)


def test_every_kernel_with_a_numpy_version_has_a_case() -> None:
    assert set(kernels_with_numpy()) <= set(CASES)


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_the_numpy_version_equals_the_compiled_one(kernel: Kernel) -> None:
    for seed in range(5):
        arguments = CASES[kernel](np.random.default_rng(seed))
        others = copy.deepcopy(arguments)
        assert kernel.numpy is not None
        results = kernel.numpy(*arguments), kernel.compiled(*others)
        names = list(inspect.signature(kernel.function).parameters)
        used = [
            [one for name, one in zip(names, some, strict=True) if name != "memory"] for some in (arguments, others)
        ]
        pairs = zip(_arrays(results[0], used[0]), _arrays(results[1], used[1]), strict=True)
        for one, other in pairs:
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def _arrays(result: Any, arguments: list[Any]) -> list[Any]:
    """Return what a kernel returned or may have changed."""
    returned = [] if result is None else result if isinstance(result, tuple) else [result]
    return [np.asarray(one) for one in (*returned, *arguments) if not isinstance(one, int | float) or one is result]


@pytest.mark.parametrize("method", ["majority", "family-mean", "dawid-skene", "one-coin", "gda"])
def test_a_fit_does_not_depend_on_the_version(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulate(queries=4, documents=12, assessors=10, labels=4, random_state=2)
    numpy = get_aggregator(method).fit(read_judgments(world.judgments)).consensus_.document_table
    monkeypatch.setattr(_numba, "use_numpy", False)
    compiled = get_aggregator(method).fit(read_judgments(world.judgments)).consensus_.document_table
    assert numpy.schema == compiled.schema
    assert numpy.select(["query", "document", "grade"]).equals(compiled.select(["query", "document", "grade"]))
    for name in ("relevance", "sd", "lower", "upper"):
        one, other = (to_numpy(table[name].combine_chunks()) for table in (numpy, compiled))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["majority", "dawid-skene", "gda"])
def test_a_small_aggregation_loads_no_large_library(method: str, tmp_path: Path) -> None:
    rows = [f"q,d{item},a{who},{(item + who // 2) % 3}" for item in range(9) for who in range(4)]
    (tmp_path / "labels.csv").write_text("\n".join(["query,document,assessor,grade", *rows]) + "\n")
    code = (
        f"import sys; sys.argv = ['crowdrank', 'aggregate', 'labels.csv', '-m', {method!r}, '-o', 'out.csv']\n"
        "import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from crowdrank.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (tmp_path / "out.csv").exists()
    heavy = {"numba", "scipy", "pandas", "sklearn", "narwhals", "lightgbm", "pyarrow.parquet"}
    unused = {"concurrent.futures", "html", "rich", "sqlite3"}
    assert not (heavy | unused) & set(done.stderr.splitlines()[-1].split())


def test_few_normal_quantiles_equal_scipys() -> None:
    probabilities = np.concatenate([[0.0, 1e-300, 1e-12, 1.0], np.linspace(0.001, 0.999, 99)])
    many = np.resize(probabilities, MAX_WITHOUT_SCIPY + 1)
    few = normal_quantiles(probabilities)
    np.testing.assert_allclose(few, normal_quantiles(many)[: len(probabilities)], rtol=1e-12)


def test_a_signal_during_compilation_is_delivered_after_it() -> None:
    """Raise a signal inside a C callback, where an exception of its handler would be lost, as LLVM's callbacks do."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    class Sender(event.Listener):  # type: ignore[misc]
        def on_start(self, event: object) -> None:
            ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))()

        def on_end(self, event: object) -> None:
            pass

    called = Kernel(lambda values: values.sum(), None, 0, {"cache": False})
    kernel = Kernel(lambda values: called(values) + 1, None, 0, {"cache": False})
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        kernel.compiled  # noqa: B018 - numba is imported here
        with event.install_listener("numba:compile", Sender()), pytest.raises(KeyboardInterrupt):
            kernel(np.ones(3))
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(kernel.compiled.signatures) == len(called.compiled.signatures) == 1
    assert kernel(np.ones(3)) == 4


def test_kernels_compile_in_other_threads() -> None:
    kernel = Kernel(lambda values: values.sum(), None, 0, {"cache": False})
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(kernel, np.ones(3)).result() == 3
