import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { FileTexts } from '../../src/features/files/file-texts.ts';
import { folded } from '../support/api-client.ts';
import { pdfOf } from '../support/pdf.ts';
import { docxOf, zipOf } from '../support/zip.ts';
import { held, say, textOf, use, type ChatRequest } from '../support/scripted-model.ts';
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

const file = (name: string, mimeType: string, content: Buffer | string) => ({
  type: 'file',
  name,
  data: `data:${mimeType};base64,${Buffer.from(content).toString('base64')}`,
});

const DOCX = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
const GIF = Buffer.from('GIF89a;');

const withFiles = (...files: object[]) => [
  { type: 'user.message', content: [{ type: 'text', text: 'read' }, ...files] },
];

/** The texts of the parts of the first user message in a request. */
function partsOf(request: ChatRequest | undefined): unknown[] {
  const content = request?.messages.find(({ role }) => role === 'user')?.content;
  return Array.isArray(content) ? content.map((part) => part.text) : [];
}

test('the model gets the texts of files, whatever their kind, and why a file has none', async () => {
  const chat = await server.chat();
  const turn = chat.turn(
    withFiles(
      file('a.json', 'application/json', '{"a":1}'),
      file('b.csv', 'text/csv', Buffer.from([0x63, 0x61, 0x66, 0xe9])),
      file('main.rs', 'application/octet-stream', 'fn main() {}'),
      file('data.bin', 'application/octet-stream', Buffer.from([1, 0, 2])),
      file('c.gz', 'application/gzip', 'x'),
      file('c.zip', 'application/zip', zipOf({ 'src/a.ts': 'let a;', 'b.bin': Buffer.from([0]) })),
      file('c.docx', DOCX, docxOf(['Dear Ann,'])),
      file('d.pdf', 'application/pdf', pdfOf(['One', 'Two'])),
      file('e.pdf', 'application/pdf', 'not a PDF file'),
      file('f.png', 'image/png', 'not an image'),
      file('g.png', 'image/png', GIF),
    ),
  );
  await turn.done;
  expect(partsOf(chat.requests()[0])).toEqual([
    'read',
    'File a.json (application/json, 7 B):\n{"a":1}',
    'File b.csv (text/csv, 4 B):\ncafé',
    'File main.rs (application/octet-stream, 12 B):\nfn main() {}',
    'File data.bin (application/octet-stream, 3 B): it cannot be read: it is not a text.',
    'File c.gz (application/gzip, 1 B): it cannot be read: files of this type cannot be read.',
    expect.stringMatching(
      /^File c\.zip .*:\n\[archive with 2 entries\]\nsrc\/a\.ts \(6 bytes\)\nb\.bin \(1 bytes\)\n\n\[src\/a\.ts\]\nlet a;$/,
    ),
    expect.stringMatching(/^File c\.docx .*:\nDear Ann,$/),
    expect.stringMatching(/^File d\.pdf \(application\/pdf, .*\):\n\[page 1\]\nOne\n\n\[page 2\]\nTwo$/),
    expect.stringMatching(/^File e\.pdf \(application\/pdf, 14 B\): it cannot be read: it is damaged: /),
    'File f.png (image/png, 12 B): it cannot be read: it is not a PNG, JPEG, GIF or WebP image.',
    undefined,
  ]);
  const image = { url: `data:image/gif;base64,${GIF.toString('base64')}` };
  expect(JSON.stringify(chat.requests()[0]?.messages)).toContain(
    JSON.stringify({ type: 'image_url', image_url: image }),
  );
  expect(JSON.stringify(folded(turn.frames))).not.toContain('fileTexts');
});

test('a PDF file is read once: later calls, turns and restarts have its text from the log', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'none' })] });
  const pdf = pdfOf(['Remember me']);
  const extract = vi.spyOn(FileTexts.prototype, 'extract');
  onTestFinished(() => extract.mockRestore());
  const first = chat.turn(withFiles(file('d.pdf', 'application/pdf', pdf)));
  await first.done;
  await server.restart();
  expect((await server.api.turn(chat.sessionId, 'and now?').end()).status).toBe('done');
  expect(chat.requests().map((request) => String(partsOf(request)[1]))).toEqual(
    Array(3).fill(expect.stringMatching(/Remember me$/)),
  );
  expect(extract).toHaveBeenCalledTimes(1);
});

test('the rest of a long file is read and searched with a tool, in later turns too', async () => {
  const rows = Array.from({ length: 20_000 }, (_, i) => `row ${i};value ${i * 7}`).join('\n');
  const chat = await server.chat();
  await chat.turn(withFiles(file('rows.csv', 'text/csv', rows))).done;
  const [, shown] = partsOf(chat.requests()[0]);
  const [, from, id] =
    /from character (\d+) of \d+ on, is left out here; read_tool_response reads and searches it: file (file_\w+)\]$/.exec(
      String(shown),
    ) ?? [];
  expect(Buffer.byteLength(String(shown))).toBeLessThan(70_000);
  chat.script(
    use(
      { name: 'read_tool_response', args: { file: id, offset: Number(from), length: 30 } },
      { name: 'read_tool_response', args: { file: id, search: 'row 19999;' } },
      { name: 'read_tool_response', args: { file: 'file_00000000' } },
    ),
  );
  await chat.turn('look').done;
  const results = chat.requests().at(-1)?.messages.slice(-3).map(textOf) ?? [];
  expect(results).toEqual([
    `[characters ${from} to ${Number(from) + 30} of ${rows.length}]\n${rows.slice(Number(from), Number(from) + 30)}`,
    expect.stringContaining('row 19999;value 139993'),
    expect.stringContaining('this conversation has no such file'),
  ]);
});
