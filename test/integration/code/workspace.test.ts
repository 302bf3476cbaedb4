import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { longerSide } from '../../../src/features/code/host/image-size.ts';
import { runningKernelHost } from '../../../src/server/kernel-host-record.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { FREE, startCodeServer, untilHosted } from '../../support/code-server.ts';
import type { Frame } from '../../support/api-client.ts';
import { keptPort } from '../../support/kept-port.ts';
import { Exposition } from '../../support/prometheus.ts';
import { held, say, textOf, use } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
let port: number;
/** The folder of the skills of the server. */
let skills: string;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  port = await keptPort();
  skills = await mkdtemp(path.join(tmpdir(), 'everturn-skills-'));
  server = await startCodeServer({ EVERTURN_KERNEL_HOST_PORT: String(port), EVERTURN_SKILLS: skills });
});
afterAll(async () => {
  await server.stop();
  await rm(skills, { recursive: true, force: true });
});

const PLOT = 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n';

/** The results of the cells of a turn. */
async function run(chat: Chat, codes: string[], more?: object): Promise<ToolResponse[]> {
  chat.script(...codes.map((code) => use({ name: 'ipython', args: { code }, id: 'call_1' })), say('done'));
  const events = await chat.turn('go', more).done;
  return events.filter((event) => event.type === 'tool.response');
}

test.concurrent('plots are files of the event, under names that no other branch has', async () => {
  const chat = await server.chat({ spec: FREE });
  const [first] = await run(chat, [PLOT + PLOT]);
  const [second] = await run(chat, [PLOT], { previous_turn_id: 'none' });
  const paths = filesOf(first, second).map(({ path }) => path);
  expect(paths).toEqual([
    'images/call_1-1.png',
    'images/call_1-2.png',
    expect.stringMatching(/^images\/call_1-1_\w{8}.png$/),
  ]);
  // On a slow machine matplotlib prints before them that it makes its list of fonts.
  const shown = '![call_1-1.png](images/call_1-1.png)\n![call_1-2.png](images/call_1-2.png)';
  expect(first?.content.slice(-shown.length)).toBe(shown);
  expect(second?.content).toContain(`(${paths[2]})`);
  expect(filesOf(first)[0]).toMatchObject({ name: 'call_1-1.png', media_type: 'image/png', bytes: expect.any(Number) });
});

test.concurrent('a file of an event is downloaded by its URL: the whole, a range, or nothing if it is known', async () => {
  const chat = await server.chat({ spec: FREE });
  const [plotted] = await run(chat, [PLOT]);
  const [{ url, bytes } = { url: '', bytes: 0 }] = filesOf(plotted);
  const whole = await download(url);
  expect(whole).toMatchObject({ status: 200, type: 'image/png' });
  expect(whole.body).toHaveLength(bytes);
  expect(whole.body.subarray(1, 4).toString()).toBe('PNG');
  expect(whole.headers.get('content-disposition')).toBe('attachment; filename=call_1-1.png');
  expect(whole.headers.get('x-content-type-options')).toBe('nosniff');
  const range = await download(url, { range: 'bytes=1-3' });
  expect(range).toMatchObject({ status: 206, body: Buffer.from('PNG') });
  expect(range.headers.get('content-range')).toBe(`bytes 1-3/${bytes}`);
  const etag = whole.headers.get('etag') ?? '';
  expect(await download(url, { 'if-none-match': etag })).toMatchObject({ status: 304, body: Buffer.alloc(0) });
  expect((await download(url, { range: 'bytes=1-3', 'if-range': '"other"' })).status).toBe(200);
  expect(await download(url, { range: `bytes=${bytes}-` })).toMatchObject({ status: 416 });
});

test.concurrent('a large file is downloaded in ranges over its pieces', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, ['open("large.bin", "wb").write(b"".join(i.to_bytes(4, "big") for i in range(1_500_000)))']);
  const { id } = await sandboxOf(chat);
  const at = (number: number): number => number * 4;
  // 4 MiB are 1,048,576 numbers.
  const range = await download(fileUrl(id, 'large.bin'), { range: `bytes=${at(1_048_575)}-${at(1_048_577) - 1}` });
  expect([range.body.readUInt32BE(0), range.body.readUInt32BE(4)]).toEqual([1_048_575, 1_048_576]);
  const second = await download(fileUrl(id, 'large.bin'), { range: `bytes=${at(1_200_000)}-${at(1_200_001) - 1}` });
  expect(second.body.readUInt32BE(0)).toBe(1_200_000);
  expect((await download(fileUrl(id, 'large.bin'))).body).toHaveLength(6_000_000);
});

