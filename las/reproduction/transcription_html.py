"""What was heard in a recording as pieces of HTML: numbers, a table of tokens, pictures of the attention."""

from collections.abc import Iterator
from html import escape

from las.decoding.transcription import Heard, Transcription
from las.reproduction import charts

ENDS = {
    "max_length": "cut off at the length limit of the search",
    "dead_end": "given up: the search found no way to go on",
}

STYLE = """
.heard { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; line-height: 1.5; margin: 0; }
.heard.problem { border-left: .25rem solid #c2410c; padding: .1rem 0 .1rem .7rem; }
.heard h2 { font-size: 1rem; font-weight: 600; margin: 0 0 .4rem; }
.heard .wide { overflow: auto; max-height: 30rem; border: 1px solid var(--border-color-primary); border-radius: .4rem; }
.heard table { border-collapse: collapse; width: 100%; font-size: .875rem; margin: 0; }
.heard table, .heard thead, .heard tbody { border: 0; }
.heard th, .heard td { padding: .25rem .6rem; text-align: right; white-space: pre; border: 0; }
.heard th { position: sticky; top: 0; background: var(--background-fill-secondary); font-weight: 600; z-index: 1; }
.heard tbody tr { border: 0; border-top: 1px solid var(--border-color-primary); }
.heard th:first-child, .heard td:first-child { text-align: left; }
.heard .bar { display: inline-block; width: 4rem; height: .4rem; border-radius: .2rem; vertical-align: middle;
  margin-left: .6rem; background: var(--border-color-primary); overflow: hidden; }
.heard .bar i { display: block; height: 100%; background: #3b82f6; }
.heard figure { margin: 0 0 .8rem; max-width: 38rem; } .heard figcaption { font-size: .875rem; margin-bottom: .3rem; }
.heard svg { width: 100%; height: auto; display: block; } .heard image { image-rendering: pixelated; }
.heard svg text { font-size: 10px; fill: var(--body-text-color); opacity: .75; }
.heard .end { text-anchor: end; } .heard .middle { text-anchor: middle; }
.heard .soft { font-size: .875rem; opacity: .75; margin: 0; }
@media (max-width: 40rem) { .heard svg text { font-size: 13px; } .heard th, .heard td { padding: .25rem .35rem; }
  .heard .bar { width: 1.5rem; margin-left: .4rem; } }
"""
"""Colours are those of the page around them."""


def numbers(heard: Transcription, seconds: float) -> str:
    """How long the recording was, how fast it was heard, in `seconds`, and how it ended."""
    said = [f"{heard.duration_s:.2f} s of audio in {seconds:.2f} s: real-time factor {seconds / heard.duration_s:.3f}"]
    if not heard.pieces:
        said.append("it is silence: nothing was heard in it")
    else:
        said.append(f"log-probability {heard.score:.2f}")
        said += [f"heard in {len(heard.pieces)} pieces"] if len(heard.pieces) > 1 else []
        said += [ENDS[heard.finished_by]] if heard.finished_by in ENDS else []
    return f'<p class="heard">{escape(" · ".join(said))}</p>'


def problem(words: str) -> str:
    """Why a recording could not be heard."""
    return f'<p class="heard problem" role="alert">{escape(words)}</p>'


def tokens(heard: Transcription) -> str:
    """A row for each token: start and end in seconds, confidence. Nothing where nothing was heard."""
    rows = "".join(
        f"<tr><td>{escape(charts.shown(token.symbol))}</td><td>{token.start_s:.2f}</td><td>{token.end_s:.2f}</td>"
        f'<td>{token.confidence:.1%}<span class="bar"><i style="width:{token.confidence:.0%}"></i></span></td></tr>'
        for token in heard.tokens
    )
    head = "<tr><th>token</th><th>start (s)</th><th>end (s)</th><th>confidence</th></tr>"
    table = f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    return f'<div class="heard"><h2>Tokens</h2>{table}</div>' if rows else ""


def attention(heard: Transcription) -> str:
    """A heat map for each piece that was heard."""
    pictures = "".join(_pictures(heard))
    return f'<div class="heard"><h2>Attention</h2>{pictures}</div>' if pictures else ""


def _pictures(heard: Transcription) -> Iterator[str]:
    for number, piece in enumerate(heard.pieces, start=1):
        title = "where it looked for each token" if len(heard.pieces) == 1 else f"piece {number}{_place(piece)}"
        seconds = piece.half_weights.shape[1] * heard.state_ms / 1000
        yield charts.heat_map(piece.weights.numpy(), piece.symbols, seconds, title, "")


def _place(piece: Heard) -> str:
    return f", which begins at {piece.tokens[0].start_s:.1f} s" if piece.tokens else ""
