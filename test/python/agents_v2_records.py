"""Uses the unmodified SDK of the Agents API v2 on what a session has left; prints what it saw as JSON. Arguments: URL, key."""

import base64
import json
import sys

from hai_agents import Client
from hai_agents.core.api_error import ApiError
from hai_agents.errors import UnprocessableEntityError

url, key = sys.argv[1:3]
client = Client(base_url=url, api_key=key)
seen = {}

agent = {"name": "shown", "description": "for the test", "environments": [], "model": "shown"}
png = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
image = png + b"x" * 300_000
message = {
    "type": "user_message",
    "message": "What is it?",
    "images": ["data:image/png;base64," + base64.b64encode(image).decode()],
}
result = client.run_session(agent=agent, messages=[message])
sessions, id = client.sessions, result.id

newest = sessions.list_session_events(id, sort="-timestamp", size=1)
answers = sessions.list_session_events(id, type="MetricsUpdateEvent")
seen["events"] = [newest.items[0].type, newest.total, [event.type for event in answers.items], answers.total]

sources = [part for part in json.dumps([e.dict() for e in result.events], default=str).split('"') if "/resources/" in part]
bucket, resource = sources[0].split("/resources/")[1].split("/", 1)
seen["resource"] = b"".join(sessions.get_session_resource(id, bucket, resource)) == image

sessions.submit_session_feedback(id, success=True, message="Right.")
sessions.submit_event_feedback(id, 0, success=False)
try:
    sessions.submit_event_feedback(id, 1000, success=False)
except ApiError as error:
    seen["missing_event"] = error.status_code

seen["share"] = sessions.share_session(id).share_url == f"/share/api/v1/trajectories/{id}"
sessions.unshare_session(id)

try:
    client.session_files.list_files(id)
except UnprocessableEntityError as error:
    seen["files"] = [one.type for one in error.body.detail]

print(json.dumps(seen, default=str))
