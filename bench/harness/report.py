"""From raw blocks to figures, ratios, verdicts and files. The JSON's words are DESIGN's: hp_ is the
latency-critical side, be_ the best-effort one; alone is the same repetition's bare block."""

import json
import os
import platform
import shutil
import statistics

from .processes import placement
from .session import origin
from .figures import growth, latency_ms, median_with_interval  # noqa: F401 (growth: for pairs.py)

BE_SHARE_OF_IDLE = 0.4  # what best effort must get of hp's idle time, as a share of its own rate
REPETITIONS_MIN = 5  # below that an interval says nothing
TIMELINE_US = 200_000


def skeleton(options, rows, pairs):
    return origin(options, "pairs") | {
        "host": {"cpus": os.cpu_count(), "kernel": platform.release(),
                 "python": platform.python_version()},
        "seed": options.seed,
        "block_s": options.block_s,
        "alternation": "mps and timeslice apart" if options.apart else "all conditions",
        "pinned_cpus": placement(),
        "conditions": [row.about() for row in rows],
        "jobs": {},
        "daemon": {},
        "errors": [],
        "pairs": {
            name: {"hp": {"model": pairs[name][0][0], "batch": pairs[name][0][1]},
                   "be": {"model": pairs[name][1][0], "batch": pairs[name][1][1]},
                   "digests": [], "raw": []}
            for name in options.pairs
        },
    }


def rate(block):
    return len(block["be_us"]) / block["be_span_s"] if block.get("be_span_s") else None


def line(block):
    parts = [f"{block['condition']:32s}"]
    if block.get("hp_us"):
        hp = latency_ms(block["hp_us"])
        parts.append(f"hp {hp['mean']:8.3f} p99 {hp['p99']:8.3f} ms")
    if rate(block):
        parts.append(f"be {rate(block):7.2f}/s")
    return "  ".join(parts)


def outputs(digests):
    """Whether outputs of bare runs agree with each other, and heddle's with them."""
    answer = {}
    for name, wanted in (("control_equal", False), ("heddle_equal", True)):
        equal = []
        for side in ("hp", "be"):
            bare = [d["sha256"] for d in digests if d["side"] == side and not d["policy"]]
            mine = [d["sha256"] for d in digests
                    if d["side"] == side and bool(d["policy"]) == wanted]
            if bare and len(mine) > (0 if wanted else 1):
                equal.append(all(m == bare[0] for m in mine))
        answer[name] = all(equal) if equal else None
    return answer


def summarize(result, rows):
    for pair in result["pairs"].values():
        blocks = {}
        for block in pair["raw"]:
            blocks.setdefault(block["condition"], {})[block["rep"]] = block
        pair["repetitions"] = min((len(b) for b in blocks.values()), default=0)
        pair["outputs"] = outputs(pair["digests"])
        pair["idle_fraction"] = idle_fraction(pair, blocks)
        pair["conditions"] = {row.name: figures(row, blocks) for row in rows if row.name in blocks}
        pair["ratios"] = [
            ratio for row in rows if row.policy and row.hp and row.be and row.name in blocks
            for ratio in ratios(row, blocks)]
        pair["verdict"] = {
            row.name: verdict(pair, row.name) for row in rows
            if row.mps and row.policy and row.hp and row.be and row.name in blocks}


def idle_fraction(pair, blocks):
    """`traced`: 1 - kernel time / wall time in the profiler's own run, the definition. `untraced`
    sets the same kernel time per iteration against the bare mean, without the tracer's slowdown."""
    profile = pair.get("profile")
    if not profile or not profile["iterations"]:
        return None
    kernel_ms = profile["kernel_s"] / profile["iterations"] * 1e3
    alone = [us for name in ("timeslice/alone_hp", "mps/alone_hp")
             for block in blocks.get(name, {}).values() for us in block["hp_us"]]
    untraced = 1 - kernel_ms / (statistics.fmean(alone) / 1e3) if alone else None
    return {"traced": round(1 - profile["kernel_s"] / profile["wall_s"], 4),
            "untraced": round(untraced, 4) if untraced is not None else None,
            "kernel_ms_per_iteration": round(kernel_ms, 4)}


def paired(blocks, over, name, value):
    """value(name's block) / value(over's block) for each repetition that has both."""
    both = sorted(set(blocks.get(name, {})) & set(blocks.get(over, {})))
    values = [(value(blocks[name][rep]), value(blocks[over][rep])) for rep in both]
    return [round(a / b, 4) for a, b in values if a and b]


VALUES = {
    "hp_mean": lambda block: latency_ms(block.get("hp_us"))["mean"] if block.get("hp_us") else None,
    "hp_p99": lambda block: latency_ms(block.get("hp_us"))["p99"] if block.get("hp_us") else None,
    "be_per_s": rate,
}


