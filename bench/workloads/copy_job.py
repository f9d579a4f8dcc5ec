#!/usr/bin/env python3
"""The memory-bound antagonist: sums of two large arrays into a third, kernel after kernel, which
take the DRAM's bandwidth and next to nothing else.

    copy_job.py [--mib 256] [--launches 20] [--math]   then the commands of protocol.py on stdin

An iteration is so many launches and a synchronize; each array has --mib, more than any L2. With
--math it takes issue slots instead: the logarithm of the gamma function of one array.
"""

import argparse

from torch_job import REPLIES, about, digest, profile

import torch
from protocol import serve


class Job:
    def __init__(self, mib, launches, math):
        self.a, self.b, self.sum = (torch.rand(mib << 18, device="cuda") for _ in range(3))
        self.launches, self.math = launches, math
        for _ in range(3):
            self.iterate()
        self.about = about()

    def iterate(self):
        for _ in range(self.launches):
            if self.math:
                torch.lgamma(self.a, out=self.sum)
            else:
                torch.add(self.a, self.b, out=self.sum)
        torch.cuda.synchronize()

    def hash(self, count):
        return [digest(torch.add(self.a, self.b, alpha=1 + i)) for i in range(count)]

    def profile(self, seconds):
        return profile(self.iterate, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="copy_job.py")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--math", action="store_true")
    options = parser.parse_args()
    serve(Job(options.mib, options.launches, options.math), REPLIES)
