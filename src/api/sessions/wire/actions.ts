import { z } from 'zod';
import type { Reader } from '../../../auth/rights.ts';
import { ACTION_EVENT_TYPES, ACTION_STATUSES } from '../../../catalog/outbox.ts';
import type { Action, ActionDecision } from '../../../features/inbox/action-index.ts';
import { ACTION_KINDS } from '../../../core/actions.ts';
import { ASKED_AGAIN } from '../../../core/tool-records.ts';
import { sentAs } from '../../http/event-stream.ts';
import { isJsonObject } from '../../../lib/json.ts';
import { rowToWire } from '../../http/wire-fields.ts';
import { budgetReport } from './budget.ts';
import { timestamp } from './event.ts';
import { approvalPolicy, askedAgain } from './required-actions.ts';
import { subject, subjectToWire } from './subject.ts';
import { policyToWire } from './required-actions-to-wire.ts';

/** Actions: what waits for a person or a client (`docs/approvals.md`). */

const decisionResource = z.object({
  by: subject.optional().describe('absent if time has decided'),
  decision: z.enum(['allow', 'deny', 'respond', 'expired']),
  at: timestamp,
  reason: z.string().optional(),
  arguments: z
    .record(z.string(), z.unknown())
    .nullable()
    .optional()
    .describe(
      'the edited arguments that were allowed; null if they are larger than 1 KiB: the log of the turn has them',
    ),
});

export const actionResource = z
  .object({
    id: z.string(),
    session_id: z.string(),
    turn_id: z.string().describe('the turn that waits for it'),
    agent_name: z.string().nullable(),
    thread_id: z.string(),
    tool_call_id: z.string().nullable().describe('null if no tool call waits'),
    kind: z.enum(ACTION_KINDS),
    tool: z.object({ server: z.string().nullable(), name: z.string().nullable() }),
    arguments: z
      .record(z.string(), z.unknown())
      .nullable()
      .describe(
        'null in lists and events if they are larger than 64 KiB: `GET /v1/agents/actions/{action_id}` has them',
      ),
    auth_url: z
      .string()
      .optional()
      .describe('for `sign_in`, in the inbox: where the owner of the session signs in to `tool.server`'),
    budget: budgetReport.optional().describe('for `budget`: what the turn had used when it was paused'),
    requested_at: timestamp,
    expires_at: timestamp.optional(),
    policy: approvalPolicy.optional(),
    reason: askedAgain,
    decisions: z.array(decisionResource),
    status: z
      .enum(ACTION_STATUSES)
      .describe('superseded: the conversation continued without it, or its session was closed or deleted'),
  })
  .meta({ id: 'Action' });

/** An event of `GET /v1/agents/actions/stream`. */
export const actionEvent = z
  .object({
    type: z.enum(ACTION_EVENT_TYPES),
    action: actionResource.describe('as it was after the change'),
  })
  .meta({ id: 'ActionEvent' });

/** One event of the stream of actions. */
export const serverSentActionEvent = sentAs('ActionEvent', 'the cursor after the event').meta({
  id: 'ServerSentActionEvent',
});

export type ActionResource = z.infer<typeof actionResource>;

export type WireActionEvent = z.infer<typeof actionEvent>;

export function actionToResource(action: Action, { isOwner }: Reader): ActionResource {
  const { requested_at, expires_at, detail, decisions } = action;
  return rowToWire(actionResource, {
    ...action,
    tool: detail?.tool ?? { server: null, name: '' },
    arguments: isJsonObject(detail?.arguments) ? detail.arguments : null,
    auth_url: isOwner ? detail?.authUrl : undefined,
    budget: detail?.budget,
    expires_at: expires_at ?? undefined,
    policy: detail?.policy && policyToWire(detail.policy, requested_at),
    reason: detail?.isAskedAgain && ASKED_AGAIN,
    decisions: decisions.map(decisionToWire),
  });
}

function decisionToWire({ by, ...decision }: ActionDecision): z.infer<typeof decisionResource> {
  return { ...(by && { by: subjectToWire(by) }), ...decision };
}
