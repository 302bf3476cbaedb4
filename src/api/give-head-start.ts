import { traceHeaders } from '../telemetry/propagation.ts';
import type { CreateTurnCommand } from '../../workflows/messages.ts';
import type { ApiContext } from './context.ts';
import { REQUEST_MS } from './turn-limits.ts';

interface HeadStartContext extends Pick<ApiContext, 'headStarts' | 'log'> {
  catalog: { turns: Pick<ApiContext['catalog']['turns'], 'requests' | 'last'> };
}

/**
 * The session will most probably accept the turn, so the model may begin. Not with a turn that answers calls: these are
 * run first; nor with one that may have begun already, or that meets another on the way: nobody knows yet which of the
 * two has to end before the other asks its model. The session is asked meanwhile: once `answered` is aborted it is too
 * late. Never throws: whatever is wrong, the turn's own call will be made.
 */
export function giveHeadStart(
  context: HeadStartContext,
  sessionId: string,
  command: CreateTurnCommand,
  answered: AbortSignal,
): void {
  if (command.input.some(({ type }) => type !== 'user.message')) return;
  offer(context, sessionId, command, answered).catch((error: unknown) => {
    context.log.debug({ turnId: command.turnId, err: error }, 'a turn got no head start');
  });
}

async function offer(
  { catalog, headStarts }: HeadStartContext,
  sessionId: string,
  { previous, turnId, createdAt, createdBy, input, specHash }: CreateTurnCommand,
  answered: AbortSignal,
): Promise<void> {
  const [requests, last] = await Promise.all([catalog.turns.requests(sessionId), catalog.turns.last(sessionId)]);
  const since = new Date(Date.parse(createdAt) - REQUEST_MS).toISOString();
  const meetsAnother = requests.some(({ id, created_at: at }) => id !== turnId && at > since);
  if (meetsAnother || answered.aborted) return;
  const after = last?.id ?? null;
  const previousTurnId = previous.turn === 'id' ? previous.turnId : previous.turn === 'last' ? after : null;
  const { traceparent } = traceHeaders();
  const trace = traceparent === undefined ? {} : { trace: { traceparent } };
  headStarts.offer({ turnId, sessionId, previousTurnId, after, createdAt, createdBy, input, specHash, ...trace });
}
