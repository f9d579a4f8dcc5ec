#!/usr/bin/env python3
"""The services whose overhead bench/overhead.py measures: torchvision models as jobs.py runs them,
and one token of a language model's decoding as llm.py does it, eager and as a CUDA graph.

    services.py NAME BATCH     then the commands of protocol.py on stdin
"""

import sys

from protocol import bypass_while_loading, serve
from torch_job import REPLIES

LLMS = {"llm_eager": False, "llm_graph": True}


def load(name, batch):
    if name in LLMS:
        import llm  # transformers is needed for these alone
        return llm.Llm("small", batch=batch, context=256, tokens=1, graph=LLMS[name])
    import jobs
    return jobs.Job(name, batch)


if __name__ == "__main__":
    bypass_while_loading()
    serve(load(sys.argv[1], int(sys.argv[2])), REPLIES)
