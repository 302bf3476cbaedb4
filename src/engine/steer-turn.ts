import type { Caller } from '../core/subject.ts';
import { MAX_PAYLOAD_BYTES, offload } from '../blobs/offload.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { InputItem } from '../core/records/input.ts';
import type { SteerCommand } from '../core/steering.ts';
import { CALLER_BYTES, errorOf, executeCommand } from './command-turn.ts';
import type { Engine } from './engine.ts';
import { EngineError } from './errors.ts';
import type { PreviousTurn } from './start-turn.ts';
import { storeInput } from './store-input.ts';

/** How long a turn that is being cancelled may take to end. */
const END_TIMEOUT_MS = 40_000;

interface Messages {
  /** From `authorizeSession`: the caller may send messages to it. */
  session: SessionRow;
  caller: Caller;
  previous: PreviousTurn;
  /** Equal for equal requests. */
  commandId: string;
  isRepetition: boolean;
  /** The messages, with their files inline. */
  loadInput: () => Promise<InputItem[]>;
}

/**
 * Sends messages to the running turn of a session, and returns its id once the turn has accepted them; undefined if
 * none runs that the messages would follow. A repetition finds the turn that has accepted them.
 * @throws EngineError `too_many_messages`, or `unavailable` if it is unknown whether the turn will accept them
 */
export async function steerTurn(engine: Engine, messages: Messages): Promise<string | undefined> {
  const { session, caller, previous, commandId, isRepetition, loadInput } = messages;
  const last = await engine.turnIndex.confirmedLast(session.id, commandId);
  if (!last) return undefined;
  if (isRepetition) {
    const known = await steeredTurn(engine, session.id, commandId);
    if (known !== undefined) return known;
  }
  if (previous.turn === 'none' || (previous.turn === 'id' && previous.turnId !== last.id)) return undefined;
  const { actions, done } = await engine.logs.currentRun(last.id);
  if (!actions || done) return undefined;
  const draft: SteerCommand = {
    type: 'steer',
    id: commandId,
    subject: caller.subject,
    sessionId: session.id,
    messages: contentsOf(await loadInput()),
  };
  // Before anything is stored.
  const refusal = actions.refuse(draft);
  if (refusal && refusal.code !== 'nothing_running') throw errorOf(refusal);
  try {
    if (!(await executeCommand(engine, last.id, await stored(engine, draft)))) return undefined;
    return last.id;
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== 'nothing_running') throw error;
    // It is being cancelled: the messages begin the turn that follows.
    const follow = AbortSignal.timeout(END_TIMEOUT_MS);
    await engine.logs.currentRun(last.id, follow);
    return undefined;
  }
}

/** The turn that has recorded a command. Only a turn that ran when the request was first made can have it. */
async function steeredTurn({ catalog, logs }: Engine, sessionId: string, commandId: string) {
  for (const { id } of await catalog.turns.around(sessionId, commandId)) {
    for await (const { entries } of logs.readStored(id)) {
      const isSteered = entries.some(({ record }) => record.kind === 'user.steered' && record.commandId === commandId);
      if (isSteered) return id;
    }
  }
  return undefined;
}

async function stored({ blobs }: Engine, command: SteerCommand): Promise<SteerCommand> {
  const { sessionId } = command;
  const items = command.messages.map((content): InputItem => ({ type: 'user.message', content }));
  const input = await storeInput(items, { blobs, sessionId });
  const messages = await offload(contentsOf(input), { blobs, sessionId, maxBytes: MAX_PAYLOAD_BYTES - CALLER_BYTES });
  return { ...command, messages };
}

function contentsOf(input: InputItem[]): SteerCommand['messages'] {
  return input.flatMap((item) => (item.type === 'user.message' ? [item.content] : []));
}
