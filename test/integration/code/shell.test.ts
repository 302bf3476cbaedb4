import { afterAll, beforeAll, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import type { Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { answersTo, askedIn, cellTurn, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import type { TestServer } from '../../support/test-server.ts';

let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  server = await startCodeServer();
});
afterAll(() => server.stop());

const ASKS: Partial<AgentSpec> = { code_actions: { approvals: { code: 'allow', shell: 'ask' } } };
const FREE: Partial<AgentSpec> = { code_actions: { approvals: 'allow' } };

/** The actions that people see of the calls that a turn asks about. */
function actionsIn(events: Frame[]) {
  return events.flatMap((event) =>
    event.type === 'tool.approval_required' ? event.tool_calls.map(({ action }) => action) : [],
  );
}

const isOfCode = (threadId: string): boolean => threadId.startsWith('code_');

test.concurrent('a command is asked about as it will run, and its output is printed', async ({ expect }) => {
  const chat = await server.chat({ spec: ASKS });
  const asked = await cellTurn(chat, ['name = "x y"\n!echo {name} {nope}']);
  expect(actionsIn(asked)).toMatchObject([
    {
      type: 'shell',
      command: 'echo x y {nope}',
      display: 'echo x y {nope}',
      suggested_rule: { action: 'shell', command: 'echo x y {nope}' },
      parent: { thread_id: 'main' },
    },
  ]);
  const done = await chat.turn(answersTo(asked)).done;
  expect(responsesIn(done)).toMatchObject([
    { outcome: 'succeeded', content: 'x y {nope}', execution: { commands: 1 } },
  ]);
  expect(responsesIn(done, isOfCode)).toMatchObject([{ outcome: 'succeeded', content: 'exit code 0' }]);
});

test.concurrent('the parts of a line are asked about together, and if one is denied, none runs', async ({ expect }) => {
  const chat = await server.chat({ spec: ASKS });
  const asked = await cellTurn(chat, ['!touch a && touch b']);
  expect(actionsIn(asked).map((action) => action?.command)).toEqual(['touch a', 'touch b']);
  const [first, second] = askedIn(asked).map((call, i) => ({
    type: 'user.tool_approval',
    ...call,
    approval: { status: i === 0 ? 'allow' : 'deny' },
  }));
  const done = await chat.turn([first, second]).done;
  expect(
    responsesIn(done, isOfCode)
      .map(({ outcome }) => outcome)
      .toSorted(),
  ).toEqual(['cancelled', 'denied']);
  expect(responsesIn(done)[0]?.content).toContain('ApprovalRejectedError');
  const left = await cellTurn(chat, ['import os; print([f for f in os.listdir() if f in ("a", "b")])']);
  expect(responsesIn(left)).toMatchObject([{ content: '[]' }]);
});

test.concurrent('operators inside quotes divide nothing, and a script is one call', async ({ expect }) => {
  const chat = await server.chat({ spec: ASKS });
  const quoted = await cellTurn(chat, ['!echo "a && b; c"']);
  expect(actionsIn(quoted)).toMatchObject([{ command: 'echo "a && b; c"' }]);
  const printed = await chat.turn(answersTo(quoted)).done;
  expect(responsesIn(printed)).toMatchObject([{ content: 'a && b; c' }]);
  const script = await cellTurn(chat, ['%%bash\necho $((1 + 1))\necho $$ > pid\necho three']);
  expect(actionsIn(script)).toMatchObject([
    {
      type: 'shell_script',
      display: 'echo $((1 + 1)) (+2 lines)',
      command: 'echo $((1 + 1))\necho $$ > pid\necho three\n',
    },
  ]);
  const ran = await chat.turn(answersTo(script)).done;
  expect(responsesIn(ran)).toMatchObject([{ outcome: 'succeeded', content: '2\nthree' }]);
});

test.concurrent('the output of a command is a list of lines, after one approval', async ({ expect }) => {
  const chat = await server.chat({ spec: ASKS });
  const asked = await cellTurn(chat, ["x = !printf 'a\\nb'\nprint(len(x), x)"]);
  expect(askedIn(asked)).toHaveLength(1);
  const done = await chat.turn(answersTo(asked)).done;
  expect(responsesIn(done)).toMatchObject([{ content: "2 ['a', 'b']" }]);
});

test.concurrent('commands run without asking where the agent says so, and share the files of the code', async ({
  expect,
}) => {
  const chat = await server.chat({ spec: FREE });
  const events = await cellTurn(chat, [
    'open("in", "w").write("b\\na\\n")\n!sort in > out; echo done\nprint(open("out").read())\n!false\nprint(_exit_code)',
    'import subprocess\nsubprocess.run(["true"])',
  ]);
  expect(events.filter(({ type }) => type === 'tool.approval_required')).toEqual([]);
  const [ran, blocked] = responsesIn(events);
  expect(ran).toMatchObject({ outcome: 'succeeded', content: 'done\na\nb\n\n1', execution: { commands: 2 } });
  expect(blocked).toMatchObject({ outcome: 'failed', execution: { error: { name: 'PermissionError' } } });
});

test.concurrent('a rule denies without asking, and a remembered decision is not asked for again', async ({
  expect,
}) => {
  const spec: Partial<AgentSpec> = {
    code_actions: {
      approvals: { code: 'allow', shell: 'ask' },
      permissions: [{ effect: 'deny', action: 'shell', command: 'rm *' }],
    },
  };
  const chat = await server.chat({ spec });
  const all = { effect: 'allow', action: 'shell', command: '*' };
  const { body } = await server.api.send('POST', `${chat.path}/permissions`, all);
  const denied = await cellTurn(chat, ['!rm in']);
  expect(actionsIn(denied)).toEqual([]);
  expect(responsesIn(denied)).toMatchObject([{ outcome: 'failed', execution: { exit: 'denied' } }]);
  await server.api.send('DELETE', `${chat.path}/permissions/${body.data.id}`);
  const asked = await cellTurn(chat, ['!echo one']);
  const remembering = { status: 'allow', remember: { scope: 'session' } };
  await chat.turn(answersTo(asked, remembering)).done;
  const again = await cellTurn(chat, ['!echo two']);
  expect(actionsIn(again)).toEqual([]);
  expect(responsesIn(again)).toMatchObject([{ content: 'two' }]);
  const opaque = await cellTurn(chat, ['!echo $(cat in)']);
  expect(askedIn(opaque)).toHaveLength(1);
});
