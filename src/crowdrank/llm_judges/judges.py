"""LLM judges, their prompts, and the file that describes them (judges.toml).

A line `---` separates the system message from the user message; without it, the whole prompt is the user message.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crowdrank._options import read_toml
from crowdrank.constraints import Constraint, Flag, InstanceOf, Number, OneOf
from crowdrank.errors import InputError, UsageError, near, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.replies import PREFERENCE_NAMES, PREFERENCE_SCALES

BUILT_IN_PROMPTS = ("graded", "binary", "preference")
"""Names of the prompts that are installed with crowdrank."""
PLACEHOLDERS = ("query", "need", "document", "left", "right", "grades", "answer")
"""Names that a prompt may have in braces, such as `{query}`; each is replaced by its text."""
REQUIRED_PLACEHOLDERS = ("query", "document")
"""Names that a prompt for grades must have in braces."""
REQUIRED_IN_COMPARISONS = ("query", "left", "right")
"""Names that a prompt for preferences must have in braces; `{left}` or `{right}` make it one."""
MAX_PROMPT_LENGTH = 100_000
"""Maximum number of characters of a prompt file."""
NO_NEED_TEXT = "The need behind the query is not described further."
"""Text in place of `{need}` for a query without a description of its information need."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_SYSTEM_SEPARATOR = re.compile(r"^---[ \t]*\n", re.MULTILINE)

ChatMessage = dict[str, str]
"""Chat message with the keys `role` and `content`."""


@dataclass(frozen=True)
class Prompt:
    """A prompt with placeholders.

    Attributes:
        text: content of the file.
        source: name of the prompt, or path of its file.

    """

    text: str
    source: str

    def __post_init__(self) -> None:
        names = _PLACEHOLDER.findall(self.text)
        for name in names:
            if name not in PLACEHOLDERS:
                problem = f"{{{name}}} is not a placeholder{near(name, PLACEHOLDERS)}"
                raise self._invalid_prompt_error(problem, f"the placeholders are {_join_in_braces(PLACEHOLDERS)}")
        if self.compares and "document" in names:
            problem = "the prompt has both {document} and {left} or {right}"
            raise self._invalid_prompt_error(
                problem, "use {document} for grades, or {left} and {right} for preferences"
            )
        required = REQUIRED_IN_COMPARISONS if self.compares else REQUIRED_PLACEHOLDERS
        missing = [name for name in required if name not in names]
        if missing:
            raise self._invalid_prompt_error(
                f"the prompt lacks {_join_in_braces(missing)}", f"add {_join_in_braces(missing, ' and ')} to the prompt"
            )

    def _invalid_prompt_error(self, problem: str, fix: str) -> InputError:
        return InputError(problem, source=self.source, kind="invalid-prompt", fix=fix)

    @classmethod
    def read(cls, name: str, folder: Path) -> Prompt:
        """Return the built-in prompt `name`, or read the prompt file `name`, a path relative to `folder`."""
        if name in BUILT_IN_PROMPTS:
            return cls(
                resources.files("crowdrank.llm_judges").joinpath("prompt_files", f"{name}.txt").read_text("utf-8"), name
            )
        path = folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
            fix = f"write {' or '.join(BUILT_IN_PROMPTS)}, or the path of a text file"
            hint = near(name, BUILT_IN_PROMPTS)
            raise InputError(
                f"the prompt cannot be read ({reason}){hint}", source=str(path), kind="no-prompt", fix=fix
            ) from problem
        if len(text) > MAX_PROMPT_LENGTH:
            problem_text = f"the prompt has more than {MAX_PROMPT_LENGTH:,} characters"
            raise InputError(problem_text, source=str(path), kind="invalid-prompt", fix="shorten it")
        return cls(text, str(path))

    @property
    def compares(self) -> bool:
        """Whether the prompt asks for a preference between two documents, not for a grade."""
        return any(name in ("left", "right") for name in _PLACEHOLDER.findall(self.text))

    @property
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def messages(self, query: str, need: str, documents: Sequence[str], scale: Scale, answer: str) -> list[ChatMessage]:
        """Return the chat messages; texts are inserted as they are, and braces in them are not expanded.

        Args:
            query: text of the query.
            need: description of the information need, or "".
            documents: text of the document, or texts of the left and the right document.
            scale: grades of the judge.
            answer: sentence that describes the form of the answer; added at the end if the prompt has no `{answer}`.

        """
        values = {
            "query": delimit("QUERY", query),
            "need": delimit("NEED", need) if need.strip() else NO_NEED_TEXT,
            "grades": grade_list(scale),
            "answer": answer,
        }
        names = ("left", "right") if self.compares else ("document",)
        values |= {name: delimit(name.upper(), text) for name, text in zip(names, documents, strict=True)}
        text = self.text if "{answer}" in self.text else f"{self.text.rstrip()}\n\n{{answer}}\n"
        parts = _SYSTEM_SEPARATOR.split(text, maxsplit=1)
        roles = ("user",) if len(parts) == 1 else ("system", "user")
        return [
            {"role": role, "content": _PLACEHOLDER.sub(lambda match: values[match[1]], part).strip()}
            for role, part in zip(roles, parts, strict=True)
        ]


