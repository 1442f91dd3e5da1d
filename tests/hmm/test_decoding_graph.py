"""Decoding graphs have exactly the sentences of dictionary and grammar, with their costs."""

import itertools
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from toy_hmm import PHONES, WORDS, bigram, log_prob, toy

from las.decoding.hybrid import word_graph
from las.hmm import decoding_graph
from las.hmm.decoding_graph import DecodingGraph
from las.hmm.fst import Grammar
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.topology import SPEECH, Topology
from las.lm import arpa, ngram
from las.runtime.errors import DataError

Sentence = tuple[tuple[str, ...], tuple[str, ...]]
"""Phones, and the words that they say."""
NO_SKIP = SPEECH._replace(skip=math.inf)
TOPOLOGY = Topology(PHONES, ["SIL"], NO_SKIP)


def paths(graph: DecodingGraph, topology: Topology, num_phones: int) -> dict[Sentence, list[float]]:
    """Costs of all paths without loops and skips, up to a number of phones: the transitions' and the grammar's."""
    leaving: dict[int, list[tuple[int, int, float, int]]] = defaultdict(list)
    costs = graph.weighted(1.0, 0.0).arcs.costs
    for source, read, written, cost, target in zip(*graph.arcs[:3], costs, graph.arcs.targets, strict=True):
        if source != target:
            leaving[int(source)].append((int(read), int(written), float(cost), int(target)))
    found: dict[Sentence, list[float]] = defaultdict(list)
    pending: list[tuple[int, tuple[int, ...], tuple[str, ...], float]] = [(graph.start, (), (), 0.0)]
    while pending:
        state, pdfs, words, cost = pending.pop()
        if math.isfinite(final := float(graph.final_lm_costs[state])):
            phones = tuple(topology.phones[pdf // 3] for pdf in pdfs[::3])
            assert list(pdfs) == [pdf for phone in phones for pdf in topology.pdfs(phone)]
            found[phones, words].append(cost + final)
        for read, written, step, target in leaving[state]:
            if len(pdfs) + (read > 0) <= 3 * num_phones:
                longer = (*words, graph.words[written - 1]) if written else words
                pending.append((target, (*pdfs, read - 1) if read else pdfs, longer, cost + step))
    return found


def sentences(given: Lexicon, num_phones: int) -> Iterator[tuple[Sentence, float]]:
    """All ways to say all sentences, up to a number of phones, with the cost of their pronunciations."""

    def spoken(phones: tuple[str, ...], words: tuple[str, ...], cost: float) -> Iterator[tuple[Sentence, float]]:
        pauses = [()] if given.silence is None else [(), (given.silence,)]
        for pause in pauses:
            paused = (*phones, *pause)
            if len(paused) > num_phones:
                continue
            yield (paused, words), cost
            for word, variants in given.entries.items():
                for each in variants:
                    if len(paused) + len(each.phones) <= num_phones:
                        said = cost - math.log(each.probability)
                        yield from spoken((*paused, *each.phones), (*words, word), said)

    return spoken((), (), 0.0)


def lexica() -> dict[str, Lexicon]:
    one = {word: [Pronunciation((phone,))] for word, phone in (("u", "A"), ("v", "B"))}
    return {
        "homophones": Lexicon({word: [Pronunciation(("A", "B"))] for word in "uvw"}),
        "variants": Lexicon({"u": [Pronunciation(("A",), 0.6), Pronunciation(("A", "B"), 0.4)], "v": one["v"]}),
        "a prefix of another": Lexicon({"u": [Pronunciation(("A",))], "v": [Pronunciation(("A", "A"))]}),
        "without silence": Lexicon(one, None),
        "a word that is silence": Lexicon({**one, "pause": [Pronunciation(("SIL",))]}),
        "a variant that another word has": Lexicon(
            {"u": [Pronunciation(("A",)), Pronunciation(("B",), 0.3)], "v": [Pronunciation(("B",), 0.7)]}
        ),
    }


def require_exact(given: Lexicon, topology: Topology, num_phones: int) -> None:
    grammar = word_graph.read_grammar(None, given)
    found = paths(decoding_graph.build(given, topology, grammar), topology, num_phones)
    expected: dict[Sentence, list[float]] = defaultdict(list)
    for (phones, words), cost in sentences(given, num_phones):
        costs = [topology.costs(phone) for phone in phones]
        transitions = sum(2 * each.forward + each.exit for each in costs)
        expected[phones, words].append(cost + transitions + (len(words) + 1) * math.log(len(given.entries) + 2))
    assert found.keys() == expected.keys() and len(found) > 3
    for sentence, costs in expected.items():
        assert sorted(found[sentence]) == pytest.approx(sorted(costs), abs=1e-3), sentence


@pytest.mark.parametrize("name", lexica())
def test_the_sentences_of_a_dictionary_and_no_others(name: str) -> None:
    require_exact(lexica()[name], TOPOLOGY, 4)


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.slow)])
def test_the_sentences_of_toys_and_no_others(seeds: range) -> None:
    for seed in seeds:
        _, given, topology = toy(seed)
        costs = [each._replace(skip=math.inf) for each in (topology.speech, topology.pause)]
        require_exact(given, Topology(PHONES, ["SIL"], *costs), 4)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_costs_of_sentences_are_those_of_the_language_model(order: int) -> None:
    """Of a bigram exactly; a trigram may back off where the rest of the sentence is cheaper then, never dearer."""
    for seed in range(3):
        model = bigram(seed, order)
        grammar, lm = word_graph.grammar_of_model(model, WORDS), ngram.of_words(model)
        for count in range(4):
            for words in itertools.product(WORDS, repeat=count):
                for ended in (True, False):
                    cost = grammar.cost([WORDS.index(word) + 1 for word in words], ended)
                    exact = -log_prob(lm, list(words), ended)
                    assert cost == pytest.approx(exact, abs=1e-4) if order < 3 else cost <= exact + 1e-4


