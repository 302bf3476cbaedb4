import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SessionEvent } from '../../src/api/sessions/wire/events.ts';
import { eventually } from '../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../support/kernel-python.ts';
import { SEED } from '../support/seed.ts';
import { keyIn } from './support/called.ts';
import { END_MS } from './support/check.ts';
import { Chance } from './support/chance.ts';
import { approval, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { sized } from './support/sized.ts';
import { callsIn, waitingOf, type Waiting } from './support/waiting.ts';
import { World } from './support/world.ts';
import type { Steps } from './support/world-options.ts';

/** Row 21: agents that act in code, while kernel hosts, kernels and everything else are killed. */

const TURNS = sized({ brief: 1, full: 3, long: 25 });
const FAULTS = sized({ brief: 4, full: 10, long: 80 });
/** Two of these agents end their turns where they ask, two wait. */
const AGENTS = ['code-end', 'code-end', 'code-wait', 'code-wait'];

let world: World;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  world = await World.start({ kernels: { hosts: 1, python: await kernelPython() } });
  const tools = { allowed_callers: ['model', 'code'], require_approval_for_tools: ['refund'] };
  for (const pause of ['end', 'wait']) {
    await world.putAgent(`code-${pause}`, {
      model: { name: 'planned' },
      mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', ...tools }],
      code_actions: { approvals: 'allow' },
      config: { pause },
    });
  }
});
// Its own time limit names the turn that does not end.
afterAll(() => world.checkAndStop(), 2 * END_MS);

/** A call of a tool in code, with the arguments that its server's ledger understands. */
function use(tool: string, args: object = {}): string {
  return `from mcptools.test.${tool} import run, Params\nprint(run(Params(**${JSON.stringify(args)})))`;
}

const cell = (...lines: string[]) => ({ name: 'ipython', args: { code: lines.join('\n') } });

async function begin(agent: string, ...steps: Steps): Promise<{ plan: Plan; turn: RecordedTurn; sessionId: string }> {
  const plan = world.plan(...steps);
  const sessionId = await world.session({ agent });
  return { plan, sessionId, turn: await world.turn(sessionId, plan) };
}

/** The calls that a running turn has asked about. */
const asked = (turn: RecordedTurn): Waiting[] => turn.frames.flatMap(callsIn);

/** The results of the cells of a turn, in their order. */
function cellsOf({ frames }: RecordedTurn) {
  return frames.flatMap((one) => (one.type === 'tool.response' && one.thread_id === 'main' ? [one] : []));
}

/** Waits until a tool that code has called is running. */
async function untilRunning(turn: RecordedTurn): Promise<void> {
  await turn.until((frames) => frames.some(({ type }) => type === 'thread.created'));
  const created = turn.frames.find((one) => one.type === 'thread.created');
  await world.ledger.started(`/${created?.thread_id}/call_1`);
}

/** Resolves when a tool that code has called has its result. */
async function untilAnswered(turn: RecordedTurn): Promise<void> {
  await turn.until((frames) => frames.some((one) => one.type === 'tool.response' && one.thread_id !== 'main'));
}

/** How often a tool has had its effect in the code of a turn. */
function effectsIn({ turnId }: RecordedTurn, tool: string): number {
  return world.ledger.effects.filter((one) => one.tool === tool && one.operation.startsWith(`${turnId}/code_`)).length;
}

const DONE = { status: 'done', output: { content: 'Done.' } };
const LAST = { say: 'Done.' };

