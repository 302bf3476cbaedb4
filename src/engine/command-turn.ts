import type { TurnProjection } from '../core/projection.ts';
import type { TurnCommand, Verdict } from '../core/turn-command.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';

/** What a command may take in a Temporal payload beside its content: the caller and its roles. */
export const CALLER_BYTES = 16 * 1024;

/** How long the turn may take to record a command: a worker that was lost is replaced within seconds. */
const VERDICT_TIMEOUT_MS = 30_000;

/**
 * Sends a command to a turn, and returns once the turn has recorded it, with the state in which the turn then is;
 * undefined if the turn has ended before that, and will never record it.
 * @throws EngineError if the turn refuses the command; `unavailable` if it is unknown whether the turn will record it
 */
export async function commandTurn(
  { commands, logs }: Pick<Engine, 'commands' | 'logs'>,
  turnId: string,
  command: TurnCommand,
): Promise<TurnProjection | undefined> {
  if (!(await commands.commandTurn(turnId, command))) return undefined;
  const timeout = AbortSignal.timeout(VERDICT_TIMEOUT_MS);
  try {
    const projection = await logs.currentRun(turnId, {
      until: ({ verdicts }) => verdicts.has(command.id),
      follow: timeout,
    });
    const verdict = projection.verdicts.get(command.id);
    if (verdict) throw errorOf(verdict);
    return projection.verdicts.has(command.id) ? projection : undefined;
  } catch (error) {
    if (!timeout.aborted) throw error;
    throw new EngineError('unavailable', 'the turn has not recorded the command yet: send it again', { cause: error });
  }
}

export function errorOf({ code, message, param }: NonNullable<Verdict>): EngineError {
  return new EngineError(code, message, { param });
}
