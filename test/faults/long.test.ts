import { describe, expect, onTestFinished, test } from 'vitest';
import type { Frame } from '../support/api-client.ts';
import { heldMemory, INSPECTED, type HeldMemory } from './support/held-memory.ts';
import { World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/**
 * Row 11, which takes longer than a test should: histories that would be too long if they did not continue as new, and the
 * memory that they leave allocated.
 */

const TOTAL_STEPS = 2_000;
const TURNS = 1_000;

/** As Temporal suggests it by default. */
const dynamicConfig = { 'limit.historyCount.suggestContinueAsNew': 4_096 };

/** The limit of Temporal's server, past which it terminates a workflow. */
const HISTORY_LIMIT = 51_200;

describe.runIf(process.env['LONG'])('for a long time', () => {
  test('a turn of 2,000 steps, with a reader through each continue-as-new', { timeout: 3_600_000 }, async () => {
    const world = await World.start({
      env: INSPECTED,
      dynamicConfig,
      spec: { config: { iteration_limit: TOTAL_STEPS + 1 } },
    });
    onTestFinished(() => world.stop());
    const steps: Steps = Array.from({ length: TOTAL_STEPS - 1 }, (_, i) => ({
      say: `Step ${i}.`,
      tools: [{ name: i % 2 ? 'look' : 'pay' }],
    }));
    const memory = new Memory(world);
    const turn = await world.turn(await world.session(), world.plan(...steps, { say: 'All done.' }));
    await turn.until((frames) => stepsOf(frames) >= TOTAL_STEPS / 10);
    await memory.note(stepsOf(turn.frames));
    await turn.until((frames) => stepsOf(frames) >= TOTAL_STEPS / 2);
    const half = turn.frames.length;
    const late = world.recorder.follow(turn.sessionId, turn.turnId);
    await turn.until((frames) => stepsOf(frames) >= TOTAL_STEPS * 0.95);
    await memory.note(stepsOf(turn.frames));
    expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'All done.' } });
    await late.done;
    await memory.note(TOTAL_STEPS);
    expect(half).toBeLessThan(turn.frames.length);
    const { client } = await world.temporal.operator();
    const lengths: number[] = [];
    for await (const { historyLength } of client.workflow.list({ query: `WorkflowType = 'turn'` })) {
      lengths.push(historyLength ?? 0);
    }
    expect(lengths.length).toBeGreaterThan(1);
    expect(Math.max(...lengths)).toBeLessThan(HISTORY_LIMIT / 4);
    process.stdout.write(`2,000 steps: ${lengths.length} runs of up to ${Math.max(...lengths)} events\n${memory.text}`);
    memory.expectFlat();
    await world.check();
  });

  test('a session of 1,000 turns', { timeout: 3_600_000 }, async () => {
    const world = await World.start({ env: INSPECTED, dynamicConfig });
    onTestFinished(() => world.stop());
    const sessionId = await world.session();
    const memory = new Memory(world);
    for (let i = 1; i <= TURNS; i++) {
      const turn = await world.turn(sessionId, world.plan({ say: `Turn ${i}.` }));
      expect(await turn.done).toMatchObject({ status: 'done' });
      if (i === TURNS / 10 || i === TURNS) await memory.note(i);
    }
    const { client } = await world.temporal.operator();
    const lengths: number[] = [];
    for await (const { historyLength } of client.workflow.list({ query: `WorkflowType = 'session'` })) {
      lengths.push(historyLength ?? 0);
    }
    expect(Math.max(...lengths)).toBeLessThan(HISTORY_LIMIT / 2);
    process.stdout.write(`1,000 turns: ${lengths.length} runs of up to ${Math.max(...lengths)} events\n${memory.text}`);
    memory.expectFlat();
    await world.check();
  });
});

/**
 * What a turn or a step may leave in the heaps of API and worker, in bytes: in caches, whose limits are far above what
 * these tests store there, in the transcript of a running turn, and in a session's workflow until it continues as new.
 */
const MAY_STAY = 10_000;

/** The memory of API and worker, sampled from time to time. */
class Memory {
  readonly #world: World;
  readonly #noted: { name: string; at: number; seen: number; held: HeldMemory }[] = [];

  /** The processes of its world have the environment `INSPECTED`. */
  constructor(world: World) {
    this.#world = world;
  }

  /** `at`: the number of turns or steps so far. */
  async note(at: number): Promise<void> {
    const { apis, workers } = this.#world;
    for (const [name, processes] of Object.entries({ API: apis, worker: workers })) {
      for (const one of processes) {
        const seen = await one.memory();
        this.#noted.push({ name, at, seen, held: await heldMemory(one) });
      }
    }
  }

  get text(): string {
    const megabytes = (bytes: number) => `${(bytes / 1024 / 1024).toFixed(1)} MB`;
    return this.#noted
      .map(
        ({ name, at, seen, held: { resident, heap } }) =>
          `at ${at} ${name} ${megabytes(seen)}, without garbage ${megabytes(resident)}, in heaps ${megabytes(heap)}\n`,
      )
      .join('');
  }

  expectFlat(): void {
    for (const name of ['API', 'worker']) {
      const [first, ...later] = this.#noted.filter((noted) => noted.name === name);
      if (!first || later.length === 0) throw new Error('too little was noted');
      for (const { at, held } of later) {
        expect((held.heap - first.held.heap) / (at - first.at), `heaps of ${name}`).toBeLessThan(MAY_STAY);
        // The rest belongs to native code, or is in partly used pages.
        expect(held.resident, `all of ${name}`).toBeLessThan(first.held.resident * 1.25);
      }
    }
  }
}

function stepsOf(frames: Frame[]): number {
  return frames.filter(({ type }) => type === 'tool.response').length;
}
