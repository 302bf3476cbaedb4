import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { killAtEnd } from '../../test/support/reaper.ts';
import type { Bench } from '../bench.ts';
import { WORDS } from '../model-script.ts';
import type { FanOut, Report } from '../report.ts';
import { round } from '../statistics.ts';

const READERS = 1_000;

export async function measureFanOuts(bench: Bench): Promise<Pick<Report, 'fan_out'>> {
  return { fan_out: { one_turn: await measureFanOut(bench, 1), turns_200: await measureFanOut(bench, 200) } };
}

/** Measures this many turns that stream at once, to 1,000 readers in total. */
async function measureFanOut({ client, deployment, setting }: Bench, count: number): Promise<FanOut> {
  setting.say(`${READERS} readers of ${count} turns`);
  const turns = await client.startTalking(count);
  const [server] = deployment.processes;
  const before = await server.memoryMb();
  const script = fileURLToPath(new URL('../readers.ts', import.meta.url));
  const args = [script, `${deployment.url}/v1/agents/sessions`, String(READERS / count)];
  const child = killAtEnd(spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] }));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  child.stdin.end(turns.map(({ sessionId, turnId }) => `${sessionId} ${turnId}\n`).join(''));
  await lines.next();
  await fetch(`${setting.modelUrl}/talk`, { method: 'POST' });
  const { value: line } = await lines.next();
  const { words, unfinished, p50, p99 } = JSON.parse(line ?? '{}') as Record<string, number>;
  const after = await server.memoryMb();
  const expected = WORDS * READERS;
  if ((words ?? 0) < expected || unfinished) {
    throw new Error(`readers got ${words} of ${expected} words, ${unfinished} no end`);
  }
  return {
    duplicate_words: ((words ?? 0) - expected) / READERS,
    lag_p50_ms: round(p50 ?? Number.NaN),
    lag_p99_ms: round(p99 ?? Number.NaN),
    memory_mb: [round(before, 0), round(after, 0)],
  };
}
