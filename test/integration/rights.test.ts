import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { expectDeclared } from '../support/contract.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/**
 * The columns of the table: those of "Roles" in docs/keys-and-roles.md, for the sessions of ann. A subject that a policy
 * names as an approver gets a column of its own, and a policy for the calls that are its own in `sessionWithCalls`.
 */
const CALLERS = {
  'owner, user': 'key-of-ann',
  'owner, approver': 'second-key-of-ann',
  'other user': 'key-of-bob',
  approver: 'key-of-boss',
  admin: 'key-of-root',
  'no caller': 'unknown-key',
};
type Caller = keyof typeof CALLERS;
const callers = Object.keys(CALLERS) as Caller[];

let server: TestServer;
let ann: ApiClient;
let boss: ApiClient;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: {
      EVERTURN_API_KEYS:
        'root:admin=key-of-root,boss:approver=key-of-boss,ann=key-of-ann,ann:approver=second-key-of-ann,bob=key-of-bob',
      EVERTURN_UNKNOWN_KEYS_PER_MINUTE: '1000',
    },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  const as = (key: string) => new ApiClient(server.server.url, key);
  ann = as(CALLERS['owner, user']);
  boss = as(CALLERS.approver);
  admin = as(CALLERS.admin);
});
afterAll(() => server.stop());

const write = (id: string) => ({ name: 'write', args: {}, id });
const ask = (id: string) => ({ name: 'ask_user_question', args: { question: '?' }, id });
const message = { type: 'user.message', content: 'hi' };
const allow = (id: string) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: id,
  approval: { status: 'allow' },
});
const respond = (id: string) => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content: 'because',
});

/** The codes that are left out of the table, by their status. */
const USUAL = new Map([
  [401, 'unauthenticated'],
  [403, 'forbidden'],
  [404, 'session_not_found'],
]);

interface Call {
  method: string;
  path: string;
  body?: object;
}