def delimit(name: str, text: str) -> str:
    r"""Return a text between a BEGIN and an END line with its digest, so that the text cannot fake the END line.

    >>> print(delimit("QUERY", "strawberry jam"))
    BEGIN QUERY dcfe076791cc
    strawberry jam
    END QUERY dcfe076791cc
    """
    code = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"BEGIN {name} {code}\n{text}\nEND {name} {code}"


def grade_list(scale: Scale) -> str:
    """Return the grades of a scale from least to most relevant, separated by commas.

    >>> grade_list(Scale.parse("0-3"))
    '0, 1, 2, 3'
    """
    return ", ".join(scale.names)


def _join_in_braces(names: tuple[str, ...] | list[str], separator: str = ", ") -> str:
    return separator.join(f"{{{name}}}" for name in names)


ANSWER_MODES = ("schema", "choice", "guided-choice", "grammar", "pattern")
"""Ways to make a language model answer with a grade; see the attribute `answer` of `Judge`."""
BINARY_SCALE = "0,1"
"""Grades of the built-in prompt `binary`."""
DEFAULT_MAX_TOKENS = 256
"""Default maximum number of tokens of a reply."""
TOKEN_LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens")
"""Parameters that limit the length of a reply; newer models of OpenAI take the second."""
RESERVED_PARAMETERS = frozenset(
    (
        *("model", "messages", "stream", "n", "response_format", "structured_outputs", "guided_choice", "grammar"),
        *("logprobs", "top_logprobs"),
    )
)
"""Keys of a request that crowdrank sets itself; `parameters` of a judge must not have them."""
_VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SECRET_VARIABLE_KEYS = ("key_variable", "token_variable")
_TEXT_CONSTRAINT = InstanceOf(str, "a text")
_TABLE_CONSTRAINT = InstanceOf(dict, "a table")
DEFAULT_PROMPT = "graded"
"""Built-in prompt of judges without the key `prompt`."""


def _judge_field(constraint: Constraint, **default: Any) -> Any:
    """Return a dataclass field of `Judge` with the constraint on its value in TOML files."""
    return field(**default, metadata={"constraint": constraint})


