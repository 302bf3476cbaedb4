import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import type { TurnResource } from '../../../src/api/sessions/wire/resources.ts';
import type { OnRunning } from '../../../src/core/session.ts';
import {
  folded,
  ApiClient,
  type Answer,
  type EventReader,
  type Frame,
  type SessionFrame,
} from '../../support/api-client.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { approval } from './plan.ts';
import { isFinding, PAUSE_MS } from './persistence.ts';
import { RecordedEvents } from './recorded-events.ts';
import { RecordedRun } from './recorded-run.ts';
import type { SentControl, SentDecision, SentInput, SentMessage, SentResponse } from './sent.ts';
import { OPERATOR, type Subject } from './subjects.ts';

type TurnEnd = Extract<Frame, { type: 'turn.done' }>['state'];

/**
 * A client that does what clients must: it repeats an input under the same key until it gets an outcome, and resumes at
 * its cursor when a stream breaks. It keeps everything that it received, and writes it to a file.
 */
export class Recorder {
  readonly inputs: SentInput[] = [];
  readonly turns: RecordedTurn[] = [];
  readonly sessions: RecordedSession[] = [];
  /** The sessions as clients of the Agents API v2 follow them. */
  readonly events: RecordedEvents[] = [];
  readonly decisions: SentDecision[] = [];
  readonly responses: SentResponse[] = [];
  readonly messages: SentMessage[] = [];
  readonly controls: SentControl[] = [];
  readonly runs: RecordedRun[] = [];
  /** The subject of each session. */
  readonly owners = new Map<string, Subject>();
  readonly #urls: () => string[];
  readonly #file: string;
  #requests = 0;

  constructor(urls: () => string[], file: string) {
    this.#urls = urls;
    this.#file = file;
  }

  /** The API as the operator uses it, who may read all sessions, and cancel. */
  get api(): ApiClient {
    return this.as(OPERATOR);
  }

