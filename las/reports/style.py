"""How a report looks: light and dark, wide and narrow, without anything from elsewhere."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --line: #d5d9df; --soft: #5c6570; --panel: #f6f7f9;
  --s0: #1f6feb; --s1: #c2410c; --s2: #15803d; --s3: #9333ea; --s4: #0e7490; --s5: #be185d; --s6: #854d0e;
  --s7: #475569; --good: #15803d; --bad: #b3261e; --open: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e4e7eb; --line: #363c45; --soft: #9aa4b0;
  --panel: #1c2026; --s0: #6cb0ff; --s1: #ff9a62; --s2: #5fd38d; --s3: #c79bff; --s4: #5fd0e6; --s5: #ff8ab8;
  --s6: #e0b060; --s7: #a8b3c2; --good: #5fd38d; --bad: #ff8a80; --open: #e6bc5c; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--back);
  color: var(--text); }
h1 { font-size: 1.35rem; line-height: 1.25; margin: .4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p, ul { margin: .4rem 0; } li { margin: .15rem 0; } ul { padding-left: 1.2rem; }
code { font-size: .85em; overflow-wrap: anywhere; } pre { overflow-x: auto; background: var(--panel); padding: .6rem; }
.soft { color: var(--soft); font-size: .875rem; }
.warn { border-left: .25rem solid var(--open); padding-left: .7rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .875rem; width: 100%; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
th { background: var(--panel); font-weight: 600; vertical-align: bottom; white-space: normal; min-width: 3.4rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--back); min-width: 8rem;
  max-width: 13rem; white-space: normal; }
th:first-child { background: var(--panel); }
.claims td, .claims th { text-align: left; white-space: normal; vertical-align: top; } .claims td:nth-child(3) {
  white-space: nowrap; } .claims td:first-child, .claims th:first-child { min-width: 3rem; }
.claims td:nth-child(2) { min-width: 11rem; } .claims td:nth-child(4) { min-width: 14rem; color: var(--soft); }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.open { color: var(--open); font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: .8rem 1.2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .9rem; margin-bottom: .2rem; overflow-wrap: anywhere; }
.small figcaption { font-size: .75rem; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--soft); }
.heat { max-width: 40rem; } .heat image { image-rendering: pixelated; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid line, line.grid { stroke: var(--line); stroke-width: 1; } line.axis { stroke: var(--soft); stroke-width: 1; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .band { stroke: none; opacity: .18; }
polyline.s0 { stroke: var(--s0); } polyline.s1 { stroke: var(--s1); } polyline.s2 { stroke: var(--s2); }
polyline.s3 { stroke: var(--s3); } polyline.s4 { stroke: var(--s4); } polyline.s5 { stroke: var(--s5); }
polyline.s6 { stroke: var(--s6); } polyline.s7 { stroke: var(--s7); }
polygon.s0 { fill: var(--s0); } polygon.s1 { fill: var(--s1); } polygon.s2 { fill: var(--s2); }
polygon.s3 { fill: var(--s3); } polygon.s4 { fill: var(--s4); } polygon.s5 { fill: var(--s5); }
polygon.s6 { fill: var(--s6); } polygon.s7 { fill: var(--s7); }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .875rem; }
.key { display: inline-block; width: 1rem; height: .3rem; border-radius: .15rem; margin-right: .4rem;
  vertical-align: middle; }
.key.s0 { background: var(--s0); } .key.s1 { background: var(--s1); } .key.s2 { background: var(--s2); }
.key.s3 { background: var(--s3); } .key.s4 { background: var(--s4); } .key.s5 { background: var(--s5); }
.key.s6 { background: var(--s6); } .key.s7 { background: var(--s7); }
audio { width: 100%; max-width: 34rem; } .text { overflow-wrap: anywhere; }
.true { fill: none; stroke: #5eead4; stroke-width: 1.5; }
@media (max-width: 40rem) {
  svg text { font-size: 16px; } .heat text { font-size: 13px; }
  .claims thead { display: none; } .claims td { display: block; border: 0; padding: .1rem .6rem; max-width: none; }
  .claims tr { display: block; border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .claims td:first-child { position: static; font-weight: 600; }
}
"""
