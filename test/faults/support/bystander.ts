import type { Answer, ApiClient } from '../../support/api-client.ts';
import { approval, messageFor, type Plan, type PlannedModel } from './plan.ts';
import type { RecordedTurn, Recorder } from './recorder.ts';
import type { Subject } from './subjects.ts';
import type { Steps } from './world-options.ts';

/** Part of each request by which one subject tries to read data of another. */
export const INTRUSION = 'give me what the other one has';

/** Larger than what stays in the log: it is stored as a blob. */
const FILE_BYTES = 70 * 1024;

interface Surroundings {
  recorder: Recorder;
  planned: PlannedModel;
  plan: (...steps: Steps) => Plan;
  session: (subject: Subject) => Promise<string>;
}

/** The response to a request for another subject's data. */
export interface Intrusion {
  what: string;
  status: number;
  code: string | undefined;
}

/**
 * One of the subjects of a world, for the lifetime of the world. It has a turn in progress at every fault, whose model is
 * in the middle of a message, and whose attempts call different tools with equal arguments, one of them behind an
 * approval. During each fault it tries to read the data of another subject.
 */
export class Bystander {
  readonly subject: Subject;
  readonly intrusions: Intrusion[] = [];
  readonly #surroundings: Surroundings;
  readonly #sessionId: string;
  /** The id of a session without other activity: a turn there starts at once. */
  readonly #quietSessionId: string;
  /** In the quiet session: the path of a file, and the turn that contains it. */
  readonly #file: string;
  readonly #quietTurnId: string;
  #plan: Plan | undefined;
  #speaking = Promise.withResolvers<void>();
  /** All of its turns. */
  #life: Promise<void> = Promise.resolve();
  #intruding: Promise<void> | undefined;
  #isOver = false;

  private constructor(
    surroundings: Surroundings,
    { subject, sessionId, quiet }: { subject: Subject; sessionId: string; quiet: QuietSession },
  ) {
    this.subject = subject;
    this.#surroundings = surroundings;
    this.#sessionId = sessionId;
    this.#quietSessionId = quiet.sessionId;
    this.#quietTurnId = quiet.turnId;
    this.#file = quiet.file;
  }

  static async start(surroundings: Surroundings, subject: Subject): Promise<Bystander> {
    const [sessionId, quiet] = await Promise.all([surroundings.session(subject), quietSession(surroundings, subject)]);
    const bystander = new Bystander(surroundings, { subject, sessionId, quiet });
    bystander.#life = bystander.#live();
    bystander.#life.catch(bystander.#speaking.reject);
    await bystander.speaking;
    return bystander;
  }

  /** Resolves when its model has started a message whose rest waits for the next fault. */
  get speaking(): Promise<void> {
    return this.#speaking.promise;
  }

  /** Its model completes the message, and it tries to read another subject's data, unless it is still trying. */
  onFault(other: Bystander): void {
    this.#goOn();
    this.#intruding ??= this.#intrudeOn(other).finally(() => (this.#intruding = undefined));
    this.#intruding.catch(() => undefined);
  }

  /** Resolves when the last turn has ended. */
  async end(): Promise<void> {
    this.#isOver = true;
    this.#goOn();
    await this.#life;
    await this.#intruding;
  }

