"""What a result says in two sentences, and how sure that is.

A result is what `heddle-bench run` or `heddle try` wrote: the first latency-critical job is the
service, the first best-effort one the job.
"""

import statistics

# Rows that a daemon takes part in and that are none of heddle's policies.
NO_POLICIES = ("builtin", "exclusive", "oracle")
LITTLE = 1.05     # a slowdown that nobody asks help against
KEPT = 1.10       # a slowdown that is as good as kept
HARDLY = 0.05     # of the job's own rate: it hardly runs
LEFT = 0.75       # of what sharing as it is costs the service: heddle hardly helps


def pair(result):
    """Names of the service and the job; None where there is none."""
    of = {}
    for job in result["jobs"]:
        of.setdefault(job["role"], job["name"])
    return of.get("latency"), of.get("batch")


def points(result):
    """Row -> (the job's rate, the service's mean, its p99), each ÷ alone: {value, lo, hi}."""
    service, job = pair(result)
    found = {}
    for name, row in result["figures"].items():
        rate = row["jobs"].get(job, {}).get("per_s_over_alone")
        of = row["jobs"].get(service, {})
        mean = of.get("mean_over_alone")
        if rate and mean:
            found[name] = rate, mean, of.get("p99_over_alone", mean)
    return found


def policies(result):
    """Names of the rows under one of heddle's policies."""
    return [row["name"] for row in result["rows"]
            if row.get("policy", "builtin") not in NO_POLICIES]


def compared(result):
    """The row of heddle's that helps most, and the row of sharing without it on the same way to the
    GPU: of the policies that keep the service within KEPT the one that gives the job most, else the
    one that slows the service least. Nothing if either is missing."""
    measured, of = points(result), policies(result)
    ours = [name for name in of if name in measured]
    if not ours:
        return None
    kept = [name for name in ours if measured[name][1]["value"] <= KEPT]
    best = (max(kept, key=lambda name: measured[name][0]["value"]) if kept
            else min(ours, key=lambda name: measured[name][1]["value"]))
    mps = {row["name"]: row["mps"] for row in result["rows"]}
    rivals = [row["name"] for row in result["rows"]
              if "policy" not in row and row["name"] in measured and mps[row["name"]] == mps[best]]
    return (best, rivals[0]) if rivals else None


def unlike_itself(result, best):
    """How far blocks of the service alone are from each other, as a share, and how many."""
    service, _ = pair(result)
    mps = {row["name"]: row["mps"] for row in result["rows"]}
    alone = [block["jobs"].get(service, {}) for block in result["raw"]
             if block["row"].startswith(f"alone/{service}") and mps[block["row"]] == mps[best]]
    took = [statistics.mean(of["us"]) if of.get("us") else 1 / of["per_s"]
            for of in alone if of.get("us") or of.get("per_s")]
    return (max(took) / min(took) - 1 if took else 0), len(took)


def judged(service, job, shared, ours, tails, noise, gives):
    """The second sentence; `tails`: p99 ÷ alone without heddle, and with."""
    if shared <= LITTLE:
        return f"heddle is not needed: sharing as it is costs {service} 5 % at most."
    if shared <= 1 + noise:
        return (f"Nothing is certain: {service} alone differs from itself by as much, so measure "
                f"for longer, or on a quieter host.")
    if ours >= shared / (1 + noise):
        return (f"heddle does not help here, most often because work of {job} that already runs "
                f"must finish first: try another policy, shorter kernels, or another GPU.")
    if ours - 1 > LEFT * (shared - 1):
        return (f"heddle hardly helps {service}: try another policy, shorter kernels of {job}, or "
                "another GPU.")
    if tails[1] > tails[0] * (1 + noise):
        return (f"heddle makes the mean shorter and the tail longer: {service}'s p99 ÷ alone is "
                f"{tails[1]:.2f}, without heddle {tails[0]:.2f}, so try another policy.")
    if gives < HARDLY:
        return (f"heddle helps {service}, but {job} hardly runs ({percent(gives)} of its rate "
                f"alone): try another policy, or another GPU for it.")
    return f"heddle helps: {job} keeps {percent(gives)} of its rate alone meanwhile"


def verdict(result):
    """{verdict, sure}: two sentences, and how far to trust them."""
    rows = compared(result)
    if not rows:
        return {"verdict": "No verdict: that takes a row of both programs under a policy, and one "
                           "without heddle on the same way to the GPU.", "sure": ""}
    best, rival = rows
    service, job = pair(result)
    measured = points(result)
    (rate, ours, tail), (rate_shared, shared, tail_shared) = measured[best], measured[rival]
    noise, blocks = unlike_itself(result, best)
    first = (f"Beside {job}, {service} takes {shared['value']:.2f} times as long as alone "
             f"({rival}), and {ours['value']:.2f} times under {best}.")
    second = judged(service, job, shared["value"], ours["value"],
                    (tail_shared["value"], tail["value"]), noise, rate["value"])
    if not second.endswith("."):
        second += f" (without heddle {percent(rate_shared['value'])})."
    sure = (f"{blocks} blocks of {service} alone differ by {percent(noise)}: smaller differences "
            f"mean nothing.")
    if "lo" in shared and "lo" in ours:
        sure += (f" The slowdown is {span(shared)} ({rival}) and {span(ours)} ({best}): "
                 f"{result.get('interval', '95 % intervals')}.")
    if others := result.get("others"):
        sure += f" Other processes had the GPU open meanwhile: {others}."
    if result["mode"] == "simulated":
        sure += " Every figure is simulated."
    return {"verdict": f"{first} {second}", "sure": sure}


def percent(share):
    return f"{100 * share:.0f} %"


def span(figure):
    high = "?" if figure["hi"] is None else f"{figure['hi']:.2f}"
    return f"{figure['lo']:.2f} to {high}"
