import { Ajv, type ErrorObject, type Options } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { LRUCache } from 'lru-cache';
import { isJsonObject } from '../lib/json.ts';
import { jsonShape } from '../lib/json-shape.ts';
import { withParts } from '../lib/schema-parts.ts';
import { cpuStopwatch, withCpuLimit } from '../lib/timeout.ts';

/**
 * Returns the errors of a value; `values` is the number of values inside it.
 * @throws Error if that takes too long
 */
type Validator = (value: unknown, values: number) => ErrorObject[];

/** Null if values cannot be checked against the schema: it is not valid, or too large. */
interface Compiled {
  validator: Validator | null;
  /** The processor time that compiling it has taken, in milliseconds. */
  ms: number;
}

const MAX_VALIDATORS = 500;
/** In milliseconds of processor time. Schemas that people write take 10 ms, and 30 on a busy machine. */
const COMPILE_MS = 60;
/** A larger schema is not compiled, which takes up to 1 s for 1,000 parts of it. */
const MAX_SCHEMA_LENGTH = 64 * 1024;

/** Keywords whose cost is not bounded by the number of parts of the schema and the size of the value. */
const COSTLY = /"(pattern|patternProperties|uniqueItems|\$ref|\$dynamicRef|\$recursiveRef)":/;

/**
 * Below these sizes and without such keywords, compiling takes at most 70 ms and validating 20 ms; both then run without
 * a time limit: limits depend on wall time, so a busy machine would let invalid values pass. A step compares one part of
 * a schema with one value.
 */
const MAX_CHEAP_PARTS = 100;
const MAX_CHEAP_STEPS = 100_000;

const OPTIONS: Options = { strict: false, logger: false, validateSchema: false, meta: false };

interface ValidatorOptions {
  /** The limit for one value, in milliseconds of processor time. */
  validateMs: number;
  /** Whether validators find all errors, and not only the first. */
  allErrors: boolean;
  /**
   * Whether a required property that has a default may be missing: generators of schemas list such properties as required,
   * and their servers accept calls without them.
   */
  defaultsAreOptional?: boolean;
}

/** Compiles and keeps the validators of foreign JSON Schemas, which it bounds in size and time. */
export class SchemaValidators {
  readonly #options: ValidatorOptions;
  readonly #byIdentity = new WeakMap<object, Compiled>();
  readonly #byContent = new LRUCache<string, Compiled>({ max: MAX_VALIDATORS });

  constructor(options: ValidatorOptions) {
    this.#options = options;
    // The first compilation takes several times as long as later ones, so it is done before the first call.
    this.of({});
  }

  /** Null if values cannot be checked against the schema: it is not valid, or too large. */
  of(schema: object): Validator | null {
    return this.compile(schema).validator;
  }

  /** A known schema is not compiled again; its `ms` is the time that its compilation took. */
  compile(schema: object): Compiled {
    const known = this.#byIdentity.get(schema);
    if (known !== undefined) return known;
    const content = JSON.stringify(schema);
    let compiled = this.#byContent.get(content);
    if (compiled === undefined) {
      const ms = cpuStopwatch();
      compiled = { validator: this.#compile(schema, content), ms: ms() };
    }
    this.#byContent.set(content, compiled);
    this.#byIdentity.set(schema, compiled);
    return compiled;
  }

  /** Lets a schema be compiled again. */
  forget(schema: object): void {
    this.#byIdentity.delete(schema);
    this.#byContent.delete(JSON.stringify(schema));
  }

  /** Uses a new Ajv instance for each schema, because schemas of different servers may share an `$id`. */
  #compile(schema: object, content: string): Validator | null {
    if (content.length > MAX_SCHEMA_LENGTH) return null;
    const { validateMs, allErrors, defaultsAreOptional } = this.#options;
    const { values: parts } = jsonShape(content);
    const isCostly = COSTLY.test(content);
    try {
      const dialect = '$schema' in schema ? String(schema.$schema) : '';
      const options = { ...OPTIONS, allErrors };
      const ajv = dialect.includes('draft-07') ? new Ajv(options) : new Ajv2020(options);
      addFormats.default(ajv);
      const used = defaultsAreOptional ? withOptionalDefaults(schema) : schema;
      const isBounded = isCostly || parts > MAX_CHEAP_PARTS;
      const limited = <T>(work: () => T): T => (isBounded ? withCpuLimit(COMPILE_MS, work) : work());
      const validate = limited(() => ajv.compile(used));
      if ('$async' in validate) throw new TypeError('asynchronous schemas are not supported');
      // V8 compiles the generated code when it first runs: that must not count as the time of a value.
      limited(() => validate(null));
      const errorsOf = (value: unknown): ErrorObject[] => (validate(value) ? [] : (validate.errors ?? []));
      return (value, values) =>
        isCostly || parts * values > MAX_CHEAP_STEPS
          ? withCpuLimit(validateMs, () => errorsOf(value))
          : errorsOf(value);
    } catch {
      return null;
    }
  }
}

/** A schema that requires no property with a default. */
function withOptionalDefaults<T>(schema: T): T | Record<string, unknown> {
  if (!isJsonObject(schema)) return schema;
  const { required, properties } = schema;
  const hasDefault = (name: unknown): boolean => {
    const property =
      typeof name === 'string' && isJsonObject(properties) && Object.hasOwn(properties, name) && properties[name];
    return isJsonObject(property) && Object.hasOwn(property, 'default');
  };
  const isLax = Array.isArray(required) && required.some(hasDefault);
  const own = isLax ? { ...schema, required: required.filter((name) => !hasDefault(name)) } : schema;
  return withParts(own, withOptionalDefaults);
}

/** An error, with the JSON pointer to the part of the value. */
export function describe({ instancePath, message, keyword, params }: ErrorObject): string {
  const detail =
    keyword === 'additionalProperties' || keyword === 'unevaluatedProperties'
      ? `: ${JSON.stringify(params.additionalProperty ?? params.unevaluatedProperty)}`
      : keyword === 'enum' || keyword === 'const'
        ? `: ${JSON.stringify(params.allowedValues ?? params.allowedValue)}`
        : '';
  return `${instancePath} ${message ?? 'is not valid'}${detail}`.trim();
}
