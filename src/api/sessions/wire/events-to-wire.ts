import type { Reader } from '../../../auth/rights.ts';
import { sequenceNumber } from '../../../core/cursor.ts';
import type { LogRecord } from '../../../core/records/log.ts';
import type { ToolResponse } from '../../../core/records/results.ts';
import type { SavedFiles } from '../../../core/records/sandbox.ts';
import type { ConnectedAccount, McpInitialized } from '../../../core/records/servers.ts';
import type { ThreadCreated, ThreadDone } from '../../../core/records/threads.ts';
import { truncateMiddle } from '../../../core/text.ts';
import { responseText } from '../../../core/tool-records.ts';
import { fieldsToWire, recordToWire } from '../../http/wire-fields.ts';
import {
  contextCompacted,
  execution,
  refreshRequired,
  savedFile,
  threadCreated,
  threadDone,
  threadParent,
  toolDecided,
  toolkitRefreshed,
  toolResponse,
  turnCreated,
  turnDone,
  turnPaused,
  turnResumed,
  usedConnection,
  usedServer,
  userSteered,
  type SessionEvent,
} from './events.ts';
import { MAX_TEXT_BYTES, inputToWire, objectOf, textsOf, fitting, contentToWire, fileUrl } from './input-to-wire.ts';
import { shortened, messageToWire, outputJson } from './messages-to-wire.ts';
import { actionToWire } from './required-actions-to-wire.ts';
import { toolsOf } from '../../../features/run-support/client-toolkits.ts';
import type { Bare, NoFields } from './no-fields.ts';
import { subjectToWire } from './subject.ts';
import { activitiesToWire } from './activities-to-wire.ts';
import type { View } from './view.ts';
import { runningState, stateToWire } from './turn-state-to-wire.ts';

/** A durable record as clients see it: one event, folded. */
export function toWire({ activities, ...record }: LogRecord, reader: Reader, view: View = 'default'): SessionEvent {
  return { ...eventOf(record, reader), ...activitiesToWire(activities, view) };
}

function eventOf(record: Bare<LogRecord>, reader: Reader): SessionEvent {
  switch (record.kind) {
    case 'turn.created': {
      const { sessionId, createdBy, input, queued, ...fields } = record;
      const shown = {
        ...fields,
        threadId: null,
        input: inputToWire(input, sessionId),
        state: runningState(queued?.position),
        createdBy: subjectToWire(createdBy),
      };
      // Only runs have a conversation, and they are not part of this API.
      return recordToWire(turnCreated, shown, 'specHash', 'conversation', 'isRun', 'isLost', 'begunAt');
    }
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
    case 'tool.decided': {
      const { by, reason, edited, isRemembered, ...fields } = record;
      return recordToWire(toolDecided, {
        ...fields,
        by: by && subjectToWire(by),
        reason: reason || undefined,
        arguments: edited && objectOf(edited.arguments),
        remembered: isRemembered,
      });
    }
    case 'toolkit.refresh_required':
      return recordToWire(refreshRequired, { ...record, threadId: null }, 'messageId');
    case 'toolkit.refreshed': {
      const tools = toolsOf(record.tools).map(({ name }) => name);
      const shown = { ...record, threadId: null, by: subjectToWire(record.by), tools };
      return recordToWire(toolkitRefreshed, shown, 'systemPrompt', 'messageId', 'hash');
    }
    case 'turn.paused':
    case 'turn.resumed': {
      const schema = record.kind === 'turn.paused' ? turnPaused : turnResumed;
      const by = record.by && subjectToWire(record.by);
      return recordToWire(schema, { ...record, threadId: null, by }, 'isHidden');
    }
    case 'user.steered': {
      const content = contentToWire(record.content, fitting(textsOf(record.content)), record.sessionId);
      const shown = { ...record, threadId: null, by: subjectToWire(record.by), content };
      return recordToWire(userSteered, shown, 'sessionId', 'commandId');
    }
    case 'context.compacted': {
      const { through: ordinal, summary = null, ...fields } = record;
      const shown = { ...fields, through: sequenceNumber({ ordinal, frame: 0 }), summary };
      // The metrics of the turn have the usage, and the found tools are for the model.
      return recordToWire(contextCompacted, shown, 'foundTools', 'usage', 'isShown', 'connections');
    }
    case 'feature.event': {
      const { kind: _, type, id, at, threadId, data, isHidden: __, ...rest } = record;
      rest satisfies NoFields;
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the feature has made it for its schema
      return { type, id, created_at: at, thread_id: threadId, ...data } as SessionEvent;
    }
    case 'turn.done': {
      const { kind, id, at, ...end } = record;
      return recordToWire(turnDone, { kind, id, at, threadId: null, state: stateToWire({ at, ...end }, reader) });
    }
  }
}

