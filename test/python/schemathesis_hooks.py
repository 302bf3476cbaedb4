"""What schemathesis can not know from the document."""

import schemathesis
from hypothesis import strategies as st
from schemathesis.transport import requests as transport

# An empty page token is the first page.
schemathesis.openapi.format("page-token", st.just(""))


@schemathesis.hook
def filter_query(context, query):
    """Without values that are wrong only until they are sent: as text they are empty, and so none."""
    return not query or all(value == "" or text(value) != "" for value in query.values())


@schemathesis.hook
def before_call(context, case, kwargs):
    """A wait for what never comes lasts as long as the request allows."""
    wait = (case.query or {}).get("wait_for_seconds")
    if str(wait).isdecimal() and 1 < int(wait) <= 25:
        case.query["wait_for_seconds"] = 1


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
