import { setImmediate as nextTurn } from 'node:timers/promises';
import { invalidAgent, type AgentProblem, type CheckScope } from '../engine/agent-check.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { conditionValidators } from '../tools/arguments.ts';
import type { SchemaValidators } from '../tools/schema-validators.ts';
import { outputSchema, outputValidators } from './structured-output.ts';

/** A JSON Schema by which the server itself will check something. */
interface UsedSchema {
  schema: object;
  name: string;
  param: string;
  validators: SchemaValidators;
}

/**
 * The first JSON Schema of an agent by which nothing could be checked, or that exceeds the budget of the request. The
 * schemas of a stored agent were checked when it was accepted: none of its turns is rejected for the sum with other
 * schemas, or for a measured time, which differs between measurements.
 */
export async function specSchemaProblem(
  spec: AgentSpec,
  budget: CheckScope['budget'],
): Promise<AgentProblem | undefined> {
  if (!budget) return undefined;
  const schemas = schemasOf(spec);
  // All are counted before the first is compiled.
  for (const used of schemas) {
    const problem = budget.count(used.schema);
    if (problem !== undefined) return problemOf(used, problem);
  }
  for (const used of schemas) {
    let { validator, ms } = used.validators.compile(used.schema);
    if (!budget.has(ms)) {
      // A machine that pauses for a moment makes a schema look expensive.
      used.validators.forget(used.schema);
      await nextTurn();
      ({ validator, ms } = used.validators.compile(used.schema));
    }
    if (!validator) return problemOf(used, INVALID);
    const problem = budget.spend(ms);
    if (problem !== undefined) {
      // For the same reason the next request measures all anew.
      for (const { validators, schema } of schemas) validators.forget(schema);
      return problemOf(used, problem);
    }
    await nextTurn();
  }
  return undefined;
}

const INVALID =
  'is not a valid JSON Schema, refers to another document, or is too large: correct it, or make it simpler';

function problemOf({ name, param }: UsedSchema, problem: string): AgentProblem {
  return invalidAgent(param, `${name} ${problem}`);
}

function schemasOf({ config, response_format: format }: AgentSpec): UsedSchema[] {
  const conditions = (config?.decision_policies ?? []).flatMap(({ match }, i) =>
    Object.entries(match.arguments ?? {}).map(([pointer, schema]) => ({
      schema,
      name: `the condition for ${pointer || 'the arguments'}`,
      param: `config.decision_policies.${i}.match.arguments`,
      validators: conditionValidators,
    })),
  );
  const answer = outputSchema(format);
  if (!answer) return conditions;
  const param = 'response_format.json_schema.schema';
  return [...conditions, { schema: answer, name: 'the schema of answers', param, validators: outputValidators }];
}
