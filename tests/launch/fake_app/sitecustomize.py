"""Put a dashboard in the place of the real one that does what TRAINMON_FAKE_APP says: these tests are not its tests."""

import os
import sys
import threading
import types


class TrainmonApp:
    def __init__(self, feed, *, title, stop_training, **options):
        self.feed, self.title, self.stop_training = feed, title, stop_training
        self.over = threading.Event()
        self.result = None

    def exit(self, result):
        self.result = result
        self.over.set()

    def call_from_thread(self, function, *arguments):
        function(*arguments)

    def run(self):
        what = os.environ["TRAINMON_FAKE_APP"]
        print("shown", self.title, flush=True)
        if what == "crash":
            raise ValueError("no such widget")
        if what == "detach":
            return "detach"
        if what == "stop":
            self.stop_training(lambda line: print("said", line, flush=True))
        if what == "wait":
            self.over.wait()
            return self.result
        self.feed.start(lambda view: self.over.set() if view.report.outcome.state != "running" else None)
        self.over.wait()
        self.feed.stop()
        return "ended"


module = types.ModuleType("monitor.tui.app")
module.TrainmonApp = TrainmonApp
sys.modules["monitor.tui.app"] = module
