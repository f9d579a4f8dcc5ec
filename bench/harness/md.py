"""What the scripts that make tables share: result files, Markdown, and how figures are written."""

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
NO_RESULT = "No result file yet."


def watched(path, document):
    """keep.py puts its own here, which sees what is read."""
    return document


def read(path):
    """A result file."""
    return watched(path, json.loads(path.read_text()))


def computed(result, name, figure):
    """A figure that needs samples. A raw result has those; a kept one has the figure (keep.py)."""
    kept = result.setdefault("kept", {})
    if name not in kept:
        kept[name] = figure()
    return kept[name]


def load(stem):
    """Result files stem*.json, oldest first; a file may hold a list of results. Timelines and such
    are no result files. Simulated figures never reach these tables."""
    found = []
    for path in sorted(RESULTS.glob(f"{stem}*.json")):
        documents = read(path)
        for document in documents if isinstance(documents, list) else [documents]:
            if "benchmark" in document and document.get("mode") != "simulated":
                found.append((path.name, document))
    return sorted(found, key=lambda item: item[1]["date"])


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def three(value):
    """Three significant digits, without an exponent; a dash for nothing."""
    if value is None:
        return "–"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def headed(rows):
    return markdown(rows[0], rows[1:]) if rows else NO_RESULT
