#!/usr/bin/env python3
"""The framework matrix's script on the simulated GPU: a program runs alike alone, gated, without a
daemon and with the daemon killed half-way, and is attached to the new one; mocks that differ, crash
or skip are found out."""

import json
import os
import subprocess
import sys

import setting

MATRIX = setting.ROOT / "tests/gpu/matrix.py"
EXPECTED = {"sim_steps": "alike", "sim_cooperative": "alike", "sim_campaign": "alike",
            "mock_differs": "differs", "mock_crashes": "differs", "mock_skips": "skipped"}


def main():
    if not setting.stage.DEMO.exists():
        print("dist/ is not installed: cmake --install build/release")
        return 77
    out = setting.ROOT / "out/fault/matrix.json"
    command = [sys.executable, MATRIX, "--sim", "--only", ",".join(EXPECTED), "--jobs", "2",
               "--dist", setting.stage.DIST, "--out", out]
    env = os.environ | {"HEDDLE_TOOLS": sys.argv[1]}
    subprocess.run(command, check=False, env=env, timeout=150)  # 1: some differ, as they should
    programs = json.loads(out.read_text())["programs"]
    found = {name: program["verdict"]["result"] for name, program in programs.items()}
    cells = {cell["condition"]: cell for cell in programs["sim_steps"]["cells"]}
    launches = cells["gated"]["launches"]
    checks = {
        f"verdicts {found}": found == EXPECTED,
        # A verdict is of a unit: of several launches that wait on the device.
        "verdicts let gated launches go": 0 < cells["gated"]["shim"]["granted"] <= launches,
        # A launch or two may come before the helper thread has attached.
        "heddled counted launches": launches / 2 < cells["alone"]["shim"]["launches"] <= launches,
        "attached to the new daemon": cells["killed"]["shim"]["clients"] == 1,
    }
    for text, held in checks.items():
        print("ok    " if held else "FAILED", text)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
