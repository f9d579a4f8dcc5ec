"""out/quickstart/report.html: the table, and who ran when, in one file that needs nothing else."""

import html

WINDOW_NS = 120_000_000
WIDTH = 1100
LANE = 26
LATENCY, BATCH, GRID = "#c0392b", "#7f9db9", "#dddddd"

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1140px; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em 1em; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-bottom: 1px solid #ddd }
svg { display: block; margin: .2em 0 1.2em } .note { color: #666 }
"""


def timeline(kernels, begin_ns):
    """One SVG: a lane per program, a bar per kernel, `WINDOW_NS` from `begin_ns` on."""
    scale = WIDTH / WINDOW_NS
    parts = [f'<svg width="{WIDTH}" height="{2 * LANE + 22}" role="img">']
    for tick in range(0, WINDOW_NS + 1, 10_000_000):
        x = tick * scale
        parts.append(f'<path d="M{x:.1f} 0V{2 * LANE}" stroke="{GRID}"/>')
        if tick % 20_000_000 == 0:
            parts.append(f'<text x="{x:.1f}" y="{2 * LANE + 14}" font-size="11">'
                         f'{tick // 1_000_000} ms</text>')
    for lane, (role, colour) in enumerate((("latency", LATENCY), ("batch", BATCH))):
        for kernel in kernels.get(role, ()):
            x = (kernel["start_ns"] - begin_ns) * scale
            if x > WIDTH or kernel["end_ns"] < begin_ns:
                continue
            ms = (kernel["end_ns"] - kernel["start_ns"]) / 1e6
            parts.append(f'<rect x="{x:.1f}" y="{lane * LANE + 3}" height="{LANE - 6}" '
                         f'width="{max(ms * 1e6 * scale, 0.8):.1f}" fill="{colour}"><title>'
                         f'{html.escape(kernel["kernel"])}: {ms:.2f} ms</title></rect>')
    return "".join(parts) + "</svg>"


def page(result, rows, pictures):
    """`rows`: (heading or None, cells); `pictures`: (title, svg)."""
    body = [f"<h1>Who ran when</h1><p>{html.escape(result['device'])} · seed {result['seed']} · "
            "<b>every figure on this page is simulated</b>: real processes, the real shim, daemon "
            "and policies, a modelled GPU.</p><table>"]
    for heading, cells in rows:
        tag = "th" if heading else "td"
        body.append("<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>")
    body.append("</table><p class=note>H is the latency-critical program: milliseconds of an "
                "iteration, and over what it takes alone. L is best effort: kernels a second.</p>"
                "<h2>Timelines</h2><p class=note>"
                f'<b style="color:{LATENCY}">■</b> latency-critical '
                f'<b style="color:{BATCH}">■</b> best effort; a bar is one kernel, simulated</p>')
    for title, svg in pictures:
        body.append(f"<h3>{html.escape(title)}</h3>{svg}")
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>heddle quick start</title>"
            f"<style>{STYLE}</style>{''.join(body)}</html>\n")
