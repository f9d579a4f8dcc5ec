"""Result files, figures in them, and the logs beside them."""

import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path


HERE = Path(__file__).resolve().parent
FOR_INTERVAL = 5  # slices of a second


class ResultError(RuntimeError):
    """What is wrong with a result file, and what to do."""


def unpacked(path):
    """The text of a kept result, as `heddle-bench run` had written it."""
    for root in (HERE.parents[2], HERE.parents[1] / "dist"):  # installed, of the source tree
        bench = root / "bin/heddle-bench"
        if bench.exists():
            done = subprocess.run([bench, "figures", path], text=True, capture_output=True)
            if done.returncode != 0:
                raise ResultError(done.stderr.strip().removeprefix("heddle-bench: "))
            return done.stdout
    raise ResultError(f"{path}: heddle-bench reads it, and is not there: build and install it")


def load(path):
    """A whole result of `heddle-bench run`, `keep` or `heddle try`."""
    try:
        raw = Path(path).suffix == ".raw"
        result = json.loads(unpacked(path) if raw else Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(result, dict) or result.get("benchmark") != "scenario":
        raise ResultError(f"{path}: is no result of heddle-bench run or heddle try; a trace is "
                          "FILE.trace of report --html")
    if not result.get("figures"):
        raise ResultError(f"{path}: was cut short before its figures; finish it by --resume")
    with reading(path):
        if "interval" not in result:
            leave_out_intervals(result["figures"])
    return result


def leave_out_intervals(found):
    """As heddle-bench's tables: fewer slices than FOR_INTERVAL bound nothing."""
    if isinstance(found, dict):
        if found.get("n", FOR_INTERVAL) < FOR_INTERVAL:
            found.pop("lo", None)
            found.pop("hi", None)
        for inner in found.values():
            leave_out_intervals(inner)


@contextmanager
def reading(path):
    """What a result lacks, or has of another kind, is told by the file's name."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ResultError(f"{path}: incomplete, or of another release ({type(error).__name__}: "
                          f"{error}); copy it anew, or measure again") from error


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


def keep_logs(source, target):
    target.mkdir(parents=True, exist_ok=True)
    with open(target / f"{source.name}.log", "wb") as joined:
        for log in sorted(source.rglob("*.log")):
            joined.write(f"==> {log.relative_to(source)}\n".encode())
            with open(log, "rb") as file:
                shutil.copyfileobj(file, joined)


def render(value, depth=0):
    """JSON that a person can read and a diff can show: what holds others takes lines."""
    flat = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    plain = depth and not any(isinstance(v, (dict, list)) for v in inner)
    if plain or depth > 5 or len(flat) < 200:
        return flat
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(k)}: {render(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + pad[1:] + "}"
    return "[\n" + ",\n".join(pad + render(v, depth + 1) for v in value) + "\n" + pad[1:] + "]"


def write(result, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(render(result) + "\n")
    partial.replace(path)
