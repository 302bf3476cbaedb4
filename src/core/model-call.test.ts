import { expect, test } from 'vitest';
import { turnStart } from '../../test/support/random-turn.ts';
import { constantsOf } from './model-call.ts';
import type { SubAgent } from './records/threads.ts';

const AGENT: SubAgent = {
  threadId: 'thr_0',
  parent: { threadId: 'main', toolCallId: 'call_0' },
  title: 't',
  depth: 1,
  specHash: 'of its own',
  hasServers: false,
  iterations: 5,
};

test('the model calls of the root agent have the spec of the turn, and no sub-agent', () => {
  const constants = constantsOf(turnStart());
  expect(constants).toMatchObject({ specHash: turnStart().specHash, owner: turnStart().owner });
  expect(constants).not.toHaveProperty('subAgent');
  expect(constants).not.toHaveProperty('sessionLimit');
});

test('those of a sub-agent have its spec and itself', () => {
  expect(constantsOf(turnStart(), AGENT)).toMatchObject({ specHash: 'of its own', subAgent: AGENT });
});

test('a budget limits the calls of other turns only if it is that of the session', () => {
  const limit = { tokens: 100 };
  expect(constantsOf(turnStart({ budget: { scope: 'turn', limit } }))).not.toHaveProperty('sessionLimit');
  const shared = constantsOf(turnStart({ budget: { scope: 'session', limit } }));
  expect(shared).toMatchObject({ sessionLimit: limit });
});
