"""The documents are held to the code: commands compose, examples run, links resolve, tables say what is so."""

import contextlib
import inspect
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import benchmark
import check_gpu
import page_examples
import pytest
import tiny_words
from cell_cases import factory_of
from tiers import rest_slow

from las.cli import demo, main, reproduce, sweep
from las.config import build as runtime_config
from las.config import flags as hydra_flags
from las.config import overrides as config_overrides
from las.config.build import Config
from las.decoding import tuned_search
from las.nn.cells.base import LSTMCell
from las.reproduction import jobs
from las.reproduction.statistics import summary
from las.runtime.errors import MissingValueError
from las.scoring import phones
from las.training import setup

REPOSITORY = Path(__file__).parents[2]
VERBS = main.VERBS | {"benchmark": benchmark.VERB}
"""All that a command may name: the verbs, and the script that is none."""
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
TEXTS = {path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8") for path in DOCUMENTS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """(document, content) of every block of a language."""
    return [(name, body) for name, text in TEXTS.items() for kind, body in BLOCK.findall(text) if kind == language]


COMMANDS: dict[str, str] = {}
"""Every command, README first, and the first document that prints it; test_tutorials.py runs those of tutorials, and
test_commands_as_printed.py most of README's."""
TUTORIAL = re.compile(r"^## Tutorial: .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
for document, text in TEXTS.items():
    shell = "".join(body for kind, body in BLOCK.findall(TUTORIAL.sub("", text)) if kind == "sh")
    for line in filter(str.strip, shell.splitlines()):
        COMMANDS.setdefault(line, document)
INSTALLED = re.compile(r"pip install (?:[^'\n]*?(--editable|-e) )?'([\w.-]+)\[([\w,]+)\]'")
"""An installation of extras: `--editable` where it is, the distribution and its extras."""
INLINE = [
    (name, span)
    for name, text in TEXTS.items()
    for span in re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    if re.match(r"(las|make) \w|python scripts/", span)
]


def rows(document: str, first_heading: str) -> list[list[str]]:
    """The cells of the table whose header starts with a heading, without backquotes."""
    lines = iter(TEXTS[document].splitlines())
    next(line for line in lines if line.startswith(f"| {first_heading} |"))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            return found
        found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return found


@contextlib.contextmanager
def examples_there() -> Iterator[None]:
    """The example files of docs/your_own_speech.md in the working directory: their symbols decide a model's size."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        page_examples.write(Path("."))
        yield


@contextlib.contextmanager
def dictionary_there(config: Config) -> Iterator[None]:
    """The dictionary of a command, or AN4 with one: its phones decide the size of an acoustic model."""
    with tempfile.TemporaryDirectory() as folder:
        if config["lexicon"] is None:
            root = tiny_words.tree(Path(folder))
            path, config["corpus"]["root"] = root / "an4" / "etc" / "an4.dic", str(root)
        else:
            path = Path(folder) / "words.dic"
            config["lexicon"] = str(path)
        path.write_text("YES Y EH S\nNO N OW\n")
        yield


def compose(verb: str, overrides: list[str]) -> None:
    """What the verb would do with its arguments, short of doing it."""
    flags = hydra_flags.parse(overrides)
    given = config_overrides.with_files(verb, flags.overrides)
    overrides = [config_overrides.protect(override) for override in given if override != tuned_search.CHOICE]
    name = VERBS[verb].config
    if flags.shell_completion or flags.config_dir or not name:
        return  # tests/cli/test_hydra_flags.py, test_options.py and test_runs.py run these
    if flags.cfg or flags.info:
        with contextlib.suppress(MissingValueError):
            runtime_config.compose(name, main.as_composed(verb, overrides))
        return
    if flags.multirun:
        for job in sweep.combinations(overrides):
            compose(verb, list(job))
        return
    if verb == "reproduce":
        asked = reproduce.request(overrides)
        row = asked.recipe.rows[0]  # tests/cli/test_reproduce.py composes all of them
        compose("train", [*jobs.overrides_of(asked.recipe, row, asked.tier, asked.overrides)])
        return
    if verb in tuned_search.NEEDS_CHECKPOINT:
        overrides = tuned_search.with_model(overrides, default=False)
    config = runtime_config.compose(name, demo.as_composed(overrides) if verb == "demo" else overrides)
    if "corpus" not in config:
        return
    kind, place = config["corpus"]["_target_"], contextlib.nullcontext()
    if kind == "las.FilesCorpus":
        place = examples_there()
    has_words = kind == "las.AN4" or config["lexicon"] is not None
    if has_words and config["model"]["_target_"] == "las.AcousticModel":
        place = dictionary_there(config)
    with place:
        setup.build_parts(config, runtime_config.build(config["corpus"], where="corpus"))


def check(command: str) -> None:
    """Fail unless every word of a command line is one that works."""
    words = shlex.split(command)
    match words:
        case ["make", *targets]:
            known = re.findall(r"^([a-z_]+):.*##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
            assert targets and set(targets) <= set(known)
        case ["las", "--help"]:
            assert "usage" in main.help_text()
        case ["las", flag, request] if flag in main.COMPLETION:
            assert request.partition("=")[2] in hydra_flags.SHELLS
        case ["las", verb, *overrides]:
            assert verb in main.VERBS
            compose(verb, overrides)
        case ["python", "tests/helpers/check_gpu.py", *parts]:
            assert set(parts) <= check_gpu.PARTS.keys()
        case ["python", script] if script.startswith("docs/made_by/"):
            assert (REPOSITORY / script).is_file()
        case ["python", script, *overrides]:
            assert (REPOSITORY / script).is_file()
            assert f'main(["{Path(script).stem}"' in (REPOSITORY / script).read_text()
            compose(Path(script).stem, overrides)
        case [".", ".venv/bin/activate"]:
            assert "VENV := .venv\n" in (REPOSITORY / "Makefile").read_text()
        case ["tensorboard", "--logdir", "runs"]:
            assert runtime_config.compose("train", [])["run_dir"].startswith("runs/")
        case _:
            pytest.fail(f"nothing here knows how to check `{command}`")


@pytest.mark.parametrize("command", rest_slow(COMMANDS, keep=4))
def test_every_command_works_as_far_as_it_can_be_told_without_running_it(command: str) -> None:
    check(command)


@pytest.mark.slow
def test_commands_inside_sentences_work_too() -> None:
    for document, span in INLINE:
        words = span.split()
        if "..." in span or "<" in span or words[:2] == ["las", "--help"]:
            continue
        if "experiment=fast_joined" in span or "recipe=mine" in span:
            assert document == "docs/extending.md"  # what that page adds is checked with its files
            continue
        with contextlib.suppress(MissingValueError):  # a sentence may leave out what every command needs
            check(span)


@pytest.mark.slow
def test_help_shows_examples_that_work() -> None:
    for name, verb in main.VERBS.items():
        check(f"las {name} {verb.example}")


def test_python_blocks_compile() -> None:
    found = blocks("python")
    assert found
    for document, body in found:
        compile(body, document, "exec")


def test_extras_are_installed_by_the_distributions_own_name() -> None:
    """`las` is another project on PyPI; in a checkout, anything but an editable install would replace that of make."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    sources = [*(REPOSITORY / "las").rglob("*.py"), *(REPOSITORY / "configs").rglob("*.yaml"), REPOSITORY / "Makefile"]
    texts = {name: text for name, text in TEXTS.items() if name != "CHANGELOG.md"}  # which says what was so
    texts |= {str(path): path.read_text("utf-8") for path in sources}
    found = [(name, *each) for name, text in texts.items() for each in INSTALLED.findall(text)]
    assert len(found) > 15 and "README.md" in {name for name, *_ in found}
    for name, options, distribution, extras in found:
        assert distribution == (project["name"] if not options else "."), f"{name}: {distribution}[{extras}]"
        assert set(extras.split(",")) <= project["optional-dependencies"].keys(), name


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text("utf-8"))):
            if not target.startswith("https://"):
                file = target.partition("#")[0] or path.name
                assert (path.parent / file).is_file(), f"{path.name}: {target}"


