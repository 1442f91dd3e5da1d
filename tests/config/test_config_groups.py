"""What a command chooses: parts left out, Hydra's own keys, groups without their place, and names of folders."""

import json
from pathlib import Path

import pytest
import tiny
from console import Las
from options import names
from tiers import rest_slow

from las.config import groups
from las.config.build import build, compose, config_directory
from las.config.groups import check_name
from las.decoding import transcriber
from las.nn.attention.dot import DotAttention
from las.reproduction import jobs, recipe
from las.runtime.errors import ConfigError

EVIL = ("", " ", ".", "..", "../../evil", "/tmp/evil", "a/b", "a\\b", "a\nb")


@pytest.mark.parametrize("name", ["train", "language_model", "decode", "tune", "benchmark"])
def test_no_part_of_a_config_can_be_left_out(name: str) -> None:
    directory = config_directory()
    for key in sorted(groups.own_keys(directory, name)):
        if not key.startswith("search."):  # scorers
            with pytest.raises(ConfigError, match=rf"^~{key}: "):
                groups.check_deleted(directory, ["seed=1", f"~{key}"])


def test_scorers_and_front_ends_can_be_left_out() -> None:
    assert "ctc" not in compose("train", ["search=beam_ctc", "~search.ctc"])["search"]
    park = ["model=park2019_las_4_1024", "~front_end@model.listener.front_end"]
    assert "front_end" in compose("train", park[:1])["model"]["listener"]
    # the option that a model names is gone, and the model's own keys of it are what is left
    assert "_target_" not in compose("train", park)["model"]["listener"].get("front_end", {})


@pytest.mark.parametrize("model", [name for name in names("model") if name.startswith(("las_", "park"))])
def test_every_model_takes_another_attention(model: str) -> None:
    section = compose("train", [f"model={model}", "attention@model.speller.attention=dot"])["model"]
    speller = build(section, where="model").keywords["speller"]
    assert speller.keywords["attention"].func is DotAttention


@pytest.mark.parametrize(
    ("command", "says"),
    rest_slow(
        [
            ("train cell=ba2016", "cell@model.listener.cell=ba2016 or cell@model.speller.cell=ba2016"),
            ("train +cell=ba2016", "cell@model.listener.cell=ba2016 or cell@model.speller.cell=ba2016"),
            ("train cell@model.listner.cell=lstm", "cell@model.listener.cell=lstm or cell@model.speller.cell=lstm"),
            ("train features=fbank80", "features@model.features=fbank80"),
            ("train attention=dot", "attention@model.speller.attention=dot"),
            ("train tokens=characters", "tokens@corpus.tokens=characters"),
            ("train front_end=park2019", "+front_end@model.listener.front_end=park2019"),
            ("train model=park2019_las_4_1024 front_end=lingvo", "front_end@model.listener.front_end=lingvo"),
            ("train scorer=coverage", "+scorer@search.coverage=coverage"),
            ("train search@x=beam", "search=beam or search@validation_search=beam"),
            (
                "language_model cell=lstm",
                "cell@lm.cell=lstm or cell@model.listener.cell=lstm or cell@model.speller.cell=lstm",
            ),
        ],
        keep=3,
    ),
)
def test_a_group_without_its_place_is_told_the_places_and_they_work(command: str, says: str) -> None:
    name, *given = command.split()
    with pytest.raises(ConfigError) as error:
        compose(name, given)
    assert str(error.value).startswith(f"{given[-1]}: ") and str(error.value).endswith(f": {says}")
    for mended in says.split(" or "):
        if not mended.startswith("+scorer"):  # whose options have no defaults
            assert compose(name, [*given[:-1], mended])


def test_a_part_without_its_group_is_told_the_group() -> None:
    for key in groups.chosen(config_directory(), "train", []):
        group, _, place = key.partition("@")
        if place:
            name = names(group)[0]
            with pytest.raises(ConfigError, match=f"configs/{group}: write {group}@{place}={name}$"):
                compose("train", [f"{place}={name}"])


@pytest.mark.parametrize("verb", ["decode", "transcribe", "demo_app", "export", "tune"])
@pytest.mark.parametrize("given", rest_slow(["corpus=an4", "corpus.vocabulary=3", "model.listener.dropout=0.1"]))
def test_what_a_checkpoint_decides_is_said_to_be_the_checkpoints(verb: str, given: str, las: Las) -> None:
    needed = {"export": ["output=x"], "transcribe": ["input=x"], "tune": ["search.lm.path=x"]}.get(verb, [])
    las(verb, "checkpoint=runs/x", *needed, given).fails(2, f"{given}: {verb} checkpoint:")


@pytest.mark.parametrize("name", EVIL)
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    for key in ("name", "corpus.name"):
        with pytest.raises(ConfigError, match=rf"^{key}=.*: .*(run_dir|corpus\.root)=\.\.\."):
            check_name(key, name)


@pytest.mark.parametrize("name", ["baseline", "lr_0.001", "größe 2", "...", "7", 7])
def test_other_names_are_taken(name: object) -> None:
    check_name("name", name)


@pytest.mark.parametrize("key", ["name", "corpus.name"])
@pytest.mark.parametrize("value", rest_slow(["{0}/evil", "", "../../x_${data_dir}"]))
def test_no_verb_writes_where_a_name_leads(
    key: str, value: str, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    given = f"{key}={value.replace('{0}', str(tmp_path))}"
    for command in (["train"], ["train", "-m", "seed=1,2"], ["prepare"]):
        las(*command, given, "data_dir=data/x").fails(2, f"{key}=' name")
    if key == "corpus.name":
        answer = las("reproduce", "recipe=bo18_table3", "tier=smoke", given, "data_dir=data/x")
        answer.fails(2, "baseline: corpus.name='")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_row_of_a_recipe_has_a_name_too() -> None:
    read = recipe.read("bo18_table3")
    row = read.rows[0]
    evil = type(read)(**{**vars(read), "rows": (type(row)(**{**vars(row), "name": "../../evil"}),)})
    with pytest.raises(ConfigError, match=r"row \.\./\.\./evil: name='\.\./\.\./evil'"):
        jobs.jobs(evil, "smoke", 1, Path("runs"), [])


@pytest.mark.parametrize("key", ["name", "corpus.name"])
def test_a_checkpoint_from_elsewhere_is_called_by_a_name(
    key: str, trained_copy: Path, las: Las, tmp_path: Path
) -> None:
    (step,) = {(trained_copy / "checkpoints" / "best").read_text().strip()}
    checkpoint = trained_copy / "checkpoints" / step
    config = json.loads((checkpoint / "config.json").read_text())
    (config if key == "name" else config["corpus"])["name"] = "../../evil"
    tiny.forge(checkpoint, "config", config)
    before = sorted(tmp_path.rglob("*"))
    answer = las("decode", f"checkpoint={trained_copy}", "split=test", f"output={tmp_path / 'x.jsonl'}")
    answer.fails(2, f"{key}='../../evil':")
    with pytest.raises(ConfigError, match=key):
        transcriber.load(trained_copy)
    assert sorted(tmp_path.rglob("*")) == before
