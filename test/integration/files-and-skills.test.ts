import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { held, say, textOf, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let skills: string;
let server: TestServer;
beforeAll(async () => {
  skills = await mkdtemp(path.join(tmpdir(), 'everturn-skills-'));
  await writeSkill('orders', 'How orders are changed.', '# Orders');
  await writeFile(path.join(skills, 'orders/late.md'), 'Say sorry.');
  server = await startTestServer({ env: { EVERTURN_SKILLS: skills } });
});
afterAll(async () => {
  await server.stop();
  await rm(skills, { recursive: true, force: true });
});

async function writeSkill(name: string, description: string, body: string): Promise<void> {
  await mkdir(path.join(skills, name), { recursive: true });
  await writeFile(
    path.join(skills, name, 'SKILL.md'),
    `---\nname: ${name}\ndescription: ${description}\n---\n${body}\n`,
  );
}

const own = { name: 'own', description: 'Own.', content: 'Own text.' };

test('the model gets the descriptions of skills, and reads them on demand', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'read_skill', args: { name: 'orders' } }, { name: 'read_skill', args: { name: 'own' } }),
      use({ name: 'read_skill', args: { name: 'orders', path: 'late.md' } }),
      use({ name: 'read_skill', args: { name: 'orders', path: '../../etc/passwd' } }),
    ],
    spec: { instructions: 'Be kind.', skills: [{ name: 'orders' }, own] },
  });
  const turn = chat.turn('hi');
  expect((await turn.end()).status).toBe('done');
  const [first, ...rest] = chat.requests();
  expect(textOf(first?.messages[0])).toMatch(
    /^Be kind\.\n\nYou have skills: [^]*\n- orders: How orders are changed\.\n- own: Own\.$/,
  );
  const results = rest.map(({ messages }) => textOf(messages.at(-1)));
  expect(textOf(rest[0]?.messages.at(-2))).toMatch(/^# Orders\n[^]*- late\.md$/);
  expect(results).toEqual(['Own text.', 'Say sorry.', expect.stringContaining('has no file')]);
  const [usage] = turn.frames.flatMap((frame) => (frame.type === 'model.message.delta' ? (frame.usage ?? []) : []));
  expect(usage?.input_tokens_breakdown.skills).toBeGreaterThan(0);
});

test('an edit of a skill applies from the next model call; one that is removed is unavailable', async () => {
  await writeSkill('fleeting', 'Old.', 'Old text.');
  const { script, reached, release } = held(
    (call) => call.toolCall('read_skill', { name: 'fleeting' }),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [script], spec: { skills: [{ name: 'fleeting' }] } });
  const turn = chat.turn('hi');
  await reached;
  await writeSkill('fleeting', 'New.', 'New text.');
  release();
  await turn.done;
  const [, second] = chat.requests();
  expect([textOf(second?.messages[0]), textOf(second?.messages.at(-1))]).toEqual([
    expect.stringMatching(/- fleeting: New\.$/),
    'New text.',
  ]);
  await rm(path.join(skills, 'fleeting'), { recursive: true });
  const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { input: [] });
  expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_agent', 'agent.skills.0']);
});

test('a skill that disappears during a turn is named as unavailable, and the turn continues', async () => {
  await writeSkill('gone', 'Gone.', 'Text.');
  const { script, reached, release } = held(
    (call) => call.toolCall('read_skill', { name: 'gone' }),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [script], spec: { skills: [{ name: 'gone' }] } });
  const turn = chat.turn('hi');
  await reached;
  await rm(path.join(skills, 'gone'), { recursive: true });
  release();
  expect((await turn.end()).status).toBe('done');
  const [, second] = chat.requests();
  expect(textOf(second?.messages[0])).toBe(
    'The skill "gone" is currently unavailable: there is no skill gone on this server',
  );
  expect(textOf(second?.messages.at(-1))).toBe('there is no skill gone on this server');
});

test('a dynamic sub-agent has the skills of its parent, and a registered one has its own', async () => {
  await server.api.putAgent('clerk', { model: { name: 'clerk' }, skills: [own] });
  server.model.script('copy', say('copied'));
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'create_sub_agent', args: { name: 'copy', input: 'go', model: 'copy' } },
        { name: 'create_sub_agent', args: { name: 'clerk', input: 'go', agent: 'clerk' } },
      ),
    ],
    spec: { skills: [{ name: 'orders' }], agents: ['clerk'] },
  });
  await chat.turn('hi').done;
  const [[copy], [clerk]] = [server.model.requestsTo('copy'), server.model.requestsTo('clerk')];
  expect(textOf(copy?.messages[0])).toMatch(/- orders: How orders are changed\.\n\nYou are the sub-agent/);
  expect(textOf(clerk?.messages[0])).toMatch(/- own: Own\.$/);
});
