"""What schemathesis can not know from the document."""

import json
import os
import re

import schemathesis
from hypothesis import strategies as st
from schemathesis.generation.meta import CoveragePhaseData, CoverageScenario, GenerationMode, ParameterLocation
from schemathesis.transport import requests as transport

# An empty page token is the first page.
schemathesis.openapi.format("page-token", st.just(""))


@schemathesis.hook
def filter_query(context, query):
    """Without values that are wrong only until they are sent: as text they are empty, and so none."""
    return not query or all(value == "" or text(value) != "" for value in query.values())


@schemathesis.hook
def before_call(context, case, kwargs):
    """
    A wait for what never comes lasts as long as the request allows. An id that is no segment of a path, such as one that
    a response did not have, makes a request for another path.
    """
    for name, value in (case.path_parameters or {}).items():
        if text(value) in ("", ".", ".."):
            case.path_parameters[name] = "none"
    wait = (case.query or {}).get("wait_for_seconds")
    if str(wait).isdecimal() and 1 < int(wait) <= 25:
        case.query["wait_for_seconds"] = 1


sent = set()

# The scenarios with many values for each property.
ONCE_PER_PROPERTY = (CoverageScenario.INCORRECT_TYPE, CoverageScenario.VALID_OBJECT)


@schemathesis.hook
def filter_case(context, case):
    """
    Without the requests of the coverage phase that repeat a part of another one: three quarters. With `EXAMPLES`, all are
    sent.

    Each of them differs from a valid one in one value. The bodies of many operations have parts in common, such as the
    specification of an agent or the content of a message, and many operations have parameters in common, such as those
    of pages. Each value of these would be tried in all of their places, which share one schema; it is sent in one place.
    Of the values that are of a wrong type, and of those that are valid, a property gets one each.
    """
    data = case.meta.phase.data if case.meta else None
    if "EXAMPLES" in os.environ or not isinstance(data, CoveragePhaseData):
        return True
    mode = case.meta.generation.mode
    if data.parameter_location == ParameterLocation.BODY:
        names, part = changed_part(case.body, data)
        if data.scenario in ONCE_PER_PROPERTY:
            place = [case.operation.label, *names] if part is None else [names[-1], *part]
            return is_first((data.scenario, *place))
    elif data.parameter_location == ParameterLocation.QUERY and mode == GenerationMode.NEGATIVE:
        part = {data.parameter: (case.query or {}).get(data.parameter)}
    else:
        part = None
    # The end of a description says what the value is, and its beginning where.
    value = re.split(": |-> ", data.description)[-1]
    return part is None or is_first((mode, data.scenario, value, json.dumps(part, default=str)))


def is_first(key):
    is_new = key not in sent
    sent.add(key)
    return is_new


def changed_part(body, data):
    """
    The names of properties that lead to the value for which the body was made, and the innermost object that contains it,
    or `None` if that is the body.
    """
    steps = (data.location or "").split("/")
    names = [name for keyword, name in zip(steps, steps[1:]) if keyword == "properties"]
    names = names or re.findall("'([^']*)' value", data.description)
    part, value = None, body
    for depth, name in enumerate(names):
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict) or name not in value:
            return names[:depth], part
        part, value = (value if depth else None), value[name]
    return names, part


# Seconds of silence after which a stream has been read: streams stay open, and a heartbeat comes every 15 seconds.
SILENCE = 1

iterate = transport._iter_event_stream


def until_silent(response):
    response.raw._fp.fp.raw._sock.settimeout(SILENCE)
    return iterate(response)


transport._iter_event_stream = until_silent


def text(value):
    if isinstance(value, (list, tuple)):
        return "".join(text(item) for item in value)
    if isinstance(value, dict):
        return "".join(map(text, value.values()))
    return "" if value is None else str(value)
