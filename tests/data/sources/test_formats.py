"""Formats of sources: each is recognised by its content and read; one that cannot be used says why and where."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from tiny import sound

from las.data import manifest
from las.data.manifest import Utterance
from las.data.sources import formats
from las.data.sources.base import Entry, ReadingOptions
from las.runtime.errors import ConfigError, DataError

PLAIN = ReadingOptions({}, None)
Written = Callable[[Path], Path]


def file(path: Path, text: str) -> Path:
    """Write a text file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def written(name: str, text: str) -> Written:
    """Writes a text file of this name."""
    return lambda root: file(root / name, text)


def whole(name: str, audio: str, text: str, speaker: str = "") -> tuple[object, ...]:
    """Values of an entry of a whole file."""
    return name, audio, text, speaker, None, 0.0, None


def kaldi(root: Path, **files: str) -> Path:
    """Write a Kaldi folder."""
    for name, text in {"wav.scp": "a a.wav\nb sub/b c.wav\n", "text": "a one two\nb\n", **files}.items():
        file(root / "kaldi" / name.replace("_scp", ".scp"), text)
    return root / "kaldi"


def own_manifest(root: Path) -> Path:
    manifest.write(root / "own.jsonl", [Utterance("u1", "a.wav", 1, 0.5, 1.25, "one", "ann")])
    return root / "own.jsonl"


def texts_next_to_audio(root: Path) -> Path:
    for name, suffix, text in (("ann/a", ".txt", "one\ntwo\n"), ("bob/b", ".lab", "three"), ("c", ".txt", "")):
        sound(file(root / "folder" / f"{name}{suffix}", text).with_suffix(".wav"), 0.1)
    return root / "folder"


def librispeech(root: Path) -> Path:
    sound(file(root / "tree/19/198/19-198.Trans.TXT", "19-198-0001 ONE TWO").with_name("19-198-0001.flac"), 0.1)
    return root / "tree"


FORMATS: dict[str, tuple[str, Written, list[tuple[object, ...]]]] = {
    "own": ("manifest", own_manifest, [("u1", "a.wav", "one", "ann", 1, 0.5, 1.25)]),
    "nemo": (
        "jsonl",
        written("m.json", '{"audio_filepath": "a.wav", "duration": 1.25, "offset": 0.5, "text": "one"}\n'),
        [("", "a.wav", "one", "", None, 0.5, 1.25)],
    ),
    "hugging face": (
        "csv",
        lambda root: file(root / "hf/metadata.csv", 'file_name,transcription\na.wav,"one, two"\n').parent,
        [whole("", "a.wav", "one, two")],
    ),
    "hugging face json": (
        "jsonl",
        lambda root: file(root / "hf/metadata.jsonl", '{"file_name": "a.wav", "text": "one"}').parent,
        [whole("", "a.wav", "one")],
    ),
    "semicolons, marked, CRLF": (
        "csv",
        written("t.csv", "\ufeffID;Path;Text;Speaker;Channel;Start;End\r\nx;a.wav;drei;ann;1;0.5;1.75\r\n\r\n"),
        [("x", "a.wav", "drei", "ann", 1, 0.5, 1.25)],
    ),
    "a header between |": (
        "csv",
        written("m.csv", "audio_file|text|speaker_name\nwavs/a.wav|one, two|ann\n"),
        [whole("", "wavs/a.wav", "one, two")],
    ),
    "common voice": (
        "tsv",
        lambda root: file(
            file(root / "cv/clips/a.mp3", "").parents[1] / "train.tsv",
            'client_id\tpath\tsentence\tup_votes\nc0ffee\ta.mp3\t"Ja", sagt er\t2\n',
        ),
        [whole("", "clips/a.mp3", '"Ja", sagt er', "c0ffee")],
    ),
    "lj speech": (
        "ljspeech",
        lambda root: file(root / "lj/metadata.csv", 'LJ1|Dr. "X"|Doctor "X"\nLJ2|one\n').parent,
        [whole("LJ1", "wavs/LJ1.wav", 'Doctor "X"'), whole("LJ2", "wavs/LJ2.wav", "one")],
    ),
    "kaldi": (
        "kaldi",
        lambda root: kaldi(root, utt2spk="a ann\nb bob\n"),
        [whole("a", "a.wav", "one two", "ann"), whole("b", "sub/b c.wav", "", "bob")],
    ),
    "kaldi with segments": (
        "kaldi",
        lambda root: kaldi(
            root, text="a-1 one\na-2 two\n", segments="a-1 a 0.5 1.75\na-2 a 2 -1\n", reco2file_and_channel="a call B\n"
        ),
        [("a-1", "a.wav", "one", "", 1, 0.5, 1.25), ("a-2", "a.wav", "two", "", 1, 2.0, None)],
    ),
    "folder": (
        "folder",
        texts_next_to_audio,
        [whole("", "ann/a.wav", "one two", "ann"), whole("", "bob/b.wav", "three", "bob"), whole("", "c.wav", "")],
    ),
    "librispeech": ("librispeech", librispeech, [whole("19-198-0001", "19/198/19-198-0001.flac", "ONE TWO", "19")]),
}


