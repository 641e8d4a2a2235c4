"""Prompts of LLM judges: text files with placeholders for the query, the need, the document and the grades.

A line `---` separates the system message from the user message; without it, the whole file is the user message.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from crowdrank.errors import InputError, near
from crowdrank.judgments.scale import Scale

BUILT_IN_PROMPTS = ("graded", "binary")
"""Names of the prompts of crowdrank."""
PLACEHOLDERS = ("query", "need", "document", "grades", "answer")
"""Names that a prompt may have in braces."""
REQUIRED_PLACEHOLDERS = ("query", "document")
"""Names that a prompt must have in braces."""
MAX_PROMPT_LENGTH = 100_000
"""Maximum number of characters of a prompt file."""
NO_NEED = "The need behind the query is not described further."
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_SEPARATOR = re.compile(r"^---[ \t]*\n", re.MULTILINE)

Message = dict[str, str]
"""A chat message: role and content."""


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
                raise self._error(problem, f"the placeholders are {_braced(PLACEHOLDERS)}")
        missing = [name for name in REQUIRED_PLACEHOLDERS if name not in names]
        if missing:
            raise self._error(f"the prompt lacks {_braced(missing)}", f"add {_braced(missing, ' and ')} to the prompt")

    def _error(self, problem: str, fix: str) -> InputError:
        return InputError(problem, source=self.source, kind="invalid-prompt", fix=fix)

    @classmethod
    def read(cls, name: str, folder: Path) -> Prompt:
        """Return the built-in prompt of this name, or read a file; its path is relative to `folder`."""
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
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def messages(self, query: str, need: str, document: str, scale: Scale, answer: str) -> list[Message]:
        """Return the chat messages; texts are inserted as they are, and braces in them are not expanded.

        Args:
            query: text of the query.
            need: description of the information need, or "".
            document: text of the document.
            scale: grades of the judge.
            answer: sentence that describes the form of the answer; added at the end if the prompt has no `{answer}`.

        """
        values = {
            "query": delimit("QUERY", query),
            "need": delimit("NEED", need) if need.strip() else NO_NEED,
            "document": delimit("DOCUMENT", document),
            "grades": grade_list(scale),
            "answer": answer,
        }
        text = self.text if "{answer}" in self.text else f"{self.text.rstrip()}\n\n{{answer}}\n"
        parts = _SEPARATOR.split(text, maxsplit=1)
        roles = ("user",) if len(parts) == 1 else ("system", "user")
        return [
            {"role": role, "content": _PLACEHOLDER.sub(lambda match: values[match[1]], part).strip()}
            for role, part in zip(roles, parts, strict=True)
        ]


def delimit(name: str, text: str) -> str:
    r"""Return a text between two lines with a code that the text cannot contain, because it is a digest of the text.

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


def _braced(names: tuple[str, ...] | list[str], separator: str = ", ") -> str:
    return separator.join(f"{{{name}}}" for name in names)
