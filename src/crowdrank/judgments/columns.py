"""Find the column for each role (query, document, assessor, grade, ...) by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crowdrank.errors import Fix, InputError, UsageError, near, shown

COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": (
        *("query_id", "queryid", "qid", "topic", "topicid", "topic_id"),
        *(f"search{separator}{noun}" for noun in ("query", "term", "phrase") for separator in ("", " ", "_", "-")),
    ),
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
    "kind": ("assessor_kind",),
    "time": ("timestamp", "judged_at"),
    "duration": ("seconds", "work_time"),
    "cost": ("price", "reward"),
    "honeypot": ("gold_answer", "honeypot_answer"),
    "score": ("relevance",),
    "scale": (),
}
"""Column names that other tools and data sets use for each role, in lower case."""

PREFERENCE_COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    **{role: COLUMN_ALIASES[role] for role in ("query", "assessor", "family")},
    "left": ("left_document", "left_id", "document_left", "document_a", "doc_a", "docid_a"),
    "right": ("right_document", "right_id", "document_right", "document_b", "doc_b", "docid_b"),
    "preference": ("choice",),
    "winner": ("chosen", "preferred"),
    "loser": ("rejected",),
}
"""Column names for each role in a file of preferences, in lower case."""

ROLE_NAMES = tuple(dict.fromkeys((*COLUMN_ALIASES, *PREFERENCE_COLUMN_ALIASES)))
"""Names of all roles that a column can have."""

KNOWN_COLUMN_NAMES = frozenset(name for role, aliases in COLUMN_ALIASES.items() for name in (role, *aliases))
"""All names of columns that are recognized, in lower case."""

GOLD_COLUMN_ALIASES = {
    **COLUMN_ALIASES,
    "grade": ("gold", "truth", "label", "rating", "relevance", "rel", "nist_grade"),
}
"""Column names for each role in a file of expert grades, in lower case."""

ID_COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "queryid", "qid"),
    "document": ("document_id", "documentid", "doc_id", "docid", "docno"),
    "assessor": ("assessor_id",),
}
"""Names of id columns by role, in lower case.

They are preferred to a column named like the role, which may hold text: `query_id` to `query`.
"""

ID_COLUMN_NAMES = frozenset(
    name for role in ("query", "document", "assessor", "family") for name in (role, *COLUMN_ALIASES[role])
)
"""All names of columns that hold ids, in lower case."""

GRADE_LIKE_COLUMNS = frozenset(
    {"grade", *COLUMN_ALIASES["grade"], *GOLD_COLUMN_ALIASES["grade"]}
    | {"target", "y", "ground_truth", "expert_grade", "gold_grade"}
)
"""Names of columns that are not used as features, because they probably hold the grade."""

LETOR_FEATURE_PATTERN = re.compile(r"f[1-9]\d*", re.ASCII)
"""Name of a feature of a LETOR file, such as f46 for the feature at position 46."""

PROBABILITY_COLUMN_PATTERN = re.compile(r"p(0|[1-9]\d{0,2})")
"""Name of a column with the probability of a grade: p and the value of the grade."""

PROBABILITY_SUM_TOLERANCE = 0.01
"""Maximum distance of the sum of the probabilities of the grades from 1, as in files with rounded numbers."""

SCALE_COLUMN = "scale"
"""Column with the scale of named grades, from least to most relevant (`Bad|Fair|Good`), the same in all rows."""

PRIOR_RELEVANCE = "prior_relevance"
"""Column with the relevance that features alone predict; only a consensus that used features has it."""

PREFERENCES = "preferences"
"""Column of a consensus and of a table of assessors: number of preferences."""
EXPERT_GRADED = "expert_graded"
"""Column of a consensus: 1 for documents whose expert grade the fit used, 0 for the others."""

FEATURES_USED = "features-used"
"""Kind of the note on labels of a consensus that used features of the documents."""

TEXT_LIKE_COLUMNS = frozenset(("query", "document", "doc", "text", "query_text", "title", "body", "url", "passage"))
"""Names of columns that are not used as features if they hold text."""


def preference_roles(column_names: Iterable[str], column_map: Mapping[str, str]) -> set[str]:
    """Return the roles of preferences that a map of columns has, or that columns have by their names.

    >>> sorted(preference_roles(["docA", "right", "remark"], {"left": "docA"}))
    ['left', 'right']
    """
    names = {name.casefold() for name in column_names}
    return {*column_map, *(role for role, aliases in PREFERENCE_COLUMN_ALIASES.items() if names & {role, *aliases})}


def parse_column_map(column_map: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return column names by role, parsed from text such as `query=topicID,document=docID` or from a mapping.

    >>> parse_column_map("query=topicID, grade=label")
    {'query': 'topicID', 'grade': 'label'}
    """
    if column_map is None:
        return {}
    if isinstance(column_map, str):
        pairs = [_parse_role_and_column(part) for part in column_map.split(",") if part.strip()]
    else:
        pairs = list(column_map.items())
    mapped: dict[str, str] = {}
    for role, name in pairs:
        if role not in ROLE_NAMES:
            known = f"{near(role, ROLE_NAMES)}; the roles are: {', '.join(ROLE_NAMES)}"
            raise UsageError(f"has the unknown role '{role}'{known}", parameter="columns")
        if role in mapped:
            raise UsageError(f"gives the role '{role}' twice; give it once", parameter="columns")
        if name in mapped.values():
            raise UsageError(f"gives the column '{name}' two roles; give it one", parameter="columns")
        mapped[role] = name
    return mapped


