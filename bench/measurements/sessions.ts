import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { startPair } from '../all-in-one.ts';
import { connect } from '../bench.ts';
import { BenchClient, firstDelta } from '../bench-client.ts';
import type { Deployment } from '../deployment.ts';
import type { Setting } from '../setting.ts';
import { alternate, rate, round } from '../statistics.ts';

/** What sessions at rest cost a process. Times are medians in milliseconds. */
interface Cost {
  /** Workflows of sessions that run, in the end. */
  open_workflows: number;
  /** Resident memory in megabytes, before the sessions and when they are at rest. */
  memory_mb: [number, number];
  /** Turns of new sessions, 16 at once: before the sessions, and when they are at rest. */
  turns_per_second_16: [number, number];
  /** The second turn of a session that is at rest: from its request to its first text. */
  first_delta_ms: number;
  /** The same turn with `stream: false`: from its request to its response. */
  accepted_ms: number;
}

type Name = 'ending' | 'staying';

const IDLE_SECONDS = 30;
const AT_ONCE = 16;
const TURNS = 80;
const ROUNDS = 20;

/** The time for the workflows to end: those of the last turns, on a busy machine. */
const END_WITHIN_MS = 180_000;

/**
 * Runs the same turns on two processes of one Temporal, each in a session of its own: one process ends the workflows of
 * sessions after 30 seconds at rest, and one keeps them, as by default for 30 days.
 *
 * @param count sessions of each process
 */
export async function measureSessions(setting: Setting, count: number): Promise<Record<Name, Cost>> {
  const pair = await startPair(setting, {
    ending: { env: { EVERTURN_SESSION_IDLE_SECONDS: String(IDLE_SECONDS) } },
    staying: { env: {} },
  });
  const temporal = await connect(pair.ending, setting);
  const ending = await Measured.start('ending', pair.ending, temporal);
  const staying = await Measured.start('staying', pair.staying, temporal);
  const both = <T>(work: (one: Measured) => Promise<T>): Promise<T[]> => Promise.all([ending, staying].map(work));

  const compare = (what: string, rounds: number, work: (one: Measured) => Promise<number>) => {
    setting.say(what);
    return alternate(rounds, { ending: () => work(ending), staying: () => work(staying) });
  };
  const before = await compare('turns per second before', 3, (one) => one.turnsPerSecond());
  await both((one) => one.noteMemory());
  setting.say(`${count} sessions of one turn`);
  await both((one) => one.runSessions(count));
  await ending.untilEnded();
  await both((one) => one.noteMemory());
  const delta = await compare('first delta of the next turn', ROUNDS, (one) => one.firstDelta());
  const accepted = await compare('response to the next turn', ROUNDS, (one) => one.accepted());
  const after = await compare('turns per second after', 3, (one) => one.turnsPerSecond());
  await ending.untilEnded();
  const cost = async (one: Measured): Promise<Cost> => ({
    open_workflows: await one.openWorkflows(),
    memory_mb: one.memoryMb,
    turns_per_second_16: [round(before[one.name]), round(after[one.name])],
    first_delta_ms: round(delta[one.name]),
    accepted_ms: round(accepted[one.name]),
  });
  return { ending: await cost(ending), staying: await cost(staying) };
}

class Measured {
  readonly name: Name;
  readonly #deployment: Deployment;
  readonly #client: BenchClient;
  readonly #temporal: Client;
  readonly #memory: number[] = [];
  readonly #atRest: string[] = [];

  private constructor(name: Name, deployment: Deployment, temporal: Client) {
    this.name = name;
    this.#deployment = deployment;
    this.#client = new BenchClient(deployment.url, temporal);
    this.#temporal = temporal;
  }

  static async start(name: Name, deployment: Deployment, temporal: Client): Promise<Measured> {
    const measured = new Measured(name, deployment, temporal);
    await measured.#client.putAgents();
    await measured.turnsPerSecond();
    return measured;
  }

  get memoryMb(): [number, number] {
    const [before = Number.NaN, after = Number.NaN] = this.#memory;
    return [round(before, 0), round(after, 0)];
  }

  async noteMemory(): Promise<void> {
    const [{ memoryMb }] = this.#deployment.processes;
    this.#memory.push(await memoryMb());
  }

  turnsPerSecond(): Promise<number> {
    return rate(TURNS, AT_ONCE, () => this.#client.warmSession('plain'));
  }

  async runSessions(count: number): Promise<void> {
    // Half as many at once: the other process does the same.
    await rate(count, AT_ONCE / 2, async () => this.#atRest.push(await this.#client.warmSession('plain')));
  }

  /** The oldest session at rest that was not used yet. */
  #nextAtRest(): string {
    return this.#atRest.shift() ?? '';
  }

  firstDelta(): Promise<number> {
    return firstDelta(this.#client.turnsUrl(this.#nextAtRest()));
  }

  accepted(): Promise<number> {
    return this.#client.accepted(this.#nextAtRest());
  }

  async openWorkflows(): Promise<number> {
    const query = `WorkflowType = 'session' AND TaskQueue = '${this.name}' AND ExecutionStatus = 'Running'`;
    return (await this.#temporal.workflow.count(query)).count;
  }

  async untilEnded(): Promise<void> {
    for (const end = performance.now() + END_WITHIN_MS; performance.now() < end; await sleep(1_000)) {
      if ((await this.openWorkflows()) === 0) return;
    }
    throw new Error(`${await this.openWorkflows()} workflows of sessions at rest have not ended`);
  }
}
