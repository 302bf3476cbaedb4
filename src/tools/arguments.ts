import { Ajv, type ErrorObject, type Options } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { jsonShape } from '../lib/json-shape.ts';
import { withCpuLimit } from '../lib/timeout.ts';
import { errorMessage } from '../lib/errors.ts';

export type ParsedArguments =
  | { ok: true; value: Record<string, unknown> }
  /** `pointer`: the place of the first problem, as a JSON pointer. */
  | { ok: false; message: string; pointer: string };

/** Above what a model writes in one message. */
const MAX_LENGTH = 1024 * 1024;
const MAX_DEPTH = 100;
const MAX_MESSAGE_LENGTH = 500;
const MAX_VALIDATORS = 500;
/** With these limits, parsing included, a call blocks the event loop for less than 100 ms. */
const MAX_VALUES = 20_000;
const COMPILE_MS = 30;
const VALIDATE_MS = 20;
/** A larger schema is not compiled, which takes up to 1 s for 1,000 parts of it. The tool is offered nevertheless. */
const MAX_SCHEMA_LENGTH = 64 * 1024;

/** Parses the arguments of a tool call as a model wrote them, and validates them against the tool's schema. Empty text is `{}`. */
export function parseArguments(schema: object, text: string): ParsedArguments {
  if (text.trim() === '') return check(schema, {});
  if (text.length > MAX_LENGTH) return problem(`are longer than ${MAX_LENGTH} characters`);
  const { depth, values } = jsonShape(text);
  if (depth > MAX_DEPTH) return problem(`are nested deeper than ${MAX_DEPTH} levels`);
  if (values > MAX_VALUES) return problem(`have more than ${MAX_VALUES} values`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return problem(`are not valid JSON: ${errorMessage(error)}`);
  }
  if (!isObject(value)) return problem(`must be a JSON object, not ${kind(value)}`);
  return check(schema, value, values);
}

/** Whether a value fits a schema; undefined if that cannot be evaluated, or not in time. */
export function fitsSchema(schema: object, value: unknown): boolean | undefined {
  try {
    const validate = validator(schema);
    return validate === anything ? undefined : validate(value, jsonShape(JSON.stringify(value)).values).length === 0;
  } catch {
    return undefined;
  }
}

/** Whether values can be checked against a schema: it is valid, and not too large. */
export function isSchema(schema: object): boolean {
  return validator(schema) !== anything;
}

function check(schema: object, value: Record<string, unknown>, values = 1): ParsedArguments {
  const errors = misfits(schema, value, values);
  const [first] = errors;
  return first ? problem(`do not fit the tool's schema: ${describeAll(errors)}`, placeOf(first)) : { ok: true, value };
}

/**
 * Why a value does not fit a server's schema, with the place as a JSON pointer; undefined if it does, or if the schema
 * cannot be checked within the limits: the server validates in any case. `values`: how many values are in the value.
 */
export function schemaProblem(schema: object, value: object, values = 1): string | undefined {
  const errors = misfits(schema, value, values);
  return errors.length > 0 ? describeAll(errors) : undefined;
}

function misfits(schema: object, value: object, values: number): ErrorObject[] {
  try {
    return validator(schema)(value, values);
  } catch {
    return [];
  }
}

/** For anyOf, the first error is that of its first branch, and the last one says that no branch matches. */
function describeAll(errors: ErrorObject[]): string {
  const shown = [...errors.slice(0, 1), ...errors.slice(-1)];
  return [...new Set(shown.map(describe))].join('\n');
}

/** Where a value is missing or wrong, as a JSON pointer. */
function placeOf({ instancePath, params }: ErrorObject): string {
  const key: unknown = params.missingProperty ?? params.additionalProperty ?? params.unevaluatedProperty;
  return typeof key === 'string' ? `${instancePath}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}` : instancePath;
}

/** `values`: the number of values inside the value. */
type Validator = (value: unknown, values: number) => ErrorObject[];

const byIdentity = new WeakMap<object, Validator>();
const byContent = new Map<string, Validator>();

function validator(schema: object): Validator {
  const known = byIdentity.get(schema);
  if (known) return known;
  const content = JSON.stringify(schema);
  const compiled = byContent.get(content) ?? (content.length > MAX_SCHEMA_LENGTH ? anything : compile(schema, content));
  byContent.delete(content);
  byContent.set(content, compiled);
  const [oldest] = byContent.keys();
  if (byContent.size > MAX_VALIDATORS && oldest !== undefined) byContent.delete(oldest);
  byIdentity.set(schema, compiled);
  return compiled;
}

/** Keywords whose cost is not bounded by the sizes of the schema and the value. */
const COSTLY = /"(pattern|patternProperties|uniqueItems|\$ref|\$dynamicRef|\$recursiveRef)":/;

/**
 * Below these sizes, compiling and validating take at most 20 ms and run without a time limit: limits are measured in
 * wall time, so a busy machine would let invalid arguments pass. A step compares one part of a schema with one value.
 */
const MAX_CHEAP_PARTS = 100;
const MAX_CHEAP_STEPS = 100_000;

const anything: Validator = () => [];

const OPTIONS: Options = { strict: false, logger: false, validateSchema: false, meta: false };

/** Uses a new Ajv instance for each schema, because schemas of different servers may share an `$id`. */
function compile(schema: object, content: string): Validator {
  const { values: parts } = jsonShape(content);
  try {
    const dialect = '$schema' in schema ? String(schema.$schema) : '';
    const ajv = dialect.includes('draft-07') ? new Ajv(OPTIONS) : new Ajv2020(OPTIONS);
    addFormats.default(ajv);
    const validate =
      parts > MAX_CHEAP_PARTS ? withCpuLimit(COMPILE_MS, () => ajv.compile(schema)) : ajv.compile(schema);
    if ('$async' in validate) throw new TypeError('asynchronous schemas are not supported');
    const errorsOf = (value: unknown): ErrorObject[] => (validate(value) ? [] : (validate.errors ?? []));
    const isCostly = COSTLY.test(content);
    return (value, values) =>
      isCostly || parts * values > MAX_CHEAP_STEPS ? withCpuLimit(VALIDATE_MS, () => errorsOf(value)) : errorsOf(value);
  } catch {
    return anything;
  }
}

// The first compilation takes several times as long as later ones, so it is done before the first call.
compile({}, '{}');

function describe({ instancePath, message, keyword, params }: ErrorObject): string {
  const detail =
    keyword === 'additionalProperties' || keyword === 'unevaluatedProperties'
      ? `: ${JSON.stringify(params.additionalProperty ?? params.unevaluatedProperty)}`
      : keyword === 'enum' || keyword === 'const'
        ? `: ${JSON.stringify(params.allowedValues ?? params.allowedValue)}`
        : '';
  return `${instancePath} ${message ?? 'is not valid'}${detail}`.trim();
}

function problem(message: string, pointer = ''): ParsedArguments {
  const cut = message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message;
  return { ok: false, message: `The arguments ${cut}`.toWellFormed(), pointer };
}

function kind(value: unknown): string {
  if (Array.isArray(value)) return 'an array';
  return value === null ? 'null' : `a ${typeof value}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
