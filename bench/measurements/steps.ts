import type { Bench } from '../bench.ts';
import { timeOfTurn } from '../bench-client.ts';
import type { Report } from '../report.ts';
import { startPlainLoop } from '../setting.ts';
import { alternate, round, timed } from '../statistics.ts';

type Steps = Pick<
  Report,
  | 'step_ms'
  | 'baseline_step_ms'
  | 'plain_step_ms'
  | 'step_ratio'
  | 'step_ratio_with_reader'
  | 'step_ratio_with_effect'
  | 'step_ratio_with_stdio'
>;

/**
 * What a step costs, a model call and a tool call, beside two activities that do nothing. The plain loop's step is what the
 * calls themselves cost.
 */
export async function measureSteps(
  { client, baseline, setting }: Bench,
  { steps, rounds }: { steps: number; rounds: number },
): Promise<Steps> {
  setting.say(`${steps} steps, ${rounds} times each`);
  const { url } = await startPlainLoop(setting, 'instant');
  const medians = await alternate(rounds, {
    plain: async () => (await timeOfTurn(`${url}/turns`, steps)) / steps,
    baseline: async () => (await timed(() => baseline.run(2 * steps))) / steps,
    alone: async () => (await client.timeOfSteps(steps)) / steps,
    noting: async () => (await client.timeOfSteps(steps, { agent: 'noting' })) / steps,
    stdio: async () => (await client.timeOfSteps(steps, { agent: 'stdio' })) / steps,
    watched: async () => (await client.timeOfSteps(steps, { reader: true })) / steps,
  });
  return {
    step_ms: round(medians.alone),
    baseline_step_ms: round(medians.baseline),
    plain_step_ms: round(medians.plain),
    step_ratio: round(medians.alone / medians.baseline, 3),
    step_ratio_with_reader: round(medians.watched / medians.baseline, 3),
    step_ratio_with_effect: round(medians.noting / medians.baseline, 3),
    step_ratio_with_stdio: round(medians.stdio / medians.baseline, 3),
  };
}

/** How much a turn's history grows with each step. */
export async function measureHistory(
  { client, setting }: Bench,
  turns: number[],
): Promise<Pick<Report, 'bytes_per_step'>> {
  setting.say('history bytes');
  const bytes: Report['bytes_per_step'] = {};
  for (const steps of turns) bytes[steps] = Math.round((await client.bytesOfSteps(steps)) / steps);
  return { bytes_per_step: bytes };
}
