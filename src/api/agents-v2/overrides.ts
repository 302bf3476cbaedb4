import { isJsonObject } from '../../lib/json.ts';
import { ApiError } from '../http/errors.ts';
import { parsePart } from '../http/request.ts';
import { parsePath, type Step } from './override-path.ts';
import { agent as agentShape, type Agent, type FullAgent } from './wire/agent.ts';

type Field = keyof Agent;

interface Override {
  /** The path as the client has sent it. */
  path: string;
  /** The path of the value in the agent, with the indexes of the selected members. */
  keys: (string | number)[];
}

/** An agent with the overrides of a request, and the fields in which it has changed. */
interface Overridden {
  agent: Agent;
  changed: Set<Field>;
}

/**
 * Replaces values in an agent by their paths in the request, in the order of the request. Each replaces a whole value.
 * @throws ApiError `invalid_request`: no such field, no or several matches, or a value of another type
 */
export function applyOverrides(agent: FullAgent, overrides: Record<string, unknown>): Overridden {
  const applied = new Map<Field, Override[]>();
  let result: Agent = agent;
  for (const [path, value] of Object.entries(overrides)) {
    const [field, steps] = stepsIn(path);
    const keys: Override['keys'] = [];
    const replaced = replace(result, steps, { path, value, keys });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- its changed fields are validated below
    result = replaced as Agent;
    applied.set(field, [...(applied.get(field) ?? []), { path, keys }]);
  }
  for (const [field, ones] of applied) result = { ...result, [field]: validated(field, result[field], ones) };
  return { agent: result, changed: new Set(applied.keys()) };
}

/** The field of agents to which a path leads, and its steps below the agent. */
function stepsIn(path: string): [Field, Step[]] {
  const [root, first, ...rest] = parsePath(path) ?? [];
  if (!root || !('field' in root) || root.field !== 'agent' || !first || !('field' in first)) {
    throw refusal(path, 'must be a path such as agent.model or agent.environments[kind=web].start_url');
  }
  const field = Object.keys(agentShape.shape).find((name): name is Field => name === first.field);
  if (field === undefined) throw refusal(path, `agents have no field ${JSON.stringify(first.field)}`);
  return [field, [first, ...rest]];
}

function replace(current: unknown, [step, ...rest]: Step[], to: Override & { value: unknown }): unknown {
  const { path, keys, value } = to;
  if (!step) return value;
  if ('select' in step) {
    const { field, value: wanted } = step.select;
    const what = `[${field}=${wanted}]`;
    if (!Array.isArray(current)) throw refusal(path, `${what} selects a member of a list, and there is none`);
    const matches = [...current.keys()].filter((i) => textOf(current[i], field) === wanted);
    const [at, second] = matches;
    if (at === undefined) throw refusal(path, `no member of the list has ${what}`);
    if (second !== undefined) throw refusal(path, `${matches.length} members of the list have ${what}: select one`);
    keys.push(at);
    return current.with(at, replace(current[at], rest, to));
  }
  const { field } = step;
  if (Array.isArray(current)) throw refusal(path, `select a member of the list before ${field}: [field=value]`);
  if (!isJsonObject(current)) throw refusal(path, `there is no value in which ${field} could be replaced`);
  keys.push(field);
  const inner = Object.hasOwn(current, field) ? current[field] : undefined;
  return { ...current, [field]: replace(inner, rest, to) };
}

/** The value of a field after its overrides. An error names the override whose path is nearest to it. */
function validated(field: Field, value: unknown, overrides: Override[]): unknown {
  try {
    return parsePart(agentShape.shape[field], value, 'body');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const [issue] = error.issues;
    if (!issue) throw error;
    const at = [field, ...issue.path];
    const [nearest] = overrides.toSorted((a, b) => common(b.keys, at) - common(a.keys, at));
    throw refusal(nearest?.path ?? field, issue.message, issue.code);
  }
}

/** How many members two lists have in common from their beginnings. */
function common(a: PropertyKey[], b: PropertyKey[]): number {
  const end = a.findIndex((part, i) => part !== b[i]);
  return end < 0 ? a.length : end;
}

/** The value of a field as text; undefined if it is not a text, a number or a truth value. */
function textOf(member: unknown, field: string): string | undefined {
  const value = isJsonObject(member) && Object.hasOwn(member, field) ? member[field] : undefined;
  return ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : undefined;
}

function refusal(path: string, message: string, code = 'invalid_override'): ApiError {
  return new ApiError('invalid_request', `overrides: ${path}: ${message}`, {
    issues: [{ in: 'body', path: ['overrides', path], code, message }],
  });
}