/** The text of a result; a text that was cut ends with the address of the whole text. */
function contentOf(record: ToolResponse): string {
  const text = responseText(record);
  if (!record.fullText) return text;
  const { name, sessionId } = record.fullText;
  return `${text}\n[${name}: GET ${fileUrl(record.fullText, sessionId)}]`;
}

function toolResponseToWire(record: Bare<ToolResponse>): SessionEvent {
  const { fromThread, by, arguments: executed, execution: run, files: _, saved, ...fields } = record;
  const shown = {
    ...fields,
    // The output of a sub-agent is in the events of its thread.
    content: fromThread === undefined ? contentOf(record) : '',
    arguments: executed === undefined ? undefined : objectOf(executed),
    by: by && subjectToWire(by),
    execution: run && fieldsToWire(execution, run),
    files: saved && savedFilesToWire(saved),
  };
  // `contentOf` renders the full text; the content names the files for the model, which also gets the found tools.
  const rendered = ['foundTools', 'fullText', 'structuredContent', 'noResult', 'error'] as const;
  return recordToWire(toolResponse, shown, ...rendered, 'isGiven', 'isReused', 'answerHash', 'connection', 'byRule');
}

function savedFilesToWire({ sandboxId, files }: SavedFiles) {
  return files.map((file) => fieldsToWire(savedFile, { ...file, url: workspaceFileUrl(sandboxId, file.path) }));
}

/** The path of this server under which a client gets a file of a workspace. */
function workspaceFileUrl(sandboxId: string, path: string): string {
  return `/v1/agents/sandbox/${sandboxId}/file?${new URLSearchParams({ path }).toString()}`;
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
    mcp_servers: servers.map(({ transport, account, ...fields }) =>
      fieldsToWire(usedServer, {
        ...fields,
        // Clients accept two values only: stdio is shown as the one that is not the deprecated transport.
        transportType: transport === 'sse' ? 'sse' : 'streamable-http',
        connection: isOwner && account ? connectionToWire(account) : undefined,
      }),
    ),
    content: servers.map(({ name, sessionId }) => ({ mcp_server_name: name, session_id: sessionId })),
  };
}

function connectionToWire({ grantId: id, since: createdAt, ...fields }: ConnectedAccount) {
  return fieldsToWire(usedConnection, { id, createdAt, ...fields });
}

function threadCreatedToWire({ thread, input, ...fields }: Bare<ThreadCreated>): SessionEvent {
  const { agent, model = thread.code && 'python', ...subAgent } = thread;
  const shown = truncateMiddle(
    input,
    MAX_TEXT_BYTES,
    (n) => `[${n} characters left out here; the sub-agent received them]`,
  );
  const event = {
    ...fields,
    ...subAgent,
    parent: fieldsToWire(threadParent, thread.parent),
    agentInfo: { type: 'dynamic' as const, name: thread.title, input: shown, model, agent },
  };
  // How the server executes the thread.
  const rights = ['specHash', 'isRegistered', 'draftRoles'] as const;
  const bounds = ['depth', 'hasServers', 'iterations', 'isTask', 'maxTasks', 'endsOnDenial'] as const;
  // The kind of the record is the event's type.
  const { kind: _, ...created } = recordToWire(threadCreated, event, ...rights, ...bounds, 'code');
  return thread.code ? { ...created, kind: 'code' } : created;
}

function threadDoneToWire({ parent, end, output, ...fields }: Bare<ThreadDone>): SessionEvent {
  const thread = { ...fields, parent: fieldsToWire(threadParent, parent) };
  if (end.status === 'error') {
    const { status, message } = end;
    return recordToWire(threadDone, { ...thread, state: { status, error: message }, status, message });
  }
  const { status } = end;
  if (!output) throw new Error(`the end of thread ${fields.threadId} has no output`);
  const shown = shortened(output, MAX_TEXT_BYTES / 2);
  const state = { status, output: shown, ...outputJson(output) };
  return recordToWire(threadDone, { ...thread, state, status, output: shown });
}
