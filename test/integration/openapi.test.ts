import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { toUuid } from '../../src/api/agents-v2/session-ids.ts';
import { FACES } from '../../src/api/app.ts';
import type { Face } from '../../src/api/http/face.ts';
import { ApiClient } from '../support/api-client.ts';
import { pythonWith } from '../support/python.ts';
import { use } from '../support/scripted-model.ts';
import { SEED } from '../support/seed.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

const HOOKS = fileURLToPath(new URL('../python/schemathesis_hooks.py', import.meta.url));
/**
 * Generated requests per operation, in addition to those that the document itself implies. Of these, repetitions are left
 * out unless `EXAMPLES` is set (`filter_case` in the hooks), as are whole phases: each example of the document in requests
 * that are otherwise generated, which the other phases have among their values, and sequences of requests, which get
 * along six of the 568 links that schemathesis infers.
 */
const EXAMPLES = process.env['EXAMPLES'] ?? '3';
const IS_BRIEF = process.env['EXAMPLES'] === undefined;
const BRIEF_PHASES = ['--phases', 'coverage,fuzzing'];

/** One function answers all methods that a path does not have. */
const ONE_UNKNOWN_METHOD = `
[phases.coverage]
unexpected-methods = ["patch"]
`;

/** Thousands of requests per minute, some of them with generated keys. */
const UNLIMITED = {
  EVERTURN_REQUESTS_PER_MINUTE: '0',
  EVERTURN_UNKNOWN_KEYS_PER_MINUTE: '0',
};

let server: TestServer;
let python: string;
let folder: string;
beforeAll(async () => {
  python = await pythonWith('schemathesis==4.32.5');
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-schemathesis-'));
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann', ...UNLIMITED },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
}, 240_000);
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

/**
 * The documents of the server, each with the operations that generated requests need not reach: these need a sign-in, a
 * file, a sandbox, an agent that acts in code, a registered agent, a receiver, or a turn that runs or waits, in the moment of the request, which seldom happens.
 * Other tests have them.
 */
const DOCUMENTS: [document: string, unreached: string[]][] = [
  [
    '/openapi.json',
    [
      'DELETE /v1/agents/mcp/connections/{connection_id}',
      'GET /v1/agents/mcp/authorize',
      'GET /v1/agents/mcp/callback',
      'GET /v1/agents/sandbox/{sandbox_id}/file',
      'POST /v1/agents/{agent_name}/permissions',
      'DELETE /v1/agents/{agent_name}/permissions/{rule_id}',
      'GET /v1/agents/{agent_name}/code-tools/{category}/{tool_name}',
      'PUT /v1/agents/{agent_name}/code-tools/{category}/{tool_name}',
      'DELETE /v1/agents/{agent_name}/code-tools/{category}/{tool_name}',
      'POST /v1/agents/sessions/{session_id}/permissions',
      'DELETE /v1/agents/sessions/{session_id}/permissions/{rule_id}',
      'POST /v1/agents/sessions/{session_id}/sandbox/interrupt',
      'POST /v1/agents/sessions/{session_id}/sandbox/reset',
      'PUT /v1/agents/sessions/{session_id}/workspace/file',
      'DELETE /v1/agents/sessions/{session_id}/workspace/file',
      'POST /v1/agents/mcp/authorize',
      'POST /v1/agents/sessions/{session_id}/actions',
      'POST /v1/agents/sessions/{session_id}/force_answer',
      'POST /v1/agents/sessions/{session_id}/pause',
      'POST /v1/agents/sessions/{session_id}/resume',
      'POST /v1/runs',
    ],
  ],
  [
    '/api/v2/openapi.json',
    [
      'DELETE /api/v2/schedules/{schedule_id}',
      'GET /api/v2/schedules/{schedule_id}',
      'GET /api/v2/schedules/{schedule_id}/runs',
      'PATCH /api/v2/schedules/{schedule_id}',
      'POST /api/v2/agents/{agent}/revisions/{revision}/restore',
      'POST /api/v2/schedules',
      'POST /api/v2/schedules/{schedule_id}/pause',
      'POST /api/v2/schedules/{schedule_id}/resume',
      'POST /api/v2/schedules/{schedule_id}/trigger',
      'POST /api/v2/webhooks/{webhook_id}/ping',
      'GET /api/v2/sessions/{id}/resources/{bucket}/{key}',
      'POST /api/v2/sessions/{id}/files/list_files',
      'POST /api/v2/sessions/{id}/files/read_file',
      'POST /api/v2/sessions/{id}/files/write_file',
      'POST /api/v2/sessions/{id}/force_answer',
      'POST /api/v2/sessions/{id}/pause',
      'POST /api/v2/sessions/{id}/resume',
      'POST /api/v2/sessions/{id}/tool_results',
    ],
  ],
];

