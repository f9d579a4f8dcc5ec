#!/usr/bin/env python3
"""One self-contained page of results and traces: it opens anywhere, from a mail or a ticket.

    heddle-bench report RESULT.json... [FILE.trace...] --html F.html
    heddle-bench report RESULT.json... --svg F.svg     the frontier alone; needs matplotlib

verdict        two sentences, and how sure they are
frontier       the service's p99 against best effort's rate, both over alone: one mark a row
distributions  how long iterations, requests or runs took: a line a row
timeline       of each trace: a lane for each client and set of SMs; wheel or drag to zoom
policies       their text and hash; machine, date, seed and command

Results are those of `heddle-bench run` on any --device, or of `heddle try --json`; traces those of
`heddle record` or `run --trace`. Charts are drawn by Chart.js, which the page contains. The bars of
--svg are 95 % intervals.
"""

import argparse
import hashlib
import html
import json
import sys
from pathlib import Path

from harness import frontier, traces
from harness.md import three
from harness.report import ResultError, load, reading
from harness.verdict import compared, pair, points, policies, span, verdict

HERE = Path(__file__).resolve().parent
SHARE = HERE.parents[1] / "share/heddle"
CHART_JS = [SHARE / "javascript/chart.min.js", Path("/usr/share/javascript/chart.js/chart.min.js")]
CDF_POINTS = 200
RATIOS = (4, 5, 7)   # columns of the table of figures
SLICES_MAX = 20_000  # of a trace: what a browser draws while one drags


def refuse(what):
    sys.exit(f"heddle-bench report: {what}")


def chart_js():
    for path in CHART_JS:
        if path.exists():
            return path.read_text()
    return refuse("Chart.js is not there; install the package libjs-chart.js (apt install "
                  "libjs-chart.js)")


def quantiles(result, service):
    """Row -> [[ms, share], ...] of the service."""
    samples = {}
    for block in result["raw"]:
        times = block["jobs"].get(service, {}).get("us", ())
        samples.setdefault(block["row"], []).extend(times)
    lines = {}
    for row, times in samples.items():
        if not times:
            continue
        times.sort()
        last = len(times) - 1
        picked = sorted({round(i * last / CDF_POINTS) for i in range(CDF_POINTS + 1)})
        lines[row] = [[times[i] / 1e3, (i + 1) / len(times)] for i in picked]
    return lines


def groups(bits):
    """The SM groups of a set, as 0-3,8."""
    numbers = [i for i in range(32) if bits >> i & 1]
    runs = []
    for i in numbers:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def importance(lane):
    """Sorts clients as their names end, by priority: "train Q9 gpu 0"."""
    client, bits = lane[0]
    return client.rsplit(" Q", 1)[-1], client, bits


def timeline(path):
    """Lanes of a trace: kernels as [begin, end, name] in ms, and waits. Of a long trace the first
    part, which says how long it is."""
    try:
        document = traces.load(path)
    except traces.TraceError as error:
        refuse(error)
    slices = sorted((e["ts"], e["ts"] + e["dur"]) for e in document["traceEvents"]
                    if e["ph"] == "X" and (e["tid"] < traces.GAPS or e["tid"] >= traces.ASKS))
    whole = max((end for _, end in slices), default=0)
    until = slices[SLICES_MAX][0] if len(slices) > SLICES_MAX else whole
    names, lanes = {}, {}
    for client, events in traces.clients(document):
        for e in events:
            if e["ph"] != "X" or e["ts"] >= until:
                continue
            span_ms = [round(e["ts"] / 1e3, 4), round((e["ts"] + e["dur"]) / 1e3, 4)]
            if e["tid"] < traces.GAPS:
                bits = e["args"].get("sm_set", 0)
                lane = lanes.setdefault((client, bits), {"kernels": [], "waits": []})
                lane["kernels"].append([*span_ms, names.setdefault(e["name"], len(names))])
            elif e["tid"] >= traces.ASKS:
                lanes.setdefault((client, 0), {"kernels": [], "waits": []})["waits"].append(span_ms)
    found = sorted({e["name"] for e in document["traceEvents"] if e["name"].startswith("policy ")})
    about = document.get("otherData", {})
    return {"name": Path(path).stem, "policies": found, "until_ms": until / 1e3,
            "whole_ms": whole / 1e3, "names": list(names), "mode": about.get("mode", ""),
            "lost": about.get("lost", 0),
            "lanes": [{"name": client.removesuffix(" gpu 0") + (
                           f" · SMs of {groups(bits)}" if bits else ""),
                       "client": client, **lane}
                      for (client, bits), lane in sorted(lanes.items(), key=importance)]}


