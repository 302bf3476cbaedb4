import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, inject } from 'vitest';
import { parse } from 'yaml';
import { loadConfig } from '../../../src/config.ts';
import { startDemoModel } from '../../../src/demo/demo-model.ts';
import type { LocalServer } from '../../../src/demo/local-server.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { parseSkill } from '../../../src/features/skills/skill-file.ts';
import { DYNAMIC_CONFIG } from '../../../src/temporal-server/dynamic-config.ts';
import { frameOf } from '../api-client.ts';
import { readCompose } from '../compose.ts';
import { builtKernelPython, BUILDS_PYTHON } from '../kernel-python.ts';
import { pythonWith } from '../python.ts';
import { blocksOf, guides, ROOT, type Block } from './blocks.ts';
import { JSON_KINDS } from './json-kinds.ts';
import { Reader } from './reader.ts';

/**
 * Blocks that other tests run, with the test's own words for what it runs: they need several machines, a store of
 * Amazon's, a model server or an account elsewhere.
 */
export const ELSEWHERE = [
  { block: 'EVERTURN_BLOBS=s3://', test: 'test/integration/s3-blobs.test.ts', words: 'EVERTURN_BLOBS' },
  { block: 'EVERTURN_BUILD_ID=1.1', test: 'test/integration/rolling-deploys.test.ts', words: 'EVERTURN_BUILD_ID' },
  {
    block: 'TEMPORAL_POSTGRES_URL=',
    test: 'test/nightly/temporal-on-postgres.test.ts',
    words: 'startTemporalOnPostgres',
  },
  { block: 'groups:', test: 'test/integration/metrics.test.ts', words: 'docs/operations.md' },
  { block: '# litellm.yaml', test: 'test/nightly/litellm.test.ts', words: 'litellm.yaml' },
  { block: 'FROM everturn\n', test: 'test/image/image.test.ts', words: 'docs/mcp-servers.md' },
  { block: 'FROM everturn-kernels\n', test: 'test/image/image.test.ts', words: 'docs/deployment.md' },
  { block: 'npx node examples/sign-in', test: 'test/integration/examples.test.ts', words: 'sign-in-to-an-mcp-server' },
];

/** The results of the blocks of a page, where the page states more than that they succeed. */
const SHOWN: Record<string, RegExp> = {
  'README.md': /tool\.approval_required[^]*Noted\.[^]*Counted to 8/,
  'docs/agents-api-v2.md': /\[session\] completed: Plant/,
  'docs/approvals.md': /"remaining":1[^]*Noted\./,
  'docs/code-actions.md': /tool\.approval_required[^]*Noted\.[^]*plot\.png/,
  'docs/encryption.md': /^0$/m,
  'docs/mcp-servers.md': /notes: stdio, [^]* tools: /,
  'docs/keys-and-roles.md': /key_\w+ of bob was revoked/,
  'examples/README.md': /\[read\] # Release notes[^]*\[approval\] allowing 1 call/,
};

let model: LocalServer;
/** For the pages that do not start a server themselves: a checkout after `npm start`, on a machine with Node 24. */
let plain: Reader;

/** For the file of tests that calls it: starts what its pages are checked with. */
export function prepareReaders(): void {
  // The first test run on a machine builds it.
  beforeAll(async () => void (await builtKernelPython()), BUILDS_PYTHON);
  beforeAll(async () => {
    model = await startDemoModel();
    plain = await newReader({ programs: path.dirname(process.execPath) });
    await plain.serve('npm start');
  }, 120_000);
  afterAll(async () => {
    await plain.stop();
    await model.stop();
  });
}

/** The guides whose blocks start a server or change one. */
export function withOwnServer(): string[] {
  return guides().filter((page) => blocksOf(page).some(changesServer));
}

/** Executes the blocks of a page on the server that such pages share. */
export async function checkOnSharedServer(page: string): Promise<void> {
  try {
    await checkPage(page, plain);
  } finally {
    await plain.turnPage();
  }
}

/** Executes the blocks of a page that has its own server. */
export async function checkOnOwnServer(page: string): Promise<void> {
  const reader = await newReader();
  try {
    const first = blocksOf(page).find(({ language }) => language === 'sh');
    if (first && !startsServer(first)) await reader.serve('npm start');
    await checkPage(page, reader);
  } finally {
    await reader.stop();
  }
}

async function newReader(machine?: { programs: string }): Promise<Reader> {
  const env = {
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    TEMPORAL_CLI: path.join(loadConfig().cacheDir, 'bin/temporal'),
    EVERTURN_TASK_QUEUE: newId('req'),
  };
  return Reader.start(env, machine);
}

async function checkPage(page: string, reader: Reader): Promise<void> {
  const blocks = blocksOf(page);
  let shown = '';
  for (const [index, block] of blocks.entries()) {
    try {
      shown += (await check(block, { reader, before: blocks[index - 1] })) ?? '';
    } catch (error) {
      throw new Error(`${block.place}: ${String(error)}`, { cause: error });
    }
  }
  expect(shown).toMatch(SHOWN[page] ?? '');
}

