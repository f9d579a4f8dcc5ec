#!/usr/bin/env python3
"""A picture of who was on the GPU when, from what `heddle-bench run --timeline ROW` wrote.

    timeline.py resnet101.json.timeline.json --from-ms 40 --ms 12 > resnet101.svg
"""

import argparse
import bisect
import json
import statistics
from html import escape
from pathlib import Path

WIDTH, LANE, LEFT, TOP = 1200, 46, 130, 58
COLOURS = {"latency": "#1f6fb4", "batch": "#d9822b"}


def overlapping(spans, others):
    """Of `spans`, those that run while one of `others` does, and the rest."""
    starts = [at for at, _, _ in others]
    beside, alone = [], []
    for span in spans:
        before = bisect.bisect_right(starts, span[0]) - 1
        runs = before >= 0 and sum(others[before][:2]) > span[0]
        (beside if runs else alone).append(span)
    return beside, alone


def caption(document):
    spans = {role: sorted(span for job in document["jobs"] if job["role"] == role
                          for span in job["spans_us"]) for role in COLOURS}
    beside, alone = overlapping(spans["latency"], spans["batch"])
    means = [statistics.fmean(duration for _, duration, _ in part) if part else 0
             for part in (beside, alone)]
    return (f"{document['scenario']}, {document['row']}: latency-critical kernels take "
            f"{means[0]:.1f} µs on average while best effort is on the GPU ({len(beside)}), "
            f"{means[1]:.1f} µs otherwise ({len(alone)}), in {document['window_us'] / 1e3:g} ms")


def draw(document, from_us, length_us):
    scale = (WIDTH - LEFT - 20) / length_us
    jobs = document["jobs"]
    height = TOP + (len(jobs) + 1) * LANE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>',
           f'<text x="12" y="24">{escape(caption(document))}</text>']
    for lane, job in enumerate(jobs):
        y, colour = TOP + lane * LANE, COLOURS[job["role"]]
        out.append(f'<text x="12" y="{y + 20}" fill="{colour}">{escape(job["name"])}</text>'
                   f'<g fill="{colour}">')
        for at, duration, _ in job["spans_us"]:
            begin, end = max(at, from_us), min(at + duration, from_us + length_us)
            if begin < end:
                out.append(f'<rect x="{LEFT + (begin - from_us) * scale:.1f}" y="{y}" '
                           f'width="{max(0.4, (end - begin) * scale):.1f}" height="30"/>')
        out.append("</g>")
    for ms in range(int(length_us / 1e3) + 1):
        x = LEFT + ms * 1e3 * scale
        out.append(f'<text x="{x:.0f}" y="{height - LANE + 18}" fill="#555">{ms} ms</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline", type=Path)
    parser.add_argument("--from-ms", type=float, default=0)
    parser.add_argument("--ms", type=float, default=12)
    options = parser.parse_args()
    document = json.loads(options.timeline.read_text())
    print(draw(document, options.from_ms * 1e3, options.ms * 1e3), end="")


if __name__ == "__main__":
    main()
