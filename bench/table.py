#!/usr/bin/env python3
"""Markdown tables from bench/results/*.json, so that no figure in a README is typed by hand.

    table.py                          all tables
    table.py --write README.md ...    replaces what stands between <!-- table:NAME:begin --> and
                                      <!-- table:NAME:end -->; --check only says whether it would
    table.py --keep RESULT.json ...   rewrites them small; the tables stay as they are
    ... --raw NAME                    they become results/raw/NAME/*.raw, whose table is what
                                      `heddle-bench table` makes of all of them, in fewer words
    ... --together NAME               a row for each result, of jobs of one importance, becomes
                                      results/tables/NAME.json

Each table is made from the files of results/ that begin with its name. --write adds to a table of
raws which folders of the launch path have changed since; --check does not look at that line.
"""

import argparse
import functools
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from computed import tables as computed_tables
from harness import gpu_tests, keep, report
from harness.md import NO_RESULT, RESULTS, computed, headed, load, markdown, read, three


NOT_MEASURED = "Not measured."
CAMPAIGN = "campaign"  # of raws: the front page shows it
OF_RAWS = ("front", "twin")
FRONT_WAYS = ("timeslice", "mps+priority", "mps:25", "auto", "auto@mps")
FRONT_WITHOUT = ("resnet152", "resnet50_bursts", "resnet50_light", "whisper_heavy", "whisper_light")
SHORTER = ((r"requests of \w+ a block were not begun in time, and count in no time", "late"),
           (r" alone leaves the GPU idle (.*? %) of its time", r" alone: GPU idle \1"),
           (r" in 1 sessions", ""))
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


# ---- memory ----

WAYS = {"driver": "`cuMemAlloc`", "vmm": "`cuMemCreate`", "torch": "PyTorch",
        "torch_expandable": "PyTorch, expandable segments", "graph": "PyTorch, graphs' pools",
        "cupy": "CuPy", "jax": "JAX"}


def memory_counts():
    """Of the GPU's count: after steps of 256, 656, 0 and 150 MiB, and where the limit refused."""
    found = read(RESULTS / "memory.json")
    sharing = {name: of["rows"] for name, of in found["sharing"].items()}
    rows = [["taken by", *(f"{name}: {what}" for name in sharing for what in (
        "most apart, MiB", "at the limit, MiB: heddle / NVML"))]]
    for way, name in WAYS.items():
        cells = [name]
        for of in sharing.values():
            row = of.get(way, {"error": "not run"})
            if "error" in row:
                cells += ["–", "–"]
                continue
            apart = max(abs(s["heddle"] - s["nvml"]) for s in row["steps"])
            cells += [f"{apart:.0f}",
                      f"{row['filled']['heddle']:.0f} / {row['filled']['nvml']:.0f}"]
        rows.append(cells)
    return rows


def memory_cost():
    rows = [["median ns, least of rounds", "take 1 MiB", "free it"]]
    for name, of in read(RESULTS / "memory.json")["sharing"].items():
        for how, label in (("bare", "bare"), ("heddle", "under heddle"),
                           ("limit", "under a limit")):
            ns = of["cost"][how]
            rows.append([f"{name}, {label}", *(f"{min(ns[key]):.0f}"
                                               for key in ("hold_ns", "free_ns"))])
    return rows


