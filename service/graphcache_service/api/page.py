"""GET /: the page for people. Drawn here from the same answers that the API gives; no script, no foreign asset."""

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from graphcache_service.api.asking import TheCaller, TheServices
from graphcache_service.core import graphs, stats
from graphcache_service.version import VERSION
from graphcache_wire import Stats
from graphcache_wire.graphs import GraphPage, GraphSummary

router = APIRouter()

STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem;color:#1c2430;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #dde3ea}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.alarm{background:#fff3cd;padding:.6rem 1rem}
code{font-size:.85em;color:#456}
"""
ROWS = 20


@router.get("/", response_class=HTMLResponse, tags=["pages"])
async def page(services: TheServices, caller: TheCaller) -> HTMLResponse:
    """What is stored, what compiles now, the hit ratio, the workers."""
    numbers = await stats.stats(services, caller, None, None)
    shown = {
        state: await graphs.list_graphs(
            services, caller, graphs.GraphFilter(namespaces=caller.readable(), state=state), None, ROWS
        )
        for state in ("leased", "queued", "failed", "ready")
    }
    return HTMLResponse(draw(numbers, shown))


def size_text(size_bytes: int) -> str:
    """Bytes for people."""
    value, units = float(size_bytes), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def time_text(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table of text; everything is escaped here."""
    if not rows:
        return "<p>None.</p>"
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + f"</tr>{body}</table>"


def _graph(summary: GraphSummary) -> list[str]:
    artifact = summary.artifact
    return [
        summary.key.label(),
        summary.key.toolchain,
        summary.state,
        "" if artifact is None else time_text(artifact.compile_s),
        "" if artifact is None else size_text(artifact.size_bytes),
        "" if artifact is None else artifact.producer,
        str(summary.hits),
        summary.key_digest[:12],
    ]


def draw(numbers: Stats, shown: dict[str, GraphPage]) -> str:
    """The whole page."""
    totals = numbers.totals
    ratio = "no question yet" if totals.hit_ratio is None else f"{totals.hit_ratio:.1%}"
    head = ["graph", "toolchain", "state", "compiled in", "size", "by", "hits", "key"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>graphcache</title><style>{STYLE}</style><h1>graphcache {escape(VERSION)}</h1>",
        *(f"<p class=alarm>{escape(alarm.message)}</p>" for alarm in numbers.alarms),
        _table(
            ["", ""],
            [
                ["hit ratio", ratio],
                ["hits", ", ".join(f"{count} from {tier}" for tier, count in totals.hits.items())],
                ["misses", str(totals.misses)],
                ["joined waits", ", ".join(f"{count} {outcome}" for outcome, count in totals.joined_waits.items())],
                ["compile time saved", time_text(totals.compile_s_saved)],
                ["compile time spent", time_text(totals.compile_s_spent)],
                ["stored", f"{numbers.blobs} blobs, {size_text(numbers.blob_bytes)}"],
                ["waiting now", str(numbers.waiters)],
            ],
        ),
    ]
    titles = {"leased": "Compiling now", "queued": "Queued", "failed": "Failed", "ready": "Stored"}
    for state, title in titles.items():
        count = sum(number for name, number in totals.compiles.items() if name == state)
        parts += [f"<h2>{title} ({count})</h2>", _table(head, [_graph(one) for one in shown[state].graphs])]
    seen = [[one.toolchain, str(one.workers), time_text(one.last_claim_age_s)] for one in numbers.toolchains]
    parts += ["<h2>Workers</h2>", _table(["toolchain", "workers", "last asked, ago"], seen)]
    return "".join(parts)
