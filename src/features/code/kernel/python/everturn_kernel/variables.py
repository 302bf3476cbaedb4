"""The variables of the user as files, so that the next kernel has them. Values are pickled and unpickled here alone, behind the wall."""

import contextlib
import hashlib
import io
import json
import os
import pickle
import re
import sys
import types

import cloudpickle

_MAX_BYTES = 256 * 1024 * 1024
_MAX_VARIABLES = 1_000
_MAX_NAMES = 200
_MAX_NAME = 256
#: Which file each variable is in, and which are lost. It is written last.
_INDEX = "index.json"
#: What IPython keeps for itself.
_INTERNAL = re.compile(r"_+|_i+|_i?\d+|_[di]h|_oh|_exit_code|__\w+__")


class Variables:
    """Stores the variables in a folder, each in a file, which has the name of its content."""

    def __init__(self, shell, folder):
        self._shell = shell
        self._folder = folder
        self._slow = set()
        self._outcome = None

    def run(self, task):
        """Does a task, `save` or `restore`, which can be interrupted."""
        self._outcome = None
        # Code can change the folder so that nothing works in it.
        with contextlib.suppress(Exception):
            if task == "save":
                self._save()
            else:
                self._restore()

    def outcome(self):
        """Which variables the last task has kept, and which are lost. None if it has failed."""
        return self._outcome

    def _save(self):
        values = {name: value for name, value in self._shell.variables().items() if not _INTERNAL.fullmatch(name)}
        names = [name for name in values if len(name) <= _MAX_NAME]
        # Last those that were not done when the time was over.
        names.sort(key=self._slow.__contains__)
        files = {}
        room = _MAX_BYTES
        name = None
        try:
            for name in names[:_MAX_VARIABLES]:
                with _losing():
                    files[name], size = self._write(values[name], room)
                    room -= size
        except KeyboardInterrupt:
            self._slow.add(name)
        self._write_index(json.dumps(files).encode())
        self._remove_others({_INDEX, *files.values()})
        self._note(files, values)

    def _restore(self):
        with open(self._path(_INDEX), "rb") as file:
            files = json.load(file)
        left = dict(files)
        with contextlib.suppress(KeyboardInterrupt):
            # Code of a value may need others, such as modules: it is tried again as long as that helps.
            while any([self._load(name, left) for name in list(left)]):
                pass
        self._note([name for name in files if name not in left], files)

    def _load(self, name, left):
        """Unpickles a variable, if it can be. Whether it is there then."""
        with _losing(), open(self._path(left[name]), "rb") as content:
            self._shell.user_ns[name] = pickle.load(content)
            del left[name]
        return name not in left

    def _write(self, value, room):
        """Pickles a value into its file; the name of that, and its bytes."""
        temporary = self._path("new")
        with open(temporary, "wb", buffering=0) as file:
            bounded = _Bounded(file, room)
            _Pickler(bounded, pickle.HIGHEST_PROTOCOL).dump(value)
        name = bounded.hash.hexdigest()
        # A file that is there keeps its times, by which the kernel host sees that it has not changed.
        if not os.path.exists(self._path(name)):
            os.rename(temporary, self._path(name))
        return name, bounded.size

    def _write_index(self, content):
        temporary = self._path("new")
        with open(temporary, "wb") as file:
            file.write(content)
        os.rename(temporary, self._path(_INDEX))

    def _note(self, kept, names):
        lost = [name for name in names if name not in kept]
        self._outcome = {"kept": _named(kept), "keptCount": len(kept), "lost": _named(lost), "lostCount": len(lost)}

    def _remove_others(self, names):
        for name in os.listdir(self._folder):
            if name not in names:
                os.unlink(self._path(name))

    def _path(self, name):
        return os.path.join(self._folder, name)


@contextlib.contextmanager
def _losing():
    """What fails in this block, but for an interrupt, loses a variable: it cannot be pickled, unpickled, or has no room."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        """Also `SystemExit`: values run code of their own."""


class _Bounded:
    """A file that takes so many bytes, of which it makes a hash."""

    def __init__(self, file, room):
        self._file = file
        self._room = room
        self.size = 0
        self.hash = hashlib.sha256()

    def write(self, data):
        view = memoryview(data).cast("B")
        self.size += len(view)
        # Before it is written: a value of any size may come at once.
        if self.size > self._room:
            raise OverflowError("the variables have too many bytes")
        self.hash.update(view)
        while view:
            view = view[self._file.write(view) :]


class _Pickler(cloudpickle.Pickler):
    """Pickles what cells define by value, and the rest by name."""

    def reducer_override(self, obj):
        if isinstance(obj, io.TextIOWrapper):
            raise pickle.PicklingError("an open file would become a copy of its content")
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented or type(obj) is not types.FunctionType or obj.__globals__ is not _namespace():
            return reduced
        # A function of a cell sees the variables as they are when it is called, not copies of its own.
        make, (code, _, *more), (state, slots), *rest = reduced
        return _in_namespace, (make, code, *more), (state, {**slots, "__globals__": {}}), *rest


def _in_namespace(make, code, *more):
    return make(code, _namespace(), *more)


def _namespace():
    return sys.modules["__main__"].__dict__


def _named(names):
    return [name[:_MAX_NAME] for name in list(names)[:_MAX_NAMES]]