def test_tests_named_in_the_documents_exist() -> None:
    for name, text in TEXTS.items():
        for file in re.findall(r"`(tests/[\w/]+\.py)`", text):
            assert (REPOSITORY / file).is_file(), f"{name}: {file}"


def test_the_groups_of_configs_are_explained() -> None:
    explained = [name for row in rows("docs/configuration.md", "group") for name in row[0].split(", ")]
    assert {path.name for path in (REPOSITORY / "configs").iterdir() if path.is_dir()} >= set(explained)
    assert len(set(explained)) == len(explained) > 20


def test_presets_are_what_their_cards_make() -> None:
    table = {row[0]: row[1:6] for row in rows("docs/equations.md", "option")}
    assert len(table) > 20
    for name in table:
        factory = factory_of(name)
        assert isinstance(factory, partial)
        cell = factory(3, 2)
        assert isinstance(cell, LSTMCell)
        biases = "-"
        if "biases" in inspect.signature(type(cell)).parameters:
            biases = "all" if "bias" in dict(cell.named_parameters()) else "input"
        module = type(cell).__module__.rpartition(".")[2]
        written = [table[name][0], table[name][1], table[name][2], *map(float, table[name][3:])]
        assert written == [module, biases, cell.cell_norm, cell.forget_bias, cell.eps], name


