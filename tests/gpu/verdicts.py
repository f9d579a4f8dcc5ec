"""What the cells of one program say together: does it run alike under heddle?

Pure: from the cells' rows to a verdict, so that it can be tested without a GPU. A digest in which
bare differs from bare proves nothing and is left out, by name.
"""

BROKEN = ("failed", "hung")
HEDDLE = ("alone", "gated", "absent", "killed", "latency", "partition", "partition_gated",
          "killed_alone", "stopped")


def by_condition(cells):
    return {cell["condition"]: cell for cell in cells}


def control(cells):
    """Names of the outputs in which two bare runs differ; None without two bare runs."""
    bare, again = cells.get("bare"), cells.get("bare_again")
    if not (ok(bare) and ok(again)):
        return None
    return differing(bare["digests"], again["digests"], ())


def ok(cell):
    return cell is not None and cell["outcome"] == "ok"


def differing(one, other, apart_from):
    return sorted(name for name in one.keys() | other.keys()
                  if name not in apart_from and one.get(name) != other.get(name))


def outputs(cell, bare, unstable):
    """One word or line on the cell against bare."""
    if cell is None or cell["outcome"] == "not run":
        return "not run"
    if cell["outcome"] == "hung":
        return f"hung: no end within {cell['after_s']:g} s"
    if cell["outcome"] == "skipped":
        return f"skipped: {cell['reason']}"
    if cell["outcome"] != "ok":
        return f"failed: {cell.get('error') or 'exit ' + str(cell.get('exit'))}"
    if bare is None or (bare["digests"] and not bare["digests"].keys() - set(unstable)):
        return "not compared"
    different = differing(bare["digests"], cell["digests"], unstable)
    if different:
        return "differ: " + ", ".join(different)
    return "equal"


def launches(cells):
    """Launching API calls without and with heddle, and who counted them."""
    pairs = [(cells.get("count_bare"), cells.get("count_heddle"), "counted", "CUPTI callbacks"),
             (cells.get("bare"), cells.get("alone"), "profiled", "torch.profiler")]
    for bare, heddle, key, by in pairs:
        if ok(bare) and ok(heddle) and bare.get(key) and heddle.get(key):
            found = {"by": by, "bare": bare[key], "heddle": heddle[key],
                     "equal": bare[key] == heddle[key]}
            again = cells.get("count_bare_again")
            if ok(again) and again.get(key) != bare[key]:
                found |= {"bare_again": again[key], "equal": None}
            return found
    return None


def managed(cell):
    """How the launches of a cell's processes went, as heddled knows: by asking, never held back,
    and all of them; None where it was not asked."""
    shim = (cell or {}).get("shim") or {}
    if "counters" not in shim:
        return None
    went_by = {why: sum(client["self"].get(why, 0) for client in shim["counters"])
               for why in ("exempt", "capturing")}
    return {"asked": shim["granted"], **went_by,
            "launches": shim["launches"] + went_by["capturing"], "clients": shim["clients"]}


def unknown_launches(cell):
    """A line if heddled knows of other launches than the driver did in the same run."""
    known = managed(cell) if ok(cell) and cell.get("counted") else None
    seen = sum(cell["counted"].values()) if known else 0
    if known and known["launches"] != seen:
        yield f"heddled knows of {known['launches']} launches, the driver of {seen}"


