import { decidersFor } from '../auth/rights.ts';
import type { ActionDetail, Answers, NewAction } from '../catalog/action-index.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { TurnStart } from '../core/history.ts';
import type { ActionRequired, LogEntry, PendingCall } from '../core/records.ts';
import { jsonShape } from '../lib/json-shape.ts';
import { TurnNotFound, type TurnLogReader } from './turn-log-reader.ts';

/** Longer arguments are not in the index, whose pages would otherwise have megabytes; the message has them. */
const MAX_ARGUMENTS_LENGTH = 64 * 1024;
const MAX_ARGUMENT_VALUES = 5_000;
const MAX_ARGUMENT_DEPTH = 100;

/** A longer reason is cut in the index. */
const MAX_REASON_LENGTH = 1_000;

interface ActionSources {
  catalog: Pick<Catalog, 'sessions'>;
  logs: Pick<TurnLogReader, 'message'>;
  sessionId: string;
}

/** The actions that these entries of a log ask for, with what their readers need to know of the calls. */
export async function requestedActions(entries: LogEntry[], sources: ActionSources): Promise<NewAction[]> {
  const requests = entries.flatMap(({ ordinal, record }) =>
    'calls' in record ? record.calls.map((call, index) => ({ ordinal, record, call, index })) : [],
  );
  if (requests.length === 0) return [];
  const session = await sources.catalog.sessions.get(sources.sessionId);
  // Deleted: nothing of it is indexed.
  if (!session) return [];
  const audience = decidersFor(session.subject_id);
  const actions: NewAction[] = [];
  for (const { ordinal, record, call, index } of requests) {
    const { threadId, toolCallId, needs } = call;
    actions.push({
      id: actionId(record, index),
      ordinal,
      threadId,
      toolCallId,
      kind: needs,
      requestedAt: record.at,
      audience,
      detail: await detailOf(call, sources),
    });
  }
  return actions;
}

/** How a turn's input answers the pending calls of the previous turn. */
export function answersOf({
  input,
  createdBy,
  createdAt,
}: Pick<TurnStart, 'input' | 'createdBy' | 'createdAt'>): Answers | undefined {
  const items = input.flatMap((item): Answers['items'] => {
    if (item.type === 'user.message') return [];
    const { threadId, toolCallId } = item;
    if (item.type === 'user.tool_response') return [{ threadId, toolCallId, decision: 'respond' }];
    const { status: decision, ...rest } = item.approval;
    // A reason that was moved into the blob store is left out.
    const reason = 'reason' in rest && typeof rest.reason === 'string' ? rest.reason : undefined;
    return [{ threadId, toolCallId, decision, ...(reason && { reason: reason.slice(0, MAX_REASON_LENGTH) }) }];
  });
  return items.length > 0 ? { by: createdBy, at: createdAt, items } : undefined;
}

/** The id of an action derives from the id of its record, so that every reader of the log finds the same one. */
function actionId({ id }: Pick<ActionRequired, 'id'>, index: number): string {
  return `act_${id.slice(id.indexOf('_') + 1)}_${index}`;
}

async function detailOf({ source }: PendingCall, { logs, sessionId }: ActionSources): Promise<ActionDetail> {
  const call = (await messageOf(source, { logs, sessionId }))?.toolCalls[source.index];
  // An operator has deleted the turn of the message.
  if (!call) return { tool: { server: null, name: '' } };
  const { info } = call;
  const parsed = parsedArguments(call.arguments);
  return {
    tool: { server: info.type === 'mcp' ? info.serverName : null, name: info.name },
    ...(parsed !== undefined && { arguments: parsed }),
  };
}

async function messageOf(
  { turnId, messageId }: PendingCall['source'],
  { logs, sessionId }: Pick<ActionSources, 'logs' | 'sessionId'>,
) {
  try {
    return await logs.message({ sessionId, turnId, messageId });
  } catch (error) {
    if (error instanceof TurnNotFound) return undefined;
    throw error;
  }
}

/** The arguments that a model wrote; undefined if they are too large or not JSON. */
function parsedArguments(text: string): unknown {
  if (text.trim() === '') return {};
  if (text.length > MAX_ARGUMENTS_LENGTH) return undefined;
  const { depth, values } = jsonShape(text);
  if (depth > MAX_ARGUMENT_DEPTH || values > MAX_ARGUMENT_VALUES) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