def values(entry: Entry, root: Path) -> tuple[object, ...]:
    audio = Path(entry.audio).relative_to(root).as_posix()
    return (entry.id, audio, entry.text, entry.speaker, entry.channel, entry.start_s, entry.duration_s)


@pytest.mark.parametrize("case", FORMATS)
def test_every_format_is_recognised_and_read(case: str, tmp_path: Path) -> None:
    expected, write, entries = FORMATS[case]
    path = write(tmp_path)
    name, source = formats.read(path, None, PLAIN)
    root = path if path.is_dir() else path.parent
    assert name == expected
    assert [values(entry, root) for entry in source.entries] == entries
    assert formats.read(path, name, PLAIN)[1] == source
    assert all(read.is_file() for read in source.files)


STRAY = {
    "rows": 'audio,text\na.wav,one\nb.wav,"we ought to go\nc.wav,two\nd.wav,and that was it"\ne.wav,three\n',
    "one row": 'audio,text\na.wav,one\nb.wav,"we ought to go\nc.wav,and that was it"\n',
    "text first": 'text,audio\none,a.wav\n"we ought to go,b.wav\nand that was it",c.wav\n',
    "three columns": 'audio;text;speaker\na.wav;one;s\nb.wav;"we ought to go;s\nc.wav;and that;s\nd.wav;was it";s\n',
    "in another row": 'audio,text\na.wav,one\n"b.wav,two\nc.wav"",three\n",four\n',
    "never closed": 'audio,text\na.wav,one\nb.wav,"we ought to go\nc.wav,two\n',
    "closed early": 'audio,text\na.wav,one\nb.wav,"we" ought to go\nc.wav,two\n',
    "old Macs": 'audio,text\ra.wav,one\rb.wav,"we ought to go\rc.wav,and that was it"\r',
}


@pytest.mark.parametrize("case", STRAY)
def test_stray_quotes_swallow_no_row(case: str, tmp_path: Path) -> None:
    refused('t.csv:3: |"he said', formats.read, file(tmp_path / "t.csv", STRAY[case]), None, PLAIN)


