"""The rows of a comparison: which processes run, under which daemon policy, with or without MPS.

A process is named by its role. Bare ones run as anybody would start them; `heddle_` ones were
started by `heddle run`; `_cp` ones with CUDA_MPS_CLIENT_PRIORITY=1, which a client reads only once.
"""

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path

# Lets everyone launch freely.
UNGATED = (Path(__file__).resolve().parents[1] / "experiments/ungated.lua").read_text()


@dataclass(frozen=True)
class Condition:
    name: str
    mps: bool
    hp: str | None = None
    be: str | None = None
    policy: str | None = None
    params: dict = field(default_factory=dict, hash=False)

    @property
    def roles(self):
        return [role for role in (self.hp, self.be) if role]

    @property
    def alone(self):
        """The rows that this one is held against."""
        state = self.name.split("/")[0]
        return f"{state}/alone_hp", f"{state}/alone_be"

    def about(self):
        return {"name": self.name, "mps": self.mps, "policy": self.policy, "params": self.params,
                "client_priority": bool(self.be and self.be.endswith("_cp"))}


def shared(name, mps, policy=None, params=None, client_priority=False):
    prefix = "heddle_" if policy else ""
    return Condition(name, mps, prefix + "hp", prefix + "be" + ("_cp" if client_priority else ""),
                     policy, params or {})


def known(params_of):
    """Every row by name; `params_of` maps a policy to its parameters."""
    rows = []
    for state, mps in (("timeslice", False), ("mps", True)):
        rows += [Condition(f"{state}/alone_hp", mps, hp="hp"),
                 Condition(f"{state}/alone_be", mps, be="be"),
                 shared(f"{state}/default", mps)]
        rows += [shared(f"{state}/{p}", mps, p, params_of.get(p)) for p in ("priority", "gapfill")]
    rows += [shared("mps/client_priority", True, client_priority=True),
             shared("mps/gapfill+client_priority", True, "gapfill", params_of.get("gapfill"), True)]
    extra = [shared("mps/priority+client_priority", True, "priority", params_of.get("priority"),
                    True),
             shared("mps/launch_priority", True, "ungated"),
             shared("mps/launch_priority+client_priority", True, "ungated", None, True),
             Condition("mps/heddle_alone_hp", True, hp="heddle_hp", policy="gapfill"),
             Condition("mps/heddle_alone_be", True, be="heddle_be", policy="gapfill"),
             Condition("timeslice/heddle_alone_hp", False, hp="heddle_hp", policy="gapfill")]
    return rows, extra


def parse_params(text):
    return dict(item.split("=", 1) for item in text.split(",") if item)


def parse_variant(text):
    """NAME[+cp][@ts]:POLICY[:key=value,...], a row of its own."""
    name, policy, rest = (text + "::").split(":")[:3]
    name, _, state = name.partition("@")
    name, _, suffix = name.partition("+")
    if not policy or suffix not in ("", "cp") or state not in ("", "ts"):
        raise ValueError(f"--variant {text}: NAME[+cp][@ts]:POLICY[:key=value,...] expected")
    row = ("timeslice/" if state else "mps/") + name + ("+client_priority" if suffix else "")
    return shared(row, not state, policy, parse_params(rest), bool(suffix))


def matches(row, patterns):
    return any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns.split(","))


def choose(patterns, params_of, variants):
    """Rows that match any of the comma-separated patterns (`standard`: the issue's), and variants,
    in a stable order. What a row is compared with comes along."""
    standard, extra = known(params_of)
    rows = []
    for pattern in patterns.split(","):
        pool = standard if pattern == "standard" else [
            row for row in standard + extra if matches(row, pattern)]
        if not pool and pattern:
            names = ", ".join(row.name for row in standard + extra)
            raise ValueError(f"no condition matches {pattern}; there are: {names}")
        rows += pool
    rows += variants
    wanted = {name for row in rows for name in row.alone}
    rows += [row for row in standard if row.name in wanted]
    return list({row.name: row for row in rows}.values())