def _parse_role_and_column(text: str) -> tuple[str, str]:
    """Parse `query=topicID` into a role and a column name."""
    role, equals, name = text.partition("=")
    if not equals or not name.strip():
        problem = f"cannot be read at '{text.strip()}'; write role=column, as in query=topicID"
        raise UsageError(problem, parameter="columns")
    return role.strip(), name.strip()


@dataclass(frozen=True)
class Roles:
    """Roles of the columns of a table.

    Attributes:
        required: roles that must have a column.
        optional: roles that may have a column.
        aliases: other column names for each role, in lower case.

    >>> Roles(("document", "grade"), ("query",)).find_columns(["qid", "query", "docid", "label"], "labels.tsv")
    {'document': 'docid', 'grade': 'label', 'query': 'qid'}

    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: COLUMN_ALIASES)

    def find_columns(
        self, column_names: Sequence[str], source: str, column_map: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the name of the column for each role.

        Args:
            column_names: names of all columns of the table.
            source: name of the table, for messages.
            column_map: column names by role that the user gave.

        Raises:
            InputError: a required role has no column, or a role has several that fit.

        """
        refuse_duplicate_columns(column_names, source)
        column_map = column_map or {}
        for role, name in column_map.items():
            if name not in column_names:
                problem = f"there is no column {shown(name)} for {role}"
                fix = f"the columns are: {quote_names(column_names)}"
                raise InputError(problem, source=source, kind="no-column", fix=fix)
        free = [name for name in column_names if name not in column_map.values()]
        found = {
            role: column_map.get(role) or self._find_column(role, free, source)
            for role in (*self.required, *self.optional)
        }
        missing = [role for role in self.required if found[role] is None]
        if missing:
            _refuse_preferences(self.required, column_names, source)
            listed = quote_names(column_names) or "none"
            problem = f"there is no column for {' and '.join(missing)}; the columns are: {listed}"
            fixes = [Fix("name them with {}", "columns", ",".join(f"{role}=NAME" for role in missing))]
            if len(column_names) == 1 or any(re.fullmatch(r"-?[0-9.]+", name) for name in column_names):
                fixes.append(Fix("add a header if the first line is none"))
            if any(name != name.strip() for name in column_names):
                fixes.append(Fix("remove the spaces around names and cells"))
            raise InputError(problem, source=source, kind="no-column", fix=fixes)
        return {role: column for role, column in found.items() if column is not None}

    def _find_column(self, role: str, column_names: Sequence[str], source: str) -> str | None:
        """Return the column for a role: an id column, a column named like the role, or one with another alias."""
        role_aliases = self.aliases.get(role, ())
        own_ids = [alias for alias in ID_COLUMN_ALIASES.get(role, ()) if alias in role_aliases]
        candidates = (
            _columns_named(column_names, own_ids)
            or ([role] if role in column_names else _columns_named(column_names, (role,)))
            or _prefer_id_columns(_columns_named(column_names, role_aliases))
        )
        if len(candidates) > 1:
            problem = f"the columns {quote_names(candidates)} could each be the {role}"
            fix = Fix("say which with {}", "columns", f"{role}={candidates[0]}")
            raise InputError(problem, source=source, kind="ambiguous-column", fix=fix)
        return candidates[0] if candidates else None


