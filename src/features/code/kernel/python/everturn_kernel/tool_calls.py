"""What the generated modules of tools import: the base of their models, and the calls."""

import functools
import json

from mcptools import ToolRunnerError

from .gateway import bounded

#: What the kernel host accepts.
_MAX_DEPTH = 64

_gateway = None


def use(gateway):
    """Calls of tools go through this gateway."""
    global _gateway
    _gateway = gateway


def call(tool, models, params):
    """
    Calls a tool, and waits for its result.

    :param tool: the names of its server and of itself
    :param models: of its arguments and of its result, which is None if that is text
    """
    return _result(_gateway.call(**_content(tool, models[0], params)), models[1])


async def call_async(tool, models, params):
    """The same, awaited."""
    return _result(await _gateway.call_async(**_content(tool, models[0], params)), models[1])


def __getattr__(name):
    # Not before a tool is imported: pydantic takes longer to import than all of the kernel's own modules.
    if name == "Model":
        return _model()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _model():
    from pydantic import BaseModel, ConfigDict, model_serializer

    class Model(BaseModel):
        """An object of a tool's schema."""

        model_config = ConfigDict(populate_by_name=True, protected_namespaces=(), allow_inf_nan=False)
        #: The properties that may be left out but not null: None leaves them out.
        __optional__ = frozenset()

        @model_serializer(mode="wrap")
        def _without_omitted(self, serialize):
            return {name: value for name, value in serialize(self).items() if value is not None or name not in self.__optional__}

    return Model


def _content(tool, params_model, params):
    values = params_model.model_validate(params).model_dump(mode="json", by_alias=True, exclude_unset=True)
    if _depth(values) > _MAX_DEPTH:
        raise ToolRunnerError(f"the arguments of a tool may be nested {_MAX_DEPTH} deep")
    arguments = json.dumps(values, ensure_ascii=False, allow_nan=False)
    server, name = tool
    return {"kind": "tool", "server": server, "tool": name, "arguments": bounded(arguments, "the arguments of a tool")}


def _depth(value):
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _result(answer, model):
    if model is None:
        return answer["content"]
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(model).validate_python(answer.get("structured"))
    except ValidationError as error:
        raise ToolRunnerError(f"the tool was executed, but its result does not match its output schema: {error}") from None
