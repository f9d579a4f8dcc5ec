"""Cells of the experiments people compare by: what is kept of a result of `heddle-bench run` or
`virtual`, and the tables of them (table.py).
"""

import itertools
from statistics import fmean, median

from harness import keep
from harness.md import NO_RESULT, load, markdown
from harness.report import p99

# Figures of a row that a table shows: of H, over alone; a quantile of too few requests is "few".
OF_H = {"mean": "mean_over_alone", "p50": "p50_over_alone", "p99": "p99_over_alone",
        "ttft_p90": "ttft_p90_over_alone", "tbt_p99": "tbt_p99_over_alone"}
WAYS = {"timeslice": "time-slicing", "mps": "MPS", "mps+priority": "MPS + client priority",
        "mps:25": "MPS 25 %", "split": "best static split", "priority@mps": "`priority`",
        "gapfill@mps": "`gapfill`", "auto": "`auto`, time-sliced", "auto@mps": "`auto`, MPS"}
FREE = ("timeslice", "mps", "mps+priority", "mps:25", "split")  # without heddle
TAIL_MAX = 1.10  # of H, with which a row counts as kept
P99_REQUESTS = 300  # fewer tell no p99


def figure(found):
    return None if found is None else found.get("value", "few")


def p99_of(results, h, row):
    """H's p99 over alone, of all requests in several results of one pair."""
    alone = f"alone/{h}" + ("@mps" if row.startswith("mps") or "@mps" in row else "")

    def all_us(name):
        return [us for result in results for block in result["raw"] if block["row"] == name
                for us in block["jobs"][h]["us"]]
    ours, theirs = all_us(row), all_us(alone)
    enough = min(len(ours), len(theirs)) >= P99_REQUESTS
    return round(p99(ours) / p99(theirs), 4) if enough else "few"


def cell_of(results):
    """Of several results of one pair, as on several hosts: the medians of their figures, and the
    p99 of all requests."""
    found = [cell_of_one(result) for result in results]
    if len(found) == 1:
        return found[0]
    h = next(job["name"] for job in results[0]["jobs"] if job["role"] == "latency")
    rows = {}
    for name in {name: None for cell in found for name in cell["rows"]}:
        with_it = [i for i, cell in enumerate(found) if name in cell["rows"]]
        mine = [found[i]["rows"][name] for i in with_it]
        rows[name] = {key: median(values) for key in {key: None for row in mine for key in row}
                      if (values := told(row.get(key) for row in mine))}
        rows[name] |= {"p99": p99_of([results[i] for i in with_it], h, name),
                       "requests": sum(row["requests"] for row in mine)}
    return found[0] | {"rows": rows}


def cell_of_one(result):
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
        kept["unserved"] = figure(of_h.get("unserved"))
        shares = [figure(row["jobs"].get(job, {}).get("per_s_over_alone")) for job in others]
        kept["l"] = fmean(shares) if shares and None not in shares else None
        kept |= {key: figure(row.get(path)) for key, path in (("stp", "stp"),
                                                               ("heddled", "daemon_cpu"))}
        rows[name] = {key: value for key, value in kept.items() if value is not None}
    job = next(job for job in result["jobs"] if job["name"] == h)
    return {"load": job.get("load"), "onoff": job.get("onoff", False),
            "held_out": result.get("held_out", False), "rows": rows}


def celled(name, results):
    """What is kept of {pair: its results} as cells."""
    whence = keep.measured(dict(enumerate(itertools.chain(*results.values()))))
    whence = {key: ", ".join(of) for key, of in whence.items()}
    return {"benchmark": name, **whence,
            "cells": {pair: cell_of(of) for pair, of in results.items()}}


def told(values):
    """Without what was not measured, or of few requests."""
    return [value for value in values if isinstance(value, (int, float))]