function startsServer({ language, text }: Block): boolean {
  return language === 'sh' && /\bnpm start\b/.test(withoutComments(text));
}

/** Whether other pages could not use the server after this block. */
function changesServer(block: Block): boolean {
  return startsServer(block) || block.text.includes('everturn keys create');
}

/** The commands of a block. */
function withoutComments(text: string): string {
  return text.replaceAll(/(?:^|\s)#.*$/gm, '');
}

/** Executes a block, or checks what it shows. A block that no rule is for fails. @returns the output of commands */
async function check(block: Block, page: { reader: Reader; before: Block | undefined }): Promise<string | undefined> {
  const { language, text } = block;
  const { reader } = page;
  if (ELSEWHERE.some(({ block: start }) => text.startsWith(start))) return undefined;
  if (language === 'sh') return checkCommands(block, page);
  if (language === 'json') {
    const value = JSON.parse(text) as Record<string, unknown>;
    const kinds = JSON_KINDS.filter(({ fits }) => fits(value));
    expect(kinds.length, `of these kinds: ${kinds.map(({ name }) => name).join()}`).toBe(1);
    await kinds[0]?.check(value, (reader.isServing ? reader : plain).api);
    return undefined;
  }
  if (language === 'sql') {
    using catalog = new DatabaseSync(path.join(reader.folder, '.everturn/catalog.db'), { readOnly: true });
    for (const statement of text.trim().split(/;\n?/).filter(Boolean)) catalog.prepare(statement).get();
    return undefined;
  }
  if (language === 'yaml') {
    if (text.startsWith('# docker-compose.override.yml')) {
      await reader.save('docker-compose.override.yml', text);
      await reader.save('.env', 'POSTGRES_PASSWORD=pass\n');
      expect(Object.keys(await readCompose(reader.folder))).toContain('api');
      return undefined;
    }
    const given = parse(text) as Record<string, [{ value: unknown }]>;
    const values = Object.entries(given).map(([name, [{ value }]]) => [name, value] as const);
    expect(DYNAMIC_CONFIG).toMatchObject(Object.fromEntries(values));
    return undefined;
  }
  if (language === 'markdown') {
    parseSkill(text, 'release-notes');
    return undefined;
  }
  if (language === 'python') {
    await reader.save('block.py', text);
    await reader.run('python3 -m py_compile block.py');
    return undefined;
  }
  expect(language).toBe('');
  const [, event] = /^id: \d+\ndata: (.*)\n\n?$/.exec(text) ?? [];
  if (event !== undefined) {
    frameOf(event);
  } else if (/^\w+\/\n/.test(text)) {
    for (const file of filesOf(text)) expect(existsSync(path.join(ROOT, 'examples', file)), file).toBe(true);
  } else {
    // A drawing.
    expect(text).toMatch(/[─│▼▶]/);
  }
  return undefined;
}

/** The paths of a tree of folders, whose entries are indented. */
function filesOf(tree: string): string[] {
  const folders: string[] = [];
  return tree
    .trimEnd()
    .split('\n')
    .map((line) => {
      const name = line.trim();
      folders.length = (line.length - name.length) / 2;
      folders.push(name);
      return folders.join('');
    });
}

async function checkCommands(
  block: Block,
  { reader, before }: { reader: Reader; before: Block | undefined },
): Promise<string | undefined> {
  const commands = withoutComments(block.text);
  const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  for (const [, named, short, args = ''] of commands.matchAll(/\bnpm (?:run ([\w:]+)|(start|test)\b)(.*)/g)) {
    const script = named ?? short ?? '';
    expect(scripts).toHaveProperty([script]);
    const [, file] = /^node (\S+)/.exec(scripts[script] ?? '') ?? [];
    for (const [, option] of args.matchAll(/--(\w+)/g)) {
      expect(readFileSync(path.join(ROOT, file ?? ''), 'utf8')).toMatch(new RegExp(`'--${option}\\b|\\b${option}: {`));
    }
  }
  if (startsServer(block)) {
    // A server with keys does not start without a model: that of its users is a script here, too.
    await reader.serve(
      block.text,
      /EVERTURN_API_KEYS=|keys create/.test(commands) ? { OPENAI_BASE_URL: model.url } : {},
    );
    return undefined;
  }
  // Benchmarks and faults take minutes.
  if (/^(?:npm run .*\s*)+$/.test(commands.trim())) return undefined;
  const [, file] = /@([\w-]+\.json)/.exec(commands) ?? [];
  if (file !== undefined) {
    expect(before?.language, `the block before it is ${file}`).toBe('json');
    await reader.save(file, before?.text ?? '');
  }
  const [, requirement] = /pip install (\S+)/.exec(commands) ?? [];
  const env: Record<string, string> =
    requirement === undefined ? {} : { PATH: `${path.dirname(await pythonWith(requirement))}:$PATH` };
  const output = await reader.run(block.text, env);
  expect(output).not.toMatch(/"status":"error"|\[turn\] error/);
  return output;
}
