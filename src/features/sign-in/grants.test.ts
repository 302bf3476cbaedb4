import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { ProtectedMcpServer, TestBrowser } from '../../../test/support/authorization-server.ts';
import { toolScope } from '../../../test/support/tool-scope.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { Catalog } from '../catalog.ts';
import type { Database } from '../../catalog/database.ts';
import { NO_ENCRYPTION, Cipher } from '../../encryption/cipher.ts';
import { McpPool } from '../../mcp/pool.ts';
import { McpRegistry, type HttpEndpoint, type McpEndpoint } from '../../mcp/registry.ts';
import type { RegisteredServer } from '../../mcp/registry-file.ts';
import { SignInError, SignIns } from './sign-ins.ts';

const log = pino({ level: 'silent' });
const unaborted = new AbortController().signal;
const calling = { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000 };
const SCOPE = toolScope('ses_1', 'ann');
/** Nothing listens there: the tests read the address to which the browser is sent. */
const CALLBACK = 'http://127.0.0.1:1/callback';

type Options = Parameters<typeof ProtectedMcpServer.start>[0];

async function start(
  options: Options = {},
  auth: (issuer: string) => Extract<RegisteredServer, { url: string }>['auth'] = () => undefined,
) {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-grants-'));
  const database: Database = { kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' };
  const notes = await ProtectedMcpServer.start(options);
  const registry = new McpRegistry();
  const config = auth(notes.issuer);
  registry.add('notes', { url: notes.mcp.url, ...(config && { auth: config }) });
  const endpoint = httpEndpoint(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'notes' }));
  let now = Date.now();
  onTestFinished(async () => {
    await notes.stop();
    await rm(folder, { recursive: true, force: true });
  });
  /** One process of several that share the catalog. */
  const openProcess = async (cipher = NO_ENCRYPTION, logError?: Error) => {
    const catalog = await Catalog.open(database, log, cipher);
    const urls = { authorize: (state: string) => state, redirectUri: CALLBACK, clientMetadata: 'http://127.0.0.1:1/' };
    const signIns = new SignIns({
      catalog,
      logs: { currentRun: (turnId) => Promise.reject(logError ?? new TurnNotFound(turnId)) },
      registry,
      urls,
      allowPrivateUrls: () => false,
      log,
      now: () => now,
    });
    const pool = new McpPool({ allowPrivateUrls: () => false, grants: signIns.grants });
    onTestFinished(async () => {
      await pool.close();
      await signIns.close();
      await catalog.close();
    });
    const call = () => pool.call(endpoint, SCOPE, 'list', {}, calling);
    return { catalog, signIns, pool, call };
  };
  const signIn = async ({ signIns }: Pick<Awaited<ReturnType<typeof openProcess>>, 'signIns'>) => {
    const { authUrl: state } = await signIns.request({ endpoint, challenge: {} }, SCOPE, 'turn_1');
    const isCallback = ({ href }: URL): boolean => href.startsWith(CALLBACK);
    const { url } = await new TestBrowser().open(await signIns.begin(state, 'ann', 'browser'), isCallback);
    const [given, code, iss] = ['state', 'code', 'iss'].map((name) => url.searchParams.get(name) ?? '');
    return signIns.finish({ state: given ?? '', code, iss }, 'ann', 'browser');
  };
  return { notes, endpoint, openProcess, signIn, folder, sleep: (ms: number) => (now += ms) };
}

function httpEndpoint(endpoint: McpEndpoint | undefined): HttpEndpoint {
  if (!endpoint || 'command' in endpoint) throw new Error('not an HTTP server');
  return endpoint;
}

test('an expired token is refreshed once for many calls in several processes', async () => {
  const { notes, openProcess, signIn, sleep } = await start();
  const processes = [await openProcess(), await openProcess(), await openProcess()];
  await signIn(processes[0]!);
  for (const one of processes) expect(await one.call()).toMatchObject({ status: 'result' });
  const old = notes.token;
  sleep(3600_000);
  const calls = Array.from({ length: 60 }, (_, i) => processes[i % processes.length]!.call());
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  expect(new Set(statuses)).toEqual(new Set(['result']));
  expect(notes.tokenRequests).toEqual(['authorization_code', 'refresh_token']);
  expect(new Set(notes.used.slice(notes.used.lastIndexOf(old) + 1)).size).toBe(1);
});

test('a rejected token is refreshed once for many calls', async () => {
  const { notes, openProcess, signIn } = await start();
  const one = await openProcess();
  await signIn(one);
  await one.call();
  await (await notes.provider.AccessToken.find(notes.token))?.destroy();
  const outcomes = await Promise.all(Array.from({ length: 20 }, () => one.call()));
  expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['result']));
  expect(notes.tokenRequests).toEqual(['authorization_code', 'refresh_token']);
});

