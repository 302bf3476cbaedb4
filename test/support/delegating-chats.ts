import { pino } from 'pino';
import { Catalog } from '../../src/features/catalog.ts';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import type { ApiClient, EventReader } from './api-client.ts';
import { use, type Script, type ScriptedModel } from './scripted-model.ts';

/** An agent, with the agents to which it delegates. */
export interface DelegatingAgent {
  scripts?: Script[];
  spec?: Partial<AgentSpec>;
  delegates?: Record<string, DelegatingAgent>;
}

/** A session of an agent with delegates. */
export interface DelegatingChat {
  sessionId: string;
  path: string;
  /** The model of the agent at this path of names; the root agent's is at ''. */
  model: (path?: string) => string;
  turn: (text: string) => EventReader;
}

interface ChatServer {
  api: ApiClient;
  model: ScriptedModel;
}

/** Opens sessions of agents with delegates, which are written into the catalog: their format has no field for them. */
export class DelegatingChats {
  readonly catalog: Catalog;

  private constructor(catalog: Catalog) {
    this.catalog = catalog;
  }

  static async open(databaseUrl: string): Promise<DelegatingChats> {
    const { database, encryptionKeys } = loadConfig({
      DATABASE_URL: databaseUrl,
      EVERTURN_ENCRYPTION_KEYS: process.env['TEST_ENCRYPTION_KEYS'],
    });
    return new DelegatingChats(await Catalog.open(database, pino({ level: 'silent' }), new Cipher(encryptionKeys)));
  }

  async chat({ api, model }: ChatServer, agent: DelegatingAgent): Promise<DelegatingChat> {
    const name = newId('req');
    const { status, body } = await api.send('POST', '/v1/agents/draft-sessions', { agent_spec: { model: { name } } });
    if (status !== 201 && status !== 200) throw new Error(JSON.stringify(body));
    const sessionId = String(body.data.id);
    const now = new Date().toISOString();
    const specHash = await this.#put(name, agent, model, now);
    await this.catalog.sessions.update(sessionId, { spec_hash: specHash, updated_at: now });
    return {
      sessionId,
      path: `/v1/agents/sessions/${sessionId}`,
      model: (path = '') => name + path,
      turn: (text) => api.turn(sessionId, text),
    };
  }

  /** Stores the specs of an agent, those of its delegates first. */
  async #put(name: string, { scripts = [], spec, delegates = {} }: DelegatingAgent, model: ScriptedModel, now: string) {
    model.script(name, ...scripts);
    const resolved: AgentSpec['delegates'] = [];
    for (const [delegate, agent] of Object.entries(delegates)) {
      const hash = await this.#put(`${name}/${delegate}`, agent, model, now);
      resolved.push({ name: delegate, description: `Does ${delegate}.`, spec: hash });
    }
    const config = { pause: 'wait' as const, ...spec?.config };
    const whole = { ...spec, model: { name }, config, ...(resolved.length > 0 && { delegates: resolved }) };
    return this.catalog.agents.putSpec(whole, now);
  }
}

/** Gives each delegate a task. */
export function delegate(...agents: string[]): Script {
  return use(
    ...agents.map((agent) => ({ name: 'delegate', id: `call_${agent}`, args: { agent, task: `do ${agent}` } })),
  );
}
