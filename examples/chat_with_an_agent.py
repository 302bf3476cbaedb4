"""Talks to an agent through the Sessions API: a message that is streamed, and the approval of a tool call.

It uses the unmodified SDK: pip install truefoundry-gateway-sdk==0.4.2. EVERTURN_URL (default http://127.0.0.1:8080)
names the server; EVERTURN_KEY is needed only if it has keys.
"""

import os

from truefoundry_gateway_sdk.agents import AgentSessionClient
from truefoundry_gateway_sdk.types import ApprovalAllow, UserMessage, UserToolApprovalEvent

client = AgentSessionClient(
    base_url=os.environ.get("EVERTURN_URL", "http://127.0.0.1:8080"),
    api_key=os.environ.get("EVERTURN_KEY", "none"),
)
session = client.create_session(agent_name="demo")


def run(input):
    """Runs a turn, prints the model's text as it arrives, and returns the state in which the turn has ended."""
    turn = session.prepare_turn(input=input)
    for item in turn.execute():
        if item.event.type == "model.message.delta":
            print(item.event.content or "", end="", flush=True)
    print()
    return turn.state


state = run([UserMessage(content="note: water the plants")])
approvals = [
    UserToolApprovalEvent(thread_id=action.thread_id, tool_call_id=call.id, approval=ApprovalAllow())
    for action in state.required_actions
    for call in action.tool_calls
]
print(f"[approval] allowing {len(approvals)} call(s)")
print(f"[turn] {run(approvals).status}")