/** The status of a response, with the code of an error. */
async function outcomeOf(key: string, { method, path, body }: Call): Promise<string> {
  const response = await fetch(server.server.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  const { status } = response;
  if (response.ok) {
    // The stream of a turn that runs does not end.
    await response.body?.cancel();
    return String(status);
  }
  const answer = (await response.json()) as { error: { code: string } };
  expectDeclared({ method, path, status, body: answer });
  return USUAL.get(status) === answer.error.code ? String(status) : `${status} ${answer.error.code}`;
}

/** A row of the table; `mine` is the number of the caller, whose own calls it answers. */
type Row = [name: string, call: (mine: number) => Call];

/** Sends the requests of a row one after the other, in the order of the columns. */
async function lineOf([name, call]: Row): Promise<string> {
  const cells: string[] = [];
  for (const [mine, caller] of callers.entries()) cells.push(await outcomeOf(CALLERS[caller], call(mine)));
  return line(name, cells);
}

function line(name: string, cells: string[]): string {
  return [name.padEnd(36), ...cells.map((cell) => cell.padEnd(20))].join(' ').trimEnd();
}

/** A session of ann whose agent asks for an approval and a response of each caller. */
async function sessionWithCalls(name: string, pause: 'wait' | 'end'): Promise<{ base: string; turn: string }> {
  await admin.putAgent(name, { model: { name }, ...onTestServer, config: { pause } });
  server.model.script(name, use(...callers.flatMap((_, mine) => [write(`w${mine}`), ask(`q${mine}`)])));
  const id = await ann.createSession(name);
  const reader = ann.turn(id, 'go');
  await reader.type(pause === 'wait' ? 'turn.paused' : 'turn.done');
  const base = `/v1/agents/sessions/${id}`;
  return { base, turn: `${base}/turns/${await reader.turnId()}` };
}

/**
 * The input of the first three cannot begin a turn, from any caller, and each caller decides its own calls. So a row
 * changes nothing for the next one.
 */
const answers = (base: string): Row[] => [
  ['POST turns: message', () => ({ method: 'POST', path: `${base}/turns`, body: inputOf(message) })],
  ['POST turns: approval', (mine) => ({ method: 'POST', path: `${base}/turns`, body: inputOf(allow(`w${mine}`)) })],
  ['POST turns: response', (mine) => ({ method: 'POST', path: `${base}/turns`, body: inputOf(respond(`q${mine}`)) })],
  [
    'POST actions: approval',
    (mine) => ({ method: 'POST', path: `${base}/actions`, body: { input: [allow(`w${mine}`)] } }),
  ],
  [
    'POST actions: response',
    (mine) => ({ method: 'POST', path: `${base}/actions`, body: { input: [respond(`q${mine}`)] } }),
  ],
];
const inputOf = (item: object) => ({ input: [item], on_running: 'reject', stream: false });

const read = (turn: string): Row => ['GET turn', () => ({ method: 'GET', path: turn })];
const subscribe = (turn: string): Row => [
  'POST turn/subscribe',
  () => ({ method: 'POST', path: `${turn}/subscribe`, body: {} }),
];
const stream = (turn: string): Row => ['GET turn/stream', () => ({ method: 'GET', path: `${turn}/stream` })];
const reads = (turn: string): Row[] => [
  read(turn),
  ['GET turn/events', () => ({ method: 'GET', path: `${turn}/events` })],
  subscribe(turn),
  stream(turn),
];
const cancel = (turn: string): Row => [
  'POST turn/cancel',
  () => ({ method: 'POST', path: `${turn}/cancel`, body: {} }),
];

/** A code that is not about rights means that the caller has the right: something else was in the way. */
const TABLE = `
                                     owner, user          owner, approver      other user           approver             admin                no caller

running, waiting for answers
POST turns: message                  409 turn_running     403                  404                  403                  403                  401
POST turns: approval                 422 call_not_pending 422 call_not_pending 404                  422 call_not_pending 403                  401
POST turns: response                 422 call_not_pending 403                  404                  403                  403                  401
POST actions: approval               200                  200                  404                  200                  403 not_an_approver  401
POST actions: response               200                  403 not_an_approver  404                  403 not_an_approver  403 not_an_approver  401
GET turn                             200                  200                  404                  200                  200                  401
GET turn/events                      200                  200                  404                  200                  200                  401
POST turn/subscribe                  200                  200                  404                  200                  200                  401
GET turn/stream                      200                  200                  404                  200                  200                  401
POST pause                           200                  403                  404                  403                  200                  401
POST resume                          200                  403                  404                  403                  200                  401

  the same turn in another session
GET turn                             404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/subscribe                  404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
GET turn/stream                      404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/cancel                     404 turn_not_found   403                  404                  403                  404 turn_not_found   401

  its end
POST turn/cancel                     200                  403                  404                  403                  200                  401

ended, with pending calls
POST turns: message                  422 actions_pending  403                  404                  403                  403                  401
POST turns: approval                 422 calls_unanswered 422 calls_unanswered 404                  422 calls_unanswered 403                  401
POST turns: response                 422 calls_unanswered 403                  404                  403                  403                  401
POST actions: approval               200                  200                  404                  200                  403 not_an_approver  401
POST actions: response               200                  403 not_an_approver  404                  403 not_an_approver  403 not_an_approver  401
GET turn                             200                  200                  404                  200                  200                  401
GET turn/events                      200                  200                  404                  200                  200                  401
POST turn/subscribe                  200                  200                  404                  200                  200                  401
GET turn/stream                      200                  200                  404                  200                  200                  401
POST turn/cancel                     200                  403                  404                  403                  200                  401

  the same turn in another session
GET turn                             404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/subscribe                  404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
GET turn/stream                      404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/cancel                     404 turn_not_found   403                  404                  403                  404 turn_not_found   401

ended, with pending calls, in a closed session
POST turns: message                  409 session_closed   403                  404                  403                  403                  401
POST turns: approval                 409 session_closed   409 session_closed   404                  409 session_closed   403                  401
POST turns: response                 409 session_closed   403                  404                  403                  403                  401
POST actions: approval               409 session_closed   409 session_closed   404                  409 session_closed   409 session_closed   401
POST actions: response               409 session_closed   409 session_closed   404                  409 session_closed   409 session_closed   401
GET turn                             200                  200                  404                  200                  200                  401
GET turn/events                      200                  200                  404                  200                  200                  401
POST turn/subscribe                  200                  200                  404                  200                  200                  401
GET turn/stream                      200                  200                  404                  200                  200                  401
POST turn/cancel                     200                  403                  404                  403                  200                  401

queued
POST turns: message                  409 turn_running     403                  404                  403                  403                  401
POST turns: approval                 422 call_not_pending 422 call_not_pending 404                  422 call_not_pending 403                  401
POST turns: response                 422 call_not_pending 403                  404                  403                  403                  401
POST actions: approval               409 nothing_pending  409 nothing_pending  404                  409 nothing_pending  409 nothing_pending  401
POST actions: response               409 nothing_pending  409 nothing_pending  404                  409 nothing_pending  409 nothing_pending  401
GET queue                            200                  200                  404                  200                  200                  401
GET turn                             200                  200                  404                  200                  200                  401
GET turn/events                      200                  200                  404                  200                  200                  401
POST turn/subscribe                  200                  200                  404                  200                  200                  401
GET turn/stream                      200                  200                  404                  200                  200                  401

  the same turn in another session
GET turn                             404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/subscribe                  404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
GET turn/stream                      404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/cancel                     404 turn_not_found   403                  404                  403                  404 turn_not_found   401

  its end
POST turn/cancel                     200                  403                  404                  403                  200                  401

ended in the queue
GET turn                             200                  200                  404                  200                  200                  401
GET turn/events                      200                  200                  404                  200                  200                  401
POST turn/subscribe                  200                  200                  404                  200                  200                  401
GET turn/stream                      200                  200                  404                  200                  200                  401
POST turn/cancel                     200                  403                  404                  403                  200                  401

  the same turn in another session
GET turn                             404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/subscribe                  404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
GET turn/stream                      404 turn_not_found   404 turn_not_found   404                  404 turn_not_found   404 turn_not_found   401
POST turn/cancel                     404 turn_not_found   403                  404                  403                  404 turn_not_found   401

no turn
POST cancel                          200                  403                  404                  403                  200                  401
PATCH draft                          200                  403                  404                  403                  403                  401
PUT agent                            403                  403                  403                  403                  200                  401
`;

test('the rights of each role in each state of a turn', async () => {
  const lines = [line('', callers)];
  const add = async (state: string, rows: Row[]): Promise<void> => {
    lines.push('', state);
    for (const row of rows) lines.push(await lineOf(row));
  };
  await admin.putAgent('busy', { model: { name: 'busy' } });
  const other = `/v1/agents/sessions/${await ann.createSession('busy')}`;
  const inOther = (turn: string): Row[] => {
    const there = turn.replace(/^.*(?=\/turns\/)/, other);
    return [read(there), subscribe(there), stream(there), cancel(there)];
  };

  const waiting = await sessionWithCalls('waiting', 'wait');
  await add('running, waiting for answers', [
    ...answers(waiting.base),
    ...reads(waiting.turn),
    ['POST pause', () => ({ method: 'POST', path: `${waiting.base}/pause`, body: {} })],
    ['POST resume', () => ({ method: 'POST', path: `${waiting.base}/resume`, body: {} })],
  ]);
  await add('  the same turn in another session', inOther(waiting.turn));
  await add('  its end', [cancel(waiting.turn)]);

  const ended = await sessionWithCalls('ended', 'end');
  await add('ended, with pending calls', [...answers(ended.base), ...reads(ended.turn), cancel(ended.turn)]);
  await add('  the same turn in another session', inOther(ended.turn));

  expect((await ann.send('POST', `${ended.base}/cancel`, { close: true })).status).toBe(200);
  await add('ended, with pending calls, in a closed session', [
    ...answers(ended.base),
    ...reads(ended.turn),
    cancel(ended.turn),
  ]);

  const gate = held(
    (call) => call.text('busy'),
    (call) => call.text('.').finish(),
  );
  server.model.script('busy', gate.script);
  const id = await ann.createSession('busy');
  const running = ann.turn(id, 'one');
  await running.says('busy');
  const base = `/v1/agents/sessions/${id}`;
  const queued = `${base}/turns/${await ann.turn(id, 'two', { on_running: 'queue' }).turnId()}`;
  await add('queued', [
    ...answers(base),
    ['GET queue', () => ({ method: 'GET', path: `${base}/queue` })],
    ...reads(queued),
  ]);
  await add('  the same turn in another session', inOther(queued));
  await add('  its end', [cancel(queued)]);
  await expect.poll(() => archived(queued)).toBe(1);
  await add('ended in the queue', [...reads(queued), cancel(queued)]);
  await add('  the same turn in another session', inOther(queued));
  gate.release();
  await running.done;

  const draft = await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model: { name: 'm' } } });
  await add('no turn', [
    ['POST cancel', () => ({ method: 'POST', path: `${other}/cancel`, body: {} })],
    ['PATCH draft', () => ({ method: 'PATCH', path: `/v1/agents/draft-sessions/${draft.body.data.id}`, body: {} })],
    ['PUT agent', () => ({ method: 'PUT', path: '/v1/agents/busy', body: { model: { name: 'busy' } } })],
  ]);
  expect(`\n${lines.join('\n')}\n`).toBe(TABLE);
});

