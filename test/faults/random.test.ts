import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { mulberry32 } from '../support/lossy-bus.ts';
import { approval, messageFor } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { SEED } from '../support/seed.ts';
import { World, type Steps } from './support/world.ts';

/** Row 17: random actions and random faults. A seed reproduces a schedule. */

const DURATION_MS = Number(process.env['DURATION'] ?? 20) * 1000;
const SESSIONS = 4;

test('random actions under random faults', { timeout: DURATION_MS + 300_000 }, async () => {
  process.stdout.write(`The schedule of this run again: npm run test:faults -- random --seed ${SEED}\n`);
  const world = await World.start({
    apis: 2,
    workers: 2,
    env: { EVERTURN_MODEL_IDLE_SECONDS: '2', EVERTURN_TOOL_TIMEOUT_SECONDS: '6' },
  });
  onTestFinished(() => world.stop());
  const end = performance.now() + DURATION_MS;
  const goesOn = (): boolean => performance.now() < end;
  await Promise.all([
    ...Array.from({ length: SESSIONS }, (_, i) => new Person(world, new Chance(SEED + i)).live(goesOn)),
    new Trouble(world, new Chance(SEED - 1)).cause(goesOn),
  ]);
  await world.check();
  for (const turn of world.recorder.turns) {
    expect((await turn.done).status, `turn ${turn.turnId}`).not.toBe('error');
  }
});

class Chance {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = mulberry32(seed);
  }

  of(probability: number): boolean {
    return this.#random() < probability;
  }

  upTo(limit: number): number {
    return Math.floor(this.#random() * (limit + 1));
  }

  among<T>(first: T, ...others: T[]): T {
    return [first, ...others][this.upTo(others.length)] ?? first;
  }
}

/** A user with a session, who talks, decides, reconsiders and repeats requests. */
class Person {
  readonly #world: World;
  readonly #chance: Chance;

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
  }

  async live(goesOn: () => boolean): Promise<void> {
    const { recorder } = this.#world;
    const sessionId = await this.#world.session();
    let waiting: string[][] = [];
    let turn: RecordedTurn | undefined;
    while (goesOn()) {
      const input = waiting.length > 0 ? this.#answers(waiting) : this.#message();
      const twice = this.#chance.of(0.2) && waiting.length > 0;
      const [sent] = await Promise.all([
        recorder.send(sessionId, input),
        // The second of two decisions is rejected: the calls no longer wait.
        ...(twice ? [recorder.send(sessionId, this.#answers(waiting))] : []),
      ]);
      const accepted = recorder.inputs.findLast((one) => one.sessionId === sessionId && one.outcome === 'accepted');
      if (sent.outcome === 'refused' && sent.code === 'actions_pending' && turn) {
        // The message was to cancel a turn, which had already ended and waits for a decision.
        waiting = waitingOf(await turn.done);
        continue;
      }
      if (sent.outcome === 'refused' && !twice) throw new Error(`refused: ${sent.status} ${sent.code}`);
      if (!accepted?.turnId) continue;
      turn = recorder.follow(sessionId, accepted.turnId);
      waiting = await this.#watch(sessionId, turn);
    }
  }

  /** Waits for the end, or until the turn is cancelled. Returns the calls that wait, with what they wait for. */
  async #watch(sessionId: string, turn: RecordedTurn): Promise<string[][]> {
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
      if (how === 'next' && state.body.data.state.status === 'running') return [];
    }
    return waitingOf(await turn.done);
  }

  #answers(waiting: string[][]): Record<string, unknown>[] {
    return waiting.map(([type, id = '']) =>
      type === 'tool.approval_required'
        ? approval(this.#chance.among('allow', 'allow', 'deny'), id)
        : { type: 'user.tool_response', thread_id: 'main', tool_call_id: id, content: 'it is open' },
    );
  }

  #message(): Record<string, unknown>[] {
    const steps: Steps = Array.from({ length: this.#chance.upTo(2) }, () => ({
      ...this.#says(),
      tools: Array.from({ length: 1 + this.#chance.upTo(2) }, () => this.#tool()),
    }));
    return [{ type: 'user.message', content: messageFor(this.#world.plan(...steps, this.#says())) }];
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
      name: this.#chance.among('pay', 'pay', 'sync', 'sync', 'look', 'refund', 'door'),
      args: {
        ms: this.#chance.among(0, 50, 500),
        size: this.#chance.among(0, 0, 2_000, 200_000),
        ...(this.#chance.of(0.1) && { first: this.#chance.among('hang', 'swallow') }),
      },
    };
  }
}

/** The calls that wait, with what they wait for. */
function waitingOf(end: Awaited<RecordedTurn['done']>): string[][] {
  if (end.status !== 'done') return [];
  return end.required_actions.flatMap(({ type, tool_calls: calls }) => calls.map(({ id }) => [type, id]));
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
    for (let i = 0; goesOn(); i++) {
      await sleep(500 + this.#chance.upTo(2_500));
      // At random, a short run would hardly ever reach the second step of a change.
      const trouble = i % 3 === 0 ? () => this.#world.changeKey() : either(troubles);
      if (trouble) await this.#world.fault(trouble);
      await this.#world.up();
    }
  }
}
