/**
 * Records the data folder of another version, for `old-data-folder.test.ts`: with ended turns, some of which ask for
 * something, and open ones. The server of that version runs with the demo's model and tools, and with today's Temporal.
 *
 *   git worktree add ../old 937bacbd && (cd ../old && npm ci)
 *   npx node test/data-folders/record.ts ../old test/data-folders/937bacbd.tar.gz
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { INHERITED_ENV } from '../support/inherited-env.ts';
import type { RecordedFolder } from '../support/recorded-folder.ts';

const SESSIONS = '/v1/agents/sessions';

async function record(checkout: string, archive: string): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-record-'));
  const dataDir = path.join(folder, 'data');
  const server = spawn(process.execPath, [path.join(checkout, 'src/main.ts'), 'start'], {
    env: { ...INHERITED_ENV, EVERTURN_DATA: dataDir, EVERTURN_PORT: '0', EVERTURN_SHUTDOWN_SECONDS: '1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(server, 'exit');
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let output = '';
      server.stdout.setEncoding('utf8').on('data', (text: string) => {
        const [, found] = /listens on (\S+)/.exec((output += text)) ?? [];
        if (found) resolve(found);
      });
      server.once('exit', (code) => reject(new Error(`the server exited with ${code}`)));
    });
    await writeFile(path.join(folder, 'recorded.json'), JSON.stringify(await makeTurns(url)));
  } finally {
    server.kill('SIGTERM');
    await exited;
  }
  for (const name of ['catalog.db', 'temporal/temporal.db']) {
    // Temporal's schema has strings in double quotes.
    const database = new DatabaseSync(path.join(dataDir, name), { enableDoubleQuotedStringLiterals: true });
    database.exec('pragma journal_mode = delete; vacuum');
    database.close();
  }
  await rm(path.join(dataDir, 'temporal', 'server.log'));
  const options = { env: { ...process.env, GZIP: '-9' } };
  await promisify(execFile)('tar', ['-czf', archive, '-C', folder, 'data', 'recorded.json'], options);
  await rm(folder, { recursive: true });
}

async function makeTurns(url: string): Promise<RecordedFolder> {
  const send = async (method: string, at: string, body?: object): Promise<Response> => {
    const response = await fetch(url + at, {
      method,
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${await response.text()}`);
    return response;
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- of the version that is recorded
  const json = async <T>(response: Response): Promise<T> => (await response.json()) as T;
  const create = async (agent: string): Promise<string> => {
    const created = await send('POST', SESSIONS, { agent_name: agent });
    return (await json<{ data: { id: string } }>(created)).data.id;
  };
  const turns: RecordedFolder['turns'] = {};
  /** Starts a turn, and reads its stream until it has this text. */
  const turn = async (name: string, sessionId: string, content: string, until: string, more: object = {}) => {
    const body = { input: [{ type: 'user.message', content }], ...more };
    const { body: stream } = await send('POST', `${SESSIONS}/${sessionId}/turns`, body);
    let text = '';
    for await (const chunk of stream?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      if (text.includes(until)) break;
    }
    const [, turnId = ''] = /"turn_id":"(turn_\w+)"/.exec(text) ?? [];
    turns[name] = { sessionId, turnId };
  };
  const demo = await json<{ data: { spec: object } }>(await send('GET', '/v1/agents/demo'));
  await send('PUT', '/v1/agents/waits', { ...demo.data.spec, config: { pause: 'wait' } });

  const DONE = '"type":"turn.done"';
  const talk = await create('demo');
  await turn('greeted', talk, 'hello', DONE);
  await turn('used tools', talk, 'show my notes', DONE);
  await turn('asks for approval', await create('demo'), 'note: buy milk', DONE);
  await turn('asks in a sub-agent', await create('demo'), 'delegate: note: buy eggs; say hello', DONE);
  await turn('asks in a form', await create('demo'), 'forget some notes', DONE);
  const ended = Object.values(turns);
  await turn('waits', await create('waits'), 'note: buy bread', '"type":"turn.paused"');
  const busy = await create('demo');
  await turn('runs', busy, 'count slowly to 60', '"type":"model.message"');
  await turn('is queued', busy, 'hello', '"type":"turn.created"', { on_running: 'queue' });
  // Temporal forgets ended turns after a day: the worker is given the time to archive them.
  await sleep(3_000);

  const reads: RecordedFolder['reads'] = {};
  const turnsAt = ended.map(({ sessionId, turnId }) => `${SESSIONS}/${sessionId}/turns/${turnId}`);
  for (const at of ['/v1/agents/actions?agent_name=demo', ...turnsAt, ...turnsAt.map((at) => `${at}/events`)]) {
    reads[at] = await json(await send('GET', at));
  }
  return { turns, reads };
}

const [, , checkout, archive] = process.argv;
if (!checkout || !archive) throw new Error('usage: record.ts <checkout> <archive>');
await record(checkout, archive);
