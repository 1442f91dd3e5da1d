"""Numbers of docs/results.json from run folders, and the table of docs/results.md that is made of them.

    python docs/made_by/collect_results.py an4_plain "plain LSTM, CTC 0.3" runs/a runs/b runs/c
    python docs/made_by/collect_results.py an4_greedy "the same, greedy" search=greedy runs/a runs/b runs/c
    python docs/made_by/collect_results.py

The first command adds a number: of one run with its interval over speakers, of several their mean with Student's
interval over seeds. Names that begin with `exchange_` are rows of the table of one change at a time, beside
`exchange_none`. New seeds of the command of a stored number join it; otherwise it is replaced. Arguments with = are
those of `las decode`, by which dev and test are decoded anew. All of them write the table anew.
"""

import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from las.cli import score as scoring
from las.cli.main import main
from las.config.build import compose
from las.reproduction import charts
from las.reproduction.statistics import student_quantile
from las.storage import run_summary
from las.storage.run_summary import Measure
from las.training import plots

DOCS = Path(__file__).parents[1]
NUMBERS, PAGE = DOCS / "results.json", DOCS / "results.md"
BEGIN, END = "<!-- of results.json: begin -->\n", "<!-- of results.json: end -->\n"
BEGIN_EXCHANGED, END_EXCHANGED = "<!-- exchanged: begin -->\n", "<!-- exchanged: end -->\n"
LOG = DOCS / "test_clean.jsonl"
BEGIN_LOG, END_LOG = "<!-- of test_clean.jsonl: begin -->\n", "<!-- of test_clean.jsonl: end -->\n"
EXCHANGED, UNCHANGED = "exchange_", "exchange_none"
HEADINGS = ("name", "what", "test WER", "interval of", "seeds", "dev WER", "minutes next to other work", "commit")
PER_SEED = ("seeds", "each", "dev", "minutes")
LEFT_OUT = ("name=", "seed=", "run_dir=", "data_dir=", "trainer.histograms=", "trainer.attention_pictures=")
"""Keys of a command that change no result."""


def number(name: str, what: str, folders: list[Path], search: Sequence[str] = ()) -> dict[str, Any]:
    """The entry of one number. Exits with a message for a run without a result, and for runs of different commands.

    The test part is decoded as each training ended, or anew with the arguments of `search`.
    """
    runs = [run_summary.read(folder) for folder in folders]
    for run in runs:
        if run.state != "finished" or run.test is None or run.dev is None:
            sys.exit(f"{run.folder}: {run.state}, there is no result yet")
    commands = {command(folder) for folder in folders}
    if len(commands) > 1:
        sys.exit("\n".join(["these runs were not made by one command but for their seeds:", *sorted(commands)]))
    lines, pairs = list(commands), [(run.dev, run.test) for run in runs if run.dev is not None and run.test is not None]
    if search:
        lines.append(f"las decode checkpoint=RUN split=test {shlex.join(search)}")
        pairs = [(decoded(folder, "dev", search), decoded(folder, "test", search)) for folder in folders]
    each = [test.value for _, test in pairs]
    return {
        "name": name,
        "what": what,
        "value": fmean(each),
        "interval": interval([test for _, test in pairs]),
        "interval_of": "speakers" if len(runs) == 1 else f"{len(runs)} seeds",
        "each": each,
        "seeds": [run.seed for run in runs],
        "dev": [dev.value for dev, _ in pairs],
        "minutes": [round(run.minutes or 0.0) for run in runs],
        "command": "\n".join(lines),
        "commit": runs[0].commit,
    }


def joined(new: dict[str, Any], stored: dict[str, Any] | None) -> dict[str, Any]:
    """The entry with the seeds of a stored one of the same command, in order; the new one alone if they overlap."""
    if stored is None or set(stored["seeds"]) & set(new["seeds"]) or not is_same(stored["command"], new["command"]):
        return new
    entries = sorted(
        (seed, value, dev, minutes)
        for entry in (stored, new)
        for seed, value, dev, minutes in zip(*(entry[key] for key in PER_SEED), strict=True)
    )
    columns = dict(zip(PER_SEED, map(list, zip(*entries, strict=True)), strict=True))
    each = columns["each"]
    commits = sorted({*stored["commit"].split(", "), new["commit"]})
    of = {"interval": interval([Measure("wer", value) for value in each]), "interval_of": f"{len(each)} seeds"}
    return new | columns | of | {"value": fmean(each), "commit": ", ".join(commits)}


