"""Manages webhooks with the SDK of the Agents API v2; prints what it saw as JSON. Arguments: URL, key, receiver."""

import json
import sys

from hai_agents import Client
from hai_agents.core.api_error import ApiError

url, key, receiver = sys.argv[1:4]
webhooks = Client(base_url=url, api_key=key).webhooks
seen = {}

created = webhooks.create_webhook(url=receiver)
seen["created"] = [created.enabled_events, created.description, created.disabled, created.last_delivery_status]
page = webhooks.list_webhooks(page=1, size=50, sort=["-created_at"])
seen["listed"] = [page.total, page.page, page.items[0].consecutive_failures]
seen["events"] = [event.type for event in webhooks.list_webhook_events()]
updated = webhooks.update_webhook(
    created.id, enabled_events=["session.status_updated"], description="Mine", disabled=True
)
assert updated == webhooks.get_webhook(created.id)
seen["updated"] = [updated.enabled_events, updated.description, updated.disabled]
seen["rotated"] = webhooks.rotate_webhook_secret(created.id).secret != created.secret
seen["pings"] = [webhooks.ping_webhook(created.id).response_status for _ in range(2)]
webhooks.delete_webhook(created.id)
try:
    webhooks.get_webhook(created.id)
except ApiError as error:
    seen["deleted"] = error.status_code

print(json.dumps(seen))
