"""Stands in for a program of the matrix where there is no GPU: HEDDLE_MOCK says how it behaves.
Under heddle it knows itself by HEDDLE_PRIORITY."""

import os
import sys
import time

import program


def main():
    how = os.environ["HEDDLE_MOCK"]
    managed = "HEDDLE_PRIORITY" in os.environ
    if how == "skips":
        program.skip("needs 2 GPUs")
    for index in program.rounds():
        if index == program.ROUNDS // 2 and managed and how == "hangs":
            time.sleep(1000)
        if index == program.ROUNDS // 2 and managed and how == "crashes":
            print("CUDA error: unspecified launch failure", file=sys.stderr)
            os.abort()
    if how == "leaves":  # a child that outlives it and holds its output open
        if os.fork() == 0:
            time.sleep(60)
        os._exit(3)
    varying = str(time.monotonic_ns()) if how == "varies" else "same"
    program.finish({"out": "other" if how == "differs" and managed else "same",
                    "varying": varying}, 48)


main()
