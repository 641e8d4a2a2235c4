"""The command `crowdrank collect next`: choose the next documents to be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._assessor_kinds import DEFAULT_KIND, Kind
from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.collect_preferences import (
    PREFERENCE_POLICY,
    read_so_far,
    request_preferences,
    require_preference_policy,
)
from crowdrank.cli.console import note_text, print_json, print_line, print_note, print_read_report, print_table
from crowdrank.cli.evaluate_commands import parse_run_names, read_rankings
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.cli.judge_commands import DEFAULT_GRADES, TEXTS_HELP
from crowdrank.errors import Fix, Message, UsageError

if TYPE_CHECKING:
    from crowdrank.collection.policy import Policy
    from crowdrank.collection.pool import Pool, Roster
    from crowdrank.collection.requests import Budget, OutstandingRequests, Requests
    from crowdrank.consensus.model import Aggregator
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.table import Judgments
    from crowdrank.readers.read_options import PreferenceReadOptions, ReadOptions

COMPARE_POLICY = "compare"
"""Name of the policy that draws documents to compare rankings."""


@dataclass(frozen=True)
class BudgetOptions:
    """Options for the budget: available assessors, prices and limits."""

    assessors: Path | None = option(
        None,
        "Table of available assessors: assessor and optionally kind (human, llm, expert) and price. Without it, "
        "requests name nobody.",
    )
    prices: str | None = option(None, "Price of a label by kind, such as human=0.05,expert=2.", show_default="1")
    kind: Kind = option(DEFAULT_KIND, "Who answers requests that name nobody.")
    most: int | None = option(None, "Maximum number of labels per assessor.")
    honeypots: float = option(0.0, "Share of the budget for honeypots.")

    def build(self, amount: float) -> Budget:
        """Return a budget of this amount with the prices and limits of the options."""
        from crowdrank.collection.pool import parse_prices
        from crowdrank.collection.requests import Budget

        return Budget(amount, parse_prices(self.prices), self.kind, self.most, self.honeypots)


@dataclass(frozen=True)
class JudgeOptions:
    """Options for LLM judges among the available assessors."""

    judges: Path | None = option(None, "File that describes LLM judges (TOML) who may be asked, too.")
    texts: list[Path] = option([], f"{TEXTS_HELP} They give the prices of judges.", metavar="<path>")

    def reader(self, prices: Mapping[str, float], grades: str | None) -> Callable[[Pool], Roster] | None:
        """Return a function that returns the judges as assessors, or None if there are none.

        Args:
            prices: price of a label by kind of assessor; that of `llm` comes before an estimate.
            grades: scale of the project, if it is given.

        """
        return None if self.judges is None else partial(self._read_roster, prices=prices, grades=grades)

    def _read_roster(self, pool: Pool, prices: Mapping[str, float], grades: str | None) -> Roster:
        from crowdrank.judgments.scale import Scale
        from crowdrank.llm_judges.judges import read_judges
        from crowdrank.llm_judges.judging_plan import judge_roster

        assert self.judges is not None
        scale = Scale.parse(grades or DEFAULT_GRADES)
        return judge_roster(read_judges(self.judges), pool, self.texts, scale, prices.get("llm"))

    @property
    def files(self) -> list[Path | None]:
        """The files that are read."""
        return [self.judges, *self.texts]


@dataclass(frozen=True)
class RequestOptions:
    """Options for the file of requests."""

    output: Path | None = option(None, "File for the requests.", "-o")
    to: Literal["csv", "label-studio", "toloka", "mturk", "quepid"] = option(
        "csv",
        "Format: csv has assessor, price and reason; platforms need .json (label-studio), .tsv (toloka) or .csv. Their "
        "tasks have the texts and URLs of the pool, and a template with the grades is written beside them.",
    )
    csv_safe: bool = option(False, o.CSV_SAFE_HELP, "--csv-safe")

    def __post_init__(self) -> None:
        if self.csv_safe and self.to != "csv":
            problem = f"changes ids, and {self.to} returns them with the answers"
            raise UsageError(problem, parameter="csv_safe", fix="leave it out")


@dataclass(frozen=True)
class SampleOptions:
    """Options of the policy `compare`, which draws documents that tell rankings apart."""

    runs: str | None = option(None, "Rankings to compare, separated by commas, as FILE or NAME=FILE.")
    labels: Path | None = option(None, "Labels of the documents, such as a consensus with probabilities of grades.")
    measure: str = option("nDCG@10", "Measure to compare the rankings by: DCG@k, nDCG@k or P@k.")

    def parameters(self, policy: str, *, again: bool) -> dict[str, Any]:
        """Return the parameters of the policy; raise UsageError if they are for another one, or missing."""
        if policy != COMPARE_POLICY:
            if self.runs is not None:
                raise UsageError(
                    f"needs the policy {COMPARE_POLICY}", parameter="runs", fix=Fix("use {}", "policy", COMPARE_POLICY)
                )
            return {}
        if again:
            problem = f"is not for {COMPARE_POLICY}: a document that was drawn is not drawn again"
            discard = "to discard all samples, delete the list of requests beside the judgments"
            raise UsageError(problem, parameter="again", fix=["leave it out", discard])
        if self.runs is None:
            fix = Fix("give the rankings to compare with {}", "runs", "live.trec,new.trec")
            raise UsageError(f"{COMPARE_POLICY} needs rankings", parameter="policy", fix=fix)
        return {"runs": read_rankings(self._run_files), "labels": self.labels, "measure": self.measure}

    @property
    def _run_files(self) -> dict[str, str]:
        return parse_run_names([run for run in (self.runs or "").split(",") if run])

    @property
    def files(self) -> list[Path | None]:
        """The files that the policy reads."""
        return [self.labels, *map(Path, self._run_files.values())]


@dataclass(frozen=True)
class PoolPriorOptions(o.PriorOptions):
    """Options for the prior of relevance from features of the pool."""

    signal: str | None = o.signal_option("pool")

    def check(self, policy: Policy, model: Aggregator) -> None:
        """Raise UsageError if the policy or its model cannot use features."""
        if self:
            policy._check_features(parameter="features" if self.features else "signal")
            model._check_features()


def collect_next(
    budget: Annotated[
        float, typer.Option(help="Money to spend; with prices of 1, a number of labels.", show_default=False)
    ],
    judgments: c.MaybeJudgmentFile = None,
    pairs: Annotated[
        Path | None, o.path_option(f"{c.PAIRS_HELP} The policy compare needs none: its pool are the first documents.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy", "-p", help=f"Policy: {c.POLICY_HELP}; {PREFERENCE_POLICY} for comparisons.", metavar="POLICY"
        ),
    ] = "if-good-3",
    preferences: Annotated[
        Path | None,
        o.path_option("File of the preferences so far, which need not exist, for the policy preferences."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Drop outstanding requests, so that they may be requested again.")
    ] = False,
    expert: Annotated[
        Path | None,
        o.expert_option(
            "Expert grades bought so far; the model takes them as known, and their pairs are not requested."
        ),
    ] = None,
    *,
    budget_options: Annotated[BudgetOptions, FieldsOf(BudgetOptions, "Budget")],
    llm: Annotated[JudgeOptions, FieldsOf(JudgeOptions, "LLM judges")],
    requests: Annotated[RequestOptions, FieldsOf(RequestOptions, o.OUTPUT)],
    parameters: Annotated[c.PolicyOptions, FieldsOf(c.PolicyOptions, "Policy")],
    comparison: Annotated[SampleOptions, FieldsOf(SampleOptions, "Policy compare")],
    model: c.Model,
    prior: Annotated[PoolPriorOptions, FieldsOf(PoolPriorOptions, o.PRIOR)],
    reading: o.Reading,
    gold_reading: o.MappedGoldReading,
    preference_reading: o.PreferenceReading,
    json: o.AsJson = False,
) -> None:
    """Choose the pairs to be judged next, by whom, and at what price.

    Requests that were written and not answered are not repeated; NAME.requests.csv beside JUDGMENTS lists them. If
    JUDGMENTS is a database of the judging service, its open pairs are the pool.

    Examples:
        crowdrank collect next labels.csv --pairs pool.csv --budget 100 -o requests.csv
        crowdrank collect next labels.csv --pairs pool.csv --budget 20 -p ndcg@10 --to toloka -o tasks.tsv
        crowdrank collect next labels.csv --pairs pool.csv --budget 100 -p ndcg@10 --features features.csv
        crowdrank collect next labels.csv --pairs pool.csv --budget 5 -p ndcg@10 --judges judges.toml --texts docs.jsonl
        crowdrank collect next labels.csv --preferences prefs.csv --pairs pool.csv -p preferences --budget 50 -o ask.csv
        crowdrank collect next expert.csv --policy compare --runs live.trec,new.trec --budget 300 -o sample.csv
    """
    from crowdrank._files import check_output_file, locked, recover, write_together
    from crowdrank.collection.add_batch import read_existing
    from crowdrank.collection.platform_tasks import TEMPLATES, check_requests_output, write_requests
    from crowdrank.collection.requests import OutstandingRequests, ledger_path
    from crowdrank.readers.write import check_distinct_paths

    pairs, estimator = _pool_file(pairs, judgments, policy), model.build()
    unavailable: dict[str, object] = {"judges": llm.judges, "honeypots": budget_options.honeypots}
    unavailable |= {"features": prior.features, "signal": prior.signal, "to": requests.to != "csv"}
    unavailable["runs"] = comparison.runs
    if require_preference_policy(policy, preferences, estimator, **unavailable):
        assert pairs is not None
        assert preferences is not None
        so_far = read_existing(judgments, **asdict(reading))
        _next_preferences(
            (judgments, preferences, pairs, requests.output, expert),
            so_far,
            o.read_maybe_gold_file(expert, gold_reading, so_far),
            estimator,
            parameters,
            budget_options,
            budget_options.build(budget),
            reading,
            preference_reading,
            again=again,
            csv_safe=requests.csv_safe,
            as_json=json,
        )
        return
    assert judgments is not None
    chosen = c.build_policy(policy, asdict(parameters))
    chosen.set_params(**comparison.parameters(policy, again=again))
    chosen._check_parameters()
    prior.check(chosen, estimator)
    budget_terms, ledger, output = budget_options.build(budget), ledger_path(judgments), requests.output
    if output is not None:
        check_requests_output(output, requests.to)
        check_output_file(ledger)
        others = [ledger, pairs, expert, budget_options.assessors, *llm.files, *comparison.files, *prior.features]
        check_distinct_paths({"output": output}, o.input_files([judgments], reading, *others))
        if output.resolve() in recover(ledger):
            _print_completed(output, as_json=json)
            return
    source = pairs if pairs is not None else _pool_of_runs(chosen)
    pool = c.read_pool(
        source,
        budget_options.assessors,
        dict(budget_terms.prices),
        reading.exclude,
        extras=requests.to != "csv",
        more_assessors=llm.reader(budget_terms.prices, reading.grades),
    ).without_extra_column(prior.signal)
    features = None if pairs is None else prior.read([pairs])
    so_far = read_existing(judgments, **asdict(reading))
    if so_far is not None:
        print_read_report(so_far.report, [judgments])
        o.print_copies(so_far)
    bought = o.read_maybe_gold_file(expert, gold_reading, so_far)
    pool = pool if bought is None else pool.without_pairs(bought.query, bought.document)
    fitted = None
    if so_far is not None and chosen.takes_model:
        fitted = estimator.fit(so_far, gold=bought, features=features, progress=True)
    features_used = [] if fitted is None else list(fitted.consensus_.features_used)
    template, grades = None, c.grade_names(so_far, reading)
    with nullcontext() if output is None else locked(ledger):
        listed = OutstandingRequests.read(ledger)
        pending = listed.is_outstanding(so_far)
        if again:
            listed, pending = listed.where(~pending), pending[~pending]
        outstanding = listed.where(pending)
        _keep_sample(output, outstanding, judgments)
        wanted = listed.number_draw(chosen.next(pool, so_far, fitted, budget_terms, outstanding))
        if output is not None:
            with write_together(ledger):
                template = write_requests(wanted, output, requests.to, grades=grades, csv_safe=requests.csv_safe)
                if len(wanted) or again:
                    listed.append(OutstandingRequests.of(wanted, so_far)).write(ledger)
    if json:
        columns = {} if so_far is None else dict(so_far.report.columns)
        files = {"output": output, "template": template, "list": ledger if output is not None else None}
        summary = {**_summary(wanted, outstanding), "features_used": features_used}
        print_json({"policy": policy, **summary, **files, "columns": columns})
        return
    _print_requests(wanted, outstanding, output)
    if output is not None and len(wanted):
        print_line(
            f"They are also listed in {ledger}, where `collect add`, `status` and `next` find what is outstanding."
        )
    if features_used:
        print_line(f"Prior of relevance from {counted(len(features_used), 'feature')}.")
    _print_template(template, grades, has_template=output is not None and requests.to in TEMPLATES)


def _next_preferences(
    files: tuple[Path | None, Path, Path, Path | None, Path | None],
    so_far: Judgments | None,
    bought: Gold | None,
    estimator: Aggregator,
    parameters: c.PolicyOptions,
    budget_options: BudgetOptions,
    budget: Budget,
    reading: ReadOptions,
    preference_reading: PreferenceReadOptions,
    *,
    again: bool,
    csv_safe: bool,
    as_json: bool,
) -> None:
    """Request preferences; `files` are judgments, preferences, pool, requests (or None) and expert grades (or None)."""
    from crowdrank._files import check_output_file, recover
    from crowdrank.collection.preference_pairs import PreferencePairs
    from crowdrank.collection.preference_requests import preference_list_path
    from crowdrank.readers.write import check_distinct_paths

    judgments, preferences, pairs, output, expert = files
    ledger = preference_list_path(preferences)
    policy = PreferencePairs(settled=parameters.settled, random_state=parameters.random_state or 0)
    policy._check_parameters()
    if output is not None:
        check_output_file(ledger)
        given = [] if judgments is None else [judgments]
        inputs = o.input_files(given, reading, preferences, ledger, pairs, expert, budget_options.assessors)
        check_distinct_paths({"output": output}, inputs)
        if output.resolve() in recover(ledger):
            _print_completed(output, as_json=as_json)
            return
    compared = read_so_far(preferences, preference_reading, reading)
    pool = c.read_pool(pairs, budget_options.assessors, dict(budget.prices), reading.exclude)
    request_preferences(
        policy,
        pool,
        (so_far, compared, bought),
        estimator,
        budget,
        (preferences, output),
        again=again,
        csv_safe=csv_safe,
        as_json=as_json,
    )


def _pool_file(pairs: Path | None, judgments: Path | None, policy: str) -> Path | None:
    """Return the file of the pool: by default the judgments if they are a database; None if the runs are the pool."""
    from crowdrank.readers.judging_database import find_database

    if judgments is None and policy.strip().lower() != PREFERENCE_POLICY:
        raise UsageError("there are no judgments", kind="no-input", fix=Fix("give {}", "judgments"))
    if pairs is None and judgments is not None and find_database(judgments) is not None:
        return judgments
    if pairs is None and policy != COMPARE_POLICY:
        raise UsageError("is needed", parameter="pairs", fix="give the pairs that may be judged")
    return pairs


def _pool_of_runs(policy: Policy) -> Pool:
    from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs

    assert isinstance(policy, CompareRuns)
    return pool_of_runs(policy.runs or {}, policy.measure)


def _keep_sample(output: Path | None, outstanding: OutstandingRequests, judgments: Path) -> None:
    """Raise UsageError if the output may be a sample without grades: its probabilities are nowhere else."""
    n_drawn = len(outstanding) - outstanding.column("draw").null_count
    if n_drawn and output is not None and output.exists():
        problem = f"is {output}, which exists, and {judgments} has no grade of {counted(n_drawn, 'drawn document')}"
        fixes = ["give a new file", "add the grades first with `collect add`"]
        raise UsageError(problem, parameter="output", kind="sample-outstanding", fix=fixes)


def _summary(requests: Requests, outstanding: OutstandingRequests) -> dict[str, Any]:
    return {
        "requests": len(requests),
        "cost": requests.cost,
        "kinds": {kind: {"labels": n, "cost": money} for kind, (n, money) in requests.by_kind().items()},
        "reasons": requests.reasons(),
        "unmet": requests.unmet,
        "unspent": [{**asdict(part), "note": note_text(part.message())} for part in requests.unspent],
        "out": len(outstanding),
        "notes": [note_text(note) for note in requests.notes],
    }


def _print_requests(requests: Requests, outstanding: OutstandingRequests, output: Path | None) -> None:
    for note in requests.notes:
        print_note(note)
    if not len(requests):
        reason = c.outstanding_text(outstanding) if len(outstanding) else "the policy needs no more labels"
        print_line(f"No requests: {reason}.")
        _print_unspent(requests)
        return
    print_table(replace(requests, drawn_for=None).to_arrow())
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in requests.reasons().items())
    written = "" if output is None else f"; written to {output}"
    unmet = f"; {counted(requests.unmet, 'more label')} cannot be assigned to anybody" if requests.unmet else ""
    print_line(f"{counted(len(requests), 'label')} requested: {_cost_text(requests)} ({reasons}){unmet}{written}.")
    _print_unspent(requests)
    if len(outstanding):
        fix = Fix("request them again with {}", "again")
        if requests.probability is not None:
            fix = Fix("let experts grade them too: the estimate needs all draws")
        print_note(Message(c.outstanding_text(outstanding), "outstanding-requests", "note", fixes=(fix,)))


def _print_unspent(requests: Requests) -> None:
    for part in requests.unspent:
        print_line(note_text(part.message()))


def _print_template(template: Path | None, grades: Sequence[str] | None, *, has_template: bool) -> None:
    if not has_template:
        return
    if template is not None:
        print_line(f"Template of the labeling interface written to {template}.")
    elif grades is None:
        fix = Fix("give the scale with {}", "grades", "0-4")
        problem = "no template was written, because the grades are not known"
        print_note(Message(problem, "no-template", "note", fixes=(fix,)))


def _cost_text(requests: Requests) -> str:
    """Return number and price of the requests by kind of assessor."""
    by_kind = requests.by_kind().items()
    return ", ".join(f"{number:,} by {kind} for {money:,.10g}" for kind, (number, money) in by_kind)


def _print_completed(output: Path, *, as_json: bool) -> None:
    """Print that an interrupted command was completed; it makes no new requests, which would replace its output."""
    if as_json:
        print_json({"completed": True, "output": output})
    else:
        print_line(f"Completed the interrupted command: its requests are in {output}. Run the command again for more.")
