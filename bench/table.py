#!/usr/bin/env python3
"""Markdown tables from bench/results/*.json, so that no figure in a README is typed by hand.

    table.py                          all tables
    table.py --write README.md ...    replaces what stands between <!-- table:NAME:begin --> and
                                      <!-- table:NAME:end -->; --check only says whether it would

Each table is made from the files of results/ that begin with its name, or from the folder of that
name. `pairs-again` is of pairs_again/, `bounds` of that and first/, `preload` of overhead*.json,
`between-tokens` of services/.
"""

import argparse
import re
import sys
from pathlib import Path

import evaluate
import fikit
import frontier
import graphs
import jobs
import krisp
import layer
import limits
import mixes
import paper_tables
import promise_table
import quartiles
from md import NO_RESULT, RESULTS, headed, interval, load, markdown, read, results_in, three

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
MICRO_FILES = {"micro.json": "simulated driver, 2 cores",
               "micro-h200-simulated.json": "simulated driver, host of an H200",
               "micro-h200.json": "an H200's driver",
               "micro-h200-busy.json": "the same, a busy host of 32"}


def micro_table():
    found = {of: read(RESULTS / name)
             for name, of in MICRO_FILES.items() if (RESULTS / name).exists()}
    figures = sorted({key for of in found.values() for key in of if key.endswith(
        ("_ns", "_us_p50", "_us_p99", "_over_1", "_per_s"))})
    rows = [[f"`{key}`", MICRO_BARS.get(key, "–"),
             *(f"{of[key]:.0f}" if of.get(key, 0) > 1e4 else three(of.get(key))
               for of in found.values())] for key in figures]
    return markdown(["", "bar", *found], rows) if rows else NO_RESULT


def stage_table():
    rows = []
    for document in (read(RESULTS / name)
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


def by_verdict(programs):
    """{name: verdict} as a line for each verdict."""
    of = {}
    for name, verdict in sorted(programs.items()):
        of.setdefault(verdict, []).append(name)
    return "\n".join(f"- {verdict} ({len(names)}): {'; '.join(names)}"
                     for verdict, names in of.items()) or NO_RESULT


def matrix_text():
    """Each program from the newest file that ran it."""
    programs = {}
    for _, document in load("matrix"):
        programs |= {found["about"]: found["verdict"]["result"]
                     for found in document["programs"].values()
                     if found["verdict"]["result"] != "not run"}
    return by_verdict(programs)


def nccl_text():
    """Programs on two GPUs under each policy; what was compared later wins."""
    programs = {}
    for _, document in load("nccl"):
        sharing = ", MPS" if document["sharing"] == "mps" else ""
        for found in document["programs"].values():
            verdict, key = found["verdict"], f"{found['about']} (`{document['policy']}`{sharing})"
            if verdict["result"] != "not compared" or key not in programs:
                programs[key] = verdict["result"]
    return by_verdict(programs)


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


def predict_table(name):
    """What `heddle trace predict` said of recordings, all of them in the last row."""
    document = read(RESULTS / name)

    def share(of, key, few):
        return "–" if of[key] is None or not of[few] else f"{of[key]:.0%}"

    rows = [[task["name"],
             *(share(task[kind], "error_p50_relative", "known")
               for kind in ("durations", "queue_ends")), f"{task['idle']:.0%}",
             *(share(task[kind], key, few)
               for kind, few in (("gaps_synchronized", "count"), ("gaps_launching", "known"))
               for key in ("useful", "missed"))]
            for task in [*document["tasks"], document["all"]]]
    header = ["recording", "durations, median error", "ends of queues, median error", "idle",
              "synchronized gaps: promised of their time", "promised too long",
              "launching gaps: promised of their time", "promised too long"]
    return markdown(header, rows)


def tables():
    return {"matrix": matrix_text(), "samples": samples_text(), "overhead": overhead_table(),
            "preload": preload_table(), "blast-radius": blast_table(), "micro": micro_table(),
            "nccl": nccl_text(), "stage": stage_table(),
            "pairs-again": headed(quartiles.rows(RESULTS / "pairs_again")),
            "frontier": headed(frontier.rows(RESULTS / "frontier")),
            "steady": headed(quartiles.steady(RESULTS / "steady")),
            "between-tokens": headed(fikit.between_tokens("services")),
            "bounds": headed(fikit.bounds("pairs_again", "first")),
            **{of: headed(fikit.measured(of)) for of in ("first", "preempt", "ratio", "services")},
            "predict": predict_table("predict.json"),
            "memory-counts": headed(limits.counts()), "memory-cost": headed(limits.cost()),
            "memory-teams": headed(limits.teams()),
            "papers": headed(paper_tables.table(RESULTS / "papers.json")),
            "sizes": headed(krisp.sizes_table(RESULTS / "sizes.json")),
            "krisp": headed(krisp.table(RESULTS / "krisp")),
            "mixes": headed(mixes.table(results_in(RESULTS / "mixes"))),
            "promise": promise_text(), "graphs-beside": graphs_table(),
            "graphs-apart": headed(graphs.apart()), "graphs-priority": headed(graphs.priority()),
            "fences": fences_table(), "layer": layer.tables(),
            **evaluate.tables(), **jobs.tables()}


GRAPHS = "h100-graphs.json"  # of bench/results/promise: all jobs are CUDA graphs


def promise_text():
    """Every other result of promise.py, one card model each."""
    return "\n\n".join(promise_table.text(read(path))
                       for path in sorted((RESULTS / "promise").glob("*.json"))
                       if path.name != GRAPHS and not path.name.startswith("fence-")) or NO_RESULT


def fences_table():
    paths = sorted((RESULTS / "promise").glob("fence-*.json"))
    return headed(promise_table.fences([read(path) for path in paths]))


def graphs_table():
    path = RESULTS / "promise" / GRAPHS
    return headed(promise_table.beside(read(path)) if path.exists() else None)


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
        if options.check and new != old:
            print(f"{path}: its tables are not those of the results: table.py --write {path}")
            stale = True
        elif not options.check:
            path.write_text(new)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
