import { z } from 'zod';

const SEGMENT = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const NAME_RULE = 'must be lower-case letters, digits and hyphens, with an optional namespace: org/name';

/** The name of an agent or a skill in the catalog, or the id of an environment. */
export const catalogName = z
  .string()
  .max(127)
  .regex(new RegExp(`^(?:${SEGMENT}/)?${SEGMENT}$`), NAME_RULE);

/** Names a registered agent, of any API: the Sessions API has a wider rule for names. */
export const agentReference = z
  .string()
  .min(1)
  .max(140)
  .describe('the name of a registered agent; name:N is its revision N');