def policy_texts(results):
    """Name -> {text, hash, path, values}: as they ran, or as they are installed here."""
    found = {}
    for result in results:
        for name, shown in result.get("policies", {}).items():
            found[name] = shown | {"about": "as it ran"}
        for row in result["rows"]:
            name = row.get("policy")
            if row["name"] not in policies(result) or name in found:
                continue
            files = [Path(name)] if name.endswith(".lua") else sorted(
                (SHARE / "policies").rglob(f"{name}.lua"))
            text = files[0].read_text() if files and files[0].exists() else ""
            found[name] = {
                "text": text, "path": str(files[0]) if files else "",
                "hash": "sha256 " + hashlib.sha256(text.encode()).hexdigest()[:16] if text else "",
                "values": row.get("params", {}),
                "about": "as it is installed where this page was made" if text else "not found"}
    return found


def escaped(text):
    return html.escape(str(text))


def machine(result):
    last = result["sessions"][-1]
    ways = sorted({"MPS" if row["mps"] else "time-sliced" for row in result["rows"]})
    rows = {"GPU": result["gpu"], "driver": last.get("driver", "–"), "sharing": ", ".join(ways),
            "host": result.get("host", "–"), "heddle": last["commit"],
            "date": last["date"], "seed": result.get("seed", "–"),
            "blocks": f"{result['block_s']:g} s, {result['repetitions_done']} repetitions",
            "command": last["command"]}
    if result.get("about"):
        rows["programs"] = result["about"]
    return "".join(f"<tr><th>{key}</th><td>{escaped(value)}</td></tr>"
                   for key, value in rows.items())


def figures(result):
    """The table below the charts."""
    service, job = pair(result)
    best = compared(result)
    unit = result.get("unit", "iteration")
    head = ["", f"{service}: {unit} mean, ms", "p99, ms", "mean ÷ alone", "p99 ÷ alone",
            f"{job}: a second", "÷ alone"]
    out = ["<tr>" + "".join(f"<th>{escaped(cell)}</th>" for cell in head) + "</tr>"]
    for name, row in result["figures"].items():
        of, l = row["jobs"].get(service, {}), row["jobs"].get(job, {})
        jct = of.get("jct_ms", {})
        cells = [name]
        for figure in (jct.get("mean"), jct.get("p99"), of.get("mean_over_alone"),
                       of.get("p99_over_alone"), l.get("per_s"), l.get("per_s_over_alone")):
            cells.append(three(figure and figure["value"]))
            if figure and len(cells) in RATIOS:
                bounds = f" [{span(figure)}]" if "lo" in figure else ""
                cells[-1] = f"{figure['value']:.2f}{bounds}"
        mark = ' class="best"' if best and name in best else ""
        out.append(f"<tr{mark}>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>")
    return "".join(out)


def section(result, number):
    service, job = pair(result)
    said = verdict(result)
    bounds = f"In brackets: {result.get('interval', '95 % intervals')}"
    return f"""<section>
<h2>{escaped(result["name"])}</h2>
<p class="verdict">{escaped(said["verdict"])}</p>
<p class="sure">{escaped(said["sure"])}</p>
<div class="charts">
<figure><figcaption>What sharing costs {escaped(service)}, and gives {escaped(job)}</figcaption>
<div class="chart"><canvas id="frontier{number}"></canvas></div></figure>
<figure><figcaption>How long each {escaped(result.get("unit", "iteration"))} of {escaped(service)}
took</figcaption><div class="chart"><canvas id="cdf{number}"></canvas></div></figure>
</div>
<div class="wide"><table class="figures">{figures(result)}</table></div>
<p class="note">{escaped(bounds)}.</p>
<details><summary>Machine and command</summary><table>{machine(result)}</table></details>
</section>"""


