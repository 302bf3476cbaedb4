"""The tools that were saved: `from gentools.<category>.<name>.api import run`."""