@settings(max_examples=40)
@given(st.lists(st.text('ab "', min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_table_has_a_row_for_each_line_or_is_refused(tmp_path_factory, texts: list[str]) -> None:
    """Whatever quotes stand in texts that were joined by hand, no row is lost without a word."""
    lines = [f"{number}.wav,{text}" for number, text in enumerate(texts)]
    path = file(tmp_path_factory.mktemp("t") / "t.csv", "\n".join(["audio,text", *lines, ""]))
    try:
        entries = formats.read(path, None, PLAIN)[1].entries
    except DataError:
        return
    assert [Path(entry.audio).name for entry in entries] == [f"{number}.wav" for number in range(len(texts))]


def test_quoted_texts_may_have_lines_and_quotes(tmp_path: Path) -> None:
    rows = [
        ["a.wav", 'he said "no, no"'],
        ["b.wav", "first line\nsecond line"],
        ["c.wav", '"'],
        ["d.wav", "one\n\ntwo"],
    ]
    with (tmp_path / "t.csv").open("w", newline="") as written:
        csv.writer(written).writerows([["audio", "text"], *rows])
    _, source = formats.read(tmp_path / "t.csv", None, PLAIN)
    assert [[Path(entry.audio).name, entry.text] for entry in source.entries] == rows


def test_a_table_of_many_columns_is_read_in_linear_time(tmp_path: Path) -> None:
    names = ["audio", "text", *(f"column {number}" for number in range(100_000))]
    path = file(tmp_path / "t.csv", ",".join(names) + "\n" + "a.wav,one" + "," * 100_000 + "\n")
    assert formats.read(path, None, PLAIN)[1].entries[0].text == "one"
    untold = file(tmp_path / "u.csv", ",".join([names[0], *names[2:]]))
    refused("the text|audio, column 0, |99,991 more", formats.read, untold, None, PLAIN)
    refused("'clip'|99,992 more|Did you mean", formats.read, path, None, ReadingOptions({"audio": "clip"}, None))


def test_rows_of_lj_speech_name_ids_or_files(tmp_path: Path) -> None:
    for name in ("wavs/L1.wav", "wavs/L2.WAV", "wavs/more/L3.wav", "other/L4.flac"):
        sound(file(tmp_path / name, ""), 0.1)
    expected = {
        "L1": ("L1", "wavs/L1.wav"),
        "wavs/L1.wav": ("", "wavs/L1.wav"),
        "L1.wav": ("", "wavs/L1.wav"),
        "wavs/L2.WAV": ("", "wavs/L2.WAV"),
        "more/L3": ("more/L3", "wavs/more/L3.wav"),
        "more/L3.wav": ("", "wavs/more/L3.wav"),
        "wavs/L1": ("wavs/L1", "wavs/L1.wav"),
        "other/L4.flac": ("", "other/L4.flac"),
        "wavs/gone.wav": ("", "wavs/gone.wav"),
        "gone": ("gone", "wavs/gone.wav"),
    }
    _, source = formats.read(file(tmp_path / "list.csv", "".join(f"{name}|one\n" for name in expected)), None, PLAIN)
    found = [(entry.id, Path(entry.audio).relative_to(tmp_path).as_posix()) for entry in source.entries]
    assert found == list(expected.values())


def test_columns_and_the_folder_of_the_audio_can_be_named(tmp_path: Path) -> None:
    path = file(tmp_path / "t.csv", f"audio,clip,text,normalised\nx,a.wav,1,one\ny,{tmp_path}/b.wav,2,two\n")
    options = ReadingOptions({"audio": "clip", "text": "normalised"}, tmp_path / "elsewhere")
    _, source = formats.read(path, None, options)
    assert [(entry.audio, entry.text) for entry in source.entries] == [
        (f"{tmp_path}/elsewhere/a.wav", "one"),
        (f"{tmp_path}/b.wav", "two"),
    ]
    words = "t.csv:1: |'clp'|corpus.columns.audio|mean clip"
    refused(words, formats.read, path, None, ReadingOptions({"audio": "clp"}, None))


ONE = '{"audio": "a.wav", "text": "one"}\n'
FAULTS: dict[str, tuple[Written, str]] = {
    "no column": (written("t.csv", "clip,text\na.wav,one\n"), "t.csv:1: |audio|clip, text|corpus.columns.audio=..."),
    "two columns": (written("t.csv", "audio,text,text\n"), "t.csv:1: two columns|'text'"),
    "fields": (written("t.csv", "audio,text\na.wav,one\nb.wav,two, three\n"), "t.csv:3: 3 fields|double quotes"),
    "open quote": (written("t.csv", 'audio,text\na.wav,"one\n'), "t.csv:2: |quotes"),
    "no audio": (written("t.tsv", "client_id\tpath\tsentence\nx\t\tone\n"), "t.tsv:2: path"),
    "no number": (written("t.csv", "audio,text,start\na.wav,one,0:05\n"), "t.csv:2: the start|'0:05'"),
    "backwards": (written("t.csv", "audio,text,start,end\na.wav,one,2,1\n"), "t.csv:2: |1 s|2 s"),
    "no channel": (written("t.csv", "audio,text,channel\na.wav,one,left\n"), "t.csv:2: the channel|'left'"),
    "no JSON": (written("m.jsonl", ONE + '{"audio": \n'), "m.jsonl:2: |JSON"),
    "no text": (written("m.jsonl", ONE + '{"audio": "b.wav", "txt": "two"}\n'), "m.jsonl:2: |text|audio, txt"),
    "text null": (written("m.jsonl", '{"audio": "a.wav", "text": null}\n'), "m.jsonl:1: there is no text"),
    "text infinite": (written("m.jsonl", '{"audio": "a.wav", "text": 1e999}\n'), "m.jsonl:1: text|inf|wrong kind"),
    "text a list": (written("m.jsonl", '{"audio": "a.wav", "text": ["one"]}\n'), "m.jsonl:1: text|['one']|wrong kind"),
    "archive": (lambda root: kaldi(root, wav_scp="a x.ark:17\n"), "wav.scp:1: a |archive"),
    "no recording": (lambda root: kaldi(root, text="a one\nc two\n"), "text:2: c |wav.scp"),
    "no segment": (lambda root: kaldi(root, segments="x a 0 1\n"), "text:1: a |segments"),
    "bad segment": (lambda root: kaldi(root, segments="a a 0 1\nb b 2 1\n"), "segments:2: b 'b 2 1'|<start s>"),
    "twice": (lambda root: kaldi(root, text="a one\na two\n"), "text:2: a |text:1"),
    "kaldi channel": (lambda root: kaldi(root, reco2file_and_channel="a a C\n"), "channel:1: |of a is 'C'"),
    "lj fields": (written("t.csv", "a|one\nb|c|d|e\n"), "t.csv:2: 4 fields"),
    "nothing": (written("t.txt", "Dear reader\n"), "not recognised|b'Dear reader\\n'|corpus.format"),
    "binary": (lambda root: sound(root / "a.wav", 0.1), "not recognised|b'RIFF"),
    "empty file": (written("t.csv", ""), "not recognised|an empty file"),
    "other folder": (lambda root: file(root / "x/notes.md", "").parent, "not recognised|notes.md"),
    "header alone": (written("t.csv", "audio,text\n"), "no utterances|csv"),
    "no end": (
        lambda root: root / "list.csv" if (root / "list.csv").symlink_to("gone.csv") is None else root,
        "list.csv: a link|gone.csv",
    ),
    "no file": (lambda root: file(root / "recordings.csv", "").with_name("recording.csv"), "mean recordings.csv"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_named_with_file_and_line(case: str, tmp_path: Path) -> None:
    write, says = FAULTS[case]
    refused(says, formats.read, write(tmp_path), None, PLAIN)


@pytest.mark.parametrize("command", ["touch {} |", "| touch {}", "$(touch {})"])
def test_a_command_in_a_kaldi_folder_is_never_run(command: str, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    folder = kaldi(tmp_path, wav_scp=f"b b.wav\na {command.format(trace)}\n", text="a one\n")
    if "|" in command:
        refused(f"wav.scp:2: a |never runs|touch {trace} > a.wav", formats.read, folder, None, PLAIN)
    else:
        _, source = formats.read(folder, None, PLAIN)
        assert source.entries[0].audio == str(folder / command.format(trace))
    assert not trace.exists()


def test_other_encodings_name_the_byte_and_the_conversion(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("audio,text\na.wav,one\nb.wav,schön\n".encode("latin-1"))
    refused("t.csv:3: not UTF-8|offset 30|0xf6|iconv|t.utf8.csv", formats.read, path, None, PLAIN)
    for encoding in ("utf-16", "utf-32"):  # with a mark, as spreadsheets write
        path.write_bytes("audio,text\nä.wav,schön\n".encode(encoding))
        (entry,) = formats.read(path, None, PLAIN)[1].entries
        assert (Path(entry.audio).name, entry.text) == ("ä.wav", "schön")


def test_what_is_left_out_is_remarked(tmp_path: Path) -> None:
    folder, tree = texts_next_to_audio(tmp_path), librispeech(tmp_path)
    sound(folder / "d.wav", 0.1)
    file(folder / "e.txt", "five")
    sound(tree / "19/198/19-198-0002.flac", 0.1)
    for path, ends in (
        (folder, [".lab next to them (1): d.wav", "audio next to them (1): e.txt"]),
        (tree, ["in no .trans.txt (1): 19/198/19-198-0002.flac"]),
        (kaldi(tmp_path, text="a one\n"), ["not in text (1): b"]),
    ):
        remarks = formats.read(path, None, PLAIN)[1].remarks
        for remark, end in zip(remarks, ends, strict=True):
            assert remark.startswith(str(path)) and remark.endswith(end)


def test_names_that_differ_in_case_belong_together(tmp_path: Path) -> None:
    """As they do on the file systems of macOS and Windows; a text of exactly the same name comes first."""
    pairs = {"A.WAV": "a.txt", "b.wav": "b.txt", "B.wav": "B.LAB", "c.wav": "C.Txt", "d.wav": "x.txt", "C.wav": "C.Txt"}
    for name, text in pairs.items():
        sound(tmp_path / name, 0.1)
        (tmp_path / text).write_text(f"of {text}")
    (tmp_path / "b.lab").write_text("not read next to b.txt")
    _, source = formats.read(tmp_path, None, PLAIN)
    texts = {Path(entry.audio).name: entry.text for entry in source.entries}
    assert texts == {"A.WAV": "of a.txt", "b.wav": "of b.txt", "B.wav": "of B.LAB", "C.wav": "of C.Txt"}
    assert [remark.rpartition("(")[2] for remark in source.remarks] == ["2): c.wav, d.wav", "1): x.txt"]


def test_formats_are_known_by_name(tmp_path: Path) -> None:
    refused("corpus.format=kadli|mean kaldi", formats.check_format, "kadli", kind=ConfigError)
    refused("a folder|corpus.format=csv", formats.read, kaldi(tmp_path), "csv", PLAIN)
    listed = [name for line in formats.LIST.splitlines()[1:] for name in line[:14].replace(",", "").split()]
    assert listed == list(formats.READERS)
