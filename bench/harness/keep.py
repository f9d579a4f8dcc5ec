"""Makes results small: what the tables read of them stays, and no more (table.py --keep).

Figures that need samples are computed (md.py) and stay instead of them. Who measures again puts the
raw result into results/, sees that the tables are right, and calls that.
"""

import itertools
import json

from harness import md

WHENCE = {"mode", "gpu", "date", "commit"}  # stay where no table shows them, too


class Seen(dict):
    """Notes its keys that are read. What is in it is seen too."""

    def __init__(self, of):
        super().__init__((key, seen(value)) for key, value in of.items())
        self.keys_read = set()

    def __getitem__(self, key):
        self.keys_read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self.keys_read.add(key)
        return super().__contains__(key)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def setdefault(self, key, default):
        if key not in self:
            self[key] = default
        return self[key]

    def __iter__(self):
        self.keys_read.update(super().keys())
        return super().__iter__()

    def keys(self):
        return list(self)

    def values(self):
        return [self[key] for key in self]

    def items(self):
        return [(key, self[key]) for key in self]


def seen(value):
    if isinstance(value, dict):
        return Seen(value)
    return list(map(seen, value)) if isinstance(value, list) else value


def pruned(value):
    if isinstance(value, Seen):
        return {key: pruned(dict.__getitem__(value, key)) for key in dict.keys(value)
                if key in value.keys_read}
    if isinstance(value, list):
        return list(map(pruned, value))
    return float(f"{value:.8g}") if isinstance(value, float) else value


def measured(results):
    """Where each result is from, in a list a key. Simulated ones are no measurement."""
    last = [result["sessions"][-1] for result in results.values()]
    whence = {"mode": [result["mode"] for result in results.values()],
              "gpu": [result["gpu"] for result in results.values()],
              "date": [session["date"][:10] for session in last],
              "commit": [session["commit"] for session in last]}
    whence = {key: list(dict.fromkeys(of)) for key, of in whence.items()}
    if whence["mode"] != ["real"]:
        raise ValueError("simulated results are kept in no table")
    return whence


# Of a row what a cell shows, over one of the jobs alone.
TOGETHER = {"throughput_over_alone": "{:.2f}", "worst_p95_over_alone": " ({:.2f})",
            "energy_over_alone": ", {:.2f}"}


def together(results):
    """What is kept of results, by name, of jobs of one importance: a row each."""
    whence = measured(results)
    ways = list(dict.fromkeys(row for result in results.values() for row in result["figures"]
                              if not row.startswith("alone/")))
    rows = [["throughput (worst p95), energy an iteration; × alone", *(f"`{way}`" for way in ways),
             "repetitions", "commit"]]
    for name, result in results.items():
        figures = result["figures"]
        shown = [[text.format(figures[way][key]["value"]) for key, text in TOGETHER.items()
                  if key in figures[way]] if way in figures else ["–"] for way in ways]
        rows.append([name, *map("".join, shown), str(result["repetitions_done"]),
                     result["sessions"][-1]["commit"]])
    return {**whence, "parts": [rows]}


def results_of(found):
    return found if isinstance(found, list) else [found]


def all_tables(documents, tables):
    """What `tables()` makes with these documents in the place of their files."""
    def watched(path, document):
        return documents.get(path.resolve(), document)
    md.watched, before = watched, md.watched
    try:
        return tables()
    finally:
        md.watched = before


def kept(paths, tables):
    """{path: what is to be kept of it}: what `tables()` reads, and where it is from."""
    documents = {path.resolve(): json.loads(path.read_text()) for path in paths}
    wanted = all_tables(documents, tables)  # which fills in what is computed
    watched = {path: seen(document) for path, document in documents.items()}
    for document in itertools.chain(*map(results_of, watched.values())):
        document.keys_read |= WHENCE
    all_tables(watched, tables)
    small = {path: pruned(document) for path, document in watched.items()}
    for path, found in small.items():
        for whole, document in zip(results_of(documents[path]), results_of(found)):
            if document.keys() <= WHENCE:
                raise ValueError(f"{path}: no table reads it; see table.py for what is read")
            document |= {key: whole[key] for key in ("energy_j",) if key in whole}
    if all_tables(small, tables) != wanted:
        raise ValueError("the tables would change; a table reads what Seen does not notice")
    return small
