import type { Client } from '@temporalio/client';
import type { Reader } from '../../auth/rights.ts';
import { retryingTurn } from '../../engine/turn-attempts.ts';
import type { TurnSummary } from '../../engine/turn-log-reader.ts';
import type { TurnResource } from './wire/resources.ts';
import { toTurnResource } from './wire/resources-to-wire.ts';

/** A turn with its current state. Temporal is asked whether a running turn repeats a call, if it is available. */
export async function turnResourceOf(client: Client, turn: TurnSummary, reader: Reader): Promise<TurnResource> {
  const isRunning = !turn.done && turn.position === undefined;
  const retrying = isRunning ? await retryingTurn(client, turn.created.turnId).catch(() => undefined) : undefined;
  return toTurnResource(turn, reader, retrying);
}
