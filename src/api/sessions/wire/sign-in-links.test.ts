import { expect, test } from 'vitest';
import { OTHER, OWNER } from '../../../../test/support/readers.ts';
import type { Reader } from '../../../auth/rights.ts';
import type { AuthRequired } from '../../../core/records/servers.ts';
import { actionToResource } from './actions.ts';
import { toWire } from './events-to-wire.ts';
import { toTurnResource } from './resources-to-wire.ts';

/** The link of a sign-in is for the owner of the session alone. */

const LINK = 'https://everturn.example.com/v1/agents/mcp/authorize?state=s';
const at = '2026-11-24T08:00:00.000Z';
const required: AuthRequired = {
  kind: 'mcp.auth_required',
  id: 'evt_1',
  at,
  threadId: 'main',
  servers: [{ id: 'notes', name: 'notes', signInId: 's', authUrl: LINK }],
  calls: [],
};
const done = {
  at,
  end: { status: 'done' as const, output: null, requiredActions: [required] },
  usage: { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
  workedMs: 0,
  modelCalls: 0,
  toolCalls: 0,
  waitedMs: 0,
};
const by = { subjectId: 'ann', subjectType: 'user' as const, subjectSlug: 'ann' };
const created = {
  kind: 'turn.created' as const,
  id: 'evt_0',
  at,
  turnId: 'turn_1',
  sessionId: 'ses_1',
  previousTurnId: null,
  createdBy: by,
  input: [],
  specHash: 'h',
};
const action = {
  id: 'act_1',
  session_id: 'ses_1',
  turn_id: 'turn_1',
  key: 's',
  thread_id: 'main',
  tool_call_id: null,
  kind: 'sign_in' as const,
  status: 'pending' as const,
  agent_name: null,
  requested_at: at,
  expires_at: null,
  escalated_to: '[]',
  detail: { tool: { server: 'notes', name: null }, authUrl: LINK },
  decisions: [],
};

const shown = {
  event: (reader: Reader) => toWire(required, reader),
  'end of a turn': (reader: Reader) => toWire({ kind: 'turn.done', id: 'evt_2', ...done }, reader),
  turn: (reader: Reader) => toTurnResource({ created, done: { kind: 'turn.done', id: 'evt_2', ...done } }, reader),
};

test.each(Object.entries(shown))('the %s has the link for the owner, and an empty one for others', (_, show) => {
  const links = (reader: Reader) =>
    [...JSON.stringify(show(reader)).matchAll(/"auth_url":"([^"]*)"/g)].map(([, link]) => link);
  expect(links(OWNER)).toEqual([LINK, LINK]);
  expect(links(OTHER)).toEqual(['', '']);
});

test('an action has the link for the owner, and none for others', () => {
  expect(actionToResource(action, OWNER)).toMatchObject({ auth_url: LINK });
  expect(actionToResource(action, OTHER)).not.toHaveProperty('auth_url');
});
