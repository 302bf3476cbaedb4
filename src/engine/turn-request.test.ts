import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import type { Engine } from './engine.ts';
import { EngineError, type EngineErrorCode } from './errors.ts';
import { claimRequest } from './request-claims.ts';
import type { TurnToStart } from './start-turn.ts';
import { TurnNotFound } from './turn-log-reader.ts';
import { ClaimedTurn } from './turn-request.ts';

let folder: string;
let catalog: Catalog;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-turn-request-'));
  const database = { kind: 'sqlite' as const, file: path.join(folder, 'catalog.db'), sync: 'normal' as const };
  catalog = await Catalog.open(database, pino({ level: 'silent' }));
});
afterAll(async () => {
  await catalog.close();
  await rm(folder, { recursive: true, force: true });
});

/** What becomes of a turn that was claimed; `error` is what its agent, or its receiver, fails with. */
const WAYS: Record<string, (turn: ClaimedTurn, error: Error) => Promise<unknown>> = {
  start: (turn) => turn.start(),
  steer: (turn) => turn.steer(),
  keep: (turn, error) => turn.keep(() => Promise.reject(error)),
};

// While the first request is in progress, a third one would start a second turn if a repetition released the key. An
// expired command is never carried out, whichever request has sent it.
test.each<[string, 'first' | 'repetition', EngineErrorCode, boolean]>([
  ['start', 'first', 'session_closed', true],
  ['start', 'repetition', 'session_closed', false],
  ['start', 'first', 'request_expired', true],
  ['start', 'repetition', 'request_expired', true],
  ['start', 'first', 'unavailable', false],
  ['start', 'repetition', 'unavailable', false],
  ['steer', 'first', 'session_closed', true],
  ['steer', 'repetition', 'session_closed', false],
  ['steer', 'first', 'unavailable', false],
  ['keep', 'first', 'session_closed', true],
  ['keep', 'repetition', 'session_closed', false],
  ['keep', 'first', 'unavailable', false],
])('whether the Idempotency-Key is free again: %s, %s request, %s: %s', async (way, which, code, isFree) => {
  const request = { catalog, scope: 'ann/turns', key: `${way} ${which} ${code}`, bodyHash: 'h', sessionId: 'ses_1' };
  const first = await claimRequest({ ...request, resourceId: 'turn_1' });
  const claim = which === 'first' ? first : await claimRequest({ ...request, resourceId: 'turn_2' });
  expect(claim.isNew).toBe(which === 'first');
  const error = new EngineError(code, code);
  const agent = Promise.reject(error);
  agent.catch(() => undefined);
  const logs = { start: (id: string) => Promise.reject(new TurnNotFound(id)) };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it fails before it uses anything else
  const engine = { catalog, logs } as unknown as Engine;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const turn = new ClaimedTurn(engine, { session: { id: 'ses_1' }, claim, agent } as unknown as TurnToStart);
  await expect(WAYS[way]?.(turn, error)).rejects.toBe(error);
  const { resourceId } = await claimRequest({ ...request, resourceId: 'turn_3' });
  expect(resourceId).toBe(isFree ? 'turn_3' : 'turn_1');
});
