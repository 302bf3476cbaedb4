import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { StdioEndpoint } from '../../src/mcp/registry.ts';

/** The responses of an odd server, beside the handshake of 2025-11-25. */
export interface OddServer {
  /** The entries of its list of tools, as they are. */
  tools?: unknown[];
  /** The results of its tools, as they are, by name. */
  results?: Record<string, unknown>;
  /** The texts of its resources by URI; with any, it declares the capability. */
  resources?: Record<string, unknown>;
  instructions?: unknown;
}

/**
 * The endpoint of a program that answers as `odd` says. Its tools are these as well, listed or not:
 * - `big`: a text of `bytes` characters, in an answer that has its id first or, with `idLast`, last; `noId`: in one that
 *   has none.
 * - `hold`: answers with the next `release`.
 * - `seen`: the process id, and the names and arguments of the calls so far.
 */
export function oddEndpoint(odd: OddServer = {}): StdioEndpoint {
  return {
    id: 'odd',
    name: 'odd',
    command: process.execPath,
    args: [fileURLToPath(import.meta.url)],
    env: { ODD_SERVER: JSON.stringify(odd) },
    idempotentTools: [],
    isolation: 'subject',
  };
}

interface Request {
  id?: number | string;
  method: string;
  params?: { name?: string; arguments?: Record<string, unknown>; uri?: string };
}

function serve({ tools = [], results = {}, resources, instructions }: OddServer): void {
  const write = (message: object): void => void process.stdout.write(`${JSON.stringify(message)}\n`);
  const textOf = (text: string) => ({ content: [{ type: 'text', text }] });
  const seen: unknown[] = [];
  let held: Request['id'];
  const call = (id: Request['id'], name = '', args: Record<string, unknown> = {}): void => {
    const answer = (result: unknown): void => write({ jsonrpc: '2.0', id, result });
    seen.push([name, args]);
    if (Object.hasOwn(results, name)) answer(results[name]);
    else if (name === 'seen') answer(textOf(JSON.stringify({ pid: process.pid, calls: seen.slice(0, -1) })));
    else if (name === 'hold') held = id;
    else if (name === 'release') {
      write({ jsonrpc: '2.0', id: held, result: textOf('held') });
      answer(textOf('released'));
    } else if (name === 'big') {
      const result = textOf('x'.repeat(Number(args['bytes'])));
      if (args['idLast']) write({ result, jsonrpc: '2.0', id });
      else if (args['noId']) write({ result });
      else answer(result);
    } else write({ jsonrpc: '2.0', id, error: { code: -32602, message: `unknown tool ${name}` } });
  };
  createInterface(process.stdin).on('line', (line) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- sent by the client under test
    const { id, method, params } = JSON.parse(line) as Request;
    const answer = (result: unknown): void => write({ jsonrpc: '2.0', id, result });
    if (method === 'initialize') {
      const capabilities = { tools: {}, ...(resources && { resources: {} }) };
      const serverInfo = { name: 'odd', version: '1' };
      answer({
        protocolVersion: '2025-11-25',
        capabilities,
        serverInfo,
        ...(instructions !== undefined && { instructions }),
      });
    } else if (method === 'tools/list') answer({ tools });
    else if (method === 'tools/call') call(id, params?.name, params?.arguments);
    else if (method === 'resources/read' && resources && Object.hasOwn(resources, params?.uri ?? '')) {
      answer({ contents: resources[params?.uri ?? ''] });
    } else if (id !== undefined) write({ jsonrpc: '2.0', id, error: { code: -32601, message: `no ${method}` } });
  });
}

const odd = process.env['ODD_SERVER'];
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set by `oddEndpoint`
if (odd !== undefined) serve(JSON.parse(odd) as OddServer);
