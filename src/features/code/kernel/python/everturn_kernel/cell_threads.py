"""Which threads are of the running cell."""

import threading


class CellThreads:
    """Tells the threads of the running cell from those that earlier cells have started."""

    def __init__(self):
        self._earlier = {}

    def begin(self):
        """A cell begins: all threads that exist are of earlier ones, but the main thread."""
        # By the identity of the objects, which are kept: Linux gives the id of a thread that has ended to the next one.
        self._earlier = {id(one): one for one in threading.enumerate() if one is not threading.main_thread()}

    def has_current(self):
        """Whether the calling thread is of the running cell."""
        return id(threading.current_thread()) not in self._earlier