@dataclass(frozen=True)
class Prices:
    """Prices of input and output tokens, per million tokens, in any currency."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of a call, in the currency of the prices.

        >>> Prices(input=0.5, output=2.0).cost(1_000_000, 500_000)
        1.5
        """
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Judge:
    """A language model with a prompt, as one assessor.

    Attributes:
        name: id of the assessor.
        endpoint: base URL of an OpenAI-compatible API, such as `http://127.0.0.1:8000/v1`.
        model: name of the model at the endpoint.
        prompt: the prompt.
        family: family of the assessor; by default the model.
        grades: scale of the answers; by default that of the project, 0,1 for the built-in prompt `binary`, and
            left,tie,right for prompts that compare two documents.
        answer: `schema` (JSON schema), `choice` or `guided-choice` (vLLM, newer and older name), `grammar` (llama.cpp),
            or `pattern` (a last line such as `Grade: 2`).
        samples: number of calls per document; several give probabilities of the grades.
        logprobs: whether to ask for probabilities of tokens, which give probabilities of the grades.
        parameters: parameters of the request, such as temperature and max_tokens.
        prices: prices per million tokens; None if the calls cost nothing.
        key_variable: name of the environment variable with the API key.
        token_variable: name of the environment variable with the judge's token for a judging service.
        requests_per_minute, concurrency: maximum pace, and maximum number of calls at a time.
        timeout: seconds to wait for a reply.
        attempts: maximum number of attempts per call.
        max_characters: maximum number of characters of a document that the judge reads.

    """

    name: str = _judge_field(_TEXT_CONSTRAINT)
    endpoint: str = _judge_field(_TEXT_CONSTRAINT)
    model: str = _judge_field(_TEXT_CONSTRAINT)
    prompt: Prompt = _judge_field(_TEXT_CONSTRAINT)
    family: str = _judge_field(_TEXT_CONSTRAINT, default="")
    grades: str | None = None  # a text or a list in TOML files
    answer: str = _judge_field(OneOf(*ANSWER_MODES), default="schema")
    samples: int = _judge_field(Number(1, 100, integer=True), default=1)
    logprobs: bool = _judge_field(Flag(), default=False)
    parameters: Mapping[str, Any] = _judge_field(_TABLE_CONSTRAINT, default_factory=dict)
    prices: Prices | None = _judge_field(_TABLE_CONSTRAINT, default=None)
    key_variable: str = _judge_field(_TEXT_CONSTRAINT, default="")
    token_variable: str = _judge_field(_TEXT_CONSTRAINT, default="")
    requests_per_minute: float | None = _judge_field(Number(0, above=True), default=None)
    concurrency: int = _judge_field(Number(1, 1000, integer=True), default=4)
    timeout: float = _judge_field(Number(0, above=True), default=120.0)
    attempts: int = _judge_field(Number(1, 100, integer=True), default=5)
    max_characters: int = _judge_field(Number(1, integer=True), default=20_000)

    @property
    def url(self) -> str:
        """URL of the chat completions API of the endpoint."""
        return f"{self.endpoint.rstrip('/')}/chat/completions"

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a reply."""
        return int(
            next(
                (self.parameters[name] for name in TOKEN_LIMIT_PARAMETERS if name in self.parameters),
                DEFAULT_MAX_TOKENS,
            )
        )

    def scale(self, project_scale: Scale) -> Scale:
        """Return the scale of the judge: its own, that of its prompt, or else that of the project.

        The prompt `binary` has the scale 0,1, and prompts for preferences have left, tie, right.
        """
        if self.grades is not None:
            return Scale.parse(self.grades)
        if self.prompt.compares:
            return Scale.parse(PREFERENCE_NAMES)
        return Scale.parse(BINARY_SCALE) if self.prompt.source == "binary" else project_scale

    def api_key(self) -> str:
        """Return the API key from the environment, or "" if the judge needs none.

        Raises:
            UsageError: the variable is not set, or its value cannot be sent in a header. The message has no key.

        """
        return self._read_secret(self.key_variable, "API key") if self.key_variable else ""

    def service_token(self) -> str:
        """Return the token for a judging service from the environment.

        Raises:
            UsageError: the judge has no token, or it cannot be sent in a header. The message has no token.

        """
        if not self.token_variable:
            problem = f"The judge {shown(self.name)} has no token for the judging service"
            fix = 'create one on the page People, set it as an environment variable, and write token_variable = "NAME"'
            raise UsageError(problem, kind="no-token", fix=fix)
        return self._read_secret(self.token_variable, "token")

    def _read_secret(self, variable: str, secret_name: str) -> str:
        """Return the value of an environment variable; raise UsageError if it is not set or not printable ASCII."""
        value = os.environ.get(variable, "").strip()
        if not value:
            problem = f"The judge {shown(self.name)} needs the environment variable {variable}, which is not set"
            raise UsageError(problem, kind="no-key", fix=f"set it to your {secret_name}")
        if not (value.isascii() and value.isprintable()):
            problem = f"The value of the environment variable {variable} is not a valid {secret_name}"
            raise UsageError(problem, kind="invalid-key", fix="set it to printable ASCII characters")
        return value


def read_judges(path: Path, only: Sequence[str] = ()) -> list[Judge]:
    """Read the judges of a TOML file.

    Args:
        path: the file; paths of prompts are relative to its folder.
        only: names of the judges to return; by default all of them.

    Raises:
        InputError: the file cannot be read, or a key or value in it is wrong.
        UsageError: a name in `only` is not in the file.

    """
    tables = _read_tables(path)
    judges = [_JudgeTable(path, number, table).parse() for number, table in enumerate(tables, start=1)]
    names = [judge.name for judge in judges]
    for number, name in enumerate(names):
        if name in names[:number]:
            problem = f"two judges have the name {shown(name)}"
            raise InputError(problem, source=str(path), kind="duplicate-judge", fix="give each judge its own name")
    for name in only:
        if name not in names:
            problem = f"names the judge {shown(name)}, which {path} does not have{near(name, names)}"
            raise UsageError(problem, parameter="only", kind="unknown-judge", fix=f"the judges are {', '.join(names)}")
    return [judge for judge in judges if not only or judge.name in only]


def select_judges(judges: Sequence[Judge], *, compares: bool, source: str = "") -> list[Judge]:
    """Return the judges whose prompt compares two documents, or the others.

    Args:
        judges: the judges.
        compares: whether preferences are wanted, not grades.
        source: name of the file of requests, for messages.

    Raises:
        InputError: there is no such judge.

    """
    found = [judge for judge in judges if judge.prompt.compares == compares]
    if not found:
        wanted, other = ("preferences", "grades") if compares else ("grades", "preferences")
        problem = f"{wanted} are requested, and the prompts of all judges ask for {other}"
        prompt = "preference" if compares else DEFAULT_PROMPT
        fix = f'write prompt = "{prompt}" in the file of judges'
        raise InputError(problem, source=source, kind="other-prompts", fix=fix)
    return found


def _read_tables(path: Path) -> list[dict[str, Any]]:
    """Return the tables `[[judge]]` of a TOML file."""
    source, content = str(path), read_toml(path)
    unknown = next((name for name in content if name != "judge"), None)
    if unknown is not None:
        problem = f"there is no table {shown(unknown)} in a file of judges{near(unknown, ['judge'])}"
        raise InputError(problem, source=source, kind="unknown-option", fix="write one [[judge]] per judge")
    tables = content.get("judge")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError("it has no judges", source=source, kind="no-judges", fix="write one [[judge]] per judge")
    return tables


@dataclass(frozen=True)
class _JudgeTable:
    """Parser of a table `[[judge]]` of a TOML file; `number` counts the tables from 1."""

    path: Path
    number: int
    table: Mapping[str, Any]

    def error(self, problem: str, kind: str, fix: str = "") -> InputError:
        name = self.table.get("name")
        place = f"judge {self.number}" + (f" ({shown(name)})" if isinstance(name, str) and name else "")
        return InputError(problem, source=str(self.path), place=place, kind=kind, fix=fix)

    def parse(self) -> Judge:
        """Return the judge that the table describes; raise InputError if a key or value is wrong."""
        self._check_keys(self.table, [one.name for one in fields(Judge)], "a judge")
        for key in fields(Judge):
            name, is_required = key.name, key.default is MISSING and key.default_factory is MISSING
            if is_required and name != "prompt" and not self.table.get(name):
                raise self.error(f"{name} is missing", "missing-option", f'write {name} = "..."')
        for key in fields(Judge):
            name, constraint = key.name, key.metadata.get("constraint")
            if constraint is not None and name in self.table and not constraint.accepts(self.table[name]):
                value = self.table[name]
                seen = "" if name in _SECRET_VARIABLE_KEYS else f", not {shown(value)}{constraint.suggestion(value)}"
                raise self.error(f"{name} must be {constraint}{seen}", "option-type")
        self._check_endpoint(self.table["endpoint"])
        for name in _SECRET_VARIABLE_KEYS:
            self._check_variable_name(name, self.table.get(name, ""))
        values = dict(self.table)
        values["prompt"] = Prompt.read(values.get("prompt", DEFAULT_PROMPT), self.path.parent)
        values["family"] = values.get("family") or values["model"]
        if "grades" in values:
            values["grades"] = self._parse_grades(values["grades"], values["prompt"])
        if "prices" in values:
            values["prices"] = self._parse_prices(values["prices"])
        self._check_parameters(values.get("parameters", {}))
        return Judge(**values)

    def _check_keys(self, table: Mapping[str, Any], allowed_keys: Iterable[str], owner: str) -> None:
        names = list(allowed_keys)
        for name in table:
            if name not in names:
                problem = f"{shown(name)} is not a key of {owner}{near(name, names)}"
                raise self.error(problem, "unknown-option", f"the keys are {', '.join(names)}")

    def _check_endpoint(self, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            valid = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            valid = False
        if not valid or endpoint != endpoint.strip() or not endpoint.isprintable():
            example = "write the base URL of the API, such as http://127.0.0.1:8000/v1"
            raise self.error("endpoint is not an http or https address", "invalid-endpoint", example)
        if parts.username or parts.password or parts.query or parts.fragment:
            problem = "endpoint has a password, a query or a fragment"
            fix = "remove it from the URL, and name the variable with your API key in key_variable"
            raise self.error(problem, "invalid-endpoint", fix)

    def _check_variable_name(self, key: str, name: str) -> None:
        if name and not _VARIABLE_NAME_PATTERN.fullmatch(name):  # perhaps the secret itself, which is not repeated
            fix = f'write {key} = "JUDGE_SECRET" and set that variable'
            raise self.error(f"{key} is not the name of an environment variable", "invalid-key-variable", fix)

    def _parse_grades(self, value: Any, prompt: Prompt) -> str:
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            scale = Scale.parse(text)
        except UsageError as error:
            fix = 'write grades = "0-3", or names from least to most relevant'
            raise self.error(f"grades {error.problem}", "invalid-scale", fix) from error
        if prompt.compares and scale.names not in PREFERENCE_SCALES:
            problem = f"grades of a prompt that compares two documents cannot be {scale}"
            raise self.error(problem, "invalid-scale", 'write grades = "left,tie,right" or "left,right"')
        return text

    def _parse_prices(self, table: Mapping[str, Any]) -> Prices:
        known = [one.name for one in fields(Prices)]
        self._check_keys(table, known, "prices")
        for name in known:
            if name not in table or not Number(0).accepts(table[name]):
                fix = "write prices = { input = 0.15, output = 0.6 }, per million tokens"
                raise self.error(f"prices need {name}, a number of at least 0", "option-type", fix)
        return Prices(**{name: float(table[name]) for name in known})

    def _check_parameters(self, parameters: Mapping[str, Any]) -> None:
        for name in parameters:
            if name in RESERVED_PARAMETERS:
                fix = "use the keys answer, samples and logprobs of the judge"
                raise self.error(f"parameters has {shown(name)}, which crowdrank sets itself", "reserved-option", fix)
        limits = [name for name in TOKEN_LIMIT_PARAMETERS if name in parameters]
        if len(limits) > 1 or not all(Number(1, integer=True).accepts(parameters[name]) for name in limits):
            problem = (
                f"parameters must have at most one of {' and '.join(TOKEN_LIMIT_PARAMETERS)}, an integer of at least 1"
            )
            raise self.error(problem, "option-type", f"write parameters = {{ {TOKEN_LIMIT_PARAMETERS[0]} = 100 }}")
        try:
            json.dumps(parameters, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            fix = "use texts, finite numbers, true, false, lists and tables"
            raise self.error("parameters has a value that JSON cannot represent", "option-type", fix) from problem
