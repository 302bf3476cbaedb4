"""Uses schedules through the unmodified SDK of the Agents API v2; prints what it saw as JSON. Arguments: URL, key."""

import json
import sys

from hai_agents import Client, CronTiming, PauseSchedule, SessionRequest
from hai_agents.core.api_error import ApiError
from hai_agents.errors.unprocessable_entity_error import UnprocessableEntityError

url, key = sys.argv[1:3]
client = Client(base_url=url, api_key=key)
schedules = client.schedules
agent = {"name": "nightly", "description": "for the test", "environments": [], "model": "nightly"}
seen = {}

created = schedules.create_schedule(
    name="Late orders",
    timing=CronTiming(expression="0 9 * * 1-5", timezone="Europe/Paris"),
    session_request=SessionRequest(agent=agent, messages="Which orders are late?"),
    repeats=3,
)
seen["created"] = [created.name, created.timing.expression, created.repeats, len(created.next_run_times)]
seen["request"] = [created.session_request.agent.name, created.session_request.messages]

run = schedules.trigger_schedule(created.id)
seen["run"] = [run.status, run.triggered_manually, run.schedule_id == created.id]
result = client.session(run.session_id).wait_for_completion()
seen["result"] = [result.status, result.answer]

paused = schedules.pause_schedule(created.id, request=PauseSchedule(note="Holidays"))
seen["paused"] = [paused.paused, paused.pause_note, paused.next_run_times]
seen["paused again"] = schedules.pause_schedule(created.id).pause_note
seen["resumed"] = schedules.resume_schedule(created.id).paused

changed = schedules.update_schedule(created.id, timing=CronTiming(expression="*/5 * * * *", timezone="UTC"))
seen["changed"] = [changed.name, changed.timing.expression]
seen["read"] = schedules.get_schedule(created.id).updated_at == changed.updated_at

page = schedules.list_schedules(page=1, size=10, sort="-created_at")
seen["list"] = [[one.id == created.id for one in page.items], page.total, page.page]
runs = schedules.list_schedule_runs(created.id, sort=["-scheduled_for"])
seen["runs"] = [[one.id == run.id for one in runs.items], runs.total]

try:
    schedules.update_schedule(created.id, timing=CronTiming(expression="99 * * * *", timezone="UTC"))
except UnprocessableEntityError as error:
    seen["invalid"] = [list(one.loc) for one in error.body.detail]

schedules.delete_schedule(created.id)
try:
    schedules.get_schedule(created.id)
except ApiError as error:
    seen["deleted"] = error.status_code

print(json.dumps(seen, default=str))
