const MAX_SCHEMAS = 100;
const MAX_KIB = 64;
const MAX_MS = 100;

/**
 * The limits of the JSON Schemas of one request: schemas of answers, and conditions of decision policies, in all agents
 * that it checks. The schemas of tools do not count, since no request compiles them.
 *
 * Bounds on each schema are not enough: the format of agents allows 1,000 conditions, and a request 100 sub-agents.
 */
export class SchemaBudget {
  readonly #maxMs: number;
  #schemas = 0;
  #bytes = 0;
  #ms = 0;

  /** @param maxMs the processor time for compiling them, in milliseconds */
  constructor({ maxMs = MAX_MS }: { maxMs?: number } = {}) {
    this.#maxMs = maxMs;
  }

  /** Counts a schema. If it exceeds the budget, returns the problem, for a sentence that begins with its name. */
  count(schema: object): string | undefined {
    this.#schemas += 1;
    if (this.#schemas > MAX_SCHEMAS) {
      return `is one too many: a request may have ${MAX_SCHEMAS} conditions and schemas of answers, ${OF_ALL}; leave some out`;
    }
    this.#bytes += Buffer.byteLength(JSON.stringify(schema));
    if (this.#bytes <= MAX_KIB * 1024) return undefined;
    return `is too long: the conditions and schemas of answers of a request may have ${MAX_KIB} KiB of JSON, ${OF_ALL}; shorten them`;
  }

  /** Whether so many milliseconds are left. */
  has(ms: number): boolean {
    return this.#ms + ms <= this.#maxMs;
  }

  /** Counts the processor time that compiling a schema takes, in milliseconds. Returns the same as `count`. */
  spend(ms: number): string | undefined {
    if (this.has(ms)) {
      this.#ms += ms;
      return undefined;
    }
    return `is too expensive: compiling the conditions and schemas of answers of a request may take ${this.#maxMs} ms of processor time, ${OF_ALL}; make them simpler`;
  }
}

const OF_ALL = 'those of sub-agents included';
