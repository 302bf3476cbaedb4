import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, afterEach, expect, test } from 'vitest';
import { agentSpec, type AgentSpec } from '../../spec/agent-spec.ts';
import { parseSkill, skillText } from './skill-file.ts';
import { Skills } from './skills.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-skills-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const skillFile = (name: string, description: string, body = 'Do it.') =>
  `---\nname: ${name}\ndescription: ${description}\nlicense: MIT\n---\n${body}\n`;

async function write(file: string, content: string | Buffer): Promise<string> {
  const target = path.join(root, file);
  await mkdir(path.dirname(target), { recursive: true });
  await writeFile(target, content);
  return target;
}

const specWith = (...skills: object[]): AgentSpec => agentSpec.parse({ model: { name: 'm' }, skills });

test('the first folder that has a skill is used; other entries are ignored', async () => {
  await write('one/orders/SKILL.md', skillFile('orders', 'First.'));
  await write('two/orders/SKILL.md', skillFile('orders', 'Second.'));
  await write('two/mail/SKILL.md', skillFile('mail', 'Mail.'));
  await write('two/README.md', 'not a skill');
  await write('two/empty/notes.txt', 'not a skill either');
  const skills = await Skills.open(['one', 'two'].map((name) => path.join(root, name)));
  expect(await skills.list(specWith({ name: 'mail' }, { fqn: 'orders' }, { name: 'none' }))).toEqual({
    skills: [expect.objectContaining({ description: 'Mail.' }), expect.objectContaining({ description: 'First.' })],
    unavailable: [{ skill: 'none', reason: 'there is no skill none on this server' }],
  });
});

test('an edited skill is read anew, also if its size and its time are the same', async () => {
  const file = await write('orders/SKILL.md', skillFile('orders', 'Old.'));
  const skills = await Skills.open([root]);
  const description = async () => (await skills.list(specWith({ name: 'orders' }))).skills[0]?.description;
  const time = new Date('2026-01-01');
  await utimes(file, time, time);
  expect(await description()).toBe('Old.');
  await write('orders/SKILL.md', skillFile('orders', 'New.'));
  await utimes(file, time, time);
  expect(await description()).toBe('New.');
  await rm(file);
  expect((await skills.list(specWith({ name: 'orders' }))).unavailable).toHaveLength(1);
});

