"""The report as one HTML page: opens from the file system, loads nothing, and needs no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from amplint.live import curve, layers, report
from amplint.live.catalogue import UNSEEN, place
from amplint.live.merge import Process, Run, Seen
from amplint.live.ranks import disagreements
from amplint.rules import TABLE

#: Rows of a table of rounds; the curve has all of them.
_ROWS = 200

_STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--faint:#d8d8d8;--line:#1f5fa8;
--error:#b3261e;--warning:#8a5a00;--info:#44546a}
@media(prefers-color-scheme:dark){:root{--ink:#eee;--paper:#16181c;--faint:#3a3f47;--line:#7db4f0;
--error:#ff8a80;--warning:#ffc85c;--info:#a9b8cc}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem}
code{font-size:.92em}svg{width:100%;height:auto}svg text{font-size:12px;fill:var(--ink)}
.grid{stroke:var(--faint)}.scale{fill:none;stroke:var(--line);stroke-width:2;stroke-linecap:round}
.before{fill:none;stroke:var(--info);stroke-width:1;stroke-dasharray:5 3}
.skip{stroke:var(--error);stroke-width:2}
path.error{fill:var(--error)}path.warning{fill:var(--warning)}path.info{fill:var(--info)}
.level{font-weight:600}.level.error{color:var(--error)}.level.warning{color:var(--warning)}
.level.info{color:var(--info)}
.bar{width:6rem;fill:var(--line)}h4{font-size:1rem;margin-bottom:.3rem}
.wide{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.2rem .7rem .2rem 0;text-align:left;
border-bottom:1px solid var(--faint);vertical-align:top;overflow-wrap:normal}
"""


def render(run: Run) -> Iterator[str]:
    """The lines of the page."""
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>amplint: {escape(_title(run))}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{escape(_title(run))}</h1><p>{escape(report.verdict(run))}</p>"
    yield "<h2>Findings</h2>"
    if not report.levels(run):
        yield "<p>Nothing was seen that breaks a rule.</p>"
    for found in run.findings:
        yield from _finding(found, len(run.processes))
    for differing in disagreements(run.processes):
        words = differing.words()
        level = f'<span class="level {differing.level}">{differing.level}</span>'
        yield f"<section><h3>{level} {escape(words[0].upper() + words[1:])}</h3></section>"
    yield "<h2>Loss scale</h2>"
    if not any(process.rounds for process in run.processes):
        yield "<p>No gradient scaler was at work.</p>"
    for index, process in enumerate(run.processes):
        yield from _process(process, run, index)
    if any(process.samples.looks for process in run.processes):
        yield "<h2>Sampled steps</h2>"
        for index, process in enumerate(run.processes):
            yield from layers.sections(process.samples, process.name, f"n{index}")
    yield "<h2>Processes</h2><ul>"
    for process in run.processes:
        for line in report.process_lines(process):
            yield f"<li>{escape(line)}</li>"
    yield "</ul><h2>What was not observed</h2><ul>"
    yield from (f"<li>{escape(each)}</li>" for each in UNSEEN)
    yield "</ul>"
    yield "</main></body></html>"


def _title(run: Run) -> str:
    command = run.about.get("command")
    return f"Run of {' '.join(map(str, command))}" if command else "A watched run"


def _finding(found: Seen, processes: int) -> Iterator[str]:
    rule = TABLE.get(found.code, found.slug).replace("_", "-")
    yield (
        f'<section><h3><span class="level {found.level}">{found.level}</span> '
        f"{escape(f'{found.code} {rule}'.strip())} at "
        f"<code>{escape(place(found.file, found.row))}</code></h3>"
        f"<p>{escape(found.words)}.</p>"
    )
    seen = list(report.finding_lines(found, processes))[1].strip()
    yield f"<p>{escape(seen[0].upper() + seen[1:])}.</p>"
    if found.trail:
        yield "<details><summary>The calls before it</summary><ol>"
        for kind, file, row in found.trail:
            yield f"<li>{escape(kind)} at <code>{escape(place(file, row))}</code></li>"
        yield "</ol></details>"
    yield "</section>"


def _process(process: Process, run: Run, index: int) -> Iterator[str]:
    mine = [found for found in run.findings if process.name in found.who]
    for number, rounds in sorted(process.rounds.items()):
        yield f"<h3>{escape(process.name)}, scaler {number}</h3>"
        yield f"<p>{escape(curve.sentence(rounds))}</p>"
        yield from curve.scales(rounds, mine, f"c{index}-{number}")
        yield "<details><summary>As a table</summary><div class=wide><table>"
        yield "<tr><th scope=col>update<th scope=col>loss scale<th scope=col>step<th scope=col>second</tr>"
        changes = [
            each
            for before, each in zip([None, *rounds], rounds)
            if before is None or each.skipped or each.scale != before.scale
        ]
        for each in changes[:_ROWS]:
            scale = "unknown" if each.scale is None else f"{each.scale:g}"
            step = {True: "skipped", False: "taken", None: "unknown"}[each.skipped]
            yield (f"<tr><td>{each.update}<td>{scale}<td>{step}<td>{each.seconds:.1f}</tr>")
        yield f"</table></div><p>{_left_out(len(changes), len(rounds))}</p></details>"


def _left_out(changes: int, rounds: int) -> str:
    shown = min(changes, _ROWS)
    return f"{shown} of {rounds} updates: where the scale changed or a step was skipped."