def _refuse_preferences(required: Sequence[str], column_names: Sequence[str], source: str) -> None:
    """Raise InputError if documents with grades are required, and the columns are those of preferences."""
    names = {name.casefold() for name in column_names}
    has = {role for role, aliases in PREFERENCE_COLUMN_ALIASES.items() if names & {role, *aliases}}
    if {"document", "grade"} <= set(required) and ({"left", "right"} <= has or {"winner", "loser"} <= has):
        problem = (
            f"these are preferences between two documents, not grades; the columns are: {quote_names(column_names)}"
        )
        raise InputError(problem, source=source, kind="is-preferences", fix="give the file as preferences")


def count_known_columns(header: str, separators: str) -> int:
    """Return how many cells of a header are names of known columns, if it is split at any of the characters.

    >>> count_known_columns('qid;"grade";f1', ";,"), count_known_columns("qid;grade;f1", ",")
    (2, 0)
    """
    cells = re.split(f"[{re.escape(separators)}]", header)
    return len(KNOWN_COLUMN_NAMES.intersection(cell.strip(' "').casefold() for cell in cells))


def probability_column(grade_value: float) -> str:
    """Return the name of the column with the probability of a grade.

    >>> probability_column(2.0)
    'p2'
    """
    return f"p{int(grade_value)}"


def find_probability_columns(names: Iterable[str]) -> list[str]:
    """Return the columns with the probability of a grade, from the lowest to the highest; none if there is only one.

    >>> find_probability_columns(["query", "p2", "p10", "p1", "price"])
    ['p1', 'p2', 'p10']
    """
    found = sorted(
        (name for name in names if PROBABILITY_COLUMN_PATTERN.fullmatch(name)), key=lambda name: int(name[1:])
    )
    return found if len(found) > 1 else []


def refuse_duplicate_columns(column_names: Sequence[str], source: str) -> None:
    """Raise InputError if a column name occurs twice."""
    repeated = [name for name, count in Counter(column_names).items() if count > 1]
    if repeated and not repeated[0].strip():
        problem, fix = "several columns have no name", "check that the first line has the names of all columns"
        raise InputError(problem, source=source, kind="no-header", fix=fix)
    if repeated:
        problem, fix = f"the column {shown(repeated[0])} occurs twice", f"rename one of: {quote_names(column_names)}"
        raise InputError(problem, source=source, fix=fix)


def _columns_named(column_names: Iterable[str], lowercase_names: Iterable[str]) -> list[str]:
    """Return the columns whose lower-case name is one of `lowercase_names`."""
    lowercase_names = set(lowercase_names)
    return [name for name in column_names if name.casefold() in lowercase_names]


def _prefer_id_columns(column_names: list[str]) -> list[str]:
    """Drop columns such as `worker` if there is also an id column such as `worker_id`.

    >>> _prefer_id_columns(["worker", "worker_id"]), _prefer_id_columns(["worker", "judge_id"])
    (['worker_id'], ['worker', 'judge_id'])
    """
    stems = {name: name.casefold().removesuffix("id").removesuffix("_") for name in column_names}
    with_id = {stem for name, stem in stems.items() if stem != name.casefold()}
    return [name for name, stem in stems.items() if stem != name.casefold() or stem not in with_id]


def quote_names(names: Sequence[str]) -> str:
    """Return names in quotes, separated by commas; after twelve names, only the number of the others.

    >>> quote_names(["qid", "docid"])
    "'qid', 'docid'"
    """
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(map(shown, names[:12])) + more


def is_letor_feature(feature_name: str) -> bool:
    """Return whether a feature name has the form of LETOR features: f and the position.

    >>> is_letor_feature("f46"), is_letor_feature("bm25")
    (True, False)
    """
    return LETOR_FEATURE_PATTERN.fullmatch(feature_name) is not None


def feature_position(feature_name: str) -> int:
    """Return the position of a LETOR feature, given its name.

    >>> feature_position("f46")
    46
    """
    return int(feature_name[1:])
