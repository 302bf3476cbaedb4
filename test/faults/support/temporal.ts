import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { loadConfig } from '../../../src/config.ts';
import { findTemporalBinary } from '../../../src/temporal/binary.ts';
import { endDevServers, findDevServers, settingsArguments } from '../../../src/temporal/dev-server.ts';
import type { DynamicConfig } from '../../../src/temporal/dynamic-config.ts';
import { freePort } from '../../../src/temporal/free-port.ts';
import { launchServer, type ServerHome } from '../../../src/temporal/launch-server.ts';
import { TemporalClient } from '../../support/temporal-client.ts';

/** A Temporal server that only its test starts and stops: nobody sees to it that it runs. */
export class TestTemporal {
  readonly namespace = 'everturn';
  readonly #home: ServerHome;
  readonly #port: number;
  #operator: TemporalClient | undefined;

  private constructor(home: ServerHome, port: number) {
    this.#home = home;
    this.#port = port;
  }

  static async start(folder: string, dynamicConfig: DynamicConfig = {}): Promise<TestTemporal> {
    const { cacheDir } = loadConfig({});
    const binary = await findTemporalBinary({ cacheDir, env: process.env, log: pino({ level: 'silent' }) });
    const databaseFile = path.join(folder, 'temporal.db');
    const namespace = 'everturn';
    const settings = settingsArguments({ databaseFile, namespace, sqliteSync: 'normal', dynamicConfig });
    const home = { databaseFile, logFile: path.join(folder, 'temporal.log'), binary, namespace, settings };
    const temporal = new TestTemporal(home, await freePort());
    await temporal.up();
    return temporal;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Who sees and does what is not for Everturn's clients. */
  async operator(): Promise<TemporalClient> {
    this.#operator ??= await TemporalClient.connect(this);
    return this.#operator;
  }

  /** Starts it where it was, on what it has stored. */
  async up(): Promise<void> {
    await launchServer(this.#home, this.#port, new AbortController().signal);
  }

  /** As a crash does. */
  async down(): Promise<void> {
    await endDevServers(this.#home.databaseFile, 0);
  }

  /** Its connections stay, but nothing is answered any more. */
  async hang(): Promise<void> {
    await this.#signal('SIGSTOP');
  }

  async goOn(): Promise<void> {
    await this.#signal('SIGCONT');
  }

  /** The current run of a workflow. */
  async runOf(workflowId: string): Promise<string> {
    const { client } = await this.operator();
    return (await client.workflow.getHandle(workflowId).describe()).runId;
  }

  /** Settles when a workflow waits for an activity that a worker has begun, for at least the so-maniest time. */
  async untilBegun(workflowId: string, activity: string, times = 1): Promise<void> {
    const { client } = await this.operator();
    for (;;) {
      const { pendingActivities } = (await client.workflow.getHandle(workflowId).describe()).raw;
      const found = pendingActivities?.find(({ activityType }) => activityType?.name === activity);
      if (found?.lastStartedTime && (found.attempt ?? 0) >= times) return;
      await sleep(50);
    }
  }

  async stop(): Promise<void> {
    await this.#operator?.close();
    await this.down();
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    for (const { pid } of await findDevServers(this.#home.databaseFile)) process.kill(pid, signal);
  }
}
