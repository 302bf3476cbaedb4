import { describe, expect, onTestFinished, test } from 'vitest';
import type { ServerProcess } from '../support/server-process.ts';
import { World, type Steps } from './support/world.ts';

/**
 * Row 11, which takes longer than a test should: histories that would be too long, were they not continued, and what they
 * leave in memory.
 */

const TOTAL_STEPS = 2_000;
const TURNS = 1_000;

/** As Temporal's server has it: past this it ends a workflow. */
const HISTORY_LIMIT = 51_200;

describe.runIf(process.env['LONG'])('for a long time', () => {
  test('a turn of 2,000 steps, with a reader through each continue-as-new', { timeout: 3_600_000 }, async () => {
    const world = await World.start({ spec: { config: { iteration_limit: TOTAL_STEPS + 1 } } });
    onTestFinished(() => world.stop());
    const steps: Steps = Array.from({ length: TOTAL_STEPS - 1 }, (_, i) => ({
      say: `Step ${i}.`,
      tools: [{ name: i % 2 ? 'look' : 'pay' }],
    }));
    const memory = new Memory(world);
    const turn = await world.turn(await world.session(), world.plan(...steps, { say: 'All done.' }));
    await turn.until((frames) => frames.length > 2_000);
    await memory.note();
    const half = turn.frames.length;
    const late = world.recorder.follow(turn.sessionId, turn.turnId);
    expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'All done.' } });
    await late.done;
    await memory.note();
    expect(half).toBeLessThan(turn.frames.length);
    const { client } = await world.temporal.operator();
    const lengths: number[] = [];
    for await (const { historyLength } of client.workflow.list({ query: `WorkflowType = 'turn'` })) {
      lengths.push(historyLength ?? 0);
    }
    expect(lengths.length).toBeGreaterThan(1);
    expect(Math.max(...lengths)).toBeLessThan(HISTORY_LIMIT / 4);
    process.stdout.write(
      `2,000 steps: ${lengths.length} runs of up to ${Math.max(...lengths)} events; ${memory.text}\n`,
    );
    await world.check();
  });

  test('a session of 1,000 turns', { timeout: 3_600_000 }, async () => {
    const world = await World.start();
    onTestFinished(() => world.stop());
    const sessionId = await world.session();
    const memory = new Memory(world);
    for (let i = 0; i < TURNS; i++) {
      const turn = await world.turn(sessionId, world.plan({ say: `Turn ${i}.` }));
      expect(await turn.done).toMatchObject({ status: 'done' });
      if (i === TURNS / 10 || i === TURNS - 1) await memory.note();
    }
    const { client } = await world.temporal.operator();
    const lengths: number[] = [];
    for await (const { historyLength } of client.workflow.list({ query: `WorkflowType = 'session'` })) {
      lengths.push(historyLength ?? 0);
    }
    expect(Math.max(...lengths)).toBeLessThan(HISTORY_LIMIT / 2);
    process.stdout.write(
      `1,000 turns: ${lengths.length} runs of up to ${Math.max(...lengths)} events; ${memory.text}\n`,
    );
    memory.expectFlat();
    await world.check();
  });
});

/** What API and worker hold, from time to time. */
class Memory {
  readonly #world: World;
  readonly #noted: { api: number; worker: number }[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  async note(): Promise<void> {
    const megabytes = async ([process]: ServerProcess[]) => Math.round(((await process?.memory()) ?? 0) / 1024 / 1024);
    this.#noted.push({ api: await megabytes(this.#world.apis), worker: await megabytes(this.#world.workers) });
  }

  get text(): string {
    return this.#noted.map(({ api, worker }) => `API ${api} MB, worker ${worker} MB`).join('; then ');
  }

  /** What is collected late is no leak: half as much again is let pass. */
  expectFlat(): void {
    const [first, last] = [this.#noted[0], this.#noted.at(-1)];
    if (!first || !last) throw new Error('nothing was noted');
    expect(last.api).toBeLessThan(first.api * 1.5);
    expect(last.worker).toBeLessThan(first.worker * 1.5);
  }
}
