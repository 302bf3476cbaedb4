import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { turnWorkflowId } from '../src/core/temporal-names.ts';
import { timed } from './statistics.ts';

interface SandboxResponse {
  data: { kernels: { status: string }[] };
}

interface WireTurn {
  id: string;
  created_at: string;
  state: { status: string; completed_at?: string; message?: string };
}

/** An agent whose model waits 200 ms before its first byte, as real models do. */
export const THINKING_AGENT = { model: { name: 'wait-200' } };

/** Uses Everturn through its API, as a client does. */
export class BenchClient {
  readonly #url: string;
  readonly #temporal: Client;

  constructor(url: string, temporal: Client) {
    this.#url = `${url}/v1/agents`;
    this.#temporal = temporal;
  }

  async putAgents(): Promise<void> {
    const serverNamed = (name: string) => ({
      mcp_servers: [{ type: 'truefoundry-mcp-registry', name, require_approval_for_tools: [] }],
    });
    const servers = serverNamed('bench');
    const config = { iteration_limit: 1_000, ask_user_questions: { enabled: false } };
    await this.#json('PUT', '/tools', { model: { name: 'instant' }, ...servers, config });
    await this.#json('PUT', '/stdio', { model: { name: 'instant' }, ...serverNamed('program'), config });
    await this.#json('PUT', '/noting', { model: { name: 'noting' }, ...servers, config });
    await this.#json('PUT', '/plain', { model: { name: 'instant' }, config });
    await this.#json('PUT', '/talking', { model: { name: 'talk' }, config });
    await this.#json('PUT', '/thinking', { ...THINKING_AGENT, config });
    await this.#json('PUT', '/thinking-tools', { ...THINKING_AGENT, ...servers, config });
  }

