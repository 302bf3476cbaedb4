"""Verifies messages with the SDK of the Agents API v2; prints what each says, or why it is refused. Argument: JSON."""

import json
import sys

from hai_agents.webhook_verification import WebhookEventData, WebhookVerificationError, verify_webhook

seen = []
for case in json.loads(sys.argv[1]):
    try:
        event = verify_webhook(case["body"], case["signature"], case["timestamp"], case["secret"])
        data = WebhookEventData.model_validate(event.data)
        seen.append([data.session_id, data.status, data.previous_status])
    except WebhookVerificationError as error:
        seen.append(str(error))

print(json.dumps(seen))
