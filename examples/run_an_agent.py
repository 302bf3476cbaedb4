"""Runs an agent through the Agents API v2: with a tool of its own, a further message, and a structured answer.

It uses the unmodified SDK: pip install hai-agents==1.3.0. EVERTURN_URL (default http://127.0.0.1:8080) names the
server; EVERTURN_KEY is needed only if it has keys.
"""

import os

from hai_agents import Client
from hai_agents.tools import tool
from pydantic import BaseModel

client = Client(
    base_url=os.environ.get("EVERTURN_URL", "http://127.0.0.1:8080"),
    api_key=os.environ.get("EVERTURN_KEY", "none"),
)
note_keeper = {
    "name": "note-keeper",
    "description": "Keeps notes",
    "environments": [],
    "model": "gpt-5-mini",
}


@tool
def add_note(note: str) -> str:
    """Adds a note."""
    print(f"[tool] add_note: {note}")
    return "noted"


session = client.start_session(
    agent=note_keeper,
    messages="note: water the plants",
    tools=[add_note],
    idle_timeout_s=600,
)
first = session.wait_for_completion()
print(f"[session] {first.status}: {first.answer}")

session.send_message("Thank you.")
second = session.wait_for_completion()
print(f"[session] {second.status} after {session.status().steps} steps")


class Plant(BaseModel):
    name: str


result = client.run_session(agent=note_keeper, messages="Which plant?", answer_schema=Plant)
print(f"[session] {result.status}: {type(result.answer).__name__}")
