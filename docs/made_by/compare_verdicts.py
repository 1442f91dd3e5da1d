"""Print the stored verdicts of an earlier commit beside those of today's rules, as a page of Markdown.

    python docs/made_by/compare_verdicts.py 5ab3a4b synthetic > docs/verdicts_old_and_new.md

Both are on the same stored results (recipes/results/*.json) of the corpora that are named, which must not have been
made anew since; the earlier verdicts stand in that commit's claims-*.md.
"""

import re
import subprocess
import sys

from las.reproduction import claims, recipe, results

RESULTS = recipe.directory() / "results"
HEAD = """# Verdicts by the former and by today's rules

The stored results of these corpora (`recipes/results/*.json`), judged twice: by the rules of commit {commit}, and by
today's, which [statistics](statistics.md) describes. Claims that lack trainings or measures are left out: both leave
them undecided. Made by

    python docs/made_by/compare_verdicts.py {commit} {corpora} > docs/verdicts_old_and_new.md

| corpus | claim | former verdict | today's | evidence by today's rule |
|---|---|---|---|---|"""


def former(commit: str, page: str) -> dict[str, str]:
    """The verdicts of a page as a commit has it, by the ids of claims."""
    shown = subprocess.run(
        ["git", "show", f"{commit}:recipes/results/{page}"], cwd=RESULTS, capture_output=True, text=True, check=True
    )
    return {row[1]: row[2] for row in re.finditer(r"^\| (C\d+) \| .*? \| ([a-z ]+) \|", shown.stdout, re.MULTILINE)}


def main(commit: str, *corpora: str) -> None:
    """Print the page."""
    print(HEAD.format(commit=commit, corpora=" ".join(corpora)))
    changed = total = 0
    for corpus in corpora:
        tables = [results.read(path) for path in sorted(RESULTS.glob(f"*-open-{corpus}.json"))]
        before = former(commit, f"claims-open-{corpus}.md")
        for claim, verdict in claims.judge(claims.CLAIMS, tables).items():
            if verdict.effect is None and verdict.needed is None and verdict.verdict == before[claim]:
                continue
            marked = verdict.verdict if verdict.verdict == before[claim] else f"**{verdict.verdict}**"
            print(f"| `{corpus}` | {claim} | {before[claim]} | {marked} | {verdict.text} |")
            changed, total = changed + (marked != verdict.verdict), total + 1
    print(f"\n{changed} of {total} verdicts changed, in bold.")


if __name__ == "__main__":
    main(*sys.argv[1:])