def draw_curves(path: Path) -> None:
    """Draw the error rate of dev over the minutes of each training in the log of test-clean."""
    figure = plots.blank_figure(6.0, 3.0)
    axes = charts.in_grey(figure.add_subplot(), "minutes of one core", "dev WER %, greedy")
    for number, line in enumerate({line["checkpoint"]: line for line in log_lines()}.values()):
        minutes, rates = zip(*line["curve"], strict=True)
        label, colour = f"{line['row']}, seed {line['seed']}", charts.COLOURS[number % len(charts.COLOURS)]
        axes.plot(minutes, [100 * rate for rate in rates], color=colour, linewidth=1.2, label=label)
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, fontsize=charts.SMALL, labelcolor=charts.GREY)
    path.write_text(charts.svg(figure), "utf-8")


def is_same(first: str, second: str) -> bool:
    """True if two commands differ in the order of their arguments at most."""
    one, other = ([sorted(shlex.split(line)) for line in text.splitlines()] for text in (first, second))
    return one == other


def decoded(folder: Path, split: str, search: Sequence[str]) -> Measure:
    """The word error rate of a split with another search."""
    with tempfile.TemporaryDirectory() as place:
        hypotheses = Path(place) / f"{split}.jsonl"
        if main(["decode", f"checkpoint={folder}", f"split={split}", *search, f"output={hypotheses}"]):
            sys.exit(f"{folder}: not decoded")
        reference = f"reference={folder / f'references.{split}.jsonl'}"
        score = scoring.run(compose("score", [reference, f"hypothesis={hypotheses}"]))
    return Measure("wer", score["wer"], tuple(score["interval"]))


def interval(tests: Sequence[Measure]) -> list[float] | None:
    """The 95 % interval: of one training over its speakers, of several of their mean."""
    if len(tests) == 1:
        return list(tests[0].interval) if tests[0].interval else None
    each = [test.value for test in tests]
    half = student_quantile(0.975, len(each) - 1) * stdev(each) / len(each) ** 0.5
    return [fmean(each) - half, fmean(each) + half]


def command(folder: Path) -> str:
    """The command of a training as anybody types it, without the keys that change no result."""
    program, *words = json.loads((folder / "environment.json").read_text())["command"].split()
    return typed(program, words)


def typed(program: str, words: Sequence[str]) -> str:
    """A command without the keys that change no result and the place of the corpus."""
    script = [Path(program).stem] if Path(program).parent.name == "scripts" else []
    last = {word.partition("=")[0]: word for word in words if not word.startswith(LEFT_OUT)}
    is_read = any("librispeech" in word for word in words)
    root = "corpus.root=LibriSpeech" if is_read else "corpus.root=AN4"
    kept = [root if key == "corpus.root" else word for key, word in last.items()]
    return "las " + shlex.join([*script, *kept])


def table(numbers: list[dict[str, Any]]) -> str:
    """Markdown: a row for each number, the best first, and its command below."""
    rows = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
    ordered = sorted(numbers, key=lambda each: float(each["value"]))
    for each in ordered:
        cells = (
            f"`{each['name']}`",
            each["what"],
            percent(each),
            each["interval_of"],
            ", ".join(map(str, each["seeds"])),
            ", ".join("" if dev is None else f"{100 * dev:.1f} %" for dev in each["dev"]),
            ", ".join(map(str, each["minutes"])),
            ", ".join(f"`{commit[:7]}`" for commit in each["commit"].split(", ")),
        )
        rows.append(f"| {' | '.join(cells)} |")
    commands = [f"`{each['name']}`:\n\n```\n{each['command']}\n```\n" for each in ordered]
    return "\n".join([*rows, "", *commands])


def percent(each: dict[str, Any]) -> str:
    """A value with its interval: `8.8 % [6.7, 10.9]`."""
    around = "" if each["interval"] is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in each["interval"]))
    return f"{100 * each['value']:.1f} %{around}"


