"""Uses Everturn through the unmodified public SDK, and prints what it saw as one line of JSON."""

import json
import sys

from truefoundry_gateway_sdk import TrueFoundryGateway
from truefoundry_gateway_sdk.agents import AgentSessionClient, is_event_delta, merge_event_delta
from truefoundry_gateway_sdk.core.api_error import ApiError
from truefoundry_gateway_sdk.types import UserMessage, UserToolApprovalEvent, ApprovalAllow, ApprovalDeny

base_url, agent = sys.argv[1:3]
client = AgentSessionClient(base_url=base_url, api_key="key-of-ann", timeout=30)
raw = TrueFoundryGateway(base_url=base_url, api_key="key-of-ann", timeout=30)
seen = {}


def message(text):
    return [UserMessage(content=text)]


def fold(stream):
    events = {}
    numbers = []
    for item in stream:
        numbers.append(item.sequence_number)
        if is_event_delta(item.event):
            merge_event_delta(events[item.event.id], item.event)
        else:
            events[item.event.id] = item.event
    assert numbers == sorted(set(numbers)), numbers
    return list(events.values()), numbers


def comparable(events):
    """Without the number, which is of a connection and stays with the event that a client holds, and without the fields
    that the SDK does not know: it takes these from a whole message, but not from a delta."""
    without = {"sequence_number": 0, "provider": None, "model": None}
    return [event.dict() | without for event in events]


session = client.create_session(agent_name=agent)
seen["session"] = {"agent": session.agent_name, "owner": session.created_by_subject.subject_slug}

# A streamed turn, and the same turn again from a cursor in its middle.
turn = session.prepare_turn(input=message("stream"))
events, numbers = fold(turn.execute())
seen["stream"] = [event.type for event in events]
seen["text"] = next(event.content for event in events if event.type == "model.message")
seen["state"] = turn.state.status
again, _ = fold(turn.stream())
assert comparable(again) == comparable(events)
resumed, _ = fold(turn.stream(after_sequence_number=numbers[2]))
# What was not durable at the cursor is sent again: the message, and possibly the record before it.
seen["resumed"] = [event.type for event in resumed if event.type != "mcp.initialize"]
held, number = {}, None
while "turn.done" not in [event.type for event in held.values()]:
    item = next(iter(turn.stream(after_sequence_number=number)))
    if is_event_delta(item.event):
        merge_event_delta(held[item.event.id], item.event)
    else:
        held[item.event.id] = item.event
    number = item.sequence_number
assert comparable(held.values()) == comparable(events)
seen["oneByOne"] = next(event.content for event in held.values() if event.type == "model.message")
listed = list(turn.list_events(limit=1))
seen["listed"] = [event.type for event in listed]
assert [e.id for e in listed] == [e.id for e in events[1:-1]]

# Without streaming: the SDK polls.
quiet = session.prepare_turn(input=message("quiet"))
state = quiet.execute(stream=False)
seen["quiet"] = [state.status, state.output.content, state.metrics.total_tokens]

# An approval and a denial.
paused = session.prepare_turn(input=message("write"))
state = paused.execute(stream=False)
[action] = state.required_actions
seen["required"] = [action.type, [call.id for call in action.tool_calls], state.output]
decisions = [
    UserToolApprovalEvent(thread_id="main", tool_call_id="w1", approval=ApprovalAllow()),
    UserToolApprovalEvent(thread_id="main", tool_call_id="w2", approval=ApprovalDeny(reason="not that")),
]
after, _ = fold(session.prepare_turn(input=decisions).execute())
seen["answers"] = [[event.tool_call_id, event.content] for event in after if event.type == "tool.response"]

# Lists, page by page.
seen["turns"] = [t.state.status for t in session.list_turns(limit=1)]
seen["events"] = [item.event.type for item in session.list_events(limit=3)][:3]
seen["fetched"] = client.get_session(session.id).title
seen["turn"] = session.get_turn(quiet.id).previous_turn_id == turn.id

# A fork.
fork = session.prepare_turn(input=message("fork"), previous_turn_id=turn.id)
fold(fork.execute())
seen["fork"] = fork.previous_turn_id == turn.id

# Drafts.
draft = raw.private.agents.private.draft_sessions.create(agent_spec={"model": {"name": "drafted"}}).data
seen["draft"] = [draft.type, raw.private.agents.private.draft_sessions.get(draft.id).data.agent_spec.model.name]

# Sessions, page by page.
sessions = [client.create_session(agent_name=agent).id for _ in range(3)]
listed = [s.id for s in client.list_sessions(agent_name=agent, limit=2)]
assert listed == [*reversed(sessions), session.id], listed
drafts = raw.private.agents.private.draft_sessions
owned = raw.private.agents.private.list_owned_sessions(limit=3, order="asc")
found = raw.private.agents.private.search_sessions(session_id=draft.id)
seen["lists"] = [[d.id == draft.id for d in drafts.list()], [s.type for s in owned], [s.type for s in found]]
after = client.list_sessions(agent_name=agent, start_timestamp=session.created_at, end_timestamp=session.created_at)
seen["window"] = [s.id == session.id for s in after]

# Cancel is idempotent.
session.cancel()
session.cancel()


def failure(call):
    try:
        call()
    except ApiError as error:
        return [type(error).__name__, error.status_code]
    return None


wrong = AgentSessionClient(base_url=base_url, api_key="wrong", max_retries=0)
seen["errors"] = {
    "unknown agent": failure(lambda: client.create_session(agent_name="nobody")),
    "unknown session": failure(lambda: client.get_session("nope")),
    "unknown turn": failure(lambda: session.get_turn("nope")),
    "bad key": failure(lambda: wrong.get_session(session.id)),
    "unknown previous": failure(
        lambda: list(session.prepare_turn(input=message("x"), previous_turn_id="nope").execute())
    ),
    "bad page token": failure(lambda: session.list_turns(page_token="nope")),
}
print(json.dumps(seen))
