import { spawn } from 'node:child_process';

/** The context of a tool of a test server while it runs, for servers of both SDKs. */
export interface ToolContext {
  meta: Record<string, unknown>;
  headers: Record<string, string>;
  /** Aborted when the client cancels the call. */
  signal: AbortSignal;
  notify: (method: string, params: Record<string, unknown>) => Promise<void>;
  /** Asks the user `QUESTION`. */
  ask: () => Promise<unknown>;
}

export const QUESTION = {
  message: 'Your name?',
  requestedSchema: { type: 'object' as const, properties: { name: { type: 'string' as const } } },
};

interface Tool {
  name: string;
  description: string;
  inputSchema: { type: 'object' };
  annotations?: { readOnlyHint: boolean };
}

// oxlint-disable-next-line typescript/consistent-type-definitions -- the SDKs' results have more fields, which an interface excludes
type ToolAnswer = {
  content: { type: 'text'; text: string }[];
  structuredContent?: Record<string, unknown>;
  isError?: boolean;
};

const PAGE_SIZE = 2;
const TOOLS = ['echo', 'fail', 'refuse', 'inspect', 'wait', 'rename', 'die', 'breed'];

/** The tools of the servers with which all transports and versions are tested; clients read the state by calls. */
export class McpBehaviour {
  #tools = TOOLS;
  #cancelled = 0;
  readonly #onRenamed: () => Promise<void> | void;

  /** `onRenamed` notifies the clients that the tools have changed. */
  constructor(onRenamed: () => Promise<void> | void) {
    this.#onRenamed = onRenamed;
  }

  list(cursor = '0'): { tools: Tool[]; nextCursor?: string } {
    const from = Number(cursor);
    const tools = this.#tools.slice(from, from + PAGE_SIZE).map((name): Tool => ({
      name,
      description: `does ${name}`,
      inputSchema: { type: 'object' },
      ...(name === 'inspect' && { annotations: { readOnlyHint: true } }),
    }));
    const next = from + PAGE_SIZE;
    return { tools, ...(next < this.#tools.length && { nextCursor: String(next) }) };
  }

  async call(name: string, args: Record<string, unknown>, context: ToolContext): Promise<ToolAnswer> {
    switch (name) {
      case 'echo': {
        const structuredContent = { text: String(args['text']) };
        return { ...say(JSON.stringify(structuredContent)), structuredContent };
      }
      case 'fail':
        return { ...say('out of paper'), isError: true };
      case 'refuse':
        throw Object.assign(new Error('not on Sundays'), { code: -32603 });
      case 'inspect': {
        const { meta, headers } = context;
        return say(JSON.stringify({ meta, headers, cancelled: this.#cancelled, pid: process.pid, env: process.env }));
      }
      case 'wait': {
        const aborted = new Promise((resolve) => context.signal.addEventListener('abort', resolve, { once: true }));
        const { progressToken } = context.meta;
        for (let progress = 1; progress <= (progressToken === undefined ? 0 : 3); progress++) {
          await context.notify('notifications/progress', { progressToken, progress });
        }
        await aborted;
        this.#cancelled += 1;
        return say('never read');
      }
      case 'rename':
        this.#tools = [...TOOLS, 'renamed'];
        await this.#onRenamed();
        return say('done');
      // It is not in the list.
      case 'ask':
        return say(JSON.stringify(await context.ask()));
      case 'die':
        process.exit(3);
        break;
      case 'breed': {
        const { pid } = spawn('sleep', ['1000'], { stdio: 'inherit' });
        return say(String(pid));
      }
    }
    throw Object.assign(new Error(`Unknown tool: ${name}`), { code: -32602 });
  }
}

function say(text: string): ToolAnswer {
  return { content: [{ type: 'text', text }] };
}
