#!/usr/bin/env python3
"""A critical CUDA graph H beside graphs of L, under MPS: H's priority, and L on some of the SMs.

A row of results/graphs is [H's mean ms, H's p99 ms, L's graphs per second], once for each
alternation. `alone` is of the last alternation: an H100 that has run L's products takes longer from
then on, without heddle too.
"""

from md import RESULTS, read, three


def cells(rows, of):
    """Each figure of the rows over that of `of`, least to greatest."""
    spans = []
    for figures, base in zip(zip(*rows), of):
        least, most = (three(figure / base) for figure in (min(figures), max(figures)))
        spans.append(least if least == most else f"{least} to {most}")
    return spans


def apart():
    found = read(RESULTS / "graphs/h100.json")
    return [["densenet201, batch 1, closed loop, ÷ alone", "H mean", "H p99", "L"],
            *([name, *cells(rows, found["alone"])] for name, rows in found["apart"].items())]


def priority():
    found = read(RESULTS / "graphs/h100.json")
    return [["H, Poisson arrivals", "H mean, ms", "H p99, ms", "L per s"],
            *([f"{job}, {side}", *cells(rows, (1, 1, 1))]
              for job, sides in found["priority"].items() for side, rows in sides.items())]
