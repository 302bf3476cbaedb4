import type { TurnCommand, Verdict } from '../core/turn-command.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

/** What a command may take in a Temporal payload beside its content: the caller and its roles. */
export const CALLER_BYTES = 16 * 1024;

/** How long the turn may take to record a command: a worker that was lost is replaced within seconds. */
const VERDICT_TIMEOUT_MS = 30_000;

/**
 * Sends a command to a turn, and returns once the turn has recorded it, with the state of the turn then, and the
 * answered calls to which the subject had given the same answers before; undefined if the turn has ended before, and
 * will never record it.
 * @throws EngineError if the turn refuses the command; `unavailable` if it is unknown whether the turn will record it
 */
export async function executeCommand(
  { commands, logs }: Pick<Engine, 'commands' | 'logs'>,
  turnId: string,
  command: TurnCommand,
): ReturnType<TurnLogReader['command']> {
  const signal = AbortSignal.timeout(VERDICT_TIMEOUT_MS);
  try {
    const send = () => commands.commandTurn(turnId, command);
    const recorded = await logs.command(turnId, { id: command.id, send, signal });
    if (recorded?.refusal) throw errorOf(recorded.refusal);
    return recorded;
  } catch (error) {
    if (!signal.aborted) throw error;
    throw new EngineError('unavailable', 'the turn has not recorded the command yet: send it again', { cause: error });
  }
}

export function errorOf({ code, message, param }: NonNullable<Verdict>): EngineError {
  return new EngineError(code, message, { param });
}
