import type { Bench } from '../bench.ts';
import type { Report } from '../report.ts';
import { alternate, round, timed } from '../statistics.ts';

/** What a step costs, a model call and a tool call, beside two activities that do nothing. */
export async function measureSteps(
  { client, baseline, setting }: Bench,
  { steps, rounds }: { steps: number; rounds: number },
): Promise<Pick<Report, 'step_ms' | 'baseline_step_ms' | 'step_ratio' | 'step_ratio_with_reader'>> {
  setting.say(`${steps} steps, ${rounds} times each`);
  const medians = await alternate(rounds, {
    baseline: async () => (await timed(() => baseline.run(2 * steps))) / steps,
    alone: async () => (await client.timeOfSteps(steps, { reader: false })) / steps,
    watched: async () => (await client.timeOfSteps(steps, { reader: true })) / steps,
  });
  return {
    step_ms: round(medians.alone),
    baseline_step_ms: round(medians.baseline),
    step_ratio: round(medians.alone / medians.baseline, 3),
    step_ratio_with_reader: round(medians.watched / medians.baseline, 3),
  };
}

/** How far a turn's history grows with each step. */
export async function measureHistory(
  { client, setting }: Bench,
  turns: number[],
): Promise<Pick<Report, 'bytes_per_step'>> {
  setting.say('history bytes');
  const bytes: Report['bytes_per_step'] = {};
  for (const steps of turns) bytes[steps] = Math.round((await client.bytesOfSteps(steps)) / steps);
  return { bytes_per_step: bytes };
}
