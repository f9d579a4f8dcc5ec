"""What promise.py measures: workloads, and rows as they are written. No process is started here."""

import random
from dataclasses import dataclass, field

GROUPS, GROUP_SMS = 16, 8  # of an H100 or H200; what is left over counts as a group

# What a job runs: the script of workloads/ and its arguments, as heddle-bench gives them too: one
# profile serves both. And what stands in where there is no GPU: kernels, their µs, their blocks.
WORKLOADS = {
    "resnet152": (("jobs.py", "resnet152", "8", "--graph", "true"), (4, 2000, 264)),
    "vgg19": (("jobs.py", "vgg19", "8", "--graph", "true"), (3, 3000, 264)),
    "densenet201": (("jobs.py", "densenet201", "8", "--graph", "true"), (6, 1500, 132)),
    "llm": (("llm.py", "--batch", "8", "--graph", "true", "--mode", "decode", "--shape", "small",
             "--tokens", "4"), (4, 1500, 132)),
    "llm_8b": (("llm.py", "--batch", "8", "--graph", "true", "--mode", "decode", "--shape",
                "llama-3.1-8b", "--tokens", "4"), (4, 4000, 132)),
    "training": (("jobs.py", "resnet50", "16", "--mode", "training"), (12, 800, 200)),
    "vgg19x32": (("jobs.py", "vgg19", "32"), (6, 3000, 264)),
    "copy": (("copy_job.py",), (8, 1500, 132)),
    "resnet50_graph": (("jobs.py", "resnet50", "32", "--graph", "true"), (2, 4000, 132)),
}
VICTIMS = ("resnet152", "vgg19", "densenet201", "llm")
ANTAGONISTS = ("training", "vgg19x32", "copy", "resnet50_graph")
ROWS = ("ipc_budget", "combined", "orion", "usher", "mps", "mps+priority",
        *(f"static:{g}{p}" for g in (4, 8, 12, 15) for p in ("", "+priority")))


class BadRow(ValueError):
    """A row's text that says nothing; the message has what does."""


@dataclass(frozen=True)
class Row:
    """How the jobs of a row are started (by whom, and what that process is told), and what heddle
    is told before its blocks."""
    name: str
    by: str                   # "" bare, "heddle" or "static": the daemon of that name
    environment: tuple = ()   # of the antagonists
    policy: str = ""
    params: dict = field(default_factory=dict, hash=False)

    def processes(self):
        """Keys of its victim's and its antagonists' processes: rows with equal keys share them."""
        return (self.by, ()), (self.by, self.environment)


def groups_of(text, name):
    if not text.isdigit() or not 1 <= int(text) < GROUPS:
        raise BadRow(f"row '{name}': give 1 to {GROUPS - 1} groups of SMs, as in static:8")
    return int(text)


def parse_row(name, policies):
    """Row of its text; `policies` are the names that there are."""
    stem, _, suffix = name.partition("+")
    kind, _, rest = stem.partition(":")
    first = suffix == "priority"
    if suffix and (not first or kind not in ("mps", "static", "percent")):
        raise BadRow(f"row '{name}': only mps, static:G and percent:G take +priority")
    priority = (("CUDA_MPS_CLIENT_PRIORITY", "1"),) * first
    if stem == "mps":
        return Row(name, "", priority)
    if kind == "percent":
        share = 100 * groups_of(rest, name) / GROUPS
        return Row(name, "", (*priority, ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{share:g}")))
    if kind == "static":
        sms = groups_of(rest, name) * GROUP_SMS
        return Row(name, "static", policy="static", params={"sms": str(sms),
                                                            "first": str(first).lower()})
    if kind not in policies:
        raise BadRow(f"row '{name}': no policy '{kind}'; there are mps, static:G, percent:G and "
                     + ", ".join(policies))
    params = dict(one.split("=", 1) for one in rest.split(",") if "=" in one)
    if rest and len(params) != len(rest.split(",")):
        raise BadRow(f"row '{name}': parameters are KEY=VALUE, apart by commas")
    return Row(name, "heddle", policy=kind, params=params)


def drawn_mixes(names, count, seed):
    """So many different pairs of antagonists; the seed alone says which."""
    pairs = [f"{a}+{b}" for i, a in enumerate(names) for b in names[i + 1:]]
    return random.Random(seed).sample(pairs, min(count, len(pairs)))


def joined(words):
    """KEY=VALUE alone belongs to the row before it."""
    rows = []
    for word in words:
        if rows and "=" in word and ":" not in word:
            rows[-1] += "," + word
        else:
            rows.append(word)
    return rows