def exchanged(numbers: list[dict[str, Any]]) -> str:
    """Markdown: a row for each change, what differs least from no change first, and the commands below.

    Differences are those of the same seed; their interval is Student's over the seeds.
    """
    headings = ("changed", "dev WER", "of each seed", "difference from the first row", "test WER", "minutes")
    rows = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    first = next(each for each in numbers if each["name"] == UNCHANGED)
    unchanged = dict(zip(first["seeds"], first["dev"], strict=True))
    for each in sorted(numbers, key=lambda each: (each["name"] != UNCHANGED, fmean(each["dev"]))):
        pairs = zip(each["seeds"], each["dev"], strict=True)
        changes = [Measure("wer", dev - unchanged[seed]) for seed, dev in pairs if seed in unchanged]
        difference = percent({"value": fmean(change.value for change in changes), "interval": interval(changes)})
        cells = (
            each["what"],
            f"{100 * fmean(each['dev']):.1f} %",
            ", ".join(f"{100 * dev:.1f}" for dev in each["dev"]) + " %",
            "" if each["name"] == UNCHANGED else difference,
            percent(each),
            ", ".join(map(str, each["minutes"])),
        )
        rows.append(f"| {' | '.join(cells)} |")
    commands = [f"`{each['name']}`, {each['what']}:\n\n```\n{each['command']}\n```\n" for each in numbers]
    return "\n".join([*rows, "", *commands])


def with_table(page: str, numbers: list[dict[str, Any]]) -> str:
    """The page with the tables between their marks."""
    changes = [each for each in numbers if each["name"].startswith(EXCHANGED)]
    page = _between(page, BEGIN, END, table([each for each in numbers if each not in changes]))
    page = _between(page, BEGIN_EXCHANGED, END_EXCHANGED, exchanged(changes)) if changes else page
    return _between(page, BEGIN_LOG, END_LOG, table(rows)) if (rows := logged()) else page


def log_lines() -> list[dict[str, Any]]:
    """The log of test-clean; empty before the first line."""
    return [json.loads(line) for line in LOG.read_text("utf-8").splitlines()] if LOG.exists() else []


def logged() -> list[dict[str, Any]]:
    """The rows of the log of test-clean as entries of a table."""
    rows: dict[str, dict[str, Any]] = {}
    for line in sorted(log_lines(), key=lambda line: int(line["seed"])):
        row = rows.setdefault(line["row"], {"name": line["row"], "what": line["what"], "tests": []})
        row["tests"].append(Measure("wer", line["wer"], tuple(line["interval"])))
        for key, value in (("seeds", "seed"), ("dev", "dev"), ("minutes", "minutes"), ("commits", "commit")):
            row.setdefault(key, []).append(line[value])
        program, *words = line["command"].split()
        searched = "" if not line["search"] else f"\nlas decode checkpoint=RUN {shlex.join(line['search'])}"
        row["command"] = f"{typed(program, words)}{searched}"
    for row in rows.values():
        tests = row.pop("tests")
        row["value"], row["interval"] = fmean(test.value for test in tests), interval(tests)
        row["interval_of"] = "speakers" if len(tests) == 1 else f"{len(tests)} seeds"
        row["commit"] = ", ".join(dict.fromkeys(row.pop("commits")))
    return [*rows.values()]


def _between(page: str, begin: str, end: str, text: str) -> str:
    before, _, rest = page.partition(begin)
    return before + begin + "\n" + text + "\n" + end + rest.partition(end)[2]


if __name__ == "__main__":
    stored = json.loads(NUMBERS.read_text("utf-8")) if NUMBERS.exists() else []
    if sys.argv[1:]:
        searches, folders = [[a for a in sys.argv[3:] if ("=" in a) == is_search] for is_search in (True, False)]
        before = next((each for each in stored if each["name"] == sys.argv[1]), None)
        added = joined(number(sys.argv[1], sys.argv[2], list(map(Path, folders)), searches), before)
        stored = [each for each in stored if each["name"] != added["name"]] + [added]
        NUMBERS.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), stored), "utf-8")
    if log_lines():
        draw_curves(DOCS / "pictures" / "librispeech5.svg")
