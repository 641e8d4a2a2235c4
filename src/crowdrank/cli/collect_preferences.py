"""Requests of preferences in `collect next`, and preferences in `collect add`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdrank._text import counted, enumerate_names
from crowdrank.cli.console import note_text, print_json, print_line, print_note, print_table
from crowdrank.collection.preference_requests import PreferenceRequestList, PreferenceRequests, preference_list_path
from crowdrank.errors import Fix, InputError, Message, UsageError, parameter_prefix

if TYPE_CHECKING:
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.preference_pairs import PreferencePairs
    from crowdrank.collection.requests import Budget
    from crowdrank.consensus.gda import GDA
    from crowdrank.consensus.model import Aggregator
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.judgments.table import Judgments
    from crowdrank.readers.read_options import PreferenceReadOptions, ReadOptions

PREFERENCE_POLICY = "preferences"
"""Name of the policy that requests preferences."""


def require_preference_policy(
    policy: str, preferences: Path | None, estimator: Aggregator, **unavailable: object
) -> bool:
    """Return whether the policy requests preferences.

    Raises:
        UsageError: it does and an option or the model is not for preferences, or it does not and there are some.

    """
    if policy.strip().lower() != PREFERENCE_POLICY:
        if preferences is not None:
            fix = Fix("use {}", "policy", PREFERENCE_POLICY)
            raise UsageError("needs the policy preferences", parameter="preferences", kind="other-policy", fix=fix)
        return False
    if preferences is None:
        fix = Fix("name the file of the preferences so far, which need not exist, with {}", "preferences")
        raise UsageError("preferences needs their file", parameter="policy", kind="no-preferences", fix=fix)
    for name, value in unavailable.items():
        if value:
            problem = "cannot be used with the policy preferences"
            raise UsageError(problem, parameter=name, kind="with-preferences", fix="leave it out")
    estimator._check_preferences()
    return True


def read_so_far(path: Path, read_options: PreferenceReadOptions, other_options: ReadOptions) -> Preferences | None:
    """Read the preferences so far; None if there is no file, or only a header."""
    shared = {"exclude": other_options.exclude, "max_bytes": other_options.max_bytes}
    with parameter_prefix("preferences_"):
        return _read_existing(path, **(asdict(read_options) | shared))


def _read_existing(path: Path, **options: Any) -> Preferences | None:
    from crowdrank.readers.preference_files import read_preferences

    if not path.exists():
        return None
    try:
        return read_preferences(path, **options)
    except InputError as error:
        if error.kind == "no-rows":
            return None
        raise


def request_preferences(
    policy: PreferencePairs,
    pool: Pool,
    so_far: tuple[Judgments | None, Preferences | None, Gold | None],
    estimator: Aggregator,
    budget: Budget,
    files: tuple[Path, Path | None],
    *,
    again: bool,
    csv_safe: bool,
    as_json: bool,
) -> None:
    """Choose preferences to request, write them and the list of requests, and print them.

    Args:
        policy: the policy.
        pool: documents that may be compared, and assessors.
        so_far: judgments, preferences and expert grades so far.
        estimator: the model to fit.
        budget: money and its terms.
        files: file of the preferences so far, and file for the requests.
        again: whether outstanding requests are dropped.
        csv_safe: protect spreadsheets from formulas.
        as_json: print JSON.

    """
    from crowdrank._files import locked, write_together
    from crowdrank.readers.write import write_table

    judgments, preferences, gold = so_far
    path, output = files
    ledger, model = preference_list_path(path), None
    if judgments is not None or preferences is not None:
        model = estimator.fit(judgments, gold=gold, preferences=preferences, progress=True)
    with nullcontext() if output is None else locked(ledger):
        listed = PreferenceRequestList.read(ledger)
        pending = listed.is_outstanding(preferences)
        if again:
            listed, pending = listed.where(~pending), pending[~pending]
        outstanding = listed.where(pending)
        wanted = policy.next(pool, judgments, preferences, _as_gda(model), budget, outstanding)
        if output is not None:
            with write_together(ledger):
                write_table(wanted.table, output, csv_safe=csv_safe)
                if len(wanted) or again:
                    listed.append(PreferenceRequestList.of(wanted, preferences)).write(ledger)
    unspent = [] if wanted.unspent is None else [wanted.unspent]
    if as_json:
        notes = [{**asdict(part), "note": note_text(part.message())} for part in unspent]
        summary = {"requests": len(wanted), "cost": wanted.cost, "unspent": notes, "out": len(outstanding)}
        print_json({"policy": PREFERENCE_POLICY, **summary, "output": output, "list": ledger if output else None})
        return
    _print_requests(wanted, outstanding, output)


def _as_gda(model: Aggregator | None) -> GDA | None:
    from crowdrank.consensus.gda import GDA

    assert model is None or isinstance(model, GDA)
    return model


def _print_requests(wanted: PreferenceRequests, outstanding: PreferenceRequestList, output: Path | None) -> None:
    """Print the requests, what is not spent, and the number of outstanding requests."""
    if len(wanted):
        print_table(wanted.table)
    written = f"; written to {output}" if output is not None and len(wanted) else ""
    print_line(f"{counted(len(wanted), 'preference')} requested for {wanted.cost:,.10g}{written}.")
    if wanted.unspent is not None:
        print_line(note_text(wanted.unspent.message()))
    if len(outstanding):
        fix = Fix("request them again with {}", "again")
        problem = f"{counted(len(outstanding), 'request')} outstanding"
        print_note(Message(problem, "outstanding-requests", "note", fixes=(fix,)))


def add_preferences(
    path: Path,
    batches: Sequence[Path],
    output: Path | None,
    pool: Pool | None,
    file_options: dict[str, Any],
    batch_options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Add batches of preferences to a file and print what was done with them; the options are those of both."""
    from crowdrank._files import locked
    from crowdrank.collection.preference_batches import add_batches

    target = path if output is None else output
    with locked(target):
        is_new = not path.exists() or not path.stat().st_size
        before = _read_existing(path, **file_options)
        result = add_batches(path, batches, target, pool, file_options=file_options, batch_options=batch_options)
        after_options = {"columns": batch_options["columns"]} if is_new else file_options
        after = _read_existing(target, **after_options) if result.written else before
    listed = PreferenceRequestList.read(preference_list_path(path))
    was_out, is_out = (int(listed.is_outstanding(one).sum()) for one in (before, after))
    written = str(target) if result.written else None
    if result.lost:
        are = "which the batches have and which are" if len(result.lost) > 1 else "which the batches have and which is"
        problem = f"{path} has no column for {enumerate_names(result.lost)}, {are} not kept"
        print_note(Message(problem, "lost-columns", "note", fixes=(Fix("add the column"),)))
    if as_json:
        counts = {"output": written, "came_back": was_out - is_out, "out": is_out}
        print_json({"batches": [asdict(one) for one in result.batches], "preferences": result.total, **counts})
        return
    for one in result.batches:
        added = counted(one.added, "preference")
        print_line(f"{one.batch}: {added} added, {one.changed:,} changed, {one.known:,} unchanged.")
    if was_out:
        print_line(f"{counted(was_out - is_out, 'request')} answered, {is_out:,} outstanding.")
    print_line(f"Written to {written}." if written is not None else f"{path} is unchanged.")


def are_preferences(batches: Sequence[Path], options: dict[str, Any]) -> bool:
    """Return whether the first batch has preferences: left and right documents, or winners and losers, and no grade."""
    from crowdrank.judgments.columns import COLUMN_ALIASES, parse_column_map, preference_roles
    from crowdrank.readers.formats import open_source

    column_map = parse_column_map(options["columns"])
    names = open_source(batches[0], options["format"])[0].names
    has = preference_roles(names, column_map)
    has_document = bool({name.casefold() for name in names} & {"document", *COLUMN_ALIASES["document"]})
    return not (has_document or "document" in column_map) and ({"left", "right"} <= has or {"winner", "loser"} <= has)
