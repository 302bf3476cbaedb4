import type { Bench } from '../bench.ts';
import { THINKING_AGENT, timeOfTurn } from '../bench-client.ts';
import { startPlainLoop } from '../setting.ts';
import { alternate, round } from '../statistics.ts';

/**
 * Compares a turn with a plain loop in one process, which calls the same model and the same tool without Temporal. The
 * model takes 200 ms per step and the tool 20, except in the last step, whose message ends the turn.
 */
export async function measureLoop(
  { client, setting }: Bench,
  { steps, rounds }: { steps: number; rounds: number },
): Promise<number> {
  setting.say(`${steps} steps with a 200 ms model, beside a plain loop`);
  const { url } = await startPlainLoop(setting, THINKING_AGENT.model.name);
  const calls = steps - 1;
  const medians = await alternate(rounds, {
    loop: () => timeOfTurn(`${url}/turns`, calls),
    durable: async () => timeOfTurn(client.turnsUrl(await client.warmSession('thinking-tools')), calls),
  });
  return round(medians.durable / medians.loop, 3);
}
