import { expect, test, vi } from 'vitest';
import { ServerContacts } from './server-contacts.ts';
import { eventually } from '../../test/support/eventually.ts';

const OLLAMA = { providerName: 'ollama', baseUrl: 'http://127.0.0.1:11434/v1' };

/** The contacts of a process, with a catalog that has these rows, and may fail. */
function contacts({ known = false, failures = 0 } = {}) {
  let left = failures;
  const fail = () => (left-- > 0 ? Promise.reject(new Error('the catalog is unavailable')) : undefined);
  const record = vi.fn(() => fail() ?? Promise.resolve());
  const hasResponded = vi.fn(() => fail() ?? Promise.resolve(known));
  const warn = vi.fn();
  const made = new ServerContacts({ catalog: { modelServers: { record, hasResponded } }, log: { warn } });
  return { made, record, hasResponded, warn };
}

test('the first answer of a server is recorded, and no later one reads or writes the catalog', async () => {
  const { made, record, hasResponded } = contacts();
  for (let answer = 1; answer <= 3; answer++) made.note(OLLAMA);
  expect(await made.hasResponded(OLLAMA)).toBe(true);
  expect([record.mock.calls.length, hasResponded.mock.calls.length]).toEqual([1, 0]);
});

test('another address of a provider is another server', async () => {
  const { made } = contacts();
  made.note(OLLAMA);
  expect(await made.hasResponded({ ...OLLAMA, baseUrl: 'http://10.0.0.7/v1' })).toBe(false);
});

test('a record of another process is read once', async () => {
  const { made, hasResponded } = contacts({ known: true });
  expect([await made.hasResponded(OLLAMA), await made.hasResponded(OLLAMA)]).toEqual([true, true]);
  expect(hasResponded).toHaveBeenCalledTimes(1);
});

test('while the catalog is unavailable, a server counts as one that has answered', async () => {
  const { made } = contacts({ failures: 1 });
  expect(await made.hasResponded(OLLAMA)).toBe(true);
  expect(await made.hasResponded(OLLAMA)).toBe(false);
});

test('an answer that could not be recorded is logged, and the next one is recorded', async () => {
  const { made, record, warn } = contacts({ failures: 1 });
  made.note(OLLAMA);
  await eventually(() => expect(warn).toHaveBeenCalledTimes(1));
  made.note(OLLAMA);
  expect(record).toHaveBeenCalledTimes(2);
});
