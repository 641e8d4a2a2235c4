"""Which column plays which role: the user's map first, then the role's own name, then names the field uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from crowdrank.errors import InputError, UsageError, near, shown

ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "queryid", "qid", "topic", "topicid", "topic_id"),
    "document": ("document_id", "doc", "docid", "doc_id", "docno", "task", "task_id", "item", "item_id", "url"),
    "assessor": ("assessor_id", "worker", "workerid", "worker_id", "judge", "annotator", "annotator_id", "performer"),
    "grade": ("label", "rating", "judgment", "judgement", "relevance_grade"),
    "family": ("assessor_family",),
    "time": ("timestamp", "judged_at"),
    "duration": ("seconds", "work_time"),
    "cost": ("price", "reward"),
    "honeypot": ("gold_answer", "honeypot_answer"),
    "score": ("relevance",),
}
"""Names other tools and data sets use for a role; compared without regard to case."""

GOLD_ALIASES = {**ALIASES, "grade": ("gold", "truth", "label", "rating", "relevance", "rel", "nist_grade")}
"""In a file of expert grades the answer goes by other names."""


def parse_map(text: str | Mapping[str, str] | None) -> dict[str, str]:
    """A column map from `query=topicID,document=docID` (or a mapping).

    >>> parse_map("query=topicID, grade=label")
    {'query': 'topicID', 'grade': 'label'}
    """
    if text is None:
        return {}
    pairs = text.items() if isinstance(text, Mapping) else [_pair(part) for part in text.split(",") if part.strip()]
    mapped: dict[str, str] = {}
    for role, name in pairs:
        if role not in ALIASES:
            raise UsageError(
                f"--columns does not know the role '{role}'{near(role, ALIASES)}; the roles are: {', '.join(ALIASES)}."
            )
        if role in mapped:
            raise UsageError(f"--columns gives the role '{role}' twice; give it once.")
        if name in mapped.values():
            raise UsageError(f"--columns gives the column '{name}' two roles; give it one.")
        mapped[role] = name
    return mapped


def _pair(part: str) -> tuple[str, str]:
    role, equals, name = part.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--columns cannot read '{part.strip()}'; write role=column, as in query=topicID.")
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
    """For each role the column that plays it.

    >>> resolve(["qid", "docid", "judge", "label"], source="labels.tsv", required=["document", "assessor", "grade"],
    ...         optional=["query"])
    {'document': 'docid', 'assessor': 'judge', 'grade': 'label', 'query': 'qid'}
    """
    refuse_doubled(names, source)
    mapped = mapped or {}
    for role, name in mapped.items():
        if name not in names:
            raise InputError(
                f"there is no column {shown(name)} for {role}",
                source=source,
                fix=f"the columns are: {_listed(names)}",
            )
    found: dict[str, str] = {}
    for role in (*required, *optional):
        # A column the map gives to one role is not taken for another.
        free = [name for name in names if name not in mapped.values()]
        column = mapped.get(role) or _by_name(role, free, aliases, source)
        if column is not None:
            found[role] = column
    missing = [role for role in required if role not in found]
    if missing:
        raise InputError(
            f"there is no column for {' and '.join(missing)}",
            source=source,
            fix=f"the columns are: {_listed(names) or 'none'}; say which with --columns "
            + ",".join(f"{role}=NAME" for role in missing),
        )
    return found


def refuse_doubled(names: Sequence[str], source: str) -> None:
    """Refuse a column name that occurs twice: which one is meant cannot be told."""
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise InputError(
            f"the column {shown(doubled[0])} occurs twice", source=source, fix=f"rename one of: {_listed(names)}"
        )


def _by_name(role: str, names: Sequence[str], aliases: Mapping[str, tuple[str, ...]], source: str) -> str | None:
    if role in names:
        return role
    own = [name for name in names if name.casefold() == role]
    others = own or [name for name in names if name.casefold() in aliases.get(role, ())]
    if len(others) > 1:
        raise InputError(
            f"the columns {_listed(others)} could each be the {role}",
            source=source,
            fix=f"say which with --columns {role}={others[0]}",
        )
    return others[0] if others else None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(map(shown, names[:12])) + more
