import { expect, test, vi } from 'vitest';
import { modelRequest } from '../../test/support/model-request.ts';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { ModelError } from './model-error.ts';
import { withOptionalTools } from './optional-tools.ts';
import type { ModelChunk, ModelRequest } from './provider.ts';

const tool = { name: 'ask_user_question', description: '', parameters: {} };
const request = modelRequest({ model: 'm', tools: [tool], hasOptionalTools: true });
const refusal = new ModelError('bad_request', 'm does not support tools', { refusesTools: true });

/** A model that fails like this while it is offered tools. */
function modelThat(failure: Error) {
  const asked: number[] = [];
  const warn = vi.fn();
  const stream = withOptionalTools(
    async function* ({ tools }): AsyncGenerator<ModelChunk> {
      asked.push(tools.length);
      if (tools.length > 0) throw failure;
      yield await Promise.resolve({ content: 'ok' });
    },
    { name: 'own', log: { warn } },
  );
  return { asked, warn, read: (one: ModelRequest) => Array.fromAsync(stream(one, NEVER_ABORTED)) };
}

test('a model that takes no tools answers without the built-in ones, and is not offered them again', async () => {
  const { asked, warn, read } = modelThat(refusal);
  expect([await read(request), await read(request)]).toEqual([[{ content: 'ok' }], [{ content: 'ok' }]]);
  expect(asked).toEqual([1, 0, 0]);
  expect(warn).toHaveBeenCalledTimes(1);
  await read({ ...request, model: 'another' });
  expect(asked.slice(3)).toEqual([1, 0]);
});

test('the tools of an agent are not left out', async () => {
  const { asked, read } = modelThat(refusal);
  await expect(read({ ...request, hasOptionalTools: false })).rejects.toBe(refusal);
  expect(asked).toEqual([1]);
});

test('other failures are failures', async () => {
  const down = new ModelError('overloaded', 'm does not support tools');
  const { asked, read } = modelThat(down);
  await expect(read(request)).rejects.toBe(down);
  expect(asked).toEqual([1]);
});
