import { expect, test, vi } from 'vitest';
import { BlobNotFound, BlobsUnavailable, type BlobStore } from '../blobs/blob-store.ts';
import type { InputItem } from '../core/records/input.ts';
import type { PendingCall } from '../core/records/pending.ts';
import { checkAnswersTo } from './check-answers.ts';

const question = JSON.stringify({ mode: 'form', message: '?', requestedSchema: { type: 'object' } });

/** The value that `restore` replaces by the question. */
const stored: unknown = { $blob: 'f'.repeat(64) };

function check(get: () => Promise<Buffer>, answerCheck: (asked: unknown, content: string) => string | undefined) {
  const call = { threadId: 'main', toolCallId: 'c' };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the check reads of a call
  const pending = [{ ...call, elicitation: { question: stored, state: { blob: 'f' } } }] as unknown as PendingCall[];
  const input: InputItem[] = [{ type: 'user.tool_response', ...call, content: 'yes' }];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only `get` is used
  return checkAnswersTo(pending, input, { blobs: { get } as unknown as BlobStore, answerCheck }, 'ses_1');
}

test('an answer is checked against the question of its server', async () => {
  const answerCheck = vi.fn(() => 'it must be a number');
  const checked = check(() => Promise.resolve(Buffer.from(question)), answerCheck);
  await expect(checked).rejects.toMatchObject({ code: 'invalid_answer', param: 'input.0.content' });
  expect(answerCheck).toHaveBeenCalledWith(JSON.parse(question), 'yes');
});

test('an answer to a question that is lost is accepted, so that the activity ends its call, but not in an outage', async () => {
  const answerCheck = vi.fn(() => 'it must be a number');
  await check(() => Promise.reject(new BlobNotFound('ses_1', 'f')), answerCheck);
  const away = new BlobsUnavailable('away');
  await expect(check(() => Promise.reject(away), answerCheck)).rejects.toBe(away);
  expect(answerCheck).not.toHaveBeenCalled();
});
