import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Turn } from '../../src/core/turn.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import { turnIdOf } from '../../src/core/temporal-names.ts';
import type { TurnHistory } from '../../src/temporal/history.ts';
import { readerOf, readHistories, recordedScenarios } from '../support/histories.ts';

/**
 * Logs are made of histories whenever they are read, so a changed rule changes the logs of turns that have begun. Where
 * the change is meant (see "Changing workflow code" in CONTRIBUTING.md), `npx vitest run --project unit -u` with this file
 * writes the logs anew.
 */
test('the recorded histories give the logs that they gave when they were recorded', async () => {
  const logs: Record<string, Record<string, string>> = {};
  for (const scenario of await recordedScenarios()) {
    const ofScenario: Record<string, string> = {};
    const recorded = await readHistories(scenario);
    const reader = readerOf(recorded);
    for (const { workflowId, runId } of recorded) {
      const turnId = turnIdOf(workflowId);
      if (turnId !== undefined) ofScenario[`${workflowId} ${runId}`] = summary(await project(reader, turnId, runId));
    }
    logs[scenario] = ofScenario;
  }
  await expect(`${JSON.stringify(logs, undefined, 2)}\n`).toMatchFileSnapshot('../histories/logs.json');
});

/** The kinds show where a log has changed. */
function summary(entries: LogEntry[]): string {
  const hash = createHash('sha256').update(JSON.stringify(entries)).digest('base64url').slice(0, 16);
  return `${hash} ${entries.map(({ ordinal, record }) => `${ordinal} ${record.kind}`).join(', ')}`;
}

/** The part of a log that is in one run. */
async function project(reader: TurnHistory, turnId: string, runId: string): Promise<LogEntry[]> {
  const projection = new Turn();
  const entries: LogEntry[] = [];
  for await (const { events } of reader.read(turnId, { runId })) {
    for (const event of events) entries.push(...projection.feed(event));
  }
  return entries;
}
