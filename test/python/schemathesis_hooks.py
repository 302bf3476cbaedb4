"""What schemathesis can not know from the document."""

import schemathesis
from hypothesis import strategies as st

# An empty page token is the first page.
schemathesis.openapi.format("page-token", st.just(""))


@schemathesis.hook
def filter_query(context, query):
    """Without values that are wrong only until they are sent: as text they are empty, and so none."""
    return not query or all(value == "" or text(value) != "" for value in query.values())


def text(value):
    if isinstance(value, (list, tuple)):
        return "".join(text(item) for item in value)
    if isinstance(value, dict):
        return "".join(map(text, value.values()))
    return "" if value is None else str(value)
