#!/usr/bin/env python3
"""Markdown tables from bench/results/*.json, so that no figure in a README is typed by hand.

    table.py                          all tables
    table.py --write README.md ...    replaces what stands between <!-- table:NAME:begin --> and
                                      <!-- table:NAME:end -->; --check only says whether it would

Tables, each from the files of results/ that begin with its name, but: verdicts from their tables';
`method` from those of a script that `heddle-bench run` has taken the place of; `preload` from
overhead*.json; `[fikit-]validation` from {six_pairs,pairs}/*.validate.md; `SERIES` from what
`heddle-bench table --brief` left in its folder; `predict` from what `heddle trace predict` said
before the predictor was measured and says now; `heard`, `slowdown` and `open` from itself*/;
`ten-pairs` and `pairs-quartiles` from pairs/ and gapfill-1.7/;
`[simulated-]frontier-*` and `steady-spread` from the folder of that name; `speed-ups` and `bounds`:
fikit.py; `SERIES-predicted` from SERIES/ and predicted/SERIES.json, which freeze.py leaves.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import fikit
import frontier
import quartiles
from md import NO_RESULT, RESULTS, headed, interval, load, markdown, percent, three
from old_pairs import method, newest_pairs, pairs_table, verdict_table

UNITS = {"host_us": "host µs", "gpu_us": "GPU µs", "record_us": "record µs", "host_ns": "host ns",
         "sync_us": "synchronize returned, µs", "query_us": "query saw it, µs",
         "write_us": "stream write seen, µs"}


def steer_tables():
    tables = {}
    for _, document in load("steer"):
        for experiment in document["experiments"]:
            metrics = [m for m in UNITS if any(m in case for case in experiment["cases"])]
            header = [experiment["about"]]
            for metric in metrics:
                header += [f"{UNITS[metric]}: median", "p5–p95", "p99", "over control (95 %)"]
            rows = [[case["name"]] + [cell for metric in metrics for cell in cells(case, metric)]
                    for case in experiment["cases"]]
            tables[f"steer-{experiment['name']}"] = markdown(header, rows)
    return tables


def cells(case, metric):
    figures = case.get(metric)
    if figures is None:
        return ["–"] * 4
    over = case.get(f"{metric}_over_control")
    change = f"{over['p50']:+.3g} [{over['lo']:+.3g}, {over['hi']:+.3g}]" if over else "–"
    return [three(figures["p50"]), f"{three(figures['p5'])}–{three(figures['p95'])}",
            three(figures["p99"]), change]


def overhead_table():
    """Each service and policy from the newest file that has it."""
    rows = {}
    for _, document in load("overhead"):
        for name, service in document["services"].items():
            for policy, found in service["policies"].items():
                verdict = {True: "yes", False: "no", None: "not shown"}[found["passes"]]
                rows[name, policy] = [
                    f"{name}, `{policy}`", f"{found['off_us']:.0f}",
                    f"{found['difference_us']:+.1f}", interval(found["typical"]),
                    interval(found["mean"]), str(found["pairs"]), document["commit"], verdict]
    header = ["alone at the top priority", "bypassed, µs", "median difference, µs",
              "typical [95 %]", "mean [95 %]", "pairs", "commit", "at most +1 %"]
    return markdown(header, rows.values()) if rows else NO_RESULT


MICRO_BARS = {"passthrough_ns": "≤ 10", "lease_ns": "≤ 100", "launch_p99_8_threads_over_1": "≤ 2",
              "gate_rtt_us_p50": "≤ 3", "gate_rtt_us_p99": "≤ 10", "gate_16_rtt_us_p50": "≤ 8",
              "decisions_per_s": "≥ 500 000"}
TEN_PAIRS = ["mps+priority", "mps:25", "fikit@mps", "gapfill@mps"]
MICRO_FILES = {"micro.json": "simulated driver, 2 cores",
               "micro-h200-simulated.json": "simulated driver, host of an H200",
               "micro-h200.json": "an H200's driver",
               "micro-h200-busy.json": "the same, a busy host of 32"}


def micro_table():
    found = {of: json.loads((RESULTS / name).read_text())
             for name, of in MICRO_FILES.items() if (RESULTS / name).exists()}
    figures = sorted({key for of in found.values() for key in of if key.endswith(
        ("_ns", "_us_p50", "_us_p99", "_over_1", "_per_s"))})
    rows = [[f"`{key}`", MICRO_BARS.get(key, "–"),
             *(f"{of[key]:.0f}" if of.get(key, 0) > 1e4 else three(of.get(key))
               for of in found.values())] for key in figures]
    return markdown(["", "bar", *found], rows) if rows else NO_RESULT


def validation_table(series):
    """The sums of what `heddle-bench validate` said of each of a series."""
    rows = []
    for path in sorted(RESULTS.glob(f"{series}/*.validate.md")):
        for figure, error, within, order, missed in re.findall(
                r"\| \*\*(.*?)\*\* \| mean absolute error (\d+ %), (\d+ of \d+) within 15 %; "
                r"order (\d+ of \d+) .*?(?:; not: (.*?))? \|", path.read_text()):
            if "÷ alone" in figure:
                rows.append([f"{path.name.split('.')[0]}: {figure}", error, within, order,
                             missed or "–"])
    header = ["virtual time against the H200", "mean error", "rows within 15 %",
              "pairs of rows in the same order", "the first that are not"]
    return markdown(header, rows) if rows else NO_RESULT


def counts(verdict):
    """Whether the driver saw as many launches under heddle as without; "–" where none counted."""
    count = verdict.get("launches")
    return "–" if not count else {True: "equal", False: "DIFFERENT",
                                  None: "bare differs"}[count["equal"]]


def gated(program):
    """The outputs of the gated cell, and how its launches went as heddled knows."""
    word = program["verdict"].get("outputs", {}).get("gated", "–").split(":")[0]
    cell = next((c for c in program["cells"] if c["condition"] == "gated"), {})
    shim = cell.get("shim", {})
    if not shim.get("counters"):
        return word
    exempt = sum(client["self"].get("exempt", 0) for client in shim["counters"])
    return (f"{word}; {shim['granted']} of {shim['launches']} asked"
            + (f", {exempt} exempt" if exempt else ""))


def nccl_table():
    """Programs on two GPUs under each policy; what was measured later is added."""
    merged = {}
    for _, document in load("nccl"):
        for name, found in document["programs"].items():
            key = name, document["policy"], document["sharing"]
            row = merged.setdefault(
                key, {"outputs": {}, "commits": [], "counts": "–", "result": ""})
            verdict = found["verdict"]
            row["about"] = found["about"]
            if verdict["result"] != "not compared" or not row["result"]:
                row["result"] = verdict["result"]
            row["outputs"] |= {key: word for key, word in verdict["outputs"].items()
                               if word not in ("–", "not run", "not compared")}
            if row["outputs"].get("gated") == "equal" and verdict["outputs"].get("gated"):
                row["outputs"]["gated"] = gated(found)
            row["counts"] = counts(verdict) if counts(verdict) != "–" else row["counts"]
            row["commits"].append(found.get("commit", document["commit"]))
    rows = [[f"{row['about']}, `{policy}`" + (", MPS" if sharing == "mps" else ""),
             *(row["outputs"].get(key, "–") for key in ("alone", "gated", "absent", "killed")),
             row["counts"], ", ".join(row["commits"]), row["result"]]
            for (_, policy, sharing), row in sorted(merged.items())]
    header = ["on two GPUs", "alone", "gated", "no daemon", "daemon killed", "launches", "commit",
              "verdict"]
    return markdown(header, rows) if rows else NO_RESULT


def rows_table():
    """What each launch costs that is told, and what it costs in rows (ipc/sparse.h)."""
    services = {}
    for way, prefix in (("each", "each"), ("in rows", "rows")):
        for _, document in load(prefix):
            for name, service in document["services"].items():
                for found in service["policies"].values():
                    services.setdefault(name, {})[way] = (
                        f"{interval(found['typical'])}, {found['pairs']} pairs", document["commit"])
    rows = [[name, *(ways.get(way, ("–",))[0] for way in ("each", "in rows")),
             ", ".join(sorted({found[1] for found in ways.values()}))]
            for name, ways in services.items()]
    header = ["under a lease, beside nobody", "each launch told", "told in rows", "commit"]
    return markdown(header, rows) if rows else NO_RESULT


def stage_table():
    rows = []
    for document in (json.loads((RESULTS / name).read_text())
                     for name in ("stage.json", "stage-busy.json", "stage-keypointrcnn.json")):
        rows += [[f"{name}: {phase}", f"{of[phase]['off_us']:.0f}", interval(of[phase]["typical"]),
                  interval(of[phase]["mean"]), str(of[phase]["pairs"]), document["commit"]]
                 for name, of in document["services"].items()
                 for phase in of if phase in ("stage", "profiled")]
    header = ["a new task", "bypassed, µs", "typical [95 %]", "mean [95 %]", "pairs", "commit"]
    return markdown(header, rows)


def preload_table():
    rows = {}
    for _, document in load("overhead"):
        for name, found in document["preload"].items():
            cells = [interval(found["over_bare"][kind]) if found["over_bare"][kind] else "–"
                     for kind in ("disabled", "managed")]
            rows[name] = [name, f"{found['bare_us']:.0f}", *cells, str(found["rounds"])]
    header = ["processes taking turns", "bare, µs", "preloaded and disabled [95 %]",
              "managed [95 %]", "rounds"]
    return markdown(header, rows.values()) if rows else NO_RESULT


def matrix_table():
    """Each program from the newest file that ran it."""
    programs = {}
    for _, document in load("matrix"):
        programs |= {name: program for name, program in document["programs"].items()
                     if program["verdict"]["result"] != "not run"}
    rows = []
    for name, program in programs.items():
        verdict = program["verdict"]
        outputs = verdict.get("outputs", {})
        remarks = [" ".join(text.split())[:200].replace("|", "/")
                   for text in verdict.get("why", []) + verdict.get("notes", [])]
        words = {key: outputs.get(key, "–").split(":")[0] for key in ("alone", "absent", "killed")}
        rows.append([program["about"], words["alone"], gated(program), words["absent"],
                     words["killed"], counts(verdict),
                     verdict["result"] + ("; " + "; ".join(remarks) if remarks else "")])
    header = ["program", "alone", "gated", "no daemon", "daemon killed", "launches", "verdict"]
    return markdown(header, rows) if rows else NO_RESULT


def samples_text():
    """How many ran alike, and each that did not by name, from the newest verdict of each."""
    programs = {}
    for _, document in load("samples"):
        programs |= {name: found for name, found in document["programs"].items()
                     if found["verdict"] != "not run"}
    if not programs:
        return NO_RESULT
    of = {word: sorted(name for name, found in programs.items() if found["verdict"] == word)
          for word in ("alike", "differs", "unproven", "bare fails")}
    lines = [f"{len(of['alike'])} of the {len(programs) - len(of['bare fails'])} samples that run "
             f"bare ran alike under heddle; {len(of['bare fails'])} do not run bare on this host: "
             + (", ".join(of["bare fails"]) or "none") + "."]
    return "\n".join(lines + [f"- {name} {word}: {'; '.join(programs[name]['why'])}"
                              for word in ("differs", "unproven") for name in of[word]])


BLAST = {"mps": "MPS, no heddle", "mps+heddle": "MPS, `gapfill`",
         "timeslice": "time-sliced, no heddle", "timeslice+heddle": "time-sliced, `gapfill`"}


def blast_table():
    conditions = {}
    for _, document in load("blast_radius"):
        conditions |= document["conditions"]
    rows = []
    for name, found in conditions.items():
        s = found["summary"]
        seconds = {key: "–" if s[key] is None else f"{s[key]:.2f} s"
                   for key in ("after_s", "works_again_s")}
        rows.append([
            BLAST[name], ", ".join(s["fault"]) or "–",
            ", ".join(f"{fate} ({count} of {s['trials']})" for fate, count in s["fates"].items()),
            ", ".join(s["error"]) or "–", seconds["after_s"], ", ".join(s["after_reset"]) or "–",
            seconds["works_again_s"], three((s["longest_after_us"] or 0) / 1e3 or None),
            {"False": "the same", "True": "a new one"}.get("".join(s["mps_server_replaced"]), "–")])
    header = ["", "best effort gets", "the latency-critical one", "its error", "after",
              "after cudaDeviceReset", "a restarted one works after", "longest iteration then, ms",
              "MPS server"]
    return markdown(header, rows) if rows else NO_RESULT


def predict_table(*names):
    """One file, or two before and after a change."""
    paths = [RESULTS / name for name in names]
    if not all(path.exists() for path in paths):
        return NO_RESULT
    before, now = (json.loads(path.read_text()) for path in (paths[0], paths[-1]))

    def both(kind, key, show, few="known"):
        def cell(task):
            found = task[kind]
            return "–" if found[key] is None or not found[few] else show(found[key])
        return lambda old, new: arrow(cell(old), cell(new))

    def arrow(old, new):
        return new if old == new else f"{old} → {new}"

    def whole(value):
        return f"{value:.0%}"

    def overrun(task):
        return f"{task['prompt_overrun']} of {task['prompt_ends']}" if task["prompt_ends"] else "–"

    def believed(task):
        """Beside what the profiler says of the same program, where pairs.py asked it."""
        found = profiled.get(task["name"])
        return f"{task['idle']:.0%}" + (f" ({found:.0%})" if found else "")

    profiled = {f"{pair['hp']['model']}-bs{pair['hp']['batch']}": pair["idle_fraction"]["untraced"]
                for pair in newest_pairs().values() if pair["idle_fraction"]}
    columns = {
        "durations, median error": both("durations", "error_p50_relative", whole),
        "ends of queues, median error": both("queue_ends", "error_p50_relative", whole),
        "thought busy when over": lambda old, new: arrow(overrun(old), overrun(new)),
        "believed idle (profiler)": lambda old, new: arrow(f"{old['idle']:.0%}", believed(new)),
        "synchronized gaps: of their time promised": both("gaps_synchronized", "useful", whole,
                                                          "count"),
        "promised too long": both("gaps_synchronized", "missed", whole),
        "by µs, p50": both("gaps_synchronized", "overshoot_p50_us", three),
        "p90": both("gaps_synchronized", "overshoot_p90_us", three),
        "launching gaps: of their time promised": both("gaps_launching", "useful", whole),
        "promised too long ": both("gaps_launching", "missed", whole),
    }
    rows = [[new["name"], *(cell(old, new) for cell in columns.values())]
            for old, new in zip([*before["tasks"], before["all"]], [*now["tasks"], now["all"]])]
    corner = "before → now" if len(names) > 1 else ""
    return markdown([corner, *(name.strip() for name in columns)], rows)


def tables():
    heard = [RESULTS / name for name in ("itself_why", "itself", "itself_heard")]
    names = "gapfill-1.4 gapfill-1.5 itself services first ratio preempt steady frontier".split()
    made = {"six-pairs": RESULTS / "six_pairs/brief.md", "fikit-pairs": RESULTS / "pairs/brief.md",
            "pairs-splits": RESULTS / "pairs_splits/brief.md",
            "pairs-again": RESULTS / "pairs_again/brief.md",
            "steady-even": RESULTS / "steady_even/brief.md",
            **{name: RESULTS / name / "brief.md" for name in names}}
    made |= {f"simulated-{path.parent.name}": path for path in RESULTS.glob("simulated/*/brief.md")}
    return {**{name: path.read_text().strip() for name, path in made.items() if path.exists()},
            "pairs": pairs_table(), "pairs-verdict": verdict_table(),
            "launch-priority-verdict": verdict_table("launch_priority"), "method": method(),
            "shipped-verdict": verdict_table("shipped"), "full-verdict": verdict_table("full"),
            "launch-priority": pairs_table("launch_priority"), "matrix": matrix_table(),
            "samples": samples_text(), "overhead": overhead_table(), "preload": preload_table(),
            "blast-radius": blast_table(), "micro": micro_table(), "nccl": nccl_table(),
            "rows": rows_table(), "heard": headed(quartiles.rows(heard, quartiles.ROWS)),
            "open": headed(quartiles.rows([RESULTS / "itself_open"])), "stage": stage_table(),
            "slowdown": headed(quartiles.rows([RESULTS / "itself_slowdown"])),
            "ten-pairs": headed(quartiles.rows(
                [RESULTS / "pairs"], ["timeslice", "mps", *TEN_PAIRS])),
            "pairs-quartiles": headed(quartiles.rows(
                [RESULTS / "gapfill-1.7", RESULTS / "pairs"], TEN_PAIRS)),
            "pairs-again-quartiles": headed(quartiles.rows([RESULTS / "pairs_again"])),
            "frontier-goal": headed(frontier.rows(RESULTS / "frontier")),
            "steady-spread": headed(quartiles.steady(RESULTS / "steady")),
            "frontier-quartiles": headed(frontier.rows(RESULTS / "frontier", quartiles.of_rows)),
            "simulated-frontier-goal": headed(frontier.rows(RESULTS / "simulated/frontier")),
            "between-tokens": headed(fikit.between_tokens("services")),
            "speed-ups": headed(fikit.speed_ups("pairs")),
            "bounds": headed(fikit.bounds(
                "pairs", "pairs_splits", "preempt", "steady", "services", "first", "ratio",
                "steady_even", "contexts", "pairs_again")),
            **{f"{of}-predicted": headed(fikit.predicted(of)) for of in fikit.PREDICTED},
            "validation": validation_table("six_pairs"),
            "fikit-validation": validation_table("pairs"),
            "predict": predict_table("predict-before.json", "predict.json"),
            "predict-others": predict_table("predict-others.json"), **steer_tables()}


def replaced(text, found):
    def fill(match):
        return f"{match[1]}\n{found.get(match[2], NO_RESULT)}\n{match[3]}"

    return re.sub(r"(<!-- table:([\w.-]+):begin -->).*?(<!-- table:\2:end -->)", fill, text,
                  flags=re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", nargs="+", type=Path, default=[])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if it would")
    options = parser.parse_args()
    found = tables()
    if not options.write:
        print("\n\n".join(f"## {name}\n\n{table}" for name, table in found.items()))
        return 0
    stale = False
    for path in options.write:
        old = path.read_text()
        new = replaced(old, found)
        stale |= new != old
        if not options.check:
            path.write_text(new)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
