import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { user } from '../support/runs.ts';
import type { ServerProcess } from '../support/server-process.ts';
import { Chance } from './support/chance.ts';
import { answer, approval, messageFor, type Plan } from './support/plan.ts';
import type { RecordedRun } from './support/recorded-run.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { APPROVERS, NOISY, OPERATOR, SUBJECTS, type Subject } from './support/subjects.ts';
import { SEED } from '../support/seed.ts';
import { callsIn, waitingOf, type Waiting } from './support/waiting.ts';
import { AGENT, World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/** Row 19: random actions and random faults. A seed reproduces a schedule. */

const DURATION_MS = Number(process.env['DURATION'] ?? 12) * 1000;
/** The agent of each person. The turns of the last two wait. */
const AGENTS = [AGENT, AGENT, 'waiting', 'waiting'];
/** Its runs remember decisions. */
const CAREFUL = 'careful';
/** How deep sub-agents are nested. */
const MAX_DEPTH = 2;
/** The time for two of three approvers, who may have no opinion; operators are among them after the second one. */
const EXPIRY_SECONDS = 3;
const ESCALATION_SECONDS = 1;
/** The longest time for which a process is frozen, in milliseconds: longer than a worker may be silent in a tool. */
const FROZEN_MS = 5_000;

test('random actions under random faults', { timeout: DURATION_MS + 300_000 }, async () => {
  process.stdout.write(`The schedule of this run again: npm run test:faults -- random --seed ${SEED}\n`);
  const world = await World.start({
    isNotified: true,
    apis: 2,
    workers: 2,
    env: {
      EVERTURN_MODEL_FIRST_CHUNK_SECONDS: '2',
      EVERTURN_MODEL_IDLE_SECONDS: '2',
      EVERTURN_TOOL_TIMEOUT_SECONDS: '6',
    },
  });
  onTestFinished(() => world.stop());
  const asks = { match: { tool: 'refund' }, decision: 'ask', expires_in_seconds: EXPIRY_SECONDS };
  const escalate = { after_seconds: ESCALATION_SECONDS, to: { roles: ['admin'] } };
  await world.putAgent('waiting', {
    model: { name: 'planned' },
    // A call without a policy would wait for ever if no approver has an opinion.
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: ['refund'] }],
    client_tools: [{ name: 'door', input_schema: { type: 'object' } }],
    config: {
      pause: 'wait',
      decision_policies: [{ ...asks, approvers: { roles: ['approver'] }, quorum: 2, escalate }],
    },
  });
  await world.putAgent(CAREFUL, {
    model: { name: 'planned' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: [] }],
    config: { pause: 'wait', decision_policies: [asks] },
  });
  const end = performance.now() + DURATION_MS;
  const goesOn = (): boolean => performance.now() < end;
  await Promise.all([
    ...AGENTS.map((agent, i) => new Person(world, new Chance(SEED + i), agent).live(goesOn)),
    new Client(world, new Chance(SEED + AGENTS.length)).live(goesOn),
    new Trouble(world, new Chance(SEED - 1)).cause(goesOn),
  ]);
  await world.check();
  for (const turn of world.recorder.turns) {
    if (world.recorder.ownerOf(turn.sessionId) === NOISY) continue;
    expect((await turn.done).status, `turn ${turn.turnId}`).not.toBe('error');
  }
});

/** A user with a session, who talks, decides, reconsiders, repeats requests, and steers what runs. */
class Person {
  readonly #world: World;
  readonly #chance: Chance;
  readonly #agent: string;
  /** The turns behind the one that it watches, in their order: they wait in the queue, or began without it. */
  readonly #behind: RecordedTurn[] = [];
  /** A turn runs whose end it does not wait for. */
  #hasLeft = false;

  constructor(world: World, chance: Chance, agent: string) {
    this.#world = world;
    this.#chance = chance;
    this.#agent = agent;
  }

