import type { z } from 'zod';
import type { Reader } from '../../../auth/rights.ts';
import type { ApprovalPolicy } from '../../../core/records/calls.ts';
import type {
  ActionRequired,
  Elicitation,
  PendingCall,
  PendingElicitation,
  RequiredAction,
} from '../../../core/records/pending.ts';
import type { AuthRequired, ServerSignIn } from '../../../core/records/servers.ts';
import { ASKED_AGAIN } from '../../../core/tool-records.ts';
import { addSeconds } from '../../../core/text.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import { codeActionToWire } from './code-action-to-wire.ts';
import { MAX_TEXT_BYTES } from './input-to-wire.ts';
import { approvalPolicy, toolCallRef, type WireElicitation, type WireRequiredAction } from './required-actions.ts';
import type { Bare, NoFields } from './no-fields.ts';

export function actionToWire(record: RequiredAction, reader: Reader): WireRequiredAction {
  return record.kind === 'mcp.auth_required' ? authRequiredToWire(record, reader) : callsToWire(record);
}

function authRequiredToWire(record: Bare<AuthRequired>, { isOwner }: Reader): WireRequiredAction {
  const { kind: type, id, at, threadId, servers, calls, ...rest } = record;
  rest satisfies NoFields;
  // The browser that opens the link decides whose account the session uses. Clients require the field.
  const linkOf = ({ authUrl }: ServerSignIn): string => (isOwner ? authUrl : '');
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    mcp_servers: servers.map((server) => {
      const { id, name, authUrl: _, signInId: __, ...rest } = server;
      rest satisfies NoFields;
      return { id, name, auth_url: linkOf(server) };
    }),
    servers: servers.map((server) => ({
      mcp_server_name: server.name,
      auth_url: linkOf(server),
      thread_ids: [threadId],
    })),
    tool_calls: calls.map((call) => callRef(call, at)),
  };
}

function callsToWire({ kind: type, id, at, threadId, calls, ...rest }: Bare<ActionRequired>): WireRequiredAction {
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_calls: calls.map((call) => callRef(call, at, MAX_TEXT_BYTES / calls.length)),
  };
}

/** `at`: when the log asked for the answer. */
function callRef(call: PendingCall, at: string, maxBytes?: number) {
  const { toolCallId: id, source, policy, elicitation, isAskedAgain, action: _, ...fields } = call;
  const shown = {
    ...fields,
    id,
    sourceEventId: source.messageId,
    eventId: source.messageId,
    policy: policy && policyToWire(policy, at),
    elicitation: elicitation && elicitationToWire(elicitation),
    reason: isAskedAgain && ASKED_AGAIN,
    action: maxBytes === undefined ? undefined : codeActionToWire(call, at, maxBytes),
  };
  const internal = ['threadId', 'needs', 'signInId', 'edited', 'requesters', 'onReplaced', 'answered'] as const;
  return fieldsToWire(toolCallRef, shown, ...internal);
}

function elicitationToWire(elicitation: PendingElicitation): WireElicitation {
  const { question, state: _, keptOpenBy: __, ...rest } = elicitation;
  rest satisfies NoFields;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the activity `callTool`
  const asked = JSON.parse(question) as Elicitation;
  if (asked.mode === 'url') return asked;
  const { mode, message, requestedSchema } = asked;
  return { mode, message, requested_schema: requestedSchema };
}

/** `at`: when the log asked for the approval. */
export function policyToWire(policy: ApprovalPolicy, at: string): z.infer<typeof approvalPolicy> {
  const { expiresInSeconds, escalate, mayEditArguments = true, ...fields } = policy;
  const shown = {
    ...fields,
    expiresAt: expiresInSeconds === undefined ? undefined : addSeconds(at, expiresInSeconds),
    escalatesAt: escalate && addSeconds(at, escalate.afterSeconds),
    mayEditArguments,
  };
  // The effect of the expiry and the id are internal: they concern the agent and the server.
  return fieldsToWire(approvalPolicy, shown, 'onExpiry', 'id');
}
