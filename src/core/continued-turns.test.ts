import { TimeoutFailure } from '@temporalio/common';
import { expect, onTestFinished, test, vi } from 'vitest';
import { LoggedRun } from '../../test/support/logged-run.ts';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { agentOf, Choices, EDITED, ELICITATION, POLICIES, randomStart } from '../../test/support/random-run.ts';
import { AT } from '../../test/support/random-turn.ts';
import { SEED } from '../../test/support/seed.ts';
import type { CallModelInput, CallToolInput, CallToolResult } from './history.ts';
import type { ToolRoute } from './records/calls.ts';
import type { NewRecord } from './records/log.ts';
import type { Approval, PendingCall } from './records/pending.ts';
import { endOfThread } from './sub-agents.ts';
import type { AskedCall } from './call.ts';
import type { Answer, AnswerCommand, TurnCommand } from './turn-command.ts';
import { turnResult, type ThreadResult } from './turn-result.ts';

type End = Parameters<LoggedRun['ends']>[1];

const subjectOf = (name: string) => ({ subjectId: name, subjectType: 'user', subjectSlug: name }) as const;

/** A random turn that is run twice at the same time: in one run, and continued as new at random moments. */
class Walk {
  continued = 0;
  readonly #choices: Choices;
  readonly #whole: LoggedRun;
  #continuing: LoggedRun;
  readonly #story: string[];
  #now = Date.parse(AT);
  #isDraining = false;
  #messages = 0;
  #agents = 0;
  #signals = 0;
  /** The last answer. */
  #given: TurnCommand | undefined;

  constructor(seed: number) {
    this.#choices = new Choices(seed);
    const start = randomStart(this.#choices);
    this.#story = [`The turn of seed ${seed}: ${JSON.stringify(start)}`];
    this.#whole = new LoggedRun(start);
    this.#continuing = new LoggedRun(start);
  }

  /** Until the turn ends, or for some time. */
  walk(): void {
    const { log } = this.#whole;
    for (let step = 0; step < 60; step++) {
      vi.setSystemTime(this.#now);
      this.#endActivities(step);
      this.#endTask();
      const failure = this.#both('failure', (run) => run.log.actions.failure);
      this.#isDraining ||= this.#choices.once(4);
      this.#set(failure !== undefined);
      let end = this.#both('end', (run) => run.end);
      if (end?.status === 'continue') end = this.#continue();
      if (end) return this.#close(failure ? { status: 'error', ...failure } : end);
      const begun = this.#both('work', (run) => run.begin(this.#now));
      this.#tell('begins', begun);
      this.#both('state', ({ log: { actions } }) => [
        actions.nextDue,
        actions.pauses.reasons,
        actions.questions.waiting,
      ]);
      if (this.#whole.running.length === 0) expect(log.actions.isPaused, this.#story.join('\n')).toBe(true);
    }
  }

  /** The part that is the same in both, however it is run. */
  #both<T>(what: string, of: (run: LoggedRun) => T): T {
    const [whole, continuing] = [of(this.#whole), of(this.#continuing)];
    if (JSON.stringify(whole) !== JSON.stringify(continuing)) {
      expect(continuing, [...this.#story, `another ${what} in a turn that has continued`].join('\n')).toEqual(whole);
    }
    return whole;
  }

  #tell(what: string, more: unknown): void {
    this.#story.push(`${what} ${JSON.stringify(more)}`);
  }

  #set(isStopping: boolean): void {
    for (const run of [this.#whole, this.#continuing]) run.set({ isStopping, isDraining: this.#isDraining });
  }

  #continue(): ThreadResult | undefined {
    this.#continuing = this.#continuing.again();
    // A run gives its sub-agents slots anew.
    this.#whole.forgetSlots();
    this.continued += 1;
    this.#story.push('continues as new');
    this.#isDraining = false;
    this.#set(false);
    this.#both('first task', (run) => run.log.taskEnded(this.#now, []));
    return this.#both('end of the next run', (run) => run.end);
  }

  #close(end: ThreadResult): void {
    this.#tell('ends', end);
    const at = new Date(this.#now).toISOString();
    this.#both('close', ({ log: { state, actions } }) => {
      const result = turnResult(end, undefined, actions.steering.authors);
      return state.feed({ type: 'closed', at, close: { how: 'completed', result } });
    });
  }

  /** Some of what runs ends. */
  #endActivities(step: number): void {
    for (let count = 1 + this.#choices.below(3); count > 0; count--) {
      const [first, ...others] = this.#whole.running;
      if (first === undefined) return;
      const name = this.#choices.among(first, ...others);
      const { name: kind, input } = this.#whole.activity(name);
      const stamp = `s${step}_${count}`;
      const end =
        kind === 'callModel'
          ? this.#modelEnd(input, stamp)
          : kind === 'callTool'
            ? this.#toolEnd(input, stamp)
            : { result: { records: [], stamp } };
      this.#tell(name, 'result' in end ? end.result : String(end.error));
      this.#both('log', (run) => run.ends(name, end));
    }
  }

