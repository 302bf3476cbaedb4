import type { RequestListener } from 'node:http';
import express from 'express';
import { EventStream } from '../src/api/http/event-stream.ts';
import { Metrics } from '../src/telemetry/metrics.ts';
import { listen } from '../src/demo/local-server.ts';
import { newId } from '../src/engine/new-id.ts';
import { openAIProvider } from '../src/models/openai/chat.ts';
import { promptOf } from '../src/agents/prompt.ts';
import type { AgentSpec } from '../src/spec/agent-spec.ts';
import { createTurnBody } from '../src/api/sessions/wire/input.ts';
import { THINKING_AGENT } from './bench-client.ts';

/**
 * A handler that takes the body of `POST …/turns`, calls the model and streams its output. It uses the same libraries and
 * sends the same request to the model as Everturn, but has no Temporal, no catalog and no log: nothing remains after the
 * connection ends. Runs in its own process, as Everturn does, and prints its URL. Argument: the URL of the model.
 */

const [modelUrl = ''] = process.argv.slice(2);

const spec: AgentSpec = THINKING_AGENT;
const provider = openAIProvider({
  apiKey: 'none',
  baseUrl: modelUrl,
  headers: {},
  firstChunkSeconds: 45,
  idleSeconds: 45,
});
const metrics = new Metrics();
const app = express();
app.use(express.json());
app.post('/turns', async (request, response) => {
  const { input } = createTurnBody.parse(request.body);
  const transcript = (input ?? []).flatMap((item) =>
    item.type === 'user.message' && typeof item.content === 'string'
      ? [{ role: 'user' as const, content: [{ type: 'text' as const, text: item.content }] }]
      : [],
  );
  const prompt = promptOf({
    spec,
    model: spec.model.name,
    transcript,
    tools: [],
    unavailable: [],
    texts: [],
    fileContent: () => Promise.reject(new Error('there are no files here')),
  });
  const stream = new EventStream(response, metrics);
  stream.open();
  const message = { id: newId('msg'), thread_id: 'main' };
  let sequenceNumber = 0;
  for await (const { content } of provider.stream(prompt, new AbortController().signal)) {
    if (!content) continue;
    sequenceNumber += 1;
    const data = { type: 'model.message.delta', ...message, content, sequence_number: sequenceNumber };
    await stream.write([{ id: sequenceNumber, data }]);
  }
  stream.end();
});
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an Express app is a listener; its types say more
const { url } = await listen(app as RequestListener, '');
process.stdout.write(`${JSON.stringify({ url })}\n`);
