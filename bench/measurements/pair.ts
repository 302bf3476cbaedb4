import { connect, warmClient } from '../bench.ts';
import { type BenchClient, firstDelta } from '../bench-client.ts';
import type { Deployment } from '../deployment.ts';
import type { Setting } from '../setting.ts';
import { alternate, rate, round } from '../statistics.ts';

/** The median of each process, and the second beside the first. */
type Cost<First extends string, Second extends string> = Record<First | Second | 'ratio', number>;

const STEPS = 50;

/**
 * Runs the same turns on two processes of one Temporal, alternately.
 * @param rounds of 50 steps, and of 160 turns with 16 at once, on each
 */
export async function comparePair<First extends string, Second extends string>(
  setting: Setting,
  pair: Record<First | Second, Deployment>,
  { first, second, rounds }: { first: First; second: Second; rounds: number },
): Promise<Record<string, Cost<First, Second>>> {
  const temporal = await connect(pair[first], setting);
  const [one, other] = [await warmClient(pair[first], temporal), await warmClient(pair[second], temporal)];
  const compare = async (what: string, times: number, work: (client: BenchClient) => Promise<number>) => {
    setting.say(`${what}, ${times} times each`);
    const medians = await alternate(times, { one: () => work(one), other: () => work(other) });
    const ratio = round(medians.other / medians.one, 3);
    return { [first]: round(medians.one), [second]: round(medians.other), ratio } as Cost<First, Second>;
  };
  const compareSteps = (what: string, options: { reader?: boolean; agent?: string }) =>
    compare(`${STEPS} steps ${what}`, rounds, async (client) => (await client.timeOfSteps(STEPS, options)) / STEPS);
  return {
    first_delta_ms: await compare('first delta', 40, async (client) =>
      firstDelta(client.turnsUrl(await client.warmSession('plain'))),
    ),
    step_ms: await compareSteps('with a read-only tool', {}),
    step_ms_with_reader: await compareSteps('with a reader', { reader: true }),
    step_ms_with_effect: await compareSteps('with an effect', { agent: 'noting' }),
    step_ms_with_stdio: await compareSteps('with a program', { agent: 'stdio' }),
    bytes_per_step: await compare('history bytes', 1, async (client) => (await client.bytesOfSteps(STEPS)) / STEPS),
    turns_per_second_16: await compare('turns per second, 16 at once', rounds, async (client) => {
      const sessions = await client.sessions('plain', 16);
      return rate(160, 16, (worker) => client.turn(sessions[worker] ?? ''));
    }),
  };
}
