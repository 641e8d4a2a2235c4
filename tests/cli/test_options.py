"""Options made from dataclasses: names, choices, defaults, and what overrides what."""

from __future__ import annotations

import inspect
import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from crowdrank._options import option_fields, option_name, union_members
from crowdrank.cli import options as shared
from crowdrank.cli.app import app
from crowdrank.consensus import METHODS
from crowdrank.errors import InputError, UsageError
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import build_run_data
from crowdrank.pipeline.run_settings import PREFIXES, RunConfig, RunSettings, read_config
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.readers.formats import FORMATS
from crowdrank.readers.read import read_gold, read_judgments
from crowdrank.readers.read_options import Format, GoldReadOptions, ReadOptions
from crowdrank.simulation.world import World, simulate
from terminal import Run, crowdrank
from tools.command_line import commands

COMMANDS = dict(commands(typer.main.get_command(app)))
LABELS = "query,document,assessor,grade\nq,a,ann,1\nq,b,ann,0\nq,a,bob,1\nq,b,bob,2\nq,a,cy,0\nq,b,cy,2\n"


def test_arrow_has_the_threads_of_the_local_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(pa, "set_cpu_count", given.append)
    for engine, n_jobs in (("local", 3), ("local", None), ("dask", 2)):
        shared.EngineOptions(engine, n_jobs).set_arrow_threads()
    assert given == [3]


@pytest.fixture(scope="module")
def world() -> World:
    return simulate(queries=4, documents=5, random_state=1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "labels.csv").write_text(LABELS)
    (tmp_path / "pool.csv").write_text("query,document\nq,a\nq,b\nq,c\n")
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


@pytest.mark.parametrize(
    ("options", "reader", "others"),
    [(ReadOptions, read_judgments, {"source"}), (GoldReadOptions, read_gold, {"source", "max_bytes", "scale"})],
)
def test_read_options_mirror_the_reader(options: type, reader: Any, others: set[str]) -> None:
    parameters = inspect.signature(reader).parameters
    defaults = {one.name: one.default for one in fields(options)}
    assert set(defaults) == set(parameters) - others
    assert all(parameters[name].default == value for name, value in defaults.items() if name != "max_bytes")


def test_the_formats_are_those_of_the_readers() -> None:
    assert set(get_args(Format)) == set(FORMATS)


def run_options() -> list[Any]:
    """Return each option of `run` with a value for the file, another for the command line, and its type."""
    found = []
    for kind, prefix in PREFIXES.items():
        for one, hint in option_fields(kind):
            name, flag = prefix + option_name(one.name), f"--{(prefix + option_name(one.name)).replace('_', '-')}"
            in_file, words = values(one.default, union_members(hint)[0], flag)
            found.append(pytest.param(name, in_file, words, id=name))
    return found


def values(default: Any, kind: Any, flag: str) -> tuple[Any, list[str]]:
    """Return a value for the file, and the words that give the default (if there is one) on the command line."""
    if kind is bool:
        return not default, [flag if default else flag.replace("--", "--no-", 1)]
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return choices[-1], [flag, choices[0] if default is None else default]
    if kind in (int, float):
        return 7, [flag, str(3 if default is None else default)]
    return "other", [flag, default if isinstance(default, str) else "explicit"]


