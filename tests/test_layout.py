"""The shape of the package: floors, imports, names, the length of files. The floors stand in docs/architecture.md."""

import ast
import builtins
import dis
import importlib
import re
from types import CodeType

import pytest
from places import REPOSITORY

PACKAGE = REPOSITORY / "las"
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
}
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
FACE = {"las", "las.__main__"}
"""`import las` offers names of every package and `python -m las` starts the command: both stand above all floors."""


def floors() -> dict[str, tuple[int, set[str]]]:
    """Floor and allowed imports of every package, by the table of docs/architecture.md."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    table = {}
    for floor, package, allowed in rows:
        named = set(re.findall(r"`(\w+)`", allowed))
        below = {other for number, other, _ in rows if int(number) < int(floor)}
        table[package] = (int(floor), below - named if allowed.startswith("all below") else named)
    return table


def imports(name: str) -> set[str]:
    """Modules of las that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside in MODULES else str(node.module))
    return {each for each in found if each == "las" or each.startswith("las.")}


def package(name: str) -> str:
    return name.split(".")[1]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Nodes that remain when those without successors are taken away again and again: none without a circle."""
    while graph:
        free = {name for name, others in graph.items() if not (others - {name}) & graph.keys()}
        if not free:
            return sorted(graph)
        graph = {name: others for name, others in graph.items() if name not in free}
    return []


def test_there_are_thirteen_packages_and_two_files() -> None:
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py"]
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert packages == floors().keys() and len(packages) == 13


@pytest.mark.parametrize("name", sorted(floors()))
def test_packages_import_what_the_table_allows(name: str) -> None:
    floor, allowed = floors()[name]
    wrong = [
        f"{module} (floor {floor}) imports {other}"
        for module in MODULES.keys() - FACE
        if package(module) == name
        for other in imports(module)
        if other == "las" or package(other) not in {name, *allowed}
    ]
    assert wrong == []


def test_no_imports_form_a_circle() -> None:
    assert circle({name: imports(name) - {name} for name in MODULES}) == []
    of_packages: dict[str, set[str]] = {name: set() for name in floors()}
    for name in MODULES.keys() - FACE:
        of_packages[package(name)] |= {package(other) for other in imports(name)}
    assert circle(of_packages) == []


def test_libraries_that_few_modules_may_know() -> None:
    readers = {
        "hydra": {"las.config"},
        "omegaconf": {"las.config", "las.reproduction.recipe", "las.cli.options", "las.cli.sweep"},
        "torchaudio": set(),
        "pickle": set(),
        "tarfile": {"las.storage.archive", "las.data.audio.shards", "las.data.packing"},
        "zipfile": set(),
    }
    found: dict[str, set[str]] = {library: set() for library in readers}
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for library in {each.split(".")[0] for each in named} & readers.keys():
                found[library].add("las.config" if name.startswith("las.config.") else name)
    assert found == readers


def test_files_from_outside_are_parsed_within_bounds() -> None:
    """Others than `storage.bounded` parse only JSON that las itself has just made or was sent by its own processes."""
    own = {"cli.demo_app_access", "data.packing", "data.synthesis.espeak", "nn.kernels.operator", "runtime.distributed"}
    parsing = {
        name.removeprefix("las.")
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads")
    }
    assert parsing == own


@pytest.mark.parametrize("name", sorted(MODULES))
def test_files_are_short(name: str) -> None:
    assert len(MODULES[name].read_text("utf-8").splitlines()) <= 400


def globals_of(code: CodeType) -> set[str]:
    """Names that a code object and those inside it look up in their module."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(globals_of(each) for each in code.co_consts if isinstance(each, CodeType)))


def test_every_name_is_defined() -> None:
    """Linters skip undefined names, because shapes in annotations look like them."""
    undefined = []
    for name, path in MODULES.items():
        if name != "las.__main__":
            known = vars(importlib.import_module(name)).keys() | vars(builtins).keys()
            code = compile(TREES[name], str(path), "exec")
            undefined += [f"{name}: {each}" for each in sorted(globals_of(code) - known)]
    assert undefined == []
