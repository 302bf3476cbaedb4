import type { Bench } from '../bench.ts';
import { processorTime } from '../processor-time.ts';
import type { ProcessorTime, Report } from '../report.ts';
import { alternate, median, rate, round } from '../statistics.ts';

interface Throughput {
  turnsPerSecond: number;
  /** The rate of bare workflows that have as many activities as such a turn. */
  baseline: number;
  /** Per turn; undefined where the system does not provide it. */
  processorTime: ProcessorTime | undefined;
}

/** The activities of a workflow of the baseline. A plain turn had two; kept, so that ratios stay comparable. */
const ACTIVITIES = 2;

export async function measureThroughputs(
  bench: Bench,
): Promise<Pick<Report, 'turns_per_second' | 'turns_ratio_16' | 'cpu_ms_per_turn'>> {
  const of1 = await measureThroughput(bench, { atOnce: 1, count: 60, rounds: 1 });
  const of16 = await measureThroughput(bench, { atOnce: 16, count: 112, rounds: 3 });
  const of64 = await measureThroughput(bench, { atOnce: 64, count: 320, rounds: 1 });
  return {
    turns_per_second: { 1: round(of1.turnsPerSecond), 16: round(of16.turnsPerSecond), 64: round(of64.turnsPerSecond) },
    turns_ratio_16: round(of16.turnsPerSecond / of16.baseline, 3),
    ...(of16.processorTime && { cpu_ms_per_turn: of16.processorTime }),
  };
}

/** Runs `count` plain turns per round, `atOnce` of them at any time, each in a session of its own. */
export async function measureThroughput(
  { client, baseline, deployment, setting }: Bench,
  { atOnce, count, rounds }: { atOnce: number; count: number; rounds: number },
): Promise<Throughput> {
  setting.say(`turns per second, ${atOnce} at once`);
  const sessions = await client.sessions('plain', atOnce);
  const everturn = deployment.processes.map(({ pid }) => pid);
  const costs: ProcessorTime[] = [];
  const medians = await alternate(rounds, {
    baseline: () => rate(count, atOnce, () => baseline.run(ACTIVITIES)),
    turns: async () => {
      const before = await processorTime(everturn);
      const turnsPerSecond = await rate(count, atOnce, (worker) => client.turn(sessions[worker] ?? ''));
      const after = await processorTime(everturn);
      if (before && after) costs.push(perTurn(before, after, count));
      return turnsPerSecond;
    },
  });
  setting.say(`  ${medians.turns.toFixed(1)}, bare workflows ${medians.baseline.toFixed(1)}`);
  return {
    turnsPerSecond: medians.turns,
    baseline: medians.baseline,
    processorTime: costs.length > 0 ? medianOf(costs) : undefined,
  };
}

function perTurn(before: ProcessorTime, after: ProcessorTime, count: number): ProcessorTime {
  return {
    ours: (after.ours - before.ours) / count,
    temporal: (after.temporal - before.temporal) / count,
    postgres: (after.postgres - before.postgres) / count,
  };
}

function medianOf(costs: ProcessorTime[]): ProcessorTime {
  return {
    ours: round(median(costs.map(({ ours }) => ours))),
    temporal: round(median(costs.map(({ temporal }) => temporal))),
    postgres: round(median(costs.map(({ postgres }) => postgres))),
  };
}
