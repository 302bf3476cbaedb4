"""Uses the catalog with the unmodified SDK of the Agents API v2; prints what it saw as JSON. Arguments: URL, key."""

import json
import sys

from hai_agents import Client
from hai_agents.core.api_error import ApiError
from hai_agents.environments import CreateEnvironmentRequest_Web, UpdateEnvironmentRequestBody_Desktop
from hai_agents.errors import UnprocessableEntityError
from hai_agents.tools import tool
from pydantic import BaseModel

url, key = sys.argv[1:3]
client = Client(base_url=url, api_key=key)
seen = {}


def failure(call):
    try:
        call()
    except UnprocessableEntityError as error:
        return [error.status_code, error.body.detail[0].loc]
    except ApiError as error:
        return [error.status_code, error.body["detail"][0]["type"]]


# Skills
refunds = dict(name="acme/refunds", description="For refunds", body="Up to 50 EUR.")
created = client.skills.create_skill(**refunds, url_pattern="refund")
updated = client.skills.update_skill(created.name, **refunds)
patched = client.skills.patch_skill(created.name, body="Up to 80 EUR.")
listed = client.skills.list_skills(search="REFUND", sort=["name"], size=5)
seen["skills"] = [
    created.url_pattern,
    updated.url_pattern,
    patched.body,
    client.skills.get_skill("acme/refunds").body,
    [listed.total, listed.page, listed.items[0].name],
    failure(lambda: client.skills.create_skill(**refunds)),
    failure(lambda: client.skills.create_skill(name="h/mine", description="x", body="x")),
    failure(lambda: client.skills.get_skill("acme/nothing")),
    failure(lambda: client.skills.create_skill(name="No Name", description="x", body="x")),
]

# Environments
shop = client.environments.create_environment(
    request=CreateEnvironmentRequest_Web(id="shop", start_url="https://shop.example.com")
)
patched = client.environments.patch_environment("shop", headless=True)
desktop = client.environments.create_environment(request={"kind": "desktop", "id": "office", "host": "cloud"})
updated = client.environments.update_environment(
    "office", request=UpdateEnvironmentRequestBody_Desktop(id="office", host="user_device")
)
seen["environments"] = [
    [type(shop).__name__, shop.mode.width, patched.headless, patched.start_url],
    [updated.kind, updated.host],
    [item.id for item in client.environments.list_environments(kind="web").items],
    failure(lambda: client.environments.get_environment("nowhere")),
    client.environments.delete_environment("office"),
    client.environments.list_environments().total,
]

# Agents
fields = dict(description="A desk", environments=[], model="desk", skills=["acme/refunds"])
created = client.agents.create_agent(name="acme/desk", **fields, message="First")
updated = client.agents.update_agent("acme/desk", name="acme/desk", **fields, instructions="Be brief.", if_match='"1"')
patched = client.agents.patch_agent("acme/desk", description="The desk", message="Renamed")
restored = client.agents.restore_agent_revision("acme/desk", 1)
revisions = client.agents.list_agent_revisions("acme/desk").items
read = client.agents.with_raw_response.get_agent("acme/desk")
resolved = client.agents.get_agent("acme/desk", resolve=True)
seen["agents"] = [
    [created.instructions, updated.instructions, patched.description, restored.description],
    [[one.number, one.created_by, one.message, one.restored_from] for one in revisions],
    [read.headers["etag"], read.data.skills, resolved.skills[0].body],
    client.agents.get_agent("acme/desk", revision=2).instructions,
    [[one.name, one.revision] for one in client.agents.list_agents(agent_name="DESK", include="revision").items],
    failure(lambda: client.agents.patch_agent("acme/desk", description="x", if_match='"1"')),
    failure(lambda: client.agents.create_agent(name="acme/desk", **fields)),
    failure(lambda: client.agents.create_agent(name="other", description="", environments=["nowhere"])),
]


class Order(BaseModel):
    number: int
    late: bool


@tool
def lookup(number: int) -> dict:
    """Looks up an order."""
    return {"late": number == 17}


result = client.run_session(agent="acme/desk", messages="Is 17 late?", tools=[lookup], answer_schema=Order)
session = client.sessions.get_session(result.id)
seen["run"] = [result.status, result.answer.number, result.answer.late, session.request.agent.skills[0].name]
seen["refused"] = failure(
    lambda: client.start_session(agent="acme/desk", messages="x", overrides={"agent.colour": "red"})
)
client.agents.delete_agent("acme/desk")
seen["deleted"] = failure(lambda: client.run_session(agent="acme/desk", messages="x"))

print(json.dumps(seen, default=str))