  /** The API as a subject uses it. The APIs are used in turn. */
  as({ key }: Subject): ApiClient {
    const urls = this.#urls();
    const url = urls[this.#requests++ % urls.length];
    if (url === undefined) throw new Error('no API is ready');
    return new ApiClient(url, key);
  }

  ownerOf(sessionId: string): Subject {
    const owner = this.owners.get(sessionId);
    if (!owner) throw new Error(`unknown owner of session ${sessionId}`);
    return owner;
  }

  /** Repeats a request until the response is no temporary failure. */
  async persist<T>(
    ask: (api: ApiClient) => Promise<Answer<T>>,
    { as = OPERATOR, onTrouble }: { as?: Subject; onTrouble?: (answer: Answer<T>) => void } = {},
  ): Promise<Answer<T>> {
    for (;;) {
      try {
        const answer = await ask(this.as(as));
        if (answer.status < 500) return answer;
        onTrouble?.(answer);
      } catch (error) {
        if (isFinding(error)) throw error;
      }
      await sleep(PAUSE_MS);
    }
  }

  /** Starts a turn; resolves when it is accepted or rejected. */
  async send(sessionId: string, input: Record<string, unknown>[], onRunning?: OnRunning): Promise<SentInput> {
    const key = newId('req');
    const running = onRunning && { onRunning };
    const sent: SentInput = { sessionId, input, outcome: 'under way', at: performance.now(), ...running };
    this.inputs.push(sent);
    const path = `/v1/agents/sessions/${sessionId}/turns`;
    const body = { input, stream: false, ...(onRunning && { on_running: onRunning }) };
    // oxlint-disable-next-line typescript/no-explicit-any -- an answer of either shape
    const answer = await this.persist<any>((api) => api.send('POST', path, body, { 'idempotency-key': key }), {
      as: this.ownerOf(sessionId),
      onTrouble: (trouble) => (sent.unavailable ??= []).push(trouble),
    });
    if (answer.status >= 400) {
      return Object.assign(sent, { outcome: 'refused', status: answer.status, code: answer.body.error.code });
    }
    return Object.assign(sent, { outcome: 'accepted', turnId: answer.body.data.id });
  }

  /** Decides on a call of a turn that waits. Returns the status of the response. */
  async decide(decision: Omit<SentDecision, 'at' | 'response'>): Promise<number> {
    const sent: SentDecision = { ...decision, at: performance.now() };
    this.decisions.push(sent);
    const path = `/v1/agents/sessions/${sent.sessionId}/actions`;
    const body = { input: [approval(sent.status, sent.toolCallId, sent)] };
    sent.response = (await this.persist((api) => api.send('POST', path, body), { as: sent.by })).status;
    return sent.response;
  }

  /** Gives a message to the running turn of a session, or to a new one. Returns the turn that has it. */
  async steer(sessionId: string, text: string): Promise<{ turnId: string; isNew: boolean } | undefined> {
    const key = newId('req');
    const sent: SentMessage = { sessionId, text };
    const at = performance.now();
    this.messages.push(sent);
    const path = `/v1/agents/sessions/${sessionId}/turns`;
    const input = [{ type: 'user.message', content: text }];
    const body = { input, on_running: 'steer', stream: false };
    const answer = await this.persist((api) => api.send('POST', path, body, { 'idempotency-key': key }), {
      as: this.ownerOf(sessionId),
    });
    if (answer.status !== 200) return undefined;
    const turn: TurnResource = answer.body.data;
    sent.turnId = turn.id;
    const [first] = turn.input;
    const isNew = first?.type === 'user.message' && first.content === text;
    if (isNew) {
      this.messages.splice(this.messages.indexOf(sent), 1);
      this.inputs.push({ sessionId, input, outcome: 'accepted', turnId: turn.id, at });
    }
    return { turnId: turn.id, isNew };
  }

  /** Pauses or resumes the running turn of a session, or has it answer. Returns the status of the response. */
  async control(sessionId: string, command: SentControl['command'], turnId?: string): Promise<number> {
    const sent: SentControl = { sessionId, command, turnId };
    this.controls.push(sent);
    const path = `/v1/agents/sessions/${sessionId}/${command}`;
    const { status } = await this.persist((api) => api.send('POST', path, {}), { as: this.ownerOf(sessionId) });
    Object.assign(sent, { response: status, answeredAt: performance.now() });
    return status;
  }

  /** Cancels a turn, which runs, waits in the queue, or has ended. */
  async cancel({ sessionId, turnId }: RecordedTurn): Promise<void> {
    const path = `/v1/agents/sessions/${sessionId}/turns/${turnId}/cancel`;
    const { status } = await this.persist((api) => api.send('POST', path, {}), { as: this.ownerOf(sessionId) });
    expect(status).toBe(200);
  }

  /** Answers a question of a turn that waits, in the name of its session's owner. Returns the status of the response. */
  async respond(sessionId: string, item: Record<string, unknown>): Promise<number> {
    const sent: SentResponse = { sessionId, item };
    this.responses.push(sent);
    const path = `/v1/agents/sessions/${sessionId}/actions`;
    const send = (api: ApiClient) => api.send('POST', path, { input: [item] });
    sent.response = (await this.persist(send, { as: this.ownerOf(sessionId) })).status;
    return sent.response;
  }

  /** Starts a turn and follows it to its end. */
  async turn(sessionId: string, input: Record<string, unknown>[]): Promise<RecordedTurn> {
    const sent = await this.send(sessionId, input);
    if (sent.turnId === undefined) throw new Error(`the turn was rejected: ${sent.status} ${sent.code}`);
    return this.follow(sessionId, sent.turnId);
  }

  /** Starts a run of a registered agent under a key, repeats the request until there is a response, and follows the run. */
  async run(
    agent: string,
    body: object,
    { by, key = newId('req') }: { by: Subject; key?: string },
  ): Promise<RecordedRun> {
    const path = `/v1/agents/${agent}/runs`;
    const send = (api: ApiClient) =>
      api.send<Run>('POST', path, { ...body, wait_seconds: 0 }, { 'idempotency-key': key });
    const { status, body: started } = await this.persist(send, { as: by });
    if (status !== 200) throw new Error(`${status} ${JSON.stringify(started)}`);
    const known = this.runs.find(({ id }) => id === started.id);
    const run = known ?? new RecordedRun(started.id, { recorder: this, owner: by });
    if (!known) this.runs.push(run);
    return run;
  }

  /** Follows a turn to its end, across all faults. */
  follow(sessionId: string, turnId: string): RecordedTurn {
    const turn = new RecordedTurn({ sessionId, turnId, recorder: this, file: this.#file });
    this.turns.push(turn);
    return turn;
  }

  /** Follows all turns of a session through both APIs, across all faults. */
  followSession(sessionId: string): void {
    this.sessions.push(new RecordedSession(sessionId, this));
    this.events.push(new RecordedEvents(sessionId, () => this.as(this.ownerOf(sessionId))));
  }

  /** An operator has deleted the turn: no request can find it any more, and the events behind it are counted anew. */
  forget(turn: RecordedTurn): void {
    const its = this.events.findIndex(({ sessionId }) => sessionId === turn.sessionId);
    for (const reader of this.events.splice(its, 1)) reader.close();
    this.turns.splice(this.turns.indexOf(turn), 1);
    this.inputs.splice(
      this.inputs.findIndex(({ turnId }) => turnId === turn.turnId),
      1,
    );
  }
}

/** A frame, its time, and the number of its connection. */
export interface RecordedFrame {
  frame: Frame;
  at: number;
  connection: number;
}

/** The events that one reader received of one turn, over all of its connections. */
export class RecordedTurn {
  readonly sessionId: string;
  readonly turnId: string;
  readonly recorded: RecordedFrame[] = [];
  /** Resolves with the turn's end; rejects with a response that no server should send. */
  readonly done: Promise<TurnEnd>;
  readonly #recorder: Recorder;
  readonly #file: string;
  readonly #waiting = new Set<() => void>();
  #reader: EventReader | undefined;
  connections = 0;
  /** The API that it is connected to, or was last. */
  api: ApiClient | undefined;

  constructor({
    sessionId,
    turnId,
    recorder,
    file,
  }: Pick<RecordedTurn, 'sessionId' | 'turnId'> & { recorder: Recorder; file: string }) {
    this.sessionId = sessionId;
    this.turnId = turnId;
    this.#recorder = recorder;
    this.#file = file;
    this.done = this.#follow();
    this.done.catch(() => undefined);
  }

  get frames(): Frame[] {
    return this.recorded.map(({ frame }) => frame);
  }

  /** Resolves when the received frames pass a check; rejects if the turn ends without. */
  async until(check: (frames: Frame[]) => boolean): Promise<void> {
    while (!check(this.frames)) {
      if (this.frames.at(-1)?.type === 'turn.done') throw new Error('the turn has ended without it');
      const news = new Promise<void>((resolve) => void this.#waiting.add(resolve));
      await Promise.race([news, this.done]);
    }
  }

  /** Resolves when the text of a message begins like this, in any number of deltas. */
  async says(beginning: string): Promise<void> {
    await this.until((frames) =>
      folded(frames).some((event) => 'content' in event && String(event.content).startsWith(beginning)),
    );
  }

  /** Resolves when the messages have this many words, in any number of deltas. */
  async words(count: number): Promise<void> {
    await this.until((frames) => {
      const texts = folded(frames).map((event) => ('content' in event ? String(event.content) : ''));
      return texts.join(' ').split(/\s+/).filter(Boolean).length >= count;
    });
  }

  /** Milliseconds from a moment to the next frame after it; undefined if there was none. */
  resumedAfter(moment: number): number | undefined {
    const next = this.recorded.find(({ at }) => at > moment);
    return next && next.at - moment;
  }

  /** Cuts the connection, as a network does: the client resumes at its cursor. */
  cut(): void {
    this.#reader?.close();
  }

  async #follow(): Promise<TurnEnd> {
    for (;;) {
      const cursor = this.frames.at(-1)?.sequence_number;
      try {
        this.api = this.#recorder.as(this.#recorder.ownerOf(this.sessionId));
        const connection = this.connections++;
        const reader = this.api.subscribe(this.sessionId, this.turnId, cursor, 'header');
        this.#reader = reader;
        reader.onFrame = (frame) => this.#note({ frame, at: performance.now(), connection });
        await reader.done;
      } catch (error) {
        if (isFinding(error)) throw error;
      }
      const end = this.frames.at(-1);
      if (end?.type === 'turn.done') return end.state;
      await sleep(PAUSE_MS);
    }
  }

  #note(recorded: RecordedFrame): void {
    this.recorded.push(recorded);
    appendFileSync(this.#file, `${JSON.stringify({ turn: this.turnId, ...recorded })}\n`);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}

/** The events that one reader received of one session, over all of its connections. */
export class RecordedSession {
  readonly sessionId: string;
  readonly frames: SessionFrame[] = [];
  readonly #recorder: Recorder;
  readonly #waiting = new Set<() => void>();
  readonly #closed: Promise<void>;
  #reader: EventReader<SessionFrame> | undefined;
  #isClosed = false;

  constructor(sessionId: string, recorder: Recorder) {
    this.sessionId = sessionId;
    this.#recorder = recorder;
    this.#closed = this.#follow();
    this.#closed.catch(() => undefined);
  }

  /** Resolves when the end of a turn was received; rejects with a response that no server should send. */
  async untilDone(turnId: string): Promise<void> {
    while (!this.frames.some((frame) => frame.type === 'turn.done' && frame.turn_id === turnId)) {
      const news = new Promise<void>((resolve) => void this.#waiting.add(resolve));
      await Promise.race([news, this.#closed]);
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#reader?.close();
  }

  async #follow(): Promise<void> {
    while (!this.#isClosed) {
      try {
        const api = this.#recorder.as(this.#recorder.ownerOf(this.sessionId));
        this.#reader = api.followSession(this.sessionId, this.frames.at(-1)?.sequence_number, 'header');
        this.#reader.onFrame = (frame) => {
          this.frames.push(frame);
          for (const wake of this.#waiting) wake();
          this.#waiting.clear();
        };
        await this.#reader.done;
      } catch (error) {
        if (isFinding(error)) throw error;
      }
      await sleep(PAUSE_MS);
    }
  }
}
