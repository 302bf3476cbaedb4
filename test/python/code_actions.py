"""Answers the approvals of code, and of a tool that it calls, through the unmodified public SDK; prints what it saw."""

import json
import sys

from truefoundry_gateway_sdk.agents import AgentSessionClient, is_event_delta, merge_event_delta
from truefoundry_gateway_sdk.types import ApprovalAllow, UserMessage, UserToolApprovalEvent

base_url, agent = sys.argv[1:3]
client = AgentSessionClient(base_url=base_url, api_key="any", timeout=60)
session = client.create_session(agent_name=agent)
seen = {"turns": []}
threads = {"main": "main"}


def shown(event):
    """The SDK's own type of an event, its thread, and what it says."""
    if event.type == "thread.created":
        threads[event.thread_id] = "code"
        says = [event.title, threads[event.parent.thread_id], event.parent.tool_call_id]
    elif event.type == "model.message":
        says = event.content or [call.function.name for call in event.tool_calls]
    elif event.type == "tool.approval_required":
        says = [call.id for call in event.tool_calls]
    elif event.type == "tool.response":
        says = [event.tool_call_id, event.content]
    elif event.type == "thread.done":
        says = [event.state.status, event.state.output.content]
    else:
        says = None
    return [type(event).__name__, threads.get(getattr(event, "thread_id", None)), says]


def run(turn_input):
    """Runs a turn. Returns what it asks about."""
    turn = session.prepare_turn(input=turn_input)
    events = {}
    for item in turn.execute():
        if is_event_delta(item.event):
            merge_event_delta(events[item.event.id], item.event)
        else:
            events[item.event.id] = item.event
    listed = [event.id for event in turn.list_events(limit=2)]
    assert sorted(listed) == sorted(list(events)[1:-1]), listed
    seen["turns"].append([shown(event) for event in list(events.values())[1:-1] if event.type != "mcp.initialize"])
    return turn.state


def allowed(state):
    return [
        UserToolApprovalEvent(thread_id=action.thread_id, tool_call_id=call.id, approval=ApprovalAllow())
        for action in state.required_actions
        for call in action.tool_calls
    ]


asks_for_code = run([UserMessage(content="go")])
asks_for_tool = run(allowed(asks_for_code))
state = run(allowed(asks_for_tool))
seen["outputs"] = [asks_for_code.output, asks_for_tool.output, state.output.content]
print(json.dumps(seen))
