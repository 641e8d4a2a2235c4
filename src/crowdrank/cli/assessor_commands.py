"""The commands `assessors`, `check` and `trace`: who is reliable, does the model fit, why this grade."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_table, print_unjudged_gold

if TYPE_CHECKING:
    import pyarrow as pa

    from crowdrank.assessors.agreement import Alpha
    from crowdrank.assessors.assessor_report import AssessorReport
    from crowdrank.consensus.model import Aggregator

REFERENCE_COLUMNS = {"slope": "compared_with", "bias": "bias_reference"}
"""Column with the reference of each measure that has one."""
MAX_ROWS = 10
"""Maximum number of assessors and of pairs on the terminal: the best and the worst."""

PRINTED_PREFERENCE_COLUMNS = (
    *(
        "assessor",
        "preferences",
        "preference_information",
        "position_bias",
        "position_bias_lower",
        "position_bias_upper",
        "position_bias_p",
    ),
    *("ties", "cycles"),
)
"""Columns of the report on preferences that are printed, if they are there."""


def assessors(
    model: o.Model,
    judgments: o.MaybeJudgmentFiles = None,
    preferences: o.PreferenceFiles = None,
    output: Annotated[Path | None, o.output_option("File for the report: .csv, .tsv, .parquet or .jsonl.")] = None,
    pairs: Annotated[
        Path | None, o.path_option("File for the agreement of each pair of assessors.", help_panel=o.OUTPUT)
    ] = None,
    expert: o.MaybeGoldFile = None,
    gaussians: Annotated[
        Path | None,
        o.path_option("File for mean, width and weight of each assessor's grades (GDA only).", help_panel=o.OUTPUT),
    ] = None,
    *,
    computation: o.Computation,
    reading: o.Reading,
    gold_reading: o.MappedGoldReading,
    preference_reading: o.PreferenceReading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Report the reliability of each assessor, with flags and their evidence.

    Examples:
        crowdrank assessors labels.csv -o assessors.csv --pairs pairs.csv
        crowdrank assessors labels.csv --expert experts.qrels -m dawid-skene
        crowdrank assessors labels.csv -m gda --gaussians gaussians.csv
        crowdrank assessors labels.csv --preferences preferences.csv -o assessors.csv
    """
    from crowdrank.assessors.agreement import agreement_table, krippendorff_alpha
    from crowdrank.assessors.assessor_report import assess
    from crowdrank.assessors.preference_report import add_preference_columns
    from crowdrank.consensus.inspection import grade_gaussians
    from crowdrank.readers.write import check_outputs

    estimator = model.build()
    o.require_preference_options(judgments, preferences, estimator)
    read_files = o.input_files(judgments or [], reading, expert, *(preferences or []))
    check_outputs({"output": output, "pairs": pairs, "gaussians": gaussians}, read_files)
    computation.set_arrow_threads()
    compared = None
    if preferences:
        compared = o.read_preference_files(preferences, preference_reading, reading, alone=not judgments)
    if not judgments:
        o.require_preference_options(None, preferences, estimator, pairs=pairs, gaussians=gaussians)
        grades = o.read_maybe_gold_file(expert, gold_reading, None)
        with computation.open() as engine:
            estimator.fit(None, grades, preferences=compared, engine=engine, progress=True)
        _report_preferences(add_preference_columns(None, estimator), model.method, output, csv_safe, json)
        return
    table = o.read_judgment_files(judgments, reading, compared)
    grades = o.read_maybe_gold_file(expert, gold_reading, table)
    with computation.open() as engine:
        report = assess(estimator.fit(table, gold=grades, preferences=compared, engine=engine, progress=True))
    gaussian_table = None if gaussians is None else grade_gaussians(estimator.assessor_estimator_)
    alpha, pair_table = krippendorff_alpha(table), agreement_table(table)
    o.print_copies(estimator.judgments_)
    unjudged = 0 if grades is None else grades.n_unjudged(table)
    print_unjudged_gold(unjudged)
    with_preferences = add_preference_columns(report.table, estimator)
    o.write_tables([(output, with_preferences), (pairs, pair_table), (gaussians, gaussian_table)], csv_safe=csv_safe)
    if json:
        counts = {"rows": table.report.rows, "skipped": dict(table.report.skipped), "gold_unjudged": unjudged}
        extra = {"columns": dict(table.report.columns), "gaussians": gaussians}
        extra |= {"assessors": with_preferences.to_pylist()}
        print_json({**_summary(model.method, report, alpha, output), **counts, **extra})
        return
    _print_assessors(report)
    if compared is not None:
        _print_preferences(with_preferences)
    if pairs is not None:
        _print_pairs(pair_table, pairs)
    _print_summary(model.method, report, alpha, [str(path) for path in (output, gaussians) if path is not None])