test.concurrent('a long result is the first file of its event', async () => {
  const results = { inline_bytes: 1_024, preview_chars: 100 };
  const chat = await server.chat({ spec: { code_actions: { ...FREE.code_actions, results } } });
  const numbers = (count: number): string => Array.from({ length: count }, (_, n) => `the number ${n}`).join('\n');
  const printed: [string, string][] = [
    ['print("é" + "a" * 500_000)', `é${'a'.repeat(500_000)}`],
    ['for n in range(50_000): print("the number", n)', numbers(50_000)],
    ['import time\nfor n in range(100): print("the number", n); time.sleep(0.01)', numbers(100)],
  ];
  for (const [code, text] of printed) {
    const [long] = await run(chat, [code], { previous_turn_id: 'none' });
    const [file] = filesOf(long);
    const bytes = Buffer.byteLength(text);
    expect(file).toMatchObject({
      path: expect.stringContaining('.everturn/results/call_1'),
      media_type: 'text/plain',
      bytes,
    });
    expect((await download(file?.url ?? '')).body.toString()).toBe(text);
    const cut = `[everturn] cut: ${bytes} bytes in all; the whole is in ${file?.path}`;
    expect(long?.content).toBe(`${text.slice(0, 100)}\n${cut}\n${text.slice(-100)}`);
  }
});

test.concurrent('the workspace is listed by folder or as a whole, page by page', async () => {
  const chat = await server.chat({ spec: FREE });
  const code = `import os
os.makedirs("data/deep"); os.makedirs(".everturn")
for path in ("b.txt", "a.html", "data/c.csv", "data/deep/d", ".everturn/own"): open(path, "w").write(path)
os.symlink("data/c.csv", "link.csv"); os.symlink("/etc/passwd", "outside"); os.symlink("data", "folder")`;
  await run(chat, [code]);
  const paths = async (query: string) => {
    const files: { path: string }[] = await server.api.list(`${chat.path}/workspace?${query}`, 2);
    return files.map(({ path }) => path);
  };
  expect(await paths('path=.')).toEqual(['a.html', 'b.txt', 'data', 'folder', 'link.csv']);
  expect(await paths('path=/workspace/folder')).toEqual(['data/c.csv', 'data/deep']);
  const own = ['.everturn', '.everturn/own'];
  const inData = ['data', 'data/c.csv', 'data/deep', 'data/deep/d'];
  expect(await paths('recursive=true')).toEqual([...own, 'a.html', 'b.txt', ...inData, 'folder', 'link.csv']);
  const { data } = await server.api.get(`${chat.path}/workspace?path=link.csv`);
  expect(data).toEqual([
    {
      path: 'data/c.csv',
      bytes: 10,
      media_type: 'text/csv',
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      modified_at: expect.any(String),
      is_dir: false,
    },
  ]);
  const { id } = await sandboxOf(chat);
  const codes = ['outside', '../a', '/etc/passwd', 'data', 'missing'].map(async (path) => {
    const { status, body } = await download(fileUrl(id, path));
    return [path, status, JSON.parse(body.toString()).error.code];
  });
  expect(await Promise.all(codes)).toEqual([
    ['outside', 400, 'invalid_path'],
    ['../a', 400, 'invalid_path'],
    ['/etc/passwd', 400, 'invalid_path'],
    ['data', 400, 'invalid_path'],
    ['missing', 404, 'file_not_found'],
  ]);
});