test('a process that died during a refresh delays the others, but not for ever', async () => {
  const { openProcess, signIn, sleep } = await start();
  const one = await openProcess();
  await signIn(one);
  sleep(3600_000);
  const [grant] = await one.signIns.connections('ann', '', 1);
  const until = { now: new Date().toISOString(), until: new Date(Date.now() + 3600_000 + 5_000).toISOString() };
  expect(await one.catalog.mcpGrants.reserveRefresh(grant!, until)).toBe(true);
  const calling = one.call();
  sleep(10_000);
  expect(await calling).toMatchObject({ status: 'result' });
});

test('a grant that was ended in another process is not used any more', async () => {
  const { notes, openProcess, signIn } = await start();
  const [worker, api] = [await openProcess(), await openProcess()];
  await signIn(api);
  expect(await worker.call()).toMatchObject({ status: 'result' });
  const [grant] = await api.signIns.connections('ann', '', 1);
  expect(await api.signIns.revoke('bob', grant!.id)).toBe(false);
  expect(await api.signIns.revoke('ann', grant!.id)).toBe(true);
  const used = notes.used.length;
  expect(await worker.call()).toMatchObject({ status: 'sign_in_required', signIn: { challenge: { scope: 'notes' } } });
  expect(notes.used.length).toBe(used);
});

test('connections and lists of tools of a server with sessions belong to one subject', async () => {
  const { notes, endpoint, openProcess, signIn } = await start({ mcp: { protocol: '2025-11-25' } });
  const one = await openProcess();
  await signIn(one);
  const shared = { ...endpoint, isolation: 'shared' as const };
  expect(await one.pool.tools(shared, SCOPE, unaborted)).toMatchObject({ tools: [{ name: 'list' }, { name: 'add' }] });
  await expect(one.pool.tools(shared, toolScope('ses_1', 'bob'), unaborted)).rejects.toMatchObject({
    reason: 'requires the user to sign in',
  });
  const [grant] = await one.signIns.connections('ann', '', 1);
  one.pool.endGrant(grant!.id);
  await expect.poll(() => notes.mcp.received).toContain('DELETE');
});

test('the client of the operator is used where clients cannot register', async () => {
  const redirect_uris = [CALLBACK];
  const client = { client_id: 'everturn', client_secret: 's3cret/+:', redirect_uris };
  const grant_types = ['authorization_code', 'refresh_token'];
  const clients = [{ ...client, grant_types, response_types: ['code' as const], application_type: 'native' as const }];
  const { notes, openProcess, signIn, sleep } = await start({ clients, registers: false }, (issuer) => ({
    type: 'authorization_code',
    issuer,
    client_id: client.client_id,
    client_secret: client.client_secret,
  }));
  const one = await openProcess();
  expect(await signIn(one)).toMatchObject({ status: 'granted', server: 'notes' });
  sleep(3600_000);
  expect(await one.call()).toMatchObject({ status: 'result' });
  expect(notes.tokenRequests).toEqual(['authorization_code', 'refresh_token']);
});

test('without registration and without a client, the user reads what the operator has to do', async () => {
  const { openProcess, signIn } = await start({ registers: false });
  const error: unknown = await signIn(await openProcess()).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(SignInError);
  expect(String(error)).toContain('set auth of the server in EVERTURN_MCP_SERVERS');
});

test('tokens, verifiers and states are encrypted in the catalog', async () => {
  const { notes, openProcess, signIn } = await start();
  const cipher = new Cipher([{ id: 'k1', key: Buffer.alloc(32, 7) }]);
  const one = await openProcess(cipher);
  await signIn(one);
  expect(await one.call()).toMatchObject({ status: 'result' });
  const [grant] = await one.signIns.connections('ann', '', 1);
  expect(grant?.tokens.accessToken).toBe(notes.token);
  const plain = await openProcess();
  await expect(plain.signIns.connections('ann', '', 1)).rejects.toThrow('EVERTURN_ENCRYPTION_KEYS');
});

test('while Temporal is unavailable a link is used until it expires; then it is not known whether its turn waits', async () => {
  const { endpoint, openProcess, sleep } = await start();
  const unavailable = Object.assign(new Error('no connection'), { code: 14, details: '', metadata: {} });
  const { catalog, signIns } = await openProcess(NO_ENCRYPTION, unavailable);
  const { authUrl: state } = await signIns.request({ endpoint, challenge: {} }, SCOPE, 'turn_1');
  const find = catalog.mcpSignIns.find.bind(catalog.mcpSignIns);
  // As of a turn that the catalog has not followed to its pause.
  vi.spyOn(catalog.mcpSignIns, 'find').mockImplementation(async (id) => {
    const row = await find(id);
    return row && { ...row, turnState: 'running' };
  });
  expect(await signIns.begin(state, 'ann', 'browser')).toContain('state=');
  sleep(11 * 60_000);
  await expect(signIns.begin(state, 'ann', 'browser')).rejects.toBe(unavailable);
});
