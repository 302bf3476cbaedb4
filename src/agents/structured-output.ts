import type { CallModelResult } from '../core/history.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import { violatesSchema, type ModelMessage } from '../core/records/message.ts';
import { ROOT_THREAD } from '../core/records/threads.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { parseJson } from '../tools/arguments.ts';
import { describe, SchemaValidators } from '../tools/schema-validators.ts';

type ResponseFormat = AgentSpec['response_format'];
type Check = NonNullable<ModelMessage['structured']>;
type Outcome = CallModelResult['outcome'];

const MAX_REPAIRS = 2;

/** The end of a turn, or of a sub-agent, has the output as text and as JSON in one event, which stays below 1 MiB. */
const MAX_BYTES = 256 * 1024;

const MAX_ERRORS = 10;
const MAX_PROBLEM_LENGTH = 2_000;

/** A message has one output, so its check may take longer than that of a call. The model gets all errors at once. */
export const outputValidators = new SchemaValidators({ validateMs: 100, allErrors: true });

/** The JSON Schema of an agent's output; undefined if it needs none. */
export function outputSchema(format: ResponseFormat): object | undefined {
  return format?.type === 'json_schema' ? (format.json_schema.schema ?? {}) : undefined;
}

/**
 * Checks an output. It does not fit if it cannot be checked within the limits, since clients rely on an output that
 * fits. A refusal and a text that a filter has cut off are not checked: the same request would end in the same way.
 */
export function checkOutput(
  format: ResponseFormat,
  { content, refusal, finishReason }: Pick<ModelMessage, 'content' | 'refusal' | 'finishReason'>,
  { checksJson }: Pick<AgentSpec, 'checksJson'> = {},
): Check | undefined {
  const isAnyJson = format?.type === 'json_object' && checksJson === true;
  const schema = isAnyJson ? {} : outputSchema(format);
  if (!schema || refusal || finishReason === 'content_filter') return undefined;
  const problem = problemOf(schema, content);
  if (problem === undefined) return { fits: true };
  return { fits: false, problem: shortened(problem), ...(isAnyJson && { isAnyJson }) };
}

function problemOf(schema: object, text: string): string | undefined {
  const parsed = parseJson(text);
  if ('problem' in parsed) return `it is ${parsed.problem}`;
  const { value, values } = parsed;
  if (Buffer.byteLength(JSON.stringify(value)) > MAX_BYTES) return `it is longer than ${MAX_BYTES} bytes`;
  const validate = outputValidators.of(schema);
  if (!validate) return 'the schema cannot be evaluated';
  try {
    const errors = validate(value, values).slice(0, MAX_ERRORS);
    return errors.length === 0 ? undefined : [...new Set(errors.map(describe))].join('\n');
  } catch {
    return 'it cannot be checked in time: the schema is too expensive for it';
  }
}

function shortened(problem: string): string {
  const cut = problem.length > MAX_PROBLEM_LENGTH ? `${problem.slice(0, MAX_PROBLEM_LENGTH)}…` : problem;
  return cut.toWellFormed();
}

/** How often the next output of a thread may be rejected: the limit counts the rejected ones of a turn or sub-agent. */
export function repairsLeft({ config }: AgentSpec, records: UnsequencedRecord[], threadId: string): number {
  const from = threadId === ROOT_THREAD ? records.findLastIndex(({ kind }) => kind === 'turn.created') : 0;
  const rejected = records
    .slice(Math.max(0, from))
    .filter((record) => record.kind === 'model.message' && record.threadId === threadId && violatesSchema(record));
  return Math.max(0, (config?.structured_output?.max_repairs ?? MAX_REPAIRS) - rejected.length);
}

/** The outcome of a model call: an error if its message has an output that does not fit, and no repair is left. */
export function outcomeOf(outcome: Outcome, message: ModelMessage | undefined, repairs: number): Outcome {
  const check = message?.structured;
  if (!check || check.fits || repairs > 0) return outcome;
  const misfit = check.isAnyJson ? 'is not the JSON that the agent requires' : "does not fit the agent's JSON Schema";
  const problem = `The answer ${misfit}: ${check.problem}`;
  return { status: 'error', message: problem, code: 'answer_misfit' };
}