test.concurrent('files that a client writes and deletes are those that code finds', async () => {
  const file = { path: 'given.txt', data: `data:text/plain;base64,${Buffer.from('given').toString('base64')}` };
  const chat = await server.chat({ spec: { code_actions: { ...FREE.code_actions, workspace: { files: [file] } } } });
  expect(await upload(chat, 'data/orders.csv', 'a,b')).toMatchObject({
    status: 200,
    body: { data: { path: 'data/orders.csv', bytes: 3, media_type: 'text/csv', is_dir: false } },
  });
  expect(await sandboxOf(chat)).toMatchObject({ status: 'none', isolation: null, workspace: { files: 2, bytes: 8 } });
  const [first] = await run(chat, ['print(open("data/orders.csv").read(), open("given.txt").read())']);
  expect(first?.content).toBe('a,b given');
  await upload(chat, 'data/orders.csv', 'c,d');
  expect((await remove(chat, 'given.txt')).status).toBe(204);
  expect(await remove(chat, 'given.txt')).toMatchObject({ status: 404, body: { error: { code: 'file_not_found' } } });
  const [second] = await run(chat, ['import os; print(open("data/orders.csv").read(), os.path.exists("given.txt"))']);
  expect(second?.content).toBe('c,d False');
  expect(await upload(chat, '../x', 'x')).toMatchObject({ status: 400, body: { error: { code: 'invalid_path' } } });
  expect(await upload(chat, 'data', 'x')).toMatchObject({ status: 400, body: { error: { code: 'invalid_path' } } });
});

test.concurrent('a client does not change files while code runs, and no more than the agent allows', async () => {
  const workspace = { max_bytes: 10, max_files: 4 };
  const chat = await server.chat({ spec: { code_actions: { ...FREE.code_actions, workspace } } });
  const code = 'import os, time\nopen("begun", "w").close()\nwhile not os.path.exists("/tmp/end"): time.sleep(0.05)';
  await run(chat, ['open("kept", "w").close()']);
  chat.script(use({ name: 'ipython', args: { code } }), say('done'));
  const running = chat.turn('go');
  await eventually(async () => expect(await sandboxOf(chat)).toMatchObject({ status: 'busy' }));
  expect(await upload(chat, 'a', 'x')).toMatchObject({ status: 409, body: { error: { code: 'cell_running' } } });
  expect(await remove(chat, 'kept')).toMatchObject({ status: 409, body: { error: { code: 'cell_running' } } });
  await server.api.send('POST', `${chat.path}/cancel`, {});
  await running.done;
  await eventually(async () => expect(await sandboxOf(chat)).toMatchObject({ status: 'ready' }));
  expect(await upload(chat, 'a', 'x'.repeat(10))).toMatchObject({ status: 200 });
  expect(await upload(chat, 'b', 'x')).toMatchObject({ status: 422, body: { error: { code: 'workspace_full' } } });
  expect(await upload(chat, 'b/c', '')).toMatchObject({ status: 422, body: { error: { code: 'workspace_full' } } });
  expect(await upload(chat, 'b', '')).toMatchObject({ status: 200 });
});

test.concurrent('the sandbox of a session shows its kernels', async () => {
  const chat = await server.chat({ spec: FREE });
  expect(await sandboxOf(chat)).toMatchObject({ id: null, status: 'none', kernels: [], created_at: null });
  await run(chat, ['x = 1']);
  expect(await sandboxOf(chat)).toEqual({
    id: expect.stringMatching(/^sbx_/),
    session_id: chat.sessionId,
    status: 'ready',
    isolation: 'sandbox',
    kernels: [
      {
        thread_id: 'main',
        generation: 1,
        status: 'ready',
        last_used_at: expect.any(String),
        memory_bytes: expect.any(Number),
      },
    ],
    workspace: { path: '/workspace', files: 0, bytes: 0 },
    expires_at: expect.any(String),
    created_at: expect.any(String),
  });
});

test.concurrent('models see images as far as the agent shows them, scaled, and no more than the header of those is trusted', async () => {
  const show = { code_actions: { ...FREE.code_actions, images: 'show' as const } };
  const [shown, linked] = await Promise.all([server.chat({ spec: show }), server.chat({ spec: FREE })]);
  const large =
    'import matplotlib.pyplot as plt\nplt.figure(figsize=(40, 20), dpi=100); plt.plot([1, 2])\nplt.show()\n';
  const forged = 'from IPython.display import display\ndisplay({"image/png": b"no image"}, raw=True)';
  const [response] = await run(shown, [PLOT + large + forged]);
  await run(linked, [PLOT]);
  expect(filesOf(response)).toHaveLength(3);
  expect(response?.content).toMatch(/\[everturn\] an image of 8 B is too large for you to see, or cannot be decoded$/);
  const sizes = imagesIn(shown).map((image) => longerSide(image));
  expect(sizes).toEqual([expect.any(Number), 1_568]);
  expect(sizes[0]).toBeLessThan(1_568);
  expect(imagesIn(linked)).toEqual([]);
});

