import { expect } from 'vitest';
import { due, endOf, Slots, type RunState, type Work } from '../../src/core/due.ts';
import type {
  ActivityResult,
  CallModelResult,
  ResumeCellInput,
  ScheduledActivity,
  TurnContinuation,
  TurnStart,
} from '../../src/core/history.ts';
import type { LogEntry, NewRecord } from '../../src/core/records/log.ts';
import type { ModelMessage } from '../../src/core/records/message.ts';
import type { PendingCall } from '../../src/core/records/pending.ts';
import { Turn } from '../../src/core/turn.ts';
import type { TurnActions } from '../../src/core/turn-actions.ts';
import type { TurnCommand } from '../../src/core/turn-command.ts';
import { activityOf, isTold } from './logged-run.ts';
import { continuation, turnStart } from './random-turn.ts';

const AT = '2026-11-28T08:00:00.000Z';
const NOW = Date.parse(AT);

/** A run of a turn without a workflow: a test begins what is due, ends it, and ends tasks. */
export class PlayedRun {
  readonly log = new Turn();
  readonly actions: TurnActions;
  /** When tasks start: milliseconds since 1970. */
  now = NOW;
  readonly #start: TurnStart;
  #run: RunState;
  readonly #interrupted = new Set<string>();
  #running: { name: string; id: number }[] = [];
  #ids = 0;

