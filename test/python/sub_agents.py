"""Follows sub-agents through the unmodified public SDK, and prints what it saw as one line of JSON."""

import json
import sys

from truefoundry_gateway_sdk.agents import AgentSessionClient, is_event_delta, merge_event_delta
from truefoundry_gateway_sdk.types import ApprovalAllow, UserMessage, UserToolApprovalEvent

base_url, agent = sys.argv[1:3]
client = AgentSessionClient(base_url=base_url, api_key="key-of-ann", timeout=30)
session = client.create_session(agent_name=agent)
seen = {}


def run(turn_input):
    """The folded events of a turn, and its state."""
    turn = session.prepare_turn(input=turn_input)
    events = {}
    for item in turn.execute():
        if is_event_delta(item.event):
            merge_event_delta(events[item.event.id], item.event)
        else:
            events[item.event.id] = item.event
    listed = [event.id for event in turn.list_events(limit=3)]
    assert sorted(listed) == sorted(list(events)[1:-1]), listed
    return list(events.values()), turn.state


def shown(event):
    """What a thread's event says."""
    if event.type == "thread.created":
        return [event.title, event.parent.tool_call_id, event.agent_info.name, event.agent_info.input]
    if event.type == "thread.done":
        return [event.title, event.state.status, event.state.output.content]
    if event.type == "tool.response":
        return [event.tool_call_id, event.content]
    return [getattr(event, "content", None)]


events, state = run([UserMessage(content="delegate")])
[created] = [event for event in events if event.type == "thread.created"]
seen["types"] = [[event.type, event.thread_id == created.thread_id] for event in events]
seen["created"] = shown(created)
[action] = state.required_actions
seen["required"] = [action.type, action.thread_id == created.thread_id, [call.id for call in action.tool_calls]]

decision = UserToolApprovalEvent(thread_id=action.thread_id, tool_call_id="w1", approval=ApprovalAllow())
events, state = run([decision])
seen["resumed"] = [[event.type, shown(event)] for event in events[1:-1] if event.type != "mcp.initialize"]
seen["state"] = [state.status, state.output.content]
print(json.dumps(seen))
