"""Random programs of executable graphs: graph_campaign (tests/integration), which CMake builds into
the folder HEDDLE_TOOLS. It checks its values itself, and ends with 1 where they are wrong."""

import os
import sys

CAMPAIGN = os.path.join(os.environ.get("HEDDLE_TOOLS", ""), "graph_campaign")
if not os.path.exists(CAMPAIGN):
    print('{"skip": "not built: graph_campaign"}')
    sys.exit(77)
os.execv(CAMPAIGN, [CAMPAIGN, "--seed", "51", "--rounds",
                    os.environ.get("HEDDLE_CAMPAIGN_ROUNDS", "1200")])
