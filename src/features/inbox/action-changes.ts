import { decidersFor, ownerGroup, raisersFor } from '../../auth/rights.ts';
import { isOfRun } from '../../catalog/session-types.ts';
import type { Action, ActionChange, ActionDecision, ActionDetail, Answers, NewAction } from './action-index.ts';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import { actionKind } from '../../core/actions.ts';
import { expiresAt } from '../../core/call.ts';
import type { TurnStart } from '../../core/history.ts';
import type { BudgetReport } from '../../core/budget.ts';
import { ulidIn } from '../../core/ids.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { LogEntry, LogRecord } from '../../core/records/log.ts';
import type {
  ActionRequired,
  AnswerableCall,
  EditedArguments,
  PendingCall,
  RequiredAction,
} from '../../core/records/pending.ts';
import type { AuthRequired, ServerSignIn } from '../../core/records/servers.ts';
import type { TurnPaused } from '../../core/records/turn.ts';
import { isoTime } from '../../core/text.ts';
import { callKey } from '../../core/tool-records.ts';
import type { Answer } from '../../core/turn-command.ts';
import { parsedJson } from '../../lib/json.ts';
import { jsonShape } from '../../lib/json-shape.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';

/** Larger arguments are not stored in the index, so that its pages stay small: see `wholeArguments`. */
const IN_INDEX: ArgumentLimits = { length: 64 * 1024, values: 5_000 };
const WHOLE: ArgumentLimits = { length: Infinity, values: Infinity };
const MAX_ARGUMENT_DEPTH = 100;

interface ArgumentLimits {
  /** The length of the JSON text. */
  length: number;
  values: number;
}

/** A longer reason is cut in the index. */
const MAX_REASON_LENGTH = 1_000;

interface ActionSources {
  catalog: Pick<KernelCatalog, 'sessions'>;
  logs: Pick<TurnLogReader, 'message'>;
  sessionId: string;
}

/** The changes of actions that these log entries contain, with the details that the index stores. */
export async function actionChanges(entries: LogEntry[], sources: ActionSources): Promise<ActionChange[]> {
  const changes: ActionChange[] = [];
  let subjectId: string | undefined;
  for (const { ordinal, record } of entries) {
    if (isRequest(record)) {
      subjectId ??= await ownerOf(sources);
      if (subjectId === undefined) return [];
      for (const action of await actionsOf(record, subjectId, sources)) {
        changes.push({ ordinal, type: 'requested', action });
      }
    } else if (record.kind === 'tool.decided') {
      const { decision, by, at, remaining, reason, edited, ...call } = record;
      if (decision === 'escalated') {
        changes.push({ ordinal, type: 'escalated', key: callKey(call) });
      } else {
        const detail = { ...(by && { by }), ...shown(reason, edited) };
        changes.push({
          ordinal,
          type: 'decided',
          key: callKey(call),
          remaining,
          decision: { decision, at, ...detail },
        });
      }
    } else if (record.kind === 'tool.response') {
      const { at, by, outcome, ...call } = record;
      const answered = { at, ...(by && { by }), isResponse: outcome === 'succeeded' };
      changes.push({ ordinal, type: 'answered', key: callKey(call), ...answered });
    } else if (record.kind === 'turn.resumed' && record.budget) {
      const { at, by } = record;
      const decision: ActionDecision = { ...(by && { by }), decision: 'allow', at };
      changes.push({ ordinal, type: 'decided', key: BUDGET_KEY, remaining: 0, decision });
    } else if (record.kind === 'turn.done') {
      const pending = record.end.status === 'done' ? record.end.requiredActions.flatMap(keysOf) : [];
      changes.push({ ordinal, type: 'ended', pending });
    }
  }
  return changes;
}

/** The session's owner; undefined if its actions are not indexed: it was deleted, or has a run with its own API. */
async function ownerOf({ catalog, sessionId }: ActionSources): Promise<string | undefined> {
  const session = await catalog.sessions.get(sessionId);
  return session && !isOfRun(session) ? session.subject_id : undefined;
}

/** How a turn's input answers the pending calls of the previous turn. */
export function answersOf({
  input,
  createdBy,
  createdAt,
}: Pick<TurnStart, 'input' | 'createdBy' | 'createdAt'>): Answers | undefined {
  const items = input.flatMap((item): Answers['items'] => {
    if (item.type === 'user.message') return [];
    const { threadId, toolCallId, by } = item;
    return [{ threadId, toolCallId, ...decisionOf(item), ...(by && { isKept: true }) }];
  });
  return items.length > 0 ? { by: createdBy, at: createdAt, items } : undefined;
}

/** An answer in the form of the index. */
export function decisionOf(answer: Answer): Pick<ActionDecision, 'decision' | 'reason' | 'arguments'> {
  if (answer.type === 'user.tool_response') return { decision: 'respond' };
  const { approval } = answer;
  const detail = approval.status === 'deny' ? shown(approval.reason) : shown(undefined, approval.edited);
  return { decision: approval.status, ...detail };
}

/** The reason and the edited arguments, for the index. Texts that were moved into the blob store are left out. */
function shown(reason: unknown, edited?: EditedArguments): Pick<ActionDecision, 'reason' | 'arguments'> {
  const text = typeof reason === 'string' ? reason.slice(0, MAX_REASON_LENGTH) : '';
  return { ...(text && { reason: text }), ...(edited && { arguments: inlineArguments(edited) }) };
}

