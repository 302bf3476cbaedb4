import { expect, test } from 'vitest';
import { timeOf } from '../../core/ids.ts';
import { newId } from '../../engine/new-id.ts';
import { DELEGATE, routeDelegation } from './delegate.ts';

const messageId = newId('msg');

test('each attempt at a message gives a call the same session, and no two calls share one', () => {
  const route = (index: number, started = 0) => routeDelegation({ messageId, mayStart: 2 }, { index, started });
  expect(route(0)).toEqual(route(0, 1));
  expect(route(1)).not.toEqual(route(0));
  const [first] = Object.values(route(0));
  expect(first).toMatch(/^ses_[0-9a-z]{26}$/);
  expect(timeOf(first ?? '')).toBe(timeOf(messageId));
});

test('no more agents get tasks than a message may start, and none from a sub-agent', () => {
  const thread = { threadId: 'thread_1', title: 't', parent: { threadId: 'main', toolCallId: 'c' }, depth: 1 };
  const subAgent = { ...thread, specHash: 'a1', hasServers: false, iterations: 5 };
  expect(routeDelegation({ messageId, mayStart: 2 }, { index: 2, started: 2 })).toMatchObject({
    problem: expect.stringContaining('No more agents') as string,
  });
  expect(routeDelegation({ messageId, mayStart: 2, subAgent }, { index: 0, started: 0 })).toMatchObject({
    problem: expect.stringContaining('A sub-agent cannot') as string,
  });
});

test('only an agent whose turns wait has the tool', () => {
  const delegates = [{ name: 'org/a', description: 'Does a.', spec: 'f'.repeat(64) }];
  const toolOf = (pause: 'wait' | 'end') => DELEGATE.offer({ model: { name: 'm' }, delegates, config: { pause } });
  expect(toolOf('wait')?.description).toContain('- org/a: Does a.');
  expect(toolOf('end')).toBeUndefined();
});
