import type { Request } from 'express';
import { MAX_PAYLOAD_BYTES, offload } from '../blobs/offload.ts';
import type { Claim } from '../catalog/idempotency.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { hashOf } from '../hash.ts';
import type { TurnStart } from '../log/history.ts';
import { newId } from '../log/ids.ts';
import type { Subject } from '../log/records.ts';
import { TurnNotFound } from '../logs/turn-logs.ts';
import { createTurnBody, type CreateTurnBody } from '../wire/input.ts';
import type { CreateTurnCommand } from '../../workflows/messages.ts';
import { checkAgent } from './agents.ts';
import type { ApiContext } from './context.ts';
import { ApiError, ERRORS } from './errors.ts';
import { idempotencyKey, KEY_LIFETIME_MS, keyReused } from './idempotency.ts';
import { parseBody } from './request.ts';
import { checkInput, keepInput } from './turn-input.ts';

/** A request without a key that comes again within this time, because its answer was lost, is the same request. */
const REPEAT_WITHIN_MS = 30_000;

/** What the input of a turn may take in Temporal; the rest of the payload is for the turn itself. */
const MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES - 32 * 1024;

type TurnClaim = Pick<Claim, 'scope' | 'key' | 'resourceId'>;

export interface TurnRequest {
  turnId: string;
  /** Whether the client wants the stream, or only the turn. */
  stream: boolean;
  /** Starts the turn, if this request has not done so before. @throws ApiError */
  start: () => Promise<void>;
  /** The answer has reached the client, as far as one can know: the same body again is another turn. */
  delivered: () => Promise<void>;
}

/**
 * Reads a request for a turn, and finds out whether it came before: then it stands for the same turn.
 * @throws ApiError before anything is written
 */
export async function readTurnRequest(
  context: ApiContext,
  { request, session, subject }: { request: Request; session: SessionRow; subject: Subject },
): Promise<TurnRequest> {
  const key = idempotencyKey(request);
  const body = parseBody(createTurnBody, request);
  if (session.closed) throw new ApiError('session_closed', 'the session is closed');
  checkInput(body.input ?? []);
  await checkAgent(await context.catalog.agents.spec(session.spec_hash), context.agentCheck, 'agent.');

  const bodyHash = hashOf(body);
  const scope = `${subject.subjectId}/turns/${session.id}`;
  const now = new Date();
  const claim = await context.catalog.idempotency.claim(
    {
      scope,
      key: key === undefined ? `body:${bodyHash}` : `key:${key}`,
      resourceId: newId('turn'),
      bodyHash,
      now: now.toISOString(),
    },
    new Date(now.getTime() - (key === undefined ? REPEAT_WITHIN_MS : KEY_LIFETIME_MS)).toISOString(),
  );
  if (claim.bodyHash !== bodyHash) throw keyReused();
  const held: TurnClaim = {
    scope,
    key: key === undefined ? `body:${bodyHash}` : `key:${key}`,
    resourceId: claim.resourceId,
  };
  return {
    turnId: claim.resourceId,
    stream: body.stream !== false,
    start: async () => {
      if (!claim.isNew && (await exists(context, claim.resourceId))) return;
      await startTurn(context, { session, subject, body, claim: held });
    },
    delivered: async () => {
      if (key === undefined) await context.catalog.idempotency.release(held);
    },
  };
}

async function exists({ logs }: ApiContext, turnId: string): Promise<boolean> {
  try {
    await logs.start(turnId);
    return true;
  } catch (error) {
    if (error instanceof TurnNotFound) return false;
    throw error;
  }
}

interface TurnToStart {
  session: SessionRow;
  subject: Subject;
  body: CreateTurnBody;
  claim: TurnClaim;
}

async function startTurn(context: ApiContext, { session, subject, body, claim }: TurnToStart): Promise<void> {
  const { catalog, commands, turnIndex, log } = context;
  const { resourceId: turnId } = claim;
  const sessionId = session.id;
  const command = await commandOf(context, { session, subject, body, turnId });
  // Before the session is asked: after a crash in between, this is the trace of the turn.
  await catalog.turns.request({ id: turnId, session_id: sessionId, created_at: command.createdAt });
  try {
    const { previousTurnId, sequence } = await commands.createTurn(sessionId, command);
    const start: TurnStart = { ...command, sessionId, previousTurnId, sequence, resumes: [] };
    // The turn runs: whatever is wrong with the index now, the answer is a success, and the archive will mend it.
    await turnIndex
      .accept(start)
      .catch((error: unknown) => log.error({ turnId, err: error }, 'a turn was not indexed'));
  } catch (error) {
    if (error instanceof ApiError && ERRORS[error.code].status < 500) {
      await catalog.turns.withdraw(turnId);
      await catalog.idempotency.release(claim);
    }
    throw error;
  }
}

async function commandOf(
  { catalog, blobs, config }: ApiContext,
  { session, subject, body, turnId }: Omit<TurnToStart, 'claim'> & { turnId: string },
): Promise<CreateTurnCommand> {
  const context = { blobs, sessionId: session.id };
  const spec = await catalog.agents.spec(session.spec_hash);
  const input = await keepInput(body.input ?? [], context);
  return {
    turnId,
    createdAt: new Date().toISOString(),
    createdBy: subject,
    input: await offload(input, { ...context, maxBytes: MAX_INPUT_BYTES }),
    previous: previousOf(body.previous_turn_id),
    specHash: session.spec_hash,
    hasServers: (spec.mcp_servers ?? []).length > 0,
    limits: {
      iterations: spec.config?.iteration_limit ?? 100,
      seconds: config.turnSeconds,
      toolSeconds: config.tool.timeoutSeconds,
      toolHeartbeatSeconds: config.tool.heartbeatSeconds,
    },
  };
}

function previousOf(id: string | null | undefined): CreateTurnCommand['previous'] {
  if (id === undefined || id === null || id === 'auto') return { turn: 'last' };
  if (id === 'none' || id === 'null') return { turn: 'none' };
  return { turn: 'id', turnId: id };
}
