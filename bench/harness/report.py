"""Result files, and the logs beside them."""

import json
import shutil


def keep_logs(source, target):
    target.mkdir(parents=True, exist_ok=True)
    with open(target / f"{source.name}.log", "wb") as joined:
        for log in sorted(source.rglob("*.log")):
            joined.write(f"==> {log.relative_to(source)}\n".encode())
            with open(log, "rb") as file:
                shutil.copyfileobj(file, joined)


def render(value, depth=0):
    """JSON that a person can read and a diff can show: long objects on several lines."""
    flat = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    plain = not isinstance(value, (dict, list)) or depth > 5 or (
        isinstance(value, list) and all(not isinstance(v, (dict, list)) for v in value))
    if plain or len(flat) < 100:
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