async function archived(turn: string): Promise<number | undefined> {
  const { rows } = server.database;
  const id = turn.slice(turn.lastIndexOf('/') + 1);
  return (await rows.selectFrom('turns').select('archived').where('id', '=', id).executeTakeFirst())?.archived;
}

/** Answers calls one by one; the results are those of the table. */
async function answer(base: string, ...given: [client: ApiClient, item: object][]): Promise<string[]> {
  const results: string[] = [];
  for (const [client, item] of given) {
    const { status, body } = await client.send('POST', `${base}/actions`, { input: [item] });
    results.push(status === 200 ? '200' : `${status} ${body.error.code}`);
  }
  return results;
}

/** An approval by the approver and a response by the owner, and these again by each of the two. */
const first = (): [ApiClient, object][] => [
  [boss, allow('w')],
  [ann, respond('q')],
];
const repetitions = (): [ApiClient, object][] => [
  [boss, allow('w')],
  [ann, allow('w')],
  [ann, respond('q')],
  [boss, respond('q')],
];

test('a repeated answer is accepted from the subject that gave it, and from no other', async () => {
  const calls = [write('w'), ask('q')];
  await admin.putAgent('repeats', { model: { name: 'repeats' }, ...onTestServer, config: { pause: 'wait' } });
  server.model.script('repeats', use(...calls), use(write('next')), say('Done.'));
  const id = await ann.createSession('repeats');
  const reader = ann.turn(id, 'go');
  await reader.type('turn.paused');
  const base = `/v1/agents/sessions/${id}`;
  expect(await answer(base, ...first())).toEqual(['200', '200']);
  await reader.next((one) => one.type === 'tool.approval_required' && one.tool_calls[0]?.id === 'next');
  const gone = '422 call_not_pending';
  expect(await answer(base, ...repetitions())).toEqual(['200', gone, '200', gone]);
  expect(await answer(base, [ann, allow('next')])).toEqual(['200']);
  await reader.done;
  const over = '409 nothing_pending';
  expect(await answer(base, ...repetitions())).toEqual(['200', over, '200', over]);

  await admin.putAgent('ends', { model: { name: 'ends' }, ...onTestServer });
  server.model.script('ends', use(...calls, write('last')), say('Done.'));
  const ended = await ann.createSession('ends');
  await ann.turn(ended, 'go').done;
  const there = `/v1/agents/sessions/${ended}`;
  expect(await answer(there, ...first())).toEqual(['200', '200']);
  const kept = ['200', '409 already_decided', '200', '403 not_an_approver'];
  expect(await answer(there, ...repetitions())).toEqual(kept);
  const { body } = await ann.send('POST', `${there}/actions`, { input: [allow('last')] });
  await ann.subscribe(ended, body.data.turn_id).done;
  expect(await answer(there, ...repetitions())).toEqual(['200', over, '200', over]);
});
