import type { Client } from '@temporalio/client';
import type { Catalog } from '../features/catalog.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { LogEntry } from '../core/records/log.ts';
import { endStatus, type OutcomeStatus } from '../core/records/turn.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { describeExecution, type WorkflowExecution, type DescribedActivity } from '../temporal/describe-workflow.ts';
import { sessionWorkflowId, turnWorkflowId } from '../core/temporal-names.ts';
import { errorMessage } from '../lib/errors.ts';

/** Everything that the stores contain of a turn. */
export interface TurnReport {
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  /** `requested`: no session has confirmed it. `unknown`: the store of the state is unavailable or has lost it. */
  state: 'requested' | 'running' | 'unknown' | OutcomeStatus;
  /** The last archived ordinal, and whether the archived log is complete. */
  archive: { through: number; complete: boolean };
  /** The turn's workflow; absent if Temporal has none or is unavailable. */
  workflow?: WorkflowExecution;
  /** Whether another turn has followed, which has answered the pending calls of this one. */
  isFollowed: boolean;
  log: LogEntry[];
  waitsFor: Wait[];
  /** Descriptions of what is wrong, for display. */
  problems: string[];
}

/** Something that must happen before the turn continues. */
export interface Wait {
  for: 'model' | 'tools' | 'tool' | 'activity' | 'worker' | 'approval' | 'response' | 'sign_in' | 'order' | 'delegate';
  /** The tool call. */
  toolCallId?: string;
  /** The tool. */
  tool?: string;
  /** The session of the agent that works on the call. */
  sessionId?: string;
  since?: string;
  activity?: DescribedActivity;
}

interface ReportSources {
  catalog: Catalog;
  logs: TurnLogReader;
  /** Undefined if no Temporal is running. */
  client: Client | undefined;
}

/** More attempts than a worker that was stopping explains. */
const MANY_ATTEMPTS = 3;

/** @throws TurnNotFound */
export async function reportTurn(turnId: string, sources: ReportSources): Promise<TurnReport> {
  const { catalog, client } = sources;
  const problems: string[] = [];
  const row = await catalog.turns.get(turnId);
  const workflow = client && (await execution(client, turnWorkflowId(turnId), problems));
  if (!row && !workflow) throw new TurnNotFound(turnId);
  const log = await readLog(turnId, row, sources, problems);
  const [first] = log;
  const last = log.at(-1);
  const created = first?.record.kind === 'turn.created' ? first.record : undefined;
  const done = last?.record.kind === 'turn.done' ? last.record : undefined;
  const sessionId = created?.sessionId ?? row?.session_id ?? '';
  const state = done ? endStatus(done.end) : stateBeforeEnd(row, workflow);
  if (client && state !== 'done') problems.push(...(await sessionProblems(client, sessionId)));
  if (workflow) problems.push(...taskProblems('the turn', workflow));
  const isFollowed = await catalog.turns.isFollowed(turnId);
  return {
    turnId,
    sessionId,
    previousTurnId: created?.previousTurnId ?? row?.previous_turn_id ?? null,
    state,
    archive: { through: row?.archived_through ?? 0, complete: row?.archived === 1 },
    ...(workflow && { workflow }),
    isFollowed,
    log,
    waitsFor: await waits(turnId, { log, workflow, isFollowed, sources }),
    problems: [...problems, ...stateProblems(state, row, workflow)],
  };
}

/** Null if Temporal has no such workflow, undefined if Temporal is unavailable. */
async function execution(
  client: Client,
  workflowId: string,
  problems: string[],
): Promise<WorkflowExecution | null | undefined> {
  try {
    return (await describeExecution(client, workflowId)) ?? null;
  } catch (error) {
    if (!isTemporalUnavailable(error)) throw error;
    problems.push(`Temporal is unavailable: ${errorMessage(error)}`);
    return undefined;
  }
}

/** Reads as much of the log as possible. An unreadable log is a problem of the turn, not a failure of the report. */
async function readLog(
  turnId: string,
  row: TurnRow | undefined,
  { client, logs }: ReportSources,
  problems: string[],
): Promise<LogEntry[]> {
  const log: LogEntry[] = [];
  if (!client && row?.archived !== 1) {
    problems.push('its log is not archived, and no Temporal is running that has it: start the server');
    return log;
  }
  try {
    for await (const entries of logs.read(turnId)) log.push(...entries);
  } catch (error) {
    if (error instanceof TurnNotFound) return log;
    problems.push(`the log cannot be read to its end: ${errorMessage(error)}`);
  }
  return log;
}

/** The state of a turn whose end is not in the log. */
function stateBeforeEnd(row: TurnRow | undefined, workflow: WorkflowExecution | null | undefined): TurnReport['state'] {
  if (workflow) return workflow.status === 'running' ? 'running' : 'unknown';
  return workflow === null && row?.sequence === null ? 'requested' : 'unknown';
}