def turns(team):
    """How many, those refused, and the median and 99th percentile of the others."""
    taken = sorted(team["us"])
    times = [statistics.median(taken), taken[len(taken) * 99 // 100]] if taken else []
    return [len(taken) + team["refused"], team["refused"], *times]


def memory_teams():
    labels = {"alone": "alone", "limited": "the other has used up its limit and asks on",
              "unlimited": "no limits: the other has used up the GPU"}
    rows = [["64 MiB taken, set and freed, again and again", "turns", "refused", "p50, µs",
             "p99, µs"]]
    for name, of in read(RESULTS / "memory.json")["sharing"].items():
        for condition, label in labels.items():
            team = of["teams"][condition]["team"]
            found = computed(team, "turns", lambda: turns(team))
            cells = [f"{x:.0f}" for x in found]
            rows.append([f"{name}: {label}", *cells, *["–"] * (4 - len(cells))])
    return rows


# ---- all of them ----

def sizes_table(path):
    """Of tests/gpu/sizes.py: outputs, and what an iteration takes while sizes change."""
    document = read(path)
    rows = [["outputs against bare", "µs bare", "µs leased, sizes that change", "bit-equal",
             "twins", "launches on a set", "as it is", "commit"]]
    for name, row in document["rows"].items():
        leased = row.get("leased", {})
        client = leased.get("client", {})
        rows.append([name, str(row["bare"].get("median_us", "–")),
                     str(leased.get("median_us", "–")),
                     "yes" if leased.get("digests") == row["bare"].get("digests") else "no",
                     *(str(client.get(key, "–"))
                       for key in ("graph_twins", "on_sm_set", "off_sm_set")),
                     document["commit"]])
    return rows


def coverage_table():
    """Of what CUPTI saw launched, what passed the shim, by framework."""
    rows = []
    for _, document in load("coverage"):
        for found in document["programs"].values():
            cells = ["–"] * 3 + [found["outcome"]]
            if found["outcome"] == "ok":
                cells = [str(found["kernels"]), str(found["graphs"]), str(found["passed"]),
                         f"{found['passed'] / found['launched']:.2%}"]
            rows.append([found["about"], found["versions"] or "–", *cells])
    header = ["", "versions", "kernels launched, by CUPTI", "graphs", "passed the shim", "coverage"]
    return markdown(header, rows) if rows else NOT_MEASURED


def park_table():
    """Of `heddle park` and `unpark`: a figure a round."""
    rows = [[f"{row['gib']:.1f}", *(", ".join(f"{s:.2f}" for s in row[key])
                                    for key in ("away_s", "back_s")),
             f"{row['used_mib_parked']} MiB", "equal" if row["equal"] else "wrong"]
            for row in read(RESULTS / "park.json")["rows"]]
    return markdown(["GiB", "parked in, s", "back in, s", "left on the GPU", "values"], rows)


def serving_table():
    """Of examples/serving/run.py."""
    rows = []
    for _, document in load("serving"):
        rows += [[name, *(f"{found[f'{time}_{part}_ms']:.1f}"
                          for time in ("ttft", "tbt") for part in ("p50", "p99")),
                  str(found.get("job_per_s", "–")), str(found["requests"]), str(found["lost"])]
                 for name, found in document["phases"].items()]
    header = ["", "TTFT p50, ms", "p99", "TBT p50, ms", "p99", "job's steps a second",
              "requests", "lost"]
    return markdown(header, rows) if rows else NOT_MEASURED


def slurm_table():
    """Of tests/integration/slurm_thirty.py: simulated, and its head says so."""
    documents = [read(path) for path in sorted(RESULTS.glob("slurm-*.json"))]
    rows = [[way, str(document["seed"]), *(f"{found[name]:.{digits}f}" for name, digits in (
                ("jct_s", 1), ("antt", 2), ("makespan_s", 0)))]
            for document in documents for way, found in document["ways"].items()]
    header = ["simulated GPUs", "seed", "JCT, s", "JCT ÷ alone", "makespan, s"]
    return markdown(header, rows) if rows else NOT_MEASURED


STALE = "The launch path has changed since: "


def raw_tables(bench):
    """Of each folder of raws. Without heddle-bench there are none, and what is written stays."""
    if not Path(bench).exists():
        return {}
    found = {}
    for folder in sorted((RESULTS / "raw").glob("*/")):
        paths = sorted(folder.glob("*.raw"))
        said = shorter(subprocess.run([bench, "table", *paths], text=True, check=True,
                                      stdout=subprocess.PIPE).stdout.strip())
        found[folder.name] = "\n".join([said, *stale(paths)])
        if folder.name == CAMPAIGN:
            found["front"] = "\n".join([front(said), *stale(paths)])
            found["twin"] = subprocess.run([bench, "validate", "--seed", "1", "--policy-dir",
                                            RESULTS.parents[1] / "policies", *paths],
                                           text=True, check=True, stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL).stdout.strip()
    return found


def shorter(said):
    """What the lines of all pairs say stands before them, once; and other words are fewer."""
    for pattern, words in SHORTER:
        said = re.sub(pattern, words, said)
    notes = [re.split(r"(?<=[,;]) ", note.split(". ")[0])[:-1]
             for note in re.findall(r"^- \*\*\w+\*\*: (.*)$", said, re.M)]
    alike = [part for part in notes[0] if all(part in of for of in notes)] if notes[1:] else []
    for part in alike:
        said = said.replace(f" {part}", "")
    return said.replace("\n- **", f"\n- All: {' '.join(alike)[:-1]}.\n- **", 1 if alike else 0)


def front(said):
    """A row a pair, of what heddle-bench says: of each way H's tail and L, no intervals."""
    lines = [line.strip("|").split("|") for line in said.split("\n\n")[0].splitlines()]
    ways = [way.strip() for way in lines[0]]
    of = {}
    for cells_ in lines[2:]:
        pair, _, figure = cells_[0].strip().partition(": ")
        of.setdefault(pair, {})[figure] = {way: cell.split("[")[0].strip()
                                           for way, cell in zip(ways, cells_)}

    def cell(found, way):
        tail = found["H p99"][way]
        if tail == "few" and "H TBT p99" in found:  # few answers have many tokens
            tail = found["H TBT p99"][way]
        rates = [cells[way] for figure, cells in found.items()
                 if re.fullmatch(r"L\d? rate", figure)]
        return f"{tail} · {' + '.join(rates)}"
    return markdown(["H's p99 · L's rate, ÷ alone", *FRONT_WAYS],
                    [[pair, *(cell(found, way) for way in FRONT_WAYS)]
                     for pair, found in of.items() if pair not in FRONT_WITHOUT])


def stale(paths):
    """A line with the folders of the launch path that are others than when these were measured."""
    changed = {}
    for path in paths:
        for session in read(path)["sessions"]:
            for name, tree in session.get("trees", {}).items():
                if tree_of(name) not in (tree, None) and differs(tree, name):
                    changed[f"`{name}`"] = None
    return [f"\n{STALE}{', '.join(changed)}."] if changed else []


@functools.cache
def tree_of(folder):
    """Git's hash of it today; None without git."""
    try:
        done = subprocess.run(["git", "rev-parse", f"HEAD:{folder}"], text=True,
                              cwd=RESULTS.parents[1], capture_output=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def kept(path):
    """The report of scenarios as they were measured then, by `heddle-bench table`."""
    return "\n\n".join(part if isinstance(part, str) else headed(part)
                       for part in read(path)["parts"])


def tables():
    return {"matrix": matrix_text(), "samples": samples_text(), "blast-radius": blast_table(),
            "micro": micro_table(), "nccl": nccl_text(), "predict": predict_table("predict.json"),
            "memory-counts": headed(memory_counts()), "memory-cost": headed(memory_cost()),
            "memory-teams": headed(memory_teams()),
            "coverage": coverage_table(), "park": park_table(),
            "serving": serving_table(), "slurm": slurm_table(),
            "sizes": headed(sizes_table(RESULTS / "sizes.json")),
            **{path.stem: kept(path) for path in sorted((RESULTS / "tables").glob("*.json"))},
            **computed_tables(), **gpu_tests.tables()}


def replaced(text, found):
    def fill(match):
        name = match[2]
        if name not in found and (name in OF_RAWS or (RESULTS / "raw" / name).is_dir()):
            return match[0]
        return f"{match[1]}\n{found.get(name, NO_RESULT)}\n{match[3]}"

    return re.sub(r"(<!-- table:([\w.-]+):begin -->).*?(<!-- table:\2:end -->)", fill, text,
                  flags=re.DOTALL)


def keep_results(options):
    if options.raw:
        for path in options.results:
            subprocess.run([options.bench, "keep", path,
                            RESULTS / "raw" / options.raw / f"{path.stem}.raw"], check=True)
        return
    if not options.together:
        for path, document in keep.kept(options.results, tables).items():
            report.write(document, path)
        return
    results = {}
    for path in options.results:
        results.setdefault(path.stem, []).append(json.loads(path.read_text()))
    found, name = keep.together(last(results)), f"tables/{options.together}"
    report.write(found, RESULTS / f"{name}.json")


def last(results):
    return {name: of[-1] for name, of in results.items()}


def write(paths, check, bench):
    """1 if `check` and a file's tables are others."""
    found, others = tables() | raw_tables(bench), 0
    for path in paths:
        old = path.read_text()
        new = replaced(old, found)
        if check and without_stale(new) != without_stale(old):
            print(f"{path}: its tables are not those of the results: table.py --write {path}")
            others = 1
        elif not check:
            path.write_text(new)
    return others


def differs(tree, folder):
    """Documents, tests of policies and lib/api.lua are not on the launch path. A tree that is not
    here differs."""
    command = ["git", "diff", "--quiet", tree, f"HEAD:{folder}", "--", ":!*.md", ":!*_test.lua",
               ":!*lib/api.lua"]
    done = subprocess.run(command, cwd=RESULTS.parents[1], stderr=subprocess.DEVNULL)
    return done.returncode != 0


def without_stale(text):
    return re.sub(f"\n\n{STALE}.*", "", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--write", nargs="+", type=Path, default=[])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if it would")
    parser.add_argument("--keep", action="store_true", help="what the tables read of the results")
    for name in ("raw", "together"):
        parser.add_argument(f"--{name}", metavar="NAME")
    parser.add_argument("--bench", default=RESULTS.parents[1] / "dist/bin/heddle-bench")
    options = parser.parse_args()
    if options.write:
        return write(options.write, options.check, options.bench)
    if options.keep:
        try:
            return keep_results(options)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"table.py: {error}"
    if options.results:
        return "table.py: results are shown by heddle-bench table; --keep rewrites them"
    print("\n\n".join(f"## {name}\n\n{table}" for name, table in
                       (tables() | raw_tables(options.bench)).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
