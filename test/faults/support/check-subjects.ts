import { expect } from 'vitest';
import { INTRUSION } from './bystander.ts';
import type { Stored } from './check.ts';
import { planOf } from './plan.ts';
import { NOISY, SUBJECTS } from './subjects.ts';
import type { World } from './world.ts';

/** The identifiers of a subject's data: ids of sessions, turns, plans and MCP sessions, and secrets. */
const TRACES =
  /(?:ses|turn)_[0-9a-z]{26}|p\d+_[0-9a-f]{8}|secret-[a-z]+-[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/**
 * 10: no data of one subject has reached another: no model request, stream, list, tool call or tool state has data of two
 * subjects, and each request of one for another's data was rejected.
 */
export async function checkSubjects(world: World, sessions: Map<string, Stored[]>): Promise<void> {
  const traces = new Traces(world, sessions);
  const leaks = [...intrusions(world), ...misses(world), ...inRequests(world, traces), ...inTools(world, traces)];
  const { recorder } = world;
  for (const { sessionId, turnId, frames } of recorder.turns) {
    leaks.push(...traces.ofOthers(recorder.ownerOf(sessionId).id, frames, `the stream of turn ${turnId}`));
  }
  for (const [sessionId, turns] of sessions) {
    const { id } = recorder.ownerOf(sessionId);
    for (const stored of turns) leaks.push(...traces.ofOthers(id, stored, `turn ${stored.turn.id} and its events`));
  }
  for (const subject of [...SUBJECTS, NOISY]) {
    const listed = await recorder.as(subject).list('/v1/agents/sessions');
    leaks.push(...traces.ofOthers(subject.id, listed, `the list of ${subject.id}'s sessions`));
  }
  expect(leaks, 'what one subject has got of another one').toEqual([]);
}

/** The owners of data, by the traces that occur in it. */
class Traces {
  readonly #owners = new Map<string, string>();

  constructor({ recorder, ledger }: World, sessions: Map<string, Stored[]>) {
    for (const { id, secret } of [...SUBJECTS, NOISY]) this.#owners.set(secret, id);
    for (const [sessionId, { id }] of recorder.owners) {
      this.#owners.set(sessionId, id);
      for (const { turn } of sessions.get(sessionId) ?? []) this.#owners.set(turn.id, id);
    }
    const texts = [
      ...recorder.inputs.map(({ sessionId, input }) => ({ sessionId, text: input[0]?.['content'] })),
      ...recorder.messages,
    ];
    for (const { sessionId, text } of texts) {
      const plan = planOf(text);
      if (plan) this.#owners.set(plan.id, recorder.ownerOf(sessionId).id);
    }
    for (const { operation, mcpSession } of ledger.effects) {
      const user = this.userOf(operation);
      if (mcpSession !== undefined && user !== undefined) this.#owners.set(mcpSession, user);
    }
  }

  /** The subject in whose turn a tool was called; undefined if an operator has deleted the turn. */
  userOf(operation: string): string | undefined {
    return this.#owners.get(operation.slice(0, operation.indexOf('/')));
  }

  ownersIn(thing: unknown): string[] {
    const found = new Set(textOf(thing).match(TRACES));
    return [...new Set([...found].flatMap((trace) => this.#owners.get(trace) ?? []))];
  }

  *ofOthers(owner: string, thing: unknown, what: string): Generator<string> {
    for (const other of this.ownersIn(thing)) if (other !== owner) yield `${what} have something of ${other}`;
  }
}

/** Invalid requests of the noisy subject were rejected. */
function* misses({ noise }: World): Generator<string> {
  if (!noise) return;
  expect(noise.misses, `what ${NOISY.id} has sent amiss`).not.toEqual([]);
  for (const { what, status } of noise.misses) {
    if (status < 400) yield `${NOISY.id} was answered ${status} when it tried to ${what}`;
  }
}

/** Both ends of long texts, which are gigabytes in total: the traces are there. */
const END_LENGTH = 4_096;

function textOf(thing: unknown): string {
  return JSON.stringify(thing, (_, value: unknown) =>
    typeof value === 'string' && value.length > 2 * END_LENGTH
      ? `${value.slice(0, END_LENGTH)} ${value.slice(-END_LENGTH)}`
      : value,
  );
}

function* intrusions({ bystanders }: World): Generator<string> {
  for (const { subject, intrusions: tried } of bystanders) {
    expect(tried, `what ${subject.id} has tried`).not.toEqual([]);
    for (const { what, status, code = '' } of tried) {
      const isRefused = what === 'send a file' ? code === 'file_unavailable' : code.endsWith('_not_found');
      if (!isRefused) yield `${subject.id} was answered ${status} ${code} when it tried to ${what}`;
    }
  }
}

function* inRequests({ model }: World, traces: Traces): Generator<string> {
  for (const { messages } of model.requests) {
    const owners = traces.ownersIn(messages);
    if (owners.length > 1) yield `a model was asked with something of ${owners.join(' and ')}`;
    if (textOf(messages).includes(INTRUSION)) yield 'a model was asked for the sake of a request that was refused';
  }
}

function* inTools({ ledger }: World, traces: Traces): Generator<string> {
  const users = new Map<string, Set<string>>();
  for (const { operation, tool, arguments: args, mcpSession } of ledger.effects) {
    const user = traces.userOf(operation);
    if (user === undefined) continue;
    yield* traces.ofOthers(user, args, `the arguments of ${tool} in ${operation}`);
    if (mcpSession !== undefined) users.set(mcpSession, (users.get(mcpSession) ?? new Set()).add(user));
  }
  for (const [mcpSession, its] of users) {
    if (its.size > 1) yield `MCP session ${mcpSession} was used by ${[...its].join(' and ')}`;
  }
}