def tails(rows):
    """{row: H's tail}, the same figure for all rows of a cell: the first that most of them have.
    That is the p99; or of a decoder, whose requests are few, the worse of TTFT p90 and TBT p99."""
    best = {}
    for names in (("p99",), ("ttft_p90", "tbt_p99"), ("tbt_p99",)):
        figures = {name: told(row.get(key) for key in names) for name, row in rows.items()}
        found = {name: max(of) for name, of in figures.items() if len(of) == len(names)}
        best = max(best, found, key=len)
    return best


def ways_of(cell):
    """{way: row}, with its `tail`, None if that is not told. Of static splits the one that gives L
    most with H's tail kept, or else the kindest to H."""
    tail_of = tails(cell["rows"])
    rows = {name: row | {"tail": tail_of.get(name)} for name, row in cell["rows"].items()}
    splits = [row for name, row in rows.items() if name.startswith("split:") and comparable(row)]
    kept = [row for row in splits if row["tail"] <= TAIL_MAX]
    best = (max(kept, key=lambda row: row["l"]) if kept
            else min(splits, key=lambda row: row["tail"], default=None))
    found = rows | ({"split": best} if best else {})
    return {way: found[way] for way in WAYS if way in found}


def comparable(row):
    return row["tail"] is not None and "l" in row


def cells(name):
    """Of each pair what measured it last."""
    return {pair: cell for _, document in load(name) for pair, cell in document["cells"].items()}


def two_digits(value):
    return "".join(f"{number:.2f}" for number in told([value])) or "–"


def each(found):
    """A row a pair: H's mean / tail, L; then STP and heddled's cores of `auto` under MPS."""
    ways = [way for way in WAYS if any(way in ways_of(cell) for cell in found.values())]
    rows = []
    for pair, cell in found.items():
        mine = ways_of(cell)
        auto = mine.get("auto@mps", {})
        requests = [row["requests"] for row in mine.values()]
        rows.append([pair + (" (held out)" if cell["held_out"] else ""),
                     str(min(requests, default=0)), *(shown(mine.get(way)) for way in ways),
                     *(two_digits(auto.get(key)) for key in ("stp", "heddled"))])
    header = ["H's mean / tail, L; ÷ alone", "requests", *(WAYS[way] for way in ways),
              "STP of `auto`", "cores of heddled"]
    return markdown(header, rows) if rows else NO_RESULT


def shown(row):
    """Requests that had no turn in a block have no time: with such, H's figures are too low."""
    if not row:
        return "–"
    least = "> " if "unserved" in row else ""
    mean, tail, l = (two_digits(row.get(key)) for key in ("mean", "tail", "l"))
    return f"{least}{mean} / {tail}, {l}"


def lost(found):
    """Pairs in which a way without heddle is better for both than `auto` with its least tail."""
    lost_, apart = [], []
    for pair, cell in found.items():
        ways = {way: row for way, row in ways_of(cell).items() if comparable(row)}
        mine = [row for way, row in ways.items() if way.startswith("auto")]
        free = [way for way in FREE if way in ways]
        if not mine or not free:
            apart.append(f"- not compared: {pair}")
            continue
        auto = min(mine, key=lambda row: row["tail"])
        better = [WAYS[way] for way in free
                  if ways[way]["tail"] < auto["tail"] and ways[way]["l"] > auto["l"]]
        lost_ += [f"- {pair}: {', '.join(better)} is better than `auto` for both."] * bool(better)
    if not lost_ and len(apart) < len(found):
        lost_ = [f"- In none of {len(found) - len(apart)} compared pairs is a way without heddle "
                 "better than `auto` for both."]
    return "\n".join(lost_ + apart) or NO_RESULT


def tables():
    found = cells("beside_training")
    return {"beside_training": each(found), "beside_training-lost": lost(found)}


def printed(results):
    """The table of {pair: result}, simulated ones too, and which pairs are lost."""
    found = {name: cell_of([result]) for name, result in results.items()}
    whence = sorted({"simulated: no measurement" if result["mode"] == "simulated" else result["gpu"]
                     for result in results.values()})
    return "\n\n".join([each(found), lost(found), *whence])
