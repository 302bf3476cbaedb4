import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { startTemporalOnPostgres, type TemporalOnPostgres } from '../../../deploy/temporal/start.ts';
import { loadConfig } from '../../../src/config.ts';
import { endDevServer, settingsArguments } from '../../../src/temporal-server/dev-server.ts';
import type { DynamicConfig } from '../../../src/temporal-server/dynamic-config.ts';
import { keptPort } from '../../support/kept-port.ts';
import type { ServerHome } from '../../../src/temporal-server/dev-server.ts';
import { launchServer } from '../../../src/temporal-server/launch-server.ts';
import { findDevServer } from '../../../src/temporal-server/server-record.ts';
import { findTemporalCli } from '../../support/temporal-cli.ts';
import { freeTemporalPort } from '../../support/temporal-ports.ts';
import { killUsersAtEnd } from '../../support/reaper.ts';
import { TemporalClient } from '../../support/temporal-client.ts';

/** A server as a program that can be started repeatedly. */
interface Program {
  address: string;
  up: () => Promise<void>;
  down: () => Promise<void>;
  pids: () => Promise<number[]>;
}

const NAMESPACE = 'everturn';

/** A Temporal server that only its test starts and stops: it is not supervised. */
export class TestTemporal {
  readonly namespace = NAMESPACE;
  readonly #program: Program;
  #operator: TemporalClient | undefined;

  private constructor(program: Program) {
    this.#program = program;
  }

  /** @param dynamicConfig of each start of the server */
  static async start(folder: string, dynamicConfig: () => DynamicConfig = () => ({})): Promise<TestTemporal> {
    killUsersAtEnd(folder);
    const temporal = new TestTemporal(await onSqlite(folder, dynamicConfig));
    await temporal.up();
    return temporal;
  }

  static async startOnPostgres(folder: string, postgresUrl: string): Promise<TestTemporal> {
    killUsersAtEnd(folder);
    const temporal = new TestTemporal(await onPostgres(folder, postgresUrl));
    await temporal.up();
    return temporal;
  }

  get address(): string {
    return this.#program.address;
  }

  /** An operator's access, beyond that of Everturn's clients. */
  async operator(): Promise<TemporalClient> {
    this.#operator ??= await TemporalClient.connect(this);
    return this.#operator;
  }

  /** Starts it at the same address, on its stored data. */
  async up(): Promise<void> {
    await this.#program.up();
  }

  /** Kills it, as a crash does. */
  async down(): Promise<void> {
    await this.#program.down();
  }

  /** Suspends it: connections stay open, but nothing is answered. */
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

  /**
   * Resolves when a workflow waits for an activity that a worker has started, for at least the n-th time; rejects if
   * the workflow ends without.
   */
  async untilBegun(workflowId: string, activity: string, times = 1): Promise<void> {
    const { client } = await this.operator();
    for (;;) {
      const { status, raw } = await client.workflow.getHandle(workflowId).describe();
      const found = raw.pendingActivities?.find(({ activityType }) => activityType?.name === activity);
      if (found?.lastStartedTime && (found.attempt ?? 0) >= times) return;
      if (status.name !== 'RUNNING') throw new Error(`${workflowId} has ended without ${activity}`);
      await sleep(50);
    }
  }

  async stop(): Promise<void> {
    await this.#operator?.close();
    await this.down();
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    for (const pid of await this.#program.pids()) process.kill(pid, signal);
  }
}

async function onSqlite(folder: string, dynamicConfig: () => DynamicConfig): Promise<Program> {
  const binary = await findTemporalCli();
  const databaseFile = path.join(folder, 'temporal.db');
  const logFile = path.join(folder, 'temporal.log');
  const home = (): ServerHome => ({
    databaseFile,
    logFile,
    binary,
    namespace: NAMESPACE,
    settings: settingsArguments({
      databaseFile,
      namespace: NAMESPACE,
      sqliteSync: 'normal',
      dynamicConfig: dynamicConfig(),
    }),
  });
  const port = await keptPort();
  return {
    address: `127.0.0.1:${port}`,
    up: async () => void (await launchServer(home(), port, new AbortController().signal)),
    down: () => endDevServer(databaseFile, 0),
    pids: async () => {
      const server = await findDevServer(databaseFile);
      return server ? [server.pid] : [];
    },
  };
}

async function onPostgres(folder: string, postgresUrl: string): Promise<Program> {
  const { cacheDir } = loadConfig({});
  const port = await freeTemporalPort();
  let running: TemporalOnPostgres | undefined;
  return {
    address: `127.0.0.1:${port}`,
    up: async () => {
      const log = pino({ level: 'silent' });
      const home = {
        postgresUrl,
        folder: path.join(folder, 'temporal'),
        cacheDir,
        log,
        port,
        output: 'ignore',
      } as const;
      running = await startTemporalOnPostgres({ ...home, namespace: NAMESPACE, historyShards: 4 });
    },
    down: async () => running?.stop(),
    pids: () => Promise.reject(new Error('it has no supervised process')),
  };
}
