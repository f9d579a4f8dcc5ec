"""Traces of `heddle record`, as `heddle trace export --perfetto` writes them: its format is
documented."""

import bisect
import json
import subprocess
import tempfile
from pathlib import Path

# Tracks that daemon/trace/chrome.cc gives a client beside those of its streams.
GAPS, SYNCS, DECISIONS, ASKS = 70_000, 70_001, 70_002, 70_010


class TraceError(RuntimeError):
    """What is wrong with a trace, and what to do."""


def load(path):
    """The exported document of a trace, or of what was exported before (.json)."""
    heddle = Path(__file__).resolve().parents[3] / "bin/heddle"
    with tempfile.TemporaryDirectory(prefix="heddle-trace-") as folder:
        source = Path(path)
        if source.suffix != ".json":
            source = Path(folder) / "trace.json"
            command = [heddle if heddle.exists() else "heddle", "trace", "export", path,
                       "--perfetto", source]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except FileNotFoundError:
                raise TraceError("heddle is not on the PATH, and reads traces; give it an "
                                 "exported .json") from None
            if done.returncode != 0:
                raise TraceError(done.stderr.strip().removeprefix("heddle: "))
        try:
            document = json.loads(source.read_bytes())
        except (OSError, ValueError) as error:
            raise TraceError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or "traceEvents" not in document:
        raise TraceError(f"{path}: is no trace; heddle record writes one")
    return document


def clients(document):
    """{name: events} of each client, in the order of the trace."""
    names, events = {}, {}
    for event in document["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        events.setdefault(event["pid"], []).append(event)
    return [(name, events[pid]) for pid, name in names.items()]


def runs_us(events):
    """How long each run of a client took: from its first launch to the return of a synchronizing
    call that leaves nothing of it on the GPU (daemon/core/MEASURING.md)."""
    def spans(track):  # in ns: sums of µs differ in their last digits, and times are compared
        return sorted((round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in events
                      if e["ph"] == "X" and e.get("tid") == track)

    returns = sorted(end for _, end in spans(SYNCS))
    taken, begun = [], None
    for idle, launched in spans(GAPS):
        # The GPU may be known to be idle before the call returns.
        first = bisect.bisect_left(returns, idle)
        if first == len(returns) or returns[first] > launched:
            continue
        if begun is not None:
            taken.append((returns[first] - begun) / 1e3)
        begun = launched
    return taken