test('requests are generated for each document', () => {
  const faces: readonly Face[] = FACES;
  expect(DOCUMENTS.map(([document]) => document)).toEqual(faces.flatMap(({ document }) => document?.path ?? []));
});

const report = z.object({
  failures: z.array(z.unknown()),
  errors: z.array(z.unknown()),
  valid_rates: z.record(z.string(), z.record(z.string(), z.looseObject({ accepted: z.int() }))),
});

test.each(DOCUMENTS)(
  `every response is one that %s declares (SEED=${SEED} EXAMPLES=${EXAMPLES})`,
  async (document, unreached) => {
    const config = path.join(folder, 'schemathesis.toml');
    const result = path.join(folder, 'report.json');
    await writeFile(config, settings(await conversation()));
    // Some documents are for clients with a key.
    const file = path.join(folder, 'openapi.json');
    await writeFile(file, JSON.stringify(await new ApiClient(server.api.url, 'key-of-ann').get(document)));
    const url = ['--url', server.api.url];
    const what = [
      'run',
      file,
      ...url,
      '--seed',
      String(SEED),
      '--max-examples',
      EXAMPLES,
      '--suppress-health-check',
      'filter_too_much',
      '--request-timeout',
      '100',
      ...(IS_BRIEF ? BRIEF_PHASES : []),
    ];
    const how = ['--no-color', '--report', 'json', '--report-json-path', result];
    const output = await run(python, ['-m', 'schemathesis.cli', '--config-file', config, ...what, ...how]);
    const { failures, errors, valid_rates: rates } = report.parse(JSON.parse(await readFile(result, 'utf8')));
    expect([failures.length, errors.length], output).toEqual([0, 0]);
    const never = Object.entries(rates).filter(([, phases]) =>
      Object.values(phases).every(({ accepted }) => !accepted),
    );
    const missed = never.map(([operation]) => operation).filter((operation) => !unreached.includes(operation));
    expect(missed).toEqual([]);
  },
  900_000,
);

interface Names {
  session: string;
  /** The session and the spare one as the Agents API v2 names them. */
  uuid: string;
  spareUuid: string;
  waiting: string;
  turn: string;
  file: string;
  draft: string;
  run: string;
  /** For requests that leave their resource unusable for others. */
  spare: string;
  /** For requests that delete their resource. */
  doomed: { agent: string; session: string; draft: string; run: string };
}

/** A resource for every path: a session with an ended turn and a file, one with a waiting turn, a draft, a run. */
async function conversation(): Promise<Names> {
  const ann = new ApiClient(server.api.url, 'key-of-ann');
  await ann.putAgent('helper', { model: { name: 'm' }, ...onTestServer });
  const session = await ann.createSession('helper');
  const data = `data:text/plain;base64,${Buffer.alloc(100_000, 'x').toString('base64')}`;
  const reader = ann.turn(session, [{ type: 'user.message', content: [{ type: 'file', name: 'x.txt', data }] }]);
  expect((await reader.end()).status).toBe('done');
  const [, file = ''] = /\/files\/(\w+)\?/.exec(JSON.stringify(await reader.type('turn.created'))) ?? [];
  const waiting = await ann.createSession('helper');
  server.model.script('m', use({ name: 'write', id: 'pending' }));
  await ann.turn(waiting, 'write').done;
  const createDraft = async (): Promise<string> => {
    const { body } = await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model: { name: 'm' } } });
    return body.data.id;
  };
  const createRun = async (): Promise<string> => {
    const input = [{ type: 'message', role: 'user', content: 'Hi' }];
    const { body } = await ann.send('POST', '/v1/runs', { agent: { model: 'm' }, input });
    expect(body.status).toBe('completed');
    return body.id;
  };
  await ann.putAgent('doomed', { model: { name: 'm' } });
  for (const name of ['greetings', 'doomed']) {
    const skill = { name, description: 'How to greet', body: 'Say hello.' };
    // It is there for the second document.
    expect([201, 409]).toContain((await ann.send('POST', '/api/v2/skills', skill)).status);
  }
  const spare = await ann.createSession('helper');
  return {
    session,
    uuid: toUuid(session),
    spareUuid: toUuid(spare),
    waiting,
    turn: await reader.turnId(),
    file,
    draft: await createDraft(),
    run: await createRun(),
    spare,
    doomed: {
      agent: 'doomed',
      session: await ann.createSession('helper'),
      draft: await createDraft(),
      run: await createRun(),
    },
  };
}

