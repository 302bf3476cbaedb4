import path from 'node:path';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { pino } from 'pino';
import { expect } from 'vitest';
import { loadConfig, type Config } from '../../../src/config.ts';
import { withTimeout } from '../../../src/lib/timeout.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { ProtectedMcpServer } from '../../support/authorization-server.ts';
import { killDescendants } from '../../support/descendants.ts';
import { keptPort } from '../../support/kept-port.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { TestRedis } from '../../support/redis.ts';
import { ScriptedModel, type ChatRequest } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';
import { createDatabase } from '../../support/sql.ts';
import { TcpProxy } from '../../support/tcp-proxy.ts';
import { WebhookReceiver } from '../../support/webhook-receiver.ts';
import { installRuntime } from '../../support/temporal-runtime.ts';
import type { SessionEvent } from '../../../src/api/sessions/wire/events.ts';
import { turnWorkflowId } from '../../../src/core/temporal-names.ts';
import { RECORD_INTO, recordHistories } from '../../support/histories.ts';
import { Bystander } from './bystander.ts';
import { continuingAsNew } from './continuing-as-new.ts';
import { checkInvariants, END_MS } from './check.ts';
import { report } from './figures.ts';
import { EffectLedger } from './ledger.ts';
import { ALL_NOISY, Noise, NOISY_SERVER } from './noise.ts';
import { approval, messageFor, placeOf, PlannedModel, type Plan } from './plan.ts';
import { Recorder, type RecordedTurn } from './recorder.ts';
import { API_KEYS, NOISY, SUBJECTS, type Subject } from './subjects.ts';
import { TestTemporal } from './temporal.ts';
import { NO_LIMITS, SOON_IDLE, type Steps, type WorldOptions } from './world-options.ts';

export const AGENT = 'agent';

/** The agents of the subjects that do not take part in the scenario. */
const BYSTANDER_AGENT = 'bystander';
const NOISY_AGENT = 'noisy';

/**
 * Everturn as separate processes that can be killed, paused and restarted, with all that it depends on, and a model, tools
 * and clients that no fault affects. `check` checks the result against the invariants.
 */
export class World {
  readonly folder: string;
  readonly temporal: TestTemporal;
  /** The connection between the workers and Temporal. */
  readonly workersLine: TcpProxy;
  readonly redis: TestRedis;
  readonly model: ScriptedModel;
  readonly planned = new PlannedModel();
  readonly mcp: TestMcpServer;
  /** All MCP servers, by name. */
  readonly servers: ReadonlyMap<string, TestMcpServer>;
  /** Keeps state for each of its sessions; only bystanders use it. */
  readonly desk: TestMcpServer;
  /** Only the noisy subject uses it. */
  readonly crowd: TestMcpServer;
  readonly vault: ProtectedMcpServer | undefined;
  /** One of each subject. */
  readonly bystanders: Bystander[] = [];
  #noise: Noise | undefined;
  readonly ledger: EffectLedger;
  readonly recorder: Recorder;
  /** Undefined unless the world is notified. */
  webhook: { id: string; secret: string; receiver: WebhookReceiver } | undefined;
  readonly apis: ServerProcess[] = [];
  readonly workers: ServerProcess[] = [];
  readonly kernelHosts: ServerProcess[] = [];
  readonly plans = new Map<string, Plan>();
  readonly #env: Record<string, string>;
  readonly #spec: object;
  /** The first one encrypts. Empty if histories are recorded: later releases have to read them. */
  #keys: string[] = process.env[RECORD_INTO] === undefined ? [newKey('k1')] : [];
  /** All processes have it, and none encrypts under it yet. */
  #nextKey: string | undefined;
  #faults = 0;
  #sessions = 0;
  /** How long readers waited for the next word after a fault, in milliseconds. */
  readonly #resumed: number[] = [];

