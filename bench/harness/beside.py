"""Figures of two programs beside each other, of the blocks in which they were measured.

A block has its `repetition`, `what` was measured (alone, again, beside), the `way` of sharing, the
`roles` that worked, and of each role the answer of workloads/switched.py.
"""

import statistics

WAYS = ("bare", "priority", "ask", "gates")


def p99(taken):
    return sorted(taken)[min(len(taken) - 1, int(0.99 * len(taken)))]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(of) for key, of in value.items()}
    if isinstance(value, list):
        return [rounded(of) for of in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def moved(before, after):
    """Counters that did."""
    return {key: value - before.get(key, 0) for key, value in after.items()
            if value != before.get(key, 0)}


class Cell:
    """The blocks of one pair."""

    def __init__(self, blocks):
        self.blocks = blocks

    def of(self, what, way, role):
        return {b["repetition"]: b[role] for b in self.blocks
                if (b["what"], b["way"]) == (what, way) and role in b["roles"]
                and (role == "L" or b[role]["us"])}

    def own(self, way, role):
        """Of the same process alone, or where that was not measured, of the bare one."""
        way = "bare" if way == "priority" else way
        return self.of("alone", way, role) or self.of("alone", "bare", role)

    def requests(self, what, way):
        """÷ alone: of all requests together, and the least and the most of the repetitions."""
        h, alone = self.of(what, way, "H"), self.own(way, "H")
        both = sorted(h.keys() & alone.keys())
        if not both:
            return {}
        taken, base = ([x for r in both for x in of[r]["us"]] for of in (h, alone))
        row = {"requests": len(taken), "unserved": sum(h[r]["unserved"] for r in both),
               "alone_ms": statistics.mean(base) / 1e3}
        for name, figure in (("mean", statistics.mean), ("p99", p99)):
            ratios = [figure(h[r]["us"]) / figure(alone[r]["us"]) for r in both]
            row[name] = [figure(taken) / figure(base), min(ratios), max(ratios)]
        return row

    def throughput(self, what, way, base):
        """Iterations of L a second ÷ those of `base`, by repetition."""
        l = self.of(what, way, "L")
        return [l[r]["per_s"] / base[r]["per_s"] for r in sorted(l.keys() & base.keys())
                if base[r]["per_s"]]

    def side(self, what, way):
        row = self.requests(what, way)
        if ratios := self.throughput(what, way, self.of("alone", "bare", "L")):
            row["l"] = [statistics.mean(ratios), min(ratios), max(ratios)]
        if ratios := self.throughput(what, way, self.own(way, "L")):
            row["l_own"] = statistics.mean(ratios)
        managed = [b for b in self.blocks
                   if (b["what"], b["way"]) == (what, way) and "heddled" in b]
        if managed:
            row["heddled"] = max(b["heddled"] for b in managed)
            row["left"] = any(b["left"] for b in managed)
            # Of L, a second. What was told before the block began counts too.
            row["counters"] = {
                key: statistics.mean(b["counters"].get(key, 0) / b["seconds"] for b in managed)
                for key in sorted({key for b in managed for key in b["counters"]})}
        return row

    def figures(self):
        sides = {"alone again": self.requests("again", "bare"),
                 **{way: self.side("beside", way) for way in WAYS}}
        bare = self.of("alone", "bare", "L")
        cost = {way: statistics.mean(ratios) for way in ("ask", "gates")
                if (ratios := self.throughput("alone", way, bare))}
        return rounded({"repetitions": len({b["repetition"] for b in self.blocks}),
                        "l_alone": cost, "sides": {way: row for way, row in sides.items() if row}})


def told(name, found):
    """A line of figures for each side; the least and the most where there are several."""
    alone = " ".join(f"{way} {value:.3f}" for way, value in found["l_alone"].items())
    text = [f"{name}: H {found['h']}, L {found['l']}, load {found['load']}, "
            f"n {found['repetitions']}; L alone ÷ bare: {alone}"]
    for side, row in found["sides"].items():
        cells = [f"{key} {row[key][0]:.3f}" +
                 (f" ({row[key][1]:.2f}..{row[key][2]:.2f})" if row[key][1] < row[key][2] else "")
                 for key in ("mean", "p99", "l") if key in row]
        cells += [f"{key} {row[key]:.3g}"
                  for key in ("l_own", "requests", "unserved", "heddled", "left") if row.get(key)]
        counted = [f"{key} {value:.0f}/s" for key, value in row.get("counters", {}).items()]
        text.append(f" {side:11s} {' '.join(cells)} {' '.join(counted)[:100]}".rstrip())
    return "\n".join(text)