test('the body of a skill names its files, and each of them can be read', async () => {
  await write('orders/SKILL.md', skillFile('orders', 'Orders.', '# Orders'));
  await write('orders/examples/late.json', '{"late":true}');
  await write('orders/.hidden', 'no');
  await symlink('examples/late.json', path.join(root, 'orders/link.json'));
  const skills = await Skills.open([root]);
  const spec = specWith({ name: 'orders' });
  const text = await skills.read(spec, 'orders');
  expect(text).toMatch(/^# Orders\n[^]*"path":\n- examples\/late\.json\n- link\.json$/);
  expect(await skills.read(spec, 'orders', 'examples/late.json')).toBe('{"late":true}');
  expect(await skills.read(spec, 'orders', 'link.json')).toBe('{"late":true}');
});

test('nothing outside of a skill is read, and nothing that is hidden, binary, large or not a file', async () => {
  await write('secret.txt', 'secret');
  await write('orders/SKILL.md', skillFile('orders', 'Orders.'));
  await write('orders/.env', 'secret');
  await write('orders/data.bin', Buffer.from([0x61, 0]));
  await write('orders/latin.txt', Buffer.from([0x61, 0xe9]));
  await write('orders/large.txt', Buffer.alloc(1024 * 1024 + 1, 'x'));
  await symlink('../secret.txt', path.join(root, 'orders/link.txt'));
  await symlink('..', path.join(root, 'orders/up'));
  execFileSync('mkfifo', [path.join(root, 'orders/pipe')]);
  const skills = await Skills.open([root]);
  const spec = specWith({ name: 'orders' });
  const reasons: [string, RegExp][] = [
    ['../secret.txt', /has no file/],
    ['examples/../../secret.txt', /has no file/],
    [path.join(root, 'secret.txt'), /has no file/],
    ['.env', /has no file/],
    ['a\0b', /has no file/],
    ['link.txt', /outside of the folder/],
    ['up/secret.txt', /outside of the folder/],
    ['data.bin', /not a text file/],
    ['latin.txt', /not a text file/],
    ['large.txt', /more than 1048576 bytes/],
    ['pipe', /has no file/],
    ['absent.txt', /has no file/],
  ];
  for (const [file, reason] of reasons) await expect(skills.read(spec, 'orders', file), file).rejects.toThrow(reason);
  for (const name of ['mail', '../orders', 'orders/']) {
    await expect(skills.read(spec, name)).rejects.toThrow(/there is no skill/);
  }
});

test('a skill in the spec has its own text and files, whatever the server has', async () => {
  const skills = await Skills.open([]);
  const spec = specWith({ name: 'own', description: 'Own.', content: 'Read a.txt.', files: { 'a.txt': 'A' } });
  expect(await skills.list(spec)).toEqual({ skills: [{ name: 'own', description: 'Own.' }], unavailable: [] });
  expect(await skills.read(spec, 'own')).toMatch(/^Read a\.txt\.\n[^]*- a\.txt$/);
  expect(await skills.read(spec, 'own', 'a.txt')).toBe('A');
  await expect(skills.read(spec, 'own', 'constructor')).rejects.toThrow(/has no file/);
});

test.each<[object, RegExp]>([
  [{ name: undefined, fqn: '../../etc/cron.d' }, /the name of a skill with its own text must be/],
  [{ files: { a: '', 'a/b': '' } }, /cannot have the file "a"/],
  [{ files: { 'SKILL.md': '' } }, /cannot have the file "SKILL.md"/],
  [{ files: { ['é'.repeat(128)]: '' } }, /cannot have the file "é/],
])('an agent is rejected whose skill %j could not be a folder', async (given, message) => {
  const skills = await Skills.open([]);
  const spec = specWith({ name: 'own', description: 'Own.', content: 'Text.', ...given });
  expect(await skills.firstProblem(spec)).toMatchObject({ message: expect.stringMatching(message), param: 'skills.0' });
});

test('a folder or a skill that cannot be read stops the start, with the place and the reason', async () => {
  await expect(Skills.open([path.join(root, 'none')])).rejects.toThrow(/EVERTURN_SKILLS: the folder .*none.* ENOENT/);
  await write('orders/SKILL.md', skillFile('mail', 'Orders.'));
  await expect(Skills.open([root])).rejects.toThrow(/orders: the front matter .* names it mail, .* folder is orders/);
  await write('orders/SKILL.md', 'x'.repeat(64 * 1024 + 1));
  await expect(Skills.open([root])).rejects.toThrow(/SKILL.md has more than 65536 bytes/);
});

test('the files of skills are those that can be read, each below the name of its skill', async () => {
  await write('orders/SKILL.md', skillFile('orders', 'Orders.'));
  await write('orders/data.bin', Buffer.from([0, 255]));
  await write('orders/large.txt', Buffer.alloc(1024 * 1024 + 1, 'x'));
  const skills = await Skills.open([root]);
  const own = { name: 'own', description: 'Own: "it".', content: 'Text.', files: { 'a/b.txt': 'B' } };
  const files = await skills.files(specWith({ name: 'orders' }, { name: 'none' }, own));
  expect(files.map(([file, content]) => [file, content.toString('latin1')])).toEqual([
    ['orders/SKILL.md', skillFile('orders', 'Orders.')],
    ['orders/data.bin', '\0\u00ff'],
    ['own/SKILL.md', skillText(own, 'Text.')],
    ['own/a/b.txt', 'B'],
  ]);
  expect(parseSkill(skillText(own, 'Text.'), 'own')).toEqual({
    name: 'own',
    description: own.description,
    body: 'Text.',
  });
});

test('the front matter of a skill is checked, and its aliases are not expanded', () => {
  expect(parseSkill('\uFEFF---\r\nname: a\r\ndescription: >\r\n  Two\r\n  lines.\r\n---\r\nBody\r\n', 'a')).toEqual({
    name: 'a',
    description: 'Two lines.',
    body: 'Body',
  });
  const broken: [string, RegExp][] = [
    [skillFile('b', 'c'), /names it b, but its folder is a/],
    ['# No front matter', /must begin with front matter/],
    ['---\nname: a\ndescription: b\n', /must begin with front matter/],
    [skillFile('Not A Name', 'b'), /front matter of SKILL.md: name: must be/],
    [skillFile('a', ''), /front matter of SKILL.md: description/],
    [skillFile('a', 'x'.repeat(1_025)), /front matter of SKILL.md: description/],
    [skillFile('a', '[unclosed'), /not valid YAML/],
    ['---\nx: &x [a]\nname: a\ndescription: b\ny: *x\n---\n', /not valid YAML: .*alias/i],
    [`---\nname: a\ndescription: b\nx: ${'['.repeat(10_000)}\n---\n`, /not valid YAML/],
    [`---\nname: a\n#${'x'.repeat(17_000)}\n---\n`, /longer than/],
  ];
  for (const [text, reason] of broken) expect(() => parseSkill(text, 'a'), text.slice(0, 80)).toThrow(reason);
});

test('agents that act in code have built-in skills, unless they disable or replace them', async () => {
  const skills = await Skills.open([]);
  const names = async (...own: object[]) =>
    (await skills.list({ ...specWith(...own), code_actions: {} })).skills.map(({ name, description }) =>
      description === 'Own.' ? `own ${name}` : name,
    );
  expect(await names()).toEqual(['saving-tools', 'output-parsers', 'task-planning']);
  expect(await names({ name: 'saving-tools', enabled: false })).toEqual(['output-parsers', 'task-planning']);
  expect(await names({ name: 'task-planning' })).toEqual(['saving-tools', 'output-parsers', 'task-planning']);
  const own = { name: 'task-planning', description: 'Own.', content: 'Own.' };
  expect(await names(own)).toEqual(['own task-planning', 'saving-tools', 'output-parsers']);
  const without = { ...specWith(), code_actions: { saved_tools: 'none' as const } };
  expect((await skills.list(without)).skills).toMatchObject([{ name: 'task-planning' }]);
  expect(await skills.list(specWith())).toEqual({ skills: [], unavailable: [] });
  const files = await skills.files({ ...specWith(), code_actions: {} });
  for (const [file, content] of files) {
    expect(parseSkill(content.toString(), file.slice(0, file.indexOf('/'))).body).not.toBe('');
  }
  expect(files.map(([file]) => file)).toHaveLength(3);
});

test('only a built-in skill can be disabled', async () => {
  const skills = await Skills.open([]);
  expect(await skills.firstProblem(specWith({ name: 'task-planning', enabled: false }))).toBeUndefined();
  expect(await skills.firstProblem(specWith({ name: 'mail', enabled: false }))).toMatchObject({
    param: 'skills.0',
    message: expect.stringContaining('omit the skill mail'),
  });
});