@pytest.mark.parametrize("order", [2, 3])
def test_back_off_in_the_graph_is_that_of_the_grammar(order: int) -> None:
    given = Lexicon({"u": [Pronunciation(("A",))], "v": [Pronunciation(("B",))], "w": [Pronunciation(("A",))]}, None)
    topology = Topology(PHONES, ["SIL"], SPEECH._replace(skip=math.inf, exit=0.0, forward=0.0))
    for seed in range(3):
        grammar = word_graph.grammar_of_model(bigram(seed, order), WORDS)
        found = paths(decoding_graph.build(given, topology, grammar), topology, 4)
        assert len(found) == sum(3**count for count in range(5))
        for (_, words), costs in found.items():
            cost = grammar.cost([WORDS.index(word) + 1 for word in words])
            assert min(costs) == pytest.approx(cost, abs=1e-3)


SMALL = Lexicon({"u": [Pronunciation(("A",))], "v": [Pronunciation(("B",))]})


def same(one: DecodingGraph, other: DecodingGraph) -> bool:
    first, second = ((each.final_lm_costs, each.lm_costs, *each.arcs) for each in (one, other))
    return (one.words, one.start) == (other.words, other.start) and all(
        array.dtype == stored.dtype and np.array_equal(array, stored)
        for array, stored in zip(first, second, strict=True)
    )


def test_a_stored_graph_is_read_and_a_damaged_one_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grammar = word_graph.read_grammar(None, SMALL)
    built = decoding_graph.stored_or_built(SMALL, TOPOLOGY, grammar, tmp_path / "graphs")
    (path,) = (tmp_path / "graphs").iterdir()
    whole = path.read_bytes()
    monkeypatch.setattr(decoding_graph, "build", lambda *given: pytest.fail("built although it is stored"))
    assert same(decoding_graph.stored_or_built(SMALL, TOPOLOGY, grammar, tmp_path / "graphs"), built)
    monkeypatch.undo()
    changed = bytearray(whole)
    changed[-1] ^= 1
    for damaged in (b"", whole[: len(whole) // 2], bytes(changed), b"text"):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert same(decoding_graph.stored_or_built(SMALL, TOPOLOGY, grammar, tmp_path / "graphs"), built)
        assert "is damaged" in capsys.readouterr().out and path.read_bytes() == whole


def test_stored_graphs_are_told_apart_by_everything_they_are_made_of() -> None:
    more = Lexicon({**SMALL.entries, "u": [Pronunciation(("A",), 0.5)]})
    grammar = word_graph.read_grammar(None, SMALL)
    said = grammar.fst._replace(arcs=grammar.fst.arcs._replace(costs=grammar.fst.arcs.costs + 1.0))
    others = [
        (more, TOPOLOGY, grammar),
        (Lexicon(SMALL.entries, None), TOPOLOGY, grammar),
        (SMALL, Topology(PHONES, ["SIL"]), grammar),
        (SMALL, Topology(sorted(PHONES), ["SIL"], NO_SKIP), grammar),
        (SMALL, TOPOLOGY, Grammar(grammar.words, said)),
        (SMALL, TOPOLOGY, Grammar(("v", "u"), grammar.fst)),
    ]
    hashes = {decoding_graph.content_hash(*each) for each in [(SMALL, TOPOLOGY, grammar), *others]}
    assert len(hashes) == 1 + len(others)
    assert decoding_graph.content_hash(SMALL, TOPOLOGY, word_graph.read_grammar(None, SMALL)) in hashes


def test_words_that_one_side_lacks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lm.arpa"
    arpa.write(path, bigram(0))
    grammar = word_graph.read_grammar(
        path, Lexicon({word: [Pronunciation(("A",))] for word in ("u", "w", "x", "y", "<unk>")})
    )
    assert grammar.words == ("u", "w")
    output = capsys.readouterr().out
    assert all(word in output for word in ("lm.arpa: 1 words", ": v", "dictionary: 2 words", "x, y"))
    with pytest.raises(DataError, match=r"lm\.arpa: none .* 3 .*v.* 1 .*U"):
        word_graph.read_grammar(path, Lexicon({"U": [Pronunciation(("A",))]}))


LARGE = """
import random, resource, sys, time
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.topology import Topology
from las.decoding.hybrid.word_graph import WordGraphSearch
from las.lm import arpa, kneser_ney

draw, count = random.Random(0), 20_000
phones, names = [f"P{number}" for number in range(40)], [f"w{number}" for number in range(count)]
lexicon = Lexicon({name: [Pronunciation(tuple(draw.choices(phones, k=draw.randint(3, 10))))] for name in names})
zipf = [1 / (rank + 1) for rank in range(count)]
text = [draw.choices(names, zipf, k=draw.randint(5, 25)) for _ in range(33_000)]
arpa.write(sys.argv[1], kneser_ney.estimate(text, 3, names).model)
started = time.process_time()  # other programs may take their share
WordGraphSearch(grammar=sys.argv[1]).prepare(lexicon, Topology(lexicon.phones, ["SIL"]))
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_twenty_thousand_words_and_a_trigram_take_two_minutes_and_four_gigabytes(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path / "lm.arpa")], capture_output=True, text=True, check=True
    )
    seconds, size = map(float, answer.stdout.splitlines()[-1].split())
    assert seconds < 120 and size < 4e9
