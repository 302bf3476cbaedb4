import { expect, test } from 'vitest';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import { NEVER_ABORTED } from '../../lib/abort.ts';
import { createBeginModelCall } from './begin-model-call.ts';

test('an API does not begin a model call for which files have to be read', async () => {
  const created: UnsequencedRecord = {
    kind: 'turn.created',
    at: '2026-01-01T00:00:00.000Z',
    turnId: 'turn_1',
    sessionId: 'ses_1',
    previousTurnId: null,
    createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
    input: [
      {
        type: 'user.message',
        content: [{ type: 'file', name: 'a.pdf', mimeType: 'application/pdf', bytes: 1, base64: 'YQ==' }],
      },
    ],
    specHash: 'hash',
  };
  const dependencies = {
    conversations: { beginning: () => Promise.resolve([created]) },
    catalog: { agents: { spec: () => Promise.reject(new Error('a call is prepared')) } },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- nothing else is asked for
  const begin = createBeginModelCall(dependencies as unknown as Parameters<typeof createBeginModelCall>[0]);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const start = { turnId: 'turn_1', sessionId: 'ses_1' } as Parameters<typeof begin>[0];
  expect(await begin(start, NEVER_ABORTED)).toBeUndefined();
});
