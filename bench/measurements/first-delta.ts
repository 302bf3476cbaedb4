import type { Bench } from '../bench.ts';
import { firstDelta } from '../bench-client.ts';
import type { Report } from '../report.ts';
import { startBeside } from '../setting.ts';
import { alternate, round } from '../statistics.ts';

/** When the reader of a plain turn gets its first text, beside when the turn is accepted. */
export async function measureFirstDelta(
  { client, setting }: Bench,
  rounds: number,
): Promise<Pick<Report, 'first_delta_ms' | 'accepted_ms' | 'first_delta_mcp_ms'>> {
  setting.say('first delta');
  const medians = await alternate(rounds, {
    plain: async () => firstDelta(client.turnsUrl(await client.warmSession('plain'))),
    accepted: async () => client.accepted(await client.warmSession('plain')),
    mcp: async () => firstDelta(client.turnsUrl(await client.warmSession('tools'))),
  });
  return {
    first_delta_ms: round(medians.plain),
    accepted_ms: round(medians.accepted),
    first_delta_mcp_ms: round(medians.mcp),
  };
}

/** The same with a model that waits before its first byte, beside a handler without Temporal. */
export async function measureFirstDeltaBehindModel(
  { client, setting }: Bench,
  rounds: number,
): Promise<Pick<Report, 'first_delta_behind_200_ms' | 'bare_first_delta_behind_200_ms'>> {
  setting.say('first delta with a model that waits 200 ms');
  const { url } = await startBeside<{ url: string }>('bare-handler.ts', [setting.modelUrl], setting.cleanup);
  const turnsUrl = client.turnsUrl(await client.session('thinking'));
  const medians = await alternate(rounds, {
    bare: () => firstDelta(`${url}/turns`),
    durable: () => firstDelta(turnsUrl),
  });
  return {
    first_delta_behind_200_ms: round(medians.durable),
    bare_first_delta_behind_200_ms: round(medians.bare),
  };
}
