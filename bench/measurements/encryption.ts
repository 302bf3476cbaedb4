import { randomBytes } from 'node:crypto';
import { startPair } from '../all-in-one.ts';
import { connect } from '../bench.ts';
import { BenchClient, firstDelta } from '../bench-client.ts';
import type { Deployment } from '../deployment.ts';
import type { Setting } from '../setting.ts';
import { alternate, rate, round } from '../statistics.ts';

interface Cost {
  plain: number;
  encrypted: number;
  ratio: number;
}

const ROUNDS = 3;
const STEPS = 100;

/** Runs the same turns on two processes of one Temporal. */
export async function measureEncryption(setting: Setting): Promise<Record<string, Cost>> {
  const keys = { EVERTURN_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}` };
  const pair = await startPair(setting, { plain: {}, encrypted: keys });
  const temporal = await connect(pair.plain, setting);
  const clientOf = async ({ url }: Deployment): Promise<BenchClient> => {
    const client = new BenchClient(url, temporal);
    await client.putAgents();
    await client.timeOfSteps(20, { reader: true });
    return client;
  };
  const [plain, encrypted] = [await clientOf(pair.plain), await clientOf(pair.encrypted)];
  const compare = async (
    what: string,
    rounds: number,
    work: (client: BenchClient) => Promise<number>,
  ): Promise<Cost> => {
    setting.say(what);
    const medians = await alternate(rounds, { plain: () => work(plain), encrypted: () => work(encrypted) });
    return {
      plain: round(medians.plain),
      encrypted: round(medians.encrypted),
      ratio: round(medians.encrypted / medians.plain, 3),
    };
  };
  return {
    first_delta_ms: await compare('first delta', 40, async (client) =>
      firstDelta(client.turnsUrl(await client.warmSession('plain'))),
    ),
    step_ms: await compare(`${STEPS} steps with a reader, ${ROUNDS} times each`, ROUNDS, async (client) => {
      return (await client.timeOfSteps(STEPS, { reader: true })) / STEPS;
    }),
    bytes_per_step: await compare('history bytes', 1, async (client) => (await client.bytesOfSteps(STEPS)) / STEPS),
    turns_per_second_16: await compare('turns per second, 16 at once', ROUNDS, async (client) => {
      const sessions = await client.sessions('plain', 16);
      return rate(160, 16, (worker) => client.turn(sessions[worker] ?? ''));
    }),
  };
}