def trace_section(trace, number):
    part = ("" if trace["until_ms"] >= trace["whole_ms"] else
            f' The first {trace["until_ms"]:.0f} of {trace["whole_ms"]:.0f} ms.')
    lost = f' {trace["lost"]} records are lost.' if trace["lost"] else ""
    return f"""<section><h2>Who ran when: {escaped(trace["name"])}</h2>
<p class="note">{escaped(", ".join(trace["policies"]))}. A bar is a kernel on the GPU, a thin line a
launch that waits. "SMs of 8-15" are groups of SMs. Wheel: zoom; drag: move; double click: all.
{part}{lost}</p>
<div class="wide"><div class="timeline" style="height:{60 + 46 * max(1, len(trace["lanes"]))}px">
<canvas id="timeline{number}"></canvas></div></div></section>"""


def policy_section(texts):
    if not texts:
        return ""
    out = ["<section><h2>Policies</h2>"]
    for name, shown in texts.items():
        values = ", ".join(f"{k} = {v}" for k, v in (shown.get("values") or {}).items())
        where = f"{shown['about']}: {shown.get('path') or ''}{'; ' * bool(values)}{values}"
        out.append(f"<details><summary>{escaped(name)} <code>{escaped(shown.get('hash') or '')}"
                   f"</code></summary><p class=note>{escaped(where)}</p>"
                   f"<pre>{escaped(shown.get('text') or '')}</pre></details>")
    return "".join(out) + "</section>"


def chart_data(result):
    service, job = pair(result)
    of = set(policies(result))
    return {"service": service, "job": job, "unit": result.get("unit", "iteration"),
            "points": [{"row": name, "policy": name in of, "rate": rate, "mean": mean, "p99": p99}
                       for name, (rate, mean, p99) in points(result).items()],
            "cdf": quantiles(result, service)}


def page(results, timelines):
    data = {"results": [chart_data(result) for result in results], "timelines": timelines}
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    body = "".join(section(result, i) for i, result in enumerate(results))
    body += "".join(trace_section(trace, i) for i, trace in enumerate(timelines))
    title = ", ".join(dict.fromkeys(result["name"] for result in results)) or "heddle"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)}: heddle report</title>
<style>{(HERE / "report.css").read_text()}</style></head>
<body><main>{body}{policy_section(policy_texts(results))}</main>
<script type="application/json" id="data">{embedded}</script>
<script>{chart_js()}</script>
<script>{(HERE / "report.js").read_text()}</script>
</body></html>
"""


def checked(file):
    result = load(file)
    with reading(file):
        if None in pair(result):
            raise ResultError(f"{file}: has not one job of each role, latency and batch")
        page([result], [])
    return result


def write_page(files, out):
    traced = [file for file in files if file.endswith(".trace")]
    results = [checked(file) for file in files if file not in traced]
    text = page(results, [timeline(file) for file in traced])
    try:
        Path(out).write_text(text)
    except OSError as error:
        refuse(f"{out}: cannot be written: {error.strerror}; name another --html")


def main():
    parser = argparse.ArgumentParser(prog="heddle-bench report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="RESULT.json, KEPT.raw or FILE.trace")
    made = parser.add_mutually_exclusive_group(required=True)
    made.add_argument("--html", metavar="F.html", help="replaced if it is there")
    made.add_argument("--svg", metavar="F.svg", help="likewise")
    add("--figure", choices=("mean", "p99"), default="mean", help="--svg: of the JCT")
    add("--together", action="store_true", help="--svg: all results in one panel")
    options = parser.parse_args()
    try:
        if options.svg:
            frontier.load_matplotlib()
            frontier.draw(options.files, options.figure, options.together, options.svg)
        else:
            write_page(options.files, options.html)
    except ResultError as error:
        refuse(error)
    print(options.svg or options.html)


if __name__ == "__main__":
    main()
