"""Packages that `pip` installs in a sandbox: they are in its home, because the environment of Python cannot be written."""

import os
import sysconfig


def packages_folder(home):
    """Where their modules are. Kernels have it in `sys.path`."""
    prefix = _prefix(home)
    scheme = sysconfig.get_preferred_scheme("prefix")
    return sysconfig.get_path("purelib", scheme, {"base": prefix, "platbase": prefix, "installed_base": prefix})


def environment(home):
    """The variables by which commands install them there and find them."""
    return {
        "PIP_PREFIX": _prefix(home),
        "PYTHONPATH": packages_folder(home),
        # Nobody is asked, and nothing is looked up that was not asked for.
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # The interpreter of an operator may be the system's.
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
    }


def _prefix(home):
    return os.path.join(home, ".local")
