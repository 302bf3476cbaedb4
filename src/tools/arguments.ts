import type { ErrorObject } from 'ajv';
import { isJsonObject } from '../lib/json.ts';
import { jsonShape } from '../lib/json-shape.ts';
import { errorMessage } from '../lib/errors.ts';
import { describe, SchemaValidators } from './schema-validators.ts';
import type { AgentTool } from './toolset.ts';

type ParsedArguments =
  | { ok: true; value: Record<string, unknown> }
  /** `pointer`: the JSON pointer to the first problem. */
  | { ok: false; message: string; pointer: string };

/** Above what a model writes in one message. */
const MAX_LENGTH = 1024 * 1024;
const MAX_DEPTH = 100;
const MAX_MESSAGE_LENGTH = 500;
/** With these limits, parsing included, a call blocks the event loop for less than 100 ms. */
const MAX_VALUES = 20_000;
const VALIDATE_MS = 20;

const LIMITS = { validateMs: VALIDATE_MS, allErrors: false };
const argumentValidators = new SchemaValidators({ ...LIMITS, defaultsAreOptional: true });
/** The validators of conditions on arguments, and of answers to the questions of servers. */
export const conditionValidators = new SchemaValidators(LIMITS);

/**
 * Parses the arguments of a call as a model wrote them. Arguments for a tool of an MCP server, registered or inline,
 * are not validated: where its schema and the server disagree, the server decides. Arguments for all other tools are.
 */
export function parseModelArguments({ info, parameters }: Pick<AgentTool, 'info' | 'parameters'>, text: string) {
  return parseArguments(info.type === 'mcp' ? {} : parameters, text);
}

/**
 * Parses the arguments of a tool call, and validates them against the tool's schema. A missing property with a default
 * is no violation. Empty text is `{}`.
 */
export function parseArguments(schema: object, text: string): ParsedArguments {
  if (text.trim() === '') return check(schema, {});
  const parsed = parseJson(text);
  if ('problem' in parsed) return problem(`are ${parsed.problem}`);
  const { value, values } = parsed;
  if (!isJsonObject(value)) return problem(`must be a JSON object, not ${kind(value)}`);
  return check(schema, value, values);
}

/** Parses JSON that a model wrote. `values`: an upper bound of the number of values in it. `problem`: what the text is. */
export function parseJson(text: string): { value: unknown; values: number } | { problem: string } {
  if (text.length > MAX_LENGTH) return { problem: `longer than ${MAX_LENGTH} characters` };
  const { depth, values } = jsonShape(text);
  if (depth > MAX_DEPTH) return { problem: `nested deeper than ${MAX_DEPTH} levels` };
  if (values > MAX_VALUES) return { problem: `made of more than ${MAX_VALUES} values` };
  try {
    return { value: JSON.parse(text), values };
  } catch (error) {
    return { problem: `not valid JSON: ${errorMessage(error)}` };
  }
}

/** The JSON object that a model wrote; undefined if the text is none. */
export function parseJsonObject(text: string): Record<string, unknown> | undefined {
  const parsed = parseJson(text);
  return 'value' in parsed && isJsonObject(parsed.value) ? parsed.value : undefined;
}

/** Whether a value fits a schema; undefined if that cannot be evaluated, or not in time. */
export function fitsSchema(schema: object, value: unknown): boolean | undefined {
  const errors = misfits(conditionValidators, schema, value);
  return errors && errors.length === 0;
}

function check(schema: object, value: Record<string, unknown>, values = 1): ParsedArguments {
  const errors = misfits(argumentValidators, schema, value, values) ?? [];
  const [first] = errors;
  return first ? problem(`do not fit the tool's schema: ${describeAll(errors)}`, pathOf(first)) : { ok: true, value };
}

/**
 * Why a value does not fit a server's schema, with the JSON pointer to the part; undefined if it fits, or if the schema
 * cannot be checked within the limits: the server validates in any case. `values`: how many values are in the value.
 */
export function schemaProblem(schema: object, value: object, values = 1): string | undefined {
  const errors = misfits(conditionValidators, schema, value, values) ?? [];
  return errors.length > 0 ? describeAll(errors) : undefined;
}

/**
 * Whether arguments violate the schema of their tool. Arguments that cannot be checked within the limits do: a server
 * must not relax a policy by a schema that is broken or too large.
 */
export function argumentsViolate(schema: object, args: Record<string, unknown>): boolean {
  return misfits(argumentValidators, schema, args)?.length !== 0;
}

/** Undefined if the value cannot be checked. `values`: how many values are in it, if that is known. */
function misfits(
  validators: SchemaValidators,
  schema: object,
  value: unknown,
  values?: number,
): ErrorObject[] | undefined {
  try {
    return validators.of(schema)?.(value, values ?? jsonShape(JSON.stringify(value)).values);
  } catch {
    return undefined;
  }
}

/** For anyOf, the first error is that of its first branch, and the last one says that no branch matches. */
function describeAll(errors: ErrorObject[]): string {
  const shown = [...errors.slice(0, 1), ...errors.slice(-1)];
  return [...new Set(shown.map(describe))].join('\n');
}

/** The JSON pointer to a missing or wrong value. */
function pathOf({ instancePath, params }: ErrorObject): string {
  const key: unknown = params.missingProperty ?? params.additionalProperty ?? params.unevaluatedProperty;
  return typeof key === 'string' ? `${instancePath}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}` : instancePath;
}

function problem(message: string, pointer = ''): ParsedArguments {
  const cut = message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message;
  return { ok: false, message: `The arguments ${cut}`.toWellFormed(), pointer };
}

function kind(value: unknown): string {
  if (Array.isArray(value)) return 'an array';
  return value === null ? 'null' : `a ${typeof value}`;
}
