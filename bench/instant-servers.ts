import type { ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { listen } from '../src/demo/local-server.ts';
import { mcpResult } from './instant-mcp.ts';
import { TOOL_MS, WORD_MS, WORDS } from './model-script.ts';

/**
 * A model and an MCP server that respond immediately, in their own process. The last user message is "<steps>", for as
 * many results of the read-only tool `look`, or "<steps> <code>", for calls of `ipython` with that code. The model
 * `noting` calls `note`, not read-only; `wait-<ms>` and its tool wait first; `talk` sends the time after `POST /talk`.
 */

let talk = Promise.withResolvers<void>();

const server = await listen((request, response) => {
  if (request.url?.endsWith('/talk')) {
    talk.resolve();
    talk = Promise.withResolvers();
    response.end();
    return;
  }
  text(request)
    .then((body) => respond(body, response))
    .catch(() => response.destroy());
}, '/v1');

const mcp = await listen((request, response) => {
  text(request)
    .then((body) => respondToRpc(body, response))
    .catch(() => response.destroy());
}, '/mcp');

process.stdout.write(`${JSON.stringify({ model: server.url, mcp: mcp.url })}\n`);

interface RpcRequest {
  id?: number;
  method?: string;
  params?: { arguments?: { wait_ms?: number } };
}

async function respondToRpc(body: string, response: ServerResponse): Promise<void> {
  const { id, method, params } = JSON.parse(body || '{}') as RpcRequest;
  const waitMs = params?.arguments?.wait_ms ?? 0;
  if (waitMs > 0) await sleep(waitMs);
  if (id === undefined) return void response.writeHead(method ? 202 : 405).end();
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id, ...mcpResult(method) }));
}

async function respond(body: string, response: ServerResponse): Promise<void> {
  // Parsed by hand: this process shares the machine with Everturn, which is measured.
  const turn = body.slice(body.lastIndexOf('"role":"user"'));
  const [, steps = '0', code] = /^"role":"user","content":"(\d+)(?: ((?:[^"\\]|\\.)*))?"/.exec(turn) ?? [];
  const done = turn.split('"role":"tool"').length - 1;
  const thinkingMs = Number(/"model":"wait-(\d+)"/.exec(body)?.[1] ?? 0);
  if (thinkingMs > 0) await sleep(thinkingMs);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  if (body.includes('"model":"talk"')) await sendTheTime(response);
  const chunk = (delta: object, finish: string | null): string =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const tool = body.includes('"model":"noting"') ? 'note' : 'look';
  const toolArguments = JSON.stringify(thinkingMs > 0 ? { wait_ms: TOOL_MS } : {});
  const called =
    code === undefined
      ? { name: tool, arguments: toolArguments }
      : { name: 'ipython', arguments: `{"code":"${code}"}` };
  const call = { index: 0, id: `call_${done}`, type: 'function', function: called };
  const parts =
    done < Number(steps)
      ? chunk({ role: 'assistant', tool_calls: [call] }, null) + chunk({}, 'tool_calls')
      : chunk({ role: 'assistant', content: 'done' }, null) + chunk({}, 'stop');
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  response.end(`${parts}data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
}

async function sendTheTime(response: ServerResponse): Promise<void> {
  response.flushHeaders();
  await talk.promise;
  // Real models do not send their output in lockstep.
  await sleep(Math.random() * WORD_MS);
  for (let i = 0; i < WORDS; i++) {
    const content = `@${(performance.timeOrigin + performance.now()).toFixed(3)} `;
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`);
    await sleep(WORD_MS);
  }
}
