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

/** The end of a turn, or of a sub-agent, has the answer as text and as JSON in one event, which stays below 1 MiB. */
const MAX_BYTES = 256 * 1024;

const MAX_ERRORS = 10;
const MAX_PROBLEM_LENGTH = 2_000;

/** One message has one answer, so its check may take longer than that of a call. The model is told all errors at once. */
export const outputValidators = new SchemaValidators({ validateMs: 100, allErrors: true });

/** The JSON Schema of an agent's answers; undefined if they need not have one. */
export function outputSchema(format: ResponseFormat): object | undefined {
  return format?.type === 'json_schema' ? (format.json_schema.schema ?? {}) : undefined;
}

/**
 * Checks an answer. One that cannot be checked within the limits does not fit: clients rely on what fits. A refusal is
 * not checked, nor what a filter has cut off: the same question would end in the same way.
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

/** How often the next message of a thread may be sent back: the limit counts all of a turn, or of a sub-agent. */
export function repairsLeft({ config }: AgentSpec, records: UnsequencedRecord[], threadId: string): number {
  const from = threadId === ROOT_THREAD ? records.findLastIndex(({ kind }) => kind === 'turn.created') : 0;
  const rejected = records
    .slice(Math.max(0, from))
    .filter((record) => record.kind === 'model.message' && record.threadId === threadId && violatesSchema(record));
  return Math.max(0, (config?.structured_output?.max_repairs ?? MAX_REPAIRS) - rejected.length);
}

/** The outcome of a model call whose message may be an answer that is not accepted, and is the last one. */
export function outcomeOf(outcome: Outcome, message: ModelMessage | undefined, repairs: number): Outcome {
  const check = message?.structured;
  if (!check || check.fits || repairs > 0) return outcome;
  const misfit = check.isAnyJson ? 'is not the JSON that the agent requires' : "does not fit the agent's JSON Schema";
  const problem = `The answer ${misfit}: ${check.problem}`;
  return { status: 'error', message: problem, code: 'answer_misfit' };
}
