#!/usr/bin/env python3
"""The steps of policies/GUIDE.md, "Write one" to "Hold by label", in order and as written there.

Usage: tutorial.py HEDDLE GUIDE.md
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FILES = ("mine.lua", "mine_test.lua", "quiet.lua", "quiet_test.lua", "two.lua",
         "two_test.lua")


def steps(guide):
    """What the text asks for: ("save", name, text) and ("run", command)."""
    part = guide[guide.index("## Write one\n"):guide.index("## Let held work run on\n")]
    names = list(FILES)
    for kind, text in re.findall(r"```(\w+)\n(.*?)```", part, re.S):
        if kind == "lua":
            yield "save", names.pop(0), text
        else:
            yield from (("run", line.split("   #")[0].strip()) for line in text.splitlines())
    assert not names, f"the tutorial saves no {names}"


def run(command, where, env):
    done = subprocess.run(command, shell=True, cwd=where, env=env, capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stdout + done.stderr


def main():
    heddle, guide = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    env = dict(os.environ, PATH=f"{heddle.parent}:{os.environ['PATH']}")
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for step, what, *text in steps(guide.read_text()):
            if step == "save":
                assert f"`{what}`" in guide.read_text(), f"nothing says to save {what}"
                (where / what).write_text(text[0])
                if what == FILES[0]:
                    code, said = run("heddle policy test mine.lua", where, env)
                    assert code == 1 and "no mine_test.lua beside mine.lua" in said, said
                continue
            code, said = run(what, where, env)
            assert code == 0, (what, said)
            print(what, said, sep="\n")
            ran += 1
        assert ran >= 3, "the tutorial runs its test"
        # The test notices what the policy is for.
        mine = where / FILES[0]
        lines = mine.read_text().splitlines(True)
        mine.write_text("".join(line for line in lines if "g:busy" not in line))
        code, said = run("heddle policy test mine.lua", where, env)
        assert code == 1 and "best effort waits" in said, said


main()
