import { EventSourceParserStream } from 'eventsource-parser/stream';
import { z } from 'zod';

const requiredAction = z.object({
  type: z.enum(['tool.approval_required', 'tool.response_required', 'mcp.auth_required']),
  thread_id: z.string().nullable(),
  tool_calls: z.array(
    z.object({
      id: z.string(),
      /** What the MCP server of a call asks the user. */
      elicitation: z.object({ mode: z.string(), message: z.string(), requested_schema: z.unknown() }).optional(),
      /** What is decided on, in an agent that acts in code. */
      action: z.object({ display: z.string() }).optional(),
    }),
  ),
  /** In `mcp.auth_required`. */
  mcp_servers: z.array(z.object({ name: z.string(), auth_url: z.string() })).optional(),
});

/** The fields of an event that the examples use; `docs/api.md` has all fields. */
const turnEvent = z.object({
  type: z.string(),
  id: z.string(),
  sequence_number: z.int(),
  /** In `turn.created`, and in each event of a session's stream. */
  turn_id: z.string().optional(),
  /** Text. In `mcp.initialize` it is a list of servers, which is ignored here. */
  content: z.string().nullish().catch(null),
  /** In `tool.response`: the files that code has made. */
  files: z.array(z.object({ url: z.string() })).optional(),
  /** In the last event of a message: the model that wrote it, and the attempts that failed before. */
  provider: z.string().optional(),
  model: z.string().optional(),
  attempts: z.array(z.object({ provider: z.string(), model: z.string(), failure: z.string() })).optional(),
  /** In the last event of an answer that does not fit the agent's JSON Schema. */
  misfit: z.string().optional(),
  thread_id: z.string().nullish(),
  /** In the events that ask for answers. */
  tool_calls: z
    .array(z.object({ id: z.string() }))
    .optional()
    .catch(undefined),
  /** In `mcp.auth_required`, with links for the user, and in `mcp.initialize`. */
  mcp_servers: z.array(z.object({ name: z.string(), auth_url: z.string().optional() })).optional(),
  /** In `context.compacted`. */
  tokens_before: z.int().optional(),
  summary: z.string().nullish(),
  /** In `turn.paused`, if the budget of the turn is the reason. */
  budget: z.object({ limit: z.record(z.string(), z.number()), spent: z.record(z.string(), z.number()) }).optional(),
  /** The name of a sub-agent. */
  title: z.string().optional(),
  /** The last message of a sub-agent that is done. */
  arguments: z.record(z.string(), z.unknown()).optional(),
  output: z.object({ content: z.string() }).optional(),
  state: z
    .object({
      status: z.string(),
      /** The turn waits until others have ended. */
      queued: z.object({ position: z.int() }).optional(),
      required_actions: z.array(requiredAction).optional(),
      /** The answer of an agent with a JSON Schema. */
      output_json: z.unknown().optional(),
    })
    .optional(),
});
export type TurnEvent = z.infer<typeof turnEvent>;

const answersResponse = z.object({ data: z.object({ turn_id: z.string() }) });
const sessionResponse = z.object({ data: z.object({ id: z.string() }) });
const agentResponse = z.object({ data: z.object({ spec: z.looseObject({}) }) });

const BASE = process.env['EVERTURN_URL'] ?? 'http://127.0.0.1:8080';
const KEY = process.env['EVERTURN_KEY'];

/** Sends JSON to a path under `/v1/agents`, or without a body requests a resource. @throws Error with the server's message */
export async function send(path: string, body?: object): Promise<Response> {
  return request(body ? 'POST' : 'GET', `/agents${path}`, body);
}

/** Sends a request to a path under `/v1`. @throws Error with the server's message */
export async function request(method: string, path: string, body?: object): Promise<Response> {
  const response = await fetch(`${BASE}/v1${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...(KEY && { authorization: `Bearer ${KEY}` }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response;
}

export async function createSession(agentName: string): Promise<string> {
  const response = await send('/sessions', { agent_name: agentName });
  return sessionResponse.parse(await response.json()).data.id;
}

/** The spec of a registered agent. */
export async function agentSpec(agentName: string): Promise<object> {
  const response = await send(`/${agentName}`);
  return agentResponse.parse(await response.json()).data.spec;
}

/** A session with an agent of its own. */
export async function createDraft(spec: object): Promise<string> {
  const response = await send('/draft-sessions', { agent_spec: spec });
  return sessionResponse.parse(await response.json()).data.id;
}

/** Answers all calls that an ended turn has left open. Returns the stream of the turn that this starts. */
export async function answer(session: string, input: object[]): Promise<Response> {
  const response = await send(`/sessions/${session}/actions`, { input });
  const { data } = answersResponse.parse(await response.json());
  return send(`/sessions/${session}/turns/${data.turn_id}/subscribe`, {});
}

/** The events of a server-sent event stream. */
export async function* events(response: Response): AsyncGenerator<TurnEvent> {
  if (!response.body) return;
  const stream = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  for await (const { data } of stream) yield turnEvent.parse(JSON.parse(data));
}

/** Follows a turn to its end and prints the model's text. Returns the last event, `turn.done`. */
export async function printTurn(response: Response): Promise<TurnEvent> {
  let last: TurnEvent | undefined;
  for await (const event of events(response)) {
    if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
    if (event.type === 'tool.response') process.stdout.write(`\n[tool] ${event.content}\n`);
    last = event;
  }
  process.stdout.write('\n');
  if (last?.type !== 'turn.done') throw new Error('the stream ended early: resume it, see resume-a-stream.ts');
  return last;
}
