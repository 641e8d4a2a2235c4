"""Find the column for each role (query, document, assessor, grade, ...) by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from crowdrank.errors import Fix, InputError, UsageError, near, shown

ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "queryid", "qid", "topic", "topicid", "topic_id"),
    "document": (
        *("document_id", "documentid", "doc", "docid", "doc_id", "docno", "passage_id", "passageid"),
        *("task", "task_id", "item", "item_id", "url"),
    ),
    "assessor": (
        *("assessor_id", "worker", "workerid", "worker_id", "judge", "judge_id", "annotator", "annotator_id"),
        *("performer", "rater", "rater_id", "labeler", "username", "user", "user_id"),
    ),
    "grade": ("label", "labels", "cats", "rating", "judgment", "judgement", "relevance_grade"),
    "family": ("assessor_family",),
    "time": ("timestamp", "judged_at"),
    "duration": ("seconds", "work_time"),
    "cost": ("price", "reward"),
    "honeypot": ("gold_answer", "honeypot_answer"),
    "score": ("relevance",),
}
"""Names of other tools and data sets for each role, in lower case."""

GOLD_ALIASES = {**ALIASES, "grade": ("gold", "truth", "label", "rating", "relevance", "rel", "nist_grade")}
"""Names for each role in a file of expert grades."""

OWN_IDS: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "queryid", "qid"),
    "document": ("document_id", "documentid", "doc_id", "docid", "docno"),
    "assessor": ("assessor_id",),
}
"""Names of id columns, which are preferred to a column with the name of the role: that one may hold text."""

ID_NAMES = frozenset(name for role in ("query", "document", "assessor", "family") for name in (role, *ALIASES[role]))
"""Names of columns of ids, in lower case."""

GRADE_LIKE = frozenset(
    ("grade", *ALIASES["grade"], *GOLD_ALIASES["grade"], "target", "y", "ground_truth", "expert_grade", "gold_grade")
)
"""Names of columns that are not used as features, because they probably hold the grade."""

TEXT_LIKE = frozenset(("query", "document", "doc", "text", "query_text", "title", "body", "url", "passage"))
"""Names of columns that are not used as features if they hold text."""


def parse_map(text: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return a column map from `query=topicID,document=docID` or from a mapping.

    >>> parse_map("query=topicID, grade=label")
    {'query': 'topicID', 'grade': 'label'}
    """
    if text is None:
        return {}
    pairs = text.items() if isinstance(text, Mapping) else [_pair(part) for part in text.split(",") if part.strip()]
    mapped: dict[str, str] = {}
    for role, name in pairs:
        if role not in ALIASES:
            problem = f"has the unknown role '{role}'{near(role, ALIASES)}; the roles are: {', '.join(ALIASES)}"
            raise UsageError(problem, parameter="columns")
        if role in mapped:
            raise UsageError(f"gives the role '{role}' twice; give it once", parameter="columns")
        if name in mapped.values():
            raise UsageError(f"gives the column '{name}' two roles; give it one", parameter="columns")
        mapped[role] = name
    return mapped


def _pair(part: str) -> tuple[str, str]:
    role, equals, name = part.partition("=")
    if not equals or not name.strip():
        problem = f"cannot be read at '{part.strip()}'; write role=column, as in query=topicID"
        raise UsageError(problem, parameter="columns")
    return role.strip(), name.strip()


def resolve(
    names: Sequence[str],
    *,
    source: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    mapped: Mapping[str, str] | None = None,
    aliases: Mapping[str, tuple[str, ...]] = ALIASES,
) -> dict[str, str]:
    """Return the column for each role.

    Args:
        names: column names of the table.
        source: name of the table, for messages.
        required: roles that need a column.
        optional: roles that may lack one.
        mapped: columns given by the user, by role.
        aliases: other names for each role.

    Returns:
        Column names by role.

    Raises:
        InputError: a required role has no column, or a role has several that fit.

    >>> resolve(["qid", "query", "docid", "judge", "label"], source="labels.tsv",
    ...         required=["document", "assessor", "grade"], optional=["query"])
    {'document': 'docid', 'assessor': 'judge', 'grade': 'label', 'query': 'qid'}

    """
    refuse_duplicates(names, source)
    mapped = mapped or {}
    for role, name in mapped.items():
        if name not in names:
            problem, fix = f"there is no column {shown(name)} for {role}", f"the columns are: {listed(names)}"
            raise InputError(problem, source=source, kind="no-column", fix=fix)
    free = [name for name in names if name not in mapped.values()]
    columns: dict[str, str] = {}
    for role in (*required, *optional):
        column = mapped.get(role) or _by_name(role, free, aliases, source)
        if column is not None:
            columns[role] = column
    missing = [role for role in required if role not in columns]
    if missing:
        raise InputError(
            f"there is no column for {' and '.join(missing)}; the columns are: {listed(names) or 'none'}",
            source=source,
            kind="no-column",
            fix=Fix("name them with {}", "columns", ",".join(f"{role}=NAME" for role in missing)),
        )
    return columns


def refuse_duplicates(names: Sequence[str], source: str) -> None:
    """Raise InputError if a column name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        problem, fix = f"the column {shown(repeated[0])} occurs twice", f"rename one of: {listed(names)}"
        raise InputError(problem, source=source, fix=fix)


def _by_name(role: str, names: Sequence[str], aliases: Mapping[str, tuple[str, ...]], source: str) -> str | None:
    """Return the column for a role: an id column of the role, its own name, or another alias."""
    known = aliases.get(role, ())
    own_ids = [alias for alias in OWN_IDS.get(role, ()) if alias in known]
    tiers = (_matching(names, own_ids), [role] if role in names else _matching(names, (role,)))
    candidates = next((tier for tier in tiers if tier), None) or _prefer_ids(_matching(names, known))
    if len(candidates) > 1:
        raise InputError(
            f"the columns {listed(candidates)} could each be the {role}",
            source=source,
            kind="ambiguous-column",
            fix=Fix("say which with {}", "columns", f"{role}={candidates[0]}"),
        )
    return candidates[0] if candidates else None


def _matching(names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    wanted = set(wanted)
    return [name for name in names if name.casefold() in wanted]


def _prefer_ids(names: list[str]) -> list[str]:
    """Return the id column of a pair such as `worker` and `worker_id`, and other columns unchanged.

    >>> _prefer_ids(["worker", "worker_id"]), _prefer_ids(["worker", "judge_id"])
    (['worker_id'], ['worker', 'judge_id'])
    """
    stems = {name: name.casefold().removesuffix("id").removesuffix("_") for name in names}
    with_id = {stem for name, stem in stems.items() if stem != name.casefold()}
    return [name for name, stem in stems.items() if stem != name.casefold() or stem not in with_id]


def listed(names: Sequence[str]) -> str:
    """Return quoted names, at most twelve.

    >>> listed(["qid", "docid"])
    "'qid', 'docid'"
    """
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(map(shown, names[:12])) + more
