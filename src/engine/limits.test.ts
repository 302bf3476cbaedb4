import { expect, test } from 'vitest';
import { loadConfig } from '../config.ts';
import { limitsInForce } from './limits.ts';

const limits = (env: Record<string, string>, isKeyless = false) => limitsInForce(loadConfig(env), { isKeyless });

test('one subject may take four fifths of the slots, and never all of several, unless a setting says otherwise', () => {
  const share = (slots: number) => limits({ EVERTURN_AGENT_SESSIONS: String(slots) }).agentSessionsPerSubject;
  expect([1, 2, 3, 4, 5, 100].map(share)).toEqual([1, 1, 2, 3, 4, 80]);
  expect(limits({}, true).agentSessionsPerSubject).toBe(Infinity);
  expect(limits({ EVERTURN_AGENT_SESSIONS_PER_SUBJECT: '0' }).agentSessionsPerSubject).toBe(Infinity);
  expect(limits({ EVERTURN_AGENT_SESSIONS_PER_SUBJECT: '7' }, true).agentSessionsPerSubject).toBe(7);
});

test('the storage of a subject has no limit unless it is set', () => {
  expect(limits({}).storedMegabytesPerSubject).toBe(Infinity);
  expect(limits({ EVERTURN_STORED_MEGABYTES_PER_SUBJECT: '5' }, true).storedMegabytesPerSubject).toBe(5);
});

test('one subject may have five kernels, if there is more than one subject', () => {
  expect(limits({}).kernelsPerSubject).toBe(5);
  expect(limits({}, true).kernelsPerSubject).toBe(Infinity);
  expect(limits({ EVERTURN_KERNELS_PER_SUBJECT: '2' }, true).kernelsPerSubject).toBe(2);
});