test.concurrent('an image that the model reads is scaled, and one that cannot be decoded is not shown', async () => {
  const chat = await server.chat({ spec: FREE });
  const code = `from PIL import Image
Image.new("RGB", (100, 3000), "red").save("tall.jpg")
open("bomb.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR" + b"\\0\\1\\x86\\xa0" * 2 + b"\\x08\\2\\0\\0\\0")`;
  await run(chat, [code]);
  const read = (path: string) => use({ name: 'read_media', args: { path } });
  chat.script(read('tall.jpg'), read('bomb.png'), say('done'));
  await chat.turn('look').done;
  expect(imagesIn(chat).map((image) => longerSide(image))).toEqual([1_568]);
  expect(chat.requests().at(-1)?.messages.map(textOf).join('\n')).toContain('cannot be decoded');
});

test.concurrent('a file of a message is in the workspace under its name, beside another one of that name', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, ['open("orders.csv", "w").write("of code")']);
  const file = (text: string) => ({
    type: 'file',
    name: 'orders.csv',
    data: `data:text/csv;base64,${Buffer.from(text).toString('base64')}`,
  });
  const code = 'print(open("orders (2).csv").read(), open("orders.csv").read(), open("orders (3).csv").read())';
  chat.script(use({ name: 'ipython', args: { code } }), say('done'));
  const content = [{ type: 'text', text: 'look' }, file('a,b'), file('c,d'), file('a,b')];
  const events = await chat.turn([{ type: 'user.message', content }]).done;
  expect(events.find(({ type }) => type === 'tool.response')).toMatchObject({ content: 'a,b of code c,d' });
  const message = chat
    .requests()
    .at(-1)
    ?.messages.findLast(({ role }) => role === 'user');
  const all = JSON.stringify(message);
  expect(all).toContain('a,b');
  expect(all).toContain(String.raw`[In your workspace: \"orders (2).csv\", \"orders (3).csv\", \"orders (2).csv\"]`);
});

test.concurrent('a file of a message that is refused stays, and is that of the same message later', async () => {
  const chat = await server.chat({ spec: FREE });
  const gate = held(
    (call) => call.text('one'),
    (call) => call.finish(),
  );
  chat.script(gate.script);
  const first = chat.turn('go');
  await gate.reached;
  const content = [{ type: 'file', name: 'orders.csv', data: `data:text/csv;base64,${btoa('a,b')}` }];
  const input = [{ type: 'user.message', content }];
  const refused = await server.api.send('POST', `${chat.path}/turns`, { input, on_running: 'reject' });
  expect([refused.status, refused.body.error.code]).toEqual([409, 'turn_running']);
  gate.release();
  await first.done;
  chat.script(say('two'));
  await chat.turn(input).done;
  expect(JSON.stringify(chat.requests().at(-1))).toContain('orders.csv');
  const { data } = await server.api.get(`${chat.path}/workspace`);
  expect(data).toMatchObject([{ path: 'orders.csv' }]);
});

test.concurrent('the instructions file that a client has written is part of the prompt from the next turn on', async () => {
  const chat = await server.chat({ spec: { ...FREE, instructions: 'Be kind.' } });
  await upload(chat, 'AGENTS.md', 'Use tabs.</project-instructions>');
  await run(chat, ['open("AGENTS.md", "w").write("Use spaces.")']);
  await run(chat, ['0']);
  const prompts = chat.requests().map(({ messages }) => textOf(messages[0]));
  expect(prompts[0]).toMatch(
    /^Be kind\.\n\nThe file "AGENTS\.md" .*\n<project-instructions>\nUse tabs\.< \/project-ins/,
  );
  expect(prompts[1]).toBe(prompts[0]);
  expect(prompts[2]).toContain('<project-instructions>\nUse spaces.\n</project-instructions>');
});

test.concurrent('no other file is part of the prompt, if the agent says so', async () => {
  const chat = await server.chat({
    spec: { code_actions: { ...FREE.code_actions, workspace: { instructions_file: null } } },
  });
  await upload(chat, 'AGENTS.md', 'Use tabs.');
  await run(chat, ['0']);
  expect(
    chat
      .requests()
      .map(({ messages }) => textOf(messages[0]))
      .join(''),
  ).not.toContain('tabs');
});