  constructor(overrides: Partial<TurnStart> = {}) {
    this.#start = turnStart(overrides);
    this.log.started(this.#start);
    this.actions = this.log.actions!;
    this.#run = {
      isStopping: false,
      isDraining: false,
      forced: new Set(),
      interrupted: this.#interrupted,
      isTimeUp: false,
      slots: new Slots(this.#start.limits.subAgents),
    };
  }

  /** The run that continues this one as new, with what Temporal stores of it. */
  again(): PlayedRun {
    const { resumes: _, ...constants } = this.#start;
    const open = JSON.parse(JSON.stringify(this.log.open)) as Partial<TurnContinuation>;
    const next = new PlayedRun({ ...constants, carry: continuation(open) });
    next.#ids = this.#ids;
    next.now = this.now;
    return next;
  }

  set(run: Partial<RunState>): void {
    this.#run = { ...this.#run, ...run };
  }

  /** Ends a task, and begins what is due then. Returns the names of that. */
  task(...commands: Pick<TurnCommand, 'type'>[]): string[] {
    const sent = commands.map((one, i) => ({ id: `req_${this.#ids}_${i}`, subject: SUBJECT, ...one }));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as complete as a test needs
    this.log.taskEnded(this.now, sent as TurnCommand[]);
    if (endOf(this.log, this.#run)) return [];
    const work = due(this.log, this.#run);
    for (const one of work) this.#begin(one);
    // A turn in which nothing runs is paused.
    if (this.#running.length === 0 && !this.end) expect(this.actions.isPaused).toBe(true);
    return work.map(nameOf);
  }

  get end(): ReturnType<typeof endOf> {
    return endOf(this.log, this.#run);
  }

  /** The names of the activities that run. */
  get running(): string[] {
    return this.#running.map(({ name }) => name);
  }

  /** The input of a thread's model call that runs. */
  modelInput(threadId: string): Extract<ScheduledActivity, { name: 'callModel' }>['input'] {
    const running = this.log.running(threadId).find(({ name }) => name === 'callModel');
    if (running?.name !== 'callModel') throw new Error(`${threadId} calls no model`);
    return running.input;
  }

  /** The input of the activity with which the code of a thread resumes. */
  codeInput(threadId: string): Omit<ResumeCellInput, 'owner' | 'runId' | 'deadline'> {
    const running = this.log.running(threadId).find(({ name }) => name === 'resumeCell');
    if (running?.name !== 'resumeCell') throw new Error(`the code of ${threadId} does not go on`);
    return running.input;
  }

  /** The input of a call of the root agent that runs. */
  toolInput(toolCallId: string): Extract<ScheduledActivity, { name: 'callTool' }>['input'] {
    const running = this.log.running('main').find(({ name, input }) => {
      return name === 'callTool' && input.toolCallId === toolCallId;
    });
    if (running?.name !== 'callTool') throw new Error(`${toolCallId} does not run`);
    return running.input;
  }

  /** The calls that the turn leaves to the next one. */
  get left(): PendingCall[] {
    return this.end?.status === 'waiting' ? this.end.pending : [];
  }

  #begin(work: Work): void {
    if ('key' in work) this.#interrupted.add(work.key);
    if (isTold(work)) return;
    const id = ++this.#ids;
    this.#running.push({ name: nameOf(work), id });
    const newMessage = () => ({ messageId: `msg_${id}`, createdAt: AT });
    const call = { now: this.now, recent: [], newMessage };
    this.log.scheduled(id, activityOf(work, { start: this.#start, log: this.log }, call));
  }

  /** An activity ends. Returns what that adds to the log. */
  ends(name: string, end: ActivityResult): LogEntry[] {
    const one = this.#running.find((running) => running.name === name);
    if (!one) throw new Error(`${name} does not run`);
    this.#running.splice(this.#running.indexOf(one), 1);
    return this.log.ended(one.id, AT, end);
  }

  /** A thread's model call ends with a message, and what follows it. */
  answers(message: ModelMessage, ...records: NewRecord[]): void {
    this.model(message.threadId, { status: 'answered' }, message, ...records);
  }

  model(threadId: string, outcome: CallModelResult['outcome'], ...records: NewRecord[]): void {
    this.ends(`${threadId} model`, { how: 'completed', stamp: 's', records, outcome });
  }

  /** A tool call has a result. */
  returns(toolCallId: string, threadId = 'main', more: { noResult?: 'client' } = {}): void {
    const result = { threadId, toolCallId, outcome: 'succeeded', content: 'ok', ...more } as const;
    const records: NewRecord[] = [{ kind: 'tool.response', at: AT, ...result }];
    this.ends(`${threadId} ${toolCallId}`, { how: 'completed', stamp: 's', records });
  }

  /** The server of a call asks the user. */
  asks(toolCallId: string, threadId = 'main'): void {
    const elicitation = { question: '{}', state: { blob: 'b' } };
    this.ends(`${threadId} ${toolCallId}`, { how: 'completed', stamp: 's', records: [], elicitation });
  }

  /** The sandbox of the session is on this host. */
  opens(host: string, threadId = 'main'): void {
    this.ends(`${threadId} sandbox`, { how: 'completed', stamp: 's', records: [], host });
  }

  /** The host of a call is gone. `isUnstarted`: before it could begin the call. */
  loses(toolCallId: string, isUnstarted?: true): void {
    this.ends(`main ${toolCallId}`, { how: 'timed_out', ...(isUnstarted && { isUnstarted }) });
  }

  /** A call finds that its server needs a sign-in. */
  needsSignIn(toolCallId: string): void {
    const { source } = this.toolInput(toolCallId);
    const call: PendingCall = { threadId: 'main', toolCallId, needs: 'sign_in', source, signInId: 'sig_1' };
    const server = { id: 's', name: 's', url: 'u', signInId: 'sig_1' };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as complete as a test needs
    const record = { kind: 'mcp.auth_required', at: AT, threadId: 'main', servers: [server], calls: [call] } as unknown;
    this.ends(`main ${toolCallId}`, { how: 'completed', stamp: 's', records: [record as NewRecord] });
  }
}

export const SUBJECT = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' } as const;

function nameOf(work: Work): string {
  if (work.name === 'forceDelegate') return `force ${work.sessionId}`;
  if (work.name === 'holdCell') return work.key;
  if ('key' in work) return `${work.name === 'interruptCell' ? 'interrupt' : 'cancel'} ${work.key}`;
  if (work.name === 'callTool') return `${work.call.threadId} ${work.call.toolCallId}`;
  const names = { callModel: 'model', connectTools: 'connect', openSandbox: 'sandbox', resumeCell: 'code' };
  return `${work.threadId} ${names[work.name]}`;
}