def unproven(cells, processes, counted):
    """Why the cells would be alike even if heddle had done nothing, or another run would not be, a
    line each."""
    gated = cells.get("gated")
    known = managed(gated) if ok(gated) else None
    if known and not known["clients"]:
        yield "not managed: the program was not attached"
        return
    if known and not known["asked"]:
        yield "gated: no launch asked"
    for name in ("alone", "gated", "killed", "count_heddle"):
        attached = managed(cells.get(name)) if ok(cells.get(name)) else None
        if attached and attached["clients"] < processes:
            yield f"{name}: {attached['clients']} of {processes} processes attached"
    if ok(cells.get("bare")) and control(cells) is None:
        yield "no control: bare did not run twice"
    if counted and not launches(cells):
        yield "launches: not counted"
    yield from unknown_launches(cells.get("count_heddle"))
    for name in ("killed", "killed_alone"):
        cell = cells.get(name)
        if ok(cell) and not cell.get("restarted"):
            yield f"{name}: the daemon was not killed"
        elif ok(cell) and not cell.get("shim", {}).get("clients"):
            yield f"{name}: not attached again at the end"
    for name in ("partition", "partition_gated"):
        if ok(cells.get(name)) and not cells[name].get("shim", {}).get("partitioned"):
            yield f"{name}: no launch went into it"
    if ok(cells.get("stopped")) and not cells["stopped"].get("shim", {}).get("stops"):
        yield "stopped: it never was"
    alone = cells.get("alone")
    if ok(alone) and alone.get("launches") and alone.get("shim"):
        seen = alone["shim"].get("launches")
        if seen != alone["launches"]:
            yield f"alone: heddled knows of {seen} launches, the program of {alone['launches']}"


def notes(cells):
    """What a reader should know that is no difference."""
    unstable = control(cells)
    if unstable:
        yield "bare differs from bare: " + ", ".join(unstable)
    bare = cells.get("bare")
    count = cells.get("count_bare")
    if ok(bare) and bare.get("launches") and ok(count) and count.get("counted"):
        seen = sum(count["counted"].values())
        if seen != bare["launches"]:
            yield f"the program knows of {bare['launches']} launches, {seen} were counted"
    if ok(count) and not count.get("counted"):
        yield "no launches could be counted"


def judge(cells, attaches=True, processes=1, counted=True):
    """{"result": alike | differs | unproven | not compared | bare fails | skipped | not run, ...}
    of one program's cells. `attaches`: False if heddle is known never to see it; `processes`: how
    many of it launch; `counted`: False where nobody can count its launches."""
    cells = by_condition(cells)
    bare = cells.get("bare")
    if bare and bare["outcome"] == "not run":
        return {"result": "not run"}
    if bare and bare["outcome"] == "skipped":
        return {"result": "skipped", "why": [bare["reason"]]}
    if bare and not ok(bare):
        return {"result": "bare fails", "why": [outputs(bare, None, ())]}
    # Without a bare run, as where only launches were to be counted, no outputs are compared.
    unstable = control(cells)
    found = {name: outputs(cells[name], bare, unstable or ()) for name in HEDDLE if name in cells}
    count = launches(cells)
    why = [f"{name}: {text}" for name, text in found.items()
           if text not in ("equal", "not compared")]
    if count and count["equal"] is False:
        why.append(f"launches: {count['bare']} bare, {count['heddle']} under heddle")
    missing = [name for name, text in found.items() if text == "not run"]
    for name in ("count_heddle", "count_absent", "count_killed"):
        cell = cells.get(name)
        if cell and cell["outcome"] == "not run":
            why.append(f"{name}: not run")
            missing.append(name)
        elif cell and ok(cells.get("count_bare")) and cell["outcome"] in BROKEN:
            why.append(f"{name}: {outputs(cell, bare, ())}")
        elif name != "count_heddle" and count and count["equal"] is not None and ok(cell):
            if cell.get("counted") != count["bare"]:
                why.append(f"{name}: {count['bare']} launches bare, {cell.get('counted')} here")
    only_missing = missing and len(missing) == len(why)
    doubts = list(unproven(cells, processes, counted))
    result = ("differs" if why and not only_missing else
              "not run" if only_missing or not (found or count) else
              "not compared" if set(found.values()) <= {"not compared"} else
              "unproven" if doubts and attaches else "alike")
    return {
        "result": result,
        "why": doubts if result == "unproven" else why,
        "control": "not run" if unstable is None else
                   "differs" if unstable else "equal",
        "outputs": found, "launches": count, "gated": managed(cells.get("gated")),
        "notes": list(notes(cells)) + (doubts if result != "unproven" else []),
    }