async function sessionProblems(client: Client, sessionId: string): Promise<string[]> {
  const session = await describeExecution(client, sessionWorkflowId(sessionId)).catch(() => undefined);
  return session ? taskProblems('its session', session) : [];
}

function taskProblems(whose: string, { workflowId, workflowTask }: WorkflowExecution): string[] {
  if (!workflowTask || workflowTask.attempt < MANY_ATTEMPTS) return [];
  const { attempt, failure, since } = workflowTask;
  return [
    `${whose} is stuck: the workflow task of ${workflowId} has failed ${attempt - 1} times since ${since}: ${failure}`,
  ];
}

function stateProblems(
  state: TurnReport['state'],
  row: TurnRow | undefined,
  workflow: WorkflowExecution | null | undefined,
): string[] {
  if (state === 'requested') return [`it was requested at ${row?.created_at}, and its session has not started it`];
  if (state === 'unknown' && workflow === null)
    return ['its archived log is incomplete, and Temporal no longer has the turn: the rest is lost'];
  if (!row) return ['it is not indexed in the catalog: the next command to its session, or archiving it, adds it'];
  return [];
}

interface Waiting {
  log: LogEntry[];
  workflow: WorkflowExecution | null | undefined;
  isFollowed: boolean;
  sources: ReportSources;
}

async function waits(turnId: string, { log, workflow, isFollowed, sources }: Waiting): Promise<Wait[]> {
  const last = log.at(-1)?.record;
  const tools = namesOf(log);
  if (last?.kind === 'turn.done') {
    if (isFollowed || last.end.status !== 'done') return [];
    const { requiredActions, held = [] } = last.end;
    const asked = requiredActions.flatMap(({ kind, calls, at: since }): Wait[] =>
      kind === 'mcp.auth_required' && calls.length === 0
        ? [{ for: 'sign_in', since }]
        : calls.map(({ toolCallId, needs }) => ({ for: needs, toolCallId, ...named(tools, toolCallId), since })),
    );
    const behind = held.map(({ toolCallId, needs }): Wait => ({ for: needs, toolCallId, ...named(tools, toolCallId) }));
    return [...asked, ...behind];
  }
  if (workflow?.status !== 'running') return [];
  const { actions, openActivities } = await sources.logs.currentRun(turnId);
  const calls = new Map(openActivities.map(({ activityId, toolCallId }) => [activityId, toolCallId]));
  const waiting = (actions?.questions.waiting ?? []).map(({ needs, toolCallId, askedAt = 0 }): Wait => {
    return { for: needs, toolCallId, ...named(tools, toolCallId), since: new Date(askedAt).toISOString() };
  });
  const delegated = (actions?.delegations.started ?? []).map(({ toolCallId, sessionId }): Wait => {
    return { for: 'delegate', toolCallId, ...named(tools, toolCallId), sessionId };
  });
  for (const [id, name] of await previousNames(log, sources)) if (!tools.has(id)) tools.set(id, name);
  const pending = workflow.pendingActivities.map((activity): Wait => {
    const call = calls.get(activity.activityId);
    const what = WAITS[activity.name] ?? 'activity';
    const since = activity.startedAt ?? activity.scheduledAt;
    return { for: what, ...(call && { toolCallId: call, ...named(tools, call) }), ...(since && { since }), activity };
  });
  const { workflowTask } = workflow;
  const worker: Wait[] = workflowTask
    ? [{ for: 'worker', ...(workflowTask.since && { since: workflowTask.since }) }]
    : [];
  return [...pending, ...waiting, ...delegated, ...worker];
}

const WAITS: Record<string, Wait['for']> = { callModel: 'model', callTool: 'tool', connectTools: 'tools' };

/** The names of the tools that a log's messages call, by call id. */
function namesOf(log: LogEntry[]): Map<string, string> {
  const messages = log.flatMap(({ record }) => (record.kind === 'model.message' ? [record] : []));
  return new Map(messages.flatMap(({ toolCalls }) => toolCalls.map(({ id, name }) => [id, name] as const)));
}

/** The tools called in the previous turn's log, where a call that was approved is recorded. */
async function previousNames(log: LogEntry[], { logs }: ReportSources): Promise<Map<string, string>> {
  const created = log[0]?.record;
  const previous = created?.kind === 'turn.created' ? created.previousTurnId : null;
  return previous === null ? new Map() : namesOf(await logs.all(previous).catch(() => []));
}

function named(tools: Map<string, string>, toolCallId: string): { tool?: string } {
  const tool = tools.get(toolCallId);
  return tool === undefined ? {} : { tool };
}
