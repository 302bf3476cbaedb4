import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import type { Client, Connection } from '@temporalio/client';
import { defaultDataConverter } from '@temporalio/common';
import { TurnHistory } from '../../src/temporal/history.ts';
import { historyFromJSON, historyToJSON } from './sdk-internals.ts';

/** Histories recorded by releases, by release and scenario: `<release>/<scenario>.json.gz`. */
export const HISTORIES = fileURLToPath(new URL('../histories/', import.meta.url));

/** Where to record histories; set by `npm run test:faults -- --record`. */
export const RECORD_INTO = 'EVERTURN_RECORD_HISTORIES';

/** Far more than a turn of some steps needs; a replay does not depend on the contents. */
const MAX_BYTES = 200_000;
const MAX_PER_SCENARIO = 40;

type Recorded = Record<string, unknown>;

/** The number of recorded scenarios of each test file: it may have several, each with its own Temporal. */
const recorded = new Map<string, number>();

/** Records the histories of a scenario of a test file, one of each sequence of events. */
export async function recordHistories(client: Client, testFile: string): Promise<void> {
  const folder = process.env[RECORD_INTO];
  if (folder === undefined) return;
  const count = (recorded.get(testFile) ?? 0) + 1;
  recorded.set(testFile, count);
  const scenario = `${testFile}-${count}`;
  const courses = new Set<string>();
  const kept: Recorded = {};
  for await (const { workflowId, runId } of client.workflow.list()) {
    const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    const course = createHash('sha256')
      .update((history.events ?? []).map(({ eventType }) => eventType).join())
      .digest('hex');
    const text = historyToJSON(history);
    if (courses.has(course) || text.length > MAX_BYTES) continue;
    courses.add(course);
    kept[`${workflowId} ${runId}`] = JSON.parse(text);
    if (courses.size === MAX_PER_SCENARIO) break;
  }
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, `${scenario}.json.gz`), await promisify(gzip)(JSON.stringify(kept), { level: 9 }));
}

/** The recorded scenarios, as paths below {@link HISTORIES}. */
export async function recordedScenarios(): Promise<string[]> {
  const files = await readdir(HISTORIES, { recursive: true });
  return files.filter((file) => file.endsWith('.json.gz')).toSorted();
}

export async function readHistories(
  scenario: string,
): Promise<{ workflowId: string; runId: string; history: object }[]> {
  const text = await promisify(gunzip)(await readFile(path.join(HISTORIES, scenario)));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `recordHistories`
  const kept = JSON.parse(text.toString()) as Recorded;
  return Object.entries(kept).map(([id, history]) => {
    const [workflowId = '', runId = ''] = id.split(' ');
    return { workflowId, runId, history: historyFromJSON(history) };
  });
}

/** Reads the runs of a scenario as those that Temporal has. A run that was not recorded is empty. */
export function readerOf(recorded: { runId: string; history: object }[]): TurnHistory {
  const histories = new Map(recorded.map(({ runId, history }) => [runId, history]));
  const connection = {
    withDeadline: <T>(_: number, work: () => T) => work(),
    workflowService: {
      getWorkflowExecutionHistory: ({ execution }: { execution: { runId: string } }) =>
        Promise.resolve({ history: histories.get(execution.runId), nextPageToken: new Uint8Array() }),
    },
  };
  return new TurnHistory({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the parts that are used here
    connection: connection as unknown as Connection,
    namespace: 'default',
    converter: { ...defaultDataConverter, payloadCodecs: [] },
  });
}