test('turns are cancelled, forced and paused while their code waits or resumes: each has one result, and its variables', async () => {
  const waits = async () => {
    const { sessionId, turn } = await begin(
      'code-wait',
      { say: 'I ask.', tools: [cell('x = 1', use('refund'))] },
      LAST,
    );
    await turn.until(() => asked(turn).length === 1);
    await world.recorder.cancel(turn);
    expect(await turn.done).toMatchObject({ status: 'cancelled' });
    expect(cellsOf(turn)).toMatchObject([{ outcome: 'cancelled', execution: { exit: 'interrupted' } }]);
    return { sessionId, turn };
  };
  const runs = async () => {
    const code = [use('look'), 'x = 1', 'print("on")', 'import time; time.sleep(600)'];
    const { sessionId, turn } = await begin('code-wait', { say: 'I look.', tools: [cell(...code)] }, LAST);
    const path = `/v1/agents/sessions/${sessionId}/turns/${turn.turnId}/timeline`;
    await eventually(async () => {
      const { data } = await world.recorder.api.get<{ data: object[] }>(path);
      expect(data).toContainEqual(expect.objectContaining({ kind: 'run_code', pending: true, attempt: 1 }));
    });
    await world.recorder.cancel(turn);
    expect(await turn.done).toMatchObject({ status: 'cancelled' });
    const [result] = cellsOf(turn);
    expect(result).toMatchObject({ outcome: 'cancelled', execution: { exit: 'interrupted', generation: 1 } });
    return { sessionId, turn };
  };
  const forced = async () => {
    const code = ['x = 1', use('refund'), 'x = 2'];
    const { sessionId, turn } = await begin('code-wait', { say: 'I ask.', tools: [cell(...code)] }, LAST);
    await turn.until(() => asked(turn).length === 1);
    expect(await world.recorder.control(sessionId, 'force_answer', turn.turnId)).toBe(200);
    expect(await turn.done).toMatchObject(DONE);
    expect(cellsOf(turn)).toMatchObject([{ outcome: 'failed', execution: { exit: 'interrupted', generation: 1 } }]);
    return { sessionId, turn };
  };
  const paused = async () => {
    const code = ['x = 1', use('pay', { hold: 'paused' })];
    const { sessionId, turn } = await begin('code-wait', { say: 'I pay.', tools: [cell(...code)] }, LAST);
    await untilRunning(turn);
    expect(await world.recorder.control(sessionId, 'pause')).toBe(200);
    world.ledger.goOn('paused');
    await untilAnswered(turn);
    expect(cellsOf(turn)).toEqual([]);
    expect(await world.recorder.control(sessionId, 'resume')).toBe(200);
    expect(await turn.done).toMatchObject(DONE);
    expect(effectsIn(turn, 'pay')).toBe(1);
    return { sessionId, turn };
  };
  const all = await Promise.all([waits(), runs(), forced(), paused()]);
  for (const { sessionId, turn } of all) {
    expect(effectsIn(turn, 'refund')).toBe(0);
    const next = await world.turn(sessionId, world.plan({ say: 'And?', tools: [cell('print(x)')] }, LAST));
    expect(await next.done).toMatchObject(DONE);
    expect(cellsOf(next)).toMatchObject([{ outcome: 'succeeded', content: '1', execution: { generation: 1 } }]);
  }
});

test('a worker is killed between the result of a tool and the code, which resumes with it', async () => {
  const [[worker], [host]] = [world.workers, world.kernelHosts];
  const code = cell('x = 41', use('pay', { hold: 'result' }), 'print(x + 1)');
  const { turn } = await begin('code-end', { say: 'I pay.', tools: [code] }, LAST);
  await untilRunning(turn);
  // It takes no task meanwhile.
  host?.pause();
  world.ledger.goOn('result');
  await untilAnswered(turn);
  await world.fault(() => worker?.kill());
  host?.goOn();
  await world.up();
  expect(await turn.done).toMatchObject(DONE);
  expect(cellsOf(turn)).toMatchObject([
    { outcome: 'succeeded', content: expect.stringMatching(/^pay has done .*\n42$/) },
  ]);
  expect(effectsIn(turn, 'pay')).toBe(1);
});

test('kernels are killed while their code waits: for a tool, whose effect is known, and for a person, who decides in vain', async () => {
  const [host = expect.fail('there is one')] = world.kernelHosts;
  const [paying, asking] = await Promise.all([
    begin('code-end', { say: 'I pay.', tools: [cell(use('pay', { hold: 'killed' }))] }, LAST),
    begin('code-end', { say: 'I ask.', tools: [cell('x = 1', use('refund'))] }, LAST),
  ]);
  await untilRunning(paying.turn);
  const waiting = waitingOf(await asking.turn.done);
  await world.fault(() => world.killKernels(host));
  world.ledger.goOn('killed');
  expect(await paying.turn.done).toMatchObject(DONE);
  expect(cellsOf(paying.turn)).toMatchObject([{ outcome: 'failed' }]);
  expect(effectsIn(paying.turn, 'pay')).toBe(1);
  const allowed = waiting.map(({ id, threadId }) => approval('allow', id, { threadId }));
  const next = await world.recorder.turn(asking.sessionId, allowed);
  expect(await next.done).toMatchObject(DONE);
  expect(cellsOf(next)).toMatchObject([{ outcome: 'failed', execution: { exit: 'lost' } }]);
  expect(effectsIn(asking.turn, 'refund')).toBe(0);
});

