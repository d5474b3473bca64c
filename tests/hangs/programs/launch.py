"""Start ranks as many clusters do: nothing ends the others when one has ended. `PORT WORLD RANKS PROGRAM...`"""

import os
import subprocess
import sys

port, world, ranks = sys.argv[1:4]
group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": world}
started = [
    subprocess.Popen([sys.executable, *sys.argv[4:]], env=os.environ | group | {"RANK": str(r), "LOCAL_RANK": str(r)})
    for r in range(int(ranks))
]
for each in started:
    each.wait()
