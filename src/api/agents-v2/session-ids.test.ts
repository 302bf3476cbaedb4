import { expect, test } from 'vitest';
import { newId } from '../../engine/new-id.ts';
import { ApiError } from '../http/errors.ts';
import { fromUuid, newSessionId, toUuid } from './session-ids.ts';

test('each id of a session has one UUID, and each UUID one id', () => {
  for (let i = 0; i < 200; i++) {
    for (const id of [newId('ses'), newSessionId()]) {
      expect(fromUuid(toUuid(id))).toBe(id);
      expect(fromUuid(toUuid(id).toUpperCase())).toBe(id);
    }
  }
  expect(toUuid('ses_00000000000000000000000000')).toBe('00000000-0000-0000-0000-000000000000');
  expect(fromUuid('ffffffff-ffff-ffff-ffff-ffffffffffff')).toBe('ses_7zzzzzzzzzzzzzzzzzzzzzzzzz');
});

test('the UUIDs of new sessions are of version 7, and sort by their time', () => {
  const uuids = Array.from({ length: 100 }, () => toUuid(newSessionId()));
  for (const uuid of uuids) expect(uuid).toMatch(/^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  expect(new Set(uuids).size).toBe(100);
  const time = Number.parseInt(toUuid(newSessionId()).replace('-', '').slice(0, 12), 16);
  expect(Math.abs(time - Date.now())).toBeLessThan(60_000);
});

test.each(['', 'ses_1', '0199a8d4-9d1c-7e32-8f5d', '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e0g', '../x'])(
  '%j is no UUID',
  (text) => expect(() => fromUuid(text)).toThrow(ApiError),
);
