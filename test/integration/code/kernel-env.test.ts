import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { cellTurn, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import type { TestServer } from '../../support/test-server.ts';

const SECRET = newId('req');

let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  server = await startCodeServer(
    { EVERTURN_KERNEL_ENV: 'LAB_TOKEN,LAB_MISSING', LAB_TOKEN: SECRET, LAB_OTHER: 'other' },
    {
      mcp: {
        tools: [
          {
            name: 'send',
            inputSchema: { type: 'object', properties: { text: { type: 'string' } } },
            handler: () => 'sent',
          },
        ],
      },
    },
  );
});
afterAll(() => server.stop());

function agent(env: Record<string, string>) {
  return {
    code_actions: { approvals: 'allow' as const, kernel: { env } },
    mcp_servers: [
      {
        type: 'truefoundry-mcp-registry' as const,
        name: 'test',
        allowed_callers: ['code' as const],
        require_approval_for_tools: [],
      },
    ],
  };
}

test('code and commands have the variables of the agent, and no reader sees those of the host', async () => {
  const chat = await server.chat({ spec: agent({ REGION: 'eu', AUTH: 'Bearer ${LAB_TOKEN}' }) });
  const codes = [
    'import os, sys\nprint(os.environ["REGION"], os.environ["AUTH"], len(os.environ["AUTH"]))',
    'half = len(os.environ["AUTH"]) // 2\nsys.stdout.write(os.environ["AUTH"][:half]); sys.stdout.flush(); print(os.environ["AUTH"][half:])',
    'raise ValueError(os.environ["AUTH"])',
    'from IPython.display import HTML, display\ndisplay(HTML(os.environ["AUTH"]))',
    '!echo $REGION $AUTH',
    'seen = !echo $AUTH\nprint(seen[0] == os.environ["AUTH"])',
    '"LAB_OTHER" in os.environ, "LAB_TOKEN" in os.environ',
  ];
  const results = responsesIn(await cellTurn(chat, codes));
  const [printed, inHalves, raised, displayed, ofCommand, assigned, others] = results;
  const shown = 'Bearer [LAB_TOKEN]';
  expect(printed?.content).toBe(`eu ${shown} ${`Bearer ${SECRET}`.length}`);
  expect(inHalves?.content).toBe(shown);
  expect(raised?.execution?.error).toEqual({ name: 'ValueError', message: shown });
  expect(ofCommand?.content).toBe(`eu ${shown}`);
  expect([assigned?.content, others?.content]).toEqual(['True', '(False, False)']);
  const [html] = displayed?.files ?? [];
  expect(await (await fetch(server.api.url + (html?.url ?? ''))).text()).toBe(shown);
  const events = await server.api.list(`${chat.path}/events?view=full`);
  expect(JSON.stringify([events, chat.requests()])).not.toContain(SECRET);
});

test('a value of the host leaves the sandbox by no call', async () => {
  const chat = await server.chat({ spec: agent({ AUTH: '${LAB_TOKEN}' }) });
  const events = await cellTurn(chat, [
    'import os\nfrom mcptools.test.send import run, Params\nrun(Params(text=os.environ["AUTH"]))',
    'token = os.environ["AUTH"]\n!echo {token} > out',
    'print(os.path.exists("out"), run(Params(text="fine")))',
  ]);
  const refused = { outcome: 'failed', execution: { error: { name: 'ToolRunnerError' } } };
  expect(responsesIn(events)).toMatchObject([refused, refused, { outcome: 'succeeded', content: 'False sent' }]);
  expect(server.mcp.calls.map(({ arguments: given }) => given)).toEqual([{ text: 'fine' }]);
  const listed = await server.api.list(`${chat.path}/events?view=full`);
  expect(JSON.stringify([listed, chat.requests()])).not.toContain(SECRET);
});

test('an agent may not refer to other variables, and code does not start without those that it refers to', async () => {
  const spec = { model: { name: 'any' }, code_actions: { kernel: { env: { A: '${LAB_OTHER}' } } } };
  const { status, body } = await server.api.send('PUT', `/v1/agents/${newId('req')}`, spec);
  expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', 'code_actions.kernel.env.A']);
  const chat = await server.chat({ spec: agent({ A: '${LAB_MISSING}' }) });
  const [result] = responsesIn(await cellTurn(chat, ['print(1)']));
  expect(result).toMatchObject({ outcome: 'failed', execution: { exit: 'not_started' } });
  expect(result?.content).toContain('has no variable LAB_MISSING');
});