  private constructor(
    parts: Pick<
      World,
      | 'folder'
      | 'temporal'
      | 'workersLine'
      | 'redis'
      | 'model'
      | 'mcp'
      | 'servers'
      | 'desk'
      | 'crowd'
      | 'vault'
      | 'ledger'
    >,
    { env = {}, spec = {} }: WorldOptions,
  ) {
    this.folder = parts.folder;
    this.temporal = parts.temporal;
    this.workersLine = parts.workersLine;
    this.redis = parts.redis;
    this.model = parts.model;
    this.mcp = parts.mcp;
    this.servers = parts.servers;
    this.desk = parts.desk;
    this.crowd = parts.crowd;
    this.vault = parts.vault;
    this.ledger = parts.ledger;
    this.#spec = spec;
    this.#env = {
      EVERTURN_DATA: parts.folder,
      EVERTURN_MCP_SERVERS: path.join(parts.folder, 'mcp.json'),
      EVERTURN_TOOL_HEARTBEAT_SECONDS: '3',
      EVERTURN_SHUTDOWN_SECONDS: '1',
      DATABASE_URL: `sqlite:${path.join(parts.folder, 'catalog.db')}`,
      REDIS_URL: parts.redis.url,
      TEMPORAL_ADDRESS: parts.temporal.address,
      TEMPORAL_NAMESPACE: parts.temporal.namespace,
      OPENAI_API_KEY: 'x',
      OPENAI_BASE_URL: parts.model.url,
      EVERTURN_ENCRYPTION_KEYS: this.#keys.join(),
      EVERTURN_API_KEYS: API_KEYS,
      EVERTURN_ALLOW_PRIVATE_URLS: 'true',
      ...NO_LIMITS,
      ...SOON_IDLE,
      ...env,
    };
    this.model.otherwise = (call) => this.planned.answer(call);
    this.recorder = new Recorder(
      // As a load balancer selects them.
      () => this.apis.filter(({ isReady }) => isReady).map(({ api }) => api.url),
      path.join(parts.folder, 'frames.jsonl'),
    );
  }

  static async start(options: WorldOptions = {}): Promise<World> {
    // It would log each history that is replayed.
    await installRuntime(pino({ level: 'silent' }));
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-faults-'));
    const ledger = new EffectLedger(path.join(folder, 'effects.jsonl'));
    const { apis = 1, workers = 1, servers: names = [], kernels, postgres, hasTemporalOnPostgres } = options;
    const [temporal, redis, model, vault, desk, crowd, mcp, ...more] = await Promise.all([
      postgres && hasTemporalOnPostgres
        ? TestTemporal.startOnPostgres(folder, postgres.url)
        : TestTemporal.start(folder, continuingAsNew(options.dynamicConfig)),
      TestRedis.start(),
      ScriptedModel.start(),
      options.hasVault ? ProtectedMcpServer.start({ mcp: { tools: ledger.tools('vault') } }) : undefined,
      TestMcpServer.start({ tools: ledger.deskTools('desk'), protocol: '2025-11-25' }),
      TestMcpServer.start({ tools: ledger.tools(NOISY_SERVER) }),
      ...['test', ...names].map((name) => TestMcpServer.start({ tools: ledger.tools(name) })),
    ]);
    if (!mcp) throw new Error('there is one at least');
    const servers = new Map([mcp, ...more].map((server, i) => [names[i - 1] ?? 'test', server]));
    const others = [['desk', desk] as const, [NOISY_SERVER, crowd] as const];
    const all = [...servers, ...others, ...(vault ? [['vault', vault.mcp] as const] : [])];
    const registry = Object.fromEntries(all.map(([name, { url }]) => [name, { url }]));
    await writeFile(path.join(folder, 'mcp.json'), JSON.stringify({ servers: registry }));
    const workersLine = await TcpProxy.start(temporal.address);
    const ports = await Promise.all(Array.from({ length: apis }, keptPort));
    const env = {
      ...(postgres && { DATABASE_URL: await createDatabase(postgres.url) }),
      EVERTURN_PUBLIC_URL: `http://127.0.0.1:${ports[0]}`,
      ...(kernels && { EVERTURN_KERNELS: '10', EVERTURN_KERNEL_PYTHON: kernels.python }),
      ...options.env,
    };
    const parts = { folder, temporal, workersLine, redis, model, mcp, servers, desk, crowd, vault, ledger };
    const world = new World(parts, { ...options, env });
    for (const port of ports) {
      world.apis.push(await ServerProcess.prepare(folder, { ...world.#env, EVERTURN_PORT: String(port) }, 'api'));
    }
    for (let i = 0; i < workers; i++) world.workers.push(await world.#worker());
    for (let i = 0; i < (kernels?.hosts ?? 0); i++) {
      world.kernelHosts.push(await ServerProcess.prepare(folder, world.#env, 'kernel-host'));
    }
    await world.up();
    await world.#putAgents();
    if (options.isNotified) await world.#notify();
    world.bystanders.push(...(await Promise.all(SUBJECTS.map((subject) => world.#bystander(subject)))));
    if (process.env[ALL_NOISY] !== undefined) world.#noise = await world.#startNoise();
    return world;
  }

  /** The configuration of Everturn's processes. */
  get config(): Config {
    return loadConfig(this.#env);
  }

  /** One more subject, who disturbs. */
  get noise(): Noise | undefined {
    return this.#noise;
  }

  get isEncrypted(): boolean {
    return this.#keys.length > 0;
  }

  get processes(): ServerProcess[] {
    return [...this.apis, ...this.workers, ...this.kernelHosts];
  }

  /** Starts those of its processes that do not run. */
  async up(): Promise<void> {
    await Promise.all(this.processes.filter(({ isRunning }) => !isRunning).map((one) => one.start()));
  }

  /** Adds a worker. */
  async addWorker(): Promise<ServerProcess> {
    const worker = await this.#worker();
    this.workers.push(worker);
    await worker.start();
    return worker;
  }

  #worker(): Promise<ServerProcess> {
    return ServerProcess.prepare(this.folder, { ...this.#env, TEMPORAL_ADDRESS: this.workersLine.address }, 'worker');
  }

  /** `kill -9` of everything except the model, the tools and the clients. Returns the moment. */
  async crash(): Promise<number> {
    const { processes, temporal, redis } = this;
    return this.fault(() => Promise.all([...processes.map((one) => one.kill()), temporal.down(), redis.down()]));
  }

  /** Restarts everything that a crash has ended. */
  async recover(): Promise<void> {
    await Promise.all([this.temporal.up(), this.redis.up()]);
    await this.up();
  }

  /**
   * The next of the two steps in which an operator changes the key of a running Everturn: all processes learn the new one,
   * and then they encrypt under it. One half of them is killed for each step, then the other.
   */
  async changeKey(): Promise<void> {
    if (!this.isEncrypted) return;
    if (this.#nextKey === undefined) {
      this.#nextKey = newKey(`k${this.#keys.length + 1}`);
      this.#keys.push(this.#nextKey);
    } else {
      this.#keys.unshift(...this.#keys.splice(-1));
      this.#nextKey = undefined;
    }
    const env = { EVERTURN_ENCRYPTION_KEYS: this.#keys.join() };
    Object.assign(this.#env, env);
    for (const half of [0, 1]) {
      const its = [this.apis, this.workers].flatMap((all) => all.filter((_, i) => i % 2 === half));
      await Promise.all(its.map((one) => one.kill()));
      await Promise.all(its.map((one) => one.start(env)));
    }
  }

  /** `kill -9` of the kernels, and the commands, of a host. */
  async killKernels(host: ServerProcess): Promise<void> {
    if (host.pid !== undefined && host.isRunning) await killDescendants(host.pid);
  }

  async #putAgents(): Promise<void> {
    const servers = [...this.servers.keys()].map((name) => ({
      type: 'truefoundry-mcp-registry',
      name,
      require_approval_for_tools: ['refund'],
    }));
    const desk = { type: 'truefoundry-mcp-registry', name: 'desk', require_approval_for_tools: ['shred'] };
    const door = { name: 'door', description: 'opens the door', input_schema: { type: 'object' } };
    const model = { name: 'planned' };
    await this.putAgent(AGENT, { model, mcp_servers: servers, client_tools: [door], ...this.#spec });
    await this.putAgent(BYSTANDER_AGENT, { model, mcp_servers: [desk] });
    const crowd = { type: 'truefoundry-mcp-registry', name: NOISY_SERVER, require_approval_for_tools: [] };
    await this.putAgent(NOISY_AGENT, { model, mcp_servers: [crowd] });
  }

  async #notify(): Promise<void> {
    const receiver = await WebhookReceiver.start();
    const body = { url: receiver.url, events: ['turn.done', 'action.created', 'action.decided'] };
    const answer = await this.recorder.persist((api) => api.send('POST', '/v1/webhooks', body));
    this.webhook = { ...answer.body.data, receiver };
  }

  async putAgent(name: string, spec: object): Promise<void> {
    const { status, body } = await this.recorder.persist((api) => api.send('PUT', `/v1/agents/${name}`, spec));
    if (status !== 200) throw new Error(JSON.stringify(body));
  }

  /** By default of one of the subjects, alternately. */
  async session({ agent = AGENT, subject = this.#nextSubject() } = {}): Promise<string> {
    const headers = { 'idempotency-key': newId('req') };
    const { body } = await this.recorder.persist(
      (api) => api.send<{ data: { id: string } }>('POST', '/v1/agents/sessions', { agent_name: agent }, headers),
      { as: subject },
    );
    this.recorder.owners.set(body.data.id, subject);
    this.recorder.followSession(body.data.id);
    return body.data.id;
  }

  #nextSubject(): Subject {
    const [one, other] = SUBJECTS;
    return this.#sessions++ % 2 === 0 ? one : other;
  }

  #bystander(subject: Subject): Promise<Bystander> {
    const { recorder, planned } = this;
    const session = (): Promise<string> => this.session({ agent: BYSTANDER_AGENT, subject });
    return Bystander.start({ recorder, planned, session, plan: (...steps) => this.plan(...steps) }, subject);
  }

  #startNoise(): Promise<Noise> {
    const { recorder, planned } = this;
    const session = (): Promise<string> => this.session({ agent: NOISY_AGENT, subject: NOISY });
    return Noise.start({ recorder, planned, session, plan: (...steps) => this.plan(...steps) });
  }

  /** Creates a plan from steps. Its calls have ids by which they can be found. */
  plan(...steps: Steps): Plan {
    // Unique: it is searched where it must not be.
    const id = `p${this.plans.size}_${randomBytes(4).toString('hex')}`;
    const plan = {
      id,
      steps: steps.map(({ tools, ...step }, s) => ({
        ...step,
        ...(tools && { tools: tools.map(({ name, args = {} }, i) => ({ name, args, id: `${id}_${s}_${i}` })) }),
      })),
    };
    this.plans.set(id, plan);
    return plan;
  }

  /** Starts a turn that executes a plan, and follows it. */
  async turn(sessionId: string, plan: Plan): Promise<RecordedTurn> {
    return this.recorder.turn(sessionId, [{ type: 'user.message', content: messageFor(plan) }]);
  }

  /** Answers calls that wait for a human, and follows the turn that continues. */
  async decide(sessionId: string, status: 'allow' | 'deny', ...toolCallIds: string[]): Promise<RecordedTurn> {
    return this.recorder.turn(
      sessionId,
      toolCallIds.map((id) => approval(status, id)),
    );
  }

  /** The model requests of a plan. */
  requestsFor(plan: Plan): ChatRequest[] {
    return this.model.requests.filter((request) => placeOf(request)?.plan.id === plan.id);
  }

  /** The outcome of each call of a session's turns, by its id. */
  async outcomes(sessionId: string): Promise<Record<string, string>> {
    const events = await this.recorder.api.list<{ event: SessionEvent }>(`/v1/agents/sessions/${sessionId}/events`);
    return Object.fromEntries(
      events.flatMap(({ event }) => (event.type === 'tool.response' ? [[event.tool_call_id, event.outcome]] : [])),
    );
  }

  /** The failure type of a turn's activities that had failed attempts, the last one of each. */
  async failedAttempts({ turnId }: RecordedTurn): Promise<string[]> {
    const events = await (await this.temporal.operator()).events(turnWorkflowId(turnId));
    return events.flatMap(({ activityTaskStartedEventAttributes: started }) =>
      started?.lastFailure ? [started.lastFailure.applicationFailureInfo?.type ?? 'time-out'] : [],
    );
  }

  /** Inflicts a fault. Returns the moment, on the clock of the recorded frames. */
  async fault(inflict: () => unknown): Promise<number> {
    this.#faults += 1;
    const moment = performance.now();
    await inflict();
    this.#disturb();
    return moment;
  }

  #disturb(): void {
    this.#noise?.onFault();
    for (const [i, bystander] of this.bystanders.entries()) {
      for (const other of this.bystanders.toSpliced(i, 1)) bystander.onFault(other);
    }
  }

  /** Waits for the end of a turn; returns how long its reader waited for the next word after a fault, in milliseconds. */
  async resumed(turn: RecordedTurn, moment: number): Promise<number> {
    await turn.done;
    const waited = turn.resumedAfter(moment);
    if (waited === undefined) throw new Error('no frame followed the fault: it came too late');
    this.#resumed.push(waited);
    return waited;
  }

  /** Waits until all turns have ended, and checks what was received and what is stored against the invariants. */
  async check(): Promise<void> {
    this.#disturb();
    await withTimeout(
      END_MS,
      Promise.all([...this.bystanders, ...(this.noise ? [this.noise] : [])].map((one) => one.end())),
      'the turns of bystanders do not end',
    );
    const turns = await checkInvariants(this);
    const { client } = await this.temporal.operator();
    await recordHistories(client, path.basename(expect.getState().testPath ?? '', '.test.ts'));
    const effects = this.ledger.effects.filter(({ tookEffect }) => tookEffect).length;
    await report({ faults: this.#faults + this.planned.faults, turns, effects, resumed: this.#resumed });
  }

  /** For a world that several tests have shared. */
  async checkAndStop(): Promise<void> {
    try {
      await this.check();
    } finally {
      await this.stop();
    }
  }

  async stop(): Promise<void> {
    for (const reader of [...this.recorder.sessions, ...this.recorder.events]) reader.close();
    await Promise.all(this.processes.map((one) => one.kill()));
    const { temporal, workersLine, redis, model, servers, desk, crowd, vault } = this;
    await Promise.all([temporal.stop(), workersLine.stop(), redis.down(), model.stop(), this.webhook?.receiver.stop()]);
    const all = [desk, crowd, ...(vault ? [vault] : []), ...servers.values()];
    await Promise.all(all.map((server) => server.stop()));
    await rm(this.folder, { recursive: true, force: true });
  }
}

function newKey(id: string): string {
  return `${id}:${randomBytes(32).toString('base64')}`;
}
