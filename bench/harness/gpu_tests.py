"""Tables of results of tests/gpu: stops.py, matrix.py, two_gpus.py, compute.py, channels.py,
resize.py."""

from harness.md import RESULTS, load, markdown, read, three

MODES = {"timeslice": "time-sliced", "mps": "MPS"}

STANDS = {"long": "on all SMs, 126 ms", "alloc": "the same, and allocates all the time",
          "managed": "the same, in managed memory",
          "throttled": "the same, a tenth of the CPU's time",
          "three": "three of the first at once", "allocate": "the first, H twice as long",
          "sleep": "one block that sleeps, H 7.5 ms in a closed loop"}


def standing_table():
    """Of tests/gpu/stops.py."""
    found = read(RESULTS / "stops.json")
    alone, per_s = found["heddle"]["service alone"], found["alone"]["long"]["per_s"]
    rows = []
    for name, about in STANDS.items():
        base = found["alone"]["closed"] if name == "sleep" else alone
        cells = []
        for side in (found["bare"], found["heddle"]):
            if name not in side:
                cells += ["–"] * 3
                continue
            below = [of for who, of in side[name].items() if who.startswith("L")]
            share = sum(of["per_s"] for of in below) / per_s
            cells += [f"{side[name]['H']['mean_us'] / base['mean_us']:.2f}",
                      f"{side[name]['H']['p99_us'] / base['p99_us']:.2f}",
                      "–" if name == "sleep" else f"{share:.2f}"]
        rows.append([about, *cells])
    header = ["L's kernels", "bare: H mean", "p99", "L", "heddle: H mean", "p99", "L"]
    return markdown(header, rows)


def standing_text():
    """The other figures of tests/gpu/stops.py."""
    found = read(RESULTS / "stops.json")
    long, beside = found["heddle"]["long"]["H"], found["heddle"]["allocate"]["A"]
    alone = found["alone"]["allocate"]
    both = sum(of["per_s"] for of in found["heddle"]["two below nobody"])
    equals = found["equals"]
    return "\n".join([
        f"- The last progress of L, after H's launch: p50 {long['progress_p50_us']:.0f}, "
        f"p99 {long['progress_p99_us']:.0f} µs.",
        f"- `cudaMalloc` of a third program beside 60 stops a second: p50 {beside['p50_us']:.0f}, "
        f"p99 {beside['p99_us']:.0f} µs (alone {alone['p50_us']:.0f}, {alone['p99_us']:.0f}).",
        f"- Two L below nobody: {both / found['heddle']['L alone']['per_s']:.2f} of one alone.",
        f"- Equals with shares 3 and 1, under `fair`: "
        f"{equals['three']['per_s'] / equals['one']['per_s']:.2f}, of {equals['three']['kernels']} "
        f"and {equals['one']['kernels']} kernels."])


def yardstick_table():
    """Of a program that stops itself: H tells L's process when a request begins and ends."""
    rows = [[f"{row['beside']}, slices {row['slices']}", f"{row['mean_over_alone']:.2f}",
             f"{row['p99_over_alone']:.2f}", f"{row['L_over_alone']:.2f}", str(row["requests"])]
            for row in read(RESULTS / "stops.json")["stops_itself"]]
    return markdown(["beside", "H mean", "H p99", "L", "requests"], rows)


def stopped_text():
    """Of tests/gpu/matrix.py --conditions bare,bare_again,stopped."""
    programs = read(RESULTS / "stopped.json")["programs"]
    stops, differ = {}, []
    for name, program in programs.items():
        cells = {cell["condition"]: cell for cell in program["cells"]}
        stops[name] = cells["stopped"]["shim"]["stops"]
        if program["verdict"]["outputs"]["stopped"] != "equal":
            differ.append(name)
    were = [f"{name} {count}" for name, count in stops.items() if count]
    return (f"Stopped at random: {', '.join(were)} times. Outputs that differ from the bare "
            f"program's: {', '.join(differ) or 'none'}.")


def two_gpus_table():
    """Of tests/gpu/two_gpus.py: a job on both GPUs, and a service on the first."""
    rows = []
    for _, found in load("two_gpus"):
        for name, condition in found["conditions"].items():
            row = condition["rows"].get("together")
            if row and "over_own" in row:
                rows.append([f"{name}, {found['commit']}", *two_gpus_row(row, found["gpus"])])
    header = ["", "H mean ÷ bare", "÷ own", "H p99 ÷ bare", "÷ own", "job ÷ bare", "÷ own",
              "stops on GPU 0 / 1", "asked on GPU 1", "losses"]
    return markdown(header, rows)


