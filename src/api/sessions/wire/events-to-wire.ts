import type { Reader } from '../../../auth/rights.ts';
import { sequenceNumber } from '../../../core/cursor.ts';
import type {
  ConnectedAccount,
  ContextCompacted,
  LogRecord,
  McpInitialized,
  RefreshRequired,
  SubAgent,
  ThreadCreated,
  ThreadDone,
  ToolDecided,
  ToolkitRefreshed,
  ToolResponse,
  TurnCreated,
  TurnDone,
  TurnPaused,
  UserSteered,
} from '../../../core/records.ts';
import { truncateMiddle } from '../../../core/text.ts';
import { responseText } from '../../../core/tool-records.ts';
import type { SessionEvent } from './events.ts';
import { MAX_TEXT_BYTES, inputToWire, objectOf, textsOf, fitting, contentToWire, fileUrl } from './input-to-wire.ts';
import { shortened, messageToWire, outputJson } from './messages-to-wire.ts';
import { actionToWire } from './required-actions-to-wire.ts';
import { toolsOf } from '../../../agents/client-toolkits.ts';
import type { Bare, NoFields } from './no-fields.ts';
import { subjectToWire } from './subject-to-wire.ts';
import { activitiesToWire } from './activities-to-wire.ts';
import type { View } from './view.ts';
import { runningState, stateToWire } from './turn-state-to-wire.ts';

/** A durable record as clients see it: one event, folded. */
export function toWire(record: LogRecord, reader: Reader, view: View = 'default'): SessionEvent {
  return { ...eventOf(record, reader), ...activitiesToWire(record, view) };
}

function eventOf(record: LogRecord, reader: Reader): SessionEvent {
  switch (record.kind) {
    case 'turn.created':
      return turnCreatedToWire(record);
    case 'model.message':
      return messageToWire(record);
    case 'tool.response':
      return toolResponseToWire(record);
    case 'mcp.initialize':
      return mcpInitializeToWire(record, reader);
    case 'thread.created':
      return threadCreatedToWire(record);
    case 'thread.done':
      return threadDoneToWire(record);
    case 'tool.approval_required':
    case 'tool.response_required':
    case 'mcp.auth_required':
      return actionToWire(record, reader);
    case 'tool.decided':
      return toolDecidedToWire(record);
    case 'toolkit.refresh_required':
      return refreshRequiredToWire(record);
    case 'toolkit.refreshed':
      return toolkitRefreshedToWire(record);
    case 'turn.paused':
    case 'turn.resumed':
      return pauseToWire(record);
    case 'user.steered':
      return steeredToWire(record);
    case 'context.compacted':
      return compactedToWire(record);
    case 'turn.done':
      return turnDoneToWire(record, reader);
  }
}

/** The text of a result; one that was cut ends with the address of the whole. */
function contentOf(record: ToolResponse): string {
  const text = responseText(record);
  if (!record.fullText) return text;
  const { name, sessionId } = record.fullText;
  return `${text}\n[${name}: GET ${fileUrl(record.fullText, sessionId)}]`;
}

function turnCreatedToWire(record: Bare<TurnCreated>): SessionEvent {
  // The conversation is that of a run: this API has no runs.
  const { kind: type, id, at, turnId, sessionId, previousTurnId, createdBy, input, ...hidden } = record;
  const { queued, specHash: _, conversation: __, isRun: ___, isLost: ____, begunAt: _____, ...rest } = hidden;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    turn_id: turnId,
    previous_turn_id: previousTurnId,
    input: inputToWire(input, sessionId),
    state: runningState(queued?.position),
    created_by: subjectToWire(createdBy),
  };
}

function toolResponseToWire(record: Bare<ToolResponse>): SessionEvent {
  // `contentOf` renders content and full text, the content names the files, and the found tools are for the model.
  const { files: _, foundTools: __, fullText: ___, content: ____, noResult: _____, ...own } = record;
  const {
    isGiven: ______,
    isReused: _______,
    error: ________,
    answerHash: _________,
    connection: __________,
    structuredContent: ___________,
    ...shown
  } = own;
  const { kind: type, id, at, threadId, toolCallId, outcome, fromThread, by, arguments: executed, ...rest } = shown;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_call_id: toolCallId,
    // The thread of a sub-agent has its answer.
    content: fromThread === undefined ? contentOf(record) : '',
    outcome,
    ...(executed !== undefined && { arguments: objectOf(executed) }),
    ...(by && { by: subjectToWire(by) }),
  };
}

function mcpInitializeToWire(record: Bare<McpInitialized>, { isOwner }: Reader): SessionEvent {
  const { kind: type, id, at, threadId, servers, unavailable = [], ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    unavailable,
    mcp_servers: servers.map(({ id, name, sessionId, transport, warnings, account, ...rest }) => {
      rest satisfies NoFields;
      // Clients accept two values only: stdio is shown as the one that is not the deprecated transport.
      const transportType = transport === 'sse' ? 'sse' : 'streamable-http';
      const connection = isOwner && account && connectionToWire(account);
      return {
        id,
        name,
        session_id: sessionId,
        transport_type: transportType,
        ...(warnings && { warnings }),
        ...(connection && { connection }),
      };
    }),
    content: servers.map(({ name, sessionId }) => ({ mcp_server_name: name, session_id: sessionId })),
  };
}