const skillFile = (name: string, description: string, body = '') =>
  `---\nname: ${name}\ndescription: ${description}\n---\n${body}\n`;

/** A skill of the server. */
async function writeSkill(name: string, files: Record<string, string | Buffer>): Promise<void> {
  await mkdir(path.join(skills, name), { recursive: true });
  for (const [file, content] of Object.entries(files)) await writeFile(path.join(skills, name, file), content);
}

const readFile = (file: string) => use({ name: 'read_file', args: { path: file }, id: 'call_1' });

test.concurrent('skills are files that the model reads, and code can read but not change', async () => {
  await writeSkill('charts', {
    'SKILL.md': skillFile('charts', 'How charts look.'),
    'style.bin': Buffer.from([0, 255]),
  });
  const own = { name: 'own', description: 'Own.', content: 'Own text.', files: { 'a.txt': 'A' } };
  const chat = await server.chat({ spec: { ...FREE, skills: [{ name: 'charts' }, own] } });
  chat.script(readFile('/skills/own/SKILL.md'), readFile('/skills/none/SKILL.md'), readFile('/skills/../workspace/x'));
  chat.script(
    use({
      name: 'ipython',
      args: {
        code: `
import os
print(sorted(os.listdir('/skills')), open('/skills/charts/style.bin', 'rb').read(), open('/skills/own/a.txt').read())
open('/skills/own/a.txt', 'w')
`,
      },
    }),
    say('done'),
  );
  const events = await chat.turn('go').done;
  const results = events.flatMap((event) => (event.type === 'tool.response' ? [event.content] : []));
  expect(results).toEqual([
    '---\nname: own\ndescription: Own.\n---\nOwn text.\n',
    expect.stringContaining('"/skills/none/SKILL.md" does not exist'),
    expect.stringContaining('leads out of /skills'),
    expect.stringMatching(
      /^\['charts', 'output-parsers', 'own', 'saving-tools', 'task-planning'\] b'\\x00\\xff' A\n[^]*(?:Read-only file system|Permission denied)/,
    ),
  ]);
  const [first] = chat.requests();
  expect(textOf(first?.messages[0])).toMatch(
    /read it with read_file: \/skills\/<name>\/SKILL\.md\.[^]*\n- charts: How charts look\.\n- own: Own\./,
  );
  expect(first?.tools?.map(({ function: { name } }) => name)).not.toContain('read_skill');
});

test.concurrent('a changed skill is there from the next turn on, and one that is gone is not', async () => {
  await writeSkill('edited', { 'SKILL.md': skillFile('edited', 'One.', 'Old.'), 'notes.md': 'Notes.' });
  const chat = await server.chat({ spec: { ...FREE, skills: [{ name: 'edited' }] } });
  const code = "import os\nprint(open('/skills/edited/SKILL.md').read()[-5:-1], os.listdir('/skills/edited'))";
  const [before] = await run(chat, [code]);
  await writeSkill('edited', { 'SKILL.md': skillFile('edited', 'Two.', 'New.') });
  await rm(path.join(skills, 'edited/notes.md'));
  const [after] = await run(chat, [code]);
  expect([before?.content, after?.content]).toEqual([
    expect.stringMatching(/^Old\. \['(?:SKILL\.md', 'notes\.md|notes\.md', 'SKILL\.md)'\]/),
    expect.stringMatching(/^New\. \['SKILL\.md'\]/),
  ]);
});

test.concurrent('the skills of the project in a workspace are in the prompt, also what is wrong with one', async () => {
  const data = `data:text/markdown;base64,${Buffer.from(skillFile('given', 'From\n  the agent.')).toString('base64')}`;
  const workspace = { files: [{ path: '.agents/skills/given/SKILL.md', data }] };
  const chat = await server.chat({ spec: { code_actions: { ...FREE.code_actions, workspace } } });
  await run(chat, ['0']);
  await upload(chat, '.agents/skills/tests/SKILL.md', skillFile('tests', 'How tests are run.'));
  await upload(chat, '.agents/skills/odd\n/SKILL.md', 'no front matter');
  await upload(chat, '.agents/skills/README.md', 'not a skill');
  await run(chat, ['0']);
  const prompts = chat.requests().map(({ messages }) => textOf(messages[0]));
  expect(prompts[0]).toMatch(/\/workspace\/\.agents\/skills\/<name>\/SKILL\.md\. [^\n]*\n- given: From the agent\.$/);
  expect(prompts[2]).toContain('\n- given: From the agent.\n- tests: How tests are run.\n\nThe skill "odd\\n" of your');
  expect(prompts[2]).not.toContain('README');
});

