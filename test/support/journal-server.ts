import { createInterface } from 'node:readline';

/**
 * A program that speaks MCP over standard input and output, and keeps a journal of the calls of its tools: `write` adds to
 * it, after a moment, and `read` returns it. A `read` waits until as many are running as its argument `beside` says.
 */
const journal: string[] = [];
let waiting: { reads: number; begin: () => void }[] = [];

interface Request {
  id?: number;
  method: string;
  params: { protocolVersion: string; name: string; arguments: { id: string; beside?: number } };
}

const TOOLS = [
  ['write', false],
  ['read', true],
] as const;

async function call({ name, arguments: { id, beside = 1 } }: Request['params']): Promise<string> {
  if (name === 'write') {
    await new Promise((resolve) => void setTimeout(resolve, 50));
    journal.push(id);
    return 'done';
  }
  await new Promise<void>((begin) => {
    waiting.push({ reads: beside, begin });
    const count = waiting.length;
    for (const one of waiting) if (one.reads <= count) one.begin();
    waiting = waiting.filter(({ reads }) => reads > count);
  });
  return journal.join(' ');
}

async function resultOf({ method, params }: Request): Promise<object | undefined> {
  switch (method) {
    case 'initialize': {
      const { protocolVersion } = params;
      return { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'journal', version: '1.0.0' } };
    }
    case 'tools/list':
      return {
        tools: TOOLS.map(([name, readOnlyHint]) => ({
          name,
          inputSchema: { type: 'object' },
          annotations: { readOnlyHint, destructiveHint: false },
        })),
      };
    case 'tools/call':
      return { content: [{ type: 'text', text: await call(params) }] };
    case 'ping':
      return {};
  }
  return undefined;
}

async function answer(request: Request): Promise<void> {
  const { id } = request;
  const result = await resultOf(request);
  if (id === undefined) return;
  const error = { code: -32601, message: 'Method not found' };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...(result ? { result } : { error }) })}\n`);
}

for await (const line of createInterface({ input: process.stdin })) void answer(JSON.parse(line) as Request);
