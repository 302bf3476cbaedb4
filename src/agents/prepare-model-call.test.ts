import { expect, test } from 'vitest';
import { prepareModelCall, type ModelCallSources } from './prepare-model-call.ts';

test('a conversation that can not be read is an error at once, also while the catalog is still asked for the agent', async () => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it comes no further than the catalog
  const sources = { catalog: { agents: { spec: () => new Promise(() => undefined) } } } as unknown as ModelCallSources;
  const call = { specHash: 'h', sessionId: 'ses_1', owner: { subjectId: 'ann', draftRoles: null }, threadId: 'main' };
  const records = Promise.reject(new Error('the archive is away'));
  const prepared = prepareModelCall(sources, call, records, new AbortController().signal);
  await expect(prepared).rejects.toThrow('the archive is away');
});