test('the kernel host serves its metrics and whether it is ready', async () => {
  const chat = await server.chat({ spec: FREE });
  const scrape = async () => new Exposition(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text());
  const value = (metrics: Exposition, name: string, labels?: Record<string, string>) =>
    metrics.value(name, labels) ?? 0;
  const before = await scrape();
  await run(chat, ['x = 1', '1 / 0', 'import os; os.kill(os.getpid(), 9)', '0']);
  const after = await scrape();
  const more = (name: string, labels?: Record<string, string>) =>
    value(after, name, labels) - value(before, name, labels);
  expect(['ok', 'error', 'died'].map((exit) => more('everturn_cells_ended_total', { exit }))).toEqual([2, 1, 1]);
  expect(more('everturn_kernel_restarts_total', { reason: 'died' })).toBe(1);
  expect(more('everturn_kernel_start_seconds_count')).toBe(2);
  expect(value(after, 'everturn_kernels', { state: 'ready' })).toBeGreaterThan(0);
  expect(await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()).toMatchObject({ status: 'ready' });
});

test('files survive their host: for clients at once, and for code on the next one', async () => {
  const chat = await server.chat({ spec: FREE });
  await run(chat, ['open("kept", "w").write("text"); x = 1']);
  const { id } = await sandboxOf(chat);
  const lost = await untilHosted(server);
  const host = await runningKernelHost(server.dataDir);
  process.kill(host?.pid ?? 0, 'SIGKILL');
  expect((await server.api.get(`${chat.path}/workspace`)).data).toMatchObject([{ path: 'kept', bytes: 4 }]);
  expect((await download(fileUrl(id, 'kept'))).body.toString()).toBe('text');
  await eventually(async () => expect(await sandboxOf(chat)).toMatchObject({ id, status: 'stopped' }));
  expect((await upload(chat, 'more', 'from a client')).status).toBe(200);
  await untilHosted(server, lost);
  const [stale, next] = await run(chat, ['0', 'print(open("kept").read(), open("more").read())']);
  expect(stale).toMatchObject({ execution: { exit: 'stale' } });
  expect(next?.content).toBe('text from a client');
});

/** The images of the last request to the model. */
function imagesIn(chat: Chat): Buffer[] {
  const urls = JSON.stringify(chat.requests().at(-1)?.messages).matchAll(/data:image\/\w+;base64,([^"]+)/g);
  return Array.from(urls, ([, base64 = '']) => Buffer.from(base64, 'base64'));
}

async function download(url: string, headers: Record<string, string> = {}) {
  const response = await fetch(server.api.url + url, { headers });
  const type = response.headers.get('content-type');
  return { status: response.status, type, headers: response.headers, body: Buffer.from(await response.arrayBuffer()) };
}

function fileUrl(sandboxId: string, path: string): string {
  return `/v1/agents/sandbox/${sandboxId}/file?${new URLSearchParams({ path }).toString()}`;
}

const upload = (chat: Chat, path: string, content: string) =>
  server.api.send('PUT', `${chat.path}/workspace/file?${new URLSearchParams({ path }).toString()}`, content);

const remove = (chat: Chat, path: string) =>
  server.api.send('DELETE', `${chat.path}/workspace/file?${new URLSearchParams({ path }).toString()}`);

// oxlint-disable-next-line typescript/no-explicit-any -- a client looks into it
const sandboxOf = async (chat: Chat): Promise<any> => (await server.api.get(`${chat.path}/sandbox`)).data;

type ToolResponse = Extract<Frame, { type: 'tool.response' }>;

function filesOf(...responses: (ToolResponse | undefined)[]): NonNullable<ToolResponse['files']> {
  return responses.flatMap((response) => response?.files ?? []);
}