test('a host is killed between the check of waiting code and the call: the tool has run once, the code has not resumed', async () => {
  const [host] = world.kernelHosts;
  const code = cell(use('refund', { hold: 'checked' }), 'print("after")');
  const { turn, sessionId } = await begin('code-wait', { say: 'I refund.', tools: [code] }, LAST);
  await turn.until(() => asked(turn).length === 1);
  const [{ id, threadId } = expect.fail('it asks')] = asked(turn);
  const by = world.recorder.ownerOf(sessionId);
  expect(await world.recorder.decide({ sessionId, toolCallId: id, threadId, status: 'allow', by })).toBe(200);
  await untilRunning(turn);
  await world.fault(() => host?.kill());
  world.ledger.goOn('checked');
  await world.up();
  expect(await turn.done).toMatchObject(DONE);
  expect(cellsOf(turn)).toMatchObject([{ outcome: 'failed', execution: { exit: 'lost' } }]);
  expect(effectsIn(turn, 'refund')).toBe(1);
});

test('code at random, under random faults', { timeout: 600_000 }, async () => {
  process.stdout.write(`The schedule of this run again: npm run test:faults -- code-actions --seed ${SEED}\n`);
  const before = world.recorder.turns.length;
  let isOver = false;
  const people = AGENTS.map((agent, i) => new Person(new Chance(SEED + i), agent).live());
  const over = Promise.all(people).finally(() => (isOver = true));
  await Promise.all([over, cause(new Chance(SEED - 1), () => !isOver)]);
  for (const turn of world.recorder.turns.slice(before)) {
    const { status } = await turn.done;
    expect(status, `turn ${turn.turnId}`).not.toBe('error');
  }
});

/** One who has an agent do things in code, answers what it asks, and reconsiders. */
class Person {
  readonly #chance: Chance;
  readonly #agent: string;
  #words = 0;

  constructor(chance: Chance, agent: string) {
    this.#chance = chance;
    this.#agent = agent;
  }

