import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { modelRequest } from '../../test/support/model-request.ts';
import { PROTOCOLS, sending, startEndpoint } from '../../test/support/model-protocols.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { openProviders } from './open-providers.ts';

const speech = {
  type: 'file' as const,
  name: 'audio-1',
  mimeType: 'audio/mpeg',
  bytes: 6,
  base64: '',
  asAudio: true as const,
};
const { asAudio: _, ...mentioned } = speech;

test.each(PROTOCOLS)('$kind gets audio as such if its protocol takes it', async ({ kind, events }) => {
  const endpoint = await startEndpoint();
  onTestFinished(() => endpoint.stop());
  const config = { kind, apiKey: 'k', baseUrl: endpoint.url, headers: {}, limits: undefined, models: new Map() };
  const access = { name: '', defaultName: 'p', providers: new Map([['p', { ...config, acceptsSlashes: false }]]) };
  const log = pino({ level: 'silent' });
  const { provider, audioTypes } = openProviders(access, {
    firstChunkSeconds: 5,
    idleSeconds: 5,
    metrics: new Metrics(),
    log,
    shared: undefined,
    onResponse: () => undefined,
  }).resolve('m');
  endpoint.script(sending(...events({ text: 'a song' })));
  const answer = provider.stream(
    modelRequest({
      transcript: [{ role: 'user', content: [{ type: 'text', text: 'What is it?' }, speech, mentioned] }],
      fileContent: () => Promise.resolve('c291bmQ='),
    }),
    new AbortController().signal,
  );
  await Array.fromAsync(answer);
  const sent = JSON.stringify(endpoint.requests[0]?.body);
  const named = sent.split('audio-1 (audio/mpeg, 6 B)').length - 1;
  expect([audioTypes.has('audio/mpeg'), named]).toEqual(kind === 'google' ? [true, 1] : [false, 2]);
  if (kind === 'google') expect(sent).toContain('{"inlineData":{"mimeType":"audio/mp3","data":"c291bmQ="}}');
});
