"""One read of an address, and how long the options allow it to take."""

import threading
import time

import numpy as np

import echotrain as et

ALLOWED = (et.errors.DataIOError, et.errors.CorruptDataError, et.errors.UnsupportedError, et.errors.NotFoundError)
LONGEST_PAUSE_S = 30
SLACK_S = 5  # beyond what is promised: for a busy machine


def longest_pauses_s(retries):
    """What the pauses before so many retries may take, if the server does not ask for other ones."""
    return sum(min(LONGEST_PAUSE_S, 0.3 * 2 ** i) for i in range(retries))


def stage_of(address):
    if address.endswith(".csv"):
        return et.stages.csv(address, columns="x:f32,name:text")
    if address.endswith(".ets"):
        return et.stages.fast_shard(address, shuffle=False)
    return et.stages.webdataset(address) if ".tar" in address else et.stages.text_lines(address)


class Reading:
    """What one read of an address gave: samples, or the error that it ended with."""

    def __init__(self, address, limit_s, **options):
        self.samples, self.error, self.bad, began = [], None, 0, time.monotonic()
        self.late = False
        try:
            with et.Pipeline([stage_of(address)], epochs=1, **options) as pipeline:
                def give_up():
                    self.late = True
                    pipeline.cancel()
                watch = threading.Timer(limit_s, give_up)
                watch.start()
                try:
                    for sample in pipeline:
                        self.samples.append(tuple((name, bytes(np.asarray(sample[name]))) for name in sorted(sample)))
                    self.bad = pipeline.stats()["bad_records"]
                finally:
                    watch.cancel()
        except et.EchoTrainError as error:
            self.error = error
        self.seconds = time.monotonic() - began
        self.late |= self.seconds > limit_s
