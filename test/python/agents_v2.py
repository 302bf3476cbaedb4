"""Uses the unmodified SDK of the Agents API v2; prints what it saw as JSON. Arguments: URL, key."""

import json
import sys
import time

from hai_agents import Client
from hai_agents.tools import tool
from pydantic import BaseModel

url, key = sys.argv[1:3]
client = Client(base_url=url, api_key=key)
seen = {}


def agent(name, **more):
    return {"name": name, "description": "for the test", "environments": [], "model": name, **more}


result = client.run_session(agent=agent("plain"), messages="Which orders are late?")
seen["run"] = [result.status, result.answer, [event.type for event in result.events], result.next_from_index]


class Order(BaseModel):
    number: int


result = client.run_session(agent=agent("structured"), messages="The latest?", answer_schema=Order)
seen["structured"] = [result.status, result.answer.number]


@tool
def lookup(number: int) -> dict:
    """Looks up an order."""
    return {"late": number == 17}


result = client.run_session(agent=agent("tools"), messages="Is 17 late?", tools=[lookup])
seen["tools"] = [result.status, result.answer]

session = client.start_session(agent=agent("chatty"), messages="Hello", idle_timeout_s=600)
first = session.wait_for_completion()
session.send_message("And then?")
second = session.wait_for_completion()
seen["chat"] = [first.status, first.answer, second.status, second.answer]
session.cancel()
seen["cancelled"] = session.status().status

# Lists follow the ends of turns within a moment.
deadline = time.monotonic() + 30
while True:
    listed = client.sessions.list_sessions(status=["completed", "interrupted"], sort=["created_at"], size=2)
    if listed.total == 4 or time.monotonic() > deadline:
        break
    time.sleep(0.05)
seen["list"] = [listed.total, listed.page, [item.status for item in listed.items], listed.items[0].first_message.message]
found = client.sessions.list_sessions(search="THE END", created_after=listed.items[0].created_at)
seen["search"] = [item.id == session.id for item in found.items]
quota = client.sessions.get_session_quota()
seen["quota"] = [quota.scope, quota.limit, quota.available <= quota.limit]
seen["tokens"] = client.quota.get_token_quota().limit

print(json.dumps(seen, default=str))
