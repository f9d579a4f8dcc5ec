"""Cells of the experiments people compare by: what is kept of a result of `heddle-bench run`, and
the tables of them (keep.py --cells, table.py)."""

import statistics

from harness.md import NO_RESULT, load, markdown

# Figures of a row that a table shows: of H, over alone; a quantile of too few requests is "few".
OF_H = {"mean": "mean_over_alone", "p50": "p50_over_alone", "p99": "p99_over_alone",
        "ttft_p90": "ttft_p90_over_alone", "tbt_p99": "tbt_p99_over_alone"}
WAYS = {"timeslice": "time-slicing", "mps": "MPS", "mps+priority": "MPS + client priority",
        "mps:25": "MPS 25 %", "split": "best static split", "priority@mps": "`priority`",
        "gapfill@mps": "`gapfill`", "auto": "`auto`, time-sliced", "auto@mps": "`auto`, MPS"}
FREE = ("timeslice", "mps", "mps+priority", "mps:25", "split")  # without heddle
TAIL_MAX = 1.10  # of H, with which a row counts as kept


def figure(found):
    return None if found is None else found.get("value", "few")


def cell_of(result):
    """{row: figures} of a result, and what it is of. L is all batch jobs together."""
    h = next(job["name"] for job in result["jobs"] if job["role"] == "latency")
    others = [job["name"] for job in result["jobs"] if job["role"] == "batch"]
    rows = {}
    for name, row in result["figures"].items():
        if name.startswith("alone/"):
            continue
        of_h = row["jobs"].get(h, {})
        kept = {key: figure(of_h.get(path)) for key, path in OF_H.items()}
        kept["requests"] = of_h.get("samples", 0)
        kept["l"] = statistics.fmean(
            figure(row["jobs"].get(job, {}).get("per_s_over_alone")) or 0 for job in others)
        kept |= {key: figure(row.get(path)) for key, path in (("stp", "stp"),
                                                               ("heddled", "daemon_cpu"))}
        rows[name] = {key: value for key, value in kept.items() if value is not None}
    job = next(job for job in result["jobs"] if job["name"] == h)
    return {"load": job.get("load"), "onoff": job.get("onoff", False),
            "held_out": result.get("held_out", False), "rows": rows}


def told(values):
    """Without what was not measured, or of few requests."""
    return [value for value in values if isinstance(value, (int, float))]


def tail(row):
    """H's p99; of a decoder, whose requests are few, the worse of TTFT p90 and TBT p99."""
    for names in (("p99",), ("ttft_p90", "tbt_p99")):
        values = told(row.get(name) for name in names)
        if values:
            return max(values)
    return None


def ways_of(cell):
    """{way: row}. Of static splits the one that gives L most with H's tail kept, or else the
    kindest to H."""
    rows = {name: row for name, row in cell["rows"].items() if tail(row) is not None}
    splits = [row for name, row in rows.items() if name.startswith("split:")]
    kept = [row for row in splits if tail(row) <= TAIL_MAX]
    best = max(kept, key=lambda row: row["l"]) if kept else min(splits, key=tail, default=None)
    found = rows | ({"split": best} if best else {})
    return {way: found[way] for way in WAYS if way in found}


def cells(name):
    """Of each pair what measured it last."""
    return {pair: cell for _, document in load(name) for pair, cell in document["cells"].items()}


def middle(values):
    values = told(values)
    return f"{statistics.median(values):.2f}" if values else "–"


def summary(name, loads):
    """A row a way: over the pairs of each load H's median and worst tail, and L's median."""
    of = {load_: [ways_of(cell) for cell in cells(name).values()
                  if cell["load"] == load_ and not cell["onoff"]] for load_ in loads}
    of = {load_: found for load_, found in of.items() if found}
    header = ["÷ alone, medians over pairs"]
    for load_, found in of.items():
        header += [f"load {load_:g}, {len(found)} pairs: H's tail", "worst", "L"]
    rows = []
    for way, label in WAYS.items():
        line = [label]
        for found in of.values():
            mine = [ways[way] for ways in found if way in ways]
            tails = [tail(row) for row in mine]
            line += [middle(tails), f"{max(tails):.2f}" if tails else "–",
                     middle([row["l"] for row in mine])]
        rows.append(line)
    return markdown(header, rows) if of else ""


def each(name):
    """A row a pair: H's mean / tail, L; then STP and heddled's cores of `auto` under MPS."""
    found = cells(name)
    ways = [way for way in WAYS if any(way in ways_of(cell) for cell in found.values())]
    rows = []
    for pair, cell in found.items():
        mine = ways_of(cell)
        auto = mine.get("auto@mps", {})
        requests = [row["requests"] for row in mine.values()]
        rows.append([pair + (" (held out)" if cell["held_out"] else ""),
                     str(min(requests, default=0)), *(shown(mine.get(way)) for way in ways),
                     middle([auto.get("stp")]), middle([auto.get("heddled")])])
    header = ["H's mean / tail, L; ÷ alone", "requests", *(WAYS[way] for way in ways),
              "STP of `auto`", "cores of heddled"]
    return markdown(header, rows) if rows else NO_RESULT


def shown(row):
    return f"{row['mean']:.2f} / {tail(row):.2f}, {row['l']:.2f}" if row else "–"


def lost(name):
    """Pairs in which a way without heddle is better than `auto` on both sides."""
    lines = []
    for pair, cell in cells(name).items():
        ways = ways_of(cell)
        auto = ways.get("auto@mps")
        better = [WAYS[way] for way in FREE if auto and way in ways
                  and tail(ways[way]) < tail(auto) and ways[way]["l"] > auto["l"]]
        lines += [f"- {pair}: {', '.join(better)} is better than `auto` for both."] * bool(better)
    return "\n".join(lines) or ("- In no pair is a way without heddle better than `auto` for both."
                                if cells(name) else NO_RESULT)


def tables():
    """The front page shows nothing of what is not measured."""
    names = ("beside_training", "graphs_beside_graphs", "online_offline", "long_kernels")
    return {"front": summary("beside_training", (0.5, 0.8)),
            "beside_training-lost": lost("beside_training"), **{name: each(name) for name in names}}
