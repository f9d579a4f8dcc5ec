"""Tables of what pairs.py measured, which `heddle-bench run` has taken the place of."""

from md import NO_RESULT, load, markdown, three

WORDS = {
    "alone_hp": "latency-critical alone",
    "alone_be": "best effort alone",
    "default": "shared, nothing else",
    "client_priority": "client priority",
    "launch_priority": "launch priority only",
    "heddle_alone_hp": "latency-critical alone, under heddle",
    "heddle_alone_be": "best effort alone, under heddle",
}
STATES = {"timeslice": "time-sliced", "mps": "MPS"}
BE_SHARE_OF_IDLE = 0.4  # what best effort must get of hp's idle time, as a share of its own rate
REPETITIONS_MIN = 5  # below that an interval says nothing


def condition_name(name):
    state, row = name.split("/")
    words = [WORDS.get(part, f"`{part}`") for part in row.split("+")]
    return f"{STATES[state]}: " + " + ".join(words)


def newest_pairs(stem="pairs"):
    """Each pair from the newest file that has repetitions of it."""
    return {name: pair for _, document in load(stem)
            for name, pair in document["pairs"].items() if pair["repetitions"]}


def title(pair):
    sides = [f"{pair[side]['model']} bs{pair[side]['batch']}" for side in ("hp", "be")]
    idle = pair["idle_fraction"]
    share = (f", alone leaving the GPU idle {idle['untraced']:.0%} of its time, "
             f"{idle['traced']:.0%} under the profiler") if idle else ""
    return (f"**{sides[0]}** (latency-critical{share}) beside **{sides[1]}** (best effort), "
            f"{pair['repetitions']} repetitions:")


def pairs_table(stem="pairs"):
    parts = []
    for pair in newest_pairs(stem).values():
        rows = []
        for condition, f in pair["conditions"].items():
            hp = f.get("hp_ms") or {}
            over = {key: (f.get(key) or {}).get("median")
                    for key in ("hp_mean_over_alone", "hp_p99_over_alone", "be_over_alone")}
            rows.append([condition_name(condition), three(hp.get("mean")), three(hp.get("p99")),
                         three(over["hp_mean_over_alone"]), three(over["hp_p99_over_alone"]),
                         three(f.get("be_per_s")), three(over["be_over_alone"])])
        parts.append(title(pair) + "\n\n" + markdown(
            ["", "mean ms", "p99 ms", "mean ÷ alone", "p99 ÷ alone", "best effort / s",
             "÷ alone"], rows))
    return "\n\n".join(parts) or NO_RESULT


def verdict_of(pair, name):
    """Is the latency-critical side better off than with what is free, at a fair share of what it
    leaves idle for the other? `..._traced` takes the profiler's wall time, which asks for more."""
    found = {r["metric"]: r for r in pair["ratios"] if r["of"] == name}
    share = pair["conditions"][name]["be_over_alone"]
    idle = pair["idle_fraction"]
    answer = {f"{metric}_below_1": found[metric]["hi"] < 1 if metric in found else None
              for metric in ("hp_mean", "hp_p99")}
    if share and idle:
        answer["be_share_wanted"] = round(BE_SHARE_OF_IDLE * idle["untraced"], 4)
        answer["be_share_wanted_traced"] = round(BE_SHARE_OF_IDLE * idle["traced"], 4)
        answer["be_share"] = share["median"]
        answer["be_enough"] = share["median"] >= answer["be_share_wanted"]
    else:
        answer["be_enough"] = None
    checks = (answer["hp_mean_below_1"], answer["hp_p99_below_1"], answer["be_enough"])
    few = any(r["n"] < REPETITIONS_MIN for r in found.values())
    answer["passes"] = None if few or None in checks else all(checks)
    return answer


def verdict_table(stem="pairs"):
    rows = []
    for name, pair in newest_pairs(stem).items():
        for condition in pair["verdict"]:
            found = {r["metric"]: r for r in pair["ratios"] if r["of"] == condition}
            if not found:
                continue
            verdict = verdict_of(pair, condition)  # older files knew another bar
            interval = {metric: f"{r['median']:.3f} [{r['lo']:.3f}, {r['hi']:.3f}]"
                        for metric, r in found.items()}
            share = (f"{verdict['be_share']:.3f} of {verdict['be_share_wanted']:.3f} "
                     f"({verdict['be_share_wanted_traced']:.3f})" if "be_share" in verdict else "–")
            outcome = {True: "yes", False: "no", None: "–"}[verdict["passes"]]
            rows.append([f"{name}, {condition_name(condition)}", interval.get("hp_mean", "–"),
                         interval.get("hp_p99", "–"), share, outcome])
    header = ["against MPS + client priority", "mean, ratio", "p99, ratio",
              "best effort: got of wanted (by the traced idle)", "better on all"]
    return markdown(header, rows) if rows else NO_RESULT


def word(equal):
    return {True: "bit-equal", False: "DIFFERENT", None: "not compared"}[equal]


def method():
    lines = []
    for file, document in load("pairs") + load("shipped") + load("full") + load("launch_priority"):
        equal = [f"{name}: bare against bare {word(pair['outputs']['control_equal'])}, "
                 f"heddle against bare {word(pair['outputs']['heddle_equal'])}"
                 for name, pair in document["pairs"].items()]
        lines.append(f"- `bench/results/{file}`: {document['gpu']}, driver {document['driver']}, "
                     f"{document['date'][:10]}, commit {document['commit']}, "
                     f"seed {document['seed']}, blocks of {document['block_s']:g} s, "
                     f"alternating {document['alternation']}; `{document['command']}`. "
                     f"Output tensors: {'; '.join(equal)}.")
    return "\n".join(lines) or NO_RESULT
