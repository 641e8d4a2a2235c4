"""Print random docstrings and names for a reader who does not know the project.

    python -m tools.sample_for_reader --seed 1 --count 40 [PACKAGE ...]

The reader says which of them are clear at first read. Docstrings come without code, names without docstrings. A package
is a folder or module below `src/crowdrank`, such as `judgments` or `_files`.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

SOURCE = Path(__file__).parent.parent / "src" / "crowdrank"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Item = TypeVar("Item")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a sample of docstrings and one of names."""
    parser = argparse.ArgumentParser(description="Print random docstrings and names for a reader.")
    parser.add_argument("packages", nargs="*", help="packages or modules; by default all")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--count", type=int, default=40, help="number of docstrings and of names")
    options = parser.parse_args(arguments)
    try:
        paths = source_files(options.packages)
    except FileNotFoundError as problem:
        parser.error(str(problem))
    docstrings = sorted(item for path in paths for item in find_docstrings(path))
    names = sorted({item for path in paths for item in find_names(path)})
    rng = random.Random(options.seed)
    write = sys.stdout.write
    write("# Docstrings\n\n")
    for number, (name, text) in enumerate(sample(docstrings, options.count, rng), 1):
        write(f"{number}. {name}\n\n{indent(text)}\n\n")
    write("# Names\n\n")
    for number, name in enumerate(sample(names, options.count, rng), 1):
        write(f"{number}. {name}\n")


def source_files(packages: Sequence[str]) -> list[Path]:
    """Return the Python files of packages and modules; raise FileNotFoundError if there are none."""
    if not packages:
        return list(SOURCE.rglob("*.py"))
    files = []
    for name in packages:
        found = [path for path in (SOURCE / f"{name}.py",) if path.is_file()] or list((SOURCE / name).rglob("*.py"))
        if not found:
            raise FileNotFoundError(f"there is no package or module {name} below {SOURCE}")
        files += found
    return files


def module_name(path: Path) -> str:
    """Return the dotted name of a module.

    >>> module_name(SOURCE / "readers" / "read.py"), module_name(SOURCE / "judgments" / "__init__.py")
    ('crowdrank.readers.read', 'crowdrank.judgments')
    """
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def find_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the qualified names and docstrings of a module and of all definitions in it, also of constants."""
    tree, module = ast.parse(path.read_text(encoding="utf-8")), module_name(path)
    if text := ast.get_docstring(tree):
        yield module, text
    for name, node in definitions(tree, module):
        if text := ast.get_docstring(node):
            yield name, text
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        text = _string(following)
        if text is not None:
            yield from ((f"{module}.{name}", text) for name in _targets(statement))


def find_names(path: Path) -> Iterator[str]:
    """Yield the qualified names of constants, functions, classes, methods and parameters of a module."""
    tree, module = ast.parse(path.read_text(encoding="utf-8")), module_name(path)
    for statement in tree.body:
        yield from (f"{module}.{name}" for name in _targets(statement))
    for name, node in definitions(tree, module):
        if _is_special(name.rpartition(".")[2]):
            continue
        yield name
        if not isinstance(node, ast.ClassDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (f"{name}, parameter {_signature(one)}" for one in arguments if one.arg not in ("self", "cls"))


def _signature(argument: ast.arg) -> str:
    """Return a parameter with its type, as its signature shows it."""
    return argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"


def definitions(tree: ast.Module | Definition, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Yield the functions, classes and methods of a module, without functions inside of functions."""
    for node in tree.body:
        if isinstance(node, Definition):
            name = f"{prefix}.{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, name)


def _targets(statement: ast.stmt) -> list[str]:
    """Return the names that a statement assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return [name for name in names if not _is_special(name)]


def _string(statement: ast.stmt) -> str | None:
    """Return the text of a statement that is only a string."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def sample(items: Sequence[Item], count: int, rng: random.Random) -> list[Item]:
    """Return `count` random items, or all in random order if there are fewer."""
    return rng.sample(items, min(count, len(items)))


def indent(text: str) -> str:
    """Indent a text for Markdown."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    main()
