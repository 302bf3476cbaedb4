import type { ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { newId } from '../engine/new-id.ts';
import { listen, type LocalServer } from './local-server.ts';

/** The pause between words, similar to a model's. */
const WORD_MS = 20;

/** How much of a message is repeated: a file would take minutes, word by word. */
const MAX_QUOTE = 300;

/** The parts of a request that the script reads. */
const chatRequest = z.object({
  model: z.string(),
  messages: z.array(z.object({ role: z.string(), content: z.unknown() })).default([]),
  tools: z.array(z.object({ function: z.object({ name: z.string() }) })).default([]),
  response_format: z.object({ json_schema: z.object({ schema: z.unknown().optional() }).optional() }).optional(),
});
type ChatRequest = z.infer<typeof chatRequest>;

interface Reply {
  text: string;
  calls?: { tool: string; arguments: Record<string, unknown> }[];
}

/**
 * Starts a scripted model for first steps without an API key. It speaks OpenAI's streaming protocol over a real socket,
 * says that it is a script, and calls tools on request.
 */
export async function startDemoModel(): Promise<LocalServer> {
  return listen((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    if (request.method === 'GET' && pathname.endsWith('/models')) {
      // Model names are not checked: the script accepts any name.
      response.writeHead(501).end();
      return;
    }
    json(request)
      .then((body) => answer(chatRequest.parse(body), response))
      .catch((error: unknown) => {
        response.writeHead(400, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ error: { message: String(error), type: 'invalid_request_error' } }));
      });
  }, '/v1');
}

async function answer(request: ChatRequest, response: ServerResponse): Promise<void> {
  const reply = replyTo(request);
  const id = newId('msg');
  const send = (delta: object, finishReason: string | null = null): void => {
    const choices = [{ index: 0, delta, finish_reason: finishReason }];
    response.write(
      `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', model: request.model, choices })}\n\n`,
    );
  };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const words = reply.text.match(/\S+\s*/g) ?? [];
  for (const word of words) {
    if (response.destroyed) return;
    send({ content: word });
    await sleep(WORD_MS);
  }
  for (const [index, { tool, arguments: args }] of (reply.calls ?? []).entries()) {
    const call = { index, id: newId('call'), type: 'function', function: { name: tool, arguments: '' } };
    send({ tool_calls: [call] });
    send({ tool_calls: [{ index, function: { arguments: JSON.stringify(args) } }] });
  }
  send({}, reply.calls ? 'tool_calls' : 'stop');
  const prompt = JSON.stringify(request.messages).length;
  const usage = { prompt_tokens: Math.ceil(prompt / 4), completion_tokens: words.length, total_tokens: 0 };
  usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
  response.end(`data: ${JSON.stringify({ id, choices: [], usage })}\n\ndata: [DONE]\n\n`);
}

/** The script: chooses a reply by keywords in the last message. */
function replyTo({ messages, tools, response_format: format }: ChatRequest): Reply {
  const last = messages.at(-1);
  if (last?.role === 'tool')
    return { text: `The tool answered: ${textOf(last.content)} (I am a script, so that is all I make of it.)` };
  const said = textOf(last?.content);
  const asked = textOf(last?.content, { withFiles: false });
  if (format?.json_schema) {
    const json = JSON.stringify(valueOf(format.json_schema.schema));
    // Real models do that, too.
    return { text: said.includes('not accepted') ? json : `Here you are: ${json}` };
  }
  const has = (name: string): boolean => tools.some((tool) => tool.function.name === name);
  // First: code may contain the words of all others.
  const [, code] = /\brun: *([^]+)/i.exec(asked) ?? [];
  if (code && has('ipython')) {
    return { text: 'I will run that. ', calls: [{ tool: 'ipython', arguments: { code } }] };
  }
  const [, note] = /\bnote(?: that)?:? +(.+)/i.exec(asked) ?? [];
  const [, count] = /\bcount(?: \w+)* to (\d+)/i.exec(asked) ?? [];
  const [, tasks] = /\bdelegate: *(.+)/i.exec(asked) ?? [];
  if (tasks && has('create_sub_agent')) {
    const inputs = tasks.split(';').map((task) => task.trim());
    const calls = inputs.map((input, i) => ({
      tool: 'create_sub_agent',
      arguments: { name: `helper ${i + 1}`, input },
    }));
    return { text: 'I will get help. ', calls };
  }
  if (count && has('count_slowly')) {
    const to = Math.min(60, Math.max(1, Number(count)));
    return { text: 'I will count. ', calls: [{ tool: 'count_slowly', arguments: { to } }] };
  }
  const [, skill] = /\bskill ([a-z0-9-]+)/.exec(asked) ?? [];
  if (skill && has('read_skill')) {
    return { text: 'I will read it first. ', calls: [{ tool: 'read_skill', arguments: { name: skill } }] };
  }
  if (/\b(search|find|show|list)\b/i.test(asked) && has('search_notes')) {
    return { text: 'Let me look. ', calls: [{ tool: 'search_notes', arguments: {} }] };
  }
  if (note && has('add_note')) {
    return { text: 'I will write that down. ', calls: [{ tool: 'add_note', arguments: { note } }] };
  }
  if (/\bforget\b/i.test(asked) && has('forget_notes')) {
    return { text: '', calls: [{ tool: 'forget_notes', arguments: {} }] };
  }
  if (/\bask me\b/i.test(asked) && has('ask_user_question')) {
    const question = { question: 'Which colour do you like best?', options: ['red', 'green', 'blue'] };
    return { text: '', calls: [{ tool: 'ask_user_question', arguments: question }] };
  }
  return {
    text:
      `You said: "${said.length > MAX_QUOTE ? `${said.slice(0, MAX_QUOTE)}…` : said}". I am the demo model: a script, not an AI. Set OPENAI_API_KEY to talk to a real one. ` +
      'Try "show my notes" for a tool, "note: buy milk" for a tool that asks you first, ' +
      '"count slowly to 20" for a slow tool, "delegate: show my notes; say hello" for two sub-agents, ' +
      '"forget some notes" for a tool that asks you in a form, or "ask me something" for a question to you.',
  };
}

const knownSchema = z.object({ type: z.string(), properties: z.record(z.string(), z.unknown()).default({}) });

/** A value for the simplest kinds of schemas. */
function valueOf(schema: unknown): unknown {
  const { type, properties } = knownSchema.safeParse(schema).data ?? { type: 'object', properties: {} };
  if (type === 'object') return Object.fromEntries(Object.entries(properties).map(([key, of]) => [key, valueOf(of)]));
  if (type === 'array') return [];
  if (type === 'boolean') return true;
  return type === 'string' ? 'text' : 1;
}

/** How the part of a file begins: see `src/agents/read-files.ts`. */
const FILE = /^File /;

/** The text of a message. Without its files it is what the user has written: a file may quote the words of the script. */
function textOf(content: unknown, { withFiles = true } = {}): string {
  if (typeof content === 'string') return content;
  const parts = z.array(z.object({ text: z.string().default('') })).safeParse(content);
  const texts = (parts.data ?? []).map(({ text }) => text).filter((text) => withFiles || !FILE.test(text));
  return texts.join(' ');
}
