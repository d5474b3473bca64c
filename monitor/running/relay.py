"""Hand on what a run's producers on this host send: their datagrams in, one PUB socket for all viewers out.

It belongs to whoever records the run, so that no library of sockets runs in the training. What it misses costs nothing:
a viewer that gets a frame, or none, reads the journals.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from monitor.sources.sockets import Publisher, Refused, has_few_descriptors, remove_socket
from trainhooks.protocol import rundir
from trainhooks.protocol.journal import MAX_DATAGRAM

VIEWERS_SECONDS = 1.0  # between two checks of what viewers that connect have left
LAST_DESCRIPTORS = 16  # with fewer free it stops publishing, since libzmq aborts where a viewer finds none
MAX_JOIN_SECONDS = 2.0  # seconds to wait for the thread's end


class Relay:
    """Relay in a thread until `close`. It starts at once and never raises; where it cannot, it says so once."""

    def __init__(self, run: Path, say: Callable[[str], None]) -> None:
        """
        Args:
            say: gets one line where nothing can be published, or no longer.
        """
        self._run = run
        self._say = say
        self._lock = threading.Lock()  # of the two below
        self._inbox: socket.socket | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._relay, name="relay", daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        publisher = None
        try:
            publisher = Publisher(rundir.socket_path(self._run))
            self._receive(rundir.inbox_path(self._run), publisher)
        except Refused as error:
            self._say(f"no live socket: {error}; the journals are read instead")
        except OSError as error:
            self._say(f"no live socket: {error.strerror or error}; the journals are read instead")
        except Exception:  # an error here must not stop the recording
            traceback.print_exc()
        finally:
            if publisher is not None:
                publisher.close()

    def _receive(self, path: Path, publisher: Publisher) -> None:
        """Publish what arrives at `path` until `close`, or until descriptors are short."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
            path.unlink(missing_ok=True)  # of a predecessor that was killed
            inbox.bind(str(path))
            inode = os.lstat(path).st_ino
            with self._lock:
                self._inbox = inbox
                if self._is_over:
                    inbox.shutdown(socket.SHUT_RD)
            check_at = 0.0
            try:
                while batch := inbox.recv(MAX_DATAGRAM):  # empty when it was shut down, and all is read
                    publisher.publish(batch)
                    if (now := time.monotonic()) >= check_at:
                        check_at = now + VIEWERS_SECONDS
                        if has_few_descriptors(LAST_DESCRIPTORS):
                            raise Refused(f"fewer than {LAST_DESCRIPTORS} file descriptors are free (ulimit -n)")
            finally:
                with self._lock:
                    self._inbox = None
                remove_socket(path, inode)

    def close(self) -> None:
        """Publish what has arrived, and end."""
        with self._lock:
            self._is_over = True
            if self._inbox is not None:
                with contextlib.suppress(OSError):
                    self._inbox.shutdown(socket.SHUT_RD)
        self._thread.join(MAX_JOIN_SECONDS)
