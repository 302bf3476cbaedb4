"""The tools of MCP servers that code may call: `from mcptools.<server>.<tool> import run, Params`."""


class ToolRunnerError(Exception):
    """A call has failed, or could not be made."""


class ApprovalRejectedError(ToolRunnerError):
    """The call was denied. It was not executed."""


class ApprovalTimeoutError(ToolRunnerError):
    """The call was not decided in time. It was not executed."""


class UnknownOutcomeError(ToolRunnerError):
    """The call was started, and may or may not have taken effect."""
