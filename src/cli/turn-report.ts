import type { Client } from '@temporalio/client';
import type { Catalog } from '../catalog/catalog.ts';
import type { TurnRow } from '../catalog/schema.ts';
import { endStatus, type OutcomeStatus, type LogEntry } from '../core/records.ts';
import { TurnNotFound, type TurnLogReader } from '../engine/turn-log-reader.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { describeExecution, type Execution, type PendingActivity } from '../temporal/describe-workflow.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { sessionWorkflowId, turnWorkflowId } from '../core/temporal-names.ts';
import { errorMessage } from '../lib/errors.ts';

/** All that can be known of a turn. */
export interface TurnReport {
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  /** `asked`: nobody has confirmed that it has become a turn. `unknown`: those who know can't be asked, or have lost it. */
  state: 'asked' | 'running' | 'unknown' | OutcomeStatus;
  /** How much of the log is in the archive: up to this ordinal, and whether that is all. */
  archive: { through: number; complete: boolean };
  /** The turn's workflow; absent if Temporal has none, or can't be asked. */
  workflow?: Execution;
  /** Whether another turn has followed: what waited on this one has been answered. */
  isFollowed: boolean;
  log: LogEntry[];
  waitsFor: Wait[];
  /** What is out of order, for a person to read. */
  problems: string[];
}

/** Something that has to happen before the turn goes on. */
export interface Wait {
  for: 'model' | 'tools' | 'tool' | 'activity' | 'worker' | 'approval' | 'response';
  /** The tool call. */
  toolCallId?: string;
  /** The tool. */
  tool?: string;
  since?: string;
  activity?: PendingActivity;
}

export interface ReportSources {
  catalog: Catalog;
  logs: TurnLogReader;
  history: TurnHistory;
  /** Undefined: there is no Temporal to ask. */
  client: Client | undefined;
}

/** More failures than a worker on its way out explains. */
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

/** Null: Temporal has no such workflow. Undefined: it can't be asked. */
async function execution(
  client: Client,
  workflowId: string,
  problems: string[],
): Promise<Execution | null | undefined> {
  try {
    return (await describeExecution(client, workflowId)) ?? null;
  } catch (error) {
    if (!isTemporalUnavailable(error)) throw error;
    problems.push(`Temporal can not be asked now: ${errorMessage(error)}`);
    return undefined;
  }
}

/** As much as there is: what can't be read is a problem of the turn, not of the report. */
async function readLog(
  turnId: string,
  row: TurnRow | undefined,
  { client, logs }: ReportSources,
  problems: string[],
): Promise<LogEntry[]> {
  const log: LogEntry[] = [];
  if (!client && row?.archived !== 1) {
    problems.push('its log is not in the archive, and no Temporal runs here that has it: start the server');
    return log;
  }
  try {
    for await (const entries of logs.read(turnId)) log.push(...entries);
  } catch (error) {
    if (error instanceof TurnNotFound) return log;
    problems.push(`the log can not be read to its end: ${errorMessage(error)}`);
  }
  return log;
}

/** Of a turn of whose end nothing can be read. */
function stateBeforeEnd(row: TurnRow | undefined, workflow: Execution | null | undefined): TurnReport['state'] {
  if (workflow) return workflow.status === 'running' ? 'running' : 'unknown';
  return workflow === null && row?.sequence === null ? 'asked' : 'unknown';
}

async function sessionProblems(client: Client, sessionId: string): Promise<string[]> {
  const session = await describeExecution(client, sessionWorkflowId(sessionId)).catch(() => undefined);
  return session ? taskProblems('its session', session) : [];
}

function taskProblems(whose: string, { workflowId, workflowTask }: Execution): string[] {
  if (!workflowTask || workflowTask.attempt < MANY_ATTEMPTS) return [];
  const { attempt, failure, since } = workflowTask;
  return [
    `${whose} is stuck: the workflow task of ${workflowId} has failed ${attempt - 1} times since ${since}: ${failure}`,
  ];
}

function stateProblems(
  state: TurnReport['state'],
  row: TurnRow | undefined,
  workflow: Execution | null | undefined,
): string[] {
  if (state === 'asked') return [`it was asked for at ${row?.created_at}, and its session has not begun it`];
  if (state === 'unknown' && workflow === null)
    return ['its log is not in the archive to its end, and Temporal has nothing of it any more: the rest is lost'];
  if (!row)
    return ['it is not in the index of the catalog: the next command to its session, or the archive, enters it'];
  return [];
}

interface Waiting {
  log: LogEntry[];
  workflow: Execution | null | undefined;
  isFollowed: boolean;
  sources: ReportSources;
}

async function waits(turnId: string, { log, workflow, isFollowed, sources }: Waiting): Promise<Wait[]> {
  const last = log.at(-1)?.record;
  const tools = namesOf(log);
  if (last?.kind === 'turn.done') {
    if (isFollowed || last.end.status !== 'done') return [];
    return last.end.requiredActions.flatMap(({ calls, at: since }) =>
      calls.map(({ toolCallId, needs }) => ({ for: needs, toolCallId, ...named(tools, toolCallId), since })),
    );
  }
  if (workflow?.status !== 'running') return [];
  const calls = await runningCalls(turnId, sources);
  for (const [id, name] of await namesBefore(log, sources)) if (!tools.has(id)) tools.set(id, name);
  const pending = workflow.pendingActivities.map((activity): Wait => {
    const call = calls.get(activity.activityId);
    const what = WAITS[activity.name] ?? 'activity';
    const since = activity.startedAt ?? activity.scheduledAt;
    return { for: what, ...(call && { toolCallId: call, ...named(tools, call) }), ...(since && { since }), activity };
  });
  const { workflowTask } = workflow;
  return workflowTask
    ? [...pending, { for: 'worker', ...(workflowTask.since && { since: workflowTask.since }) }]
    : pending;
}

const WAITS: Record<string, Wait['for']> = { callModel: 'model', callTool: 'tool', connectTools: 'tools' };

/** The tools of the calls in a log. */
function namesOf(log: LogEntry[]): Map<string, string> {
  const messages = log.flatMap(({ record }) => (record.kind === 'model.message' ? [record] : []));
  return new Map(messages.flatMap(({ toolCalls }) => toolCalls.map(({ id, name }) => [id, name] as const)));
}

/** A call that was approved stands in the log of the turn before. */
async function namesBefore(log: LogEntry[], { logs }: ReportSources): Promise<Map<string, string>> {
  const created = log[0]?.record;
  const previous = created?.kind === 'turn.created' ? created.previousTurnId : null;
  return previous === null ? new Map() : namesOf(await logs.all(previous).catch(() => []));
}

function named(tools: Map<string, string>, toolCallId: string): { tool?: string } {
  const tool = tools.get(toolCallId);
  return tool === undefined ? {} : { tool };
}

/** The tool calls that are under way, by the ids of their activities. */
async function runningCalls(turnId: string, { history }: ReportSources): Promise<Map<string, string>> {
  const calls = new Map<string, string>();
  for await (const { events } of history.read(turnId)) {
    for (const event of events) {
      if (event.type !== 'scheduled' || event.activity.name !== 'callTool' || event.activityId === undefined) continue;
      const { toolCallId } = event.activity.input;
      calls.set(event.activityId, toolCallId);
    }
  }
  return calls;
}
