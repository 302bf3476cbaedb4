import { z } from 'zod';
import { bounded, line } from '../../../spec/bounds.ts';
import { agentChanges, agentParams } from './agent-params.ts';
import { inputItems } from './items.ts';

/** The bodies that start a run. Null means unset. Unknown keys are rejected, but for those of items and their parts. */

/** How long a response waits for the end of the run, in seconds. */
export const DEFAULT_WAIT_SECONDS = 600;

const context = z
  .unknown()
  .optional()
  .describe('any JSON of at most 256 KiB, for the instructions and the tools; not shown to the model; default {}');

/** The form and the time of a run's response. */
export const responseOptions = {
  stream: z.boolean().nullish().describe('answer with server-sent events; default false'),
  wait_seconds: z
    .number()
    .min(0)
    .max(3_600)
    .nullish()
    .describe(
      `without stream: how long the answer waits for the end of the run; default ${DEFAULT_WAIT_SECONDS}, 0: not at all`,
    ),
};

export type ResponseOptions = z.infer<z.ZodObject<typeof responseOptions>>;

const MAX_METADATA_LENGTH = 512;

const fields = {
  input: inputItems,
  context,
  ...responseOptions,
  metadata: bounded(z.record(line({ min: 1, max: MAX_METADATA_LENGTH }), line({ max: MAX_METADATA_LENGTH })), 16)
    .nullish()
    .describe('returned with the run'),
};

/** The body of `POST /v1/runs`. */
export const runRequest = z.strictObject({ ...fields, agent: agentParams }).meta({ id: 'RunRequest' });

/** The body of `POST /v1/agents/{name}/runs`. */
export const agentRunRequest = z
  .strictObject({
    ...fields,
    agent: z.null('the path names the agent: send changes to it as params').optional(),
    params: agentChanges.nullish(),
  })
  .meta({ id: 'AgentRunRequest' });

export type RunRequest = z.infer<typeof runRequest>;
export type AgentRunRequest = z.infer<typeof agentRunRequest>;
