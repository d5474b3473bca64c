"""A producer of known events, each in a datagram of its own, so that queues fill up quickly.

producer.py RUN EVENTS_A_SECOND

It goes on until RUN/enough is there, and leaves the number of its events in RUN/count.
"""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from pathlib import Path

from trainhooks.protocol import encoding, events, rundir
from trainhooks.protocol.journal import Journal, Notifier

AT_ONCE = 0.01  # seconds' worth of events between two sleeps


def main(run: Path, rate: float) -> None:
    producer = uuid.uuid4().hex[:8]
    path = rundir.rank_journal(run, 0, producer)
    lock = rundir.Lock.acquire(path.with_suffix(".lock"))
    assert lock is not None
    journal, notifier, encode = Journal(path), Notifier(run), encoding.encoder()
    hello = events.Hello(producer, 0, time.monotonic(), wall=time.time())
    began = time.monotonic()
    for seq in itertools.count():
        now = time.monotonic()
        event = events.Step(producer, seq, now, seq, now, 0.0) if seq else hello
        line = encode(encoding.to_dict(event)) + b"\n"
        journal.append(line, 1)
        notifier.send(line)
        ahead = began + seq / rate - now
        if seq % 100 == 0 and (run / "enough").exists():
            break
        if ahead > AT_ONCE:
            time.sleep(ahead)
    journal.close()
    (run / "count").write_text(str(seq + 1))
    notifier.close()
    lock.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
