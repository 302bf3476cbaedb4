import { newId } from '../../../src/engine/new-id.ts';
import { messageFor, type Plan, type PlannedModel } from './plan.ts';
import type { Recorder } from './recorder.ts';
import { NOISY } from './subjects.ts';
import type { Steps } from './world-options.ts';

/** The tools that its agent has, on a server of its own. */
export const NOISY_SERVER = 'noise';

/** Set if every scenario has it, which costs a fifth of the time. */
export const ALL_NOISY = 'ALL_NOISY';

/** The calls of each of its messages. */
const CALLS = 6;

interface Surroundings {
  recorder: Recorder;
  planned: PlannedModel;
  plan: (...steps: Steps) => Plan;
  session: () => Promise<string>;
}

/** The response to a request that the server cannot fulfil. */
export interface Miss {
  what: string;
  status: number;
}

/**
 * A subject that takes as much as it gets, and little of it goes well, for the lifetime of a world. At each fault it starts
 * turns whose messages break off behind their calls, whose tools lose their results, whose models reject, and which it
 * pauses, forces and cancels, and it sends requests that miss. None of it may reach the scenario beside it.
 */
export class Noise {
  readonly misses: Miss[] = [];
  readonly #surroundings: Surroundings;
  readonly #sessionId: string;
  #making: Promise<void> | undefined;

  private constructor(surroundings: Surroundings, sessionId: string) {
    this.#surroundings = surroundings;
    this.#sessionId = sessionId;
  }

  static async start(surroundings: Surroundings): Promise<Noise> {
    const noise = new Noise(surroundings, await surroundings.session());
    noise.onFault();
    return noise;
  }

  /** Begins to make noise, unless it still does. */
  onFault(): void {
    this.#making ??= this.#make().finally(() => (this.#making = undefined));
    this.#making.catch(() => undefined);
  }

  /** Resolves when it is quiet; its turns may still run. */
  async end(): Promise<void> {
    await this.#making;
  }

  async #make(): Promise<void> {
    await Promise.all([this.#fail(), this.#miss()]);
  }

  async #fail(): Promise<void> {
    const { recorder, planned, plan } = this.#surroundings;
    const sessionId = this.#sessionId;
    const secret = { note: NOISY.secret };
    const looks = Array.from({ length: CALLS }, () => ({ name: 'look', args: secret }));
    // Work that began ahead of this message is of no use: its first attempt breaks off.
    const broken = plan({ say: 'Let me look.', faults: ['broken connection behind the calls'], tools: looks });
    const cancelled = plan({ say: `${NOISY.secret} is what I repeat.`, hold: 1 });
    const rejected = plan(
      { say: 'I pay.', tools: ['pay', 'sync'].map((name) => ({ name, args: { ...secret, first: 'swallow' } })) },
      { say: 'Never.', faults: ['bad request'] },
    );
    const first = await recorder.turn(sessionId, [{ type: 'user.message', content: messageFor(broken) }]);
    await recorder.control(sessionId, 'pause');
    await recorder.control(sessionId, 'resume');
    await first.done;
    const second = await recorder.turn(sessionId, [{ type: 'user.message', content: messageFor(cancelled) }]);
    await second.words(1).catch(() => undefined);
    // This one cancels the one before it.
    await recorder.turn(sessionId, [{ type: 'user.message', content: messageFor(rejected) }]);
    planned.goOn(cancelled);
  }

  async #miss(): Promise<void> {
    const own = `/v1/agents/sessions/${this.#sessionId}`;
    const turn = { input: [{ type: 'user.message', content: NOISY.secret }], stream: false };
    const approval = { type: 'user.tool_approval', tool_call_id: newId('call'), approval: { status: 'allow' } };
    const requests: [what: string, method: string, path: string, body?: unknown][] = [
      ['begin a turn of no session', 'POST', `/v1/agents/sessions/${newId('ses')}/turns`, turn],
      ['begin a turn with no JSON', 'POST', `${own}/turns`, '{"input": ['],
      ['continue no turn', 'POST', `${own}/turns`, { ...turn, previous_turn_id: newId('turn') }],
      ['decide on no call', 'POST', `${own}/actions`, { input: [approval] }],
      ['follow no turn', 'POST', `${own}/turns/${newId('turn')}/subscribe`, {}],
      ['read no run', 'GET', `/v1/runs/${newId('run')}`],
      ['run no agent', 'POST', '/v1/agents/nobody/runs', { input: [] }],
    ];
    const { recorder } = this.#surroundings;
    await Promise.all(
      requests.map(async ([what, method, path, body]) => {
        const { status } = await recorder.persist((api) => api.send(method, path, body), { as: NOISY });
        this.misses.push({ what, status });
      }),
    );
  }
}