function inlineArguments({ arguments: json }: { arguments: unknown }): Record<string, unknown> | null {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object: see `editedArguments`
  return typeof json === 'string' ? (JSON.parse(json) as Record<string, unknown>) : null;
}

/** The key of the action that requests a higher budget; a turn has one at a time. */
const BUDGET_KEY = 'budget';

/** A turn that is paused because its budget was reached. */
type BudgetPaused = TurnPaused & { kind: 'turn.paused'; budget: BudgetReport };

function isRequest(record: LogRecord): record is RequiredAction | BudgetPaused {
  const { kind } = record;
  if (kind === 'turn.paused') return record.budget !== undefined;
  return kind === 'tool.approval_required' || kind === 'tool.response_required' || kind === 'mcp.auth_required';
}

/** The keys of the actions that a record requests. */
function keysOf(record: RequiredAction): string[] {
  return record.kind === 'mcp.auth_required'
    ? record.servers.map(({ signInId }) => signInId)
    : record.calls.map(callKey);
}

async function actionsOf(
  record: RequiredAction | BudgetPaused,
  subjectId: string,
  sources: ActionSources,
): Promise<NewAction[]> {
  if (record.kind === 'turn.paused') return [budgetOf(record, subjectId)];
  if (record.kind === 'mcp.auth_required') {
    return record.servers.map((server, index) => signInOf(record, index, server, subjectId));
  }
  return Promise.all(record.calls.map((call, index) => actionOf(record, index, call, subjectId, sources)));
}

/** Only the owner of the session can sign in. Several records of a turn may request the same sign-in. */
function signInOf(record: AuthRequired, index: number, server: ServerSignIn, subjectId: string): NewAction {
  const { name, authUrl, signInId } = server;
  return newAction(record, index, {
    key: signInId,
    thread_id: record.threadId,
    kind: 'sign_in',
    audience: [ownerGroup(subjectId)],
    detail: { tool: { server: name, name: null }, authUrl },
  });
}

function budgetOf(record: BudgetPaused, subjectId: string): NewAction {
  return newAction(record, 0, {
    key: BUDGET_KEY,
    thread_id: ROOT_THREAD,
    kind: 'budget',
    audience: raisersFor(subjectId, record.budget.scope),
    detail: { tool: { server: null, name: null }, budget: record.budget },
  });
}

/** An action whose id derives from that of its record, so that every reader of the log derives the same id. */
function newAction(
  { id, at }: RequiredAction | BudgetPaused,
  index: number,
  action: Pick<NewAction, 'key' | 'thread_id' | 'kind' | 'audience' | 'detail'> & Partial<NewAction>,
): NewAction {
  return {
    id: `act_${ulidIn(id)}_${index}`,
    tool_call_id: null,
    requested_at: at,
    expires_at: null,
    escalatedTo: [],
    ...action,
  };
}

async function actionOf(
  record: ActionRequired,
  index: number,
  call: AnswerableCall,
  subjectId: string,
  sources: ActionSources,
): Promise<NewAction> {
  const expiry = expiresAt({ ...call, askedAt: Date.parse(record.at) });
  return newAction(record, index, {
    key: callKey(call),
    thread_id: call.threadId,
    tool_call_id: call.toolCallId,
    kind: actionKind(call),
    expires_at: expiry === undefined ? null : isoTime(expiry),
    ...decidersFor(call, subjectId),
    detail: await detailOf(call, sources),
  });
}

async function detailOf({ source, policy, isAskedAgain }: PendingCall, sources: ActionSources): Promise<ActionDetail> {
  const { turnId, messageId, index } = source;
  const call = (await messageOf(source, sources))?.toolCalls[index];
  // Undefined: an operator has deleted the turn of the message.
  const { info, arguments: text = '' } = call ?? {};
  const parsed = parsedArguments(text, IN_INDEX);
  return {
    tool: { server: info?.type === 'mcp' ? info.serverName : null, name: info?.name ?? '' },
    ...(parsed === undefined ? { source: { turnId, messageId, index } } : { arguments: parsed }),
    ...(policy && { policy }),
    ...(isAskedAgain && { isAskedAgain }),
  };
}

function messageOf(
  { turnId, messageId }: NonNullable<ActionDetail['source']>,
  { logs, sessionId }: Pick<ActionSources, 'logs' | 'sessionId'>,
) {
  return unlessNotFound(logs.message({ sessionId, turnId, messageId }));
}

/** The arguments of an action's call, of any size; undefined if they are not JSON, or too deep to be read. */
export async function wholeArguments(
  { session_id: sessionId, detail }: Pick<Action, 'session_id' | 'detail'>,
  logs: ActionSources['logs'],
): Promise<unknown> {
  if (!detail?.source) return detail?.arguments;
  const message = await messageOf(detail.source, { logs, sessionId });
  return parsedArguments(message?.toolCalls[detail.source.index]?.arguments ?? '', WHOLE);
}

/** The arguments that a model wrote; undefined if they are too large, too deep or not JSON. */
function parsedArguments(text: string, limits: ArgumentLimits): unknown {
  if (text.trim() === '') return {};
  if (text.length > limits.length) return undefined;
  const { depth, values } = jsonShape(text);
  if (depth > MAX_ARGUMENT_DEPTH || values > limits.values) return undefined;
  return parsedJson(text);
}
