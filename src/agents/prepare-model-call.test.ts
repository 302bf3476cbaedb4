import { expect, test } from 'vitest';
import { prepareModelCall, type ModelCallSources } from './prepare-model-call.ts';

test('an unreadable conversation is an error at once, even while the agent is still being loaded', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the catalog is used
  const sources = { catalog: { agents: { spec: () => new Promise(() => undefined) } } } as unknown as ModelCallSources;
  const owner = { subjectId: 'ann', draftRoles: null };
  const call = { specHash: 'h', turnId: 'turn_1', sessionId: 'ses_1', owner, threadId: 'main' };
  const records = Promise.reject(new Error('the archive is unavailable'));
  const prepared = prepareModelCall(sources, call, records, new AbortController().signal);
  await expect(prepared).rejects.toThrow('the archive is unavailable');
});