  #modelEnd({ threadId, messageId: id, isForced }: Omit<CallModelInput, 'runId' | 'deadline'>, stamp: string): End {
    const { agent } = this.#whole.log.state.thread(threadId);
    const often = ['calls', 'calls', 'calls', 'calls', 'calls', 'calls'] as const;
    const how = this.#choices.among(...often, 'answers', 'is compacted', 'needs a sign-in', 'fails');
    if (isForced || how === 'answers' || this.#messages > 12) {
      const message = { ...modelMessage({ content: 'Done.' }), id, threadId };
      const end = agent ? endOfThread(agent, { at: this.#at, end: { status: 'done' }, answer: 'Done.' }) : [];
      return { result: { outcome: { status: 'answered' }, stamp, records: [message, ...end] } };
    }
    if (how === 'fails') return { error: new Error('broken') };
    if (how === 'is compacted') return { result: { outcome: { status: 'compacted' }, stamp, records: [] } };
    if (how === 'needs a sign-in') {
      const message = { ...modelMessage({ finishReason: 'cancelled' }), id, threadId };
      const records = [message, this.#signIn(threadId, [])];
      return { result: { outcome: { status: 'sign_in_required' }, stamp, records } };
    }
    const routes = Array.from({ length: 1 + this.#choices.below(4) }, () => this.#route(agent?.depth ?? 0));
    const prefix = `c${this.#messages++}`;
    const toolCalls = messageWith(...routes).toolCalls.map((call, index) => {
      const name = this.#choices.among('look', 'find');
      const info = { type: 'mcp', serverId: 'v', serverName: 'v', name } as const;
      return { ...call, id: `${prefix}_${call.route.to}_${index}`, info };
    });
    const created = toolCalls.flatMap(({ id: toolCallId, route }): NewRecord[] => {
      if (route.to !== 'thread') return [];
      const thread = agentOf(this.#choices, route.threadId, { threadId, toolCallId }, (agent?.depth ?? 0) + 1);
      return [{ kind: 'thread.created', at: this.#at, thread, input: 'do' }];
    });
    const given = !agent && this.#messages === 1 && this.#choices.once(4) && { isGiven: true as const };
    const message = { ...modelMessage({ toolCalls }), id, threadId, ...given };
    return { result: { outcome: { status: 'answered' }, stamp, records: [message, ...created] } };
  }

  #route(depth: number): ToolRoute {
    const to = this.#choices.among('client', 'session', 'thread', 'thread', 'server', 'server', 'server', 'server');
    if (to === 'client') return { to };
    if (to === 'session' && this.#whole.log.actions.waits) {
      return { to, sessionId: `ses_${this.#messages}`, callHash: 'h' };
    }
    if (to === 'thread' && this.#agents < 4 && depth < 2) return { to, threadId: `thr_${this.#agents++}` };
    const isReadOnly = this.#choices.once(2) && { isReadOnly: true as const };
    const order = this.#choices.once(2) && { order: { server: this.#choices.among('s', 't'), ...isReadOnly } };
    const approval = this.#choices.once(3);
    const policy = approval ? this.#choices.among(...POLICIES) : undefined;
    const requesters = approval && this.#choices.once(2) && { requesters: ['ann'] };
    const effect = this.#choices.among('retry', 'once');
    return { to: 'server', effect, approval, callHash: 'h', ...order, ...(policy && { policy }), ...requesters };
  }

  #toolEnd(input: Omit<CallToolInput, 'runId' | 'deadline' | 'owner'>, stamp: string): End {
    const { threadId, toolCallId, source, edited, onUnknown, onReplaced } = input;
    const ends = (more: Partial<CallToolResult>): End => ({ result: { records: [], stamp, ...more } });
    const often = ['succeeds', 'succeeds', 'succeeds'] as const;
    const how = this.#choices.among(...often, 'fails', 'asks', 'sign-in', 'is lost', 'is unknown', 'is replaced');
    if (how === 'is lost') return { error: new TimeoutFailure('lost', undefined, 'START_TO_CLOSE') };
    if (toolCallId.includes('session')) return ends({ isDelegated: true });
    if (how === 'asks') return ends({ elicitation: ELICITATION });
    if (how === 'is unknown' && onUnknown) return ends({ unknownOutcome: 'Unknown.' });
    if (how === 'is replaced' && onReplaced) return ends({ isReplaced: true });
    if (how === 'sign-in') {
      const known = { ...(edited && { edited }), ...(onReplaced && { onReplaced }) };
      return ends({
        records: [this.#signIn(threadId, [{ threadId, toolCallId, needs: 'sign_in', source, ...known }])],
      });
    }
    const noResult = how === 'fails' && this.#choices.once(2) && { noResult: 'client' as const };
    const response = { threadId, toolCallId, outcome: how === 'fails' ? 'failed' : 'succeeded', ...noResult } as const;
    return ends({ records: [{ kind: 'tool.response', at: this.#at, ...response, content: 'ok' }] });
  }

  #signIn(threadId: string, calls: PendingCall[]): NewRecord {
    const signInId = this.#choices.among('sig_0', 'sig_1');
    const servers = [{ id: 's', name: 's', authUrl: 'https://example.com', signInId }];
    const needing = calls.map((call) => ({ ...call, signInId }));
    return { kind: 'mcp.auth_required', at: this.#at, threadId, servers, calls: needing };
  }

  /** Some time passes, and commands arrive, in a turn that does nothing at least one. */
  #endTask(): void {
    const isIdle = this.#whole.running.length === 0;
    this.#now += this.#choices.among(0, 0, 1_000, 30_000, isIdle ? 120_000 : 0);
    const some = isIdle ? 1 + this.#choices.below(2) : Number(this.#choices.once(6));
    const commands = Array.from({ length: some }, () => this.#command());
    this.#tell(`at ${this.#at}:`, commands);
    this.#both('verdicts', ({ log: { actions } }) => commands.map((one) => actions.refuse(one) ?? null));
    this.#both('log', (run) => run.log.taskEnded(this.#now, structuredClone(commands)));
  }

  #command(): TurnCommand {
    const { questions, delegations } = this.#whole.log.actions;
    const base = { id: `req_${this.#signals++}`, subject: subjectOf(this.#choices.among('ann', 'bob')) };
    const [call, ...calls] = questions.waiting;
    const [task, ...tasks] = delegations.started;
    const often = ['answer', 'answer', 'answer', 'answer', 'answer', 'delegation', 'delegation'] as const;
    const type = this.#choices.among(...often, 'sign_in', 'steer', 'pause', 'force_answer', 'resume');
    // The request is repeated, or another subject sends the same.
    if (type === 'answer' && this.#given && this.#choices.once(4)) return { ...this.#given, ...base };
    if (type === 'answer' && call) {
      this.#given = this.#answer(base, this.#choices.among(call, ...calls));
      return this.#given;
    }
    if (type === 'delegation' && task) {
      const result = { outcome: 'succeeded', content: 'd' } as const;
      return { ...base, type, ...this.#choices.among(task, ...tasks), result };
    }
    if (type === 'sign_in') return signedIn(base, this.#choices.among('sig_0', 'sig_1'));
    if (type === 'steer') return { ...base, type, sessionId: 'ses_1', messages: ['And then?'] };
    if (type === 'pause' && this.#choices.once(3)) return { ...base, type };
    if (type === 'force_answer' && this.#choices.once(4)) return { ...base, type };
    return { ...base, type: 'resume' };
  }

  #answer(base: Base, call: AskedCall): TurnCommand {
    const { threadId, toolCallId, needs, signInId = '', unknownOutcome } = call;
    if (needs === 'sign_in') return signedIn(base, signInId);
    const key = { threadId, toolCallId };
    const approval = this.#choices.among<Approval>(
      { status: 'allow' },
      { status: 'allow' },
      { status: 'allow', edited: EDITED },
      { status: 'deny', reason: 'no' },
    );
    const remembers = this.#choices.once(3) && { remembers: true as const };
    const isDecided = needs === 'approval' || (unknownOutcome !== undefined && this.#choices.once(2));
    const answer: Answer = isDecided
      ? { type: 'user.tool_approval', ...key, approval, ...remembers }
      : { type: 'user.tool_response', ...key, content: 'it is' };
    return { ...base, type: 'answer', roles: ['user'], mayDecide: true, mayRespond: true, answers: [answer] };
  }

  get #at(): string {
    return new Date(this.#now).toISOString();
  }
}

/** The fields of all commands. */
type Base = Pick<AnswerCommand, 'id' | 'subject'>;

function signedIn({ id, subject: by }: Base, signInId: string): TurnCommand {
  return { type: 'sign_in', id, signInId, by };
}

test('a turn that continues as new is the same turn', { timeout: 30_000 }, () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  onTestFinished(() => void vi.useRealTimers());
  let continued = 0;
  for (let seed = SEED; seed < SEED + 300; seed++) {
    const walk = new Walk(seed);
    walk.walk();
    continued += walk.continued;
  }
  expect(continued).toBeGreaterThan(100);
});
