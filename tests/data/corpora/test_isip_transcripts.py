"""ISIP's transcripts: every rule, what Kaldi's recipe makes of the same words, real lines, and damaged files."""

from pathlib import Path

import pytest
import telephone
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data.corpora import isip_transcripts
from las.data.corpora.isip_transcripts import ISIPSegment

# What Kaldi's swbd1_map_words.pl (egs/swbd/s5c/local, commit f400766) printed for these, in lower case.
_KALDI = """[laughter-tele[vision]-] tele-|[laughter-exac[tly]-] exac-|[cha[pe]-/shape] cha-|[lem[guini]-/linguini] lem-
[evalu/evaluate] evalu|-[evalu]ate -ate|[an]y -y|-[a]b[out]- -b-|ab[solute] ab-|don['t]- don-|401[K]- 401-|Te[xas]- te-
{unTI} unti|because_1 because|uh-huh uh-huh|Tex-Mex tex-mex|V8s v8s|7-Eleven 7-eleven|RVer rver"""
KALDI = dict(each.split() for line in _KALDI.split("\n") for each in line.split("|"))
_ACRONYMS = """TV:t v|TV's:t v's|TVs:t v's|PhD:p h d|AT&T:a t and t|AT&T's:a t and t's|AIDS:aids|A:a|A's:a's|I'd:i'd
RV-like:rv-like|McDonald's:mcdonald's"""
ACRONYMS = dict(each.split(":") for line in _ACRONYMS.split("\n") for each in line.split("|"))


@pytest.mark.parametrize("rule", isip_transcripts.RULES, ids=lambda rule: rule.name)
def test_every_rule_does_what_its_example_says(rule: isip_transcripts.RewriteRule) -> None:
    before, after = rule.example
    assert rule.pattern.search(before) and rule.pattern.search(before.upper())
    assert isip_transcripts.normalise(before) == after
    assert isip_transcripts.normalise(f"well {before} yes").split() == ["well", *after.split(), "yes"]


@pytest.mark.parametrize(("written", "mapped"), (KALDI | ACRONYMS).items())
def test_words_become_what_kaldi_makes_of_them(written: str, mapped: str) -> None:
    assert isip_transcripts.normalise(written) == mapped


def test_markup_that_no_rule_knows_is_left_out_and_told() -> None:
    assert isip_transcripts.normalise("what]- [hm] *odd* <x> - caf\u00e9") == "what- hm odd x caf"
    assert isip_transcripts.markup_left("what]- is [noise] *odd* [laughter-this] a[ll]-") == ["what]-", "*odd*"]


@given(st.text("abIT'-_&<>[]{}/1 \u00e9", max_size=30), st.sampled_from(["removed", "kept"]))
def test_a_normalised_text_holds_known_characters_and_stays_what_it_is(text: str, noises: str) -> None:
    once = isip_transcripts.normalise(text, noises)
    assert set(once) <= set(isip_transcripts.ALPHABET)
    assert once == " ".join(once.split())
    assert isip_transcripts.normalise(once, noises) == once


def test_every_line_of_real_transcripts_becomes_plain_text(shared_data: Path) -> None:
    lines = (shared_data / "switchboard_text_sample" / "timed-transcript").read_text("ascii").splitlines()
    texts = [line.split(None, 2)[2] for line in lines if len(line.split(None, 2)) == 3]
    assert len(texts) == 8881
    plain = [isip_transcripts.normalise(text) for text in texts]
    assert [word for text in texts for word in isip_transcripts.markup_left(text)] == []
    assert set("".join(plain)) == set(" '-01478abcdefghijklmnopqrstuvwxyz")
    assert sum(not text for text in plain) == sum(
        set(text.split()) <= {*isip_transcripts.NOISES, "[silence]"} for text in texts
    )
    assert "oh uh-huh so you you've only known the dog wh- how long did you say th-" in plain


def test_segments_have_kaldis_names(tmp_path: Path) -> None:
    path = telephone.transcript(tmp_path, "2001B", [(0.0, 0.977625, "[silence]"), (0.977625, 11.561375, "hi um yeah")])
    path.write_text(path.read_text() + "\nSW2001B-MS98-A-0003 11.5 12\n")
    first, second, last = isip_transcripts.read(path)
    assert second == ISIPSegment("sw02001-B", 0.977625, 11.561375, "hi um yeah")
    assert [each.id for each in (first, second)] == ["sw02001-B_000000-000098", "sw02001-B_000098-001156"]
    assert last == ISIPSegment("sw02001-B", 11.5, 12.0, "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sw2001A-ms98-a-0002 1.0", "sw2001A-ms98-a-0001 begin end"),
        ("sw2001C-ms98-a-0002 1.0 2.0 yes", "sw2001A-ms98-a-0001 begin end"),
        ("sw2001A-ms98-a-0002 one 2.0 yes", "sw2001A-ms98-a-0001 begin end"),
        ("sw2001A-ms98-a-0002 2.0 2.0 yes", "ends at 2.0|begin at 2.0"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = telephone.transcript(tmp_path, "2001A", [(0.0, 1.0, "[silence]")])
    path.write_text(path.read_text() + line + "\n")
    refused(f"{path}:2: |{says}", isip_transcripts.read, path)
    path.write_text("\n")
    refused("no segments", isip_transcripts.read, path)
    refused("cannot read", isip_transcripts.read, tmp_path / "none")