def _print_assessors(report: AssessorReport) -> None:
    """Print the best and the worst assessors, with the references of slope and bias, and honeypots as "2/3"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from crowdrank.assessors.assessor_report import best_and_worst

    table = report.table
    columns = {name: table[name] for name in ("assessor", "judgments", "informativeness")}
    for name, reference in REFERENCE_COLUMNS.items():
        names = set(table[reference].filter(pc.is_valid(table[name])).to_pylist())
        title = f"{name} v. {names.pop()}" if len(names) == 1 else name
        columns |= {title: table[name]} | ({f"{name} v.": table[reference]} if names else {})
    if pc.sum(table["honeypots"]).as_py():
        counts = zip(*(table[name].to_pylist() for name in ("honeypots_right", "honeypots")), strict=True)
        shares = [f"{correct}/{total}" if total else "" for correct, total in counts]
        columns["honeypots"] = pa.array(shares, pa.string())
    table = pa.table({**columns, "flag": table["flag"]})
    order = "the most informative first"
    title = f"Assessors, {order}" if len(table) <= MAX_ROWS else f"Best and worst assessors, {order}"
    print_table(best_and_worst(table, MAX_ROWS), title, MAX_ROWS, len(table))


def _report_preferences(table: pa.Table, method: str, output: Path | None, csv_safe: bool, json: bool) -> None:
    """Write and print the report on assessors with preferences alone."""
    o.write_tables([(output, table)], csv_safe=csv_safe)
    if json:
        print_json({"method": method, "assessors": table.to_pylist(), "output": output})
        return
    _print_preferences(table)
    written = f"; written to {output}" if output is not None else ""
    print_line(f"{counted(len(table), 'assessor')}{written}.")


def _print_preferences(table: pa.Table) -> None:
    """Print the most and the least informative assessors of preferences."""
    import pyarrow.compute as pc

    from crowdrank.assessors.assessor_report import best_and_worst

    rows = table.filter(pc.greater(table["preferences"], 0)).sort_by([("preference_information", "descending")])
    rows = rows.select([name for name in PRINTED_PREFERENCE_COLUMNS if name in rows.column_names])
    title = "Assessors of preferences, the most informative first"
    print_table(best_and_worst(rows, MAX_ROWS), title, MAX_ROWS, len(rows))


def _print_pairs(pair_table: pa.Table, path: Path) -> None:
    """Print the pairs of assessors with the highest and the lowest kappa."""
    from crowdrank.assessors.agreement import MIN_SHARED_DOCUMENTS
    from crowdrank.assessors.assessor_report import best_and_worst

    table = pair_table.sort_by([("kappa", "descending")])
    shared = counted(MIN_SHARED_DOCUMENTS, "shared document")
    print_table(best_and_worst(table, MAX_ROWS), f"Pairs with at least {shared}", MAX_ROWS, len(table))
    print_line(f"{counted(len(table), 'pair')} written to {path}.")


def _summary(method: str, report: AssessorReport, alpha: Alpha, output: Path | None) -> dict[str, Any]:
    return {
        "method": method,
        "informativeness": "modeled" if report.modeled else "measured",
        "flags": {name or "none": number for name, number in report.flags.items()},
        "alpha": asdict(alpha),
        **({} if report.n_eff is None else {"n_eff": report.n_eff}),
        "expert_offset": None if report.expert_offset is None else asdict(report.expert_offset),
        "assessors": report.table.to_pylist(),
        "output": output,
    }


def _print_summary(method: str, report: AssessorReport, alpha: Alpha, outputs: list[str]) -> None:
    """Print the number of assessors by flag, the files, figures of all assessors, and advice by flag."""
    from crowdrank.assessors.advice import ADVICE, FAULTS, REFERENCES
    from crowdrank.assessors.assessor_report import describe_few, describe_thin
    from crowdrank.consensus.families import describe_effective_assessors

    if not report.modeled:
        print_line(f"{method} has no model of assessors: informativeness is measured against the votes of the others.")
    flags = ", ".join(
        f"{number:,} {f'flagged {name}' if name else 'not flagged'}" for name, number in report.flags.items()
    )
    written = f"; written to {' and '.join(outputs)}" if outputs else ""
    print_line(f"{counted(len(report.table), 'assessor')}: {flags}{written}.")
    if effective := describe_effective_assessors(len(report.table), report.n_eff):
        print_line(effective)
    if report.expert_offset is not None:
        print_line(f"{report.expert_offset}.")
    print_line(f"{alpha}.")
    rows = report.table.to_pylist()
    for name in FAULTS:
        flagged = [row for row in rows if row["flag"] == name]
        if flagged:
            references = [row["bias_reference"] for row in flagged if row["bias_reference"] != "thin"]
            reference = " or ".join(REFERENCES[one] for one in REFERENCES if one in references)
            advice = ADVICE[name].text({row.get("kind", "") for row in flagged}, reference)
            print_line(f"{name[0].upper()}{name[1:]}: {advice}.")
    if thin := describe_thin(
        report.table["bias_reference"].to_pylist(), has_experts="gold_judgments" in report.table.column_names
    ):
        print_line(thin)
    if few := describe_few(report.flags.get("few", 0), len(report.table)):
        print_line(few)


def check(
    judgments: o.MaybeJudgmentFiles = None,
    preferences: o.PreferenceFiles = None,
    *,
    model: o.Model,
    computation: o.Computation,
    reading: o.Reading,
    preference_reading: o.PreferenceReading,
    json: o.AsJson = False,
) -> None:
    """Compare what a fitted model predicts with the judgments and preferences (posterior predictive check).

    Examples:
        crowdrank check labels.csv -m gda -s difficulty=true
        crowdrank check --preferences preferences.csv
    """
    from crowdrank.consensus.posterior_check import check as check_model
    from crowdrank.consensus.preference_check import check_preferences

    estimator = model.build()
    o.require_preference_options(judgments, preferences, estimator)
    computation.set_arrow_threads()
    compared = (
        o.read_preference_files(preferences, preference_reading, reading, alone=not judgments) if preferences else None
    )
    table = o.read_judgment_files(judgments, reading, compared) if judgments else None
    with computation.open() as engine:
        estimator.fit(table, preferences=compared, engine=engine, progress=True)
        result = None if table is None else check_model(estimator, table)
    of_preferences = None if compared is None else check_preferences(estimator)
    if json:
        found = {} if result is None or table is None else {**result.to_dict(), "columns": dict(table.report.columns)}
        print_json(found | ({} if of_preferences is None else {"preferences": of_preferences.to_dict()}))
        return
    if result is not None:
        print_table(result.agreement, "Agreement of two judgments of a document")
        print_table(result.assessors, "Assessors whose use of a grade differs most from the expected one")
    if of_preferences is not None:
        print_table(of_preferences.statistics, "Preferences")
        print_table(of_preferences.assessors, "Assessors whose preferences differ most from the expected ones")
    for part in (result, of_preferences):
        for sentence in [] if part is None else part.sentences:
            print_line(sentence)


def trace(
    document: Annotated[str, typer.Option(help="Id of the document.", show_default=False)],
    query: Annotated[
        str | None, typer.Option(help="Id of its query; needed if several queries have the document.")
    ] = None,
    judgments: o.MaybeJudgmentFiles = None,
    preferences: o.PreferenceFiles = None,
    *,
    model: o.Model,
    output: Annotated[
        Path | None, o.output_option("File for the steps; without judgments, for the preferences.")
    ] = None,
    computation: o.Computation,
    reading: o.Reading,
    preference_reading: o.PreferenceReading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Show how the estimate of one document changes with each of its judgments, and the effect of its preferences.

    Examples:
        crowdrank trace labels.csv --document d17 --query q3
        crowdrank trace labels.csv --preferences preferences.csv --document d17 --query q3
    """
    from crowdrank.consensus.trace import trace as replay
    from crowdrank.consensus.trace import trace_preferences
    from crowdrank.readers.write import check_outputs

    estimator = model.build()
    o.require_preference_options(judgments, preferences, estimator)
    check_outputs({"output": output}, o.input_files(judgments or [], reading, *(preferences or [])))
    computation.set_arrow_threads()
    compared = (
        o.read_preference_files(preferences, preference_reading, reading, alone=not judgments) if preferences else None
    )
    table = o.read_judgment_files(judgments, reading, compared) if judgments else None
    with computation.open() as engine:
        estimator.fit(table, preferences=compared, engine=engine, progress=True)
        steps = None if table is None else replay(estimator, table, document, query)
    effects = None if compared is None else trace_preferences(estimator, document, query)
    o.write_tables([(output, effects if steps is None else steps)], csv_safe=csv_safe)
    if json:
        found = {"steps": steps, "preferences": effects}
        columns = {} if table is None else {"columns": dict(table.report.columns)}
        print_json({**{name: one.to_pylist() for name, one in found.items() if one is not None}, **columns})
        return
    if effects is not None:
        print_table(effects, "Preferences, the largest effect first", max_rows=50)
    if steps is not None:
        print_table(steps, max_rows=50)
        last = steps.slice(len(steps) - 1).to_pylist()[0]
        print_line(
            f"After {counted(len(steps), 'judgment')}: relevance {last['relevance']:.3f} "
            f"[{last['lower']:.3f}, {last['upper']:.3f}], grade {last['grade']} ({model.method})."
        )
    if effects is not None:
        print_line(_estimate_sentence(estimator, document, query, len(effects)))


def _estimate_sentence(model: Aggregator, document: str, query: str | None, n_preferences: int) -> str:
    """Return the estimate of a document by all judgments and preferences as a sentence."""
    rows = model.consensus_.document_table.to_pylist()
    of_query = (row for row in rows if query is None or str(row["query"]) == query)
    row = next(row for row in of_query if str(row["document"]) == document)
    return (
        f"With {counted(n_preferences, 'preference')}: relevance {row['relevance']:.3f} "
        f"[{row['lower']:.3f}, {row['upper']:.3f}]."
    )
