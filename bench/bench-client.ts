import type { Client } from '@temporalio/client';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { turnWorkflowId } from '../src/core/temporal-names.ts';

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
    const servers = { mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'bench' }] };
    const config = { iteration_limit: 1_000, ask_user_questions: { enabled: false } };
    await this.#json('PUT', '/tools', { model: { name: 'instant' }, ...servers, config });
    await this.#json('PUT', '/plain', { model: { name: 'instant' }, config });
    await this.#json('PUT', '/talking', { model: { name: 'talk' }, config });
    await this.#json('PUT', '/thinking', { ...THINKING_AGENT, config });
  }

  /**
   * Milliseconds from the request to the first text with a model that waits before its first byte: through Everturn, and
   * through a handler without Temporal. The two alternate, so that both run under the same load.
   */
  async firstDeltasBehind(
    agent: string,
    bareUrl: string,
    count: number,
  ): Promise<{ durable: number[]; bare: number[] }> {
    const sessionId = await this.#session(agent);
    const durable: number[] = [];
    const bare: number[] = [];
    for (let i = 0; i < count; i++) {
      bare.push(await firstDelta(`${bareUrl}/turns`));
      durable.push(await firstDelta(`${this.#url}/sessions/${sessionId}/turns`));
    }
    return { durable, bare };
  }

  sessions(agent: string, count: number): Promise<string[]> {
    return Promise.all(Array.from({ length: count }, () => this.#session(agent)));
  }

  /** Starts turns whose model sends nothing until `POST /talk`. */
  async startTalking(count: number): Promise<{ sessionId: string; turnId: string }[]> {
    const turns: { sessionId: string; turnId: string }[] = [];
    for (const sessionId of await this.sessions('talking', count)) {
      const body = { ...message('go'), stream: false };
      const { data } = (await this.#json('POST', `/sessions/${sessionId}/turns`, body)) as { data: WireTurn };
      turns.push({ sessionId, turnId: data.id });
    }
    return turns;
  }

  /** Runs one turn without tools to its end. */
  async turn(sessionId: string): Promise<void> {
    const events = await this.#stream(sessionId, '0');
    for await (const { data } of events) if (data.includes('"turn.done"')) return;
  }

  /** Milliseconds from the request to the first text, on sessions that have had a turn and on new ones. */
  async firstDeltas(count: number): Promise<{ onKnownSessions: number[]; onNewSessions: number[] }> {
    const onNewSessions: number[] = [];
    const onKnownSessions: number[] = [];
    for (let i = 0; i < count; i++) {
      const sessionId = await this.#session('plain');
      onNewSessions.push(await firstDelta(`${this.#url}/sessions/${sessionId}/turns`));
      onKnownSessions.push(await firstDelta(`${this.#url}/sessions/${sessionId}/turns`));
    }
    return { onKnownSessions, onNewSessions };
  }

  /** Milliseconds that a turn of this many steps takes, by its own time stamps. */
  async timeOfSteps(steps: number, { reader }: { reader: boolean }): Promise<number> {
    const turn = await this.#stepsTurn(steps, reader);
    return Date.parse(turn.state.completed_at ?? '') - Date.parse(turn.created_at);
  }

  /** Bytes of history of a turn of this many steps, over all of its runs. */
  async bytesOfSteps(steps: number): Promise<number> {
    const { id } = await this.#stepsTurn(steps, false);
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

  async #stepsTurn(steps: number, reader: boolean): Promise<WireTurn> {
    const sessionId = await this.#session('tools');
    if (reader) {
      const events = await this.#stream(sessionId, String(steps));
      for await (const { data } of events) if (data.includes('"turn.done"')) break;
    } else {
      await this.#json('POST', `/sessions/${sessionId}/turns`, { ...message(String(steps)), stream: false });
    }
    for (;;) {
      const { data } = (await this.#json('GET', `/sessions/${sessionId}/turns`)) as { data: [WireTurn] };
      const [turn] = data;
      if (turn.state.status === 'done') return turn;
      if (turn.state.status !== 'running') throw new Error(`a turn ended as ${JSON.stringify(turn.state)}`);
      // Polled seldom, so that it does not slow the turn.
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  }

  async #session(agent: string): Promise<string> {
    const { data } = (await this.#json('POST', '/sessions', { agent_name: agent })) as { data: { id: string } };
    return data.id;
  }

  #stream(sessionId: string, content: string) {
    return stream(`${this.#url}/sessions/${sessionId}/turns`, content);
  }

  async #json(method: string, path: string, body?: object): Promise<unknown> {
    const response = await fetch(this.#url + path, request(method, body));
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }
}

async function firstDelta(url: string): Promise<number> {
  const start = performance.now();
  let first = Number.NaN;
  // Read to the end, so that the rest of the stream does not disturb the next measurement.
  for await (const { data } of await stream(url, '0')) {
    if (Number.isNaN(first) && data.includes('"model.message.delta"')) first = performance.now() - start;
  }
  return first;
}

async function stream(url: string, content: string) {
  const response = await fetch(url, request('POST', message(content)));
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
