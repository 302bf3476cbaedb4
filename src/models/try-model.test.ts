import { describe, expect, onTestFinished, test } from 'vitest';
import { openModel } from '../../test/support/model-answers.ts';
import { failing, PROTOCOLS, sending, startEndpoint } from '../../test/support/model-protocols.ts';
import { tryModel } from './try-model.ts';

const never = new AbortController().signal;

describe.each(PROTOCOLS)('$kind', (protocol) => {
  const { kind, events } = protocol;

  async function start() {
    const endpoint = await startEndpoint();
    onTestFinished(() => endpoint.stop());
    return { endpoint, attempt: () => tryModel(openModel(endpoint, kind), never) };
  }

  test('a model that is cut off at the limit has answered', async () => {
    const { endpoint, attempt } = await start();
    endpoint.script(sending(...events({ text: 'Yes, I', stop: 'length' })));
    expect(await attempt()).toBeUndefined();
    const [request] = endpoint.requests;
    expect(JSON.stringify(request?.headers)).toContain('the-key');
    expect(JSON.stringify(request?.body)).toMatch(/"max\w*[Tt]okens":16\b/);
  });

  test('one that says nothing up to its limit, since it thinks, has answered', async () => {
    const { endpoint, attempt } = await start();
    endpoint.script(sending(...events({ stop: 'length' })));
    expect(await attempt()).toBeUndefined();
  });

  test('a wrong key, and an answer that breaks off, are named', async () => {
    const { endpoint, attempt } = await start();
    endpoint.script(failing(protocol.error(401, 'this key is wrong'), 401));
    expect(await attempt()).toMatch(/^answered 401: .*this key is wrong/);
    endpoint.script(sending(...events({ text: 'Yes' }).slice(0, 1)));
    expect(await attempt()).toMatch(/ended its answer in the middle|broke off|sent nothing/);
  });
});