function connectionToWire({ grantId: id, account, issuer, since, ...rest }: ConnectedAccount) {
  rest satisfies NoFields;
  return { id, account, issuer, created_at: since };
}

function threadCreatedToWire({ kind: type, id, at, thread, input, ...rest }: Bare<ThreadCreated>): SessionEvent {
  rest satisfies NoFields;
  const { threadId, title, parent, agent, model, ...internal } = thread;
  // How the server runs it.
  const {
    depth: _,
    specHash: __,
    isRegistered: ___,
    draftRoles: ____,
    hasServers: _____,
    iterations: ______,
    ...more
  } = internal;
  more satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    title,
    parent: parentToWire(parent),
    agent_info: {
      type: 'dynamic',
      name: title,
      input: truncateMiddle(
        input,
        MAX_TEXT_BYTES,
        (n) => `[${n} characters left out here; the sub-agent received them]`,
      ),
      ...(model !== undefined && { model }),
      ...(agent !== undefined && { agent }),
    },
  };
}

function threadDoneToWire(record: Bare<ThreadDone>): SessionEvent {
  const { kind: type, id, at, threadId, title, parent, end, output, ...rest } = record;
  rest satisfies NoFields;
  const thread = { type, id, created_at: at, thread_id: threadId, title, parent: parentToWire(parent) };
  if (end.status === 'error') {
    const { status, message } = end;
    return { ...thread, state: { status, error: message }, status, message };
  }
  const { status } = end;
  if (!output) throw new Error(`the end of thread ${threadId} has no output`);
  const shown = shortened(output, MAX_TEXT_BYTES / 2);
  return { ...thread, state: { status, output: shown, ...outputJson(output) }, status, output: shown };
}

function parentToWire({ threadId, toolCallId, ...rest }: SubAgent['parent']): {
  thread_id: string;
  tool_call_id: string;
} {
  rest satisfies NoFields;
  return { thread_id: threadId, tool_call_id: toolCallId };
}

function turnDoneToWire({ kind: type, id, ...state }: Bare<TurnDone>, reader: Reader): SessionEvent {
  return { type, id, created_at: state.at, thread_id: null, state: stateToWire(state, reader) };
}

function toolDecidedToWire(record: Bare<ToolDecided>): SessionEvent {
  const { kind: type, id, at, threadId, toolCallId, decision, ...how } = record;
  const { by, reason, edited, isRemembered, remaining, ...rest } = how;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    tool_call_id: toolCallId,
    decision,
    ...(by && { by: subjectToWire(by) }),
    ...(reason && { reason }),
    ...(edited && { arguments: objectOf(edited.arguments) }),
    ...(isRemembered && { remembered: isRemembered }),
    remaining,
  };
}

function refreshRequiredToWire(record: Bare<RefreshRequired>): SessionEvent {
  const { kind: type, id, at, toolkits, messageId: _, ...rest } = record;
  rest satisfies NoFields;
  return { type, id, created_at: at, thread_id: null, toolkits };
}

function toolkitRefreshedToWire(record: Bare<ToolkitRefreshed>): SessionEvent {
  const { kind: type, id, at, by, toolkit, tools, systemPrompt: _, messageId: __, hash: ___, ...rest } = record;
  rest satisfies NoFields;
  const names = toolsOf(tools).map(({ name }) => name);
  return { type, id, created_at: at, thread_id: null, by: subjectToWire(by), toolkit, tools: names };
}

function steeredToWire(record: Bare<UserSteered>): SessionEvent {
  const { kind: type, id, at, by, content, sessionId, commandId: _, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    by: subjectToWire(by),
    content: contentToWire(content, fitting(textsOf(content)), sessionId),
  };
}

function pauseToWire(record: Bare<TurnPaused>): SessionEvent {
  const { kind: type, id, at, reason, by, budget, isHidden: _, ...rest } = record;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: null,
    reason,
    ...(by && { by: subjectToWire(by) }),
    ...(budget && { budget }),
  };
}

function compactedToWire(record: Bare<ContextCompacted>): SessionEvent {
  // The metrics of the turn have the usage, and the found tools are for the model.
  const { foundTools: _, usage: __, isShown: ___, connections: ____, ...shown } = record;
  const { kind: type, id, at, threadId, through, summary, tokensBefore, tokensAfter, ...rest } = shown;
  rest satisfies NoFields;
  return {
    type,
    id,
    created_at: at,
    thread_id: threadId,
    through: sequenceNumber({ ordinal: through, frame: 0 }),
    summary: summary ?? null,
    tokens_before: tokensBefore,
    tokens_after: tokensAfter,
  };
}