/** Most requests get existing names, so that they reach the resources. */
function settings({ session, uuid, spareUuid, waiting, turn, file, draft, run, spare, doomed }: Names): string {
  return `
hooks = ${JSON.stringify(HOOKS)}
continue-on-failure = true

[auth.openapi.key]
bearer = "key-of-ann"

[dictionaries]
agent = { values = ["helper"] }
session = { values = ["${session}", "${session}", "${waiting}"] }
uuid = { values = ["${uuid}"] }
spare_uuid = { values = ["${spareUuid}"] }
turn = { values = ["${turn}"] }
file = { values = ["${file}"] }
draft = { values = ["${draft}"] }
run = { values = ["${run}"] }
spare = { values = ["${spare}"] }
doomed_agent = { values = ["${doomed.agent}"] }
doomed_session = { values = ["${doomed.session}"] }
doomed_draft = { values = ["${doomed.draft}"] }
doomed_run = { values = ["${doomed.run}"] }
skill = { values = ["greetings"] }
doomed_skill = { values = ["doomed"] }
version = { values = ["1"] }
call = { values = ["pending"] }
thread = { values = ["main"] }

[parameters]
"path.agent_name" = { dictionary = "agent", probability = 0.8 }
"path.session_id" = { dictionary = "session", probability = 0.9 }
"path.id" = { dictionary = "uuid", probability = 0.9 }
"path.agent_version" = { dictionary = "version", probability = 0.9 }
"query.agent_name" = { dictionary = "agent", probability = 0.8 }
"path.skill" = { dictionary = "skill", probability = 0.9 }
"path.run_id" = { dictionary = "run", probability = 0.9 }
"path.turn_id" = { dictionary = "turn", probability = 0.9 }
"path.file_id" = { dictionary = "file", probability = 0.9 }
"query.last_turn_id" = { dictionary = "turn", probability = 0.5 }
"body.agent" = { dictionary = "agent", probability = 0.8 }
"body.agent_name" = { dictionary = "agent", probability = 0.8 }
"body.previous_turn_id" = { dictionary = "turn", probability = 0.3 }
"body.input[*].tool_call_id" = { dictionary = "call", probability = 0.5 }
"body.input[*].thread_id" = { dictionary = "thread", probability = 0.5 }

${IS_BRIEF ? ONE_UNKNOWN_METHOD : ''}
# Query parameters that are not known are ignored.
[generation]
allow-extra-parameters = false

# What is well-formed may still be impossible.
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
# Invalid parameters may be too long for Node to parse.
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "428", "429", "431", "5xx"]

[[operations]]
include-operation-id = "cancelSession"
parameters = { "path.session_id" = { dictionary = "spare", probability = 0.9 }, "path.id" = { dictionary = "spare_uuid", probability = 0.9 } }

[[operations]]
include-operation-id = "deleteAgent"
parameters = { "path.agent_name" = { dictionary = "doomed_agent" } }

[[operations]]
include-operation-id = "updateSkill"
parameters = { "path.skill" = { dictionary = "skill", probability = 0.9 }, "body.name" = { dictionary = "skill", probability = 0.9 } }

[[operations]]
include-operation-id = "deleteSkill"
parameters = { "path.skill" = { dictionary = "doomed_skill" } }

[[operations]]
include-operation-id = "deleteSession"
parameters = { "path.session_id" = { dictionary = "doomed_session" } }

[[operations]]
include-operation-id = "deleteDraftSession"
parameters = { "path.session_id" = { dictionary = "doomed_draft" } }

[[operations]]
include-operation-id = "deleteRun"
parameters = { "path.run_id" = { dictionary = "doomed_run" } }

[[operations]]
include-operation-id = ["getDraftSession", "updateDraftSession"]
parameters = { "path.session_id" = { dictionary = "draft", probability = 0.9 } }

# Sessions are pinned to the versions of an agent, so these outlive it.
[[operations]]
include-operation-id = ["listAgentVersions", "getAgentVersion"]
checks.use_after_free.enabled = false

# The Agents API v2 answers commands to a session that does not run with 400, an \`If-Match\` that does not match with 412,
# and redirects those who have no key.
[[operations]]
include-path-regex = "^/(api/v2|share)/"
checks.positive_data_acceptance.expected-statuses = ["2xx", "302", "400", "401", "402", "403", "404", "409", "412", "422"]

# Unknown fields of an agent are rejected, as are parts whose two shapes differ, and results that are errors, too.
[[operations]]
include-operation-id = ["createRun", "createRunOfAgent", "resumeRun"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409", "422"]

# Of all numbers few are cursors of a stream.
[[operations]]
include-operation-id = ["subscribeToTurn", "streamTurn", "streamActions", "streamSession"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404"]
`;
}

/** The output of schemathesis. Its exit code is 1 if it has found a failure. */
function run(program: string, args: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    // It reads all variables twice for each request.
    const { PATH, HOME, EXAMPLES: examples } = process.env;
    const env = { PATH, HOME, ...(examples !== undefined && { EXAMPLES: examples }) };
    execFile(program, args, { cwd: folder, env, maxBuffer: 100_000_000 }, (error, stdout, stderr) => {
      if (error && error.code !== 1) reject(new Error(stdout + stderr, { cause: error }));
      else resolve(stdout + stderr);
    });
  });
}