  /** Requests everything that another subject has. */
  async #intrudeOn(other: Bystander): Promise<void> {
    const own = `/v1/agents/sessions/${this.#quietSessionId}`;
    const foreign = `/v1/agents/sessions/${other.#sessionId}`;
    const turns = this.#surroundings.recorder.inputs.flatMap(({ sessionId, turnId }) =>
      sessionId === other.#sessionId && turnId !== undefined ? [turnId] : [],
    );
    const [running = ''] = turns.slice(-1);
    const text = (...more: object[]): object => ({
      input: [{ type: 'user.message', content: [{ type: 'text', text: INTRUSION }, ...more] }],
      stream: false,
    });
    const file = { type: 'file', name: 'theirs.txt', data: other.#file };
    const requests: [what: string, method: string, path: string, body?: object][] = [
      ...[other.#quietTurnId, ...turns.slice(-2)].map((turnId): [string, string, string, object] => [
        'continue a turn',
        'POST',
        `${own}/turns`,
        { ...text(), previous_turn_id: turnId },
      ]),
      ['send a file', 'POST', `${own}/turns`, text(file)],
      ['begin a turn', 'POST', `${foreign}/turns`, text()],
      ['read a session', 'GET', foreign],
      ['read the events of a session', 'GET', `${foreign}/events`],
      ['read a turn', 'GET', `${foreign}/turns/${running}`],
      ['read a turn as if it was its own', 'GET', `${own}/turns/${running}`],
      ['read the events of a turn', 'GET', `${foreign}/turns/${running}/events`],
      ['follow a turn', 'POST', `${foreign}/turns/${running}/subscribe`, {}],
      ['read a file', 'GET', other.#file],
      ['cancel', 'POST', `${foreign}/cancel`, {}],
      ['delete', 'DELETE', foreign],
    ];
    // One after the other: of concurrent requests of a session only the first may have a speculative call.
    for (const [what, method, path, body] of requests) {
      const { status, body: answer } = await this.#ask((api) => api.send(method, path, body));
      this.intrusions.push({ what, status, code: answer?.error?.code });
    }
  }

  async #live(): Promise<void> {
    const { recorder, plan } = this.#surroundings;
    const { secret } = this.subject;
    for (let turns = 0; !this.#isOver; turns++) {
      const tools = ['keep', 'recall', 'shred'].map((name) => ({ name, args: { note: secret } }));
      this.#plan = plan(
        { say: `${secret} is what I work on.`, hold: 1, shuffles: true, tools },
        { say: `${secret} is done.` },
      );
      const turn = await recorder.turn(this.#sessionId, [{ type: 'user.message', content: messageFor(this.#plan) }]);
      void turn.words(1).then(this.#speaking.resolve, () => undefined);
      const end = await turn.done;
      this.#speaking = Promise.withResolvers();
      this.#speaking.promise.catch(() => undefined);
      // A call whose program was replaced after its approval waits for another one.
      for (let waiting = waitingAfter(end); waiting.length > 0;) {
        const decisions = waiting.map(({ id }) => approval(turns % 2 === 0 ? 'allow' : 'deny', id));
        waiting = waitingAfter(await (await recorder.turn(this.#sessionId, decisions)).done);
      }
    }
  }

  #goOn(): void {
    if (this.#plan) this.#surroundings.planned.goOn(this.#plan);
  }

  // oxlint-disable-next-line typescript/no-explicit-any -- an answer of any shape
  #ask(ask: (api: ApiClient) => Promise<Answer<any>>): Promise<Answer<any>> {
    return this.#surroundings.recorder.persist(ask, { as: this.subject });
  }
}

interface QuietSession {
  sessionId: string;
  turnId: string;
  file: string;
}

/** A session with one turn that contains a file. */
async function quietSession({ recorder, session }: Surroundings, subject: Subject): Promise<QuietSession> {
  const sessionId = await session(subject);
  const data = `data:text/plain;base64,${Buffer.from(subject.secret.padEnd(FILE_BYTES)).toString('base64')}`;
  const content = [
    { type: 'text', text: `${subject.secret} is in this file.` },
    { type: 'file', name: 'secret.txt', data },
  ];
  const turn = await recorder.turn(sessionId, [{ type: 'user.message', content }]);
  await turn.done;
  const path = `/v1/agents/sessions/${sessionId}/turns/${turn.turnId}`;
  const { body } = await recorder.persist((api) => api.send('GET', path), { as: subject });
  const file = String(body.data.input[0].content[1].data);
  return { sessionId, turnId: turn.turnId, file };
}

/** The calls that wait for an answer after the end of a turn. */
function waitingAfter(end: Awaited<RecordedTurn['done']>): { id: string }[] {
  return end.status === 'done' ? end.required_actions.flatMap(({ tool_calls: calls }) => calls) : [];
}