def figures(row, blocks):
    mine = list(blocks[row.name].values())
    answer = {}
    if row.hp:
        answer["hp_ms"] = latency_ms([us for block in mine for us in block["hp_us"]])
        for key in ("hp_mean", "hp_p99"):
            answer[f"{key}_over_alone"] = median_with_interval(
                paired(blocks, row.alone[0], row.name, VALUES[key]))
    if row.be:
        rates = [rate(block) for block in mine if rate(block)]
        answer["be_ms"] = latency_ms([us for block in mine for us in block["be_us"]])
        answer["be_per_s"] = round(statistics.median(rates), 3) if rates else 0.0
        answer["be_over_alone"] = median_with_interval(
            paired(blocks, row.alone[1], row.name, VALUES["be_per_s"]))
    counters = {}
    for block in mine:
        for key, value in block.get("counters", {}).items():
            counters[key] = round(counters.get(key, 0) + value, 3)
    if counters:
        answer["counters"] = counters
    return answer


def ratios(row, blocks):
    """Against what is free: under MPS the client priority, otherwise plain time-slicing."""
    over = "mps/client_priority" if row.mps else "timeslice/default"
    for metric, value in VALUES.items():
        each = paired(blocks, over, row.name, value)
        if each:
            yield {"of": row.name, "over": over, "metric": metric, "each": each,
                   **median_with_interval(each)}


def verdict(pair, name):
    """Is the latency-critical side better off than with what is free, at a fair share for the
    other? Idle is what the program alone leaves idle: the profiler's kernel time over its untraced
    wall time, for the profiler slows launch-bound programs. `be_share_wanted_traced` takes the
    profiler's own wall time, which asks for more."""
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


def save_timeline(out, pair, condition, traces):
    """Kernels of both sides in a window in the middle of what both recorded; µs from its start."""
    spans = [trace["spans_us"] for trace in traces.values()]
    if not spans or not all(spans):
        return
    middle = (max(s[0][0] for s in spans) + min(s[-1][0] for s in spans)) / 2
    begin = middle - TIMELINE_US / 2
    document = {"pair": pair, "condition": condition, "window_us": TIMELINE_US}
    for side, trace in traces.items():
        document[side] = {
            "names": trace["names"],
            "spans_us": [[round(at - begin, 1), duration, name]
                         for at, duration, name in trace["spans_us"]
                         if begin <= at < begin + TIMELINE_US]}
    path = out.with_name(f"{out.stem}.timeline.{pair}.json")
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")


def keep_logs(source, target):
    target.mkdir(parents=True, exist_ok=True)
    with open(target / f"{source.name}.log", "wb") as joined:
        for log in sorted(source.rglob("*.log")):
            joined.write(f"==> {log.relative_to(source)}\n".encode())
            with open(log, "rb") as file:
                shutil.copyfileobj(file, joined)


def render(value, depth=0):
    """JSON that a person can read and a diff can show: long objects on several lines, samples of a
    block on one."""
    flat = json.dumps(value, separators=(",", ":"))
    plain = not isinstance(value, (dict, list)) or depth > 5 or (
        isinstance(value, list) and all(not isinstance(v, (dict, list)) for v in value))
    if plain or len(flat) < 100 or "hp_us" in value or "be_us" in value:
        return flat
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(k)}: {render(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + pad[1:] + "}"
    return "[\n" + ",\n".join(pad + render(v, depth + 1) for v in value) + "\n" + pad[1:] + "]"


def write(result, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(render(result) + "\n")
    partial.replace(path)


def text(result):
    """The outcome in a terminal."""
    lines = []
    for name, pair in result["pairs"].items():
        lines.append(f"\n{name}: {pair['repetitions']} repetitions, "
                     f"idle {pair.get('idle_fraction')}, outputs {pair.get('outputs')}")
        lines.append(f"  {'condition':32s} {'hp mean':>8s} {'p50':>8s} {'p99':>8s} {'be/s':>8s} "
                     f"{'hp/alone':>8s} {'p99/al.':>8s} {'be/alone':>8s}")
        for condition, f in pair.get("conditions", {}).items():
            hp, dash = f.get("hp_ms") or {}, float("nan")
            over = [(f.get(key) or {}).get("median", dash)
                    for key in ("hp_mean_over_alone", "hp_p99_over_alone", "be_over_alone")]
            row = [*(hp.get(key, dash) for key in ("mean", "p50", "p99")),
                   f.get("be_per_s", dash), *over]
            lines.append(f"  {condition:32s} " + " ".join(f"{v:8.3f}" for v in row))
        for r in pair.get("ratios", []):
            lines.append(f"  {r['of']} / {r['over']} {r['metric']}: "
                         f"{r['median']} [{r['lo']}, {r['hi']}]")
        for condition, v in pair.get("verdict", {}).items():
            lines.append(f"  {condition}: {json.dumps(v)}")
    return "\n".join(lines)