  async live(): Promise<void> {
    const sessionId = await world.session({ agent: this.#agent });
    for (let i = 0; i < TURNS; i++) {
      let turn = await world.turn(sessionId, this.#plan());
      for (;;) {
        const [end] = await Promise.all([turn.done, this.#disturb(turn), this.#answerWaiting(turn)]);
        const waiting = waitingOf(end);
        if (waiting.length === 0) break;
        await sleep(this.#chance.upTo(1_000));
        const input = waiting.map(({ id, threadId }) => approval(this.#opinion(), id, { threadId }));
        turn = await world.recorder.turn(sessionId, input);
      }
    }
    await expectAppended(sessionId);
  }

  /** Cancels, pauses or forces some of the turns. */
  async #disturb(turn: RecordedTurn): Promise<void> {
    if (this.#chance.of(0.6)) return;
    const { recorder } = world;
    await Promise.race([sleep(this.#chance.upTo(4_000)), turn.done]);
    const what = this.#chance.among('cancel', 'pause', 'force_answer', 'cut');
    if (what === 'cancel') await recorder.cancel(turn);
    else if (what === 'cut') turn.cut();
    else if (what === 'force_answer') await recorder.control(turn.sessionId, what, turn.turnId);
    else {
      await recorder.control(turn.sessionId, 'pause');
      await Promise.race([sleep(this.#chance.upTo(1_500)), turn.done]);
      await recorder.control(turn.sessionId, 'resume');
    }
  }

  /** Answers each call of a turn that waits. */
  async #answerWaiting(turn: RecordedTurn): Promise<void> {
    if (this.#agent !== 'code-wait') return;
    const { sessionId } = turn;
    const by = world.recorder.ownerOf(sessionId);
    for (let answered = 0; ; answered++) {
      await turn.until(() => asked(turn).length > answered).catch(() => undefined);
      const next = asked(turn)[answered];
      if (!next) return;
      await sleep(this.#chance.upTo(1_000));
      const { id: toolCallId, threadId } = next;
      await world.recorder.decide({ sessionId, toolCallId, threadId, status: this.#opinion(), by });
    }
  }

  #opinion(): 'allow' | 'deny' {
    return this.#chance.among('allow', 'allow', 'allow', 'deny');
  }

  #plan(): Plan {
    const steps: Steps = Array.from({ length: 1 + this.#chance.upTo(1) }, () => ({
      say: 'I run code.',
      tools: Array.from({ length: 1 + this.#chance.upTo(1) }, () =>
        cell(...Array.from({ length: 1 + this.#chance.upTo(2) }, () => this.#lines())),
      ),
    }));
    return world.plan(...steps, LAST);
  }

  #lines(): string {
    const what = this.#chance.among('tool', 'tool', 'together', 'command', 'command', 'sleep', 'variable');
    if (what === 'tool') return use(this.#tool(), { ms: this.#chance.among(0, 50, 500) });
    if (what === 'command') return `!echo word-${(this.#words += 1)} >> log.txt`;
    if (what === 'sleep') return `import time; time.sleep(${this.#chance.upTo(20) / 10})`;
    if (what === 'variable') return 'n = globals().get("n", 0) + 1; print(n)';
    return [
      'import asyncio',
      `from mcptools.test.${this.#tool()} import run_async as one, Params as One`,
      `from mcptools.test.${this.#tool()} import run_async as other, Params as Other`,
      'print(await asyncio.gather(one(One()), other(Other())))',
    ].join('\n');
  }

  #tool(): string {
    return this.#chance.among('pay', 'pay', 'sync', 'look', 'refund');
  }
}

/** Each command that has appended a word has done so once, and that of no other one is there twice. */
async function expectAppended(sessionId: string): Promise<void> {
  const { recorder } = world;
  const path = `/v1/agents/sessions/${sessionId}`;
  const read = async (url: string): Promise<Response> => {
    const { key } = recorder.ownerOf(sessionId);
    return fetch(`${recorder.api.url}${url}`, { headers: { authorization: `Bearer ${key}` } });
  };
  const events = await eventually(async () => recorder.api.list<{ event: SessionEvent }>(`${path}/events`));
  const words = new Map<string, string>(
    events
      .flatMap(({ event }) => (event.type === 'model.message' ? event.tool_calls.map((call) => ({ event, call })) : []))
      .flatMap(({ event, call }) => {
        const [word] = /word-\d+/.exec(call.function.name === 'shell' ? call.function.arguments : '') ?? [];
        return word === undefined ? [] : [[`${event.thread_id} ${call.id}`, word] as const];
      }),
  );
  const done = events.flatMap(({ event }) => {
    const word =
      event.type === 'tool.response' && event.content === 'exit code 0' ? words.get(keyIn(event)) : undefined;
    return word ?? [];
  });
  if (done.length === 0) return;
  const text = await eventually(async () => {
    const sandbox = (await (await read(`${path}/sandbox`)).json()) as { data: { id: string } };
    const file = await read(`/v1/agents/sandbox/${sandbox.data.id}/file?path=log.txt`);
    expect(file.status).toBe(200);
    return file.text();
  });
  const lines = text.trim().split('\n');
  expect(lines, 'words that are twice in the file').toEqual([...new Set(lines)]);
  expect(lines, 'words of commands that have succeeded').toEqual(expect.arrayContaining(done));
}

/** Inflicts faults, one after another. */
async function cause(chance: Chance, goesOn: () => boolean): Promise<void> {
  const { temporal, redis, apis, workers, processes } = world;
  const [host = expect.fail('there is one')] = world.kernelHosts;
  const others: [() => Promise<unknown>, ...(() => Promise<unknown>)[]] = [
    () => Promise.all(workers.map((one) => one.kill())),
    () => Promise.all(apis.map((one) => one.kill())),
    () => Promise.all(processes.map((one) => one.kill())),
    async () => {
      host.pause();
      await sleep(chance.upTo(3_000));
      host.goOn();
    },
    async () => {
      await temporal.down();
      await sleep(chance.upTo(2_000));
      await temporal.up();
    },
    async () => {
      await redis.down();
      await sleep(chance.upTo(2_000));
      await redis.up();
    },
  ];
  for (let i = 0; i < FAULTS && goesOn(); i++) {
    await sleep(500 + chance.upTo(2_500));
    const trouble = [() => world.killKernels(host), chance.among(...others), () => host.kill()][i % 3];
    await world.fault(() => trouble?.());
    await world.up();
  }
}