@pytest.mark.parametrize(("name", "in_file", "words"), run_options())
def test_an_explicit_option_overrides_the_file(
    name: str, in_file: Any, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: dict[str, Any] = {}

    def catch(options: dict[str, Any]) -> None:
        caught.update(options)
        raise typer.Exit

    monkeypatch.setattr(RunConfig, "from_options", catch)
    config = tmp_path / "run.toml"
    config.write_text(f"{name} = {json.dumps(in_file)}\n")
    for explicit in (False, True):
        done = CliRunner().invoke(app, ["run", str(config), *(words if explicit else ())], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert set(caught) == {name}
        value = caught[name][0] if isinstance(caught[name], list | tuple) else caught[name]
        if explicit:
            assert str(value) == words[-1] if len(words) > 1 else value is not in_file
        else:
            assert value == in_file or value == tmp_path / str(in_file)


def test_options_of_the_file_become_settings(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'judgments = ["a.csv", "b.csv"]\nfeatures = "f.letor"\nseed = 3\nthreads = 2\nexpert_grades = "0-4"\n'
        'separator = ";"\nunjudgeable_as = "drop"\n[method_settings]\ndifficulty = true\n'
    )
    config = RunConfig.from_options(read_config(tmp_path / "run.toml"))
    assert config.files.judgments == [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert (config.settings.random_state, config.settings.n_jobs, config.settings.unjudgeable_as) == (3, 2, "drop")
    assert config.settings.method_settings == {"difficulty": True}
    assert (config.reading.separator, config.expert_reading.grades) == (";", "0-4")


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"unjudgeable_as": "best"}, "unjudgeable_as"),
        ({"repeats": "lst"}, "repeats"),
        ({"expert_unjudgeable_as": "model"}, "expert_unjudgeable_as"),
        ({"expert_format": "xml"}, "expert_format"),
        ({"threads": 0}, "n_jobs"),
    ],
)
def test_values_are_checked_before_files_are_read(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig.from_options({"judgments": "none.csv", "features": "none.letor", **options})
    assert caught.value.parameter == parameter


def test_a_run_without_judgments_names_the_option() -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig.from_options({"features": "b.letor"})
    assert caught.value.kind == "no-judgments"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "judgments"


def test_run_offers_every_use_of_cannot_judge_answers(run: Run) -> None:
    shown = run("run", "--help", COLUMNS="200").stdout
    assert "[lowest|drop|model]" in shown
    assert "--separator" in shown
    done = run("run", "-j", "labels.csv", "-f", "labels.csv", "-o", "out", "--unjudgeable-as", "best")
    assert done.returncode == 2
    assert done.stderr == "Error: --unjudgeable-as must be one of lowest, drop, model, not 'best'.\n"


FITTING = [
    ("aggregate", "labels.csv"),
    ("assessors", "labels.csv"),
    ("check", "labels.csv"),
    ("trace", "labels.csv", "--document", "a"),
    ("collect", "status", "labels.csv"),
    ("collect", "disagreements", "labels.csv"),
    ("collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "2", "-p", "entropy"),
]


@pytest.mark.parametrize("words", FITTING, ids=lambda words: " ".join(words[:2]))
def test_commands_that_fit_a_model_take_its_parameters(words: tuple[str, ...], run: Run) -> None:
    done = run(*words, "-m", "dawid-skene", "-s", "n_iter=1")
    assert done.returncode == 0, done.stderr
    assert "stopped after 1 iteration" in done.stderr
    wrong = run(*words, "-s", "n_iters=1")
    assert wrong.returncode == 2
    assert "did you mean 'n_iter'?" in wrong.stderr
    unreadable = run(*words, "-s", "n_iter")
    assert unreadable.stderr == "Error: --set cannot read 'n_iter'; write name=value, such as -s n_iter=10.\n"


def test_every_command_with_a_method_takes_parameters() -> None:
    for name, command in COMMANDS.items():
        names = {one.name for one in command.params}
        assert not names & {"method", "ranker"} or "setting" in names, name


def test_several_files_are_passed_as_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources: list[Any] = []

    def read(source: Any, **options: Any) -> Any:
        sources.append(source)
        raise UsageError("stop")

    monkeypatch.setattr("crowdrank.readers.read.read_judgments", read)
    for words in (["a.csv"], ["a.csv", "b.csv"]):
        assert crowdrank("check", *words, cwd=tmp_path).returncode == 2
    assert sources == [Path("a.csv"), [Path("a.csv"), Path("b.csv")]]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_are_understood(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    examples = [line for line in (command.epilog or "").split("\n\n")[1:] if line]
    assert examples or not [one for one in command.params if one.required]
    for example in examples:
        words = shlex.split(example)
        assert words[: len(name.split())] == name.split()
        command.make_context(name, words[len(name.split()) :])


def test_methods_are_completed() -> None:
    (method,) = [one for one, _ in option_fields(shared.ModelOptions) if one.name == "method"]
    assert method.metadata["more"]["autocompletion"]("g") == [name for name in METHODS if name.startswith("g")]


@pytest.mark.parametrize(
    "line",
    ["refit = 'yes'", "max_bytes = true", "exclude = 3", "features = [3]", "output = ['x']", "grades = ['a,b', 'c']"],
)
def test_a_value_of_the_wrong_type_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(f"{line}\n")
    with pytest.raises(InputError) as caught:
        read_config(tmp_path / "run.toml")
    assert (caught.value.kind, caught.value.location.source) == ("option-type", str(tmp_path / "run.toml"))


def test_parameters_of_the_method_reach_the_model(world: World) -> None:
    labels = ConsensusFits(
        build_run_data(world.judgments, world.features), StageCache(None), parameters={"dawid-skene": {"n_iter": 1}}
    )
    assert labels.model("dawid-skene").n_iter_ == 1
    assert labels.model("one-coin").n_iter_ > 1


def test_parameters_of_the_method_are_checked() -> None:
    for wrong in ({"n_iters": 1}, {"difficulty": True, "depth": 2}):
        with pytest.raises(UsageError, match="has no parameter"):
            RunSettings(method_settings=wrong)


@pytest.mark.parametrize("command", ["aggregate", "assessors"])
def test_a_map_without_expert_grades_is_refused(command: str, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("document,assessor,grade\na,x,0\na,y,4\nb,x,2\nb,y,3\n")
    done = CliRunner().invoke(app, [command, str(labels), "--expert-map", "0=0-1,1=2-4"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.message.parameter == "gold_map"
    assert done.exception.fix is not None
    assert done.exception.fix.parameter == "gold"


EXPERT_FLAGS = [
    (name, flag)
    for name, command in COMMANDS.items()
    for option in command.params
    for flag in option.opts
    if flag == "--expert" or (flag.startswith("--expert-") and flag != "--expert-price")
]
"""Every command with each of its options for expert grades."""


def test_every_command_with_expert_grades_documents_the_same_options() -> None:
    takes_grades = {name.removeprefix("crowdrank ") for name, flag in EXPERT_FLAGS if flag == "--expert"}
    assert takes_grades == {
        "run", "validate", "aggregate", "assessors", "evaluate", "compare", "estimate", "gate", "plan", "remap fit",
        "collect next", "collect simulate"
    }  # fmt: skip
    for name, command in COMMANDS.items():
        expert = [option for option in command.params if "--expert" in option.opts]
        assert all(option.opts == ["--expert", "-e"] and option.name == "expert" for option in expert), name
        assert not any("gold" in flag for option in command.params for flag in option.opts), name
        assert "--gold" not in f"{command.help}{command.epilog}{[option.help for option in command.params]}", name


@pytest.mark.parametrize(("name", "flag"), EXPERT_FLAGS)
def test_gold_is_an_alias_of_expert_in_every_command(name: str, flag: str) -> None:
    group: Any = typer.main.get_command(app)
    context: Any = None
    for word in name.split()[1:]:
        context = group.make_context(word, [], resilient_parsing=True, parent=context)
        group = group.commands[word]
    option = next(one for one in COMMANDS[name].params if flag in one.opts)

    def parse(written: str) -> object:
        parsed = group.make_context(name, [written, "3"], resilient_parsing=True, parent=context)
        return parsed.params[option.name]

    alias = flag.replace("--expert", "--gold")
    assert parse(alias) == parse(flag)
    assert parse(alias)


def test_a_toml_file_takes_gold_for_expert(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('judgments = "labels.csv"\ngold = "experts.qrels"\ngold_grades = "0-4"\n')
    files = RunConfig.from_options(read_config(config))
    assert (files.files.expert, files.expert_reading.grades) == (tmp_path / "experts.qrels", "0-4")
    config.write_text('judgments = "labels.csv"\ngold = "a.qrels"\nexpert = "b.qrels"\n')
    with pytest.raises(InputError) as problem:
        read_config(config)
    assert problem.value.message.kind == "option-twice"
