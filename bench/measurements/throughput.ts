import type { Bench } from '../bench.ts';
import type { Report } from '../report.ts';
import { alternate, rate, round } from '../statistics.ts';

interface Throughput {
  turnsPerSecond: number;
  /** The rate of bare workflows that have as many activities as such a turn. */
  baseline: number;
}

/** The activities of a plain turn: callModel and archiveTurn. */
const ACTIVITIES = 2;

export async function measureThroughputs(bench: Bench): Promise<Pick<Report, 'turns_per_second' | 'turns_ratio_16'>> {
  const of1 = await measureThroughput(bench, { atOnce: 1, count: 60, rounds: 1 });
  const of16 = await measureThroughput(bench, { atOnce: 16, count: 112, rounds: 3 });
  const of64 = await measureThroughput(bench, { atOnce: 64, count: 320, rounds: 1 });
  return {
    turns_per_second: { 1: round(of1.turnsPerSecond), 16: round(of16.turnsPerSecond), 64: round(of64.turnsPerSecond) },
    turns_ratio_16: round(of16.turnsPerSecond / of16.baseline, 3),
  };
}

/** Runs `count` plain turns per round, `atOnce` of them at any time, each in a session of its own. */
async function measureThroughput(
  { client, baseline, setting }: Bench,
  { atOnce, count, rounds }: { atOnce: number; count: number; rounds: number },
): Promise<Throughput> {
  setting.say(`turns per second, ${atOnce} at once`);
  const sessions = await client.sessions('plain', atOnce);
  const medians = await alternate(rounds, {
    baseline: () => rate(count, atOnce, () => baseline.run(ACTIVITIES)),
    turns: () => rate(count, atOnce, (worker) => client.turn(sessions[worker] ?? '')),
  });
  setting.say(`  ${medians.turns.toFixed(1)}, bare workflows ${medians.baseline.toFixed(1)}`);
  return { turnsPerSecond: medians.turns, baseline: medians.baseline };
}