def test_parameters_beside_w_and_u_are_as_many_as_the_table_says() -> None:
    size = 6
    for key, *_, beside in [*rows("docs/equations.md", "cell"), *rows("docs/equations.md", "to compare")]:
        name, _, option = key.partition(", biases: ")
        cell = factory_of(name)(3, size, cell_norm="none", **({"biases": option} if option else {}))
        count = sum(p.numel() for key, p in cell.named_parameters() if not key.endswith("_weight"))
        assert count == int(beside.removesuffix("H")) * size, key


def test_the_folding_table_is_the_folding() -> None:
    table = {}
    for scored, groups in rows("docs/data.md", "scored (39)"):
        for group in groups.split(";"):
            trained, labels = group.split(":")
            for label in labels.split():
                assert label not in table
                table[label] = (trained.strip(), scored)
    assert table.keys() | {"q"} == set(phones.LABELS)
    assert table == {label: (phones.fold(label, 48), phones.fold(label, 39)) for label in table}
    assert phones.fold("q", 48) is None and phones.fold("q", 39) is None


def test_the_sizes_of_the_synthetic_corpora_are_those_of_their_cards() -> None:
    for column, name in ((1, "synthetic"), (2, "synthetic_hard")):
        config = runtime_config.compose("train", [f"corpus={name}"])["corpus"]
        for row in rows("docs/data.md", "setting"):
            value = config[row[0]]
            if row[0] == "accents":
                value = len(value)
            written = f"{value[0]} to {value[1]}" if isinstance(value, list) else str(value)
            assert row[column] == written, (name, row[0])


def test_the_results_on_the_page_are_those_of_the_report() -> None:
    report = REPOSITORY / "recipes" / "results" / "bo18_table3-open-synthetic_hard.json"
    expected = []
    for line in json.loads(report.read_text(encoding="utf-8"))["lines"]:
        values = [outcome["values"] for outcome in line["outcomes"]]
        errors, steps = (summary([value[key] for value in values]) for key in ("test", "steps_to_converge"))
        assert errors.interval is not None and steps.deviation is not None
        low, high = (100 * bound for bound in errors.interval)
        text = f"{100 * errors.mean:.1f} % [{low:.1f}, {high:.1f}]"
        expected.append([line["name"], text, f"{steps.mean:.0f} ± {steps.deviation:.0f}"])
    assert [[row[0], *row[3:]] for row in rows("docs/results.md", "row")] == expected