  /** Registers an agent whose code may call the tools of the MCP server, and waits until there are kernels for it. */
  async putCodingAgent(): Promise<void> {
    await this.#json('PUT', '/coding', {
      model: { name: 'instant' },
      mcp_servers: [
        { type: 'truefoundry-mcp-registry', name: 'bench', allowed_callers: ['code'], require_approval_for_tools: [] },
      ],
      code_actions: { approvals: 'allow', kernel: { timeout_seconds: 3_600 } },
      config: { iteration_limit: 1_000 },
    });
    const turnsUrl = this.turnsUrl(await this.session('coding'));
    const isBuilding = async (): Promise<boolean> => {
      const { status } = await fetch(turnsUrl, request('POST', { ...message('0'), stream: false }));
      return status === 503;
    };
    while (await isBuilding()) await sleep(500);
  }

  async session(agent: string): Promise<string> {
    const { data } = (await this.#json('POST', '/sessions', { agent_name: agent })) as { data: { id: string } };
    return data.id;
  }

  sessions(agent: string, count: number): Promise<string[]> {
    return Promise.all(Array.from({ length: count }, () => this.session(agent)));
  }

  /** A session that has had a turn. */
  async warmSession(agent: string): Promise<string> {
    const sessionId = await this.session(agent);
    await this.turn(sessionId);
    return sessionId;
  }

  turnsUrl(sessionId: string): string {
    return `${this.#url}/sessions/${sessionId}/turns`;
  }

  /** Starts turns whose model sends nothing until `POST /talk`. */
  async startTalking(count: number): Promise<{ sessionId: string; turnId: string }[]> {
    const turns: { sessionId: string; turnId: string }[] = [];
    for (const sessionId of await this.sessions('talking', count)) {
      turns.push({ sessionId, turnId: await this.#start(sessionId, 'go') });
    }
    return turns;
  }

  /** Runs one turn without tools to its end. Returns its id. */
  async turn(sessionId: string): Promise<string> {
    let turnId = '';
    for await (const { data } of await stream(this.turnsUrl(sessionId), message('0'))) {
      if (data.includes('"turn.created"')) turnId = (JSON.parse(data) as { turn_id: string }).turn_id;
      if (data.includes('"turn.done"')) break;
    }
    return turnId;
  }

  /** Starts a turn whose code runs until `cancel` is called, which resolves when the turn has ended. */
  async startCode(sessionId: string, code: string): Promise<{ cancel: () => Promise<void> }> {
    const turnId = await this.#start(sessionId, stepsMessage(1, code));
    const turnUrl = `${this.turnsUrl(sessionId)}/${turnId}`;
    const isRunning = async (): Promise<boolean> => {
      const { data } = (await this.#json('GET', `/sessions/${sessionId}/sandbox`)) as SandboxResponse;
      return data.kernels.some(({ status }) => status === 'busy');
    };
    while (!(await isRunning())) await sleep(200);
    return {
      cancel: async () => {
        await this.#json('POST', `/sessions/${sessionId}/turns/${turnId}/cancel`);
        await readToEnd(`${turnUrl}/subscribe`);
      },
    };
  }

  /** Milliseconds from the request of a turn to the response that it is accepted. Returns when the turn has ended. */
  async accepted(sessionId: string): Promise<number> {
    let turnId = '';
    const elapsed = await timed(async () => {
      turnId = await this.#start(sessionId, '0');
    });
    await readToEnd(`${this.turnsUrl(sessionId)}/${turnId}/subscribe`);
    return elapsed;
  }

  /** Milliseconds that a turn of this many steps takes, by its own time stamps. */
  async timeOfSteps(steps: number, { reader = false, agent = 'tools' } = {}): Promise<number> {
    const turn = await this.#stepsTurn(steps, { reader, agent });
    return Date.parse(turn.state.completed_at ?? '') - Date.parse(turn.created_at);
  }

  /** Bytes of history of a turn of this many steps, over all of its runs. */
  async bytesOfSteps(steps: number): Promise<number> {
    const { id } = await this.#stepsTurn(steps, { reader: false, agent: 'tools' });
    const { connection, options } = this.#temporal;
    const query = `WorkflowId = '${turnWorkflowId(id)}'`;
    const runs = new Set<string>();
    // Visibility is updated asynchronously.
    while (runs.size === 0) {
      for await (const { runId } of this.#temporal.workflow.list({ query })) runs.add(runId);
    }
    let bytes = 0;
    for (const runId of runs) {
      const { workflowExecutionInfo } = await connection.workflowService.describeWorkflowExecution({
        namespace: options.namespace,
        execution: { workflowId: turnWorkflowId(id), runId },
      });
      bytes += Number(workflowExecutionInfo?.historySizeBytes ?? 0);
    }
    return bytes;
  }

  async #stepsTurn(steps: number, { reader, agent }: { reader: boolean; agent: string }): Promise<WireTurn> {
    const sessionId = await this.session(agent);
    if (reader) await readToEnd(this.turnsUrl(sessionId), message(String(steps)));
    else await this.#start(sessionId, String(steps));
    for (;;) {
      const { data } = (await this.#json('GET', `/sessions/${sessionId}/turns`)) as { data: [WireTurn] };
      const [turn] = data;
      if (turn.state.status === 'done') return turn;
      if (turn.state.status !== 'running') throw new Error(`a turn ended as ${JSON.stringify(turn.state)}`);
      // Polled seldom, so that it does not slow the turn.
      await sleep(300);
    }
  }

  /** Starts a turn without a reader. Returns its id. */
  async #start(sessionId: string, content: string): Promise<string> {
    const body = { ...message(content), stream: false };
    const { data } = (await this.#json('POST', `/sessions/${sessionId}/turns`, body)) as { data: WireTurn };
    return data.id;
  }

  async #json(method: string, path: string, body?: object): Promise<unknown> {
    const response = await fetch(this.#url + path, request(method, body));
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }
}

/** Milliseconds from the request of a turn without tools to its first text. */
export async function firstDelta(turnsUrl: string): Promise<number> {
  const start = performance.now();
  let first = Number.NaN;
  // Read to the end, so that the rest of the stream does not disturb the next measurement.
  for await (const { data } of await stream(turnsUrl, message('0'))) {
    if (Number.isNaN(first) && data.includes('"model.message.delta"')) first = performance.now() - start;
  }
  return first;
}

/**
 * Milliseconds from the request of a turn with this many tool calls to the end of its stream.
 *
 * @param code what each of them runs, with an agent that acts in code
 */
export function timeOfTurn(turnsUrl: string, calls: number, code?: string): Promise<number> {
  return timed(() => readToEnd(turnsUrl, message(stepsMessage(calls, code))));
}

/** The message for which the model of `instant-servers.ts` makes this many calls. */
function stepsMessage(calls: number, code?: string): string {
  return code === undefined ? String(calls) : `${calls} ${code}`;
}

async function readToEnd(url: string, body?: object): Promise<void> {
  for await (const _ of await stream(url, body));
}

async function stream(url: string, body?: object) {
  const response = await fetch(url, request('POST', body));
  if (!response.ok || !response.body) throw new Error(`${response.status} ${await response.text()}`);
  return response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
}

function message(content: string): object {
  return { input: [{ type: 'user.message', content }] };
}

function request(method: string, body?: object): RequestInit {
  if (!body) return { method };
  return { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
}