def two_gpus_text():
    """The job alone, and what a program on another GPU than the stops has of them."""
    lines = []
    for _, found in load("two_gpus"):
        of = found["conditions"]
        alone = {name: rows["rows"]["job alone"]["over_bare"]["job"]
                 for name, rows in of.items() if name not in ("bare", "neighbour")}
        again = of["bare"]["rows"]["job again"]["over_bare"]["job"]
        if alone:
            lines.append(f"- {found['commit']}: the job alone ÷ bare: "
                         + ", ".join(f"{name} {figure:.2f}" for name, figure in alone.items())
                         + f"; bare again {again:.2f}.")
        if "neighbour" in of:
            calls = {name: row["A"] for name, row in of["neighbour"]["rows"].items()}
            figures = (f"{name} {a['p50_us']:.0f} and {a['p99_us']:.0f}"
                       for name, a in calls.items())
            lines.append("- `cudaMalloc` of a program on the other GPU, p50 and p99 in µs: "
                         + ", ".join(figures) + ".")
    return "\n".join(lines)


def two_gpus_row(row, gpus):
    figures = [f"{row[over][key]:.2f}" for key in ("h_mean", "h_p99", "job")
               for over in ("over_bare", "over_own")]
    counted, wrong = row.get("heddle", {}), row["job"]["first_wrong"]
    stops, asked = "–", "–"
    if counted:
        stops = " / ".join(str(counted[gpu]["all"].get("stops", 0)) for gpu in gpus)
        asked = str(counted[gpus[1]]["all"].get("asked", 0))
    losses = f"{row['job']['compared']} equal" if wrong is None else f"wrong at {wrong}"
    return [*figures, stops, asked, losses]


def compute_table():
    """Of tests/gpu/compute.py."""
    found, rows = read(RESULTS / "compute.json"), []
    for mode, name in MODES.items():
        for row, programs in found["modes"][mode].items():
            cells = [f"{who} {100 * of['part']:.1f} ({100 * of['of_a_second'][0]:.0f} to "
                     f"{100 * of['of_a_second'][1]:.0f})" for who, of in programs.items()]
            rows.append([name, row, ", ".join(cells),
                         f"{100 * sum(of['part'] for of in programs.values()):.1f}"])
    table = markdown(["mode", "at work", "% of the GPU's time", "all"], rows)
    return f"{table}\n\n{whence(found)}; of {found['block_s']:g} s, and of each second"


def whence(found):
    return (f"{found['gpu']}, driver {found['driver']}, commit {found['commit']}, "
            f"{found['date'][:10]}")


def channels_table():
    """Of tests/gpu/channels.py."""
    found = read(RESULTS / "channels.json")
    rows = [[name, channel, *map(three, (row["of_peak"], row["free"]["use"],
                                         row["limited"]["use"], row["limit"],
                                         row["limited"]["stated"]))]
            for mode, name in MODES.items() for channel, row in found["modes"][mode].items()]
    table = markdown(["mode", "channel", "the hog alone, ÷ peak", "beside, free",
                      "beside, limited", "limit", "heddle states"], rows)
    return f"{table}\n\n{whence(found)}; a block of {found['block_s']:g} s each"


def resize_table():
    """Of tests/gpu/resize.py."""
    found = read(RESULTS / "resize.json")
    rows = [[name, *(str(found[name][key]) for key in ("changes", "iterations")),
             *(f"{found[name][key]:.2f}" for key in ("median_ms", "p99_ms", "worst_ms"))]
            for name in ("still", "resized", "still again")]
    table = markdown(["block", "changes", "iterations", "median, ms", "p99", "worst"], rows)
    return f"{table}\n\n{whence(found)}; a resize by restart: {found['restart_s']:.2f} s"


def tables():
    return {"compute": compute_table(), "channels": channels_table(), "resize": resize_table(),
            "standing": standing_table(), "standing-more": standing_text(),
            "stops-itself": yardstick_table(), "stopped": stopped_text(),
            "two-gpus": two_gpus_table(), "two-gpus-more": two_gpus_text()}