  async live(goesOn: () => boolean): Promise<void> {
    const sessionId = await this.#world.session({ agent: this.#agent });
    let waiting: Waiting[] = [];
    let turn: RecordedTurn | undefined;
    while (goesOn() || this.#behind.length > 0) {
      const isBetween = waiting.length === 0 && !this.#hasLeft;
      const next = (isBetween && this.#behind.shift()) || (await this.#say(sessionId, waiting));
      if (next) {
        turn = next;
        waiting = await this.#watch(sessionId, turn, goesOn);
      } else if (turn) {
        // The message was to cancel a turn, which had already ended and waits for a decision.
        waiting = waitingOf(await turn.done);
      }
    }
  }

  /** Answers what waits, or sends a new message. Returns the turn that does it; undefined if another one waits. */
  async #say(sessionId: string, waiting: Waiting[]): Promise<RecordedTurn | undefined> {
    const { recorder } = this.#world;
    this.#hasLeft = false;
    const input = waiting.length > 0 ? this.#answers(waiting) : this.#message();
    const twice = this.#chance.of(0.2) && waiting.length > 0;
    const sent = await Promise.all([
      recorder.send(sessionId, input),
      // The second of two decisions is rejected: the calls no longer wait.
      ...(twice ? [recorder.send(sessionId, this.#answers(waiting))] : []),
    ]);
    const accepted = sent.find(({ outcome }) => outcome === 'accepted');
    if (accepted?.turnId !== undefined) return recorder.follow(sessionId, accepted.turnId);
    const [{ status, code }] = sent;
    if (code !== 'actions_pending') throw new Error(`refused: ${status} ${code}`);
    return undefined;
  }

  /** Waits for the end, or until the turn is cancelled. Returns the calls that wait, with what they wait for. */
  async #watch(sessionId: string, turn: RecordedTurn, goesOn: () => boolean): Promise<Waiting[]> {
    const left = new AbortController();
    const steering = this.#steerNowAndThen(turn, () => goesOn() && !left.signal.aborted);
    const answering = this.#answerWaiting(sessionId, turn);
    const waiting = await this.#untilLeft(sessionId, turn);
    left.abort();
    // A repeated answer must reach the turn that it is for.
    await Promise.all([answering, steering]);
    return waiting;
  }

  /** Does to a running turn, and to the queue behind it, what people do. */
  async #steerNowAndThen(turn: RecordedTurn, goesOn: () => boolean): Promise<void> {
    const { sessionId, turnId } = turn;
    const { recorder } = this.#world;
    let isRunning = true;
    void turn.done.then(() => (isRunning = false));
    const wait = (ms: number) => Promise.race([sleep(this.#chance.upTo(ms)), turn.done]);
    while (this.#chance.of(0.5)) {
      await wait(600);
      if (!isRunning || !goesOn()) return;
      const what = this.#chance.among('steer', 'steer', 'queue', 'queue', 'reject', 'pause', 'force_answer', 'cancel');
      if (what === 'queue' || what === 'reject') {
        const sent = await recorder.send(sessionId, this.#message(), what);
        if (sent.turnId !== undefined) this.#behind.push(recorder.follow(sessionId, sent.turnId));
      } else if (what === 'steer') {
        const steered = await recorder.steer(sessionId, messageFor(this.#plan(0)));
        if (steered?.isNew) this.#behind.push(recorder.follow(sessionId, steered.turnId));
      } else if (what === 'pause') {
        await recorder.control(sessionId, 'pause');
        await wait(this.#chance.among(600, 600, 2_500));
        // Otherwise another pause would repeat the one of a turn that is being cancelled.
        if ((await recorder.control(sessionId, 'resume')) !== 200) return;
      } else if (what === 'force_answer') {
        await recorder.control(sessionId, what, turnId);
      } else {
        const [queued] = this.#behind.slice(this.#chance.upTo(this.#behind.length));
        if (queued) await recorder.cancel(queued);
      }
    }
  }

  /** Answers each call of a turn that waits, in the name of all who may. */
  async #answerWaiting(sessionId: string, turn: RecordedTurn): Promise<void> {
    if (this.#agent === AGENT) return;
    const asked = () => turn.frames.flatMap(callsIn);
    for (let answered = 0; ; answered++) {
      await turn.until(() => asked().length > answered).catch(() => undefined);
      const next = asked()[answered];
      if (!next) return;
      if (next.needs === 'approval') {
        await Promise.all([...APPROVERS, OPERATOR].map((by) => this.#vote(sessionId, next, by)));
      } else {
        const [item = {}] = this.#answers([next]);
        await this.#world.recorder.respond(sessionId, item);
        if (this.#chance.of(0.3)) await this.#world.recorder.respond(sessionId, item);
      }
    }
  }

  /** May allow, deny, have no opinion, change it, or repeat itself. */
  async #vote(sessionId: string, { id, threadId }: Waiting, by: Subject): Promise<void> {
    const { recorder } = this.#world;
    // Around the moment from which it may.
    if (by === OPERATOR) await sleep(this.#chance.upTo(2_000 * ESCALATION_SECONDS));
    for (let votes = this.#chance.among(1, 1, 1, 0, 2); votes > 0; votes--) {
      const status = this.#chance.among('allow', 'allow', 'allow', 'deny');
      await recorder.decide({ sessionId, toolCallId: id, threadId, status, by });
    }
  }

  async #untilLeft(sessionId: string, turn: RecordedTurn): Promise<Waiting[]> {
    if (this.#chance.of(0.25)) {
      await Promise.race([sleep(this.#chance.upTo(1500)), turn.done]);
      const how = this.#chance.among('cancel', 'next', 'cut');
      if (how === 'cut') turn.cut();
      if (how === 'cancel') {
        const path = `/v1/agents/sessions/${sessionId}/cancel`;
        await this.#world.recorder.persist((api) => api.send('POST', path, {}));
      }
      // The next message cancels the running turn.
      const state = await this.#world.recorder.persist((api) =>
        api.send<{ data: { state: { status: string } } }>(
          'GET',
          `/v1/agents/sessions/${sessionId}/turns/${turn.turnId}`,
        ),
      );
      if (how === 'next' && state.body.data.state.status === 'running') {
        this.#hasLeft = true;
        return [];
      }
    }
    return waitingOf(await turn.done);
  }

  #answers(waiting: Waiting[]): Record<string, unknown>[] {
    return waiting.map(({ needs, id, threadId }) => {
      if (needs === 'approval') return approval(this.#chance.among('allow', 'allow', 'deny'), id, { threadId });
      if (needs === 'answer') return answer(id, `word${this.#chance.upTo(1_000_000)}`, threadId);
      return { type: 'user.tool_response', thread_id: threadId, tool_call_id: id, content: 'it is open' };
    });
  }

  #message(): Record<string, unknown>[] {
    return [{ type: 'user.message', content: messageFor(this.#plan(0)) }];
  }

  #plan(depth: number): Plan {
    const steps: Steps = Array.from({ length: this.#chance.upTo(2) }, () => ({
      ...this.#says(),
      tools: Array.from({ length: 1 + this.#chance.upTo(2) }, () =>
        depth < MAX_DEPTH && this.#chance.of(0.15) ? this.#subAgent(depth) : this.#tool(),
      ),
    }));
    return this.#world.plan(...steps, this.#says());
  }

  #subAgent(depth: number): { name: string; args: Record<string, unknown> } {
    return { name: 'create_sub_agent', args: { name: 'helper', input: messageFor(this.#plan(depth + 1)) } };
  }

  #says(): Pick<Steps[number], 'say' | 'pauseMs' | 'faults'> {
    const words = 1 + this.#chance.upTo(20);
    return {
      say: Array.from({ length: words }, (_, i) => `word${i}`).join(' '),
      pauseMs: this.#chance.among(0, 10, 100),
      ...(this.#chance.of(0.3) && {
        faults: [
          this.#chance.among(
            'rate limit',
            'server error',
            'overloaded',
            'no answer',
            'headers, then silence',
            'broken connection',
            'truncated JSON',
            'end without a finish',
            'error in the stream',
            'cost, then an error',
          ),
        ],
      }),
    };
  }

  #tool(): { name: string; args: Record<string, unknown> } {
    return {
      name: this.#chance.among('pay', 'pay', 'sync', 'sync', 'look', 'refund', 'refund', 'door', 'ask'),
      args: {
        ms: this.#chance.among(0, 50, 500),
        size: this.#chance.among(0, 0, 2_000, 200_000),
        ...(this.#chance.of(0.1) && { first: this.#chance.among('hang', 'swallow') }),
      },
    };
  }
}

/** A client of the run API, whose decisions hold for later calls, or who lets them expire. */
class Client {
  readonly #world: World;
  readonly #chance: Chance;

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
  }

  async live(goesOn: () => boolean): Promise<void> {
    const { recorder } = this.#world;
    while (goesOn()) {
      const steps: Steps = Array.from({ length: 2 + this.#chance.upTo(2) }, (_, n) => ({
        say: `Refund ${n}.`,
        tools: Array.from({ length: 1 + this.#chance.upTo(1) }, () => ({ name: this.#chance.among('refund', 'look') })),
      }));
      const plan = this.#world.plan(...steps, { say: 'All refunded.' });
      const input = [user(messageFor(plan))];
      await this.#answer(await recorder.run(CAREFUL, { input }, { by: SUBJECTS[0] }));
    }
  }

  async #answer(run: RecordedRun): Promise<void> {
    for (;;) {
      const { status, required_action: action } = await run.read(1);
      if (status !== 'running' && status !== 'requires_action') break;
      for (const { tool_call_id: id } of action?.approvals ?? []) {
        const answer = {
          status: this.#chance.among('allow', 'allow', 'deny'),
          remember: this.#chance.of(0.5),
        } as const;
        if (this.#chance.of(0.8)) await run.decide(id, answer);
      }
    }
    const end = await run.done;
    // A refund that a fault has cut off has no known outcome, which ends the run.
    const isCutOff = end.event === 'error' && end.error.cause?.type === 'unknown_outcome';
    expect(end.status, JSON.stringify(end)).toBe(isCutOff ? 'failed' : 'completed');
  }
}

/** Inflicts faults, one after another. */
class Trouble {
  readonly #world: World;
  readonly #chance: Chance;

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
  }

  async cause(goesOn: () => boolean): Promise<void> {
    const { temporal, redis, recorder } = this.#world;
    const either = <T>(all: readonly T[]): T | undefined => all[this.#chance.upTo(all.length - 1)];
    const troubles: (() => Promise<unknown>)[] = [
      async () => either(this.#world.workers)?.kill(),
      async () => either(this.#world.workers)?.stop(),
      async () => either(this.#world.apis)?.kill(),
      async () => either(this.#world.apis)?.stop(),
      () => Promise.all(this.#world.processes.map((one) => one.kill())),
      async () => {
        await temporal.down();
        await sleep(this.#chance.upTo(3_000));
        await temporal.up();
      },
      async () => {
        await redis.down();
        await sleep(this.#chance.upTo(2_000));
        await redis.up();
      },
      () => Promise.resolve(recorder.turns.forEach((turn) => turn.cut())),
    ];
    const frozen: Promise<void>[] = [];
    for (let i = 0; goesOn(); i++) {
      await sleep(500 + this.#chance.upTo(2_500));
      const process = either(this.#world.processes);
      if (process && this.#chance.of(0.4)) frozen.push(this.#freeze(process));
      // At random, a short run would hardly ever reach the second step of a change.
      const trouble = i % 3 === 0 ? () => this.#world.changeKey() : either(troubles);
      if (trouble) await this.#world.fault(trouble);
      await this.#world.up();
    }
    await Promise.all(frozen);
  }

  /** Suspends a process, while others follow it. */
  async #freeze(process: ServerProcess): Promise<void> {
    await this.#world.fault(() => process.pause());
    await sleep(this.#chance.upTo(FROZEN_MS));
    process.goOn();
  }
}
