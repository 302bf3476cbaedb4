import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { McpUnavailableError, type McpPool, type McpPoolOptions } from '../mcp/pool.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import { NO_PUBLIC_URL } from '../mcp/sign-in-required.ts';
import type { ModelProviders } from '../models/providers.ts';
import type { Embeddings } from '../models/embeddings.ts';
import { tryEmbeddings, tryModel } from '../models/try-model.ts';
import { addressOf } from '../models/wrong-address.ts';
import { checkingPool, checkScope } from '../tools/check-servers.ts';
import { modelNames, type AgentSpec, type McpServer } from '../spec/agent-spec.ts';
import { codeActionsOf } from '../spec/code-actions.ts';

/** The result of trying a model or an MCP server of an agent. */
export interface TriedPart {
  type: 'model' | 'mcp_server';
  /** As the agent names it, or the setting of a model that the server has for it. */
  name: string;
  /** Host and port: the rest of a URL may have secrets. Null for a program, and for a provider at its own address. */
  address: string | null;
  /** A server that waits for the sign-in of a user works. */
  status: 'ok' | 'sign_in_required' | 'failed';
  /** One text without secrets; null if the status is `ok`. */
  reason: string | null;
  /** Until it has responded, or failed. */
  seconds: number;
}

interface TryOptions {
  models: Pick<ModelProviders, 'resolve' | 'prefixProblem'>;
  /** Undefined if the server has no model for embeddings. */
  embeddings: Pick<Embeddings, 'name' | 'address' | 'embed'> | undefined;
  registry: Pick<McpRegistry, 'resolve'>;
  pool: McpPoolOptions;
  /** Whose sign-ins are used. */
  subjectId: string;
  /** Whether users can sign in: the address at which they reach this server is known. */
  hasPublicUrl: boolean;
  signal: AbortSignal;
  /** How long a model or a server over HTTP is waited for. */
  maxMs?: number;
}

type TryTime = Pick<TryOptions, 'signal' | 'maxMs'>;

type Outcome = Pick<TriedPart, 'address' | 'status' | 'reason'>;

const MAX_MS = 15_000;

/** For how many agents of the process at once: each may have 50 servers and 9 models. */
const MAX_AGENTS = 4;
const agents = new KeyedSemaphore(MAX_AGENTS);

/** How many programs are started for this at once: more would slow each other down, and the turns that run. */
const MAX_STARTS = 4;
const starts = new KeyedSemaphore(MAX_STARTS);

/**
 * Tries each model and each MCP server of an agent, as turns of the subject use them: the same addresses, credentials,
 * sign-ins, limits of providers, and refusal of private addresses. A model gets a fixed question, and nothing of the
 * agent; a server lists its tools, over a connection that is closed at the end. The model for embeddings is one of the
 * models of an agent whose tools are searched by meaning.
 * @throws the reason of the signal
 */
export async function tryAgent(spec: AgentSpec, options: TryOptions): Promise<TriedPart[]> {
  const { signal } = options;
  return agents.run('', async () => {
    signal.throwIfAborted();
    const pool = checkingPool(options.pool);
    const models = [...new Set(modelNames(spec))].map((name) =>
      timed({ type: 'model', name }, () => triedModel(name, options)),
    );
    const ofSearch = codeActionsOf(spec)?.toolSearch === 'hybrid' ? triedEmbeddings(options) : [];
    const servers = (spec.mcp_servers ?? []).map((server) =>
      timed({ type: 'mcp_server', name: server.name }, () => triedServer(server, pool, options)),
    );
    try {
      const tried = await Promise.all([...models, ...ofSearch, ...servers]);
      signal.throwIfAborted();
      return tried;
    } finally {
      await pool.close();
    }
  });
}

async function timed(part: Pick<TriedPart, 'type' | 'name'>, work: () => Promise<Outcome>): Promise<TriedPart> {
  const begun = performance.now();
  const outcome = await work();
  return { ...part, ...outcome, seconds: Math.round(performance.now() - begun) / 1000 };
}

async function triedModel(name: string, { models, ...options }: TryOptions): Promise<Outcome> {
  const problem = models.prefixProblem(name);
  if (problem !== undefined) return failed(problem);
  const target = models.resolve(name);
  return answerOf({ address: addressOf(target), ask: (signal) => tryModel(target, signal) }, options);
}

/** None on a server without a model for embeddings, which rejects the agent. */
function triedEmbeddings({ embeddings, ...options }: TryOptions): Promise<TriedPart>[] {
  if (!embeddings) return [];
  const { name, address } = embeddings;
  const ask = (signal: AbortSignal) => tryEmbeddings(embeddings, signal);
  return [timed({ type: 'model', name }, () => answerOf({ address, ask }, options))];
}

interface AskedModel {
  address: string | undefined;
  /** Returns why the model cannot be used; undefined if it can. */
  ask: (signal: AbortSignal) => Promise<string | undefined>;
}

async function answerOf({ ask, ...model }: AskedModel, options: TryTime): Promise<Outcome> {
  const { signal, lateness } = inTime(options);
  const reason = await ask(signal);
  const address = model.address ?? null;
  return reason === undefined ? { address, status: 'ok', reason: null } : failed(lateness() ?? reason, address);
}

async function triedServer(server: McpServer, pool: McpPool, { registry, ...options }: TryOptions): Promise<Outcome> {
  const endpoint = registry.resolve(server);
  if (!endpoint) return failed('is not registered in EVERTURN_MCP_SERVERS');
  const scope = checkScope(server.name, options.subjectId);
  const isProgram = 'command' in endpoint;
  const address = isProgram ? null : (addressOf({ baseUrl: endpoint.url }) ?? null);
  const { signal, lateness } = isProgram ? { ...options, lateness: () => undefined } : inTime(options);
  try {
    const tools = () => pool.tools(endpoint, scope, signal);
    await (isProgram ? starts.run('', tools) : tools());
    return { address, status: 'ok', reason: null };
  } catch (error) {
    const late = lateness();
    if (late !== undefined) return failed(late, address);
    if (!(error instanceof McpUnavailableError)) throw error;
    const { reason, signIn } = error;
    if (!signIn) return failed(reason, address);
    return options.hasPublicUrl ? { address, status: 'sign_in_required', reason } : failed(NO_PUBLIC_URL, address);
  }
}

function failed(reason: string, address: string | null = null): Outcome {
  return { address, status: 'failed', reason };
}

/** The signal for one attempt, and the reason to report if it has taken too long, rather than been given up. */
function inTime({ signal, maxMs = MAX_MS }: TryTime): {
  signal: AbortSignal;
  lateness: () => string | undefined;
} {
  const late = AbortSignal.timeout(maxMs);
  return {
    signal: AbortSignal.any([signal, late]),
    lateness: () => (late.aborted && !signal.aborted ? `has not answered within ${maxMs / 1000} s` : undefined),
  };
}
