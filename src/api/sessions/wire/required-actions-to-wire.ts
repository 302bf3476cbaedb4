import type { Reader } from '../../../auth/rights.ts';
import type {
  ActionRequired,
  ApprovalPolicy,
  AuthRequired,
  Elicitation,
  PendingCall,
  PendingElicitation,
  RequiredAction,
  ServerSignIn,
} from '../../../core/records.ts';
import { ASKED_AGAIN } from '../../../core/tool-records.ts';
import type { WireElicitation, WireRequiredAction } from './events.ts';
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
    tool_calls: calls.map((call) => callRef(call, at)),
  };
}

/** `at`: when the log asked for the answer. */
function callRef(call: PendingCall, at: string) {
  const {
    toolCallId,
    source,
    policy,
    elicitation,
    threadId: _,
    needs: __,
    signInId: ___,
    edited: ____,
    requesters: _____,
    onReplaced: ______,
    answered: _______,
    isAskedAgain,
    unknownOutcome,
    ...rest
  } = call;
  rest satisfies NoFields;
  return {
    id: toolCallId,
    source_event_id: source.messageId,
    event_id: source.messageId,
    ...(policy && { policy: policyToWire(policy, at) }),
    ...(elicitation && { elicitation: elicitationToWire(elicitation) }),
    ...(unknownOutcome !== undefined && { unknown_outcome: unknownOutcome }),
    ...(isAskedAgain && { reason: ASKED_AGAIN }),
  };
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
export function policyToWire(
  policy: ApprovalPolicy,
  at: string,
): NonNullable<WireRequiredAction['tool_calls'][number]['policy']> {
  // What happens at the expiry is a matter of the agent, and the id one of the server.
  const { onExpiry: _, id: __, ...shown } = policy;
  const { approvers, excludeRequester, quorum, expiresInSeconds, escalate, mayEditArguments = true, ...rest } = shown;
  rest satisfies NoFields;
  const after = (seconds: number) => new Date(Date.parse(at) + seconds * 1000).toISOString();
  return {
    quorum,
    ...(approvers && { approvers }),
    ...(excludeRequester && { exclude_requester: excludeRequester }),
    ...(expiresInSeconds !== undefined && { expires_at: after(expiresInSeconds) }),
    ...(escalate && { escalates_at: after(escalate.afterSeconds) }),
    may_edit_arguments: mayEditArguments,
  };
}
