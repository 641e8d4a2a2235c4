"""Convert the subset of TeX that the pages use to MathML, which browsers render without a script.

An unknown command raises ValueError, so that no equation is rendered wrongly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "theta": "θ", "lambda": "λ",
    "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "ell": "ℓ", "partial": "∂", "infty": "∞",
}  # fmt: skip
SIGNS = {
    "cdot": "·", "times": "×", "le": "≤", "ge": "≥", "ne": "≠", "in": "∈", "sim": "∼", "propto": "∝", "mid": "|",
    "approx": "≈", "to": "→", "leftarrow": "←", "lceil": "⌈", "rceil": "⌉", "ldots": "…", "lvert": "|", "rvert": "|",
    "pm": "±", "top": "⊤",
}  # fmt: skip
WORDS = ("log", "exp", "max", "min", "arg")
LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
SPACES = {",": "0.17em", "quad": "1em", ";": "0.28em"}
TOKEN = re.compile(r"\\([A-Za-z]+|[,;{}|])|([A-Za-z])|(\d+(?:\.\d+)?)|(\s+)|(.)", re.DOTALL)


def mathml(tex: str, *, display: bool = False) -> str:
    r"""Return an equation as a MathML element.

    >>> mathml("r_d^2")
    '<math><msubsup><mi>r</mi><mi>d</mi><mn>2</mn></msubsup></math>'
    >>> mathml(r"\nonsense")
    Traceback (most recent call last):
    ValueError: The equation \nonsense has \nonsense, which tools/mathml.py does not know.
    """
    reader = _Reader(tex, _tokens(tex), display)
    parts = reader.row(until=None)
    shape = ' display="block"' if display else ""
    return f"<math{shape}>{''.join(parts)}</math>"


def _tokens(tex: str) -> list[str]:
    found = []
    for command, letter, number, space, sign in TOKEN.findall(tex):
        if not space:
            found.append("\\" + command if command else letter or number or sign)
    return found


@dataclass
class _Reader:
    tex: str
    tokens: list[str]
    display: bool
    at: int = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise ValueError(f"The equation {self.tex} ends too early.")
        self.at += 1
        return token

    def row(self, until: str | None) -> list[str]:
        """Read elements with their scripts up to a closing token."""
        parts = []
        while (token := self.peek()) != until:
            if token is None:
                raise ValueError(f"The equation {self.tex} lacks a {until!r}.")
            parts.append(self.scripted())
            if token[1:] in WORDS:
                parts.append('<mspace width="0.17em"/>')
        if until is not None:
            self.take()
        return parts

    def scripted(self) -> str:
        token = self.peek()
        base, scripts = self.element(), {}
        while self.peek() in ("_", "^"):
            place = self.take()
            scripts[place] = self.element()
        if not scripts:
            return base
        beside = not (self.display and token is not None and token[1:] in ("sum", "prod", "max", "min"))
        names = {"_": "msub", "^": "msup"} if beside else {"_": "munder", "^": "mover"}
        both = "msubsup" if beside else "munderover"
        name = both if len(scripts) == 2 else names[next(iter(scripts))]
        return f"<{name}>{base}{scripts.get('_', '')}{scripts.get('^', '')}</{name}>"

    def element(self) -> str:
        token = self.take()
        if token == "{":
            return f"<mrow>{''.join(self.row('}'))}</mrow>"
        if token.startswith("\\") and len(token) > 1:
            return self.command(token[1:])
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        return f"<mo{_no_stretch(token)}>{escape('−' if token == '-' else '′' if token == chr(39) else token)}</mo>"

    def command(self, name: str) -> str:
        if name in LETTERS:
            return f"<mi>{LETTERS[name]}</mi>"
        if name in SIGNS or name in "{}|":
            return f"<mo{_no_stretch(SIGNS.get(name, name))}>{escape(SIGNS.get(name, name))}</mo>"
        if name in WORDS:
            return f"<mi>{name}</mi>"
        if name in LARGE:
            return f'<mo class="large">{LARGE[name]}</mo>'
        if name in SPACES:
            return f'<mspace width="{SPACES[name]}"/>'
        if name == "frac":
            return f"<mfrac>{self.element()}{self.element()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.element()}</msqrt>"
        if name in ("hat", "bar"):
            return f'<mover accent="true">{self.element()}<mo>{"^" if name == "hat" else "¯"}</mo></mover>'
        if name in ("text", "mathrm", "operatorname"):
            return f"<mtext>{self.words()}</mtext>"
        raise ValueError(f"The equation {self.tex} has \\{name}, which tools/mathml.py does not know.")

    def words(self) -> str:
        """Read the text in braces; `~` is a space, since spaces are not tokens."""
        if self.take() != "{":
            raise ValueError(f"The equation {self.tex} has \\text without braces.")
        words = []
        while (token := self.take()) != "}":
            words.append(token)
        return escape("".join(words).replace("~", "\N{NO-BREAK SPACE}"))


def _no_stretch(sign: str) -> str:
    """Return the attribute that keeps brackets and bars at the height of the line."""
    return ' stretchy="false"' if sign in "()[]|{}" else ""
